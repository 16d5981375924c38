/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.bandwidth, first half (the second is check_hostlink_cuda.c): the rates of copies and reads of a GPU's own
 * memory. Several shapes of our kernels and the driver's own copy are timed by the GPU's clock; the figure is the
 * best shape's median, because it measures the memory and not the shape. All data is verified. One worker per GPU. */
#include "base/gp_base.h"

#include "samples.h"
#include "validate/agent/cuda/cuda.h"

#define MIB ((size_t)1 << 20)
enum { SAMPLES = 15, WARM = 3 };
static const uint64_t seed = 0x5eed00ba4d;

struct bandwidth {
    struct check_ctx *c;
    struct agent_result *r;
    struct pattern_room room;
    dev_addr from, to, sums;
    size_t bytes;
    int sms;
    const struct shape *shape;
    bool reading;
};

/* blocks_per_sm 0: enough blocks for 64 bytes per thread. block 0: the driver's copy. */
static const struct shape {
    const char *name;
    unsigned block, blocks_per_sm;
} copy_shapes[] = {{"many_blocks", 256, 0}, {"resident_256", 256, 8}, {"resident_512", 512, 4}, {"driver", 0, 0}},
  read_shapes[] = {{"resident_256", 256, 8}, {"resident_512", 512, 4}, {"four_waves", 256, 32}};

static unsigned shape_blocks(const struct bandwidth *b) {
    size_t piece = (size_t)b->shape->block * 64;
    if (b->shape->blocks_per_sm == 0) return (unsigned)((b->bytes + piece - 1) / piece);
    return b->shape->blocks_per_sm * (unsigned)b->sms;
}

static int queue(void *arg, struct gp_error *err) {
    struct bandwidth *b = arg;
    if (b->shape->block == 0) {
        struct copy_args a = {.kind = COPY_WITHIN, .dev = b->to, .dev_src = b->from, .bytes = b->bytes};
        return cuda_copy_queue(b->c->dev, &a, err);
    }
    union kernel_arg copy[4] = {
        {.p = b->to}, {.p = b->from}, {.i = (int64_t)(b->bytes / 8)}, {.i32 = (int32_t)b->shape->block}};
    union kernel_arg reads[4] = {copy[1], copy[2], copy[3], {.p = b->sums}};
    unsigned grid = shape_blocks(b);
    struct launch_args l = {.kernel = b->reading ? "gp_stream_read" : "gp_stream_copy",
                            .items = (int64_t)grid * b->shape->block,
                            .block = b->shape->block,
                            .grid = grid,
                            .args = b->reading ? reads : copy,
                            .n_args = 4};
    return agent_kind.device->launch(b->c->dev, &l, err);
}

static int take(struct bandwidth *b, struct gp_error *err) {
    const struct device_ops *ops = agent_kind.device;
    size_t avail = 0, total = 0;
    b->sms = GP_MAX(cuda_attribute(b->c->dev, CU_ATTR_SMS), 1);
    int rc = cuda_memory(b->c->dev, &avail, &total, err);
    b->bytes = GP_MIN(1024 * MIB, total / 8) & ~(MIB - 1);
    if (rc == 0) rc = pattern_open(&b->room, b->c, b->c->dev, b->c->gpu, err);
    if (rc == 0) rc = ops->alloc(b->c->dev, b->bytes, &b->from, err);
    if (rc == 0) rc = ops->alloc(b->c->dev, b->bytes, &b->to, err);
    if (rc == 0) rc = ops->alloc(b->c->dev, (size_t)b->sms * 32 * 256 * 8, &b->sums, err);
    struct pattern p = {.base = b->from, .bytes = b->bytes, .kind = MEM_PAIRED, .seed = seed};
    return rc < 0 ? rc : pattern_fill(&b->room, &p, err);
}

static void bandwidth_clear(struct bandwidth *b) {
    agent_kind.device->free(b->c->dev, b->from);
    agent_kind.device->free(b->c->dev, b->to);
    agent_kind.device->free(b->c->dev, b->sums);
    pattern_close(&b->room);
}

/* One shape's samples of a copy, with the copied data verified. */
static int copy_shape(struct bandwidth *b, struct samples *ret, struct gp_error *err) {
    struct pattern to = {.base = b->to, .bytes = b->bytes, .kind = MEM_ZEROS};
    struct measured m = {
        .queue = queue, .arg = b, .n = SAMPLES, .warm = WARM, .work = 2.0 * (double)b->bytes, .unit = 1e9};
    struct mem_log log;
    int rc = pattern_fill(&b->room, &to, err);
    if (rc == 0) rc = samples_take(b->c, &m, ret, err);
    to.kind = MEM_PAIRED;
    to.seed = seed;
    if (rc == 0) rc = pattern_verify(&b->room, &to, &log, err);
    if (rc == 0 && log.wrong) pattern_blame(b->r, "copy_wrong", &log, "copy within the GPU's memory");
    return rc;
}

/* The sum of every pair of words is 2^64 - 1, so that of all is minus their number. */
static int read_shape(struct bandwidth *b, struct samples *ret, struct gp_error *err) {
    size_t n = (size_t)shape_blocks(b) * b->shape->block;
    GP_AUTO_FREE uint64_t *sums = xcalloc(n, sizeof *sums);
    struct copy_args a = {.kind = COPY_TO_DEVICE,
                          .dev = b->sums,
                          .host = sums,
                          .bytes = n * sizeof *sums,
                          .deadline_ms = b->c->deadline_ms};
    struct measured m = {.queue = queue, .arg = b, .n = SAMPLES, .warm = WARM, .work = (double)b->bytes, .unit = 1e9};
    int rc = agent_kind.device->copy(b->c->dev, &a, err);
    if (rc == 0) rc = samples_take(b->c, &m, ret, err);
    a.kind = COPY_FROM_DEVICE;
    if (rc == 0) rc = agent_kind.device->copy(b->c->dev, &a, err);
    uint64_t sum = 0, want = (uint64_t)0 - b->bytes / 16;
    for (size_t i = 0; i < n; i++) sum += sums[i];
    if (rc == 0 && sum != want)
        agent_set(b->r, VERDICT_FAIL, "read_wrong", "the sum of %zu MiB read by %s is 0x%016llx, expected 0x%016llx",
                  b->bytes / MIB, b->shape->name, (unsigned long long)sum, (unsigned long long)want);
    return rc;
}

/* All shapes of one direction: the best is the figure, each one's samples are data. */
static int run_shapes(struct bandwidth *b, const struct shape *shapes, size_t n, bool reading, struct gp_error *err) {
    const char *figure = reading ? "read" : "copy";
    struct samples best = {0};
    const char *best_name = "";
    int rc = 0;
    b->reading = reading;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct samples s = {0};
        GP_AUTO_FREE char *key = xasprintf("%s_%s", figure, shapes[i].name);
        b->shape = &shapes[i];
        rc = reading ? read_shape(b, &s, err) : copy_shape(b, &s, err);
        if (rc < 0) break;
        agent_data_num(b->r, key, samples_median(&s));
        if (samples_median(&s) > samples_median(&best) || best.n == 0) {
            best = s;
            best_name = shapes[i].name;
        }
    }
    if (rc < 0) return rc;
    GP_AUTO_FREE char *shape_key = xasprintf("%s_shape", figure);
    GP_AUTO_FREE char *samples_key = xasprintf("%s_samples", figure);
    agent_data_str(b->r, shape_key, best_name);
    samples_say(&best, b->r, samples_key);
    agent_metric(b->r, figure, samples_median(&best));
    return 0;
}

static int device_measure(struct check_ctx *c, struct agent_result *r, struct gp_error *err) {
    GP_CLEANUP(bandwidth_clear) struct bandwidth b = {.c = c, .r = r};
    int rc = take(&b, err);
    agent_data_int(r, "bytes", (int64_t)b.bytes);
    if (rc == 0) rc = run_shapes(&b, copy_shapes, GP_ARRAY_LEN(copy_shapes), false, err);
    return rc < 0 ? rc : run_shapes(&b, read_shapes, GP_ARRAY_LEN(read_shapes), true, err);
}

void gpu_bandwidth_cuda(struct check_ctx *c, struct agent_result *r) {
    struct gp_error err = {0};
    int rc = device_measure(c, r, &err);
    if (rc == 0) rc = hostlink_measure(c, r, &err);
    if (rc < 0) cuda_verdict(r, &err);
    else
        agent_say(r, "copy %.4g, read %.4g, from the host %.4g, to the host %.4g GB/s", r->metrics[0].value,
                  r->metrics[1].value, r->metrics[2].value, r->metrics[3].value);
}

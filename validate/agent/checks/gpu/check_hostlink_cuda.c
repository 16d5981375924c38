/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of gpu.bandwidth: the rates between a GPU and the host's memory, each way, with page-locked memory
 * near the GPU, timed by the GPU's clock; received data is verified at both ends. The timed copies run for one GPU
 * after the other, because they share the host's memory and often a PCIe switch; the rest runs side by side. */
#include "base/gp_base.h"

#include "samples.h"
#include "validate/agent/cuda/cuda.h"

#include "base/clock.h"

#include <fcntl.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
enum { SAMPLES = 9, WARM = 1 };
#define MOST_S 0.3 /* each way: eight GPUs take turns, and a narrow link needs 0.1 s for one copy */

struct hostlink {
    struct check_ctx *c;
    struct agent_result *r;
    struct pattern_room room;
    dev_addr dev;
    void *host;
    size_t bytes;
    enum copy_kind kind;
};

static void hostlink_clear(struct hostlink *h) {
    agent_kind.device->free(h->c->dev, h->dev);
    cuda_host_free(h->c->dev, h->host);
    pattern_close(&h->room);
}

static int take(struct hostlink *h, struct gp_error *err) {
    size_t avail = 0, total = 0;
    int64_t machine = 0, host = agent_memory_bytes(&machine);
    int rc = cuda_memory(h->c->dev, &avail, &total, err);
    h->bytes = GP_MIN(256 * MIB, GP_MIN(total / 8, (size_t)GP_MAX(host, 0) / 16)) & ~(MIB - 1);
    h->bytes = GP_MAX(h->bytes, MIB);
    if (rc == 0) rc = pattern_open(&h->room, h->c, h->c->dev, h->c->gpu, err);
    if (rc == 0) rc = agent_kind.device->alloc(h->c->dev, h->bytes, &h->dev, err);
    return rc < 0 ? rc : cuda_host_alloc(h->c->dev, h->bytes, &h->host, err);
}

static int queue(void *arg, struct gp_error *err) {
    struct hostlink *h = arg;
    struct copy_args a = {.kind = h->kind, .dev = h->dev, .host = h->host, .bytes = h->bytes};
    return cuda_copy_queue(h->c->dev, &a, err);
}

/* A worker that is killed gives its turn back. */
static int turn_take(const struct check_ctx *c, struct gp_error *err) {
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const struct timespec pause = {.tv_nsec = 1000000};
    while (c->turn_fd > 0 && fcntl(c->turn_fd, F_SETLK, &all) != 0) {
        if (clock_left_ms(c->deadline_ms) < 1000)
            return gp_fail(err, GP_EENV,
                           "gpu %d: not measured: its turn for copies to and from the host did not come in time",
                           c->gpu);
        nanosleep(&pause, NULL);
    }
    return 0;
}

static void turn_give(const struct check_ctx *c) {
    struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (c->turn_fd > 0) fcntl(c->turn_fd, F_SETLK, &none);
}

static int run_way(struct hostlink *h, enum copy_kind kind, const char *figure, struct gp_error *err) {
    struct samples s = {0};
    struct measured m = {
        .queue = queue, .arg = h, .n = SAMPLES, .warm = WARM, .work = (double)h->bytes, .unit = 1e9, .most_s = MOST_S};
    GP_AUTO_FREE char *key = xasprintf("%s_samples", figure);
    h->kind = kind;
    int rc = turn_take(h->c, err);
    if (rc < 0) return rc;
    rc = samples_take(h->c, &m, &s, err);
    turn_give(h->c);
    if (rc < 0) return rc;
    samples_say(&s, h->r, key);
    agent_metric(h->r, figure, samples_median(&s));
    return 0;
}

static int to_device(struct hostlink *h, struct gp_error *err) {
    struct pattern p = {.base = h->dev, .bytes = h->bytes, .kind = MEM_PAIRED, .seed = 0xbaadf00d};
    struct pattern none = {.base = h->dev, .bytes = h->bytes, .kind = MEM_ZEROS};
    struct mem_log log;
    pattern_fill_host(h->host, h->bytes / 8, p.kind, p.seed);
    int rc = pattern_fill(&h->room, &none, err);
    if (rc == 0) rc = run_way(h, COPY_TO_DEVICE, "h2d", err);
    if (rc == 0) rc = pattern_verify(&h->room, &p, &log, err);
    if (rc == 0 && log.wrong) pattern_blame(h->r, "h2d_wrong", &log, "copy from the host to the GPU");
    return rc;
}

static int from_device(struct hostlink *h, struct gp_error *err) {
    struct pattern p = {.base = h->dev, .bytes = h->bytes, .kind = MEM_PAIRED, .seed = 0xf00dbaad};
    size_t first = 0;
    memset(h->host, 0, h->bytes);
    int rc = pattern_fill(&h->room, &p, err);
    if (rc == 0) rc = run_way(h, COPY_FROM_DEVICE, "d2h", err);
    size_t wrong = rc < 0 ? 0 : pattern_verify_host(h->host, h->bytes / 8, p.kind, p.seed, &first);
    if (wrong) {
        const uint64_t *words = h->host;
        agent_set(h->r, VERDICT_FAIL, "d2h_wrong",
                  "copy from the GPU to the host: %zu wrong word%s, the first is word %zu: 0x%016llx, "
                  "bits 0x%llx",
                  wrong, wrong == 1 ? "" : "s", first, (unsigned long long)words[first],
                  (unsigned long long)words[first] ^ mem_value(0, (ki64)first, MEM_PAIRED, p.seed));
    }
    return rc;
}

int hostlink_measure(struct check_ctx *c, struct agent_result *r, struct gp_error *err) {
    GP_CLEANUP(hostlink_clear) struct hostlink h = {.c = c, .r = r};
    int rc = take(&h, err);
    agent_data_int(r, "link_bytes", (int64_t)h.bytes);
    if (rc == 0) rc = to_device(&h, err);
    return rc < 0 ? rc : from_device(&h, err);
}

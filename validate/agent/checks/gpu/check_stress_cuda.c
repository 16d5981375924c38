/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.stress: large matrix products without a pause, on all GPUs of the node at once, for as long as the
 * time allows. Rate (GPU time), clock, temperature, power and the reasons for lower clocks are sampled
 * while it computes; the first and the last product must have the same bits. */
#include "base/gp_base.h"

#include "gpu.h"
#include "products.h"
#include "stress.h"
#include "validate/agent/cuda/cuda.h"
#include "validate/agent/cuda/nvml_cuda.h"

#include "base/clock.h"
#include "base/vec.h"

#include <inttypes.h>

#define MIB ((size_t)1 << 20)
#define SAMPLE_MS 250
#define BLOCK_BYTES (4 * MIB) /* of random operands, repeated */
#define PRODUCTS_MAX 4096     /* queued at once */

static const struct stress_reasons reasons = {.hw = NVML_REASONS_HW,
                                              .hw_certain = NVML_REASONS_HW_CERTAIN,
                                              .sw_thermal = NVML_REASON_SW_THERMAL,
                                              .power_cap = NVML_REASON_POWER_CAP};

/* The types by power, highest first: the fallback follows. */
static const struct load_type {
    enum gemm_type type;
    const char *name;
    size_t bytes;       /* of an element of A and B */
    uint32_t keep, set; /* random bits to a value of 0.5 to 1 of either sign, per 32 bits */
    bool out_same;
} load_types[] = {
    {GEMM_BF16, "bf16", 2, 0x807f807f, 0x3f003f00, true},
    {GEMM_F16, "fp16", 2, 0x83ff83ff, 0x38003800, true},
    {GEMM_TF32, "tf32", 4, 0x807fffff, 0x3f000000, false},
    {GEMM_F32, "fp32", 4, 0x807fffff, 0x3f000000, false},
};

struct stress {
    struct check_ctx *c;
    struct device *dev;
    const struct device_ops *ops;
    const struct load_type *type;
    struct gemm_args gemm;
    nvml_device nvml;
    struct gp_error nvml_err; /* why clocks and temperatures are missing */
    size_t c_bytes;
    int64_t products, load_ms;
    VEC_OF(struct stress_sample) samples;
    bool lost;
};

static void stress_clear(struct stress *s) {
    s->ops->free(s->dev, s->gemm.a);
    s->ops->free(s->dev, s->gemm.b);
    s->ops->free(s->dev, s->gemm.c);
    vec_free(&s->samples);
}

/* --- operands --- */

static int fill(struct stress *s, dev_addr to, size_t bytes, uint64_t seed, struct gp_error *err) {
    size_t n = GP_MIN(bytes, BLOCK_BYTES);
    uint32_t *block = xmalloc(n);
    for (size_t i = 0; i < n / sizeof *block; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        block[i] = ((uint32_t)(seed >> 32) & s->type->keep) | s->type->set;
    }
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < bytes; at += n) {
        struct copy_args copy = {.kind = COPY_TO_DEVICE,
                                 .dev = to + at,
                                 .host = block,
                                 .bytes = GP_MIN(n, bytes - at),
                                 .deadline_ms = s->c->deadline_ms};
        rc = s->ops->copy(s->dev, &copy, err);
    }
    free(block);
    return rc;
}

#define SMALL_GPU (4096 * MIB) /* nobody trains on less: a short and small load suffices */

/* 8192 on a GPU of 16 GiB and more; less on smaller ones, and with our own fp32 kernel, where a product of 8192
 * takes seconds. */
static int edge(struct device *d, size_t total) {
    int n = total < SMALL_GPU ? 128 : 8192;
    while (n > 2048 && 6 * (size_t)n * (size_t)n > total / 32) n /= 2;
    return product_by_own(d) ? GP_MIN(n, 2048) : n;
}

static int prepare(struct stress *s, const struct load_type *type, int n, struct gp_error *err) {
    size_t in = (size_t)n * (size_t)n * type->bytes;
    s->type = type;
    s->c_bytes = (size_t)n * (size_t)n * (type->out_same ? type->bytes : 4);
    s->gemm = (struct gemm_args){
        .type = type->type, .m = n, .n = n, .k = n, .batch = 1, .out_same = type->out_same, .fastest = true};
    int rc = s->ops->alloc(s->dev, in, &s->gemm.a, err);
    if (rc == 0) rc = s->ops->alloc(s->dev, in, &s->gemm.b, err);
    if (rc == 0) rc = s->ops->alloc(s->dev, s->c_bytes, &s->gemm.c, err);
    if (rc == 0) /* the same on every GPU of the node */
        rc = fill(s, s->gemm.a, in, 0x9e3779b97f4a7c15u, err);
    if (rc == 0) rc = fill(s, s->gemm.b, in, 0xd1b54a32d192ed03u, err);
    return rc;
}

/* Zero, infinite or not a number: impossible with these operands. */
static bool is_odd(const struct stress *s, uint32_t v) {
    switch (s->c_bytes / ((size_t)s->gemm.n * (size_t)s->gemm.n) == 4 ? GEMM_F32 : s->type->type) {
    case GEMM_BF16: return (v & 0x7f80) == 0x7f80 || !(v & 0x7fff);
    case GEMM_F16: return (v & 0x7c00) == 0x7c00 || !(v & 0x7fff);
    default: return (v & 0x7f800000) == 0x7f800000 || !(v & 0x7fffffff);
    }
}

/* A hash of all bits of C; adds the number of odd values (is_odd) to *ret_odd. */
static int look_at_result(struct stress *s, uint64_t *ret_hash, size_t *ret_odd, struct gp_error *err) {
    size_t n = GP_MIN(s->c_bytes, BLOCK_BYTES);
    size_t each = s->c_bytes / ((size_t)s->gemm.n * (size_t)s->gemm.n);
    unsigned char *block = xmalloc(n);
    uint64_t hash = 0xcbf29ce484222325u;
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < s->c_bytes; at += n) {
        struct copy_args copy = {.kind = COPY_FROM_DEVICE,
                                 .dev = s->gemm.c + at,
                                 .host = block,
                                 .bytes = GP_MIN(n, s->c_bytes - at),
                                 .deadline_ms = s->c->deadline_ms};
        rc = s->ops->copy(s->dev, &copy, err);
        for (size_t i = 0; rc == 0 && i < copy.bytes; i += each) {
            uint32_t v = 0;
            memcpy(&v, block + i, each); /* little endian */
            hash = (hash ^ v) * 0x100000001b3u;
            *ret_odd += is_odd(s, v);
        }
    }
    free(block);
    *ret_hash = hash;
    return rc;
}

static int one_product(struct stress *s, struct gp_error *err) {
    int rc = s->ops->gemm(s->dev, &s->gemm, err);
    return rc ? rc : s->ops->sync(s->dev, s->c->deadline_ms, err);
}

/* The first type that this device has, by its architecture, then by a first product. */
static int choose_type(struct stress *s, int n, struct gp_error *err) {
    for (size_t i = 0; i < GP_ARRAY_LEN(load_types); i++) {
        bool last = i + 1 == GP_ARRAY_LEN(load_types);
        struct gp_error own = {0};
        int rc = cuda_gemm_has(s->dev, load_types[i].type, &own);
        bool lacking = rc < 0 && str_eq(own.detail, "NO_SUCH_TYPE");
        if (rc == 0) rc = prepare(s, &load_types[i], n, &own);
        if (rc == 0) {
            rc = one_product(s, &own);
            lacking = rc == -GP_EENV && !own.detail[0]; /* the library has no such product */
        }
        if (!lacking || last) {
            if (rc) *err = own;
            return rc;
        }
        s->ops->free(s->dev, s->gemm.a);
        s->ops->free(s->dev, s->gemm.b);
        s->ops->free(s->dev, s->gemm.c);
        s->gemm = (struct gemm_args){0};
    }
    return gp_fail(err, GP_EINTERNAL, "gpu %d: it has no type of matrix product", s->c->gpu);
}

/* --- the load --- */

static void sample(struct stress *s, struct stress_sample *ret) {
    ret->clock_mhz = ret->temperature_c = ret->power_w = -1;
    ret->reasons = -1;
    if (!s->nvml) return;
    struct nvml_sample now;
    nvml_sample_read(s->nvml, &now);
    s->lost = s->lost || now.lost;
    ret->clock_mhz = (double)now.sm_mhz;
    ret->temperature_c = (double)now.temperature_c;
    ret->power_w = now.power_mw >= 0 ? (double)now.power_mw / 1000 : -1;
    ret->reasons = now.reasons;
}

/* Queues products, samples the GPU while it computes them, and takes their rate. */
static int stretch(struct stress *s, int products, double *ret_s, struct gp_error *err) {
    struct stress_sample now = {0};
    double n = s->gemm.n, seconds = 0;
    int rc = cuda_mark(s->dev, 0, err);
    for (int i = 0; rc == 0 && i < products; i++) rc = s->ops->gemm(s->dev, &s->gemm, err);
    if (rc == 0) rc = cuda_mark(s->dev, 1, err);
    if (rc) return rc;
    sample(s, &now);
    rc = s->ops->sync(s->dev, s->c->deadline_ms, err);
    if (rc == 0) rc = cuda_elapsed(s->dev, 0, 1, &seconds, err);
    if (rc) return rc;
    *ret_s += seconds;
    now.at_s = *ret_s;
    now.rate = seconds > 0 ? 2 * n * n * n * products / seconds / 1e12 : 0;
    vec_push(&s->samples, now);
    s->products += products;
    return 0;
}

/* Runs for the rest of the check's time; on a small GPU for less in proportion. */
static int load(struct stress *s, size_t total, int64_t began_ms, struct gp_error *err) {
    double part = GP_MIN(1.0, (double)total / (double)SMALL_GPU), gpu_s = 0;
    int64_t want_ms = (int64_t)((double)(s->c->budget_ms - (clock_ms() - began_ms) - 1000) * part);
    int64_t from = clock_ms(), until = GP_MIN(from + GP_MAX(want_ms, 100), s->c->deadline_ms - 2000);
    int64_t each_ms = GP_MAX(GP_MIN(SAMPLE_MS, (until - from) / 40), 1);
    int products = 1, rc = 0;
    while (rc == 0 && !s->lost && (clock_ms() < until || s->samples.len < 16)) {
        int64_t began = clock_ms();
        rc = stretch(s, products, &gpu_s, err);
        int64_t took = clock_ms() - began;
        if (took < each_ms / 2 && products < PRODUCTS_MAX) products *= 2;
        else if (took > 2 * each_ms && products > 1) products /= 2;
        if (rc == 0 && s->samples.len < 16 && clock_ms() > s->c->deadline_ms - 1000)
            return gp_fail(err, GP_ETIMEOUT, "gpu %d: only %zu stretches of matrix products in %.1f s", s->c->gpu,
                           s->samples.len, (double)(clock_ms() - from) / 1000);
    }
    s->load_ms = clock_ms() - from;
    return rc;
}

/* --- messages --- */

static void say_reasons(const struct stress *s, const struct stress_figures *f, struct agent_result *r) {
    char names[160];
    nvml_reasons_text(f->hw_seen, names, sizeof names);
    if (f->hw)
        agent_set(r, f->hw > 1 ? VERDICT_FAIL : VERDICT_DEGRADED,
                  (f->hw_seen & NVML_REASON_HW_BRAKE) ? "hw_brake" : "hw_slowdown",
                  "gpu %d: the hardware slowed it down in %d of %zu samples (%s); at most %.0f C and %.0f W", s->c->gpu,
                  f->hw, f->counted, names, f->hottest, f->power);
    if (f->hw && (f->hw_seen & NVML_REASON_HW_BRAKE))
        agent_suggest(r, "replace the node and give the provider the GPU's serial: power supply or cable");
    else if (f->hw)
        agent_suggest(r, "check the cooling (fans, airflow, temperature of the other GPUs); replace the node");
    if (f->sw_thermal) {
        agent_set(r, VERDICT_DEGRADED, "sw_thermal",
                  "gpu %d: the driver lowered clocks for heat in %d of %zu samples; at most %.0f C", s->c->gpu,
                  f->sw_thermal, f->counted, f->hottest);
        if (!f->hw) agent_suggest(r, "check the cooling (fans, airflow, room temperature)");
    }
}

static void add_samples(struct stress *s, struct agent_result *r) {
    size_t n = stress_thin(s->samples.items, s->samples.len, (size_t)(600 / GP_MAX(s->c->gpus, 5)));
    if (r->data.len) str_addc(&r->data, ',');
    str_add(&r->data, "\"samples\":[");
    for (size_t i = 0; i < n; i++) {
        const struct stress_sample *x = &s->samples.items[i];
        str_addf(&r->data, "%s{\"t\":", i ? "," : "");
        agent_json_num(&r->data, x->at_s);
        str_add(&r->data, ",\"rate\":");
        agent_json_num(&r->data, x->rate);
        if (x->clock_mhz >= 0) str_addf(&r->data, ",\"clock\":%.0f", x->clock_mhz);
        if (x->temperature_c >= 0) str_addf(&r->data, ",\"temperature\":%.0f", x->temperature_c);
        if (x->power_w >= 0) str_addf(&r->data, ",\"power\":%.0f", x->power_w);
        if (x->reasons > 0) str_addf(&r->data, ",\"reasons\":%" PRId64, x->reasons);
        str_addc(&r->data, '}');
    }
    str_addc(&r->data, ']');
}

static void judge(struct stress *s, struct agent_result *r) {
    struct stress_figures f;
    stress_figures(s->samples.items, s->samples.len, &reasons, &f);
    if (!f.told) {
        agent_set(r, VERDICT_ERROR, "too_short", "gpu %d: too few samples (%zu) to judge", s->c->gpu, s->samples.len);
        return;
    }
    agent_metric(r, "rate", f.rate);
    agent_metric(r, "decay", f.decay);
    agent_metric(r, "late_fall", f.late_fall);
    bool as_rated = s->gemm.n == 8192 || s->gemm.n == 128; /* the model table's shape; a stand-in */
    if (s->type->type == GEMM_BF16 && as_rated && !product_by_own(s->dev)) agent_metric(r, "settled", f.settled);
    if (f.clocks_told) {
        agent_metric(r, "clock", f.clock);
        agent_metric(r, "dips", f.dips);
    }
    if (f.hottest >= 0) agent_metric(r, "temperature", f.hottest);
    if (f.power >= 0) agent_metric(r, "power", f.power);
    if (f.reasons_told) say_reasons(s, &f, r);
    else
        agent_set(r, VERDICT_ERROR, "no_nvml",
                  "gpu %d: the load ran, but it is not known whether the GPU was slowed down: %s", s->c->gpu,
                  s->nvml_err.msg[0] ? s->nvml_err.msg : "its driver does not report it");
    agent_data_str(r, "type", s->type->name);
    agent_data_int(r, "edge", s->gemm.n);
    agent_data_int(r, "products", s->products);
    agent_data_int(r, "load_ms", s->load_ms);
    agent_data_int(r, "power_capped_percent", 100 * f.power_cap / (int64_t)f.counted);
    add_samples(s, r);
    agent_say(r, "%.4g TFLOP/s in %s held for %.1f s%s%s", f.rate, s->type->name, (double)s->load_ms / 1000,
              f.power_cap ? ", at its power limit" : "", f.clocks_told ? "" : ", clocks not reported");
}

static void judge_bits(struct stress *s, uint64_t first, uint64_t last, size_t odd, struct agent_result *r) {
    if (odd)
        agent_set(r, VERDICT_FAIL, "odd_values",
                  "gpu %d: %zu values of a product of ordinary numbers are zero, infinite or not a number", s->c->gpu,
                  odd);
    else if (first != last)
        agent_set(r, VERDICT_FAIL, "result_changed",
                  "gpu %d: the same product had other bits after %.1f s of load than before it", s->c->gpu,
                  (double)s->load_ms / 1000);
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, last);
    agent_data_str(r, "result", text);
}

void gpu_stress_cuda(struct check_ctx *c, struct agent_result *r) {
    GP_CLEANUP(stress_clear) struct stress s = {.c = c, .dev = c->dev, .ops = agent_kind.device};
    struct gp_error err = {0};
    size_t avail = 0, total = 0, odd = 0;
    uint64_t first = 0, last = 0;
    int64_t began = clock_ms();
    if (nvml_start(&s.nvml_err) || nvml_device_of(c->gpu, &s.nvml, &s.nvml_err)) s.nvml = NULL;
    int rc = cuda_memory(c->dev, &avail, &total, &err);
    if (rc == 0) rc = choose_type(&s, edge(c->dev, total), &err);
    if (rc == 0) rc = look_at_result(&s, &first, &odd, &err);
    if (rc == 0) rc = load(&s, total, began, &err);
    if (rc == 0 && !s.lost) rc = look_at_result(&s, &last, &odd, &err);
    if (s.lost) {
        agent_set(r, VERDICT_FAIL, "gpu_lost", "gpu %d: fell off the bus after %.1f s of load", c->gpu,
                  (double)s.load_ms / 1000);
        agent_suggest(r, "look for 'NVRM: Xid' 79 in the kernel log; reboot, then replace the node");
    } else if (rc) {
        cuda_verdict(r, &err);
    } else {
        judge_bits(&s, first, last, odd, r);
        judge(&s, r);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.memory: nearly all free memory of a GPU is written with patterns and read back by kernels; each
 * wrong word is counted, the first ones named by address and bits and read a second time. All is written before
 * anything is verified, so that crossed addresses show and caches hold little of it. The time limits the number of
 * patterns, which is reported; a longer time than the stated one repeats them with new random numbers and lets data
 * rest before it is verified. One worker per GPU. */
#include "base/gp_base.h"

#include "gpu.h"
#include "samples.h"
#include "validate/agent/cuda/cuda.h"

#include "base/clock.h"
#include "base/vec.h"

#include <inttypes.h>

enum { NAMED_MAX = 8, MARK_FROM = 0, MARK_TO = 1 };
#define SMALL_GPU (4096 * MIB) /* on less, a stand-in, the longer form is short in proportion */
#define MIB ((size_t)1 << 20)
#define GIB(bytes) ((double)(bytes) / (double)(1024 * MIB))

struct chunk {
    dev_addr base;
    size_t words;
};
struct wrong_word {
    struct mem_wrong seen;
    uint64_t again; /* the host's second reading */
    const char *pattern;
};
struct memory {
    struct check_ctx *c;
    struct device *dev;
    const struct device_ops *ops;
    VEC_OF(struct chunk) chunks;
    dev_addr log_dev, seen_dev;
    struct mem_log log;
    uint64_t *seen;
    int items; /* threads of a kernel */
    size_t bytes, total, free_at_start;
    uint64_t wrong;
    VEC_OF(struct wrong_word) named;
    int64_t end_ms;              /* a step begins only if it can end by then */
    double gpu_s, moved, pass_s; /* by the GPU's clock: all passes, bytes, the slowest pass */
    size_t steps;                /* completed steps of the plan below */
    uint64_t salt;               /* of random patterns: another one each round */
    size_t rounds;               /* completed rounds of the longer form */
};

/* The steps, most telling first. inversions: after the fill every word is read, compared and inverted upwards, then
 * downwards, then read. */
static const struct step {
    const char *name;
    enum mem_pattern pattern;
    bool inverse, inversions;
    int rest_ms; /* between writing and reading: cells that lose their charge */
} plan[] =
    {
        {"address", MEM_ADDRESS, false, false, 0},         {"random", MEM_RANDOM, false, false, 0},
        {"random_inverse", MEM_RANDOM, true, false, 0},    {"inversions_zeros", MEM_ZEROS, false, true, 0},
        {"inversions_random", MEM_RANDOM, false, true, 0}, {"inversions_stripes", MEM_STRIPES, false, true, 0},
},
  again[] = {
      /* a round of the longer form, repeated until its time is over */
      {"rounds_random", MEM_RANDOM, false, false, 0},
      {"rounds_inversions", MEM_RANDOM, true, true, 0},
      {"rounds_rest", MEM_RANDOM, false, false, 5000},
      {"rounds_rest_inverse", MEM_RANDOM, true, false, 5000},
};

static void memory_clear(struct memory *m) {
    for (size_t i = 0; i < m->chunks.len; i++) m->ops->free(m->dev, m->chunks.items[i].base);
    m->ops->free(m->dev, m->log_dev);
    m->ops->free(m->dev, m->seen_dev);
    vec_free(&m->chunks);
    vec_free(&m->named);
    free(m->seen);
}

/* Takes the free memory except a margin for the driver and a display. */
static int take_memory(struct memory *m, struct gp_error *err) {
    int sms = cuda_attribute(m->dev, CU_ATTR_SMS);
    m->items = GP_MAX(sms, 1) * 2048;
    int rc = m->ops->alloc(m->dev, sizeof m->log, &m->log_dev, err);
    if (rc == 0) rc = m->ops->alloc(m->dev, (size_t)m->items * 8, &m->seen_dev, err);
    if (rc == 0) rc = cuda_memory(m->dev, &m->free_at_start, &m->total, err);
    if (rc < 0) return rc;
    m->seen = xcalloc((size_t)m->items, sizeof *m->seen);
    size_t margin = GP_MIN(256 * MIB, m->total / 16), take = 1024 * MIB;
    size_t left = m->free_at_start > margin ? m->free_at_start - margin : 0;
    while (left >= MIB && take >= MIB) {
        size_t bytes = GP_MIN(take, left) & ~(MIB - 1);
        struct gp_error full = {0};
        dev_addr p = 0;
        rc = m->ops->alloc(m->dev, bytes, &p, &full);
        if (rc < 0 && !str_eq(full.detail, "2")) {
            *err = full;
            return rc;
        }
        if (rc < 0) {
            take /= 2; /* fragmented, or another process took some */
            continue;
        }
        struct chunk c = {p, bytes / 8};
        vec_push(&m->chunks, c);
        m->bytes += bytes;
        left -= bytes;
    }
    return 0;
}

enum pass_kind { PASS_FILL, PASS_VERIFY, PASS_UP, PASS_DOWN };

static int launch(struct memory *m, const struct chunk *c, const struct step *s, enum pass_kind kind, bool inverse,
                  struct gp_error *err) {
    static const char *const kernels[] = {"gp_mem_fill", "gp_mem_verify", "gp_mem_invert", "gp_mem_invert"};
    union kernel_arg args[8] = {{.p = c->base},
                                {.i = (int64_t)c->words},
                                {.i32 = (int32_t)s->pattern},
                                {.u = (uint64_t)(c - m->chunks.items) * 0x9e3779b97f4a7c15u + m->salt},
                                {.u = inverse ? ~(uint64_t)0 : 0}};
    size_t n = 5;
    if (kind == PASS_UP || kind == PASS_DOWN) args[n++].i32 = kind == PASS_DOWN;
    if (kind != PASS_FILL) {
        args[n++].p = m->log_dev;
        args[n++].p = m->seen_dev;
    }
    struct launch_args l = {.kernel = kernels[kind], .items = m->items, .args = args, .n_args = n};
    return m->ops->launch(m->dev, &l, err);
}

static int copy(struct memory *m, enum copy_kind kind, dev_addr dev, void *host, size_t bytes, struct gp_error *err) {
    struct copy_args a = {.kind = kind, .dev = dev, .host = host, .bytes = bytes, .deadline_ms = m->c->deadline_ms};
    return m->ops->copy(m->dev, &a, err);
}

static int by_address(const void *a, const void *b) {
    const struct mem_wrong *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Reads the noted words again. A pass of inversions has not changed them, so they are set to the value that the next
 * pass expects. */
static int take_log(struct memory *m, const struct step *s, bool inverts, struct gp_error *err) {
    size_t n = (size_t)GP_MIN(m->log.logged, (unsigned long long)MEM_LOG_MAX);
    qsort(m->log.words, n, sizeof m->log.words[0], by_address);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct wrong_word w = {.seen = m->log.words[i], .pattern = s->name};
        uint64_t next = ~w.seen.want;
        rc = copy(m, COPY_FROM_DEVICE, w.seen.at, &w.again, sizeof w.again, err);
        if (rc == 0 && inverts) rc = copy(m, COPY_TO_DEVICE, w.seen.at, &next, sizeof next, err);
        if (m->named.len < NAMED_MAX) vec_push(&m->named, w);
    }
    return rc;
}

static int look_pass(struct memory *m, const struct step *s, bool inverts, struct gp_error *err) {
    uint64_t words = 0;
    int rc = copy(m, COPY_FROM_DEVICE, m->log_dev, &m->log, sizeof m->log, err);
    if (rc == 0) rc = copy(m, COPY_FROM_DEVICE, m->seen_dev, m->seen, (size_t)m->items * 8, err);
    if (rc < 0) return rc;
    for (int i = 0; i < m->items; i++) words += m->seen[i];
    if (words != m->bytes / 8 || m->log.wrong > words)
        return gp_fail(err, GP_EPROTO, "gpu %d: the verify kernel read %" PRIu64 " of %zu words", m->c->gpu, words,
                       m->bytes / 8);
    m->wrong += m->log.wrong;
    return take_log(m, s, inverts, err);
}

static int run_pass(struct memory *m, const struct step *s, enum pass_kind kind, bool inverse, struct gp_error *err) {
    double took = 0;
    bool inverts = kind == PASS_UP || kind == PASS_DOWN;
    int rc = 0;
    if (kind != PASS_FILL) {
        memset(&m->log, 0, sizeof m->log);
        memset(m->seen, 0, (size_t)m->items * 8);
        rc = copy(m, COPY_TO_DEVICE, m->log_dev, &m->log, sizeof m->log, err);
        if (rc == 0) rc = copy(m, COPY_TO_DEVICE, m->seen_dev, m->seen, (size_t)m->items * 8, err);
    }
    if (rc == 0) rc = cuda_mark(m->dev, MARK_FROM, err);
    for (size_t i = 0; rc == 0 && i < m->chunks.len; i++)
        rc = launch(m, &m->chunks.items[kind == PASS_DOWN ? m->chunks.len - 1 - i : i], s, kind, inverse, err);
    if (rc == 0) rc = cuda_mark(m->dev, MARK_TO, err);
    if (rc == 0) rc = m->ops->sync(m->dev, m->c->deadline_ms, err);
    if (rc == 0) rc = cuda_elapsed(m->dev, MARK_FROM, MARK_TO, &took, err);
    if (rc < 0) return rc;
    m->gpu_s += took;
    m->moved += (double)m->bytes * (inverts ? 2 : 1);
    return kind == PASS_FILL ? 0 : look_pass(m, s, inverts, err);
}

static int run_step(struct memory *m, const struct step *s, struct gp_error *err) {
    int64_t began = clock_ms();
    int rc = run_pass(m, s, PASS_FILL, s->inverse, err);
    if (rc == 0 && s->rest_ms) rc = m->ops->sync(m->dev, m->c->deadline_ms, err);
    if (rc == 0 && s->rest_ms) rc = gp_sleep(s->rest_ms, NULL, err);
    int64_t rested = s->rest_ms ? clock_ms() - began : 0;
    if (rc == 0 && s->inversions) rc = run_pass(m, s, PASS_UP, s->inverse, err);
    if (rc == 0 && s->inversions) rc = run_pass(m, s, PASS_DOWN, !s->inverse, err);
    if (rc == 0) rc = run_pass(m, s, PASS_VERIFY, s->inverse, err);
    double pass_s = (double)(clock_ms() - began - rested) / 1000 / (s->inversions ? 4 : 2);
    m->pass_s = GP_MAX(m->pass_s, pass_s);
    return rc;
}

/* Whether the next step fits into the time, by the slowest pass so far. */
static bool time_for(const struct memory *m, const struct step *s) {
    double need_s = m->pass_s * (s->inversions ? 4 : 2) * 1.25 + s->rest_ms / 1000.0;
    return (double)clock_left_ms(m->end_ms) / 1000 > need_s;
}

/* Whole rounds and the beginning of one, while another step fits. */
static int run_longer(struct memory *m, int64_t stated_ms, struct gp_error *err) {
    double part = GP_MIN(1.0, (double)m->total / (double)SMALL_GPU);
    int rc = 0;
    if (m->steps < GP_ARRAY_LEN(plan) || m->c->budget_ms <= stated_ms) return 0;
    m->end_ms = GP_MIN(m->end_ms, clock_deadline((int64_t)(part * (double)clock_left_ms(m->end_ms))));
    for (size_t i = 0; rc == 0 && m->wrong == 0; i = (i + 1) % GP_ARRAY_LEN(again)) {
        struct step s = again[i];
        s.rest_ms = (int)(s.rest_ms * part);
        if (!time_for(m, &s)) break;
        m->salt += 0xd1b54a32d192ed03u;
        rc = run_step(m, &s, err);
        m->rounds += i + 1 == GP_ARRAY_LEN(again);
    }
    return rc;
}

static void say_wrong(const struct memory *m, struct agent_result *r) {
    const struct wrong_word *w = &m->named.items[0];
    agent_set(r, VERDICT_FAIL, "memory_wrong",
              "%" PRIu64 " wrong reading%s in %.4g GiB; the first at 0x%llx (pattern %s): read "
              "0x%016llx, written 0x%016llx, bits 0x%llx; %s when read again",
              m->wrong, m->wrong == 1 ? "" : "s", GIB(m->bytes), w->seen.at, w->pattern, w->seen.got, w->seen.want,
              w->seen.got ^ w->seen.want,
              w->again == w->seen.want  ? "right"
              : w->again == w->seen.got ? "the same"
                                        : "different");
    if (r->data.len) str_addc(&r->data, ',');
    str_add(&r->data, "\"wrong_words\":[");
    for (size_t i = 0; i < m->named.len; i++) {
        w = &m->named.items[i];
        str_addf(&r->data,
                 "%s{\"address\":\"0x%llx\",\"pattern\":\"%s\",\"got\":\"0x%016llx\",\"want\":\"0x%016llx\","
                 "\"bits\":\"0x%llx\",\"again\":\"0x%016" PRIx64 "\"}",
                 i ? "," : "", w->seen.at, w->pattern, w->seen.got, w->seen.want, w->seen.got ^ w->seen.want, w->again);
    }
    str_addc(&r->data, ']');
}

static void say_patterns(const struct memory *m, struct agent_result *r) {
    str_addf(&r->data, "%s\"patterns\":[", r->data.len ? "," : "");
    for (size_t i = 0; i < m->steps; i++) str_addf(&r->data, "%s\"%s\"", i ? "," : "", plan[i].name);
    str_addf(&r->data, "],\"rounds\":%zu,\"patterns_left_out\":[", m->rounds);
    for (size_t i = m->steps; i < GP_ARRAY_LEN(plan); i++)
        str_addf(&r->data, "%s\"%s\"", i > m->steps ? "," : "", plan[i].name);
    str_addc(&r->data, ']');
}

static void judge(const struct memory *m, struct agent_result *r) {
    agent_metric(r, "wrong_words", (double)m->wrong);
    agent_metric(r, "tested", m->total ? 100.0 * (double)m->bytes / (double)m->total : 0);
    if (m->gpu_s > 0) agent_metric(r, "rate", m->moved / 1e9 / m->gpu_s);
    agent_data_num(r, "tested_gib", GIB(m->bytes));
    agent_data_num(r, "free_gib", GIB(m->free_at_start));
    agent_data_num(r, "gpu_seconds", m->gpu_s);
    say_patterns(m, r);
    if (m->wrong) say_wrong(m, r);
    else if (4 * m->bytes < 3 * m->total)
        agent_suggest(r, "end the processes that hold the GPU's memory (see nvidia-smi)");
    agent_say(r, "%.4g of %.4g GiB written and read back with %zu of %zu patterns%s", GIB(m->bytes), GIB(m->total),
              m->steps, GP_ARRAY_LEN(plan), m->rounds ? ", then with more random ones" : "");
}

void gpu_memory_cuda(struct check_ctx *c, struct agent_result *r) {
    GP_CLEANUP(memory_clear)
    struct memory m = {.c = c, .dev = c->dev, .ops = agent_kind.device, .end_ms = gpu_time_end(c)};
    struct gp_error err = {0};
    int rc = take_memory(&m, &err);
    if (rc == 0 && m.bytes == 0) {
        agent_set(r, VERDICT_ERROR, "no_memory", "gpu %d: no free memory to test", c->gpu);
        agent_suggest(r, "end the processes that hold the GPU's memory (see nvidia-smi)");
        return;
    }
    for (size_t i = 0; rc == 0 && i < GP_ARRAY_LEN(plan); i++) {
        if (i > 0 && !time_for(&m, &plan[i])) break;
        rc = run_step(&m, &plan[i], &err);
        m.steps += rc == 0;
    }
    if (rc == 0) rc = run_longer(&m, (int64_t)r->check->seconds * 1000, &err);
    if (m.wrong || rc == 0) judge(&m, r);
    if (rc < 0) cuda_verdict(r, &err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.memfill: nearly all memory of a GPU is filled with three patterns and read back by kernels; each
 * wrong word is counted, the first ones named by address and bits. All is filled before anything is
 * verified, so that crossed addresses show and caches hold little of it. One worker per GPU. */
#include "base/gp_base.h"

#include "cuda.h"
#include "gpu.h"
#include "kernels/memory.h"

#include "base/clock.h"
#include "base/vec.h"

#include <inttypes.h>

enum { ITEMS = 1 << 17, NAMED_MAX = 8 };
#define MIB ((size_t)1 << 20)

struct chunk {
    dev_addr base;
    size_t words;
};
struct wrong_word {
    dev_addr at;
    uint64_t got, want, again;
    const char *pattern;
};
struct memfill {
    struct check_ctx *c;
    struct device *dev;
    const struct device_ops *ops;
    VEC_OF(struct chunk) chunks;
    dev_addr found_dev;
    struct mem_found *found;
    size_t bytes, total;
    uint64_t wrong;
    VEC_OF(struct wrong_word) named;
    double seconds;
};

static void memfill_clear(struct memfill *m)
{
    for (size_t i = 0; i < m->chunks.len; i++)
        m->ops->free(m->dev, m->chunks.items[i].base);
    m->ops->free(m->dev, m->found_dev);
    vec_free(&m->chunks);
    vec_free(&m->named);
    free(m->found);
}

/* Takes what is free, but for a margin that the driver and a display need. */
static int take_memory(struct memfill *m, struct gp_error *err)
{
    size_t avail = 0;
    int rc = m->ops->alloc(m->dev, ITEMS * sizeof *m->found, &m->found_dev, err);
    if (rc == 0)
        rc = cuda_memory(m->dev, &avail, &m->total, err);
    if (rc < 0)
        return rc;
    m->found = xcalloc(ITEMS, sizeof *m->found);
    size_t margin = GP_MIN(256 * MIB, m->total / 16), take = 1024 * MIB;
    size_t left = avail > margin ? avail - margin : 0;
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
            take /= 2; /* fragmented, or somebody else took some */
            continue;
        }
        struct chunk c = {p, bytes / 8};
        vec_push(&m->chunks, c);
        m->bytes += bytes;
        left -= bytes;
    }
    return 0;
}

static int launch(struct memfill *m, const struct chunk *c, int pattern, bool verify,
                  struct gp_error *err)
{
    union kernel_arg args[5] = {{.p = c->base},
                                {.i = (int64_t)c->words},
                                {.i32 = pattern},
                                {.u = c->base ^ 0x9e3779b97f4a7c15u},
                                {.p = m->found_dev}};
    struct launch_args l = {.kernel = verify ? "gp_mem_verify" : "gp_mem_fill",
                            .items = ITEMS,
                            .args = args,
                            .n_args = verify ? 5 : 4};
    return m->ops->launch(m->dev, &l, err);
}

static int name_word(struct memfill *m, const struct chunk *c, const struct mem_found *f, int pattern,
                     struct gp_error *err)
{
    static const char *const names[MEM_PATTERNS] = {"address", "random", "inverse"};
    struct wrong_word w = {.at = c->base + f->index * 8,
                           .got = f->got,
                           .want = f->want,
                           .pattern = names[pattern]};
    struct copy_args back = {
        .kind = COPY_FROM_DEVICE, .dev = w.at, .host = &w.again, .bytes = sizeof w.again};
    int rc = m->ops->copy(m->dev, &back, err);
    vec_push(&m->named, w);
    return rc;
}

static int verify_chunk(struct memfill *m, const struct chunk *c, int pattern, struct gp_error *err)
{
    /* What no item wrote must not look like "nothing wrong". */
    memset(m->found, 0xff, ITEMS * sizeof *m->found);
    struct copy_args set = {.kind = COPY_TO_DEVICE,
                            .dev = m->found_dev,
                            .host = m->found,
                            .bytes = ITEMS * sizeof *m->found};
    int rc = m->ops->copy(m->dev, &set, err);
    if (rc == 0)
        rc = launch(m, c, pattern, true, err);
    if (rc == 0)
        rc = m->ops->sync(m->dev, m->c->deadline_ms, err);
    set.kind = COPY_FROM_DEVICE;
    if (rc == 0)
        rc = m->ops->copy(m->dev, &set, err);
    for (size_t i = 0; rc == 0 && i < ITEMS; i++) {
        const struct mem_found *f = &m->found[i];
        if (f->wrong > c->words || f->index >= c->words)
            return gp_fail(err, GP_EPROTO, "gpu %d: the verify kernel did not do its work", m->c->gpu);
        m->wrong += f->wrong;
        if (f->wrong && m->named.len < NAMED_MAX)
            rc = name_word(m, c, f, pattern, err);
    }
    return rc;
}

static int run_pattern(struct memfill *m, int pattern, struct gp_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->chunks.len; i++)
        rc = launch(m, &m->chunks.items[i], pattern, false, err);
    if (rc == 0)
        rc = m->ops->sync(m->dev, m->c->deadline_ms, err);
    for (size_t i = 0; rc == 0 && i < m->chunks.len; i++)
        rc = verify_chunk(m, &m->chunks.items[i], pattern, err);
    return rc;
}

static void say_wrong(const struct memfill *m, struct agent_result *r)
{
    const struct wrong_word *w = &m->named.items[0];
    agent_set(r, AGENT_FAIL, "memory_wrong",
              "%" PRIu64 " wrong word%s in %.4g GiB; the first at 0x%" PRIx64 " (pattern %s): read "
              "0x%016" PRIx64 ", written 0x%016" PRIx64 ", bits 0x%" PRIx64 "; %s when read again",
              m->wrong, m->wrong == 1 ? "" : "s", (double)m->bytes / (double)(1024 * MIB), w->at,
              w->pattern, w->got, w->want, w->got ^ w->want,
              w->again == w->want  ? "right"
              : w->again == w->got ? "the same"
                                   : "different");
    if (r->data.len)
        str_addc(&r->data, ',');
    str_add(&r->data, "\"wrong_words\":[");
    for (size_t i = 0; i < m->named.len; i++) {
        w = &m->named.items[i];
        str_addf(&r->data,
                 "%s{\"address\":\"0x%" PRIx64 "\",\"pattern\":\"%s\",\"got\":\"0x%016" PRIx64
                 "\",\"want\":\"0x%016" PRIx64 "\",\"bits\":\"0x%" PRIx64 "\"}",
                 i ? "," : "", w->at, w->pattern, w->got, w->want, w->got ^ w->want);
    }
    str_addc(&r->data, ']');
}

static void judge(const struct memfill *m, struct agent_result *r)
{
    double gib = (double)m->bytes / (double)(1024 * MIB), all = (double)m->total / (double)(1024 * MIB);
    agent_metric(r, "wrong_words", (double)m->wrong);
    agent_metric(r, "tested", all > 0 ? 100.0 * gib / all : 0);
    if (m->seconds > 0)
        agent_metric(r, "rate", 2.0 * MEM_PATTERNS * (double)m->bytes / 1e9 / m->seconds);
    if (m->wrong)
        say_wrong(m, r);
    else if (4 * m->bytes < 3 * m->total)
        agent_suggest(r, "see which processes hold the GPU's memory (nvidia-smi) and end them");
    if (!m->wrong)
        agent_say(r, "%.4g of %.4g GiB written and read back with %d patterns", gib, all, MEM_PATTERNS);
}

void gpu_memfill_cuda(struct check_ctx *c, struct agent_result *r)
{
    GP_CLEANUP(memfill_clear) struct memfill m = {.c = c, .dev = c->dev, .ops = agent_kind.device};
    struct gp_error err = {0};
    int64_t began = clock_ms();
    int rc = take_memory(&m, &err);
    if (rc == 0 && m.bytes == 0)
        rc = gp_fail(&err, GP_EENV, "gpu %d: no memory is free to be tested", c->gpu);
    for (int p = 0; rc == 0 && p < MEM_PATTERNS; p++)
        rc = run_pattern(&m, p, &err);
    m.seconds = (double)(clock_ms() - began) / 1000;
    if (m.wrong || rc == 0)
        judge(&m, r);
    if (rc < 0)
        cuda_verdict(r, &err);
}

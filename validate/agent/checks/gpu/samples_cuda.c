/* SPDX-License-Identifier: Apache-2.0 */
/* Samples by the GPU's own clock, and memory that holds a known pattern. One thread. */
#include "base/gp_base.h"

#include "samples.h"

#include "base/clock.h"
#include "base/stats.h"
#include "validate/agent/cuda/cuda.h"

#include <inttypes.h>

int64_t gpu_time_end(const struct check_ctx *c) {
    int64_t last = c->deadline_ms - 1000;
    return c->budget_ms > 0 ? GP_MIN(clock_deadline(c->budget_ms * 8 / 10), last) : last;
}

void samples_add(struct samples *s, double v) {
    if (s->n < SAMPLES_MAX) s->v[s->n++] = v;
}

double samples_median(const struct samples *s) { return stats_median(s->v, s->n); }

void samples_say(const struct samples *s, struct agent_result *r, const char *key) {
    double median = samples_median(s), least = stats_quantile(s->v, s->n, 0), most = stats_quantile(s->v, s->n, 1);
    str_addf(&r->data, "%s\"%s\":{\"median\":", r->data.len ? "," : "", key);
    agent_json_num(&r->data, median);
    str_add(&r->data, ",\"least\":");
    agent_json_num(&r->data, least);
    str_add(&r->data, ",\"most\":");
    agent_json_num(&r->data, most);
    str_add(&r->data, ",\"spread\":");
    agent_json_num(&r->data, median > 0 ? 100 * (most - least) / median : 0);
    str_addf(&r->data, ",\"samples\":%zu}", s->n);
}

static int take_some(struct check_ctx *c, const struct measured *m, int warm, int n, struct samples *ret,
                     struct gp_error *err) {
    struct device *d = m->dev ? m->dev : c->dev;
    int rc = 0;
    for (int i = 0; rc == 0 && i < warm; i++) rc = m->queue(m->arg, err);
    if (rc == 0) rc = cuda_mark(d, 0, err);
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = m->queue(m->arg, err);
        if (rc == 0) rc = cuda_mark(d, i + 1, err);
    }
    if (rc == 0) rc = agent_kind.device->sync(d, c->deadline_ms, err);
    for (int i = 0; rc == 0 && i < n; i++) {
        double s = 0;
        rc = cuda_elapsed(d, i, i + 1, &s, err);
        if (rc == 0) samples_add(ret, s > 0 ? m->work / s / m->unit : 0);
    }
    return rc;
}

int samples_take(struct check_ctx *c, const struct measured *m, struct samples *ret, struct gp_error *err) {
    int n = GP_MIN(m->n, SAMPLES_MAX);
    if (m->most_s <= 0) return take_some(c, m, m->warm, n, ret, err);
    int rc = take_some(c, m, m->warm, 1, ret, err);
    double rate = rc == 0 ? ret->v[ret->n - 1] : 0, left = n - 1;
    if (rate > 0) left = GP_MIN(left, m->most_s * rate * m->unit / m->work - 1);
    return rc < 0 || left < 1 ? rc : take_some(c, m, 0, (int)left, ret, err);
}

/* --- patterns --- */

int pattern_open(struct pattern_room *p, const struct check_ctx *c, struct device *dev, int gpu, struct gp_error *err) {
    int sms = cuda_attribute(dev, CU_ATTR_SMS);
    *p = (struct pattern_room){.ops = agent_kind.device,
                               .dev = dev,
                               .deadline_ms = c->deadline_ms,
                               .gpu = gpu,
                               .items = GP_MAX(sms, 1) * 2048};
    int rc = p->ops->alloc(dev, sizeof(struct mem_log), &p->log, err);
    if (rc == 0) rc = p->ops->alloc(dev, (size_t)p->items * 8, &p->seen, err);
    p->seen_host = xcalloc((size_t)p->items, sizeof *p->seen_host);
    return rc;
}

void pattern_close(struct pattern_room *p) {
    if (!p->dev) return;
    p->ops->free(p->dev, p->log);
    p->ops->free(p->dev, p->seen);
    free(p->seen_host);
    *p = (struct pattern_room){0};
}

static int pattern_launch(struct pattern_room *p, const struct pattern *a, bool verify, struct gp_error *err) {
    union kernel_arg args[7] = {{.p = a->base},
                                {.i = (int64_t)(a->bytes / 8)},
                                {.i32 = (int32_t)a->kind},
                                {.u = a->seed},
                                {.u = 0},
                                {.p = p->log},
                                {.p = p->seen}};
    struct launch_args l = {
        .kernel = verify ? "gp_mem_verify" : "gp_mem_fill", .items = p->items, .args = args, .n_args = verify ? 7 : 5};
    return p->ops->launch(p->dev, &l, err);
}

int pattern_fill(struct pattern_room *p, const struct pattern *a, struct gp_error *err) {
    return pattern_launch(p, a, false, err);
}

static int by_address(const void *a, const void *b) {
    const struct mem_wrong *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

int pattern_verify(struct pattern_room *p, const struct pattern *a, struct mem_log *ret, struct gp_error *err) {
    uint64_t words = 0;
    size_t bytes = (size_t)p->items * 8;
    memset(ret, 0, sizeof *ret);
    memset(p->seen_host, 0, bytes);
    struct copy_args log = {
        .kind = COPY_TO_DEVICE, .dev = p->log, .host = ret, .bytes = sizeof *ret, .deadline_ms = p->deadline_ms};
    struct copy_args seen = {
        .kind = COPY_TO_DEVICE, .dev = p->seen, .host = p->seen_host, .bytes = bytes, .deadline_ms = p->deadline_ms};
    int rc = p->ops->copy(p->dev, &log, err);
    if (rc == 0) rc = p->ops->copy(p->dev, &seen, err);
    if (rc == 0) rc = pattern_launch(p, a, true, err);
    if (rc == 0) rc = p->ops->sync(p->dev, p->deadline_ms, err);
    log.kind = seen.kind = COPY_FROM_DEVICE;
    if (rc == 0) rc = p->ops->copy(p->dev, &log, err);
    if (rc == 0) rc = p->ops->copy(p->dev, &seen, err);
    for (int i = 0; rc == 0 && i < p->items; i++) words += p->seen_host[i];
    if (rc == 0 && words != a->bytes / 8)
        rc = gp_fail(err, GP_EPROTO, "gpu %d: the verify kernel read %" PRIu64 " of %zu words", p->gpu, words,
                     a->bytes / 8);
    ret->logged = GP_MIN(ret->logged, (unsigned long long)MEM_LOG_MAX);
    if (rc == 0) qsort(ret->words, (size_t)ret->logged, sizeof ret->words[0], by_address);
    return rc;
}

void pattern_blame(struct agent_result *r, const char *code, const struct mem_log *log, const char *what) {
    const struct mem_wrong *w = &log->words[0];
    agent_set(r, VERDICT_FAIL, code,
              "%s: %llu wrong word%s, the first at 0x%llx: read 0x%016llx, written 0x%016llx, bits 0x%llx", what,
              log->wrong, log->wrong == 1 ? "" : "s", w->at, w->got, w->want, w->got ^ w->want);
    str_addf(&r->data, "%s\"wrong_words\":[", r->data.len ? "," : "");
    for (unsigned long long i = 0; i < GP_MIN(log->logged, 8ull); i++) {
        w = &log->words[i];
        str_addf(&r->data,
                 "%s{\"address\":\"0x%llx\",\"got\":\"0x%016llx\",\"want\":\"0x%016llx\",\"bits\":\"0x%llx\"}",
                 i ? "," : "", w->at, w->got, w->want, w->got ^ w->want);
    }
    str_addc(&r->data, ']');
}

void pattern_fill_host(uint64_t *words, size_t n, enum mem_pattern kind, uint64_t seed) {
    for (size_t i = 0; i < n; i++) words[i] = mem_value((uintptr_t)&words[i], (ki64)i, (int)kind, seed);
}

size_t pattern_verify_host(const uint64_t *words, size_t n, enum mem_pattern kind, uint64_t seed, size_t *ret_first) {
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        if (words[i] == mem_value((uintptr_t)&words[i], (ki64)i, (int)kind, seed)) continue;
        if (wrong++ == 0) *ret_first = i;
    }
    return wrong;
}

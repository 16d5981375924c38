/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.gemm: the settled rate of products of random matrices, in every type that the GPU has, timed by its own clock; a
 * result that is not finite, or all zero, is a failure. One worker per GPU. */
#include "base/gp_base.h"

#include "products.h"
#include "samples.h"
#include "validate/agent/cuda/cuda.h"

#include "base/clock.h"

#include <math.h>

/* A type is multiplied for GPU time, not for a number of products: a power cap acts only after some hundred
 * milliseconds. Groups of samples follow each other until the last ones are alike. */
enum { GROUP = 10, ALIKE = 3, WARM = 2 };
#define SAMPLE_S 0.02 /* of GPU time: as many products as fit */
#define MOST_S 2.0
#define STEADY 0.015    /* medians of ALIKE groups lie this close to each other */
#define RATED_EDGE 8192 /* of the model table's figures */

struct gemm {
    struct check_ctx *c;
    struct agent_result *r;
    int edge;
    dev_addr result, counts;
    struct product p;
    bool out_same;
    int types;      /* measured */
    int per_sample; /* products */
    int64_t end_ms;
};

static void gemm_clear(struct gemm *g) {
    product_free(g->c->dev, &g->p);
    agent_kind.device->free(g->c->dev, g->result);
    agent_kind.device->free(g->c->dev, g->counts);
}

static int queue(void *arg, struct gp_error *err) {
    struct gemm *g = arg;
    struct gemm_args a = product_args(&g->p, g->out_same);
    a.fastest = true;
    int rc = 0;
    for (int i = 0; rc == 0 && i < g->per_sample; i++) rc = agent_kind.device->gemm(g->c->dev, &a, err);
    return rc;
}

/* The result of the last product: every number finite, not all of them zero. */
static int look_result(struct gemm *g, struct gp_error *err) {
    int64_t count = (int64_t)g->edge * g->edge;
    int type = !g->out_same ? KNOWN_F32 : g->p.t->type == GEMM_F16 ? KNOWN_F16 : KNOWN_BF16;
    struct number_room room = {g->c->dev, g->counts, g->c->deadline_ms};
    struct number_counts n;
    int rc = product_count(&room, g->result, count, type, &n, err);
    if (rc < 0) return rc;
    if (n.seen != (uint64_t)count)
        return gp_fail(err, GP_EPROTO, "gpu %d: the counting kernel read %llu of %lld numbers", g->c->gpu,
                       (unsigned long long)n.seen, (long long)count);
    if (n.odd)
        agent_set(g->r, VERDICT_FAIL, "gemm_nan",
                  "%s: %llu of %lld elements of a product of finite numbers "
                  "are NaN or infinite",
                  g->p.t->name, (unsigned long long)n.odd, (long long)count);
    if (!n.some)
        agent_set(g->r, VERDICT_FAIL, "gemm_zero", "%s: every element of a product of random numbers is zero",
                  g->p.t->name);
    return 0;
}

static bool steady(const double *medians, int n) {
    double least = medians[n - 1], most = least;
    for (int i = 2; i <= ALIKE && i <= n; i++) {
        least = GP_MIN(least, medians[n - i]);
        most = GP_MAX(most, medians[n - i]);
    }
    return n >= ALIKE && most - least <= STEADY * most;
}

/* ret: the samples of the last group; *ret_first: the first group's median. */
static int take_samples(struct gemm *g, struct samples *ret, double *ret_first, struct gp_error *err) {
    double part = GP_MIN(1.0, pow((double)g->edge / RATED_EDGE, 3)); /* of the times above: small products are short */
    double flop = 2.0 * g->edge * (double)g->edge * g->edge, spent_s = 0, medians[128];
    if (product_by_own(g->c->dev)) part /= 8; /* unrated */
    struct measured m = {.queue = queue, .arg = g, .n = 1, .warm = WARM, .work = flop, .unit = 1e12};
    g->per_sample = 1;
    int rc = samples_take(g->c, &m, ret, err), n = 0;
    double one_s = ret->n && ret->v[0] > 0 ? flop / ret->v[0] / 1e12 : 1;
    g->per_sample = GP_MAX(1, GP_MIN((int)(SAMPLE_S * part / one_s), 64));
    m = (struct measured){.queue = queue, .arg = g, .n = GROUP, .work = flop * g->per_sample, .unit = 1e12};
    while (rc == 0 && n < (int)GP_ARRAY_LEN(medians)) {
        *ret = (struct samples){.n = 0};
        rc = samples_take(g->c, &m, ret, err);
        medians[n++] = samples_median(ret);
        if (rc < 0 || !(medians[n - 1] > 0) || steady(medians, n)) break;
        spent_s += GROUP * m.work / 1e12 / medians[n - 1];
        if (spent_s >= MOST_S * part || clock_left_ms(g->end_ms) == 0) break;
    }
    *ret_first = n > 0 ? medians[0] : 0;
    return rc;
}

static int run_type(struct gemm *g, const struct product_type *t, struct gp_error *err) {
    struct device *d = g->c->dev;
    struct samples s = {0};
    double first = 0;
    GP_AUTO_FREE char *key = xasprintf("%s_samples", t->name);
    GP_AUTO_FREE char *first_key = xasprintf("%s_first", t->name);
    g->p = (struct product){.t = t, .m = g->edge, .n = g->edge, .k = g->edge, .c = g->result};
    g->out_same = t->type == GEMM_BF16 || t->type == GEMM_F16 || t->type == GEMM_FP8_E4M3;
    int rc = product_alloc(d, &g->p, err);
    if (rc == 0) rc = product_fill_random(d, &g->p, 0x6e66ull + (unsigned)t->type, err);
    if (rc == 0) rc = take_samples(g, &s, &first, err);
    if (rc == 0) rc = look_result(g, err);
    product_free(d, &g->p);
    if (rc < 0) return rc;
    g->types++;
    samples_say(&s, g->r, key);
    agent_data_num(g->r, first_key, first); /* before power and clocks settled */
    agent_metric(g->r, t->name, samples_median(&s));
    if (!(samples_median(&s) > 0))
        agent_set(g->r, VERDICT_FAIL, "no_rate", "%s: products took no GPU time: nothing was multiplied", t->name);
    return 0;
}

static int run_all(struct gemm *g, struct gp_error *err) {
    struct device *d = g->c->dev;
    g->end_ms = gpu_time_end(g->c);
    int rc = cuda_gemm_start(d, err);
    if (rc == 0) rc = product_edge(d, 1, &g->edge, err);
    if (rc == 0) rc = agent_kind.device->alloc(d, (size_t)g->edge * (size_t)g->edge * 4, &g->result, err);
    if (rc == 0) rc = agent_kind.device->alloc(d, 3 * sizeof(uint64_t), &g->counts, err);
    for (const struct product_type *t = product_types; rc == 0 && t->name; t++) {
        if (!product_has(d, t)) continue;
        if (g->types && clock_left_ms(g->end_ms) == 0) {
            agent_set(g->r, VERDICT_ERROR, "no_time", "%s and later types were not measured: the time was over",
                      t->name);
            break;
        }
        rc = run_type(g, t, err);
    }
    return rc;
}

void gpu_gemm_cuda(struct check_ctx *c, struct agent_result *r) {
    GP_CLEANUP(gemm_clear) struct gemm g = {.c = c, .r = r};
    struct gp_error err = {0};
    int rc = run_all(&g, &err);
    agent_data_str(r, "by", cuda_gemm_by(c->dev));
    agent_data_int(r, "edge", g.edge);
    if (rc < 0) {
        cuda_verdict(r, &err);
        return;
    }
    GP_AUTO_STR struct str text = {0};
    for (size_t i = 0; i < r->n_metrics; i++)
        str_addf(&text, "%s%s %.4g", i ? ", " : "", r->metrics[i].info->name, r->metrics[i].value);
    agent_say(r, "%s TFLOP/s, by %s", text.s ? text.s : "nothing", cuda_gemm_by(c->dev));
}

void gpu_gemm_load(struct check_ctx *c) {
    struct gp_error ignored = {0};
    cuda_gemm_start(c->dev, &ignored);
}

/* The model table's figures were measured with cuBLASLt. */
void gpu_gemm_conclude(struct check_ctx *c, struct agent_result *r) {
    int edge = 0;
    if (product_by_own(c->dev) || product_edge(c->dev, 1, &edge, NULL) < 0 || (edge > 128 && edge < RATED_EDGE))
        r->about.model = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.sdc: silent corruption. Products with exact sums, so that any difference from integer arithmetic on the host
 * is a fault, and random ones that must be equal each time and on each GPU, in every type, until the time is over.
 * Names the faulty multiprocessor. One worker per GPU. */
#include "base/gp_base.h"

#include "samples.h"
#include "sdc_cuda.h"
#include "validate/agent/cuda/cuda.h"

#include "base/clock.h"

static int run_round(struct sdc *s, struct gp_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_types; i++) {
        rc = sdc_known_round(s, &s->types[i], err);
        if (rc == 0) rc = sdc_random_round(s, &s->types[i], err);
    }
    if (rc == 0) rc = sdc_probe_fp32(s, err);
    bool own = s->edge >= 512 || s->rounds == 0;
    for (size_t i = 0; rc == 0 && own && i < s->n_types; i++) rc = sdc_probe_own(s, &s->types[i], err);
    s->rounds += rc == 0;
    return rc;
}

static bool any_wrong(const struct sdc *s) {
    bool sm = false;
    for (size_t i = 0; i < SDC_SMS_MAX; i++) sm = sm || s->sms[i].wrong;
    return s->wrong_tiles || s->unsteady || s->odd || sm;
}

/* Two rounds at least, so that random products are compared; no further one after a fault, except that
 * second look. */
static int run_all(struct sdc *s, struct gp_error *err) {
    int64_t end_ms = gpu_time_end(s->c), began = clock_ms(), longest = 0;
    int rc = sdc_setup(s, err);
    while (rc == 0) {
        int64_t at = clock_ms();
        rc = run_round(s, err);
        longest = GP_MAX(longest, clock_ms() - at);
        if (s->rounds >= 2 && (any_wrong(s) || s->edge < 512 || clock_left_ms(end_ms) < longest)) break;
    }
    agent_data_num(s->r, "seconds", (double)(clock_ms() - began) / 1000);
    return rc;
}

/* --- messages --- */

static void add_hex(struct str *to, const char *name, uint64_t v) {
    str_addf(to, "%s\"%s\":\"0x%016llx\"", to->len ? "," : "", name, (unsigned long long)v);
}

static void say_checksums(const struct sdc *s) {
    GP_AUTO_STR struct str known = {0};
    GP_AUTO_STR struct str random = {0};
    GP_AUTO_STR struct str own = {0};
    GP_AUTO_STR struct str algorithms = {0};
    size_t tiles = (size_t)(s->edge / s->tile) * (size_t)(s->edge / s->tile);
    for (size_t i = 0; i < s->n_types; i++) {
        const struct sdc_type *t = &s->types[i];
        if (t->full.known.sums) add_hex(&known, t->t->name, known_fold(t->full.known.sums, tiles));
        if (t->random_sums) add_hex(&random, t->t->name, known_fold(t->random_sums, tiles));
        if (t->own_fold) add_hex(&own, t->t->name, t->own_fold);
        struct gemm_args g = product_args(&t->random, false);
        add_hex(&algorithms, t->t->name, cuda_gemm_algorithm(s->d, &g));
    }
    str_addf(&s->r->data, "%s\"answers\":{%s},\"random\":{%s},\"random_own\":{%s},\"algorithms\":{%s}",
             s->r->data.len ? "," : "", known.s ? known.s : "", random.s ? random.s : "", own.s ? own.s : "",
             algorithms.s ? algorithms.s : "");
}

static void say_types(const struct sdc *s) {
    str_add(&s->r->data, ",\"types\":{");
    for (size_t i = 0; i < s->n_types; i++)
        str_addf(&s->r->data, "%s\"%s\":%llu", i ? "," : "", s->types[i].t->name,
                 (unsigned long long)s->types[i].products);
    str_addc(&s->r->data, '}');
}

static void say_wrong(const struct sdc *s) {
    str_add(&s->r->data, ",\"wrong\":[");
    for (size_t i = 0; i < s->named.len; i++) {
        const struct sdc_wrong *w = &s->named.items[i];
        str_addf(&s->r->data, "%s{\"type\":\"%s\",\"tile\":[%d,%d],\"size\":%d", i ? "," : "", w->type, w->tile_row,
                 w->tile_col, w->tile);
        if (w->found)
            str_addf(&s->r->data, ",\"row\":%d,\"col\":%d,\"got\":\"0x%08x\",\"want\":\"0x%08x\",\"bits\":\"0x%x\"",
                     w->row, w->col, w->got, w->want, w->got ^ w->want);
        str_addf(&s->r->data, "%s}", !w->repeated ? "" : w->again ? ",\"again\":true" : ",\"again\":false");
    }
    str_addc(&s->r->data, ']');
}

/* "multiprocessor 17 computes wrong", or that none could be named. */
static void say_sms(const struct sdc *s, struct str *ret) {
    int tested = 0, wrong = 0;
    GP_AUTO_STR struct str list = {0};
    for (int i = 0; i < SDC_SMS_MAX; i++) {
        tested += s->sms[i].did > 0;
        if (!s->sms[i].wrong) continue;
        str_addf(&list, "%s%d", wrong ? "," : "", i);
        wrong++;
    }
    agent_data_int(s->r, "sms", cuda_attribute(s->d, CU_ATTR_SMS));
    agent_data_int(s->r, "sms_tested", tested);
    str_addf(&s->r->data, ",\"wrong_sms\":[%s]", list.s ? list.s : "");
    if (!wrong) str_addf(ret, "none of %d multiprocessors computed wrong when tested one by one", tested);
    else
        str_addf(ret, "multiprocessor%s %s of %d computed wrong when tested one by one", wrong == 1 ? "" : "s", list.s,
                 tested);
}

static void judge(const struct sdc *s) {
    GP_AUTO_STR struct str sms = {0};
    agent_metric(s->r, "wrong_tiles", (double)s->wrong_tiles);
    agent_metric(s->r, "unsteady_tiles", (double)s->unsteady);
    agent_metric(s->r, "products", (double)s->products);
    agent_data_int(s->r, "rounds", s->rounds);
    agent_data_int(s->r, "edge", s->edge);
    agent_data_str(s->r, "by", cuda_gemm_by(s->d));
    agent_data_int(s->r, "capability", 10 * cuda_attribute(s->d, CU_ATTR_MAJOR) + cuda_attribute(s->d, CU_ATTR_MINOR));
    say_checksums(s);
    say_types(s);
    say_wrong(s);
    say_sms(s, &sms);
    if (s->named.len) {
        const struct sdc_wrong *w = &s->named.items[0];
        GP_AUTO_FREE char *what =
            w->found ? xasprintf("element (%d, %d) is 0x%08x, expected 0x%08x, bits 0x%x", w->row, w->col, w->got,
                                 w->want, w->got ^ w->want)
                     : xstrdup("its elements are right when the host reads them, so its sum was computed wrong");
        agent_set(s->r, VERDICT_FAIL, "sdc_wrong",
                  "%s: %llu wrong tile%s in %llu exact products; tile (%d, %d): "
                  "%s%s; %s",
                  w->type, (unsigned long long)s->wrong_tiles, s->wrong_tiles == 1 ? "" : "s",
                  (unsigned long long)s->products, w->tile_row, w->tile_col, what,
                  !w->repeated ? ""
                  : w->again   ? "; wrong when repeated"
                               : "; right when repeated",
                  sms.s);
    } else if (s->unsteady) {
        agent_set(s->r, VERDICT_FAIL, "sdc_unsteady",
                  "%s: a repeated product of the same random numbers differs in %llu tiles, the first at (%d, %d); %s",
                  s->unsteady_type, (unsigned long long)s->unsteady, s->unsteady_row, s->unsteady_col, sms.s);
    } else if (s->odd) {
        agent_set(s->r, VERDICT_FAIL, "sdc_nan",
                  "%s: %llu elements of products of finite random numbers are NaN "
                  "or infinite; %s",
                  s->odd_type, (unsigned long long)s->odd, sms.s);
    } else if (any_wrong(s)) {
        agent_set(s->r, VERDICT_FAIL, "sdc_sm", "fp32: %s", sms.s);
    }
    agent_say(s->r,
              "%llu products in %zu types, every tile equal to integer arithmetic, on every "
              "multiprocessor",
              (unsigned long long)s->products, s->n_types);
}

void gpu_sdc_cuda(struct check_ctx *c, struct agent_result *r) {
    struct sdc *s = xcalloc(1, sizeof *s);
    struct gp_error err = {0};
    s->c = c;
    s->r = r;
    s->d = c->dev;
    int rc = run_all(s, &err);
    if (rc == 0 || any_wrong(s)) judge(s);
    if (rc < 0) cuda_verdict(r, &err);
    sdc_clear(s);
    free(s);
}

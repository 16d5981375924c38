/* SPDX-License-Identifier: Apache-2.0 */
/* Kaplan et al. 2020, section 2.1: about 6 operations per parameter and token, two forward and four backward;
 * operations of attention are left out, which is little at usual lengths. Pure. */
#include "base/gp_base.h"

#include "validate/estimate.h"

#include "base/clock.h"
#include "validate/suite/models.h"

#define OPERATIONS 6.0

static const char *source_of(const struct gpu_model *m, const char *name) {
    struct gpu_spec_row row;
    for (; m != NULL; m = gpu_model_like(m))
        for (size_t i = 0; gpu_spec_at(i, &row); i++)
            if (row.model == m && str_eq(row.name, name)) return row.source;
    return NULL;
}

bool estimate_of(const struct spec *spec, const struct offer *first, double usd_per_h, struct estimate *ret) {
    const struct spec_estimate *want = &spec->estimate;
    struct estimate e = {.usd = -1};
    if (want->params == NULL || want->tokens == NULL) return false;
    const char *named = want->gpu != NULL ? want->gpu : spec->gpu.model;
    if (named == NULL && first != NULL && first->gpu_model != NULL && first->gpu_model[0] != '\0')
        named = first->gpu_model;
    const struct gpu_model *m = named != NULL ? gpu_model_named(named) : NULL;
    int per_node = spec->gpu.model == NULL && first != NULL ? first->gpus : spec->gpu.count;
    e.gpus = per_node * spec->nodes;
    e.mfu = spec_estimate_number(want->mfu);
    if (m != NULL) {
        str_put(e.gpu, sizeof e.gpu, gpu_model_name(m));
        e.tflops = gpu_model_spec(m, "bf16_tflops");
        if (want->mfu == NULL) {
            e.mfu = gpu_model_spec(m, "train_mfu");
            e.source = source_of(m, "train_mfu");
        }
    }
    e.operations = OPERATIONS * spec_estimate_number(want->params) * spec_estimate_number(want->tokens);
    if (named == NULL) e.missing = "the GPU: set estimate.gpu";
    else if (m == NULL || e.tflops <= 0) e.missing = "the BF16 rate of this GPU";
    else if (e.mfu <= 0) e.missing = "the share of its rate that trainings reach on this GPU: set estimate.mfu";
    if (e.missing == NULL) {
        e.gpu_hours = e.operations / (e.mfu * e.tflops * 1e12) / 3600;
        e.hours = e.gpus > 0 ? e.gpu_hours / e.gpus : 0;
        if (e.gpus > 0 && usd_per_h >= 0) e.usd = e.hours * usd_per_h;
    }
    *ret = e;
    return true;
}

static void add_hours(struct str *s, double hours) {
    if (hours < 48) str_addf(s, "%.1f h", hours);
    else str_addf(s, "%.1f days", hours / 24);
}

void estimate_notes(const struct estimate *e, int64_t ttl_ms, struct strv *notes) {
    GP_AUTO_STR struct str s = {0};
    if (e->missing != NULL) {
        strv_take(notes, xasprintf("estimate: %.3g operations; GPU hours are not known without %s", e->operations,
                                   e->missing));
        return;
    }
    str_addf(&s, "estimate: %.3g operations are %.0f GPU hours on %s at %.3g %% of %.0f TFLOP/s", e->operations,
             e->gpu_hours, e->gpu, e->mfu * 100, e->tflops);
    if (e->source != NULL) str_addf(&s, " (%s)", e->source);
    if (e->hours > 0) {
        str_add(&s, ": ");
        add_hours(&s, e->hours);
        str_addf(&s, " on %d GPU%s", e->gpus, e->gpus == 1 ? "" : "s");
    }
    if (e->usd > 0) str_addf(&s, ", %.2f USD", e->usd);
    strv_take(notes, str_steal(&s));
    if (e->hours > 0 && e->hours * 3.6e6 > (double)ttl_ms) {
        char ttl[32];
        duration_format(ttl, sizeof ttl, ttl_ms);
        strv_addf(notes, "the estimate is longer than the %s until the deadline: the training will not end", ttl);
    }
}

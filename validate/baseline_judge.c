/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a run's rates with the fleet's own baseline. Can only make a verdict worse. The coordinator's
 * thread; emits events. */
#include "base/gp_base.h"

#include "validate/baseline.h"
#include "validate/judge.h"
#include "validate/remote.h"
#include "validate/samples.h"
#include "validate/suite/peers.h"

static const struct baseline_figure *figure_of(const struct baseline *b, const struct sample *one) {
    for (size_t i = 0; i < b->figures.len; i++) {
        const struct baseline_figure *f = &b->figures.items[i];
        if (str_eq(f->model, one->model) && str_eq(f->driver, one->driver) && str_eq(f->check, one->info->id) &&
            str_eq(f->metric, one->metric->name) && str_eq(f->by, one->by) && f->gpus == one->gpus)
            return f;
    }
    return NULL;
}

void baseline_limits(const struct baseline_figure *f, bool ceiling, double *ret_fail, double *ret_degraded) {
    double sigma = 1.4826 * f->mad;
    double fail = GP_MAX(0.2 * f->median, 2 * PEERS_MADS * sigma);
    double degraded = GP_MAX(0.1 * f->median, PEERS_MADS * sigma);
    *ret_fail = ceiling ? f->median + fail : f->median - fail;
    *ret_degraded = ceiling ? f->median + degraded : f->median - degraded;
    if (*ret_fail <= 0) *ret_fail = -1;
    if (*ret_degraded <= 0) *ret_degraded = -1;
}

static bool misses(double value, double limit, bool ceiling) {
    return limit >= 0 && (ceiling ? value > limit : value < limit);
}

/* The figure's limits in reports, where those of the baseline are stricter. */
static void show_limits(const struct baseline *b, const struct baseline_figure *f, struct metric *m, bool ceiling,
                        double fail, double degraded) {
    if (fail < 0 || degraded < 0 || (m->has_floor && !misses(m->floor, fail, ceiling))) return;
    m->has_floor = m->has_degraded = true;
    m->floor = fail;
    m->degraded = degraded;
    m->ceiling = ceiling;
    m->unrated = false;
    m->measured = f->median;
    free(m->source);
    char median[STR_FIGURE];
    m->source = xasprintf("baseline of %s, driver %s: median %s of %lld; %s", f->date, f->driver,
                          str_figure(median, f->median), (long long)f->n, b->path);
}

static struct metric *metric_of(struct check_result *r, const char *name) {
    for (size_t i = 0; i < r->metrics.len; i++)
        if (str_eq(r->metrics.items[i].name, name)) return &r->metrics.items[i];
    return NULL;
}

static void judge(const struct baseline *b, const struct validate_env *env, const struct sample *one) {
    const struct baseline_figure *f = figure_of(b, one);
    struct metric *m = metric_of(one->result, one->metric->name);
    if (!f || !m || (m->has_floor && str_eq(m->source, "spec"))) return;
    bool ceiling = one->metric->ceiling;
    double fail = -1, degraded = -1;
    baseline_limits(f, ceiling, &fail, &degraded);
    show_limits(b, f, m, ceiling, fail, degraded);
    bool fails = misses(one->value, fail, ceiling);
    if (!fails && !misses(one->value, degraded, ceiling)) return;
    GP_AUTO_FREE char *who = one->gpu >= 0 ? xasprintf("gpu %d: ", one->gpu) : xstrdup("");
    char value[STR_FIGURE], median[STR_FIGURE], pct[STR_FIGURE];
    GP_AUTO_FREE char *text =
        xasprintf("%s%s is %s %s, %s %% of the %s in this fleet's baseline of %s (%lld measured; %s)", who, f->metric,
                  str_figure(value, one->value), f->unit, str_figure(pct, 100 * one->value / f->median),
                  str_figure(median, f->median), f->date, (long long)f->n, b->path);
    sample_note(one, "below_baseline", json_pack("{s:f,s:f}", "median", f->median, "mad", f->mad));
    validate_worsen(env, one, fails ? VERDICT_FAIL : VERDICT_DEGRADED, "below_baseline", text);
}

void baseline_judge(const struct baseline *b, const struct validate_env *env, struct report *r, bool gang) {
    GP_AUTO_SAMPLES struct samples all = {0};
    samples_all(&all, r);
    for (size_t i = 0; i < all.list.len; i++)
        if ((all.list.items[i].info->level == CHECK_GANG) == gang) judge(b, env, &all.list.items[i]);
}

char *baseline_unknown(const struct baseline *b, struct report *r) {
    GP_AUTO_SAMPLES struct samples all = {0};
    samples_all(&all, r);
    for (size_t i = 0; i < all.list.len; i++) {
        const struct sample *one = &all.list.items[i];
        bool known = false;
        for (size_t k = 0; k < b->figures.len && !known; k++)
            known = str_eq(b->figures.items[k].model, one->model) && str_eq(b->figures.items[k].driver, one->driver);
        if (!known && *one->model)
            return xasprintf("%s with driver %s", one->model, *one->driver ? one->driver : "unknown");
    }
    return NULL;
}

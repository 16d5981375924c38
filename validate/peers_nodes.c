/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the GPUs of all nodes of a run with each other, after the nodes' own checks and before the
 * gang's: a GPU out of line is named, and its node's check becomes degraded. GPUs of different
 * models are not compared. The coordinator's thread; emits events. */
#include "base/gp_base.h"

#include "validate/judge.h"
#include "validate/remote.h"
#include "validate/samples.h"
#include "validate/suite/peers.h"

static void name_it(const struct validate_env *env, const struct sample *one, const struct peers *p, size_t n) {
    const struct check_metric_info *m = one->metric;
    double away = 100 * (m->ceiling ? one->value - p->median : p->median - one->value) / p->median;
    GP_AUTO_FREE char *who = one->gpu >= 0 ? xasprintf("gpu %d: ", one->gpu) : xstrdup("");
    char value[STR_FIGURE], median[STR_FIGURE], mad[STR_FIGURE], pct[STR_FIGURE];
    GP_AUTO_FREE char *text = xasprintf(
        "%s%s is %s %s, %s %% %s the median %s of the %zu %s in this run (median absolute deviation %s)", who, m->name,
        str_figure(value, one->value), m->unit, str_figure(pct, away), m->ceiling ? "above" : "under",
        str_figure(median, p->median), n, one->gpu >= 0 ? "GPUs" : "nodes", str_figure(mad, p->mad));
    sample_note(one, "outliers", json_pack("{s:f,s:f}", "median", p->median, "mad", p->mad));
    validate_worsen(env, one, VERDICT_DEGRADED, "outlier", text);
}

/* Compares the GPUs of one model. */
static void compare_model(const struct validate_env *env, const struct samples *all, const char *model) {
    GP_AUTO_FREE double *v = xcalloc(all->list.len + 1, sizeof *v);
    GP_AUTO_FREE const struct sample **whose = xcalloc(all->list.len + 1, sizeof *whose);
    GP_AUTO_FREE bool *outlier = xcalloc(all->list.len + 1, sizeof *outlier);
    size_t n = 0;
    for (size_t i = 0; i < all->list.len; i++) {
        if (!str_eq(all->list.items[i].model, model)) continue;
        whose[n] = &all->list.items[i];
        v[n++] = all->list.items[i].value;
    }
    struct peers p;
    if (!peers_compare(v, n, whose[0]->metric->ceiling, outlier, &p)) return;
    for (size_t i = 0; i < n; i++)
        if (outlier[i]) name_it(env, whose[i], &p, n);
}

static void compare(const struct validate_env *env, struct report *report, const struct check_info *info,
                    const struct check_metric_info *m) {
    GP_AUTO_SAMPLES struct samples all = {0};
    samples_of(&all, report, info, m);
    for (size_t i = 0; i < all.list.len; i++) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++) first = !str_eq(all.list.items[k].model, all.list.items[i].model);
        if (first) compare_model(env, &all, all.list.items[i].model);
    }
}

void validate_peers(const struct validate_env *env, struct report *report) {
    if (report->nodes.len < 2) return; /* within a node the agent has compared them */
    for (const struct check_info *info = check_table; info->id; info++)
        for (size_t i = 0; i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name; i++)
            if (info->level != CHECK_GANG && sample_is_rate(&info->metrics[i]))
                compare(env, report, info, &info->metrics[i]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the GPUs of one node with each other: one that is out of line is degraded by name, whatever
 * the model table says or does not say. Judges rates only. One thread. */
#include "base/gp_base.h"

#include "validate/agent/agent.h"
#include "validate/suite/peers.h"

static const struct agent_metric *metric_of(const struct agent_result *r, const struct check_metric_info *info) {
    if (r->verdict == VERDICT_SKIPPED || r->verdict == VERDICT_ERROR) return NULL; /* measured nothing */
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].info == info) return &r->metrics[i];
    return NULL;
}

/* The GPUs of one model: another model has other figures. */
static void compare(struct agent_result *ones, size_t n, const struct gpu_model *model,
                    const struct check_metric_info *info) {
    GP_AUTO_FREE double *values = xcalloc(n, sizeof *values);
    GP_AUTO_FREE size_t *whose = xcalloc(n, sizeof *whose);
    GP_AUTO_FREE bool *outlier = xcalloc(n, sizeof *outlier);
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        const struct agent_metric *m = metric_of(&ones[i], info);
        if (m == NULL || ones[i].model != model) continue;
        whose[have] = i;
        values[have++] = m->value;
    }
    struct peers p;
    if (!peers_compare(values, have, info->ceiling, outlier, &p)) return;
    for (size_t i = 0; i < have; i++) {
        if (!outlier[i]) continue;
        struct agent_result *r = &ones[whose[i]];
        double away = 100 * (info->ceiling ? values[i] - p.median : p.median - values[i]) / p.median;
        if (r->verdict >= VERDICT_DEGRADED) continue; /* already named for something */
        agent_set(r, VERDICT_DEGRADED, "outlier",
                  "%s is %.4g %s, %.3g %% %s the median %.4g of the %zu "
                  "GPUs here (median absolute deviation %.3g)",
                  info->name, values[i], info->unit, away, info->ceiling ? "above" : "under", p.median, have, p.mad);
        agent_suggest(r, "look at this GPU's clocks, temperature and slot; if it stays, have it replaced: "
                         "the slowest GPU is the speed of a training run");
    }
}

void agent_peers(struct agent_result *ones, size_t n) {
    for (size_t first = 0; first < n; first++) {
        bool seen = false;
        for (size_t i = 0; i < first && !seen; i++) seen = ones[i].model == ones[first].model;
        const struct check_metric_info *m = ones[first].check->metrics;
        for (size_t i = 0; !seen && i < GP_ARRAY_LEN(ones[first].check->metrics) && m[i].name; i++)
            if (m[i].by_model || m[i].peers) compare(ones, n, ones[first].model, &m[i]);
    }
}

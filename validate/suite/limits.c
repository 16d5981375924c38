/* SPDX-License-Identifier: Apache-2.0 */
/* The one judge of figures. Pure; any thread. */
#include "base/gp_base.h"

#include "limits.h"

#include "base/str.h"
#include "peers.h"

#include <math.h>

struct limit limit_of(const struct check_info *check, const struct check_metric_info *m,
                      const struct limit_about *about, double own) {
    struct gpu_figure_key key = about->key;
    struct gpu_figure f;
    key.check = m->rated_as[0] != NULL ? m->rated_as[0] : check->id;
    key.metric = m->rated_as[0] != NULL ? m->rated_as[1] : m->name;
    if (!isnan(own)) return (struct limit){.kind = LIMIT_SPEC, .fail = own, .degraded = -1, .source = "spec"};
    if (m->by_model && about->model != NULL && gpu_model_figure(about->model, &key, &f))
        return (struct limit){.kind = LIMIT_MODEL,
                              .fail = f.fail,
                              .degraded = f.degraded,
                              .measured = f.measured,
                              .source = f.source,
                              .how = f.how,
                              .model = about->model};
    if (m->by_model) return (struct limit){.kind = LIMIT_UNRATED, .fail = -1, .degraded = -1, .source = ""};
    return (struct limit){.kind = m->fail >= 0 || m->degraded >= 0 ? LIMIT_TABLE : LIMIT_NONE,
                          .fail = m->fail,
                          .degraded = m->degraded,
                          .source = m->source != NULL ? m->source : ""};
}

char *limit_source(const struct limit *l) {
    bool measured = l->kind == LIMIT_MODEL && l->measured > 0;
    return measured ? xasprintf("measured elsewhere: %.6g (%s); %s", l->measured, l->how, l->source)
                    : xstrdup(l->source);
}

static bool holds(double value, double limit, bool ceiling) { return ceiling ? value <= limit : value >= limit; }

/* By the measured figure of this model's sound GPUs, else by a published limit. */
static void model_text(const struct limit *l, const struct check_metric_info *m, double value, struct limit_word *w) {
    const char *model = gpu_model_name(l->model);
    char is[STR_FIGURE], ref[STR_FIGURE];
    if (l->measured > 0)
        snprintf(w->message, sizeof w->message, "%s is %s %s, %.0f %% of the %s that a sound %s reaches (%s)", m->name,
                 str_figure(is, value), m->unit, 100 * value / l->measured, str_figure(ref, l->measured), model,
                 l->source);
    else
        snprintf(w->message, sizeof w->message, "%s is %s %s, %s %s of the %s (%s)", m->name, str_figure(is, value),
                 m->unit, w->verdict == VERDICT_FAIL ? "below the limit of" : "close to the limit of",
                 str_figure(ref, l->fail), model, l->source);
}

struct limit_word limit_judge(const struct limit *l, const struct check_metric_info *m, double value,
                              const char *note) {
    struct limit_word w = {.verdict = VERDICT_PASS};
    char is[STR_FIGURE], limit[STR_FIGURE];
    double missed = l->fail;
    if (l->kind == LIMIT_NONE || l->kind == LIMIT_UNRATED) return w;
    if (l->fail >= 0 && !holds(value, l->fail, m->ceiling)) {
        w.verdict = VERDICT_FAIL;
    } else if (l->degraded >= 0 && !holds(value, l->degraded, m->ceiling)) {
        w.verdict = VERDICT_DEGRADED;
        missed = l->degraded;
    } else {
        return w;
    }
    snprintf(w.code, sizeof w.code, "%s_%s", m->ceiling ? "high" : "low", m->name);
    if (l->kind == LIMIT_MODEL) model_text(l, m, value, &w);
    else
        snprintf(w.message, sizeof w.message, "%s is %s %s, must be %s %s %s (%s)", m->name, str_figure(is, value),
                 m->unit, m->ceiling ? "at most" : "at least", str_figure(limit, missed), m->unit, l->source);
    size_t n = strlen(w.message);
    if (note != NULL) snprintf(w.message + n, sizeof w.message - n, "%s", note);
    return w;
}

static void worsen(struct judged *j, const struct limit_word *w) {
    if (w->verdict <= j->verdict) return;
    j->verdict = w->verdict;
    j->word = *w;
}

static bool has_figure(const struct judged *j, const struct check_metric_info *m) {
    for (size_t i = 0; i < j->n; i++)
        if (j->figures[i].info == m) return true;
    return false;
}

static void judge_missing(struct judged *j) {
    const struct check_metric_info *m = j->check->metrics;
    for (size_t i = 0; i < LIMITS_FIGURES && m[i].name != NULL; i++) {
        if (!m[i].by_model || m[i].optional || has_figure(j, &m[i])) continue;
        if (limit_of(j->check, &m[i], &j->about, NAN).kind != LIMIT_MODEL) continue;
        struct limit_word w = {.verdict = VERDICT_ERROR, .code = "not_measured", .suggestion = ""};
        snprintf(w.message, sizeof w.message, "'%s' was not measured, but a sound %s has this figure", m[i].name,
                 gpu_model_name(j->about.model));
        worsen(j, &w);
    }
}

void limits_judge(struct judged *j, const double *own) {
    bool whole = j->verdict != VERDICT_SKIPPED && j->verdict != VERDICT_ERROR;
    for (size_t i = 0; i < j->n; i++) {
        const struct check_metric_info *m = j->figures[i].info;
        j->figures[i].limit = limit_of(j->check, m, &j->about, own != NULL ? own[m - j->check->metrics] : (double)NAN);
        struct limit_word w = limit_judge(&j->figures[i].limit, m, j->figures[i].value, j->note);
        if (whole || j->figures[i].limit.kind != LIMIT_MODEL) worsen(j, &w);
    }
    if (whole && j->verdict <= VERDICT_DEGRADED) judge_missing(j);
}

/* --- peers --- */

static void name_outlier(struct judged *j, const struct check_metric_info *m, double value, const struct peers *p,
                         size_t n) {
    if (j->verdict >= VERDICT_DEGRADED) return; /* already named for another fault */
    double away = 100 * (m->ceiling ? value - p->median : p->median - value) / p->median;
    struct limit_word w = {.verdict = VERDICT_DEGRADED,
                           .code = "outlier",
                           .suggestion = "check this GPU's clocks, temperature and slot; replace it if it stays "
                                         "slow: the slowest GPU limits a training run"};
    char is[STR_FIGURE], median[STR_FIGURE], mad[STR_FIGURE], pct[STR_FIGURE];
    snprintf(w.message, sizeof w.message,
             "%s is %s %s, %s %% %s the median %s of the %zu GPUs here (median absolute deviation %s)", m->name,
             str_figure(is, value), m->unit, str_figure(pct, away), m->ceiling ? "above" : "under",
             str_figure(median, p->median), n, str_figure(mad, p->mad));
    worsen(j, &w);
}

/* Compares the GPUs of one model: another model has other figures. */
static void compare(struct judged *gpus, size_t n, const struct gpu_model *model, const struct check_metric_info *m) {
    GP_AUTO_FREE double *values = xcalloc(n, sizeof *values);
    GP_AUTO_FREE size_t *whose = xcalloc(n, sizeof *whose);
    GP_AUTO_FREE bool *outlier = xcalloc(n, sizeof *outlier);
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        bool measured = gpus[i].verdict != VERDICT_SKIPPED && gpus[i].verdict != VERDICT_ERROR;
        for (size_t k = 0; measured && gpus[i].about.model == model && k < gpus[i].n; k++) {
            if (gpus[i].figures[k].info != m) continue;
            whose[have] = i;
            values[have++] = gpus[i].figures[k].value;
            break;
        }
    }
    struct peers p;
    if (!peers_compare(values, have, m->ceiling, outlier, &p)) return;
    for (size_t i = 0; i < have; i++)
        if (outlier[i]) name_outlier(&gpus[whose[i]], m, values[i], &p, have);
}

void limits_compare(struct judged *gpus, size_t n) {
    for (size_t first = 0; first < n; first++) {
        bool seen = false;
        for (size_t i = 0; i < first && !seen; i++) seen = gpus[i].about.model == gpus[first].about.model;
        const struct check_metric_info *m = gpus[first].check->metrics;
        for (size_t i = 0; !seen && i < LIMITS_FIGURES && m[i].name; i++)
            if (m[i].by_model || m[i].peers) compare(gpus, n, gpus[first].about.model, &m[i]);
    }
}

char *limits_gpu_text(int gpu, const char *message, const char *others) {
    GP_AUTO_FREE char *prefix = xasprintf("gpu %d: ", gpu);
    return xasprintf("%s%s%s%s%s", str_starts(message, prefix) ? "" : prefix, message, *others ? " (also gpu " : "",
                     others, *others ? ")" : "");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Judges an agent's figures by suite/limits.h with the spec's floors: those of a check, and those of each GPU if the
 * check has them. Limits can only make a verdict worse; a floor of the spec without its figure is an error, never a
 * pass. Pure; any thread. */
#include "base/gp_base.h"

#include "validate/judge.h"

#include "base/json.h"
#include "validate/suite/limits.h"
#include "validate/validate.h"

#include <math.h>

bool validate_demanded(const struct spec *spec, const char *check) {
    bool demanded = strv_has(&spec->validate.require, check);
    for (size_t i = 0; i < spec->validate.floors.len && !demanded; i++)
        demanded = str_eq(spec->validate.floors.items[i].check, check);
    const struct check_info *info = check_find(check);
    if (info && info->engine && spec->container.engine != ENGINE_NONE) demanded = true;
    if (info && info->python && spec_python_asks(&spec->python, info->python)) demanded = true;
    return demanded;
}

bool validate_required(const struct spec *spec, const char *check) {
    const struct check_info *info = check_find(check);
    return (info && info->required) || validate_demanded(spec, check);
}

static int severity(enum verdict v) { return (int)v; /* the enum's order is severity */ }

void check_result_worsen(struct check_result *r, enum verdict v, const char *code, const char *message,
                         const char *suggestion) {
    if (severity(v) <= severity(r->verdict)) return;
    r->verdict = v;
    free(r->code);
    free(r->message);
    free(r->suggestion);
    r->code = xstrdup(code);
    r->message = xstrdup(message);
    r->suggestion = xstrdup(suggestion ? suggestion : "");
}

static const struct check_metric_info *metric_info(const struct check_info *info, const char *name) {
    if (!info) return NULL;
    for (size_t i = 0; i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name; i++)
        if (str_eq(info->metrics[i].name, name)) return &info->metrics[i];
    return NULL;
}

/* The spec's floors in the order of the check's figures; NAN: none. */
static void own_floors(const struct spec *spec, const struct check_info *info, double own[LIMITS_FIGURES]) {
    for (size_t i = 0; i < LIMITS_FIGURES; i++) own[i] = (double)NAN;
    for (size_t i = 0; i < spec->validate.floors.len; i++) {
        const struct spec_floor *f = &spec->validate.floors.items[i];
        const struct check_metric_info *mi = str_eq(f->check, info->id) ? metric_info(info, f->metric) : NULL;
        if (mi) own[mi - info->metrics] = f->value;
    }
}

/* The row of the model table for these figures, by the agent's data; no model: unrated. */
static struct limit_about about_of(const json_t *data) {
    const json_t *j = json_at(data, "conditions");
    return (struct limit_about){.model = gpu_model_by_id(json_str(j, "model", "")),
                                .key = {.gpus = (int)json_int(j, "gpus", 0),
                                        .bytes = json_int(j, "bytes", 0),
                                        .nvls = json_bool(j, "nvls", false),
                                        .nvlink = json_bool(j, "nvlink", false),
                                        .pcie = json_num(j, "pcie", 0)}};
}

static void add_figure(struct judged *j, const struct check_metric_info *mi, double value) {
    if (!mi || j->n == LIMITS_FIGURES) return;
    j->figures[j->n].info = mi;
    j->figures[j->n++].value = value;
}

static void worsen_by(struct check_result *r, const struct check_info *info, const struct limit_word *w,
                      const char *message) {
    check_result_worsen(r, w->verdict, w->code, message, w->suggestion ? w->suggestion : info->suggestion);
}

/* Sets the figure's limit as reports show it; a limit sent by the agent is ignored. */
static void show_limit(struct metric *m, const struct check_metric_info *mi, const struct limit *l) {
    bool none = l->kind == LIMIT_NONE || l->kind == LIMIT_UNRATED;
    m->has_floor = !none;
    m->floor = none ? 0 : l->fail >= 0 ? l->fail : l->degraded;
    m->has_degraded = l->fail >= 0 && l->degraded >= 0;
    m->degraded = m->has_degraded ? l->degraded : 0;
    m->unrated = l->kind == LIMIT_UNRATED;
    m->ceiling = mi && mi->ceiling;
    m->measured = l->kind == LIMIT_MODEL && l->measured > 0 ? l->measured : 0;
    free(m->source);
    m->source = limit_source(l);
}

/* --- each GPU --- */

/* A GPU's entry of data.gpus that has a verdict and figures. */
static bool read_gpu(const struct check_info *info, const json_t *g, struct judged *ret) {
    const json_t *metrics = json_at(g, "metrics");
    *ret = (struct judged){.check = info, .about = about_of(g)};
    if (!json_is_object(metrics) || !verdict_parse(json_str(g, "verdict", ""), &ret->verdict)) return false;
    for (size_t i = 0; i < LIMITS_FIGURES && info->metrics[i].name; i++) {
        const json_t *v = json_object_get(metrics, info->metrics[i].name);
        if (json_is_number(v)) add_figure(ret, &info->metrics[i], json_number_value(v));
    }
    return true;
}

static void write_gpu(json_t *g, const struct judged *j) {
    if (j->word.verdict == VERDICT_PASS) return;
    json_object_set_new(g, "verdict", json_string(verdict_name(j->verdict)));
    json_object_set_new(g, "code", json_string(j->word.code));
    json_object_set_new(g, "message", json_any_text(j->word.message));
}

/* The node's message: that of its worst GPU, with the other GPUs that are as bad. */
static void name_worst(struct check_result *r, const struct check_info *info, const json_t *gpus,
                       const struct judged *all, size_t n) {
    GP_AUTO_STR struct str others = {0};
    const struct judged *worst = all;
    for (size_t i = 1; i < n; i++)
        if (all[i].verdict > worst->verdict) worst = &all[i];
    if (worst->word.verdict == VERDICT_PASS) return; /* a fault: the agent has set its message */
    for (size_t i = 0; i < n; i++)
        if (&all[i] != worst && all[i].verdict == worst->verdict)
            str_addf(&others, "%s%d", others.len ? ", " : "", (int)json_int(json_array_get(gpus, i), "gpu", -1));
    int gpu = (int)json_int(json_array_get(gpus, (size_t)(worst - all)), "gpu", -1);
    GP_AUTO_FREE char *text = limits_gpu_text(gpu, worst->word.message, others.s ? others.s : "");
    worsen_by(r, info, &worst->word, text);
}

/* The limit of the one of `all` that has this figure with this value. */
static void find_limit(const struct judged *all, size_t n, const struct metric *m, const struct check_metric_info *mi,
                       struct limit *ret) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < all[i].n; k++)
            if (all[i].figures[k].info == mi && all[i].figures[k].value == m->value) *ret = all[i].figures[k].limit;
}

/* --- the check --- */

static void judge_figures(const struct spec *spec, const struct check_info *info, struct check_result *r) {
    double own[LIMITS_FIGURES];
    json_t *gpus = json_object_get(r->data, "gpus");
    size_t n = json_is_array(gpus) ? json_array_size(gpus) : 0;
    GP_AUTO_FREE struct judged *all = xcalloc(n + 1, sizeof *all);
    bool whole = n > 0;
    own_floors(spec, info, own);
    for (size_t i = 0; i < n; i++) whole = read_gpu(info, json_array_get(gpus, i), &all[i]) && whole;
    n = whole ? n : 0;
    for (size_t i = 0; i < n; i++) limits_judge(&all[i], own);
    limits_compare(all, n);
    for (size_t i = 0; i < n; i++) write_gpu(json_array_get(gpus, i), &all[i]);
    if (n) name_worst(r, info, gpus, all, n);

    struct judged one = {.check = info, .about = about_of(r->data), .note = json_str(r->data, "note", NULL)};
    one.verdict = r->verdict;
    for (size_t i = 0; i < r->metrics.len; i++)
        add_figure(&one, metric_info(info, r->metrics.items[i].name), r->metrics.items[i].value);
    limits_judge(&one, own);
    worsen_by(r, info, &one.word, one.word.message);
    for (size_t i = 0; i < r->metrics.len; i++) {
        struct metric *m = &r->metrics.items[i];
        struct limit l = {.kind = LIMIT_NONE, .source = ""};
        find_limit(&one, 1, m, metric_info(info, m->name), &l);
        if (l.kind == LIMIT_UNRATED) find_limit(all, n, m, metric_info(info, m->name), &l);
        show_limit(m, metric_info(info, m->name), &l);
    }
}

/* The first missing figure among those with a limit; NULL when it has them all. */
static const char *not_measured(const struct check_info *info, const struct check_result *r) {
    for (size_t i = 0; info && i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name; i++) {
        const struct check_metric_info *mi = &info->metrics[i];
        bool held = (mi->fail >= 0 || mi->degraded >= 0) && !mi->optional;
        if (held && !check_metric(r, mi->name)) return mi->name;
    }
    return NULL;
}

/* Why no measurement can give this value, even on the good side of its limit. NULL: it is possible. */
static const char *impossible(const struct check_info *info, const struct check_result *r, const struct metric *m) {
    const struct check_metric_info *mi = metric_info(info, m->name);
    if (!isfinite(m->value)) return "is not a number";
    if (m->value < 0) return "is negative";
    if (mi && mi->positive && m->value == 0) return "is zero";
    if (mi && !str_eq(mi->unit, m->unit)) return "has another unit than the table's";
    return check_metric(r, m->name) == m ? NULL : "was sent twice";
}

static void judge_possible(const struct check_info *info, struct check_result *r, const struct metric *m) {
    const char *why = impossible(info, r, m);
    if (!why) return;
    GP_AUTO_FREE char *text = xasprintf("the figure '%s' %s", m->name, why);
    check_result_worsen(r, VERDICT_ERROR, "not_a_figure", text, "run validate again");
}

/* A check of GPUs reports their number: a pass of fewer GPUs than the spec's is no pass of the others. */
static void judge_gpus(const struct spec *spec, const struct check_info *info, struct check_result *r) {
    const struct metric *m = check_metric(r, "gpus");
    if (!info || info->level != CHECK_GPU || spec->gpu.count <= 0) return;
    if (m && m->value >= spec->gpu.count) return;
    GP_AUTO_FREE char *text =
        xasprintf("it covered %.4g of the %d GPUs of the spec", m ? m->value : 0.0, spec->gpu.count);
    check_result_worsen(r, VERDICT_ERROR, "fewer_gpus", text, info->suggestion);
}

void validate_apply_floors(const struct spec *spec, struct check_result *r) {
    const struct check_info *info = check_find(r->check);
    bool excused = r->verdict == VERDICT_SKIPPED && info && info->may_skip && !validate_demanded(spec, r->check);
    r->required = validate_required(spec, r->check) && !excused;
    for (size_t i = 0; i < r->metrics.len; i++) judge_possible(info, r, &r->metrics.items[i]);
    if (info) judge_figures(spec, info, r);
    if (r->verdict != VERDICT_PASS && r->verdict != VERDICT_DEGRADED) return;
    const char *missing = not_measured(info, r);
    if (missing) {
        GP_AUTO_FREE char *text = xasprintf("the agent did not send the figure '%s'", missing);
        check_result_worsen(r, VERDICT_ERROR, "not_measured", text, "run validate again");
    }
    judge_gpus(spec, info, r);
    for (size_t i = 0; i < spec->validate.floors.len; i++) {
        const struct spec_floor *f = &spec->validate.floors.items[i];
        if (!str_eq(f->check, r->check) || check_metric(r, f->metric)) continue;
        GP_AUTO_FREE char *text = xasprintf("the spec has a floor of %s, which was not measured", f->metric);
        check_result_worsen(r, VERDICT_ERROR, "not_measured", text, "");
    }
}

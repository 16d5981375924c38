/* SPDX-License-Identifier: Apache-2.0 */
/* Judges one check's figures by the limits of the check table, of the GPU model table (as the agent, which
 * knows the model, sent them) and of the spec, which goes before both. A limit can only make a
 * verdict worse; a floor that was asked for and not measured is an error, never a pass. Pure; any
 * thread. */
#include "base/gp_base.h"

#include "validate/judge.h"
#include "validate/validate.h"

#include <math.h>

bool validate_demanded(const struct spec *spec, const char *check) {
    bool demanded = strv_has(&spec->validate.require, check);
    for (size_t i = 0; i < spec->validate.floors.len && !demanded; i++)
        demanded = str_eq(spec->validate.floors.items[i].check, check);
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

static const struct spec_floor *spec_floor_of(const struct spec *spec, const char *check, const char *metric) {
    for (size_t i = 0; i < spec->validate.floors.len; i++) {
        const struct spec_floor *f = &spec->validate.floors.items[i];
        if (str_eq(f->check, check) && str_eq(f->metric, metric)) return f;
    }
    return NULL;
}

/* A value that is not a number holds nothing. */
static bool holds(double value, double limit, bool ceiling) { return ceiling ? value <= limit : value >= limit; }

/* fail, degraded: negative where there is none. */
static void set_limit(struct metric *m, double fail, double degraded, bool ceiling, const char *source) {
    m->has_floor = true;
    m->floor = fail >= 0 ? fail : degraded;
    m->has_degraded = fail >= 0 && degraded >= 0;
    m->degraded = m->has_degraded ? degraded : 0;
    m->unrated = false;
    m->ceiling = ceiling;
    free(m->source);
    m->source = xstrdup(source);
}

static void missed(struct check_result *r, const struct metric *m, double limit, enum verdict v,
                   const struct check_info *info) {
    GP_AUTO_FREE char *text = xasprintf("%s is %.4g %s, must be %s %.4g %s (%s)", m->name, m->value, m->unit,
                                        m->ceiling ? "at most" : "at least", limit, m->unit, m->source);
    GP_AUTO_FREE char *code = xasprintf("%s_%s", m->ceiling ? "high" : "low", m->name);
    check_result_worsen(r, v, code, text, info ? info->suggestion : "");
}

/* By the limits that are set. */
static void judge_limits(struct check_result *r, struct metric *m, bool fails, const struct check_info *info) {
    if (!holds(m->value, m->floor, m->ceiling)) missed(r, m, m->floor, fails ? VERDICT_FAIL : VERDICT_DEGRADED, info);
    else if (m->has_degraded && !holds(m->value, m->degraded, m->ceiling))
        missed(r, m, m->degraded, VERDICT_DEGRADED, info);
}

static void judge_metric(const struct spec *spec, const struct check_info *info, struct check_result *r,
                         struct metric *m) {
    const struct check_metric_info *mi = metric_info(info, m->name);
    const struct spec_floor *own = spec_floor_of(spec, r->check, m->name);
    bool fails = true;
    if (own) {
        set_limit(m, own->value, -1, mi && mi->ceiling, "spec");
    } else if (mi && mi->by_model) {
        m->unrated = !m->has_floor; /* an agent that sent no limit knew none */
    } else if (mi && (mi->fail >= 0 || mi->degraded >= 0)) {
        set_limit(m, mi->fail, mi->degraded, mi->ceiling, mi->source);
        fails = mi->fail >= 0;
    } else {
        return;
    }
    if (!m->unrated) judge_limits(r, m, fails, info);
}

/* The agent judges by the tables alone, and says low_METRIC or high_METRIC. Where it condemned for a
 * limit of theirs, its word is taken back so that the spec's own floor can decide. */
static void take_back(const struct spec *spec, const struct check_info *info, struct check_result *r) {
    if (r->verdict != VERDICT_FAIL && r->verdict != VERDICT_DEGRADED) return;
    const char *metric = str_starts(r->code, "low_") ? r->code + 4 : str_starts(r->code, "high_") ? r->code + 5 : NULL;
    if (!metric || !check_metric(r, metric)) return;
    const struct check_metric_info *mi = metric_info(info, metric);
    if (!spec_floor_of(spec, r->check, metric) && (!mi || (mi->fail < 0 && mi->degraded < 0)))
        return; /* nobody would judge it again */
    r->verdict = VERDICT_PASS;
    free(r->code);
    free(r->message);
    free(r->suggestion);
    r->code = xstrdup("");
    r->message = xstrdup("");
    r->suggestion = xstrdup("");
}

/* The first figure that this check is held to and did not bring; NULL when it has them all. */
static const char *not_measured(const struct check_info *info, const struct check_result *r) {
    for (size_t i = 0; info && i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name; i++) {
        const struct check_metric_info *mi = &info->metrics[i];
        bool held = (mi->fail >= 0 || mi->degraded >= 0) && !mi->optional;
        if (held && !check_metric(r, mi->name)) return mi->name;
    }
    return NULL;
}

/* What no measurement gives, though it may lie on the good side of a limit. NULL: it can be. */
static const char *impossible(const struct check_info *info, const struct check_result *r, const struct metric *m) {
    const struct check_metric_info *mi = metric_info(info, m->name);
    if (!isfinite(m->value)) return "is not a number";
    if (m->value < 0) return "is negative";
    if (mi && mi->positive && m->value == 0) return "is zero";
    if (mi && !str_eq(mi->unit, m->unit)) return "comes in another unit than the table's";
    return check_metric(r, m->name) == m ? NULL : "was sent twice";
}

static void judge_possible(const struct check_info *info, struct check_result *r, const struct metric *m) {
    const char *why = impossible(info, r, m);
    if (!why) return;
    GP_AUTO_FREE char *text = xasprintf("the figure '%s' %s", m->name, why);
    check_result_worsen(r, VERDICT_ERROR, "not_a_figure", text, "run validate again");
}

/* A check of GPUs says how many it was about: a pass of fewer than the spec's is none of the rest. */
static void judge_gpus(const struct spec *spec, const struct check_info *info, struct check_result *r) {
    const struct metric *m = check_metric(r, "gpus");
    if (!info || info->level != CHECK_GPU || spec->gpu.count <= 0) return;
    if (m && m->value >= spec->gpu.count) return;
    GP_AUTO_FREE char *text =
        xasprintf("it was about %.4g of the %d GPUs of the spec", m ? m->value : 0.0, spec->gpu.count);
    check_result_worsen(r, VERDICT_ERROR, "fewer_gpus", text, info->suggestion);
}

void validate_apply_floors(const struct spec *spec, struct check_result *r) {
    const struct check_info *info = check_find(r->check);
    r->required = validate_required(spec, r->check);
    take_back(spec, info, r);
    for (size_t i = 0; i < r->metrics.len; i++) {
        judge_possible(info, r, &r->metrics.items[i]);
        judge_metric(spec, info, r, &r->metrics.items[i]);
    }
    if (r->verdict != VERDICT_PASS && r->verdict != VERDICT_DEGRADED) return;
    const char *missing = not_measured(info, r);
    if (missing) {
        GP_AUTO_FREE char *text = xasprintf("the agent did not send its figure '%s'", missing);
        check_result_worsen(r, VERDICT_ERROR, "not_measured", text, "run validate again");
    }
    judge_gpus(spec, info, r);
    for (size_t i = 0; i < spec->validate.floors.len; i++) {
        const struct spec_floor *f = &spec->validate.floors.items[i];
        if (!str_eq(f->check, r->check) || check_metric(r, f->metric)) continue;
        GP_AUTO_FREE char *text = xasprintf("the spec asks for a floor of %s, which was not measured", f->metric);
        check_result_worsen(r, VERDICT_ERROR, "not_measured", text, "");
    }
}

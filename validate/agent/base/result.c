/* SPDX-License-Identifier: Apache-2.0 */
/* One check's outcome and its line. Does no I/O. One thread per result. */
#include "base/gp_base.h"

#include "validate/agent/agent.h"

#include <math.h>

void agent_result_init(struct agent_result *r, const struct check_info *check) {
    *r = (struct agent_result){.check = check, .gpu = -1, .rank = -1};
    str_init(&r->culprits, 4096);
    str_init(&r->data, AGENT_LINE_MAX);
}

void agent_result_clear(struct agent_result *r) {
    str_clear(&r->culprits);
    str_clear(&r->data);
}

static void put_line(char *dst, size_t n, const char *fmt, va_list ap) {
    vsnprintf(dst, n, fmt, ap);
    for (char *p = dst; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
}

void agent_set(struct agent_result *r, enum verdict v, const char *code, const char *fmt, ...) {
    if (v <= r->verdict) return;
    r->verdict = v;
    str_put(r->code, sizeof r->code, code);
    va_list ap;
    va_start(ap, fmt);
    put_line(r->message, sizeof r->message, fmt, ap);
    va_end(ap);
}

void agent_set_error(struct agent_result *r, enum verdict v, const char *code, const struct gp_error *err) {
    agent_set(r, v, code, "%s", err->msg);
}

void agent_say(struct agent_result *r, const char *fmt, ...) {
    if (r->verdict != VERDICT_PASS) return;
    va_list ap;
    va_start(ap, fmt);
    put_line(r->message, sizeof r->message, fmt, ap);
    va_end(ap);
}

void agent_suggest(struct agent_result *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    put_line(r->suggestion, sizeof r->suggestion, fmt, ap);
    va_end(ap);
}

void agent_metric(struct agent_result *r, const char *name, double value) {
    const struct check_metric_info *m = r->check->metrics;
    size_t i = 0;
    while (i < GP_ARRAY_LEN(r->check->metrics) && m[i].name != NULL && !str_eq(m[i].name, name)) i++;
    if (i == GP_ARRAY_LEN(r->check->metrics) || m[i].name == NULL) {
        agent_set(r, VERDICT_ERROR, "unknown_metric", "the check table has no figure '%s' for %s", name, r->check->id);
        return;
    }
    if (!isfinite(value)) {
        agent_set(r, VERDICT_ERROR, "not_finite", "the figure '%s' of %s is not a number", name, r->check->id);
        return;
    }
    for (size_t k = 0; k < r->n_metrics; k++) {
        if (r->metrics[k].info != &m[i]) continue;
        r->metrics[k].value = value;
        return;
    }
    r->metrics[r->n_metrics++] = (struct agent_metric){.info = &m[i], .value = value};
}

void agent_json_num(struct str *s, double v) {
    if (!isfinite(v)) {
        str_add(s, "null");
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%.6g", v);
    str_add(s, text); /* the agent never calls setlocale: always a dot */
}

static void quoted(struct str *s, const char *text) {
    str_addc(s, '"');
    str_add_json(s, text, strlen(text));
    str_addc(s, '"');
}

static void data_key(struct agent_result *r, const char *key) {
    if (r->data.len > 0) str_addc(&r->data, ',');
    quoted(&r->data, key);
    str_addc(&r->data, ':');
}

void agent_data_str(struct agent_result *r, const char *key, const char *value) {
    data_key(r, key);
    quoted(&r->data, value);
}

void agent_data_num(struct agent_result *r, const char *key, double value) {
    data_key(r, key);
    agent_json_num(&r->data, value);
}

void agent_data_int(struct agent_result *r, const char *key, int64_t value) {
    data_key(r, key);
    str_addf(&r->data, "%lld", (long long)value);
}

void agent_data_bool(struct agent_result *r, const char *key, bool value) {
    data_key(r, key);
    str_add(&r->data, value ? "true" : "false");
}

void agent_data_nums(struct agent_result *r, const char *key, const double *v, size_t n) {
    data_key(r, key);
    str_addc(&r->data, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0) str_addc(&r->data, ',');
        agent_json_num(&r->data, v[i]);
    }
    str_addc(&r->data, ']');
}

void agent_culprit(struct agent_result *r, int rank) {
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    GP_AUTO_STRV struct strv seen = {0};
    strv_split(&seen, r->culprits.s, ",");
    if (strv_has(&seen, text)) return;
    if (r->culprits.len > 0) str_addc(&r->culprits, ',');
    str_add(&r->culprits, text);
}

void agent_metric_worst(struct agent_result *r, const struct agent_metric *m) {
    for (size_t i = 0; i < r->n_metrics; i++) {
        if (r->metrics[i].info != m->info) continue;
        bool worse = m->info->ceiling ? m->value > r->metrics[i].value : m->value < r->metrics[i].value;
        if (worse) r->metrics[i] = *m;
        return;
    }
    r->metrics[r->n_metrics++] = *m;
}

void agent_about(struct agent_result *r, const struct check_ctx *c) {
    r->about.model = c->model;
    r->about.key.gpus = c->gpus;
}

void agent_conditions(const struct agent_result *r, const char *prefix, const char *suffix, struct str *s) {
    const struct gpu_figure_key *k = &r->about.key;
    if (r->about.model == NULL) return;
    str_addf(s, "%s{\"model\":\"%s\",\"gpus\":%d", prefix, gpu_model_id(r->about.model), k->gpus);
    if (k->bytes > 0) str_addf(s, ",\"bytes\":%lld", (long long)k->bytes);
    if (k->nvls) str_add(s, ",\"nvls\":true");
    if (k->nvlink) str_add(s, ",\"nvlink\":true");
    if (k->pcie > 0) str_addf(s, ",\"pcie\":%.4g", k->pcie);
    str_addf(s, "}%s", suffix);
}

/* The figure's limit and its source. */
static void add_limit(const struct agent_metric *metric, struct str *s) {
    const struct limit *l = &metric->limit;
    if (l->kind == LIMIT_UNRATED) str_add(s, ",\"unrated\":true");
    if (l->kind == LIMIT_NONE || l->kind == LIMIT_UNRATED) return;
    str_add(s, ",\"floor\":");
    agent_json_num(s, l->fail >= 0 ? l->fail : l->degraded);
    if (l->fail >= 0 && l->degraded >= 0) {
        str_add(s, ",\"degraded\":");
        agent_json_num(s, l->degraded);
    }
    if (metric->info->ceiling) str_add(s, ",\"ceiling\":true");
    GP_AUTO_FREE char *source = limit_source(l);
    str_add(s, ",\"source\":");
    quoted(s, source);
    if (l->kind != LIMIT_MODEL || l->measured <= 0) return;
    str_add(s, ",\"measured\":"); /* reports draw it beside the figure */
    agent_json_num(s, l->measured);
}

static void add_metrics(const struct agent_result *r, struct str *s) {
    str_add(s, ",\"metrics\":[");
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct check_metric_info *m = r->metrics[i].info;
        str_add(s, i > 0 ? ",{\"name\":" : "{\"name\":");
        quoted(s, m->name);
        str_add(s, ",\"value\":");
        agent_json_num(s, r->metrics[i].value);
        str_add(s, ",\"unit\":");
        quoted(s, m->unit);
        add_limit(&r->metrics[i], s);
        str_addc(s, '}');
    }
    str_addc(s, ']');
}

void agent_result_line(const struct agent_result *r, struct str *ret) {
    GP_AUTO_STR struct str s = {0};
    str_init(&s, AGENT_LINE_MAX * 2);
    str_add(&s, "{\"type\":\"result\",\"check\":");
    quoted(&s, r->check->id);
    if (r->gpu >= 0) str_addf(&s, ",\"gpu\":%d", r->gpu);
    if (r->rank >= 0) str_addf(&s, ",\"rank\":%d", r->rank);
    str_addf(&s, ",\"verdict\":\"%s\",\"code\":", verdict_name(r->verdict));
    quoted(&s, r->code);
    str_add(&s, ",\"message\":");
    quoted(&s, r->message);
    str_add(&s, ",\"suggestion\":");
    bool blamed = r->verdict == VERDICT_DEGRADED || r->verdict == VERDICT_FAIL;
    quoted(&s, r->suggestion[0] != '\0' ? r->suggestion : blamed ? r->check->suggestion : "");
    str_addf(&s, ",\"took_ms\":%lld", (long long)r->took_ms);
    add_metrics(r, &s);
    str_add(&s, ",\"data\":{");
    size_t open = s.len;
    if (r->culprits.len > 0) str_addf(&s, "\"culprits\":[%s]", r->culprits.s);
    agent_conditions(r, s.len > open ? ",\"conditions\":" : "\"conditions\":", "", &s);
    if (r->note[0] != '\0') {
        str_add(&s, s.len > open ? ",\"note\":" : "\"note\":");
        quoted(&s, r->note);
    }
    const char *comma = s.len > open && r->data.len > 0 ? "," : "";
    if (s.len + r->data.len > AGENT_LINE_MAX - 64 || r->data.truncated)
        str_addf(&s, "%s\"dropped\":\"longer than one line\"}}\n", comma);
    else str_addf(&s, "%s%s}}\n", comma, r->data.s);
    str_add_mem(ret, s.s, s.len);
}

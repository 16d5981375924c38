/* SPDX-License-Identifier: Apache-2.0 */
/* A report for the textfile collector of Prometheus' node_exporter (text format 0.0.4). The samples of a
 * family are consecutive, as the format requires. Pure; any thread. */
#include "base/gp_base.h"

#include "report_forms.h"

#include "report_parts.h"

#include <inttypes.h>
#include <math.h>

/* The source of a sample. */
struct source {
    const struct report *r;
    const struct report_node *node; /* NULL: all nodes together */
    const struct check_result *c;
    const json_t *gpu; /* NULL: the check as a whole */
};

static void label(struct str *out, const char *name, const char *value) {
    GP_AUTO_FREE char *clean = xstrdup(report_text_of(value));
    str_one_line(clean);
    str_addf(out, "%s%s=\"", str_ends(out->s, "{") ? "" : ",", name);
    for (const char *s = clean; *s != '\0'; s++) {
        if (*s == '\\' || *s == '"') str_addc(out, '\\');
        str_addc(out, *s);
    }
    str_addc(out, '"');
}

static void begin(struct str *out, const char *family, const struct source *s) {
    str_addf(out, "%s{", family);
    label(out, "stack", s->r->stack);
    char slot[16] = "";
    if (s->node != NULL) snprintf(slot, sizeof slot, "%d", s->node->slot);
    label(out, "node", slot); /* "": all nodes together */
    if (s->node != NULL) label(out, "host", s->node->host);
    if (s->c == NULL) return;
    label(out, "check", s->c->check);
    if (s->gpu == NULL) return;
    int index = (int)json_integer_value(json_object_get(s->gpu, "gpu"));
    char gpu[16];
    snprintf(gpu, sizeof gpu, "%d", index);
    label(out, "gpu", gpu);
    if (s->node != NULL) label(out, "uuid", report_node_gpu(s->node, index, "uuid"));
}

static void end(struct str *out, double v) {
    char text[32];
    if (!isfinite(v)) {
        str_add(out, "} NaN\n");
        return;
    }
    snprintf(text, sizeof text, "%.15g", v); /* 17 digits would print 0.8 as 0.80000000000000004 */
    str_addf(out, "} %s\n", text);
}

/* The node-check exit code, with 4 for an optional check that was skipped. */
static int status_of(enum verdict v, bool required) {
    return v == VERDICT_SKIPPED && !required ? 4 : (int)verdict_node_check(v);
}

static void status(struct str *out, const struct source *s) {
    enum verdict v = s->c->verdict;
    const char *word = json_string_value(json_object_get(s->gpu, "verdict"));
    if (s->gpu != NULL && (word == NULL || !verdict_parse(word, &v))) return;
    begin(out, "gpuprov_check_status", s);
    label(out, "required", s->c->required ? "true" : "false");
    end(out, status_of(v, s->c->required));
}

static void value(struct str *out, const struct source *s) {
    for (size_t i = 0; i < s->c->metrics.len; i++) {
        const struct metric *m = &s->c->metrics.items[i];
        double v = m->value;
        if (s->gpu != NULL) {
            const json_t *own = json_object_get(json_object_get(s->gpu, "metrics"), m->name);
            if (!json_is_number(own)) continue;
            v = json_number_value(own);
        }
        begin(out, "gpuprov_check_value", s);
        label(out, "metric", m->name);
        label(out, "unit", m->unit);
        end(out, v);
    }
}

static void limit(struct str *out, const struct source *s) {
    for (size_t i = 0; s->gpu == NULL && i < s->c->metrics.len; i++) {
        const struct metric *m = &s->c->metrics.items[i];
        if (!m->has_floor) continue;
        begin(out, "gpuprov_check_limit", s);
        label(out, "metric", m->name);
        label(out, "unit", m->unit);
        label(out, "bound", m->ceiling ? "ceiling" : "floor");
        end(out, m->floor);
    }
}

static void last_run(struct str *out, const struct source *s) {
    if (s->gpu != NULL || s->c->verdict == VERDICT_SKIPPED) return;
    begin(out, "gpuprov_check_last_run_timestamp_seconds", s);
    str_addf(out, "} %" PRId64 "\n", s->r->started_s);
}

static void each_check(struct source s, const struct check_result *list, size_t n,
                       void (*one)(struct str *out, const struct source *s), struct str *out) {
    for (size_t i = 0; i < n; i++) {
        s.c = &list[i];
        s.gpu = NULL;
        one(out, &s);
        for (size_t g = 0; s.node != NULL && (s.gpu = check_gpu(s.c, g)) != NULL; g++) one(out, &s);
    }
}

static int write_prometheus(const struct report *r, const struct report_style *style, struct str *out,
                            struct gp_error *err) {
    static const struct {
        const char *name, *help;
        void (*one)(struct str *out, const struct source *s);
    } families[] = {
        {"gpuprov_check_status",
         "Verdict: 0 pass, 1 degraded, 2 fail, 3 unknown (also a required check that was skipped), "
         "4 skipped.",
         status},
        {"gpuprov_check_value", "A figure of a check, in the unit that its label names.", value},
        {"gpuprov_check_limit", "Limit of a figure: lower (floor) or upper (ceiling).", limit},
        {"gpuprov_check_last_run_timestamp_seconds", "Start time of the validation that ran the check.", last_run},
    };
    (void)style;
    (void)err;
    for (size_t f = 0; f < GP_ARRAY_LEN(families); f++) {
        GP_AUTO_STR struct str body = {.max = (size_t)256 << 20};
        for (size_t i = 0; i < r->nodes.len; i++) {
            const struct report_node *n = &r->nodes.items[i];
            each_check((struct source){.r = r, .node = n}, n->checks.items, n->checks.len, families[f].one, &body);
        }
        each_check((struct source){.r = r}, r->gang.items, r->gang.len, families[f].one, &body);
        if (body.len == 0) continue;
        str_addf(out, "# HELP %s %s\n# TYPE %s gauge\n", families[f].name, families[f].help, families[f].name);
        str_add_mem(out, body.s, body.len);
    }
    str_add(out, "# HELP gpuprov_node_ready 1 when every required check ran on the node and none failed.\n"
                 "# TYPE gpuprov_node_ready gauge\n");
    for (size_t i = 0; i < r->nodes.len; i++) {
        struct source s = {.r = r, .node = &r->nodes.items[i]};
        begin(out, "gpuprov_node_ready", &s);
        end(out, s.node->ready ? 1 : 0);
    }
    return 0;
}

const struct report_ops report_form_prometheus = {"prometheus", "prom", write_prometheus};

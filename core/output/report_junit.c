/* SPDX-License-Identifier: Apache-2.0 */
/* A report as JUnit XML for CI systems: a test suite per node and one for all nodes together; a
 * test case per check and GPU (classname: the GPU's UUID) or per check (classname: the node). A required
 * check that did not run is an error, so that CI never shows it as passed. Pure. */
#include "base/gp_base.h"

#include "report_forms.h"

#include "base/clock.h"
#include "report_parts.h"

struct suite {
    const struct report *r;
    const struct report_node *node; /* NULL: all nodes together */
    int tests, failures, errors, skipped;
    int64_t took_ms;
    struct str cases;
};

struct one {
    const struct check_result *c;
    enum verdict verdict;
    const char *classname;
};

static void attribute(struct str *out, const char *name, const char *value) {
    str_addf(out, " %s=\"", name);
    report_escape(out, value);
    str_addc(out, '"');
}

/* "copy 1200 GB/s, at least 2032 GB/s": each figure with its limit. */
static void measured(const struct check_result *c, struct str *out) {
    for (size_t i = 0; i < c->metrics.len; i++) {
        const struct metric *m = &c->metrics.items[i];
        if (!m->has_floor || metric_holds(m)) continue;
        char value[48], limit[48];
        report_figure(value, sizeof value, m->value);
        report_figure(limit, sizeof limit, m->floor);
        str_addf(out, "%s%s %s %s, %s %s %s", out->len > 0 ? "; " : "", report_text_of(m->name), value,
                 report_text_of(m->unit), m->ceiling ? "at most" : "at least", limit, report_text_of(m->unit));
    }
}

static void finding(struct str *out, const char *element, const struct check_result *c) {
    GP_AUTO_STR struct str said = {0};
    measured(c, &said);
    if (said.len > 0) str_addf(&said, ": %s", report_text_of(c->message));
    else str_add(&said, report_text_of(c->message));
    str_addf(out, "      <%s", element);
    if (strcmp(element, "skipped") != 0) {
        GP_AUTO_FREE char *type =
            c->code != NULL && c->code[0] != '\0' ? xasprintf("%s.%s", c->check, c->code) : xstrdup(c->check);
        attribute(out, "type", type);
    }
    attribute(out, "message", said.s);
    str_addc(out, '>');
    report_escape(out, report_text_of(c->suggestion));
    str_addf(out, "</%s>\n", element);
}

static void add_case(struct suite *s, const struct one *t) {
    const struct check_result *c = t->c;
    s->tests++;
    str_add(&s->cases, "    <testcase");
    attribute(&s->cases, "classname", t->classname);
    attribute(&s->cases, "name", c->check);
    str_addf(&s->cases, " time=\"%.3f\">\n", (double)c->took_ms / 1000);
    bool strict_fail = t->verdict == VERDICT_DEGRADED && s->r->strict && c->required;
    if (t->verdict == VERDICT_FAIL || strict_fail) {
        s->failures++;
        finding(&s->cases, "failure", c);
    } else if (t->verdict == VERDICT_ERROR || (t->verdict == VERDICT_SKIPPED && c->required)) {
        s->errors++;
        finding(&s->cases, "error", c);
    } else if (t->verdict == VERDICT_SKIPPED) {
        s->skipped++;
        finding(&s->cases, "skipped", c);
    } else {
        GP_AUTO_FREE char *text = xasprintf("%s: %s", verdict_name(t->verdict), report_text_of(c->message));
        str_add(&s->cases, "      <system-out>");
        report_escape(&s->cases, text);
        str_add(&s->cases, "</system-out>\n");
    }
    str_add(&s->cases, "    </testcase>\n");
}

/* Each GPU's own verdict where the check reports one; also the whole check where its verdict is worse. */
static void add_check(struct suite *s, const char *node, const struct check_result *c) {
    enum verdict worst = VERDICT_PASS;
    bool per_gpu = false;
    const json_t *g = NULL;
    for (size_t i = 0; s->node != NULL && (g = check_gpu(c, i)) != NULL; i++) {
        struct one t = {.c = c, .verdict = c->verdict};
        const char *word = json_string_value(json_object_get(g, "verdict"));
        if (word == NULL || !verdict_parse(word, &t.verdict)) continue;
        int index = (int)json_integer_value(json_object_get(g, "gpu"));
        const char *uuid = report_node_gpu(s->node, index, "uuid");
        GP_AUTO_FREE char *name = uuid[0] != '\0' ? xstrdup(uuid) : xasprintf("%s gpu %d", node, index);
        t.classname = name;
        add_case(s, &t);
        worst = GP_MAX(worst, t.verdict);
        per_gpu = true;
    }
    if (per_gpu && c->verdict <= worst) return;
    struct one whole = {.c = c, .verdict = c->verdict, .classname = node};
    add_case(s, &whole);
}

static void property(struct str *out, const char *name, const char *value) {
    if (report_text_of(value)[0] == '\0') return;
    str_add(out, "      <property");
    attribute(out, "name", name);
    attribute(out, "value", value);
    str_add(out, "/>\n");
}

static void add_suite(const struct report *r, const struct report_node *node, const struct check_result *checks,
                      size_t n, struct str *out) {
    struct suite s = {.r = r, .node = node, .cases = {.max = (size_t)256 << 20}};
    GP_AUTO_FREE char *label = node != NULL ? xasprintf("%s/%d", report_text_of(r->stack), node->slot)
                                            : xasprintf("%s together", report_text_of(r->stack));
    for (size_t i = 0; i < n; i++) {
        add_check(&s, label, &checks[i]);
        s.took_ms += checks[i].took_ms;
    }
    char at[32];
    time_format_utc(at, sizeof at, r->started_s);
    const char *host = node != NULL && report_text_of(node->host)[0] != '\0' ? node->host : label;
    str_add(out, "  <testsuite");
    attribute(out, "name", host);
    attribute(out, "hostname", host);
    attribute(out, "timestamp", at);
    str_addf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.3f\">\n", s.tests, s.failures,
             s.errors, s.skipped, (double)s.took_ms / 1000);
    str_add(out, "    <properties>\n");
    property(out, "stack", r->stack);
    property(out, "run", r->run);
    property(out, "node", label);
    if (node != NULL) {
        property(out, "instance", node->id);
        property(out, "place", node->place);
        property(out, "driver", report_node_driver(node));
        property(out, "ready", node->ready ? "true" : "false");
    }
    str_add(out, "    </properties>\n");
    if (s.cases.len > 0) str_add_mem(out, s.cases.s, s.cases.len);
    str_add(out, "  </testsuite>\n");
    str_clear(&s.cases);
}

static int write_junit(const struct report *r, const struct report_style *style, struct str *out,
                       struct gp_error *err) {
    (void)style;
    (void)err;
    str_add(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"gpuprov\">\n");
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct report_node *n = &r->nodes.items[i];
        add_suite(r, n, n->checks.items, n->checks.len, out);
    }
    if (r->gang.len > 0) add_suite(r, NULL, r->gang.items, r->gang.len, out);
    str_add(out, "</testsuites>\n");
    return 0;
}

const struct report_ops report_form_junit = {"junit", "xml", write_junit};

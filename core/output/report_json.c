/* SPDX-License-Identifier: Apache-2.0 */
/* A report as JSON, by docs/report.schema.json, indented; and in one line of text. Any thread. */
#include "base/gp_base.h"

#include "report_forms.h"

#include "base/json.h"
#include "report_parts.h"

static int write_json(const struct report *r, const struct report_style *style, struct str *out, struct gp_error *err) {
    (void)style;
    (void)err;
    GP_AUTO_JSON json_t *j = report_to_json(r);
    GP_AUTO_FREE char *text = json_text(j, 2);
    str_addf(out, "%s\n", text);
    return 0;
}

const struct report_ops report_form_json = {"json", "json", write_json};

struct told {
    const struct check_result *worst;
    size_t counts[VERDICT_FAIL + 1];
};

static void look(struct told *t, const struct check_result *list, size_t n) {
    static const int rank[] = {
        [NODE_CHECK_PASS] = 0, [NODE_CHECK_DEGRADED] = 1, [NODE_CHECK_UNKNOWN] = 2, [NODE_CHECK_FAIL] = 3};
    for (size_t i = 0; i < n; i++) {
        const struct check_result *c = &list[i];
        t->counts[c->verdict]++;
        if (!c->required || c->verdict == VERDICT_PASS) continue;
        if (t->worst == NULL || rank[verdict_node_check(c->verdict)] > rank[verdict_node_check(t->worst->verdict)])
            t->worst = c;
    }
}

void report_line(const struct report *r, struct str *out) {
    static const char *const words[] = {"pass", "degraded", "fail", "unknown"};
    struct told t = {0};
    for (size_t i = 0; i < r->nodes.len; i++) look(&t, r->nodes.items[i].checks.items, r->nodes.items[i].checks.len);
    look(&t, r->gang.items, r->gang.len);
    GP_AUTO_STR struct str line = {0};
    str_addf(&line, "%s: ", words[report_node_check(r)]);
    if (t.worst != NULL) str_addf(&line, "%s: %s", t.worst->check, report_text_of(t.worst->message));
    else if (t.counts[VERDICT_PASS] == 0) str_add(&line, "no required check ran");
    else str_addf(&line, "%zu checks passed, %zu skipped", t.counts[VERDICT_PASS], t.counts[VERDICT_SKIPPED]);
    str_one_line(line.s);
    str_add(out, line.s);
}

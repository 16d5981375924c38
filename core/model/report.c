/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: the rule that makes a node READY, and the JSON form both ways (report_json.c). Knows no
 * check by name. Any thread. */
#include "base/gp_base.h"

#include "model/report.h"

static const char *const verdict_names[] = {
    [VERDICT_PASS] = "pass",   [VERDICT_DEGRADED] = "degraded", [VERDICT_SKIPPED] = "skipped",
    [VERDICT_ERROR] = "error", [VERDICT_FAIL] = "fail",
};

const char *verdict_name(enum verdict v) {
    return (size_t)v < GP_ARRAY_LEN(verdict_names) ? verdict_names[v] : "error";
}

bool verdict_parse(const char *name, enum verdict *ret) {
    for (size_t i = 0; name != NULL && i < GP_ARRAY_LEN(verdict_names); i++) {
        if (strcmp(name, verdict_names[i]) != 0) continue;
        *ret = (enum verdict)i;
        return true;
    }
    return false;
}

void check_result_clear(struct check_result *r) {
    for (size_t i = 0; i < r->metrics.len; i++) {
        free(r->metrics.items[i].name);
        free(r->metrics.items[i].unit);
        free(r->metrics.items[i].source);
    }
    vec_free(&r->metrics);
    free(r->check);
    free(r->code);
    free(r->message);
    free(r->suggestion);
    json_decref(r->data);
    *r = (struct check_result){0};
}

const struct metric *check_metric(const struct check_result *r, const char *name) {
    for (size_t i = 0; i < r->metrics.len; i++)
        if (str_eq(r->metrics.items[i].name, name)) return &r->metrics.items[i];
    return NULL;
}

void report_clear(struct report *r) {
    for (size_t i = 0; i < r->nodes.len; i++) {
        struct report_node *n = &r->nodes.items[i];
        for (size_t c = 0; c < n->checks.len; c++) check_result_clear(&n->checks.items[c]);
        vec_free(&n->checks);
        free(n->id);
        free(n->place);
        free(n->address);
        free(n->host);
    }
    vec_free(&r->nodes);
    for (size_t i = 0; i < r->gang.len; i++) check_result_clear(&r->gang.items[i]);
    vec_free(&r->gang);
    free(r->outdated);
    free(r->stack);
    free(r->uid);
    free(r->run);
    *r = (struct report){0};
}

struct tally {
    size_t required, held;
};

static void count(struct tally *t, const struct check_result *r, bool strict) {
    if (!r->required) return;
    t->required++;
    t->held += r->verdict == VERDICT_PASS || (r->verdict == VERDICT_DEGRADED && !strict);
}

void report_judge(struct report *r) {
    struct tally gang = {0};
    for (size_t i = 0; i < r->gang.len; i++) count(&gang, &r->gang.items[i], r->strict);
    r->ready = r->nodes.len > 0;
    for (size_t i = 0; i < r->nodes.len; i++) {
        struct report_node *n = &r->nodes.items[i];
        struct tally t = gang; /* a gang check is every node's check */
        for (size_t c = 0; c < n->checks.len; c++) count(&t, &n->checks.items[c], r->strict);
        n->ready = t.required > 0 && t.held == t.required;
        r->ready = r->ready && n->ready;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: the rule that makes a node READY, and the JSON form both ways (report_json.c). Names no
 * check. Any thread. */
#include "base/gp_base.h"

#include "model/report.h"

#include <math.h>

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

const json_t *check_gpu(const struct check_result *r, size_t i) {
    return json_array_get(json_object_get(r->data, "gpus"), i);
}

static const struct check_result *presence(const struct report_node *n) {
    for (size_t i = 0; i < n->checks.len; i++)
        if (str_eq(n->checks.items[i].check, REPORT_IDENTITY_CHECK)) return &n->checks.items[i];
    return NULL;
}

const char *report_node_gpu(const struct report_node *n, int gpu, const char *member) {
    const struct check_result *c = presence(n);
    const json_t *g = NULL;
    for (size_t i = 0; c != NULL && (g = check_gpu(c, i)) != NULL; i++)
        if (json_integer_value(json_object_get(g, "gpu")) == gpu || (!json_object_get(g, "gpu") && (int)i == gpu))
            break;
    const char *text = json_string_value(json_object_get(g, member));
    return text != NULL ? text : "";
}

const char *report_node_driver(const struct report_node *n) {
    const struct check_result *c = presence(n);
    const char *text = c != NULL ? json_string_value(json_object_get(c->data, "driver")) : NULL;
    return text != NULL ? text : "";
}

bool metric_holds(const struct metric *m) {
    if (!isfinite(m->value)) return false;
    if (!m->has_floor) return true;
    return m->ceiling ? m->value <= m->floor : m->value >= m->floor;
}

void report_clear(struct report *r) {
    for (size_t i = 0; i < r->nodes.len; i++) {
        struct report_node *n = &r->nodes.items[i];
        for (size_t c = 0; c < n->checks.len; c++) check_result_clear(&n->checks.items[c]);
        vec_free(&n->checks);
        free(n->id);
        free(n->place);
        free(n->image);
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
        struct tally t = gang; /* a gang check counts for every node */
        for (size_t c = 0; c < n->checks.len; c++) count(&t, &n->checks.items[c], r->strict);
        n->ready = t.required > 0 && t.held == t.required;
        r->ready = r->ready && n->ready;
    }
}

/* Order: a failure is worse than an unknown result, and that is worse than a low figure. */
static void worsen(enum node_check *all, const struct check_result *list, size_t n) {
    static const int rank[] = {
        [NODE_CHECK_PASS] = 0, [NODE_CHECK_DEGRADED] = 1, [NODE_CHECK_UNKNOWN] = 2, [NODE_CHECK_FAIL] = 3};
    for (size_t i = 0; i < n; i++) {
        enum node_check one = verdict_node_check(list[i].verdict);
        if (list[i].required && rank[one] > rank[*all]) *all = one;
    }
}

enum node_check report_node_check(const struct report *r) {
    enum node_check all = NODE_CHECK_PASS;
    for (size_t i = 0; i < r->nodes.len; i++)
        worsen(&all, r->nodes.items[i].checks.items, r->nodes.items[i].checks.len);
    worsen(&all, r->gang.items, r->gang.len);
    if (all == NODE_CHECK_DEGRADED && r->strict) return NODE_CHECK_FAIL;
    if (all <= NODE_CHECK_DEGRADED && !r->ready) return NODE_CHECK_UNKNOWN;
    return all;
}

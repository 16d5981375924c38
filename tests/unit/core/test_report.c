/* SPDX-License-Identifier: Apache-2.0 */
/* When a node is ready, and reports as JSON and back. */
#include "base/gp_base.h"

#include "base/json.h"
#include "model/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct check_result result(const char *check, enum verdict v, bool required) {
    return (struct check_result){.check = xstrdup(check), .verdict = v, .required = required};
}

static void add_node(struct report *r, int slot) {
    struct report_node n = {.slot = slot};
    vec_push(&r->nodes, n);
}

static void names(void **state) {
    (void)state;
    for (int v = VERDICT_PASS; v <= VERDICT_FAIL; v++) {
        enum verdict back = VERDICT_PASS;
        assert_true(verdict_parse(verdict_name((enum verdict)v), &back));
        assert_int_equal(back, v);
    }
    enum verdict x = VERDICT_FAIL;
    assert_false(verdict_parse("passed", &x));
    assert_false(verdict_parse("", &x));
    assert_false(verdict_parse(NULL, &x));
    assert_int_equal(x, VERDICT_FAIL);
}

/* One node with one required and one other check: only these make it ready. */
static void ready_only_when_proven(void **state) {
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        for (int v = VERDICT_PASS; v <= VERDICT_FAIL; v++) {
            struct report r = {.strict = strict};
            add_node(&r, 0);
            vec_push(&r.nodes.items[0].checks, result("a", (enum verdict)v, true));
            vec_push(&r.nodes.items[0].checks, result("b", VERDICT_FAIL, false));
            report_judge(&r);
            bool want = v == VERDICT_PASS || (v == VERDICT_DEGRADED && !strict);
            assert_int_equal(r.ready, want);
            assert_int_equal(r.nodes.items[0].ready, want);
            report_clear(&r);
        }
    }
}

static void nothing_proves_nothing(void **state) {
    (void)state;
    struct report r = {.ready = true};
    report_judge(&r);
    assert_false(r.ready); /* no node */
    add_node(&r, 0);
    r.nodes.items[0].ready = true;
    report_judge(&r);
    assert_false(r.ready); /* no check */
    assert_false(r.nodes.items[0].ready);
    vec_push(&r.nodes.items[0].checks, result("a", VERDICT_PASS, false));
    report_judge(&r);
    assert_false(r.ready); /* no required check */
    report_clear(&r);
}

static void a_gang_check_is_everybodys(void **state) {
    (void)state;
    struct report r = {0};
    for (int i = 0; i < 2; i++) {
        add_node(&r, i);
        vec_push(&r.nodes.items[i].checks, result("a", i == 0 ? VERDICT_PASS : VERDICT_FAIL, true));
    }
    vec_push(&r.gang, result("train.ddp", VERDICT_PASS, true));
    report_judge(&r);
    assert_true(r.nodes.items[0].ready);
    assert_false(r.nodes.items[1].ready);
    assert_false(r.ready);
    r.nodes.items[1].checks.items[0].verdict = VERDICT_PASS;
    report_judge(&r);
    assert_true(r.ready);
    r.gang.items[0].verdict = VERDICT_SKIPPED; /* did not run: not passed */
    report_judge(&r);
    assert_false(r.ready);
    assert_false(r.nodes.items[0].ready);
    report_clear(&r);
}

static struct report sample(void) {
    struct report r = {.stack = xstrdup("llm"),
                       .uid = xstrdup("0123"),
                       .run = xstrdup("89ab"),
                       .started_s = 1795238843,
                       .took_ms = 61234,
                       .strict = true};
    add_node(&r, 1);
    struct report_node *n = &r.nodes.items[0];
    n->id = xstrdup("i-1");
    n->place = xstrdup("aws us-east-2a");
    n->address = xstrdup("203.0.113.7");
    n->host = xstrdup("ip-10-0-0-1\xff"); /* not UTF-8: a node can say anything */
    struct check_result c = result("net.pair", VERDICT_DEGRADED, true);
    c.code = xstrdup("below_limit");
    c.message = xstrdup("bandwidth is 0.02 GB/s");
    c.suggestion = xstrdup("replace it");
    c.took_ms = 1500;
    struct metric m[] = {
        {.name = xstrdup("bandwidth"),
         .value = 0.02,
         .unit = xstrdup("GB/s"),
         .has_floor = true,
         .floor = 0.05,
         .has_degraded = true,
         .degraded = 0.1,
         .measured = 0.12,
         .source = xstrdup("spec")},
        {.name = xstrdup("latency"),
         .value = 30,
         .unit = xstrdup("us"),
         .has_floor = true,
         .floor = 2000,
         .ceiling = true,
         .source = xstrdup("table")},
        {.name = xstrdup("broken"), .value = NAN, .unit = xstrdup("")},
        {.name = xstrdup("copy"), .value = 2900, .unit = xstrdup("GB/s"), .unrated = true},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(m); i++) vec_push(&c.metrics, m[i]);
    c.data = json_pack("{s:[f,f]}", "loss", 4.2, 1.4);
    vec_push(&n->checks, c);
    vec_push(&r.gang, result("train.ddp", VERDICT_PASS, true));
    report_judge(&r);
    return r;
}

static void there_and_back(void **state) {
    (void)state;
    struct report a = sample(), b = {0};
    struct gp_error err = {0};
    GP_AUTO_JSON json_t *j = report_to_json(&a);
    assert_string_equal(json_str(j, "schema", ""), "gpuprov/report/v1");
    assert_string_equal(json_str(j, "started", ""), "2026-11-21T05:27:23Z");
    assert_true(json_num(j, "nodes.0.checks.0.metrics.0.floor", 0) == 0.05);
    assert_true(json_num(j, "nodes.0.checks.0.metrics.1.ceiling", 0) == 2000);
    assert_true(json_is_null(json_at(j, "nodes.0.checks.0.metrics.2.value")));
    GP_AUTO_FREE char *text = json_text(j, 0);
    GP_AUTO_JSON json_t *read = NULL;
    assert_int_equal(json_parse(text, strlen(text), "it", &read, &err), 0);
    assert_int_equal(report_from_json(read, &b, &err), 0);
    GP_AUTO_JSON json_t *again = report_to_json(&b);
    GP_AUTO_FREE char *text2 = json_text(again, 0);
    assert_string_equal(text2, text);
    const struct check_result *c = &b.nodes.items[0].checks.items[0];
    assert_int_equal(b.nodes.items[0].slot, 1);
    assert_string_equal(b.nodes.items[0].host, "ip-10-0-0-1?");
    assert_true(isnan(check_metric(c, "broken")->value));
    assert_true(check_metric(c, "latency")->ceiling);
    assert_true(check_metric(c, "bandwidth")->has_degraded && check_metric(c, "bandwidth")->degraded == 0.1);
    assert_true(check_metric(c, "copy")->unrated && !check_metric(c, "broken")->unrated);
    assert_null(check_metric(c, "none"));
    assert_false(b.ready); /* degraded, and strict */
    report_clear(&a);
    report_clear(&b);
}

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"{}", "schema ''"},
        {"[]", "schema ''"},
        {"{\"schema\": \"gpuprov/report/v2\"}", "schema 'gpuprov/report/v2'"},
        {"{\"schema\": \"gpuprov/report/v1\", \"started\": \"today\"}", "no usable start time ('today')"},
        {"{\"schema\": \"gpuprov/report/v1\", \"started\": \"1970-01-01T00:00:00Z\", \"nodes\": "
         "[{\"slot\": 3, \"checks\": [{\"check\": \"a\", \"verdict\": \"pass\"}, {}]}]}",
         "node 3: a check result has no 'check'"},
        {"{\"schema\": \"gpuprov/report/v1\", \"started\": \"1970-01-01T00:00:00Z\", \"gang\": "
         "[{\"check\": \"a\", \"verdict\": \"ok\"}]}",
         "the result of a has no known verdict ('ok')"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_JSON json_t *j = json_loads(rows[i].text, 0, NULL);
        struct report r = {0};
        struct gp_error err = {0};
        assert_int_equal(report_from_json(j, &r, &err), -GP_EPROTO);
        if (strstr(err.msg, rows[i].part) == NULL) fail_msg("'%s' has no '%s'", err.msg, rows[i].part);
        assert_int_equal(r.nodes.len, 0);
    }
    GP_AUTO_JSON json_t *j = json_loads("{\"check\":\"a\",\"verdict\":\"pass\",\"metrics\":[{\"value\":1}]}", 0, NULL);
    struct check_result c = {0};
    struct gp_error err = {0};
    assert_int_equal(check_result_from_json(j, &c, &err), -GP_EPROTO);
    assert_string_equal(err.msg, "the result of a: a metric has no name");
    assert_null(c.check);
}

/* Wrong types and unknown fields of a newer agent do no harm. */
static void tolerates(void **state) {
    (void)state;
    GP_AUTO_JSON json_t *j = json_loads("{\"check\":\"a\",\"verdict\":\"fail\",\"took_ms\":\"x\",\"new\":[1],"
                                        "\"message\":7,\"metrics\":{},\"data\":null}",
                                        0, NULL);
    struct check_result c = {0};
    struct gp_error err = {0};
    assert_int_equal(check_result_from_json(j, &c, &err), 0);
    assert_int_equal(c.verdict, VERDICT_FAIL);
    assert_string_equal(c.message, "");
    assert_int_equal(c.took_ms, 0);
    assert_int_equal(c.metrics.len, 0);
    assert_null(c.data);
    check_result_clear(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(ready_only_when_proven),
        cmocka_unit_test(nothing_proves_nothing),
        cmocka_unit_test(a_gang_check_is_everybodys),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(refuses),
        cmocka_unit_test(tolerates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of nodes whose checks did not run: a line instead of a row per check and node for people, every row for
 * programs. */
#include "base/gp_base.h"

#include "output/report_forms.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define WHY "did not run: step 'data': ended with status 3"
enum { NODES = 3, CHECKS = 18 };

static struct check_result result(const char *check, enum verdict v, const char *code, const char *message) {
    return (struct check_result){.check = xstrdup(check),
                                 .verdict = v,
                                 .required = v != VERDICT_SKIPPED,
                                 .code = xstrdup(code),
                                 .message = xstrdup(message),
                                 .suggestion = xstrdup("")};
}

static struct report failed_bootstrap(void) {
    struct report r = {.stack = xstrdup("llm"), .started_s = 1800000000, .took_ms = 4200};
    for (int i = 0; i < NODES; i++) {
        struct report_node n = {.slot = i};
        for (int k = 0; k < CHECKS; k++) {
            char name[16];
            snprintf(name, sizeof name, "check.n%d", k);
            vec_push(&n.checks, result(name, VERDICT_ERROR, "did_not_run", WHY));
        }
        vec_push(&r.nodes, n);
    }
    vec_push(&r.gang, result("train.ddp", VERDICT_ERROR, "did_not_run", "did not run: 3 of 3 nodes failed"));
    return r;
}

static size_t count(const char *text, const char *part) {
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p += strlen(part)) n++;
    return n;
}

static char *form(const struct report *r, const char *name) {
    struct str out = {0};
    const struct report_ops *ops = report_form(name);
    assert_non_null(ops);
    assert_int_equal(ops->write(r, &(struct report_style){.width = 100}, &out, NULL), 0);
    return str_steal(&out);
}

static void a_failed_bootstrap_is_a_line_per_node(void **state) {
    (void)state;
    struct report r = failed_bootstrap();
    GP_AUTO_STR struct str brief = {0};
    report_brief(&r, &(struct report_style){.width = 100}, &brief);
    assert_string_equal(brief.s, "llm/0  NOT READY  18 checks " WHY "\n"
                                 "llm/1  NOT READY  18 checks " WHY "\n"
                                 "llm/2  NOT READY  18 checks " WHY "\n"
                                 "all nodes together: 1 check did not run: 3 of 3 nodes failed\n");
    GP_AUTO_FREE char *text = form(&r, "text");
    assert_int_equal(count(text, WHY), NODES);
    assert_int_equal(count(text, "  error     18 checks  " WHY " [18 required]: check.n0,"), NODES);
    assert_int_equal(count(text, "check.n17"), NODES); /* each is still named */
    GP_AUTO_FREE char *html = form(&r, "html");
    assert_int_equal(count(html, "did not run: step &#39;data&#39;"), 2 * NODES); /* in the summary, in the node */
    assert_int_equal(count(html, ">18 checks</td>"), 2 * NODES);
    GP_AUTO_FREE char *json = form(&r, "json");
    assert_int_equal(count(json, WHY), NODES * CHECKS);
    GP_AUTO_FREE char *junit = form(&r, "junit");
    assert_int_equal(count(junit, "<error"), NODES * CHECKS + 1);
    report_clear(&r);
}

static void skipped_checks_are_a_line_per_reason(void **state) {
    (void)state;
    struct report r = {.stack = xstrdup("llm"), .started_s = 1800000000};
    struct report_node n = {.slot = 0, .ready = true};
    vec_push(&n.checks, result("host.cores", VERDICT_PASS, "", "2 cores"));
    vec_push(&n.checks, result("gpu.memory", VERDICT_SKIPPED, "no_gpu", "the spec has no gpu"));
    vec_push(&n.checks, result("host.rdma", VERDICT_SKIPPED, "none", "no device"));
    vec_push(&n.checks, result("gpu.p2p", VERDICT_SKIPPED, "no_gpu", "the spec has no gpu"));
    vec_push(&r.nodes, n);
    GP_AUTO_FREE char *text = form(&r, "text");
    assert_non_null(strstr(text, "  skipped   2 checks    the spec has no gpu: gpu.memory, gpu.p2p\n"));
    assert_non_null(strstr(text, "  skipped   host.rdma   no device\n"));
    assert_int_equal(count(text, "the spec has no gpu"), 1);
    report_clear(&r);
}

/* The counts of a node and of all nodes together are those of the rows below them: no check is counted twice. */
static void a_gang_check_is_shown_once(void **state) {
    (void)state;
    struct report r = {.stack = xstrdup("llm"), .started_s = 1800000000};
    for (int i = 0; i < 4; i++) {
        struct report_node n = {.slot = i};
        bool culprit = i == 2;
        vec_push(&n.checks, result("host.cores", VERDICT_PASS, "", "2 cores"));
        vec_push(&n.checks, result("train.ddp", culprit ? VERDICT_FAIL : VERDICT_ERROR, culprit ? "hang" : "peer",
                                   culprit ? "rank 2 hangs" : "stopped because rank 2 hangs"));
        vec_push(&r.nodes, n);
    }
    vec_push(&r.gang, result("train.ddp", VERDICT_FAIL, "hang", "rank 2 hangs (to blame: llm/2)"));
    GP_AUTO_STR struct str brief = {0};
    report_brief(&r, &(struct report_style){.width = 100}, &brief);
    assert_string_equal(brief.s, "llm/0  NOT READY  1 pass\n"
                                 "llm/1  NOT READY  1 pass\n"
                                 "llm/2  NOT READY  1 pass\n"
                                 "llm/3  NOT READY  1 pass\n"
                                 "all nodes together  1 fail\n"
                                 "  fail      train.ddp   rank 2 hangs (to blame: llm/2) [required]\n");
    const char *const forms[] = {"text", "html"};
    for (size_t i = 0; i < GP_ARRAY_LEN(forms); i++) {
        GP_AUTO_FREE char *text = form(&r, forms[i]);
        assert_int_equal(count(text, "stopped because"), 0);
        assert_int_equal(count(text, "rank 2 hangs (to blame"), i == 0 ? 1 : 2); /* html: also in its summary */
    }
    GP_AUTO_FREE char *json = form(&r, "json");
    assert_int_equal(count(json, "stopped because"), 3);
    report_clear(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_bootstrap_is_a_line_per_node),
        cmocka_unit_test(skipped_checks_are_a_line_per_reason),
        cmocka_unit_test(a_gang_check_is_shown_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the barrier makes of nodes that came through and nodes that did not: nothing unproven becomes
 * ready, and what did not run is in the report. */
#include "base/gp_base.h"

#include "engine_cloud.h"

static void add_check(struct report_node *rn, const char *id, enum verdict v) {
    struct check_result c = {.check = xstrdup(id), .verdict = v, .required = true,
                             .code = xstrdup(""), .message = xstrdup(""), .suggestion = xstrdup("")};
    vec_push(&rn->checks, c);
}

/* A launched stack whose node threads have ended: node 0 held every check of its own. */
static struct run *at_the_barrier(struct fixture *f) {
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct run *run = f->run;
    assert_int_equal(validate_choose(f->spec, &run->vplan, &err), 0);
    run->started_ms = clock_ms();
    run->venv = (struct validate_env){.spec = run->spec, .plan = &run->vplan, .stack = "t",
                                      .uid = run->stack.uid, .run = run->id,
                                      .cancel = &f->e->cancel, .sink = &run->sink};
    for (int i = 0; i < run->n_nodes; i++) {
        run->nodes[i].rec.phase = NODE_WAITING;
        for (size_t k = 0; k < run->vplan.node_checks.len; k++)
            add_check(&run->nodes[i].report, run->vplan.node_checks.items[k]->id, VERDICT_PASS);
    }
    return run;
}

static void fail_node(struct run_node *n, enum gp_code code) {
    for (size_t k = 0; k < n->report.checks.len; k++) check_result_clear(&n->report.checks.items[k]);
    vec_free(&n->report.checks);
    n->rc = gp_fail(&n->err, code, "t/%d: it broke", n->slot);
    n->rec.phase = NODE_FAILED;
}

static const struct check_result *find(const struct report *r, const char *id) {
    for (size_t i = 0; i < r->gang.len; i++)
        if (strcmp(r->gang.items[i].check, id) == 0) return &r->gang.items[i];
    return NULL;
}

static void test_one_failed_none_is_ready(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct report report = {0};
    struct run *run = at_the_barrier(f);
    fail_node(&run->nodes[1], GP_EREACH);
    assert_int_equal(gang_run(run, &report, &err), -GP_EREACH);
    assert_false(report.ready);
    assert_int_equal(report.nodes.len, 2);
    assert_false(report.nodes.items[0].ready);
    assert_false(report.nodes.items[1].ready);
    assert_int_equal(run->nodes[0].rec.phase, NODE_WAITING);
    const struct check_result *ddp = find(&report, "train.ddp");
    if (ddp == NULL) fail_msg("train.ddp is not in the report");
    else assert_true(ddp->required && ddp->verdict == VERDICT_ERROR);
    /* each check that the broken node never ran is there, with the reason */
    assert_int_equal(report.nodes.items[1].checks.len, run->vplan.node_checks.len);
    assert_non_null(strstr(report.nodes.items[1].checks.items[0].message, "it broke"));
    report_clear(&report);
}

static void test_the_worst_failure_is_told(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct report report = {0};
    struct run *run = at_the_barrier(f);
    fail_node(&run->nodes[0], GP_EVALIDATE);
    fail_node(&run->nodes[1], GP_EAUTH);
    assert_int_equal(gang_run(run, &report, &err), -GP_EAUTH);
    assert_non_null(strstr(err.msg, "1 more node"));
    report_clear(&report);
}

static void test_a_missing_node_is_not_left_out(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct report report = {0};
    struct run *run = at_the_barrier(f);
    run->nodes[1].exists = false;
    run->nodes[1].skip = true;
    assert_int_equal(gang_run(run, &report, &err), -GP_EREACH);
    assert_non_null(strstr(err.msg, "t/1"));
    assert_int_equal(report.nodes.len, 2);
    assert_false(report.ready);
    assert_int_not_equal(run->nodes[0].rec.phase, NODE_READY);
    report_clear(&report);
}

static void test_a_cancelled_run_proves_nothing(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct report report = {0};
    struct run *run = at_the_barrier(f);
    run->nodes[0].rc = run->nodes[1].rc =
        gp_fail(&run->nodes[0].err, GP_ECANCELLED, "cancelled");
    run->nodes[1].err = run->nodes[0].err;
    engine_cancel(f->e);
    assert_int_equal(gang_run(run, &report, &err), -GP_ECANCELLED);
    assert_false(report.ready);
    assert_int_equal(run->nodes[0].rec.phase, NODE_WAITING);
    report_clear(&report);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_one_failed_none_is_ready),
        T(test_the_worst_failure_is_told),
        T(test_a_missing_node_is_not_left_out),
        T(test_a_cancelled_run_proves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

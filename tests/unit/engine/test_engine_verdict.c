/* SPDX-License-Identifier: Apache-2.0 */
/* What the barrier makes of nodes that came through and nodes that did not: nothing unproven becomes
 * ready, and what did not run is in the report. */
#include "base/gp_base.h"

#include "engine/proof/barrier.h"
#include "engine/proof/kept_report.h"
#include "engine/proof/verdict.h"
#include "engine_cloud.h"

#include <sqlite3.h>

static void add_check(struct report_node *rn, const char *id, enum verdict v) {
    struct check_result c = {.check = xstrdup(id),
                             .verdict = v,
                             .required = true,
                             .code = xstrdup(""),
                             .message = xstrdup(""),
                             .suggestion = xstrdup("")};
    vec_push(&rn->checks, c);
}

/* A launched stack whose node threads have ended: node 0 held every check of its own. */
static struct run *at_the_barrier(struct fixture *f) {
    struct gp_error err = {0};
    assert_int_equal(launch(f, &err), 0);
    struct run *run = f->run;
    assert_int_equal(validate_choose(f->spec, &run->validation.plan, &err), 0);
    run->validation.started_ms = clock_ms();
    run->validation.env = (struct validate_env){.spec = run->spec,
                                                .plan = &run->validation.plan,
                                                .stack = "t",
                                                .uid = run->stack.uid,
                                                .run = run->id,
                                                .cancel = &f->e->cancel,
                                                .sink = &run->sink};
    for (int i = 0; i < run->n_nodes; i++) {
        run->nodes[i].rec.phase = NODE_WAITING;
        for (size_t k = 0; k < run->validation.plan.node_checks.len; k++)
            add_check(&run->nodes[i].report, run->validation.plan.node_checks.items[k]->id, VERDICT_PASS);
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
    assert_int_equal(barrier_run(run, &report, &err), -GP_EREACH);
    assert_false(report.ready);
    assert_int_equal(report.nodes.len, 2);
    assert_false(report.nodes.items[0].ready);
    assert_false(report.nodes.items[1].ready);
    assert_int_equal(run->nodes[0].rec.phase, NODE_WAITING);
    const struct check_result *ddp = find(&report, "train.ddp");
    if (ddp == NULL) fail_msg("train.ddp is not in the report");
    else assert_true(ddp->required && ddp->verdict == VERDICT_ERROR);
    /* each check that the broken node never ran is there, with the reason */
    assert_int_equal(report.nodes.items[1].checks.len, run->validation.plan.node_checks.len);
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
    assert_int_equal(barrier_run(run, &report, &err), -GP_EAUTH);
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
    assert_int_equal(barrier_run(run, &report, &err), -GP_EREACH);
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
    run->nodes[0].rc = run->nodes[1].rc = gp_fail(&run->nodes[0].err, GP_ECANCELLED, "cancelled");
    run->nodes[1].err = run->nodes[0].err;
    engine_cancel(f->e);
    assert_int_equal(barrier_run(run, &report, &err), -GP_ECANCELLED);
    assert_false(report.ready);
    assert_int_equal(run->nodes[0].rec.phase, NODE_WAITING);
    report_clear(&report);
}

/* A report in which everything held, of the nodes as they are. */
static void proven(struct run *run, struct report *report) {
    verdict_collect(run, report);
    for (size_t k = 0; k < run->validation.plan.gang_checks.len; k++) {
        struct check_result c = {.check = xstrdup(run->validation.plan.gang_checks.items[k]->id),
                                 .required = true,
                                 .verdict = VERDICT_PASS,
                                 .code = xstrdup(""),
                                 .message = xstrdup(""),
                                 .suggestion = xstrdup("")};
        vec_push(&report->gang, c);
    }
    verdict_judge(run, report, "");
    assert_true(report->ready);
}

/* Cut between the two writes: never READY beside a report of another run. */
static void test_no_node_is_ready_before_its_report_is_kept(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct report report = {0};
    struct run *run = at_the_barrier(f);
    proven(run, &report);
    GP_AUTO_FREE char *path = xasprintf("%s/journal.db", f->dir);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TRIGGER cut BEFORE UPDATE OF report ON stacks BEGIN SELECT "
                                  "RAISE(ABORT, 'cut'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_true(verdict_record(run, &report, &err) < 0);
    for (int i = 0; i < 2; i++) assert_int_equal(run->nodes[i].rec.phase, NODE_WAITING);
    assert_int_equal(sqlite3_exec(db, "DROP TRIGGER cut", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    err = (struct gp_error){0};
    for (int i = 0; i < 2; i++) run->nodes[i].rec.phase = NODE_GANG;
    assert_int_equal(verdict_record(run, &report, &err), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(run->nodes[i].rec.phase, NODE_READY);
    report_clear(&report);
}

/* Whether "nothing to do" may be said: only for exactly what the kept report proved. */
static void test_whose_proof_a_report_is(void **state) {
    struct fixture *f = *state;
    struct report report = {0};
    struct run *run = at_the_barrier(f);
    proven(run, &report);
    assert_true(kept_report_proves(run, &report));
    report.nodes.items[1].ready = false;
    assert_false(kept_report_proves(run, &report));
    report.nodes.items[1].ready = true;
    report.ready = false;
    assert_false(kept_report_proves(run, &report));
    report.ready = true;
    report.nodes.items[1].id[0] = 'X'; /* of another machine */
    assert_false(kept_report_proves(run, &report));
    report.nodes.items[1].id[0] = 'i';
    run->nodes[1].exists = false;
    assert_false(kept_report_proves(run, &report));
    run->nodes[1].exists = true;
    report.nodes.items[1].slot = 0;
    assert_false(kept_report_proves(run, &report));
    report.nodes.items[1].slot = 1;
    assert_true(kept_report_proves(run, &report));
    report_clear(&report);
}

/* A kept report speaks for the machines and the run that it was of, and for no other. */
static void test_a_kept_report_goes_out_of_date(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct report report = {0};
    struct run *run = at_the_barrier(f);
    proven(run, &report);
    for (int i = 0; i < 2; i++) run->nodes[i].rec.phase = NODE_GANG;
    assert_int_equal(verdict_record(run, &report, &err), 0);
    report_clear(&report);
    assert_int_equal(engine_report(f->e, "t", &report, &err), 0);
    assert_true(report.ready && report.outdated == NULL);
    report_clear(&report);
    /* validate began again, and was killed */
    assert_int_equal(run_node_restart(&run->nodes[1], &err), 0);
    assert_int_equal(engine_report(f->e, "t", &report, &err), 0);
    assert_false(report.ready);
    assert_true(report.nodes.items[0].ready);
    assert_false(report.nodes.items[1].ready);
    assert_non_null(strstr(report.outdated, "t/1 was not validated again"));
    report_clear(&report);
    run->nodes[1].rec.phase = NODE_READY;
    resource_set(&run->nodes[1].rec.resource_id, "i-77"); /* up replaced it */
    assert_int_equal(run_node_save(&run->nodes[1], &err), 0);
    assert_int_equal(engine_report(f->e, "t", &report, &err), 0);
    assert_false(report.ready);
    assert_non_null(strstr(report.outdated, "another machine now (i-77)"));
    report_clear(&report);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, finish)
    const struct CMUnitTest tests[] = {
        T(test_one_failed_none_is_ready),
        T(test_the_worst_failure_is_told),
        T(test_a_missing_node_is_not_left_out),
        T(test_a_cancelled_run_proves_nothing),
        T(test_no_node_is_ready_before_its_report_is_kept),
        T(test_whose_proof_a_report_is),
        T(test_a_kept_report_goes_out_of_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

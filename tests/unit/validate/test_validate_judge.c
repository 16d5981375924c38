/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts from figures: the table's limits, the spec's floors, what was not measured, and what each
 * rank of a gang is held to. */
#include "base/gp_base.h"

#include "judge_fixture.h"
#include "validate/gang_session.h"

#include <math.h>

/* Every figure of the table, each good; but `but`, which is left out. */
static void good_figures(struct check_result *r, const char *but) {
    const struct check_info *info = check_find(r->check);
    for (const struct check_metric_info *m = info->metrics; m->name; m++) {
        if (but && strcmp(m->name, but) == 0) continue;
        double limit = m->degraded >= 0 ? m->degraded : m->fail >= 0 ? m->fail : 1;
        figure(r, m->name, m->positive && limit <= 0 ? 1 : limit, m->unit);
    }
}

static const char *unit_of(const char *check, const char *metric) {
    for (const struct check_metric_info *m = check_find(check)->metrics; m->name; m++)
        if (strcmp(m->name, metric) == 0) return m->unit;
    return "";
}

/* host.disk write: fails below 1, degraded below 10 MB/s; host.clock offset: a ceiling. */
static enum verdict judged(const struct spec *s, const char *check, enum verdict v, const char *code,
                           const char *metric, double value) {
    struct check_result r = result(check, v, code);
    good_figures(&r, metric);
    figure(&r, metric, value, unit_of(check, metric));
    validate_apply_floors(s, &r);
    v = r.verdict;
    assert_true(r.required);
    check_result_clear(&r);
    return v;
}

static void test_table_limits(void **state) {
    (void)state;
    struct spec s = {0};
    assert_int_equal(judged(&s, "host.disk", VERDICT_PASS, "", "write", 100), VERDICT_PASS);
    assert_int_equal(judged(&s, "host.disk", VERDICT_PASS, "", "write", 10), VERDICT_PASS);
    assert_int_equal(judged(&s, "host.disk", VERDICT_PASS, "", "write", 9.9), VERDICT_DEGRADED);
    assert_int_equal(judged(&s, "host.disk", VERDICT_PASS, "", "write", 0.5), VERDICT_FAIL);
    assert_int_equal(judged(&s, "host.clock", VERDICT_PASS, "", "offset", 1), VERDICT_PASS);
    assert_int_equal(judged(&s, "host.clock", VERDICT_PASS, "", "offset", 11), VERDICT_DEGRADED);
    assert_int_equal(judged(&s, "host.clock", VERDICT_PASS, "", "offset", 1000), VERDICT_FAIL);
    assert_int_not_equal(judged(&s, "host.disk", VERDICT_PASS, "", "write", (double)NAN), VERDICT_PASS);
    /* another fault is not made good by a good figure */
    assert_int_equal(judged(&s, "host.disk", VERDICT_FAIL, "read_only", "write", 100), VERDICT_FAIL);
    assert_int_equal(judged(&s, "host.disk", VERDICT_SKIPPED, "", "write", 100), VERDICT_SKIPPED);
}

/* Only a check that sound nodes may skip, and only while the spec does not demand it. */
static void test_an_excused_skip(void **state) {
    (void)state;
    struct spec s = {0};
    struct check_result clock = result("host.clock", VERDICT_SKIPPED, "same_clock");
    struct check_result disk = result("host.disk", VERDICT_SKIPPED, "same_clock");
    validate_apply_floors(&s, &clock);
    validate_apply_floors(&s, &disk);
    assert_false(clock.required);
    assert_true(disk.required);
    clock.verdict = VERDICT_FAIL;
    validate_apply_floors(&s, &clock);
    assert_true(clock.required);
    clock.verdict = VERDICT_SKIPPED;
    strv_add(&s.validate.require, "host.clock");
    validate_apply_floors(&s, &clock);
    assert_true(clock.required);
    assert_int_equal(clock.verdict, VERDICT_SKIPPED);
    check_result_clear(&clock);
    check_result_clear(&disk);
    strv_clear(&s.validate.require);
}

static void test_spec_floor_replaces_the_tables(void **state) {
    (void)state;
    struct spec s = {0};
    with_floor(&s, "host.disk", "write", 0.2);
    assert_int_equal(judged(&s, "host.disk", VERDICT_PASS, "", "write", 0.5), VERDICT_PASS);
    assert_int_equal(judged(&s, "host.disk", VERDICT_PASS, "", "write", 0.1), VERDICT_FAIL);
    spec_done(&s);
    with_floor(&s, "host.disk", "write", 500);
    struct check_result r = result("host.disk", VERDICT_PASS, "");
    good_figures(&r, "write");
    figure(&r, "write", 400, "MB/s");
    validate_apply_floors(&s, &r);
    assert_int_equal(r.verdict, VERDICT_FAIL);
    assert_string_equal(r.code, "low_write");
    assert_string_equal(r.message, "write is 400 MB/s, must be at least 500 MB/s (spec)");
    assert_true(check_metric(&r, "write")->has_floor);
    assert_string_equal(check_metric(&r, "write")->source, "spec");
    check_result_clear(&r);
    spec_done(&s);
}

static void test_floor_that_was_not_measured(void **state) {
    (void)state;
    struct spec s = {0};
    with_floor(&s, "host.memory", "copy", 1); /* which the table does not hold it to */
    struct check_result r = result("host.memory", VERDICT_PASS, "");
    good_figures(&r, "copy");
    validate_apply_floors(&s, &r);
    assert_int_equal(r.verdict, VERDICT_ERROR);
    assert_string_equal(r.code, "not_measured");
    assert_non_null(strstr(r.message, "a floor of copy"));
    check_result_clear(&r);
    spec_done(&s);
}

static void test_required(void **state) {
    (void)state;
    struct spec s = {0};
    assert_false(validate_required(&s, "host.kernlog"));
    assert_true(validate_required(&s, "host.disk"));
    strv_add(&s.validate.require, "host.kernlog");
    assert_true(validate_required(&s, "host.kernlog"));
    spec_done(&s);
}

/* A floor is a demand: its check must run, and "skipped" does not hold it. */
static void test_a_floor_makes_its_check_required(void **state) {
    (void)state;
    struct spec s = {0};
    assert_false(validate_required(&s, "host.kernlog"));
    with_floor(&s, "host.kernlog", "warnings", 3);
    assert_true(validate_required(&s, "host.kernlog"));
    struct report report = {0};
    struct report_node rn = {0};
    struct check_result cores = result("host.cores", VERDICT_PASS, "");
    figure(&cores, "usable", 4, "cores");
    struct check_result log = result("host.kernlog", VERDICT_SKIPPED, "not_allowed");
    validate_apply_floors(&s, &cores);
    validate_apply_floors(&s, &log);
    vec_push(&rn.checks, cores);
    vec_push(&rn.checks, log);
    vec_push(&report.nodes, rn);
    report_judge(&report);
    assert_false(report.ready);
    report_clear(&report);
    spec_done(&s);
}

static void test_a_pass_without_figures_is_none(void **state) {
    (void)state;
    struct spec s = {0};
    struct check_result r = result("host.memory", VERDICT_PASS, "");
    validate_apply_floors(&s, &r);
    assert_int_equal(r.verdict, VERDICT_ERROR);
    assert_string_equal(r.code, "not_measured");
    check_result_clear(&r);
    r = result("host.memory", VERDICT_PASS, "");
    figure(&r, "copy", 9, "GB/s"); /* only reported: nothing is held to it */
    validate_apply_floors(&s, &r);
    assert_int_equal(r.verdict, VERDICT_ERROR);
    check_result_clear(&r);
    /* nor is it a pass with any one missing of those that it is held to */
    for (const struct check_info *c = check_table; c->id; c++)
        for (const struct check_metric_info *m = c->metrics; m->name; m++) {
            bool held = (m->fail >= 0 || m->degraded >= 0) && !m->optional;
            r = result(c->id, VERDICT_PASS, "");
            good_figures(&r, m->name);
            validate_apply_floors(&s, &r);
            if (r.verdict != (held ? VERDICT_ERROR : VERDICT_PASS))
                fail_msg("%s without %s: %s", c->id, m->name, verdict_name(r.verdict));
            check_result_clear(&r);
        }
    r = result("host.memory", VERDICT_SKIPPED, "");
    validate_apply_floors(&s, &r);
    assert_int_equal(r.verdict, VERDICT_SKIPPED);
    check_result_clear(&r);
}

/* Each check with one strange figure: never a pass, also where it lies on the good side of the limit. */
static void test_figures_that_no_measurement_gives(void **state) {
    (void)state;
    struct spec s = {0};
    static const double strange[] = {-1, -1e-300, -1e300, (double)NAN, (double)INFINITY, -(double)INFINITY, 0};
    for (const struct check_info *c = check_table; c->id; c++)
        for (const struct check_metric_info *m = c->metrics; m->name; m++) {
            for (size_t i = 0; i < GP_ARRAY_LEN(strange); i++) {
                if (strange[i] == 0 && !m->positive) continue;
                struct check_result r = result(c->id, VERDICT_PASS, "");
                good_figures(&r, m->name);
                figure(&r, m->name, strange[i], m->unit);
                validate_apply_floors(&s, &r);
                if (r.verdict < VERDICT_ERROR)
                    fail_msg("%s with %s of %g: %s", c->id, m->name, strange[i], verdict_name(r.verdict));
                check_result_clear(&r);
            }
            struct check_result r = result(c->id, VERDICT_PASS, "");
            good_figures(&r, m->name);
            figure(&r, m->name, 1e6, "furlongs"); /* a large figure in another unit */
            validate_apply_floors(&s, &r);
            assert_true(r.verdict >= VERDICT_ERROR);
            check_result_clear(&r);
            r = result(c->id, VERDICT_PASS, "");
            good_figures(&r, NULL);
            validate_apply_floors(&s, &r);
            assert_int_equal(r.verdict, VERDICT_PASS);
            figure(&r, m->name, check_metric(&r, m->name)->value, m->unit); /* twice */
            validate_apply_floors(&s, &r);
            assert_int_equal(r.verdict, VERDICT_ERROR);
            check_result_clear(&r);
        }
}

/* What an agent says is a fault: no figure and no floor of the spec makes it good, however it is called. */
static void test_a_fault_stays(void **state) {
    (void)state;
    static const struct {
        const char *check, *code;
        enum verdict v;
    } cases[] = {
        {"host.disk", "low_write", VERDICT_FAIL},         {"host.disk", "read_only", VERDICT_DEGRADED},
        {"host.limits", "low_memlock", VERDICT_DEGRADED}, {"host.memory", "wrong_memory", VERDICT_FAIL},
        {"host.memory", "low_size", VERDICT_ERROR},       {"host.memory", "low_size", VERDICT_SKIPPED},
    };
    struct spec s = {0};
    with_floor(&s, "host.disk", "write", 0);
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct check_result r = result(cases[i].check, cases[i].v, cases[i].code);
        good_figures(&r, NULL);
        validate_apply_floors(&s, &r);
        if (r.verdict != cases[i].v || strcmp(r.code, cases[i].code) != 0)
            fail_msg("case %zu: %s %s", i, verdict_name(r.verdict), r.code);
        check_result_clear(&r);
    }
    spec_done(&s);
}

/* A check of GPUs that was about fewer than the spec's has not proven the rest. */
static void test_fewer_gpus_are_no_pass(void **state) {
    (void)state;
    static const char *const checks[] = {"gpu.presence", "gpu.memory"};
    struct spec s = {.gpu.count = 8};
    for (size_t c = 0; c < GP_ARRAY_LEN(checks); c++)
        for (int n = -1; n <= 9; n++) {
            struct check_result r = result(checks[c], VERDICT_PASS, "");
            good_figures(&r, "gpus");
            if (n >= 0) figure(&r, "gpus", n, "GPUs");
            validate_apply_floors(&s, &r);
            assert_int_equal(r.verdict, n >= 8 ? VERDICT_PASS : VERDICT_ERROR);
            check_result_clear(&r);
        }
}

/* READY by table: verdict x required x strict. */
static void test_what_makes_a_node_ready(void **state) {
    (void)state;
    for (int v = VERDICT_PASS; v <= VERDICT_FAIL; v++)
        for (int bits = 0; bits < 8; bits++) {
            bool required = bits & 1, strict = bits & 2, gang = bits & 4;
            struct report report = {.strict = strict};
            struct report_node rn = {0};
            struct check_result sure = result("host.cores", VERDICT_PASS, ""), one;
            one = result(gang ? "train.ddp" : "host.disk", (enum verdict)v, "");
            sure.required = true;
            one.required = required;
            vec_push(&rn.checks, sure);
            if (gang) vec_push(&report.gang, one);
            else vec_push(&rn.checks, one);
            vec_push(&report.nodes, rn);
            report_judge(&report);
            bool want = !required || v == VERDICT_PASS || (v == VERDICT_DEGRADED && !strict);
            if (report.ready != want)
                fail_msg("%s, bits %d: ready %d", verdict_name((enum verdict)v), bits, report.ready);
            report_clear(&report);
        }
}

/* --- the gang --- */

struct gang_fixture {
    struct spec spec;
    struct validate_env env;
    struct node_link links[3];
    struct report_node rns[3];
    struct gang_node nodes[3];
    struct gang_place places[3];
    struct gang_rank ranks[3];
    const struct check_info *checks[1];
    struct gang gang;
    struct report report;
};

static void gang_setup(struct gang_fixture *f) {
    *f = (struct gang_fixture){.checks = {check_find("train.ddp")}};
    f->env = (struct validate_env){.spec = &f->spec};
    f->gang = (struct gang){.env = &f->env,
                            .n = 3,
                            .n_places = 3,
                            .n_checks = 1,
                            .checks = f->checks,
                            .places = f->places,
                            .ranks = f->ranks};
    for (size_t i = 0; i < 3; i++) {
        f->links[i] = (struct node_link){.slot = (int)i, .target.label = xasprintf("llm/%zu", i)};
        f->nodes[i] = (struct gang_node){.link = &f->links[i], .rn = &f->rns[i]};
        f->places[i] =
            (struct gang_place){.gang = &f->gang, .node = &f->nodes[i], .first = i, .count = 1, .state = PLACE_DONE};
        f->ranks[i] = (struct gang_rank){.place = &f->places[i], .index = i, .gpu = -1};
        agent_stream_init(&f->ranks[i].stream, f->checks, 1);
    }
}

static void gang_done(struct gang_fixture *f) {
    for (size_t i = 0; i < 3; i++) {
        agent_stream_clear(&f->ranks[i].stream);
        free(f->links[i].target.label);
        free(f->places[i].reason);
        for (size_t k = 0; k < f->rns[i].checks.len; k++) check_result_clear(&f->rns[i].checks.items[k]);
        vec_free(&f->rns[i].checks);
    }
    for (size_t k = 0; k < f->report.gang.len; k++) check_result_clear(&f->report.gang.items[k]);
    vec_free(&f->report.gang);
}

static void hears(struct gang_fixture *f, size_t rank, const char *line) {
    assert_true(agent_stream_line(&f->ranks[rank].stream, false, line, strlen(line)));
}

#define HELLO "{\"v\":1,\"type\":\"hello\"}"
#define DDP_START "{\"type\":\"start\",\"check\":\"train.ddp\"}"
#define END "{\"type\":\"end\",\"verdict\":\"pass\"}"

/* A rank's whole word: this result, and its end. */
static void says(struct gang_fixture *f, size_t rank, const char *line) {
    hears(f, rank, HELLO);
    hears(f, rank, DDP_START);
    hears(f, rank, line);
    hears(f, rank, END);
}

#define DDP_PASS "{\"type\":\"result\",\"check\":\"train.ddp\",\"verdict\":\"pass\",\"took_ms\":5}"
#define DDP_BLAMES_1                                                                           \
    "{\"type\":\"result\",\"check\":\"train.ddp\",\"verdict\":\"fail\",\"code\":\"gradient\"," \
    "\"message\":\"rank 1 computes wrong\",\"data\":{\"culprits\":[1]}}"

static void test_gang_passes_only_together(void **state) {
    (void)state;
    struct gang_fixture f;
    gang_setup(&f);
    for (size_t i = 0; i < 3; i++) says(&f, i, DDP_PASS);
    gang_merge(&f.gang, NULL, &f.report);
    assert_int_equal(f.report.gang.items[0].verdict, VERDICT_PASS);
    for (size_t i = 0; i < 3; i++) assert_int_equal(f.rns[i].checks.items[0].verdict, VERDICT_PASS);
    gang_done(&f);
}

static void test_a_lost_rank_is_named(void **state) {
    (void)state;
    struct gang_fixture f;
    gang_setup(&f);
    says(&f, 0, DDP_PASS);
    says(&f, 1, DDP_PASS);
    f.places[2].state = PLACE_GONE;
    f.places[2].reason = xstrdup("lost the connection to the node");
    gang_merge(&f.gang, NULL, &f.report);
    assert_int_equal(f.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_non_null(strstr(f.report.gang.items[0].message, "llm/2: "));
    assert_non_null(strstr(f.report.gang.items[0].message, "connection"));
    assert_int_equal(f.rns[2].checks.items[0].verdict, VERDICT_ERROR);
    gang_done(&f);
}

/* A rank that passed and then broke off, or whose node is not there any more, proves nothing. */
static void test_what_comes_after_a_pass_counts(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct gang_fixture f;
        gang_setup(&f);
        says(&f, 0, DDP_PASS);
        says(&f, 1, DDP_PASS);
        if (how == 0) { /* its end never came */
            hears(&f, 2, HELLO);
            hears(&f, 2, DDP_START);
            hears(&f, 2, DDP_PASS);
        } else {
            says(&f, 2, DDP_PASS);
        }
        if (how == 1) /* its end did, and then its node was gone */
            f.places[2].state = PLACE_GONE;
        if (how == 1) f.places[2].reason = xstrdup("its node stopped answering");
        if (how == 2) { /* babble after the end */
            const char *more = "[ 12.5] kernel panic";
            assert_false(agent_stream_line(&f.ranks[2].stream, false, more, strlen(more)));
        }
        gang_merge(&f.gang, NULL, &f.report);
        assert_int_equal(f.report.gang.items[0].verdict, VERDICT_ERROR);
        assert_non_null(strstr(f.report.gang.items[0].message, "llm/2: its result was received, but then: "));
        assert_int_equal(f.rns[2].checks.items[0].verdict, VERDICT_ERROR);
        assert_int_equal(f.rns[0].checks.items[0].verdict, VERDICT_PASS);
        gang_done(&f);
    }
}

static void test_blame_goes_to_the_culprit(void **state) {
    (void)state;
    struct gang_fixture f;
    gang_setup(&f);
    says(&f, 0, DDP_BLAMES_1);
    says(&f, 1, DDP_PASS); /* it does not know */
    says(&f, 2, DDP_BLAMES_1);
    gang_merge(&f.gang, NULL, &f.report);
    assert_int_equal(f.report.gang.items[0].verdict, VERDICT_FAIL);
    assert_int_equal(f.rns[0].checks.items[0].verdict, VERDICT_ERROR); /* not proven, not to blame */
    assert_int_equal(f.rns[1].checks.items[0].verdict, VERDICT_FAIL);
    assert_int_equal(f.rns[2].checks.items[0].verdict, VERDICT_ERROR);
    gang_done(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_limits),
        cmocka_unit_test(test_an_excused_skip),
        cmocka_unit_test(test_spec_floor_replaces_the_tables),
        cmocka_unit_test(test_floor_that_was_not_measured),
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_a_floor_makes_its_check_required),
        cmocka_unit_test(test_a_pass_without_figures_is_none),
        cmocka_unit_test(test_figures_that_no_measurement_gives),
        cmocka_unit_test(test_a_fault_stays),
        cmocka_unit_test(test_fewer_gpus_are_no_pass),
        cmocka_unit_test(test_what_makes_a_node_ready),
        cmocka_unit_test(test_gang_passes_only_together),
        cmocka_unit_test(test_what_comes_after_a_pass_counts),
        cmocka_unit_test(test_a_lost_rank_is_named),
        cmocka_unit_test(test_blame_goes_to_the_culprit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

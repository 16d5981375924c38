/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet's own baseline: made of sound runs only, read whole or refused, and what it makes of a run that is
 * slower than it. */
#include "base/gp_base.h"

#include "folder.h"
#include "rates.h"

#include "base/fs.h"
#include "validate/baseline.h"
#include "validate/remote.h"

#include <unistd.h>

static char folder[200];

static int setup(void **state) {
    (void)state;
    return make_folder(folder, sizeof folder, "baseline") ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return fs_remove_tree(folder, NULL);
}

static char *file_of(const char *name) { return fs_join(folder, name); }

/* Two nodes with a model that no table knows, so that only the baseline knows its rates. */
static void fleet(struct report *r, const double *a, const double *b, size_t n) {
    r->stack = xstrdup("llm");
    r->started_s = 1800000000; /* 2027-01-15 */
    add_node(r, "2bb1", a, n);
    add_node(r, "2bb1", b, n);
}

static void good_fleet(struct report *r) {
    fleet(r, (const double[]){1000, 1010, 990, 1000}, (const double[]){1005, 995, 1000, 1000}, 4);
}

static void calibrated(struct baseline *b) {
    struct report r = {0};
    struct gp_error err = {0};
    size_t n = 0;
    good_fleet(&r);
    if (baseline_calibrate(b, &r, &n, &err) < 0) fail_msg("%s", err.msg);
    assert_int_equal(n, 1);
    b->path = xstrdup("baseline.json");
    report_clear(&r);
}

static void test_made_of_a_sound_run(void **state) {
    (void)state;
    struct baseline b = {0};
    calibrated(&b);
    const struct baseline_figure *f = &b.figures.items[0];
    assert_string_equal(f->model, "pci-2bb1");
    assert_string_equal(f->driver, "580.65.06");
    assert_string_equal(f->date, "2027-01-15");
    assert_int_equal(f->n, 8);
    assert_true(f->median == 1000 && f->mad == 2.5);
    baseline_clear(&b);
}

static void refused_as(int code, struct report *r, const char *part) {
    struct baseline b = {0};
    struct gp_error err = {0};
    size_t n = 77;
    assert_int_equal(baseline_calibrate(&b, r, &n, &err), -code);
    if (!strstr(err.msg, part)) fail_msg("'%s' is not in '%s'", part, err.msg);
    assert_int_equal(b.figures.len, 0);
    assert_int_equal(n, 77);
    report_clear(r);
}

static void refused(struct report *r, const char *part) { refused_as(GP_EVALIDATE, r, part); }

static void test_refuses_what_is_not_sound(void **state) {
    (void)state;
    static const enum verdict bad[] = {VERDICT_FAIL, VERDICT_DEGRADED, VERDICT_ERROR, VERDICT_SKIPPED};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        struct report r = {0};
        good_fleet(&r);
        rated(&r, 1)->verdict = bad[i];
        refused(&r, "llm/1: ");
    }
    struct report r = {0};
    good_fleet(&r);
    r.ready = false;
    refused(&r, "not ready");
    r = (struct report){.stack = xstrdup("llm"), .ready = true};
    refused_as(GP_EUSAGE, &r, "no baseline was written"); /* sound nodes without GPUs did not fail validation */
    good_fleet(&r);
    json_object_del(r.nodes.items[0].checks.items[0].data, "driver");
    refused(&r, "the GPU's model and driver");
}

static void test_through_a_file(void **state) {
    (void)state;
    GP_AUTO_FREE char *path = file_of("a.json");
    struct baseline b = {0}, back = {0};
    struct gp_error err = {0};
    calibrated(&b);
    assert_int_equal(baseline_save(&b, path, &err), 0);
    assert_int_equal(baseline_load(path, &back, &err), 0);
    assert_int_equal(back.figures.len, 1);
    assert_string_equal(back.figures.items[0].metric, b.figures.items[0].metric);
    assert_true(back.figures.items[0].median == 1000 && back.figures.items[0].mad == 2.5);
    /* the same again takes its place; another model stands beside it */
    struct report r = {0};
    size_t n = 0;
    fleet(&r, (const double[]){2000}, (const double[]){2000}, 1);
    assert_int_equal(baseline_calibrate(&back, &r, &n, &err), 0);
    assert_int_equal(back.figures.len, 1);
    assert_true(back.figures.items[0].median == 2000);
    report_clear(&r);
    r = (struct report){.stack = xstrdup("llm")};
    add_node(&r, "2bb4", (const double[]){800}, 1);
    assert_int_equal(baseline_calibrate(&back, &r, &n, &err), 0);
    assert_int_equal(back.figures.len, 2);
    report_clear(&r);
    baseline_clear(&back);
    baseline_clear(&b);
}

static void unreadable(const char *text, const char *part) {
    GP_AUTO_FREE char *path = file_of("bad.json");
    struct gp_error err = {0};
    struct baseline b = {0};
    assert_int_equal(fs_write_atomic(path, text, strlen(text), 0600, &err), 0);
    int rc = baseline_load(path, &b, &err);
    if (rc != -GP_EUSAGE || !strstr(err.msg, part) || !strstr(err.msg, "bad.json"))
        fail_msg("%d '%s' for %s", rc, err.msg, text);
    assert_int_equal(b.figures.len, 0);
}

static void test_files_that_are_none(void **state) {
    (void)state;
    const struct check_info *info = NULL;
    const struct check_metric_info *m = any_rate(&info);
    struct gp_error err = {0};
    struct baseline b = {0};
    GP_AUTO_FREE char *absent = file_of("absent.json");
    assert_int_equal(baseline_load(absent, &b, &err), -GP_ENOTFOUND);
    unreadable("", "");
    unreadable("{", "");
    unreadable("[]", "not a baseline of this version");
    unreadable("{\"schema\":\"gpuprov/baseline/v9\",\"figures\":[]}", "v9");
    unreadable("{\"schema\":\"gpuprov/baseline/v1\"}", "no list of figures");
    static const struct {
        const char *model, *metric, *unit, *median, *part;
    } rows[] = {{"h100-sxm5-80", NULL, NULL, "\"many\"", "no median"},
                {"h100-sxm5-80", NULL, NULL, "-3", "no median"},
                {"", NULL, NULL, "5", "no model"},
                {"h100-sxm5-80", "luck", NULL, "5", "no check of this gpuprov has the figure"},
                {"h100-sxm5-80", NULL, "MB/h", "5", "not 'MB/h'"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *text = xasprintf(
            "{\"schema\":\"gpuprov/baseline/v1\",\"figures\":[{\"model\":\"%s\",\"driver\":\"1\",\"check\":\"%s\","
            "\"metric\":\"%s\",\"unit\":\"%s\",\"n\":3,\"median\":%s,\"mad\":0.5}]}",
            rows[i].model, info->id, rows[i].metric ? rows[i].metric : m->name, rows[i].unit ? rows[i].unit : m->unit,
            rows[i].median);
        unreadable(text, rows[i].part);
    }
    GP_AUTO_FREE char *one = xasprintf("{\"model\":\"x\",\"driver\":\"1\",\"check\":\"%s\",\"metric\":\"%s\","
                                       "\"unit\":\"%s\",\"n\":3,\"median\":5,\"mad\":0}",
                                       info->id, m->name, m->unit);
    GP_AUTO_FREE char *twice = xasprintf("{\"schema\":\"gpuprov/baseline/v1\",\"figures\":[%s,%s]}", one, one);
    unreadable(twice, "twice");
}

static void test_limits(void **state) {
    (void)state;
    double fail = 0, degraded = 0;
    struct baseline_figure f = {.median = 1000, .mad = 1};
    baseline_limits(&f, false, &fail, &degraded);
    assert_true(fail == 800 && degraded == 900);
    f.mad = 30; /* a fleet that spreads: 3.5 and 7 deviations are further */
    baseline_limits(&f, false, &fail, &degraded);
    assert_true(fabs(degraded - (1000 - 3.5 * 1.4826 * 30)) < 0.01);
    assert_true(fabs(fail - (1000 - 7 * 1.4826 * 30)) < 0.01);
    f.mad = 200;
    baseline_limits(&f, false, &fail, &degraded);
    assert_true(fail < 0 && degraded < 0);
    f.mad = 1;
    baseline_limits(&f, true, &fail, &degraded);
    assert_true(fail == 1200 && degraded == 1100);
}

static void held(double slow, enum verdict want) {
    struct baseline b = {0};
    struct report r = {0};
    struct validate_env env = {0};
    calibrated(&b);
    fleet(&r, (const double[]){1000, 1000}, (const double[]){1000, slow}, 2);
    baseline_judge(&b, &env, &r, false);
    const struct check_result *c = rated(&r, 1);
    assert_int_equal(rated(&r, 0)->verdict, VERDICT_PASS);
    if (c->verdict != want) fail_msg("%g: %s", slow, verdict_name(c->verdict));
    if (want != VERDICT_PASS) {
        assert_string_equal(c->code, "below_baseline");
        assert_true(str_starts(c->message, "gpu 1: "));
        assert_non_null(strstr(c->message, "of the 1000 in this fleet's baseline of 2027-01-15 (8 measured"));
        assert_int_equal(json_int(c->data, "below_baseline.0.gpu", -1), 1);
    }
    assert_true(c->metrics.items[0].has_floor && c->metrics.items[0].floor == 800);
    assert_false(c->metrics.items[0].unrated);
    assert_non_null(strstr(c->metrics.items[0].source, "baseline.json"));
    report_clear(&r);
    baseline_clear(&b);
}

static void test_later_runs_are_held_against_it(void **state) {
    (void)state;
    held(1000, VERDICT_PASS);
    held(901, VERDICT_PASS);
    held(899, VERDICT_DEGRADED);
    held(801, VERDICT_DEGRADED);
    held(799, VERDICT_FAIL);
    held(1500, VERDICT_PASS);
}

static void test_what_it_does_not_know(void **state) {
    (void)state;
    struct baseline b = {0};
    struct report r = {0};
    struct validate_env env = {0};
    calibrated(&b);
    r.stack = xstrdup("llm");
    add_node(&r, "2bb4", (const double[]){10}, 1);
    baseline_judge(&b, &env, &r, false);
    assert_int_equal(rated(&r, 0)->verdict, VERDICT_PASS);
    GP_AUTO_FREE char *unknown = baseline_unknown(&b, &r);
    assert_string_equal(unknown, "pci-2bb4 with driver 580.65.06");
    report_clear(&r);
    good_fleet(&r);
    assert_null(baseline_unknown(&b, &r));
    json_object_set_new(r.nodes.items[0].checks.items[0].data, "driver", json_string("590.1"));
    GP_AUTO_FREE char *driver = baseline_unknown(&b, &r);
    assert_string_equal(driver, "pci-2bb1 with driver 590.1");
    report_clear(&r);
    baseline_clear(&b);
}

static void done_by(struct report *r, const char *by) {
    for (size_t i = 0; i < r->nodes.len; i++)
        json_object_set_new(json_at(rated(r, i)->data, "gpus.0"), "by", json_string(by));
}

static void test_by_another_library_is_another_figure(void **state) {
    (void)state;
    static const struct {
        const char *by;
        enum verdict want;
    } cases[] = {{"cuBLASLt 13.1.0", VERDICT_FAIL}, {"own kernels", VERDICT_PASS}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct baseline b = {.path = xstrdup("baseline.json")};
        struct report r = {0};
        struct gp_error err = {0};
        struct validate_env env = {0};
        size_t n = 0;
        fleet(&r, (const double[]){1000}, (const double[]){1000}, 1);
        done_by(&r, "cuBLASLt 12.8.4");
        assert_int_equal(baseline_calibrate(&b, &r, &n, &err), 0);
        assert_string_equal(b.figures.items[0].by, "cuBLASLt");
        report_clear(&r);
        fleet(&r, (const double[]){500}, (const double[]){500}, 1);
        done_by(&r, cases[i].by);
        baseline_judge(&b, &env, &r, false);
        assert_int_equal(rated(&r, 0)->verdict, cases[i].want);
        report_clear(&r);
        baseline_clear(&b);
    }
}

static void test_a_floor_of_the_spec_goes_first(void **state) {
    (void)state;
    struct baseline b = {0};
    struct report r = {0};
    struct validate_env env = {0};
    calibrated(&b);
    fleet(&r, (const double[]){700}, (const double[]){700}, 1);
    for (size_t i = 0; i < 2; i++) {
        struct metric *m = &rated(&r, i)->metrics.items[0];
        m->has_floor = true;
        m->floor = 500;
        free(m->source);
        m->source = xstrdup("spec");
    }
    baseline_judge(&b, &env, &r, false);
    assert_int_equal(rated(&r, 0)->verdict, VERDICT_PASS);
    assert_true(rated(&r, 0)->metrics.items[0].floor == 500);
    report_clear(&r);
    baseline_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_of_a_sound_run),
        cmocka_unit_test(test_refuses_what_is_not_sound),
        cmocka_unit_test(test_through_a_file),
        cmocka_unit_test(test_files_that_are_none),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_later_runs_are_held_against_it),
        cmocka_unit_test(test_what_it_does_not_know),
        cmocka_unit_test(test_by_another_library_is_another_figure),
        cmocka_unit_test(test_a_floor_of_the_spec_goes_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's judgement of figures by GPU model: 80 % and 90 % of what was measured elsewhere, limits
 * that somebody published, what nobody knows, what is missing; and the line that it becomes. */
#include "base/gp_base.h"

#include "base/json.h"
#include "validate/suite/models.h"

#include "validate/agent/base/judge.c"
#include "validate/agent/base/result.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define BY_MODEL .by_model = true, .positive = true, .fail = -1, .degraded = -1, .source = ""
static const struct check_info bandwidth = {
    .id = "gpu.bandwidth",
    .level = CHECK_GPU,
    .suggestion = "look at the slot",
    .metrics = {
        {.name = "copy", .unit = "GB/s", BY_MODEL},
        {.name = "read", .unit = "GB/s", BY_MODEL},
        {.name = "h2d", .unit = "GB/s", .optional = true, BY_MODEL},
        {.name = "wrong", .unit = "words", .ceiling = true, .fail = 0, .degraded = -1, .source = "memory is exact"}}};
static const struct check_info nccl = {
    .id = "nccl.bandwidth", .level = CHECK_GANG, .metrics = {{.name = "busbw", .unit = "GB/s", BY_MODEL}}};

static const struct gpu_model *h100(void) { return gpu_model_find(0x2330, 0x16c1); }

/* What became of one GPU's figures; negative: not measured. Caller clears. */
static void judged(struct agent_result *r, const struct gpu_model *model, double read, double h2d) {
    agent_result_init(r, &bandwidth);
    struct check_ctx c = {.model = model, .gpus = 8};
    agent_about(r, &c);
    agent_metric(r, "copy", 2900);
    if (read >= 0) agent_metric(r, "read", read);
    if (h2d >= 0) agent_metric(r, "h2d", h2d);
    agent_judge(r, 1, true);
}

static void is_of(const struct gpu_model *m, double read, double h2d, enum verdict v, const char *code,
                  const char *part) {
    struct agent_result r;
    judged(&r, m, read, h2d);
    if (r.verdict != v || !str_eq(r.code, code) || strstr(r.message, part) == NULL)
        fail_msg("read %g h2d %g: %s %s '%s'", read, h2d, verdict_name(r.verdict), r.code, r.message);
    agent_result_clear(&r);
}

static void is(double read, double h2d, enum verdict v, const char *code, const char *part) {
    is_of(h100(), read, h2d, v, code, part);
}

static void test_shares_of_what_was_measured(void **state) {
    (void)state;
    is(3180, 55, VERDICT_PASS, "", "");
    is(2863, 55, VERDICT_PASS, "", ""); /* just over 90 % */
    is(2861, 55, VERDICT_DEGRADED, "low_read", "90 % of the 3180 that a sound H100 SXM5 80GB reaches");
    is(2545, 55, VERDICT_DEGRADED, "low_read", "80 % of");
    is(2543, 55, VERDICT_FAIL, "low_read", "Azure");
    is(1590, 55, VERDICT_FAIL, "low_read", "50 % of the 3180");
}

static void test_limits_that_were_published(void **state) {
    (void)state;
    const struct gpu_model *nvl = gpu_model_find(0x2321, 0);
    is_of(nvl, 3500, 51, VERDICT_PASS, "", "");
    is_of(nvl, 3500, 49, VERDICT_DEGRADED, "low_h2d", "close to the limit of 48 of the H100 NVL 94GB");
    is_of(nvl, 3500, 47, VERDICT_FAIL, "low_h2d", "below the limit of 48 of the H100 NVL 94GB");
}

static void test_missing_figures(void **state) {
    (void)state;
    is(-1, 55, VERDICT_ERROR, "not_measured", "'read' was not measured");
    is(3180, -1, VERDICT_PASS, "", ""); /* optional */
}

static void test_unknown_models_are_unrated(void **state) {
    (void)state;
    struct agent_result r;
    judged(&r, NULL, 3, -1); /* any figure at all */
    assert_int_equal(r.verdict, VERDICT_PASS);
    for (size_t i = 0; i < r.n_metrics; i++) assert_int_equal(r.metrics[i].limit.kind, LIMIT_UNRATED);
    agent_metric(&r, "wrong", 1); /* what is exact still decides */
    agent_judge(&r, 1, true);
    assert_int_equal(r.verdict, VERDICT_FAIL);
    agent_result_clear(&r);
    judged(&r, NULL, -1, -1);
    assert_int_equal(r.verdict, VERDICT_PASS);
    agent_result_clear(&r);
}

static void test_conditions_of_nccl(void **state) {
    (void)state;
    static const struct {
        bool nvls;
        double busbw;
        enum verdict v;
    } cases[] = {{true, 480, VERDICT_PASS},  {true, 370, VERDICT_FAIL},      {true, 390, VERDICT_DEGRADED},
                 {false, 370, VERDICT_PASS}, {false, 300, VERDICT_DEGRADED}, {false, 290, VERDICT_FAIL}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct agent_result r;
        agent_result_init(&r, &nccl);
        r.about.model = h100();
        r.about.key = (struct gpu_figure_key){.gpus = 8, .bytes = (int64_t)8 << 30, .nvls = cases[i].nvls};
        agent_metric(&r, "busbw", cases[i].busbw);
        agent_judge(&r, 1, true);
        assert_int_equal(r.verdict, cases[i].v);
        agent_result_clear(&r);
    }
}

static const json_t *metric_of(const json_t *line, const char *name) {
    const json_t *all = json_object_get(line, "metrics");
    for (size_t i = 0; i < json_array_size(all); i++)
        if (str_eq(json_str(json_array_get(all, i), "name", ""), name)) return json_array_get(all, i);
    fail_msg("the line has no figure %s", name);
    return NULL;
}

static void test_the_line_says_by_what(void **state) {
    (void)state;
    struct agent_result r;
    judged(&r, h100(), 2000, 45);
    GP_AUTO_STR struct str s = {0};
    agent_result_line(&r, &s);
    GP_AUTO_JSON json_t *line = json_loads(s.s, 0, NULL);
    assert_non_null(line);
    const json_t *read = metric_of(line, "read"), *copy = metric_of(line, "copy");
    assert_float_equal(json_num(read, "floor", 0), 2544, 0.01);
    assert_float_equal(json_num(read, "degraded", 0), 2862, 0.01);
    assert_true(str_starts(json_str(read, "source", ""), "measured elsewhere: 3180 (BabelStream dot"));
    assert_false(json_bool(read, "unrated", false));
    assert_float_equal(json_num(copy, "floor", 0), 2320, 0.01);
    agent_result_clear(&r);
    judged(&r, gpu_model_find(0x2321, 0), 3500,
           49); /* H100 NVL: nobody published a copy rate, and only a limit of h2d */
    str_reset(&s);
    agent_result_line(&r, &s);
    GP_AUTO_JSON json_t *nvl = json_loads(s.s, 0, NULL);
    copy = metric_of(nvl, "copy");
    assert_true(json_bool(copy, "unrated", false));
    assert_null(json_object_get(copy, "floor"));
    assert_float_equal(json_num(metric_of(nvl, "h2d"), "floor", 0), 48, 0.01);
    assert_true(str_starts(json_str(metric_of(nvl, "h2d"), "source", ""), "Azure/"));
    agent_result_clear(&r);
}

/* For a caller that judges by itself: the line has the figures, and by which row of the table they are judged. */
static void test_an_unjudged_line_has_figures_and_faults(void **state) {
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        struct agent_result r;
        agent_result_init(&r, &bandwidth);
        struct check_ctx c = {.model = h100(), .gpus = 8};
        agent_about(&r, &c);
        agent_metric(&r, "copy", 2900);
        agent_metric(&r, "read", 1000);
        if (fault) agent_set(&r, VERDICT_DEGRADED, "ecc", "counted");
        str_put(r.note, sizeof r.note, "; why");
        agent_judge(&r, 1, false);
        assert_int_equal(r.verdict, fault ? VERDICT_DEGRADED : VERDICT_PASS);
        assert_int_equal(r.faults, r.verdict);
        assert_int_equal(r.by_limits, VERDICT_FAIL);
        GP_AUTO_STR struct str s = {0};
        agent_result_line(&r, &s);
        GP_AUTO_JSON json_t *line = json_loads(s.s, 0, NULL);
        assert_non_null(line);
        assert_string_equal(json_str(line, "code", ""), fault ? "ecc" : "");
        assert_null(json_object_get(metric_of(line, "read"), "floor"));
        assert_string_equal(json_str(line, "data.conditions.model", ""), gpu_model_id(h100()));
        assert_int_equal(json_int(line, "data.conditions.gpus", 0), 8);
        assert_string_equal(json_str(line, "data.note", ""), "; why");
        agent_result_clear(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_of_what_was_measured),
        cmocka_unit_test(test_limits_that_were_published),
        cmocka_unit_test(test_missing_figures),
        cmocka_unit_test(test_unknown_models_are_unrated),
        cmocka_unit_test(test_conditions_of_nccl),
        cmocka_unit_test(test_the_line_says_by_what),
        cmocka_unit_test(test_an_unjudged_line_has_figures_and_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

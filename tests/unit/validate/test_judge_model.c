/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's judgement of figures that the GPU model table limits: by the model and the conditions that the
 * agent sent with them, of the check and of each GPU; the spec's own floors go first. */
#include "base/gp_base.h"

#include "base/json.h"
#include "judge_fixture.h"
#include "validate/suite/models.h"
#include "validate/validate.h"

static const char *h100(void) { return gpu_model_id(gpu_model_find(0x2330, 0x16c1)); } /* read: 3180 measured */

static struct check_result bandwidth(enum verdict said, double read) {
    struct check_result r = result("gpu.bandwidth", said, said == VERDICT_PASS ? "" : "broken");
    figure(&r, "copy", 2900, "GB/s");
    figure(&r, "read", read, "GB/s");
    figure(&r, "h2d", 55, "GB/s");
    figure(&r, "d2h", 55, "GB/s");
    return r;
}

static void judge_rate(const struct spec *s, double read, enum verdict said, enum verdict want) {
    struct check_result r = bandwidth(said, read);
    r.data = json_pack("{s:{s:s,s:i}}", "conditions", "model", h100(), "gpus", 8);
    struct metric *m = &r.metrics.items[1];
    m->has_floor = true; /* what an agent says of limits does not count */
    m->floor = 99999;
    validate_apply_floors(s, &r);
    if (r.verdict != want)
        fail_msg("%g, said to be %s: %s (%s)", read, verdict_name(said), verdict_name(r.verdict), r.message);
    assert_float_equal(check_metric(&r, "copy")->floor, 2320, 0.01);
    assert_false(check_metric(&r, "read")->unrated);
    assert_true(check_metric(&r, "read")->floor < 4001);
    check_result_clear(&r);
}

static void test_figures_by_model(void **state) {
    (void)state;
    struct spec s = {0};
    judge_rate(&s, 3180, VERDICT_PASS, VERDICT_PASS);
    judge_rate(&s, 2700, VERDICT_PASS, VERDICT_DEGRADED);
    judge_rate(&s, 2500, VERDICT_PASS, VERDICT_FAIL);
    judge_rate(&s, 3180, VERDICT_FAIL, VERDICT_FAIL); /* a fault */
    /* the spec's own floor goes first, both ways */
    with_floor(&s, "gpu.bandwidth", "read", 1500);
    judge_rate(&s, 2500, VERDICT_PASS, VERDICT_PASS);
    judge_rate(&s, 2500, VERDICT_DEGRADED, VERDICT_DEGRADED); /* the fault stays */
    s.validate.floors.items[0].value = 4000;
    judge_rate(&s, 3180, VERDICT_PASS, VERDICT_FAIL);
    spec_done(&s);
}

static void test_what_is_shown_and_said(void **state) {
    (void)state;
    struct spec s = {0};
    struct check_result r = bandwidth(VERDICT_PASS, 2500);
    r.data = json_pack("{s:{s:s,s:i},s:s}", "conditions", "model", h100(), "gpus", 8, "note", "; as rank 3 says");
    validate_apply_floors(&s, &r);
    assert_string_equal(r.code, "low_read");
    assert_true(str_starts(r.message, "read is 2500 GB/s, 79 % of the 3180 that a sound H100 SXM5 80GB reaches ("));
    assert_true(str_ends(r.message, "); as rank 3 says"));
    assert_true(*r.suggestion);
    const struct metric *m = check_metric(&r, "read");
    assert_float_equal(m->floor, 2544, 0.01);
    assert_float_equal(m->degraded, 2862, 0.01);
    assert_float_equal(m->measured, 3180, 0.01);
    assert_true(str_starts(m->source, "measured elsewhere: 3180 (BabelStream dot on the GPU: only reads); Azure/"));
    check_result_clear(&r);
    r = bandwidth(VERDICT_PASS, 2500); /* a model that is not known: nothing to hold it to */
    validate_apply_floors(&s, &r);
    assert_int_equal(r.verdict, VERDICT_PASS);
    assert_true(check_metric(&r, "read")->unrated);
    check_result_clear(&r);
}

/* A node of n GPUs, each with its rate. */
static struct check_result node(const double *read, int n, const char *fault) {
    double worst = read[0];
    json_t *gpus = json_array();
    for (int g = 0; g < n; g++) {
        bool bad = fault && g == 0;
        json_array_append_new(gpus, json_pack("{s:i,s:s,s:s,s:s,s:{s:f,s:f,s:f,s:f},s:{s:s,s:i}}", "gpu", g, "verdict",
                                              bad ? fault : "pass", "code", bad ? "ecc" : "", "message", "", "metrics",
                                              "copy", 2900.0, "h2d", 55.0, "d2h", 55.0, "read", read[g], "conditions",
                                              "model", h100(), "gpus", n));
        worst = GP_MIN(worst, read[g]);
    }
    struct check_result r = bandwidth(VERDICT_PASS, worst);
    if (fault) {
        assert_true(verdict_parse(fault, &r.verdict));
        free(r.code);
        free(r.message);
        r.code = xstrdup("ecc");
        r.message = xstrdup("gpu 0: counted");
    }
    figure(&r, "gpus", n, "GPUs");
    r.data = json_pack("{s:o,s:{s:s,s:i}}", "gpus", gpus, "conditions", "model", h100(), "gpus", n);
    return r;
}

static void judge_node(const double *read, int n, const char *fault, enum verdict want, const char *code,
                       const char *message) {
    struct spec s = {.gpu.count = n};
    struct check_result r = node(read, n, fault);
    for (int again = 0; again < 2; again++) { /* a stream that is doubted is judged once more */
        validate_apply_floors(&s, &r);
        if (r.verdict != want || strcmp(r.code, code) != 0 || !str_starts(r.message, message))
            fail_msg("%s %s '%s'", verdict_name(r.verdict), r.code, r.message);
    }
    check_result_clear(&r);
}

static void test_each_gpu_is_judged(void **state) {
    (void)state;
    judge_node((double[]){3180, 3181, 3179}, 3, NULL, VERDICT_PASS, "", "");
    judge_node((double[]){3180, 2500, 2700}, 3, NULL, VERDICT_FAIL, "low_read", "gpu 1: read is 2500 GB/s, 79 % of");
    judge_node((double[]){3180, 2500, 2400}, 3, NULL, VERDICT_FAIL, "low_read", "gpu 1: read is 2500 GB/s");
    judge_node((double[]){3300, 3300, 3300, 2900}, 4, NULL, VERDICT_DEGRADED, "outlier",
               "gpu 3: read is 2900 GB/s, 12.12 % under the median 3300 of the 4 GPUs here");
    /* beside a fault of another GPU */
    judge_node((double[]){3180, 2500, 3180}, 3, "degraded", VERDICT_FAIL, "low_read", "gpu 1: read is 2500");
    judge_node((double[]){3180, 2700, 3180}, 3, "degraded", VERDICT_DEGRADED, "ecc", "gpu 0: counted");
    judge_node((double[]){3180, 2500, 3180}, 3, "fail", VERDICT_FAIL, "ecc", "gpu 0: counted");
    struct spec s = {.gpu.count = 3};
    struct check_result r = node((double[]){3180, 2500, 2400}, 3, NULL);
    validate_apply_floors(&s, &r);
    assert_true(str_ends(r.message, " (also gpu 2)"));
    assert_string_equal(json_str(check_gpu(&r, 0), "verdict", ""), "pass");
    assert_string_equal(json_str(check_gpu(&r, 2), "verdict", ""), "fail");
    assert_string_equal(json_str(check_gpu(&r, 2), "code", ""), "low_read");
    check_result_clear(&r);
    r = node((double[]){3180, 2500, 2400}, 3, NULL); /* entries that are none hide nothing */
    json_array_append_new(json_object_get(r.data, "gpus"), json_string("x"));
    validate_apply_floors(&s, &r);
    assert_string_equal(r.code, "low_read");
    check_result_clear(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_by_model),
        cmocka_unit_test(test_what_is_shown_and_said),
        cmocka_unit_test(test_each_gpu_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

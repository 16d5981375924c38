/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's judgement of figures that the GPU model table limits: by what the agent, which knows the
 * model, sent with them; the spec's own floors go first. */
#include "base/gp_base.h"

#include "validate/judge.h"

#include "validate/lines.h"
#include "validate/validate.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct check_result result(const char *check, enum verdict v, const char *code) {
    struct check_result r;
    check_result_make(&r, check, v, code, "as the agent said");
    return r;
}

static void figure(struct check_result *r, const char *name, double value, const char *unit) {
    struct metric m = {.name = xstrdup(name), .value = value, .unit = xstrdup(unit), .source = xstrdup("")};
    vec_push(&r->metrics, m);
}

static void with_floor(struct spec *s, const char *check, const char *metric, double value) {
    struct spec_floor f = {.check = xstrdup(check), .metric = xstrdup(metric), .value = value, .unit = xstrdup("")};
    vec_push(&s->validate.floors, f);
}

static void spec_done(struct spec *s) {
    for (size_t i = 0; i < s->validate.floors.len; i++) {
        free(s->validate.floors.items[i].check);
        free(s->validate.floors.items[i].metric);
        free(s->validate.floors.items[i].unit);
    }
    vec_free(&s->validate.floors);
    strv_clear(&s->validate.require);
}

/* As an agent sends it that knows the model: 2540 measured elsewhere. */
static void rated(struct check_result *r, const char *name, double value, double fail, double degraded) {
    figure(r, name, value, "GB/s");
    struct metric *m = &r->metrics.items[r->metrics.len - 1];
    m->has_floor = m->has_degraded = true;
    m->floor = fail;
    m->degraded = degraded;
}

static void judge_rate(const struct spec *s, double read, enum verdict said, enum verdict want) {
    struct check_result r = result("gpu.bandwidth", said, said == VERDICT_PASS ? "" : "low_read");
    rated(&r, "read", read, 2032, 2286);
    figure(&r, "copy", 5, "GB/s"); /* nobody's figure is known */
    validate_apply_floors(s, &r);
    if (r.verdict != want)
        fail_msg("%g, said to be %s: %s (%s)", read, verdict_name(said), verdict_name(r.verdict), r.message);
    assert_true(check_metric(&r, "copy")->unrated && !check_metric(&r, "copy")->has_floor);
    assert_false(check_metric(&r, "read")->unrated);
    check_result_clear(&r);
}

static void test_figures_by_model(void **state) {
    (void)state;
    struct spec s = {0};
    judge_rate(&s, 2540, VERDICT_PASS, VERDICT_PASS);
    judge_rate(&s, 2100, VERDICT_DEGRADED, VERDICT_DEGRADED);
    judge_rate(&s, 2000, VERDICT_FAIL, VERDICT_FAIL);
    /* its own word is not needed: the limits that it sent are held here too */
    judge_rate(&s, 2100, VERDICT_PASS, VERDICT_DEGRADED);
    judge_rate(&s, 2000, VERDICT_PASS, VERDICT_FAIL);
    /* the spec's own floor goes first, both ways */
    with_floor(&s, "gpu.bandwidth", "read", 1500);
    judge_rate(&s, 2000, VERDICT_FAIL, VERDICT_PASS);
    s.validate.floors.items[0].value = 3000;
    judge_rate(&s, 2540, VERDICT_PASS, VERDICT_FAIL);
    spec_done(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_by_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

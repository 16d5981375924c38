/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the judge: results with figures, and a spec with floors. */
#ifndef GP_TEST_JUDGE_FIXTURE_H
#define GP_TEST_JUDGE_FIXTURE_H

#include "validate/judge.h"
#include "validate/lines.h"

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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the spec: loading a text, and what a refusal must look like. */
#ifndef GP_TEST_SPEC_FIXTURE_H
#define GP_TEST_SPEC_FIXTURE_H

#include "providers/provider.h"
#include "spec/spec.h"
#include "validate/validate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FX GP_UNUSED static

struct loaded {
    struct spec *spec;
    struct spec_problems problems;
    struct gp_error err;
    int r;
};

FX void loaded_clear(struct loaded *l) {
    spec_free(l->spec);
    spec_problems_clear(&l->problems);
    *l = (struct loaded){0};
}
#define GP_AUTO_LOADED GP_CLEANUP(loaded_clear)

FX struct loaded load(const char *text) {
    struct loaded l = {0};
    provider_specs_register();
    l.r = spec_load_text("t.yaml", text, strlen(text), validate_names(), &l.spec, &l.problems, &l.err);
    assert_true((l.r == 0) == (l.spec != NULL));
    assert_true((l.r == 0) == (l.problems.list.len == 0));
    return l;
}

FX struct spec *good(const char *text) {
    struct loaded l = load(text);
    if (l.r != 0)
        fail_msg("%s: line %u: %s", text, l.problems.list.items[0].pos.line, l.problems.list.items[0].message);
    return l.spec;
}

/* Exactly one problem, at that place, whose text has `part`. */
FX void bad_at(const char *text, unsigned line, unsigned column, const char *part) {
    GP_AUTO_LOADED struct loaded l = load(text);
    if (l.r == 0) fail_msg("accepted: %s", text);
    assert_int_equal(l.r, -GP_EUSAGE);
    assert_int_equal(l.err.code, GP_EUSAGE);
    assert_int_equal(l.err.domain, GP_D_SPEC);
    const struct spec_problem *p = &l.problems.list.items[0];
    if (l.problems.list.len != 1)
        fail_msg("%zu problems in '%s': %s, %s", l.problems.list.len, text, p->message, p[1].message);
    if (strstr(p->message, part) == NULL) fail_msg("'%s' has no '%s'", p->message, part);
    if (p->pos.line != line || p->pos.column != column)
        fail_msg("%u:%u, not %u:%u: %s", p->pos.line, p->pos.column, line, column, p->message);
}

#endif

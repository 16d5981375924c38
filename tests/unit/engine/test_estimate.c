/* SPDX-License-Identifier: Apache-2.0 */
/* GPU hours, time and cost of a training. */
#include "base/gp_base.h"

#include "validate/estimate.h"

#include "../spec_fixture.h"

#define HEAD "name: t\noffers: [{provider: local}]\n"

static void numbers(void **state) {
    (void)state;
    assert_true(spec_estimate_number("7B") == 7e9);
    assert_true(spec_estimate_number("1.5T") == 1.5e12);
    assert_true(spec_estimate_number("250") == 250);
    assert_true(spec_estimate_number("0.4") == 0.4);
    static const char *const bad[] = {"", "B", "7BB", "7b", "1.2.3", "-7", "0x7", "nan", "7 B", NULL};
    for (size_t i = 0; bad[i] != NULL; i++) assert_true(spec_estimate_number(bad[i]) == 0);
    assert_true(spec_estimate_number(NULL) == 0);
}

/* 6 x 13e9 x 300e9 / (0.416 x 989 TFLOP/s) = 15,797 GPU hours. */
static void of_the_model_table(void **state) {
    (void)state;
    struct spec *s = good(HEAD "gpu: H100:8\nnodes: 2\nestimate: {params: 13B, tokens: 300B}\n");
    struct estimate e;
    GP_AUTO_STRV struct strv notes = {0};
    assert_true(estimate_of(s, NULL, 50, &e));
    assert_null(e.missing);
    assert_true(e.operations > 2.339e22 && e.operations < 2.341e22);
    assert_true(e.gpus == 16 && e.mfu == 0.416 && e.source != NULL);
    assert_true(e.gpu_hours > 15700 && e.gpu_hours < 15900);
    assert_true(e.hours > e.gpu_hours / 16.001 && e.hours < e.gpu_hours / 15.999);
    assert_true(e.usd > e.hours * 49.99 && e.usd < e.hours * 50.01);
    estimate_notes(&e, 4 * 3600 * 1000, &notes);
    assert_int_equal(notes.n, 2);
    assert_non_null(strstr(notes.v[0], "41.1 days on 16 GPUs"));
    assert_non_null(strstr(notes.v[0], "MPT 13B"));
    assert_non_null(strstr(notes.v[1], "longer than the 4h"));
    spec_free(s);
}

static void what_is_not_known(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {{"estimate: {params: 13B, tokens: 300B}\n", "set estimate.gpu"},
                 {"gpu: L4\nestimate: {params: 13B, tokens: 300B}\n", "set estimate.mfu"},
                 {"gpu: T4\nestimate: {params: 13B, tokens: 300B, mfu: 0.4}\n", "BF16 rate"}}; /* T4 has none */
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *text = xasprintf("%s%s", HEAD, cases[i].text);
        struct spec *s = good(text);
        struct estimate e;
        GP_AUTO_STRV struct strv notes = {0};
        assert_true(estimate_of(s, NULL, 1, &e));
        assert_true(e.gpu_hours == 0 && e.usd < 0);
        estimate_notes(&e, 1000, &notes);
        assert_int_equal(notes.n, 1);
        if (strstr(notes.v[0], cases[i].word) == NULL) fail_msg("%s", notes.v[0]);
        spec_free(s);
    }
}

/* The offer's GPUs count where the spec names an instance type only; an own mfu has no source. */
static void of_the_offer(void **state) {
    (void)state;
    struct spec *s = good(HEAD "nodes: 3\nestimate: {params: 1B, tokens: 20B, mfu: 0.5}\n");
    char model[] = "A100-80GB";
    struct offer o = {.gpu_model = model, .gpus = 4};
    struct estimate e;
    assert_true(estimate_of(s, &o, -1, &e));
    assert_true(e.gpus == 12 && e.source == NULL && e.tflops == 312 && e.usd < 0);
    spec_free(s);
    s = good(HEAD);
    assert_false(estimate_of(s, &o, 1, &e));
    spec_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(of_the_model_table),
                                       cmocka_unit_test(what_is_not_known), cmocka_unit_test(of_the_offer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of training in 16 bits that are pure or need one device only: loss scaling, buckets, the bound,
 * conversions, and the mixed-precision model against the fp32 one. Linked with the agent's objects. */
#include "base/gp_base.h"

#include "validate/agent/checks/train/train_mixed.h"
#include "validate/agent/device/numeric.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_a_scale_falls_and_grows(void **state) {
    (void)state;
    struct loss_scale s;
    loss_scale_init(&s, true, 3);
    float first = s.scale;
    assert_false(loss_scale_step(&s, false));
    assert_false(loss_scale_step(&s, false));
    assert_true(s.scale == first / 4 && s.skipped == 2 && s.streak == 2);
    assert_true(loss_scale_step(&s, true) && loss_scale_step(&s, true));
    assert_true(s.scale == first / 4 && s.streak == 0);
    assert_true(loss_scale_step(&s, true));
    assert_true(s.scale == first / 2); /* the third good one in a row */
    loss_scale_step(&s, true);
    loss_scale_step(&s, true);
    loss_scale_step(&s, false); /* the row is broken */
    loss_scale_step(&s, true);
    assert_true(s.scale == first / 4 && s.skipped == 3);
    for (int i = 0; i < 100; i++) loss_scale_step(&s, true);
    assert_true(s.scale == LOSS_SCALE_MAX);
    for (int i = 0; i < 100; i++) loss_scale_step(&s, false);
    assert_true(s.scale == 1.0f && loss_scale_spent(&s));
}

static void test_bf16_is_not_scaled(void **state) {
    (void)state;
    struct loss_scale s;
    loss_scale_init(&s, false, 1);
    assert_true(s.scale == 1.0f && loss_scale_spent(&s));
    assert_true(loss_scale_step(&s, true));
    assert_false(loss_scale_step(&s, false));
    assert_true(s.scale == 1.0f && s.skipped == 1);
}

/* Whatever the least: the buckets are the parameters, once each, from the end to the beginning. */
static void test_buckets_cover_everything_once(void **state) {
    (void)state;
    const struct mx_segment segments[] = {{900, 100}, {500, 400}, {100, 400}, {0, 100}};
    const size_t least[] = {1, 100, 101, 450, 900, 1000, 5000};
    for (size_t l = 0; l < GP_ARRAY_LEN(least); l++) {
        struct bucket b[4];
        int n = bucket_plan(segments, 4, least[l], b);
        size_t end = 1000;
        assert_true(n >= 1 && n <= 4);
        for (int i = 0; i < n; i++) {
            assert_int_equal(b[i].at + b[i].n, end);
            assert_int_equal(b[i].at, segments[b[i].after].at); /* complete, and not before */
            assert_true(b[i].n >= least[l] || i == n - 1);
            end = b[i].at;
        }
        assert_int_equal(end, 0);
        assert_int_equal(b[n - 1].after, 3);
    }
    struct bucket b[4];
    assert_int_equal(bucket_plan(segments, 4, 450, b), 2);
    assert_int_equal(b[0].n, 500);
}

static void test_16_bit_conversions(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = num_from_f16(h), b = num_from_bf16(h);
        if (!isnan(f)) assert_int_equal(num_to_f16(f), h);
        else assert_true(isnan(num_from_f16(num_to_f16(f))));
        if (!isnan(b)) assert_int_equal(num_to_bf16(b), h);
        else assert_true(isnan(num_from_bf16(num_to_bf16(b))));
    }
    assert_int_equal(num_to_f16(65519.0f), 0x7bff);
    assert_int_equal(num_to_f16(65520.0f), 0x7c00); /* half way to 65536: to even, and that is infinity */
    assert_int_equal(num_to_f16(2049.0f), 0x6800);  /* half way between 2048 and 2050: to even */
    assert_int_equal(num_to_f16(2051.0f), 0x6802);
    assert_int_equal(num_to_f16(0x1p-25f), 0);
    assert_int_equal(num_to_f16(0x1.8p-25f), 1);
    assert_int_equal(num_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(num_to_bf16(1.0f + 0x1.8p-7f), 0x3f82);
    assert_int_equal(num_to_bf16(0x1.fffffep127f), 0x7f80);
}

static void test_the_bound(void **state) {
    (void)state;
    struct mixed_plan p = {.type = GEMM_F16, .shape = {64, 32, 32, 2, 2, 128}, .batch = 4, .micros = 2};
    double fp16 = mixed_bound(&p, false), forth = mixed_bound(&p, true);
    assert_true(fp16 > 48 * 0x1p-10 && fp16 < 48 * 0x1p-10 + 2e-3); /* 48 roundings; fp32's part is small */
    assert_true(forth > 23 * 0x1p-10 && forth < fp16);
    p.type = GEMM_BF16;
    assert_true(mixed_bound(&p, false) > 7 * fp16);
}

/* --- the model --- */

enum { BATCH = 3 };
struct world {
    struct device *dev;
    struct gpt fp32;
    float *params, *want, *got;
    int32_t in[BATCH * GPT_CTX], next[BATCH * GPT_CTX];
    float loss;
};

static void world_open(struct world *w) {
    struct gp_error err = {0};
    struct markov source;
    *w = (struct world){0};
    assert_int_equal(device_host.open(0, &w->dev, &err), 0);
    assert_int_equal(gpt_open(&device_host, w->dev, BATCH, &w->fp32, &err), 0);
    assert_int_equal(gpt_init(&w->fp32, 3, &err), 0);
    float **all[] = {&w->params, &w->want, &w->got};
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++) *all[i] = xcalloc(w->fp32.n_params, sizeof(float));
    markov_init(&source, 5);
    for (int b = 0; b < BATCH; b++)
        markov_sequence(&source, 5, 0, b, GPT_CTX, w->in + b * GPT_CTX, w->next + b * GPT_CTX);
    assert_int_equal(gpt_get(&w->fp32, w->fp32.params, w->params, &err), 0);
    assert_int_equal(gpt_gradient(&w->fp32, w->in, w->next, &w->loss, &err), 0);
    assert_int_equal(gpt_get(&w->fp32, w->fp32.grads, w->want, &err), 0);
}

static void world_close(struct world *w) {
    gpt_close(&w->fp32);
    device_host.close(w->dev);
    free(w->params);
    free(w->want);
    free(w->got);
}

static void open_mixed(struct world *w, enum gemm_type type, struct mx_gpt *g) {
    static const struct mx_shape shape = {GPT_VOCAB, GPT_DIM, GPT_CTX, GPT_HEADS, GPT_LAYERS, GPT_FF};
    struct gp_error err = {0};
    assert_int_equal(mx_open(&device_host, w->dev, &shape, type, BATCH, g, &err), 0);
    assert_int_equal(g->n_params, w->fp32.n_params);
    assert_int_equal(mx_params(&shape), g->n_params);
    assert_int_equal(mx_init(g, 1, &err), 0);
    assert_int_equal(mx_put(g, g->params, w->params, &err), 0);
    assert_int_equal(mx_weights(g, &err), 0);
}

static double off(const struct world *w, float by) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < w->fp32.n_params; i++) {
        worst = fmax(worst, fabs((double)w->got[i] * (double)by - (double)w->want[i]));
        largest = fmax(largest, fabs((double)w->want[i]));
    }
    return worst / largest;
}

/* The two models have the same parameters in the same order, so their gradients differ by the rounding
 * of activations only; a scaled loss gives the same again. */
static void test_the_models_agree(void **state) {
    (void)state;
    struct world w;
    struct gp_error err = {0};
    world_open(&w);
    const struct {
        enum gemm_type type;
        float weight;
        double bound;
    } cases[] = {{GEMM_F16, 1.0f, 0.004}, {GEMM_F16, 1024.0f, 0.004}, {GEMM_BF16, 1.0f, 0.03}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct mx_gpt g = {0};
        float loss = 0;
        open_mixed(&w, cases[i].type, &g);
        struct mx_gradient_args a = {.in = w.in, .next = w.next, .weight = cases[i].weight};
        assert_int_equal(mx_gradient(&g, &a, &loss, &err), 0);
        assert_int_equal(mx_get(&g, g.grads, w.got, &err), 0);
        assert_true(fabs((double)loss - (double)w.loss) < cases[i].bound * (double)w.loss);
        double far = off(&w, 1.0f / cases[i].weight);
        if (!(far < cases[i].bound)) fail_msg("case %zu: off by %g of the largest", i, far);
        a.add = true; /* once more on top: twice the gradient, exactly */
        assert_int_equal(mx_gradient(&g, &a, &loss, &err), 0);
        GP_AUTO_FREE float *once = xcalloc(g.n_params, sizeof *once);
        memcpy(once, w.got, g.n_params * sizeof(float));
        assert_int_equal(mx_get(&g, g.grads, w.got, &err), 0);
        /* the sums begin with what was there, so twice is not bit for bit */
        for (size_t k = 0; k < g.n_params; k++)
            assert_true(fabs((double)w.got[k] - 2 * (double)once[k]) <= 1e-4 * (double)cases[i].weight);
        mx_close(&g);
    }
    world_close(&w);
}

static int count_segment(void *ctx, int segment, struct gp_error *err) {
    (void)err;
    int *next = ctx;
    assert_int_equal(segment, (*next)++);
    return 0;
}

/* Each segment is announced once, in order, and what is announced is complete. */
static void test_segments_are_announced_in_order(void **state) {
    (void)state;
    struct world w;
    struct gp_error err = {0};
    struct mx_gpt g = {0};
    int next = 0;
    float loss = 0;
    world_open(&w);
    open_mixed(&w, GEMM_BF16, &g);
    struct mx_gradient_args a = {.in = w.in, .next = w.next, .weight = 1, .done = count_segment, .ctx = &next};
    assert_int_equal(mx_gradient(&g, &a, &loss, &err), 0);
    assert_int_equal(next, GPT_LAYERS + 2);
    assert_int_equal(next, g.n_segments);
    mx_close(&g);
    world_close(&w);
}

static void test_hash_and_square_sum(void **state) {
    (void)state;
    struct world w;
    struct gp_error err = {0};
    struct mx_gpt g = {0};
    uint64_t first = 0, again = 0;
    double sum = 0, want = 0;
    world_open(&w);
    open_mixed(&w, GEMM_BF16, &g);
    assert_int_equal(mx_hash(&g, g.params, g.n_params, &first, &err), 0);
    assert_int_equal(mx_square_sum(&g, g.params, g.n_params, &sum, &err), 0);
    for (size_t i = 0; i < g.n_params; i++) want += (double)w.params[i] * (double)w.params[i];
    assert_true(fabs(sum - want) < 1e-5 * want);
    uint32_t bits = num_bits(w.params[777]) ^ 1;
    w.params[777] = num_from_bits(bits);
    assert_int_equal(mx_put(&g, g.params, w.params, &err), 0);
    assert_int_equal(mx_hash(&g, g.params, g.n_params, &again, &err), 0);
    assert_true(first != again);
    w.params[9] = INFINITY;
    assert_int_equal(mx_put(&g, g.params, w.params, &err), 0);
    assert_int_equal(mx_square_sum(&g, g.params, g.n_params, &sum, &err), 0);
    assert_true(!isfinite(sum));
    mx_close(&g);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scale_falls_and_grows),
        cmocka_unit_test(test_bf16_is_not_scaled),
        cmocka_unit_test(test_buckets_cover_everything_once),
        cmocka_unit_test(test_16_bit_conversions),
        cmocka_unit_test(test_the_bound),
        cmocka_unit_test(test_the_models_agree),
        cmocka_unit_test(test_segments_are_announced_in_order),
        cmocka_unit_test(test_hash_and_square_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU model table: every figure lies where its data sheet allows, ids and sources are there, and
 * what is known to be dead in other people's tables is found when it is planted. */
#include "base/gp_base.h"

#include "base/str.h"
#include "model/report.h"
#include "validate/suite/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct gpu_figure_key key_of(const struct gpu_row *r) {
    return (struct gpu_figure_key){r->check, r->metric, r->gpus, r->bytes, r->nvls > 0, r->nvlink, 0};
}

static void every_figure_is_plausible(void **state) {
    (void)state;
    struct gpu_row r;
    size_t n = 0;
    for (; gpu_row_at(n, &r); n++) {
        struct gpu_figure_key key = key_of(&r);
        char why[300] = "";
        if (gpu_model_limit(r.model, &key) <= 0)
            fail_msg("%s %s %s: the data sheet says nothing to hold it against", gpu_model_id(r.model), r.check,
                     r.metric);
        if (!gpu_figure_plausible(r.model, &key, r.value, why, sizeof why)) fail_msg("%s", why);
        assert_true(strlen(r.source) > 10);
    }
    assert_true(n > 100);
}

/* The verdict of a check's figure by the row's own model and conditions. */
static enum verdict verdict_of(const struct gpu_row *r, double value, struct limit *ret) {
    const struct check_info *c = check_find(r->check);
    const struct check_metric_info *info = check_info_metric(c, r->metric);
    struct limit_about about = {.model = r->model, .key = key_of(r)};
    *ret = limit_of(c, info, &about, NAN);
    return limit_judge(ret, info, value, NULL).verdict;
}

/* What a sound GPU was measured to reach passes, and 60 % of it never does. The best of many shapes judges nothing. */
static void every_row_judges_as_it_was_measured(void **state) {
    (void)state;
    struct gpu_row r;
    size_t best = 0, below = 0;
    for (size_t i = 0; gpu_row_at(i, &r); i++) {
        struct limit l;
        enum verdict sound = verdict_of(&r, r.is_floor ? r.value * 1.05 : r.value, &l);
        if (strlen(r.how) < 10) fail_msg("%s %s: not said how it was measured", gpu_model_id(r.model), r.metric);
        best += r.kind == GPU_HOW_BEST;
        below += r.kind == GPU_HOW_BELOW;
        if (r.kind == GPU_HOW_BEST) {
            if (l.kind == LIMIT_MODEL && str_eq(l.how, r.how))
                fail_msg("%s %s: a best shape rates a fixed one", gpu_model_id(r.model), r.metric);
            continue;
        }
        assert_string_equal(l.how, r.how);
        if (sound != VERDICT_PASS)
            fail_msg("%s %s: a sound %g does not pass", gpu_model_id(r.model), r.metric, r.value);
        if (verdict_of(&r, 0.6 * r.value, &l) == VERDICT_PASS)
            fail_msg("%s %s: 60 %% of %g passes", gpu_model_id(r.model), r.metric, r.value);
        if (str_eq(r.check, "gpu.gemm") && !r.is_floor && strstr(r.how, "8192") == NULL &&
            strstr(r.how, "SGEMM") == NULL)
            fail_msg("%s %s: measured with another shape", gpu_model_id(r.model), r.metric);
    }
    assert_true(best > 3 && below > 3);
}

/* Measured on sound and on sick machines, and judged wrong by earlier tables. */
static void judged_wrong_before(void **state) {
    (void)state;
    static const struct {
        unsigned device;
        const char *check, *metric;
        double value;
        enum verdict want;
    } cases[] = {{0x2335, "gpu.gemm", "fp8", 1300.6, VERDICT_PASS},     /* H200, 8192^3, random operands */
                 {0x2330, "gpu.gemm", "fp8", 1290.1, VERDICT_PASS},     /* H100 */
                 {0x2941, "gpu.gemm", "fp8", 2876.6, VERDICT_PASS},     /* GB200 */
                 {0x2335, "gpu.bandwidth", "read", 4480, VERDICT_PASS}, /* H200, BabelStream dot */
                 {0x2335, "gpu.bandwidth", "read", 4480 * 0.56, VERDICT_FAIL},
                 {0x2330, "gpu.bandwidth", "read", 3180 * 0.65, VERDICT_FAIL},     /* H100 */
                 {0x20b2, "gpu.bandwidth", "read", 1750 * 0.75, VERDICT_FAIL},     /* A100 80GB */
                 {0x233b, "gpu.bandwidth", "read", 4800 * 0.56, VERDICT_DEGRADED}, /* H200 NVL */
                 {0x2335, "gpu.gemm", "bf16", 650, VERDICT_PASS}};                 /* known for its best shape only */
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct gpu_row r = {
            .model = gpu_model_find(cases[i].device, 0), .check = cases[i].check, .metric = cases[i].metric};
        struct limit l;
        enum verdict v = verdict_of(&r, cases[i].value, &l);
        if (v != cases[i].want)
            fail_msg("%s %s %g: %s", gpu_model_id(r.model), r.metric, cases[i].value, verdict_name(v));
    }
}

static void figures_are_unique(void **state) {
    (void)state;
    struct gpu_row a, b;
    for (size_t i = 0; gpu_row_at(i, &a); i++)
        for (size_t k = i + 1; gpu_row_at(k, &b); k++)
            if (a.model == b.model && str_eq(a.check, b.check) && str_eq(a.metric, b.metric) && a.gpus == b.gpus &&
                a.bytes == b.bytes && a.nvls == b.nvls && a.nvlink == b.nvlink && a.kind == b.kind)
                fail_msg("%s %s %s is there twice", gpu_model_id(a.model), a.check, a.metric);
}

/* A row of the table that the check table knows has that check's figure, unit and way of judging. */
static void figures_are_the_checks(void **state) {
    (void)state;
    struct gpu_row r;
    for (size_t i = 0; gpu_row_at(i, &r); i++) {
        const struct check_info *c = check_find(r.check);
        if (!c) continue; /* a check that this build has not */
        const struct check_metric_info *m = c->metrics;
        while (m->name && !str_eq(m->name, r.metric)) m++;
        if (!m->name) fail_msg("%s has no figure %s", r.check, r.metric);
        assert_string_equal(m->unit, r.unit);
        assert_true(m->by_model);
    }
}

static void ids_are_unique(void **state) {
    (void)state;
    const struct gpu_model *m = NULL, *other = NULL;
    unsigned device = 0, sub = 0, device2 = 0, sub2 = 0;
    for (size_t i = 0; gpu_pci_at(i, &m, &device, &sub); i++) {
        assert_ptr_equal(gpu_model_find(device, sub), m);
        for (size_t k = i + 1; gpu_pci_at(k, &other, &device2, &sub2); k++)
            assert_false(device == device2 && sub == sub2);
    }
    for (size_t i = 0; (m = gpu_model_at(i)) != NULL; i++) {
        bool has_id = false;
        for (size_t k = 0; gpu_pci_at(k, &other, &device, &sub); k++) has_id = has_id || other == m;
        assert_true(has_id);
        assert_ptr_equal(gpu_model_by_id(gpu_model_id(m)), m);
        assert_true(gpu_model_spec(m, "memory_gb_per_s") > 0);
        assert_true(gpu_model_spec(m, "cc") >= 7);
        assert_true(gpu_model_spec(m, "ecc") >= 0);
    }
    assert_null(gpu_model_find(0xffff, 0));
    assert_null(gpu_model_by_id("h100"));
}

static void a_subsystem_goes_first(void **state) {
    (void)state;
    const struct gpu_model *plain = gpu_model_find(0x2901, 0), *known = gpu_model_find(0x2901, 0x1999);
    assert_ptr_not_equal(plain, known);
    assert_ptr_equal(gpu_model_find(0x2901, 0x1234), plain);
    struct gpu_figure a = {0}, b = {0};
    struct gpu_figure_key key = {.check = "gpu.bandwidth", .metric = "read"};
    assert_true(gpu_model_figure(plain, &key, &a) && gpu_model_figure(known, &key, &b));
    assert_true(b.measured > a.measured);
    key = (struct gpu_figure_key){.check = "gpu.gemm", .metric = "fp32"};
    assert_true(gpu_model_figure(known, &key, &b)); /* from the model that it is like */
    assert_true(b.measured == 49.27);
}

static void spec_values_have_known_names(void **state) {
    (void)state;
    static const char *const known[] = {"cc",
                                        "memory_gib",
                                        "memory_gb_per_s",
                                        "ecc",
                                        "fp32_tflops",
                                        "tf32_tflops",
                                        "bf16_tflops",
                                        "fp16_tflops",
                                        "fp8_tflops",
                                        "nvlink_links",
                                        "nvlink_gb_per_s",
                                        "nvlink_gpus",
                                        "nvlink_bridge",
                                        "pcie_gen",
                                        "pcie_width",
                                        "pcie_min_width",
                                        "c2c_gb_per_s",
                                        "tdp_w",
                                        "train_mfu",
                                        NULL};
    struct gpu_spec_row r, other;
    for (size_t i = 0; gpu_spec_at(i, &r); i++) {
        size_t k = 0;
        while (known[k] && !str_eq(known[k], r.name)) k++;
        if (!known[k]) fail_msg("%s: nobody knows what '%s' is", gpu_model_id(r.model), r.name);
        assert_true(strlen(r.source) > 10);
        for (k = i + 1; gpu_spec_at(k, &other); k++) assert_false(r.model == other.model && str_eq(r.name, other.name));
    }
    const struct gpu_model *h100 = gpu_model_find(0x2330, 0);
    assert_true(gpu_model_spec(h100, "memory_gb_per_s") == 3350);
    assert_true(gpu_model_spec(h100, "nvlink_links") == 18);
    assert_true(gpu_model_spec(gpu_model_find(0x20b2, 0), "nvlink_links") == 12); /* like the 40 GB one */
    assert_true(gpu_model_spec(h100, "parking_lots") < 0);
}

static void names_as_people_write_them(void **state) {
    (void)state;
    static const struct {
        const char *text, *id;
    } cases[] = {{"H100", "h100-sxm5-80"},
                 {"nvidia-h100-80gb", "h100-sxm5-80"},
                 {"NVIDIA H100 80GB HBM3", "h100-sxm5-80"},
                 {"H100 NVL", "h100-nvl"},
                 {"NVIDIA H100 PCIe", "h100-pcie"},
                 {"A100-80GB", "a100-sxm4-80"},
                 {"NVIDIA A100-SXM4-80GB", "a100-sxm4-80"},
                 {"NVIDIA A100 80GB PCIe", "a100-pcie-80"},
                 {"Tesla T4", "t4"},
                 {"Tesla V100-SXM2-32GB", "v100-sxm2-32"},
                 {"NVIDIA GeForce RTX 4090", "rtx-4090"},
                 {"NVIDIA L40S", "l40s"},
                 {"L40", "l40"},
                 {"NVIDIA B200", "b200-sxm"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        const struct gpu_model *m = gpu_model_named(cases[i].text);
        if (!m || !str_eq(gpu_model_id(m), cases[i].id))
            fail_msg("'%s' is taken for %s", cases[i].text, m ? gpu_model_id(m) : "nothing");
    }
    /* one short name, several models */
    assert_true(gpu_model_is(gpu_model_find(0x2331, 0), "H100"));
    assert_true(gpu_model_is(gpu_model_find(0x20f1, 0), "a100"));
    assert_false(gpu_model_is(gpu_model_find(0x20f1, 0), "A100-80GB"));
    assert_false(gpu_model_is(gpu_model_find(0x2335, 0), "H100"));
    assert_false(gpu_model_is(gpu_model_find(0x26b9, 0), "L40"));
    assert_null(gpu_model_named("H1000"));
    assert_null(gpu_model_named(""));
    assert_null(gpu_model_named("NVIDIA"));
}

static double busbw(const struct gpu_model *m, int gpus, int64_t mib, bool nvls) {
    struct gpu_figure f = {.measured = -1};
    struct gpu_figure_key key = {
        .check = "nccl.bandwidth", .metric = "busbw", .gpus = gpus, .bytes = mib << 20, .nvls = nvls};
    return gpu_model_figure(m, &key, &f) ? f.measured : -1;
}

static void like_is_compared_with_like(void **state) {
    (void)state;
    const struct gpu_model *h200 = gpu_model_find(0x2335, 0);
    assert_true(busbw(h200, 8, 16 << 10, true) == 480);
    assert_true(busbw(h200, 8, 32 << 10, true) == 480); /* larger than any that was measured */
    assert_true(busbw(h200, 8, 300, true) == 436.15);   /* the nearest size below */
    assert_true(busbw(h200, 8, 16, true) < 0);          /* below all: unrated */
    assert_true(busbw(h200, 8, 16 << 10, false) == 367.2);
    assert_true(busbw(h200, 6, 8 << 10, true) == 435.6);
    assert_true(busbw(h200, 3, 8 << 10, true) < 0);
    assert_true(busbw(gpu_model_find(0x20b0, 0), 8, 1 << 10, false) == 229.04); /* no NVLS on it: any */
    assert_true(busbw(gpu_model_find(0x20b2, 0), 8, 1 << 10, true) == 229.04);
}

static void limits_of_measured_and_published_figures(void **state) {
    (void)state;
    const struct gpu_model *h100 = gpu_model_find(0x2330, 0);
    struct gpu_figure f;
    struct gpu_figure_key key = {.check = "gpu.bandwidth", .metric = "read"};
    assert_true(gpu_model_figure(h100, &key, &f));
    assert_float_equal(f.fail, 2544, 0.01);
    assert_float_equal(f.degraded, 2862, 0.01);
    assert_non_null(strstr(f.source, "Azure"));
    key = (struct gpu_figure_key){.check = "gpu.p2p", .metric = "worst", .gpus = 8};
    assert_true(gpu_model_figure(h100, &key, &f));
    assert_true(f.measured < 0 && f.fail == 335);
    assert_float_equal(f.degraded, 351.75, 0.01);
    key = (struct gpu_figure_key){.check = "gpu.gemm", .metric = "fp16"}; /* nobody published one: not invented */
    assert_false(gpu_model_figure(h100, &key, &f));
    /* a bridge that may not be there is no reason to fail a card */
    key = (struct gpu_figure_key){.check = "gpu.p2p", .metric = "worst", .gpus = 2};
    assert_false(gpu_model_figure(gpu_model_find(0x20b5, 0), &key, &f));
    key.nvlink = true;
    assert_true(gpu_model_figure(gpu_model_find(0x20b5, 0), &key, &f));
}

/* DCGM's table (nvvs/diag-skus.yaml.in) has these minimum bandwidths, MB/s. */
static void dead_entries_are_found(void **state) {
    (void)state;
    static const struct {
        const char *what;
        unsigned device;
        double mb_per_s;
        bool low;
    } dead[] = {{"H200: a slip of unit", 0x2335, 2333, true},
                {"L40: a digit dropped", 0x26b5, 49050, true},
                {"A100-40: a digit dropped", 0x20b0, 137500, true},
                {"A100-40: what it was made of", 0x20b0, 1830000, false},
                {"H100-64: a digit dropped", 0x2337, 122250, true},
                {"PG502-20x: a digit dropped", 0x2336, 127500, true},
                {"GB200: a third of the data sheet", 0x2941, 2602500, true},
                {"A10: above the data sheet", 0x2236, 640700, false}};
    struct gpu_figure_key key = {.check = "gpu.bandwidth", .metric = "read"};
    for (size_t i = 0; i < GP_ARRAY_LEN(dead); i++) {
        const struct gpu_model *m = gpu_model_find(dead[i].device, 0);
        char why[300] = "";
        if (!m || gpu_figure_plausible(m, &key, dead[i].mb_per_s / 1000, why, sizeof why))
            fail_msg("%s was not found", dead[i].what);
        assert_non_null(strstr(why, dead[i].low ? "pass every broken GPU" : "fail every sound GPU"));
    }
    /* and one that this table was offered: 335 GB/s over a bridge of 300 */
    key = (struct gpu_figure_key){.check = "gpu.p2p", .metric = "worst", .gpus = 2, .nvlink = true};
    char why[300] = "";
    assert_false(gpu_figure_plausible(gpu_model_find(0x2321, 0), &key, 335, why, sizeof why));
}

/* What code asks for by flag stands in exactly one row, and kept reports know that one by its name. */
static void flags_of_checks(void **state) {
    (void)state;
    int identifies = 0, products = 0;
    for (const struct check_info *c = check_table; c->id; c++) {
        identifies += c->identifies;
        products += c->products;
        if (c->identifies) assert_string_equal(c->id, REPORT_IDENTITY_CHECK);
        for (size_t i = 0; i < GP_ARRAY_LEN(c->metrics) && c->metrics[i].name; i++)
            if (c->metrics[i].by_model != (c->metrics[i].sheet != NULL))
                fail_msg("%s.%s: by_model and sheet go together", c->id, c->metrics[i].name);
    }
    assert_int_equal(identifies, 1);
    assert_int_equal(products, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_is_plausible),
        cmocka_unit_test(every_row_judges_as_it_was_measured),
        cmocka_unit_test(judged_wrong_before),
        cmocka_unit_test(figures_are_unique),
        cmocka_unit_test(figures_are_the_checks),
        cmocka_unit_test(ids_are_unique),
        cmocka_unit_test(a_subsystem_goes_first),
        cmocka_unit_test(spec_values_have_known_names),
        cmocka_unit_test(names_as_people_write_them),
        cmocka_unit_test(like_is_compared_with_like),
        cmocka_unit_test(limits_of_measured_and_published_figures),
        cmocka_unit_test(dead_entries_are_found),
        cmocka_unit_test(flags_of_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

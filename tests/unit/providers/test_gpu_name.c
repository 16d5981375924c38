/* SPDX-License-Identifier: Apache-2.0 */
/* Clouds' names of GPUs, as their APIs and price lists have them, against the GPU model table. */
#include "base/gp_base.h"

#include "providers/common/gpu_name.h"
#include "validate/suite/models.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_known(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        /* drivers and RunPod */
        {"NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"},
        {"NVIDIA H100 PCIe", "H100 PCIe 80GB"},
        {"NVIDIA H100 NVL", "H100 NVL 94GB"},
        {"NVIDIA H200", "H200"},
        {"NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"},
        {"A100-SXM4-80GB", "A100 SXM4 80GB"},
        {"NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"},
        {"NVIDIA L40S", "L40S 48GB"},
        {"NVIDIA L4", "L4 24GB"},
        {"NVIDIA GeForce RTX 4090", "GeForce RTX 4090 24GB"},
        {"Tesla V100-SXM2-16GB", "V100 SXM2 16GB"},
        {"V100 SXM2 32GB", "V100 SXM2 32GB"},
        {"NVIDIA B200", "B200 SXM 180GB"},
        {"NVIDIA B300 SXM6 AC", "B300 SXM 288GB"},
        {"H100 SXM", "H100 SXM5 80GB"},
        {"H200 SXM", "H200 SXM 141GB"},
        /* GCP */
        {"nvidia-tesla-t4", "T4 16GB"},
        {"nvidia-l4", "L4 24GB"},
        {"nvidia-tesla-a100", "A100"},
        {"nvidia-a100-80gb", "A100-80GB"},
        {"nvidia-h100-80gb", "H100-80GB"},
        {"nvidia-h100-mega-80gb", "H100-80GB"},
        {"nvidia-h200-141gb", "H200-141GB"},
        {"nvidia-tesla-v100", "V100"},
        {"nvidia-gb200", "GB200 186GB"},
        /* Lambda: descriptions and types without their first word */
        {"8x_a100_80gb_sxm4", "A100 SXM4 80GB"},
        {"8x_a100_80gb", "A100-80GB"},
        {"1x_h100_pcie", "H100 PCIe 80GB"},
        {"gpu_8x_h100_sxm5", "H100 SXM5 80GB"},
        {"H100 (80 GB SXM5)", "H100 SXM5 80GB"},
        {"A100 (40 GB PCIe)", "A100 PCIe 40GB"},
        {"A10 (24 GB PCIe)", "A10 24GB"},
        {"1x_gh200", "GH200 96GB"},
        /* AWS, Alibaba, Azure */
        {"A10G", "A10G 24GB"},
        {"NVIDIA A10", "A10 24GB"},
        {"H100", "H100"},
        {"V100-32GB", "V100-32GB"},
        {"H100-NVL", "H100 NVL 94GB"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        char got[64] = "";
        bool known = gpu_name_known(rows[i][0], got, sizeof got);
        if (!known || strcmp(got, rows[i][1]) != 0) fail_msg("'%s': '%s', not '%s'", rows[i][0], got, rows[i][1]);
        assert_non_null(gpu_model_named(got)); /* what the node is checked against */
    }
}

/* Names of other GPUs, of parts of one, and of none. */
static void test_unknown(void **state) {
    (void)state;
    static const char *const names[] = {"",
                                        "NVIDIA",
                                        "GPU",
                                        "80GB",
                                        "H1000",
                                        "T4g",
                                        "A1000",
                                        "H100-99GB",
                                        "A100 NVL",
                                        "L4 SXM4",
                                        "A10 vGPU",
                                        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
                                        "PRO 6000 MIG 24GB",
                                        "AMD Instinct MI300X OAM",
                                        "Radeon Pro V520",
                                        "RTX PRO Server 6000",
                                        "NVIDIA RTX 6000 Ada Generation",
                                        "RTX A6000",
                                        "nvidia-tesla-p100",
                                        "H100 H200",
                                        "Tesla K80"};
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        char got[64] = "";
        if (gpu_name_known(names[i], got, sizeof got)) fail_msg("'%s' is taken for '%s'", names[i], got);
    }
}

/* Every model's own name and every name of the table is known, and never as another model. */
static void test_the_table_itself(void **state) {
    (void)state;
    const struct gpu_model *m = NULL;
    for (size_t i = 0; (m = gpu_model_at(i)) != NULL; i++) {
        char got[64] = "";
        const char *alias = NULL;
        if (!gpu_name_known(gpu_model_name(m), got, sizeof got) || !gpu_model_is(m, got))
            fail_msg("'%s' is taken for '%s'", gpu_model_name(m), got);
        for (size_t k = 0; (alias = gpu_model_alias(m, k)) != NULL; k++)
            if (!gpu_name_known(alias, got, sizeof got) || gpu_model_named(got) == NULL)
                fail_msg("'%s' is taken for '%s'", alias, got);
    }
}

static void test_parts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        struct gpu_name want;
    } rows[] = {
        {"8x_a100_80gb_sxm4", {"A100", "SXM4", 80, 8}},
        {"A100-80G", {"A100", "", 80, 0}},
        {"RTX PRO Server 6000", {"RTXPRO6000", "", 0, 0}},
        {"RTX 4090", {"RTX4090", "", 0, 0}},
        {"H100 80 GiB PCIe", {"H100", "PCIE", 80, 0}},
        {"H100 SXMX", {"H100SXMX", "", 0, 0}},
        {"80GB", {"80GB", "", 0, 0}},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct gpu_name got;
        gpu_name_parse(rows[i].text, &got);
        assert_string_equal(got.model, rows[i].want.model);
        assert_string_equal(got.form, rows[i].want.form);
        assert_int_equal(got.memory_gb, rows[i].want.memory_gb);
        assert_int_equal(got.count, rows[i].want.count);
    }
    struct gpu_name sxm, pcie, bare;
    gpu_name_parse("H100 SXM5", &sxm);
    gpu_name_parse("H100 PCIe", &pcie);
    gpu_name_parse("H100", &bare);
    assert_true(gpu_name_same(&sxm, &bare) && gpu_name_same(&pcie, &pcie));
    assert_false(gpu_name_same(&pcie, &bare) || gpu_name_same(&pcie, &sxm));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_the_table_itself),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests_name("gpu names", tests, NULL, NULL);
}

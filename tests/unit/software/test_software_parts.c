/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around the solver: architectures of GPUs, package names, containers, and the comparison of what came with
 * what was wanted. */
#include "base/gp_base.h"

#include "software/software.h"
#include "validate/suite/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct software_wish wish_for(const char *gpu, const char *os) {
    struct software_wish w = {.os = os, .gpus = 8, .nvswitches = -1};
    if (gpu != NULL) assert_true(software_gpu_named(gpu, &w.gpu));
    return w;
}

static struct software_set solved(const struct software_wish *w) {
    struct software_set s = {0};
    struct software_clashes c = {0};
    if (software_solve(w, &s, &c) != 0) fail_msg("refused: %s", c.at[0].facts);
    return s;
}

/* --- GPUs --- */

static void names_of_gpus(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int cc;
        bool grace, nvl72;
    } rows[] = {{"H100", 90, false, false},
                {"NVIDIA H100 80GB HBM3", 90, false, false},
                {"nvidia-tesla-v100", 70, false, false},
                {"Tesla T4", 75, false, false},
                {"A100-SXM4-80GB", 80, false, false},
                {"NVIDIA A10G", 86, false, false},
                {"A10", 86, false, false},
                {"L40S", 89, false, false},
                {"L4", 89, false, false},
                {"GH200 480GB", 90, true, false},
                {"B200", 100, false, false},
                {"GB200 NVL72", 100, true, true},
                {"GB300", 103, true, true},
                {"NVIDIA GeForce RTX 4090", 89, false, false},
                {"P100", 60, false, false},
                {"P40", 61, false, false}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_gpu g = {0};
        if (!software_gpu_named(rows[i].name, &g)) fail_msg("%s is not known", rows[i].name);
        if (g.cc != rows[i].cc || g.grace != rows[i].grace || g.nvl72 != rows[i].nvl72)
            fail_msg("%s: sm_%d", rows[i].name, g.cc);
    }
    struct software_gpu g = {0};
    assert_false(software_gpu_named("MI300X", &g));
    assert_false(software_gpu_named("", &g));
    assert_false(software_gpu_named("GA1000", &g));
}

static void pci_ids_of_gpus(void **state) {
    (void)state;
    static const struct {
        unsigned id;
        int cc, nvswitch;
    } rows[] = {{0x1db1, 70, 0},  {0x1eb8, 75, 0},  {0x20b0, 80, -1}, {0x20b2, 80, -1}, {0x20b5, 80, 0},
                {0x20f1, 80, 0},  {0x2236, 86, 0},  {0x2237, 86, 0},  {0x27b8, 89, 0},  {0x26b9, 89, 0},
                {0x2330, 90, -1}, {0x2331, 90, 0},  {0x2321, 90, 0},  {0x2335, 90, -1}, {0x233b, 90, 0},
                {0x2342, 90, 0},  {0x2901, 100, 1}, {0x2941, 100, 0}, {0x3182, 103, 1}, {0x31c2, 103, 0},
                {0x2684, 89, 0},  {0x2b85, 120, 0}, {0x15f8, 60, 0}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_gpu g = {0};
        if (!software_gpu_pci(rows[i].id, &g)) fail_msg("%04x is not known", rows[i].id);
        if (g.cc != rows[i].cc || g.nvswitch != rows[i].nvswitch)
            fail_msg("%04x: sm_%d, nvswitch %d", rows[i].id, g.cc, g.nvswitch);
    }
    struct software_gpu g = {0};
    assert_false(software_gpu_pci(0x0fc0, &g));
    assert_false(software_gpu_pci(0xffff, &g));
}

/* The table of models knows the same architectures, by each name and each PCI id. */
static void as_the_table_of_models(void **state) {
    (void)state;
    const struct gpu_model *m = NULL;
    for (size_t i = 0; (m = gpu_model_at(i)) != NULL; i++) {
        int cc = (int)(gpu_model_spec(m, "cc") * 10 + 0.5);
        const char *alias = NULL;
        for (size_t k = 0; (alias = gpu_model_alias(m, k)) != NULL; k++) {
            struct software_gpu g = {0};
            if (!software_gpu_named(alias, &g)) fail_msg("%s is not known", alias);
            if (g.cc != cc) fail_msg("%s: sm_%d, not sm_%d", alias, g.cc, cc);
        }
    }
    unsigned device = 0, subsystem = 0;
    for (size_t i = 0; gpu_pci_at(i, &m, &device, &subsystem); i++) {
        struct software_gpu g = {0};
        if (!software_gpu_pci(device, &g)) fail_msg("%04x is not known", device);
        if (g.cc != (int)(gpu_model_spec(m, "cc") * 10 + 0.5)) fail_msg("%04x: sm_%d", device, g.cc);
    }
}

/* --- packages --- */

static void package_names(void **state) {
    (void)state;
    static const struct {
        const char *gpu, *os, *driver, *flavour, *source, *cuda;
        enum software_part part;
        const char *names;
    } rows[] = {
        {"H100", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_PIN, "nvidia-driver-pinning-580"},
        {"H100", "ubuntu-24.04", "590.48.01", NULL, NULL, NULL, SOFTWARE_PART_PIN, "nvidia-driver-pinning-590.48.01"},
        {"H100", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_DRIVER, "nvidia-open"},
        {"V100", "ubuntu-22.04", "580", NULL, NULL, NULL, SOFTWARE_PART_DRIVER, "cuda-drivers"},
        {"V100", "ubuntu-22.04", "550", NULL, NULL, NULL, SOFTWARE_PART_DRIVER, "cuda-drivers-550"},
        {"V100", "ubuntu-22.04", "550", NULL, NULL, NULL, SOFTWARE_PART_PIN, ""},
        {"H100", "ubuntu-24.04", "580", NULL, "distro", NULL, SOFTWARE_PART_DRIVER,
         "nvidia-driver-580-server-open nvidia-utils-580-server"},
        {"H100", "debian-12", "535", NULL, "distro", "none", SOFTWARE_PART_DRIVER,
         "nvidia-kernel-dkms nvidia-smi libcuda1"},
        {"H100", "rhel-9.4", "580", NULL, NULL, NULL, SOFTWARE_PART_DRIVER, "nvidia-open"},
        {"H100", "rhel-9.4", "580", NULL, NULL, NULL, SOFTWARE_PART_PIN, ""},
        {"B200", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_FABRIC, "nvidia-fabricmanager"},
        {"B200", "ubuntu-24.04", "570", NULL, NULL, NULL, SOFTWARE_PART_FABRIC, "nvidia-fabricmanager-570"},
        {"B200", "rhel-9.4", "570", NULL, NULL, NULL, SOFTWARE_PART_FABRIC, "nvidia-fabric-manager"},
        {"L4", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_FABRIC, ""},
        {"B200", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_NVLSM, "nvlsm infiniband-diags"},
        {"B300", "rhel-9.4", "580", NULL, NULL, NULL, SOFTWARE_PART_NVLSM, "nvlsm infiniband-diags"},
        {"B200", "ubuntu-24.04", "none", NULL, NULL, NULL, SOFTWARE_PART_NVLSM, ""},
        {"H100", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_NVLSM, ""},
        {"GB200", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_NVLSM, ""},
        {"GB200", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_IMEX, "nvidia-imex"},
        {"GB200", "ubuntu-24.04", "570", NULL, NULL, NULL, SOFTWARE_PART_IMEX, "nvidia-imex-570"},
        {"H100", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_CUDA_RUNTIME, "cuda-libraries-13-0"},
        {"H100", "rhel-9.4", "580", NULL, NULL, "12.8", SOFTWARE_PART_CUDA_TOOLKIT, "cuda-toolkit-12-8"},
        {"H100", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_CUDNN, "libcudnn9-cuda-13"},
        {"V100", "ubuntu-22.04", "580", NULL, NULL, NULL, SOFTWARE_PART_CUDNN, "libcudnn9-cuda-12"},
        {"H100", "ubuntu-24.04", "580", NULL, NULL, NULL, SOFTWARE_PART_NCCL, "libnccl2=2.30.7-1+cuda13.3"},
        {"V100", "rhel-9.4", "580", NULL, NULL, NULL, SOFTWARE_PART_NCCL, "libnccl-2.30.7-1+cuda12.9"},
        {"H100", "ubuntu-24.04", "none", NULL, NULL, NULL, SOFTWARE_PART_DRIVER, ""},
        {"H100", "ubuntu-24.04", NULL, NULL, NULL, "none", SOFTWARE_PART_CUDA_RUNTIME, ""},
        {"H100", "ubuntu-24.04", NULL, NULL, NULL, NULL, SOFTWARE_PART_CONTAINER, "nvidia-container-toolkit"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_wish w = wish_for(rows[i].gpu, rows[i].os);
        w.driver = rows[i].driver, w.flavour = rows[i].flavour, w.source = rows[i].source, w.cuda = rows[i].cuda;
        GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
        GP_AUTO_STRV struct strv names = {0};
        software_packages(&s, rows[i].part, &names);
        GP_AUTO_FREE char *text = strv_join(&names, " ");
        if (!str_eq(text, rows[i].names)) fail_msg("row %zu: '%s', not '%s'", i, text, rows[i].names);
    }
}

static void module_streams(void **state) {
    (void)state;
    static const char *const rows[][4] = {{"H100", "rhel-9.4", "580", "580-open"},
                                          {"V100", "rhel-8.10", "580", "580-dkms"},
                                          {"H100", "amzn-2023", "580", "580-open"},
                                          {"H100", "rhel-10.1", "580", ""},
                                          {"H100", "ubuntu-24.04", "580", ""}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_wish w = wish_for(rows[i][0], rows[i][1]);
        char stream[24];
        w.driver = rows[i][2];
        GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
        software_module_stream(&s, stream, sizeof stream);
        assert_string_equal(stream, rows[i][3]);
    }
}

/* NVSwitch: by the facts of the node where there are any, else by the model. */
static void fabric(void **state) {
    (void)state;
    static const struct {
        const char *gpu, *text;
        int gpus, nvswitches;
        bool nvlsm;
    } rows[] = {{"H100", "if an NVSwitch is found", 8, -1, false},
                {"H100", "yes", 8, 4, false},
                {"H100", "no", 8, 0, false},
                {"H100", "no", 1, -1, false},
                {"H200", "yes", 8, 4, false},
                {"B200", "yes", 8, -1, true},
                {"B200", "no", 8, 0, false},
                {"B300", "yes", 8, -1, true},
                {"L40S", "no", 8, -1, false},
                {"GB200", "yes", 4, 2, false},
                {"GB200", "no", 4, -1, false}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_wish w = wish_for(rows[i].gpu, "ubuntu-24.04");
        w.gpus = rows[i].gpus, w.nvswitches = rows[i].nvswitches;
        GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
        assert_string_equal(s.fabric.text, rows[i].text);
        assert_int_equal(s.fabric_manager[0] != '\0', strcmp(rows[i].text, "no") != 0);
        assert_int_equal(s.nvlsm, rows[i].nvlsm);
    }
}

/* --- comparison --- */

static void comparison(void **state) {
    (void)state;
    struct software_wish w = wish_for("B200", "ubuntu-24.04");
    w.driver = "580", w.kernel = "7.0.0-1011-gcp", w.cuda = "13.0", w.nccl = "2.28.9";
    GP_AUTO_SOFTWARE_SET struct software_set want = solved(&w);
    static const struct {
        struct software_found found;
        const char *lines;
    } rows[] = {
        {{.driver = "580.159.04",
          .flavour = "open",
          .cuda = "13.0",
          .cudnn = "9.17.0",
          .nccl = "2.28.9",
          .fabric_manager = "580.159.04"},
         ""},
        {{.driver = NULL}, ""},
        {{.driver = "575.57.08"}, "driver: 575.57.08 was found, branch 580 is wanted"},
        {{.driver = ""}, "driver: none was found, branch 580 is wanted"},
        {{.driver = "580.95.05"}, "driver: 580.95.05 was found, 580.159.03 or later is wanted"},
        {{.driver = "580.159.04", .flavour = "proprietary"}, "kernel modules: proprietary was found, open is wanted"},
        {{.driver = "580.159.04", .fabric_manager = "580.159.03"},
         "fabric manager: 580.159.03 was found, the driver's version 580.159.04 is wanted"},
        {{.driver = "580.159.04", .fabric_manager = ""},
         "fabric manager: none was found, the driver's version 580.159.04 is wanted"},
        {{.cuda = "12.9", .nccl = "2.27.7"},
         "CUDA: 12.9 was found, 13.0 is wanted\nNCCL: 2.27.7 was found, 2.28.9 is wanted"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_STRV struct strv lines = {0};
        size_t n = software_compare(&want, &rows[i].found, &lines);
        GP_AUTO_FREE char *text = strv_join(&lines, "\n");
        assert_int_equal(n, lines.n);
        if (!str_eq(text, rows[i].lines)) fail_msg("row %zu: '%s', not '%s'", i, text, rows[i].lines);
    }
    /* nvidia-driver-570-server-open of Ubuntu installs 580: dstack #3967 */
    struct software_wish older = wish_for("H100", "ubuntu-24.04");
    older.driver = "570";
    GP_AUTO_SOFTWARE_SET struct software_set wanted = solved(&older);
    GP_AUTO_STRV struct strv came = {0};
    struct software_found other = {.driver = "580.159.03"};
    assert_int_equal(software_compare(&wanted, &other, &came), 1);
    assert_string_equal(came.v[0], "driver: 580.159.03 was found, branch 570 is wanted");

    w.driver = "580.159.04";
    GP_AUTO_SOFTWARE_SET struct software_set exact = solved(&w);
    GP_AUTO_STRV struct strv lines = {0};
    struct software_found later = {.driver = "580.173.02"};
    assert_int_equal(software_compare(&exact, &later, &lines), 1);
    assert_string_equal(lines.v[0], "driver: 580.173.02 was found, 580.159.04 is wanted");
}

/* Images that start nowhere, or only with help: dstack #4007, runpodctl #253, gpustack #1254. */
static void containers(void **state) {
    (void)state;
    static const struct {
        const char *driver, *cuda, *gpu;
        enum software_container runs;
        const char *why;
    } rows[] = {
        {"580.65.06", "13.0", "H100", SOFTWARE_CONTAINER_RUNS, ""},
        {"580.65.06", "13.2", "H100", SOFTWARE_CONTAINER_RUNS, ""},
        {"620.70.06", "11.8", "H100", SOFTWARE_CONTAINER_RUNS, ""},
        {"535.183.01", "12.9", NULL, SOFTWARE_CONTAINER_RUNS, ""},
        {"550.90.07", "13.0", "A100", SOFTWARE_CONTAINER_COMPAT,
         "the image has cuda-compat and the container toolkit is"},
        {"525.60.13", "13.0", "A100", SOFTWARE_CONTAINER_NOT, "or 535 with the package cuda-compat"},
        {"550.90.07", "13.0", "NVIDIA GeForce RTX 4090", SOFTWARE_CONTAINER_NOT, "(error 804)"},
        {"580.65.06", "13.0", "V100", SOFTWARE_CONTAINER_NOT, "CUDA 13 has no code for Volta GPUs (sm_70)"},
        {"580.65.06", "14.0", "H100", SOFTWARE_CONTAINER_UNKNOWN, "not in the table"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_gpu g = {0};
        char why[300];
        if (rows[i].gpu != NULL) assert_true(software_gpu_named(rows[i].gpu, &g));
        enum software_container runs = software_container_runs(rows[i].driver, rows[i].cuda, &g, why, sizeof why);
        if (runs != rows[i].runs || strstr(why, rows[i].why) == NULL || (rows[i].why[0] == '\0' && why[0] != '\0'))
            fail_msg("row %zu: %d '%s'", i, (int)runs, why);
    }
}

/* The CUDA of an image is read from its name. */
static void images(void **state) {
    (void)state;
    static const struct {
        const char *image, *driver, *gpu;
        enum software_container runs;
    } rows[] = {
        {"nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04", "580", "V100", SOFTWARE_CONTAINER_NOT},
        {"nvidia/cuda:13.0.1-base-ubuntu24.04", "none", "V100", SOFTWARE_CONTAINER_NOT},
        {"registry.example:5000/nvidia/cuda:13.0@sha256:00", "580", "V100", SOFTWARE_CONTAINER_NOT},
        {"pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime", "580", "V100", SOFTWARE_CONTAINER_NOT},
        {"pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime", "580", "V100", SOFTWARE_CONTAINER_RUNS},
        {"nvidia/cuda:13.0.1-base-ubuntu24.04", "570", "H100", SOFTWARE_CONTAINER_COMPAT},
        {"nvidia/cuda:13.0.1-base-ubuntu24.04", "580", "H100", SOFTWARE_CONTAINER_RUNS},
        {"nvidia/cuda:13.0.1-base-ubuntu24.04", "none", "H100", SOFTWARE_CONTAINER_RUNS},
        {"nvidia/cuda:14.0.0-base", "580", "H100", SOFTWARE_CONTAINER_UNKNOWN},
        {"nvidia/cuda@sha256:13", "580", "V100", SOFTWARE_CONTAINER_RUNS}, /* without a tag nothing is known */
        {"mynvidia/cuda:13.0", "580", "V100", SOFTWARE_CONTAINER_RUNS},
        {"registry.example:5000/job", "580", "V100", SOFTWARE_CONTAINER_RUNS},
        {"docker.io/library/busybox:1.36", "580", "V100", SOFTWARE_CONTAINER_RUNS},
        {"job:cuda", "580", "V100", SOFTWARE_CONTAINER_RUNS},
        {"cuda:13", "580", "V100", SOFTWARE_CONTAINER_RUNS},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_wish w = {.driver = rows[i].driver, .os = "ubuntu-24.04", .nvswitches = -1};
        GP_AUTO_SOFTWARE_SET struct software_set set = {0};
        char why[300];
        assert_true(software_gpu_named(rows[i].gpu, &w.gpu));
        assert_int_equal(software_solve(&w, &set, NULL), 0);
        enum software_container runs = software_image_runs(rows[i].image, &set, &w.gpu, why, sizeof why);
        if (runs != rows[i].runs) fail_msg("row %zu: %d '%s'", i, (int)runs, why);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_gpus), cmocka_unit_test(pci_ids_of_gpus), cmocka_unit_test(as_the_table_of_models),
        cmocka_unit_test(package_names), cmocka_unit_test(module_streams),  cmocka_unit_test(fabric),
        cmocka_unit_test(comparison),    cmocka_unit_test(containers),      cmocka_unit_test(images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

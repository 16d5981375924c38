/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, and the answers and refusals that people meet. test_software_all.c tries everything. */
#include "base/gp_base.h"

#include "base/error.h"
#include "base/fs.h"
#include "software/rows.h"

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

static const char *value(const struct software_set *s, enum software_key k) { return s->at[k].text; }

/* --- tables --- */

static void sourced(const char *row, const char *source) {
    if (source == NULL || strlen(source) < 10) fail_msg("row %s has no source", row);
}

static void tables(void **state) {
    (void)state;
    for (const struct branch_row *b = software_branches; b->name != NULL; b++) {
        sourced(b->name, b->source);
        assert_true(software_version_is(b->first, b->name));
        assert_true(b->cc_min <= b->cc_max && (b->open || b->proprietary));
        if (b[1].name != NULL) assert_true(software_version_compare(b->name, b[1].name) > 0);
    }
    for (const struct cuda_row *c = software_cudas; c->name != NULL; c++) {
        sourced(c->name, c->source);
        if (software_branch_of(c->driver) == NULL) fail_msg("CUDA %s: driver %s is no row", c->name, c->driver);
        if (c[1].name != NULL) assert_true(software_version_compare(c->name, c[1].name) > 0);
    }
    for (const struct cudnn_row *c = software_cudnns; c->name != NULL; c++) {
        sourced(c->name, c->source);
        assert_true(software_version_is(c->package, c->name));
    }
    for (const struct nccl_row *n = software_nccls; n->name != NULL; n++) sourced(n->name, n->source);
    for (const struct torch_row *t = software_torches; t->name != NULL; t++) {
        sourced(t->name, t->source);
        char tag[16];
        snprintf(tag, sizeof tag, "cu%.2s%s", t->cuda, t->cuda + 3);
        assert_string_equal(tag, t->tag);
        if (t[1].name != NULL) assert_true(software_version_compare(t->name, t[1].name) >= 0);
    }
    for (const struct os_row *o = software_systems; o->name != NULL; o++) {
        sourced(o->name, o->source);
        assert_ptr_equal(software_system(o->name), o);
    }
    for (const struct framework_row *f = software_frameworks; f->name != NULL; f++) sourced(f->name, f->source);
    for (const struct kernel_row *k = software_kernels; k->name != NULL; k++) {
        sourced(k->name, k->source);
        if (software_branch_of(k->branch) == NULL) fail_msg("kernel %s: branch %s is no row", k->name, k->branch);
        if (k->fixed != NULL) assert_true(software_version_is(k->fixed, k->branch));
    }
}

static void page(void **state) {
    (void)state;
    GP_AUTO_FREE char *text = software_markdown();
    GP_AUTO_STR struct str kept = {0};
    struct gp_error err = {0};
    if (getenv("UPDATE_GOLDEN"))
        assert_int_equal(fs_write_atomic("docs/software.md", text, strlen(text), 0644, &err), 0);
    if (fs_read("docs/software.md", 1 << 20, &kept, &err) < 0) fail_msg("%s", err.msg);
    if (!str_eq(kept.s, text)) fail_msg("docs/software.md is not what the tables have: run 'make docs'");
}

static void versions(void **state) {
    (void)state;
    assert_true(software_version_compare("580.65.06", "580.119.02") < 0);
    assert_true(software_version_compare("9.10.2", "9.9") > 0);
    assert_int_equal(software_version_compare("12.9", "12.9.0"), 0);
    assert_int_equal(software_version_compare("7.0.0-1011-gcp", "7.0.0-1011"), 0);
    assert_true(software_version_is("9.10.2", "9.10"));
    assert_false(software_version_is("9.10.2", "9.1"));
    assert_false(software_version_is("5800", "580"));
    assert_false(software_version_is("580.65.06", ""));
}

static void systems(void **state) {
    (void)state;
    static const char *const same[][2] = {{"rocky-9.4", "rhel-9"},   {"almalinux-8.10", "rhel-8"}, {"ol-9.5", "rhel-9"},
                                          {"rhel-10", "rhel-10"},    {"amzn-2023", "amzn-2023"},   {"amzn-2", "amzn-2"},
                                          {"debian-12", "debian-12"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(same); i++) {
        const struct os_row *o = software_system(same[i][0]);
        assert_non_null(o);
        assert_string_equal(o->name, same[i][1]);
    }
    assert_null(software_system("arch-rolling"));
    assert_null(software_system("ubuntu-24.10"));
    assert_null(software_system(NULL));
}

/* --- answers --- */

static void newest(void **state) {
    (void)state;
    static const struct {
        const char *gpu, *os, *kernel, *driver, *flavour, *cuda, *torch, *minimum;
    } rows[] = {
        {"H100", "ubuntu-24.04", "6.8.0-1020-aws", "620", "open", "13.3", "cu132", "620.70.06"},
        {"V100", "ubuntu-22.04", "5.15.0-100", "580", "proprietary", "12.9", "cu126", "580.65.06"},
        {"V100", "ubuntu-24.04", "7.0.0-1011-gcp", "580", "proprietary", "12.9", "cu126", "580.159.03"},
        {"P100", "ubuntu-20.04", NULL, "575", "proprietary", "12.9", "cu126", "575.51.03"},
        {"GB200", "ubuntu-24.04", NULL, "620", "open", "13.3", "cu132", "620.70.06"},
        {"T4", "amzn-2023", "6.1.0", "620", "open", "13.3", "cu132", "620.70.06"},
        {"V100", "debian-13", NULL, "580", "proprietary", "", "cu126", "580.65.06"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct software_wish w = wish_for(rows[i].gpu, rows[i].os);
        w.kernel = rows[i].kernel;
        GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
        assert_string_equal(value(&s, SOFTWARE_DRIVER), rows[i].driver);
        assert_string_equal(value(&s, SOFTWARE_FLAVOUR), rows[i].flavour);
        assert_string_equal(value(&s, SOFTWARE_CUDA), rows[i].cuda);
        assert_string_equal(s.torch_tag, rows[i].torch);
        assert_string_equal(s.driver_minimum, rows[i].minimum);
    }
}

static void reasons(void **state) {
    (void)state;
    struct software_wish w = wish_for("V100", "ubuntu-22.04");
    GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
    assert_string_equal(
        s.at[SOFTWARE_DRIVER].why,
        "the newest that fits; not driver 590, because branch 580 is the last one that drives Volta GPUs");
    assert_non_null(strstr(s.at[SOFTWARE_CUDA].why, "not CUDA 13.0, because CUDA 12.9 is the last one"));
    assert_non_null(strstr(s.at[SOFTWARE_CUDNN].why, "not cuDNN 9.17.0, because"));
    w.driver = "580";
    w.cuda = "none";
    GP_AUTO_SOFTWARE_SET struct software_set t = solved(&w);
    assert_string_equal(t.at[SOFTWARE_DRIVER].why, "the spec has it");
    assert_string_equal(t.at[SOFTWARE_CUDA].why, "it is left alone");
    assert_string_equal(value(&t, SOFTWARE_CUDA), "");
}

/* CUDA of the driver's own major version works on older drivers, with limits that are told. */
static void minor_compatibility(void **state) {
    (void)state;
    struct software_wish w = wish_for("A100", "ubuntu-22.04");
    w.driver = "535";
    {
        GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
        assert_string_equal(value(&s, SOFTWARE_CUDA), "12.2"); /* without limits */
        assert_int_equal(s.notes.n, 1);
        assert_string_equal(s.notes.v[0], "NVIDIA's updates of driver 535 (LTS) end in 2026-06");
    }
    w.cuda = "12.9";
    GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
    assert_int_equal(s.notes.n, 2);
    assert_non_null(strstr(s.notes.v[1], "PTX and newer functions need driver 575"));
}

static void a_driver_that_stays(void **state) {
    (void)state;
    struct software_wish w = wish_for("H100", "ubuntu-22.04");
    w.driver = "none";
    w.loaded = "550.90.07";
    GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
    assert_string_equal(value(&s, SOFTWARE_DRIVER), "550");
    assert_string_equal(value(&s, SOFTWARE_FLAVOUR), "");
    assert_string_equal(value(&s, SOFTWARE_CUDA), "12.4");
    w.loaded = "565.57.01"; /* a branch that is not in the table: its version still counts */
    w.torch = "auto";
    GP_AUTO_SOFTWARE_SET struct software_set t = solved(&w);
    assert_string_equal(value(&t, SOFTWARE_DRIVER), "");
    assert_string_equal(value(&t, SOFTWARE_CUDA), "12.9");
    assert_string_equal(t.torch_tag, "cu126");
    w.loaded = "470.256.02";
    GP_AUTO_SOFTWARE_SET struct software_set u = solved(&w);
    assert_string_equal(value(&u, SOFTWARE_CUDA), "11.8");
    assert_string_equal(u.torch_tag, "cu118");
    w.loaded = "999.10"; /* newer than the table */
    GP_AUTO_SOFTWARE_SET struct software_set v = solved(&w);
    assert_string_equal(value(&v, SOFTWARE_CUDA), software_cudas[0].name);
    GP_AUTO_STRV struct strv packages = {0};
    software_packages(&t, SOFTWARE_PART_DRIVER, &packages);
    assert_int_equal(packages.n, 0);
}

/* Neither on a system whose repository has no CUDA for the GPU nor with 'cuda: none'. */
static void no_library_for_a_cuda_that_is_not_there(void **state) {
    (void)state;
    struct software_wish w = wish_for("V100", "ubuntu-26.04");
    GP_AUTO_SOFTWARE_SET struct software_set s = solved(&w);
    assert_string_equal(value(&s, SOFTWARE_CUDA), "");
    assert_string_equal(value(&s, SOFTWARE_CUDNN), "");
    assert_string_equal(value(&s, SOFTWARE_NCCL), "");
    assert_string_equal(s.at[SOFTWARE_NCCL].why, "it is for a CUDA, and none is installed");
    w = wish_for("H100", "ubuntu-22.04");
    w.cuda = "none";
    GP_AUTO_SOFTWARE_SET struct software_set t = solved(&w);
    assert_string_equal(value(&t, SOFTWARE_CUDNN), "");
    w.cudnn = "9.17.0"; /* named by the spec: for the CUDA that the image has */
    GP_AUTO_SOFTWARE_SET struct software_set u = solved(&w);
    assert_string_equal(value(&u, SOFTWARE_CUDNN), "9.17.0");
    assert_string_equal(value(&u, SOFTWARE_NCCL), "");
}

/* --- refusals --- */

struct refusal {
    const char *gpu, *os, *kernel, *loaded;
    const char *driver, *flavour, *source, *cuda, *cudnn, *nccl, *torch, *tensorflow, *horovod, *deepspeed;
    const char *facts, *nearest; /* parts of one clash */
    enum software_key key;
};

static const struct refusal refusals[] = {
    {.gpu = "V100",
     .flavour = "open",
     .key = SOFTWARE_FLAVOUR,
     .facts = "GPU V100 (Volta, sm_70) and open kernel modules: open modules exist for Turing (sm_75) and later",
     .nearest = "driver 580, proprietary kernel modules"},
    {.gpu = "V100",
     .cuda = "13.0",
     .key = SOFTWARE_CUDA,
     .facts = "GPU V100 (Volta, sm_70) and CUDA 13.0: CUDA 12.9 is the last one that has code for Volta GPUs",
     .nearest = "CUDA 12.9"},
    {.gpu = "H100",
     .driver = "535",
     .cuda = "13",
     .key = SOFTWARE_DRIVER,
     .facts = "driver 535 and CUDA 13: CUDA 13 needs driver 580.65.06 or later",
     .nearest = "driver 580"},
    {.gpu = "B200",
     .driver = "550",
     .key = SOFTWARE_DRIVER,
     .facts = "GPU B200 (Blackwell, sm_100) and driver 550: Blackwell GPUs need branch 570 or later",
     .nearest = "driver 570, open kernel modules"},
    {.gpu = "B200",
     .flavour = "proprietary",
     .key = SOFTWARE_FLAVOUR,
     .facts = "and proprietary kernel modules: Blackwell GPUs need open modules",
     .nearest = "open kernel modules"},
    {.gpu = "GH200",
     .flavour = "proprietary",
     .key = SOFTWARE_FLAVOUR,
     .facts = "Grace Hopper GPUs need open modules",
     .nearest = "open kernel modules"},
    {.gpu = "H100",
     .driver = "620",
     .flavour = "proprietary",
     .key = SOFTWARE_FLAVOUR,
     .facts = "driver 620 and proprietary kernel modules: branch 620 and later have no proprietary modules",
     .nearest = "driver 620, open kernel modules"},
    {.gpu = "P100",
     .driver = "590",
     .key = SOFTWARE_DRIVER,
     .facts = "GPU P100 (Pascal, sm_60) and driver 590: branch 580 is the last one that drives Pascal GPUs",
     .nearest = "driver 580, proprietary"},
    {.gpu = "V100",
     .torch = "2.9.1+cu130",
     .key = SOFTWARE_TORCH,
     .facts = "the wheel 2.9.1+cu130 has no sm_70 code",
     .nearest = "+cu1"},
    {.gpu = "H100",
     .os = "debian-12",
     .driver = "580",
     .source = "distro",
     .key = SOFTWARE_SOURCE,
     .facts = "the distribution has branch 535 only",
     .nearest = "driver 580, NVIDIA's repository"},
    {.gpu = "H100",
     .os = "rhel-9.4",
     .source = "distro",
     .key = SOFTWARE_SOURCE,
     .facts = "the distribution has no NVIDIA driver",
     .nearest = "NVIDIA's repository"},
    {.gpu = "H100", .os = "amzn-2", .key = SOFTWARE_OS, .facts = "amzn-2: ", .nearest = "another system"},
    {.gpu = "H100",
     .os = "ubuntu-20.04",
     .cuda = "13.0",
     .key = SOFTWARE_CUDA,
     .facts = "NVIDIA's repository ubuntu2004 ends with CUDA 12.9",
     .nearest = "CUDA 12.9"},
    {.gpu = "H100",
     .cuda = "13.0",
     .cudnn = "9.10.2",
     .key = SOFTWARE_CUDNN,
     .facts = "CUDA 13.0 and cuDNN 9.10.2: cuDNN 9.10.2 is not built for that CUDA",
     .nearest = "cuDNN 9.17.0"},
    {.gpu = "H100",
     .cuda = "13.0",
     .nccl = "2.21.5",
     .key = SOFTWARE_NCCL,
     .facts = "CUDA 13.0 and NCCL 2.21.5: NCCL 2.21.5 is not built for CUDA 13",
     .nearest = "NCCL 2."},
    {.gpu = "V100",
     .cudnn = "9.17.0",
     .key = SOFTWARE_CUDNN,
     .facts = "cuDNN 9.17.0 has no code for GPUs before sm_75",
     .nearest = "cuDNN 9.10.2"},
    {.gpu = "H100",
     .loaded = "535.183.01",
     .driver = "none",
     .cuda = "13.0",
     .key = SOFTWARE_CUDA,
     .facts = "the loaded driver 535.183.01 and CUDA 13.0: CUDA 13 needs driver 580.65.06",
     .nearest = "CUDA 12"},
    {.gpu = "H100",
     .loaded = "565.57.01",
     .driver = "none",
     .cuda = "13.0",
     .key = SOFTWARE_CUDA,
     .facts = "the loaded driver 565.57.01 and CUDA 13.0: CUDA 13 needs driver 580.65.06",
     .nearest = "CUDA 12"},
    {.gpu = "H100",
     .driver = "999",
     .key = SOFTWARE_DRIVER,
     .facts = "driver 999 is not in the table of versions; it has 620, 610",
     .nearest = "driver 620"},
    /* public failures */
    {.gpu = "H100",
     .os = "ubuntu-24.04",
     .kernel = "7.0.0-1011-gcp",
     .driver = "590.48.01",
     .key = SOFTWARE_DRIVER,
     .facts = "the modules of branch 590 do not build for this kernel",
     .nearest = "driver 595"}, /* ops-agent #2426 */
    {.gpu = "T4",
     .os = "rocky-9.8",
     .kernel = "5.14.0-687.el9.x86_64",
     .driver = "575",
     .key = SOFTWARE_DRIVER,
     .facts = "the modules of branch 575 do not build for this kernel",
     .nearest = "driver 580"}, /* ops-agent #2355 */
    {.gpu = "V100",
     .os = "ubuntu-24.04",
     .kernel = "7.0.9-1",
     .driver = "580.119.02",
     .key = SOFTWARE_DRIVER,
     .facts = "build for this kernel from 580.159.03 on",
     .nearest = "driver 580"}, /* nvidia-all #379 */
    {.gpu = "H100",
     .os = "ubuntu-24.04",
     .driver = "570",
     .source = "distro",
     .key = SOFTWARE_SOURCE,
     .facts = "the distribution has branch 535 580 595 610 only",
     .nearest = "driver 570"}, /* dstack #3967 */
    {.gpu = "P100",
     .torch = "cu128",
     .key = SOFTWARE_TORCH,
     .facts = "has no sm_60 code",
     .nearest = "+cu"}, /* kaggle-cli #1151 */
    {.gpu = "V100",
     .torch = "2.11.0+cu128",
     .key = SOFTWARE_TORCH,
     .facts = "the wheel 2.11.0+cu128 has no sm_70 code",
     .nearest = "2.11.0+cu126"}, /* pytorch #175253 */
    {.gpu = "RTX 5090",
     .tensorflow = "2.19.0",
     .key = SOFTWARE_TENSORFLOW,
     .facts = "GPU RTX 5090 (Blackwell, sm_120) and TensorFlow 2.19.0: wheels of TensorFlow up to 2.21 have no sm_120",
     .nearest = "no tensorflow"}, /* tensorflow #97387 */
    {.gpu = "H100",
     .torch = "2.9.1",
     .horovod = "0.28.1",
     .key = SOFTWARE_HOROVOD,
     .facts = "Horovod 0.28.1, its last release, does not build with PyTorch 2.1 or later",
     .nearest = "no horovod"}, /* horovod #3996 */
    {.gpu = "H100",
     .torch = "cu126",
     .cuda = "13.0",
     .deepspeed = "",
     .key = SOFTWARE_TORCH,
     .facts = "DeepSpeed compiles only with a toolkit of the wheel's major version, CUDA 12",
     .nearest = "CUDA 13.0, PyTorch 2."}, /* DeepSpeed #3223 */
    {.gpu = "RTX 5090", .torch = "cu126", .key = SOFTWARE_TORCH, .facts = "has no sm_120 code", .nearest = "+cu"},
};

static void refused(void **state) {
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(refusals); i++) {
        const struct refusal *r = &refusals[i];
        struct software_wish w = wish_for(r->gpu, r->os);
        w.kernel = r->kernel, w.loaded = r->loaded, w.driver = r->driver, w.flavour = r->flavour, w.source = r->source;
        w.cuda = r->cuda, w.cudnn = r->cudnn, w.nccl = r->nccl, w.torch = r->torch;
        w.tensorflow = r->tensorflow, w.horovod = r->horovod, w.deepspeed = r->deepspeed, w.toolkit = true;
        struct software_set s = {0};
        struct software_clashes c = {0};
        if (software_solve(&w, &s, &c) == 0) fail_msg("row %zu (%s) is accepted", i, r->facts);
        if (c.n != 1) fail_msg("row %zu: %zu clashes: %s; %s", i, c.n, c.at[0].facts, c.at[1].facts);
        if (strstr(c.at[0].facts, r->facts) == NULL) fail_msg("row %zu: '%s' has no '%s'", i, c.at[0].facts, r->facts);
        if (strstr(c.at[0].nearest, r->nearest) == NULL)
            fail_msg("row %zu: nearest '%s' has no '%s'", i, c.at[0].nearest, r->nearest);
        if (c.at[0].key != r->key) fail_msg("row %zu: key %s", i, software_key_name(c.at[0].key));
    }
}

/* A V100 on a kernel and a branch that exclude each other, CUDA 13 and open modules: four independent clashes. */
static void all_are_told(void **state) {
    (void)state;
    struct software_wish w = wish_for("V100", "ubuntu-24.04");
    w.kernel = "7.0.0-1011-gcp";
    w.driver = "590";
    w.flavour = "open";
    w.cuda = "13.0";
    struct software_set s = {0};
    struct software_clashes c = {0};
    assert_int_not_equal(software_solve(&w, &s, &c), 0);
    assert_int_equal(c.n, 4);
    for (size_t i = 0; i < c.n; i++)
        assert_string_equal(c.at[i].nearest, "driver 580, proprietary kernel modules, CUDA 12.9");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),
        cmocka_unit_test(page),
        cmocka_unit_test(versions),
        cmocka_unit_test(systems),
        cmocka_unit_test(newest),
        cmocka_unit_test(reasons),
        cmocka_unit_test(minor_compatibility),
        cmocka_unit_test(a_driver_that_stays),
        cmocka_unit_test(no_library_for_a_cuda_that_is_not_there),
        cmocka_unit_test(refused),
        cmocka_unit_test(all_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

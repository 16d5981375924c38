/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a spec that choose GPU software: refusals at their line and column, the difference between a key that is
 * not written and `auto`, and the wish that a spec makes. */
#include "base/gp_base.h"

#include "spec_fixture.h"

struct row {
    const char *bootstrap; /* on line 5, below "bootstrap:" on line 4 */
    unsigned column;
    const char *part;
};

static char *spec_of(const char *gpu, const char *os, const char *bootstrap) {
    return xasprintf("name: t\ngpu: %s\noffers: [{provider: aws, image: {os: %s}}]\nbootstrap:\n  %s\n", gpu, os,
                     bootstrap);
}

static void forms(void **state) {
    (void)state;
    static const struct row rows[] = {
        {"driver: 58", 11, "'driver' must be auto, none, a branch such as 580"},
        {"driver: [580]", 11, "bootstrap.driver must be a map"},
        {"driver: {branch: newest}", 20, "'branch' must be auto, none, a branch such as 580"},
        {"driver: {flavour: closed}", 21, "'flavour' cannot be 'closed'; valid here: open, proprietary"},
        {"driver: {flavor: open}", 12, "unknown key 'flavor' in bootstrap.driver; did you mean 'flavour'?"},
        {"driver: {source: ftp://x}", 20, "'source' must be nvidia, distro or the URL of a mirror"},
        {"driver: {source: 'https://x/y#sha256=12'}", 20, "'source' must be nvidia, distro or the URL of a mirror"},
        {"driver: {replace: yes}", 21, "did you mean true"},
        {"cuda: thirteen", 9, "'cuda' must be auto, none or a version such as 13.0"},
        {"cuda: {runtime: 13.0}", 19, "'runtime' must be a list: [13.0]"},
        {"cuda: {runtime: []}", 19, "'runtime' is an empty list"},
        {"cuda: {runtime: [13]}", 20, "'runtime' must be a version such as 13.0"},
        {"cuda: {version: 13.0, runtime: [12.9]}", 34, "'cuda' has both 'version' and 'runtime': keep one"},
        {"cudnn: nine", 10, "'cudnn' must be auto, none or a version such as 9.17.0"},
        {"nccl: v2", 9, "'nccl' must be auto, none or a version such as 2.28.9"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *text = spec_of("H100:8", "ubuntu-24.04", rows[i].bootstrap);
        bad_at(text, 5, rows[i].column, rows[i].part);
    }
}

static void impossible(void **state) {
    (void)state;
    static const struct {
        const char *gpu, *os;
        struct row row;
        unsigned line; /* 0: 5 */
    } rows[] = {
        {"V100", "ubuntu-22.04", {"driver: {flavour: open}", 21, "open modules exist for Turing (sm_75)"}, 0},
        {"V100",
         "ubuntu-22.04",
         {"cuda: 13.0", 9,
          "the nearest set that works: driver 580, proprietary kernel modules, "
          "CUDA 12.9"},
         0},
        {"V100", "ubuntu-22.04", {"cuda: {runtime: [12.9, 13.0]}", 26, "GPU V100 (Volta, sm_70) and CUDA 13.0"}, 0},
        {"H100:8",
         "ubuntu-22.04",
         {"{driver: 535, cuda: 13.0}", 12, "driver 535 and CUDA 13.0: CUDA 13 needs driver 580"},
         0},
        {"B200:8", "ubuntu-22.04", {"driver: 550", 11, "Blackwell GPUs need branch 570 or later"}, 0},
        {"B200:8", "ubuntu-22.04", {"driver: {flavour: proprietary}", 21, "Blackwell GPUs need open modules"}, 0},
        {"H100:8",
         "debian-12",
         {"driver: {source: distro, branch: 580}", 20, "the distribution has branch 535 only"},
         0},
        {"H100:8",
         "debian-12",
         {"driver: {source: distro, flavour: open}", 37, "the distribution has proprietary modules only"},
         0},
        {"H100:8", "ubuntu-22.04", {"driver: 631", 11, "driver 631 is not in the table of versions; it has 620"}, 0},
        {"H100:8", "ubuntu-22.04", {"{cuda: 13.0, cudnn: 9.10.2}", 23, "cuDNN 9.10.2 is not built for that CUDA"}, 0},
        {"B200:8", "ubuntu-22.04", {"python: {torch: 2.6.0}", 19, "has no sm_100 code"}, 0},
        {"H100:8",
         "ubuntu-22.04",
         {"python: {torch: auto, packages: [numpy, horovod==0.28.1]}", 43,
          "Horovod 0.28.1, its last release, does not build with PyTorch 2.1"},
         0},
        {"H100:8",
         "ubuntu-22.04",
         {"python: {version: '3.9', torch: 2.14.0}", 21,
          "PyTorch 2.14.0 and Python 3.9: PyTorch 2.14.0 needs Python 3.10"},
         0},
        {"H100:8",
         "ubuntu-22.04",
         {"python: {version: '3.8', torch: auto}", 21, "Python 3.8: PyTorch 2.14.0 needs Python 3.10 or later; "},
         0},
        {"V100:8",
         "ubuntu-22.04",
         {"python: {packages: [numpy, torch==2.11.0+cu128]}", 30, "the wheel 2.11.0+cu128 has no sm_70 code"},
         0},
        {"B200:8",
         "ubuntu-22.04",
         {"python: {packages: [tensorflow-cpu, tensorflow==2.20.0]}", 39,
          "wheels of TensorFlow up to 2.21 have no sm_100 code"},
         0},
        {"H100:8", "amzn-2", {"packages: [htop]", 38, "aws has no system 'amzn-2'; did you mean 'amzn-2023'?"}, 3},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *text = spec_of(rows[i].gpu, rows[i].os, rows[i].row.bootstrap);
        bad_at(text, rows[i].line != 0 ? rows[i].line : 5, rows[i].row.column, rows[i].row.part);
    }
}

/* Every independent clash is an error of its own; one that several offers share is reported once. */
static void several(void **state) {
    (void)state;
    GP_AUTO_LOADED struct loaded l =
        load("name: t\ngpu: V100\noffers: [{provider: aws}, {provider: aws, regions: [eu-west-1]}]\nbootstrap:\n"
             "  driver: {branch: 590, flavour: open}\n  cuda: 13.0\n  cudnn: 9.17\n");
    assert_int_equal(l.problems.list.len, 4);
    static const struct spec_pos places[] = {{5, 20}, {5, 34}, {6, 9}, {7, 10}};
    for (size_t i = 0; i < 4; i++) {
        const struct spec_problem *p = &l.problems.list.items[i];
        if (p->pos.line != places[i].line || p->pos.column != places[i].column)
            fail_msg("%u:%u: %s", p->pos.line, p->pos.column, p->message);
        assert_non_null(strstr(p->message, "; the nearest set that works: driver 580, proprietary kernel modules, "));
    }
}

/* The search for clashes ends where no more errors are shown: 500 versions that do not exist cost no minutes. */
static void ends_early(void **state) {
    (void)state;
    GP_AUTO_STR struct str text = {0};
    str_add(&text, "name: t\ngpu: V100\noffers: [{provider: aws}]\nbootstrap:\n  cuda: {runtime: [");
    for (int i = 0; i < 500; i++) str_addf(&text, "%s\"%d.%d\"", i == 0 ? "" : ", ", 20 + i / 50, i % 50);
    str_add(&text, "]}\n");
    GP_AUTO_LOADED struct loaded l = load(text.s);
    assert_int_equal(l.r, -GP_EUSAGE);
    assert_non_null(strstr(l.err.msg, "101 errors (the first are shown)"));
}

/* A spec of the journal is not judged again: the tables of a later gpuprov may know more. */
static void of_the_journal(void **state) {
    (void)state;
    GP_AUTO_FREE char *text = spec_of("V100", "ubuntu-22.04", "cuda: 13.0");
    GP_AUTO_LOADED struct loaded l = {0};
    provider_specs_register();
    l.r = spec_load_text("(journal)", text, strlen(text), NULL, &l.spec, &l.problems, &l.err);
    assert_int_equal(l.r, 0);
}

static struct software_wish wish_of(const char *text, bool launched, struct spec **keep) {
    *keep = good(text);
    return spec_software_wish(*keep, 0, launched, 0);
}

/* Releases that the tables do not know are not judged. */
static void unknown_releases(void **state) {
    (void)state;
    static const char *const rows[] = {
        "python: {torch: 2.99.0}",       "python: {torch: 2.14.0}",
        "python: {torch: none}",         "python: {packages: [tensorflow==2.30.0]}",
        "python: {packages: [horovod]}", "python: {torch: auto, packages: [horovod==0.30.0, deepspeed]}"};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *text = spec_of("B200:8", "ubuntu-24.04", rows[i]);
        GP_AUTO_SPEC struct spec *s = good(text);
        (void)s;
    }
}

static void unwritten_and_auto(void **state) {
    (void)state;
    static const char none[] = "name: t\ngpu: H100\noffers: [{provider: aws}]\n";
    static const char all[] = "name: t\ngpu: H100\noffers: [{provider: aws}]\n"
                              "bootstrap: {driver: auto, cuda: auto, cudnn: auto, nccl: auto}\n";
    GP_AUTO_SPEC struct spec *a = NULL, *b = NULL, *c = NULL;
    struct software_wish w = wish_of(none, true, &a);
    assert_false(spec_software_written(a));
    assert_null(w.driver);
    assert_null(w.cuda);
    assert_int_equal(w.gpu.cc, 90);
    w = spec_software_wish(a, 0, false, 0);
    assert_string_equal(w.driver, "none");
    assert_string_equal(w.cuda, "none");
    assert_string_equal(w.cudnn, "none");
    assert_string_equal(w.nccl, "none");

    w = wish_of(all, false, &b);
    assert_true(spec_software_written(b) && spec_driver_written(b));
    assert_string_equal(w.driver, "auto");
    assert_string_equal(w.cuda, "auto");
    assert_string_not_equal(a->hash, b->hash);

    /* one key of the map makes the others auto */
    w = wish_of(
        "name: t\ngpu: V100\noffers: [{provider: aws}]\nbootstrap: {driver: {source: 'https://m.example/cuda'}}\n",
        false, &c);
    assert_true(spec_driver_written(c));
    assert_null(w.driver);
    assert_string_equal(w.source, "nvidia");
    assert_string_equal(w.cuda, "none");
}

/* What the journal keeps is the same wish. */
static void kept(void **state) {
    (void)state;
    static const char *const rows[] = {"driver: 580",
                                       "driver: none",
                                       "driver: {replace: true}",
                                       "cuda: 13.0",
                                       "cuda: auto",
                                       "cuda: {runtime: [13.0, 12.9]}",
                                       "{cudnn: 9.17.0, nccl: none}",
                                       "packages: [htop]"};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *text = spec_of("H100:8", "ubuntu-24.04", rows[i]);
        GP_AUTO_SPEC struct spec *a = good(text);
        GP_AUTO_FREE char *canonical = spec_canonical(a);
        GP_AUTO_SPEC struct spec *b = good(canonical);
        assert_string_equal(a->hash, b->hash);
        assert_int_equal(spec_software_written(a), spec_software_written(b));
        assert_int_equal(spec_driver_written(a), spec_driver_written(b));
        struct software_wish x = spec_software_wish(a, 0, true, 0), y = spec_software_wish(b, 0, true, 0);
        assert_true(str_eq(x.driver, y.driver) && str_eq(x.cuda, y.cuda) && str_eq(x.cudnn, y.cudnn) &&
                    str_eq(x.nccl, y.nccl));
    }
}

/* Offers whose provider launches no image: the machines are there already. */
static void launched(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: t\noffers: [{provider: aws}, {provider: local}]\n");
    assert_true(spec_offer_launched(&s->offers.items[0]));
    assert_false(spec_offer_launched(&s->offers.items[1]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),      cmocka_unit_test(impossible),     cmocka_unit_test(several),
        cmocka_unit_test(ends_early), cmocka_unit_test(of_the_journal), cmocka_unit_test(unwritten_and_auto),
        cmocka_unit_test(kept),       cmocka_unit_test(launched),       cmocka_unit_test(unknown_releases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

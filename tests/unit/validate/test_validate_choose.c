/* SPDX-License-Identifier: Apache-2.0 */
/* Which checks run for a spec, and that the table itself is sound. */
#include "base/gp_base.h"

#include "validate/judge.h"
#include "validate/lines.h"
#include "validate/validate.h"

#include "base/fs.h"
#include "validate/suite/models.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct spec make_spec(int nodes, int gpus, int64_t time_ms) {
    return (struct spec){.nodes = nodes, .gpu = {.count = gpus}, .validate = {.time_ms = time_ms}};
}

static bool has(const struct validate_plan *p, const char *id) {
    for (size_t i = 0; i < p->node_checks.len; i++)
        if (str_eq(p->node_checks.items[i]->id, id)) return true;
    for (size_t i = 0; i < p->gang_checks.len; i++)
        if (str_eq(p->gang_checks.items[i]->id, id)) return true;
    return false;
}

static bool left_out(const struct validate_plan *p, const char *id, const char *why) {
    for (size_t i = 0; i < p->left_out.n; i++)
        if (str_starts(p->left_out.v[i], id) && strstr(p->left_out.v[i], why)) return true;
    return false;
}

static void test_all_apply(void **state) {
    (void)state;
    GP_CLEANUP(validate_plan_clear) struct validate_plan p = {0};
    struct gp_error err = {0};
    struct spec s = make_spec(2, 8, 20 * 60000);
    s.python.wanted = true;
    strv_add(&s.container.images, "torch:1");
    assert_int_equal(validate_choose(&s, &p, &err), 0);
    strv_clear(&s.container.images);
    assert_int_equal(p.node_checks.len + p.gang_checks.len, check_count());
    assert_int_equal(p.left_out.n, 0);
    assert_true(has(&p, "gpu.memory") && has(&p, "train.ddp") && has(&p, "net.pair"));
    for (size_t i = 1; i < p.node_checks.len; i++) { /* core, required, then cheapest for what they tell */
        const struct check_info *a = p.node_checks.items[i - 1], *b = p.node_checks.items[i];
        int x = a->core * 2 + a->required, y = b->core * 2 + b->required;
        assert_true(x >= y);
        if (x == y)
            assert_true(check_stated(a, 8) * GP_MAX(b->telling, 1) <= check_stated(b, 8) * GP_MAX(a->telling, 1));
    }
}

static void test_a_framework_is_checked_where_the_spec_installs_one(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct spec s = make_spec(1, 0, 5 * 60000);
    for (int torch = 0; torch < 2; torch++) {
        GP_CLEANUP(validate_plan_clear) struct validate_plan without = {0}, with = {0};
        s.python = (struct spec_python){.wanted = false};
        assert_int_equal(validate_choose(&s, &without, &err), 0);
        assert_false(has(&without, "framework.torch"));
        assert_true(left_out(&without, "framework.torch", "no bootstrap.python"));
        s.python = (struct spec_python){.wanted = true, .torch = torch ? (char[]){"auto"} : NULL};
        assert_int_equal(validate_choose(&s, &with, &err), 0);
        assert_true(has(&with, "framework.torch"));
        assert_int_equal(validate_required(&s, "framework.torch"), torch);
    }
}

static void test_a_framework_is_required_by_its_package(void **state) {
    (void)state;
    static const struct {
        const char *package, *requirements, *id;
        bool required;
    } cases[] = {
        {"deepspeed", NULL, "framework.deepspeed", true},
        {"DeepSpeed[autotuning]>=0.18", NULL, "framework.deepspeed", true},
        {"deepspeed-mii", NULL, "framework.deepspeed", false},
        {"horovod==0.28.1", NULL, "framework.horovod", true},
        {"horovod", NULL, "framework.deepspeed", false},
        {"torch", NULL, "framework.torch", true},
        {"torchvision", NULL, "framework.torch", false},
        {"numpy", "numpy\n  horovod ~= 0.28 # for the old job\n", "framework.horovod", true},
        {"numpy", "# horovod\nhorovod-extra\n", "framework.horovod", false},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_CLEANUP(validate_plan_clear) struct validate_plan p = {0};
        struct gp_error err = {0};
        struct spec s = make_spec(2, 0, 5 * 60000);
        GP_AUTO_FREE char *text = cases[i].requirements ? xstrdup(cases[i].requirements) : NULL;
        s.python = (struct spec_python){.wanted = true, .requirements = text};
        strv_add(&s.python.packages, cases[i].package);
        assert_int_equal(validate_choose(&s, &p, &err), 0);
        assert_true(has(&p, cases[i].id)); /* also where nobody asked for it: it may be there */
        if (validate_required(&s, cases[i].id) != cases[i].required) fail_msg("case %zu", i);
        strv_clear(&s.python.packages);
    }
}

static void test_images_are_required_unless_none_has_torch(void **state) {
    (void)state;
    struct gp_error err = {0};
    for (int demanded = 0; demanded < 2; demanded++)
        for (int skipped = 0; skipped < 2; skipped++) {
            GP_CLEANUP(validate_plan_clear) struct validate_plan p = {0};
            struct spec s = make_spec(1, 0, 5 * 60000);
            struct check_result r;
            s.container.engine = ENGINE_DOCKER;
            strv_add(&s.container.images, "torch:1");
            if (demanded) strv_add(&s.validate.require, "framework.images");
            assert_int_equal(validate_choose(&s, &p, &err), 0);
            assert_true(has(&p, "framework.images"));
            check_result_make(&r, "framework.images", skipped ? VERDICT_SKIPPED : VERDICT_FAIL, "x", "y");
            validate_apply_floors(&s, &r);
            assert_int_equal(r.required, demanded || !skipped);
            check_result_clear(&r);
            strv_clear(&s.container.images);
            strv_clear(&s.validate.require);
        }
    GP_CLEANUP(validate_plan_clear) struct validate_plan without = {0};
    struct spec s = make_spec(1, 0, 5 * 60000);
    assert_int_equal(validate_choose(&s, &without, &err), 0);
    assert_true(left_out(&without, "framework.images", "the spec has no bootstrap.container.images"));
}

static void test_what_cannot_apply_is_said(void **state) {
    (void)state;
    GP_CLEANUP(validate_plan_clear) struct validate_plan p = {0};
    struct gp_error err = {0};
    struct spec s = make_spec(1, 0, 5 * 60000);
    assert_int_equal(validate_choose(&s, &p, &err), 0);
    assert_true(has(&p, "train.ddp")); /* one rank is a gang too */
    assert_false(has(&p, "gpu.presence") || has(&p, "net.pair"));
    assert_true(left_out(&p, "gpu.presence", "no gpu"));
    assert_true(left_out(&p, "net.pair", "two nodes"));
}

static void refuse(struct spec *s, const char *id, const char *says) {
    struct validate_plan p = {0};
    struct gp_error err = {0};
    strv_add(&s->validate.require, id);
    assert_int_equal(validate_choose(s, &p, &err), -GP_EUSAGE);
    if (!strstr(err.msg, says)) fail_msg("'%s' does not say '%s'", err.msg, says);
    assert_null(p.node_checks.items); /* untouched on failure */
    strv_clear(&s->validate.require);
}

static void test_required_must_exist_apply_and_fit(void **state) {
    (void)state;
    struct spec s = make_spec(1, 0, 5 * 60000);
    refuse(&s, "gpu.memor", "did you mean 'gpu.memory'");
    refuse(&s, "gpu.memory", "has no gpu");
    refuse(&s, "net.pair", "needs two nodes");
    struct spec tiny = make_spec(2, 8, 3000);
    refuse(&tiny, "host.kernlog", "too short");
    GP_AUTO_FREE char *cost = xasprintf("host.kernlog %ds", check_find("host.kernlog")->seconds);
    refuse(&tiny, "host.kernlog", cost);
}

static void test_floors_must_apply_and_fit(void **state) {
    (void)state;
    struct spec s = make_spec(1, 0, 5 * 60000);
    struct spec_floor f = {
        .check = xstrdup("net.pair"), .metric = xstrdup("bandwidth"), .value = 1, .unit = xstrdup("GB/s")};
    vec_push(&s.validate.floors, f);
    struct validate_plan p = {0};
    struct gp_error err = {0};
    assert_int_equal(validate_choose(&s, &p, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "validate.floors: net.pair cannot run: needs two nodes"));
    s.nodes = 2;
    assert_int_equal(validate_choose(&s, &p, NULL), 0);
    validate_plan_clear(&p);
    free(f.check);
    free(f.metric);
    free(f.unit);
    vec_free(&s.validate.floors);
}

static void test_what_does_not_fit_is_left_out(void **state) {
    (void)state;
    struct spec s = make_spec(2, 8, 0);
    int64_t core = 0;
    for (size_t i = 0; i < check_count(); i++) core += check_table[i].core ? check_stated(&check_table[i], 8) : 0;
    assert_in_range(core, 1, 60); /* a minute is enough for what no verdict can do without */
    s.validate.time_ms = core * 1000;
    GP_CLEANUP(validate_plan_clear) struct validate_plan p = {0};
    struct gp_error err = {0};
    assert_int_equal(validate_choose(&s, &p, &err), 0);
    assert_int_equal(p.left_out.n + p.node_checks.len + p.gang_checks.len, check_count());
    assert_int_equal(p.left_out.n + 7, check_count());
    assert_true(left_out(&p, "host.kernlog", "more than the rest"));
    assert_true(left_out(&p, "nccl.values", "more than the rest")); /* required, but not whatever the time */
    /* asked for by name it is required, and then the time is too short */
    strv_add(&s.validate.require, "host.kernlog");
    struct validate_plan q = {0};
    assert_int_equal(validate_choose(&s, &q, &err), -GP_EUSAGE);
    strv_clear(&s.validate.require);
}

static int64_t stated(const struct validate_plan *p, int gpus) {
    int64_t sum = 0;
    for (size_t i = 0; i < p->node_checks.len; i++) sum += check_stated(p->node_checks.items[i], gpus);
    for (size_t i = 0; i < p->gang_checks.len; i++)
        sum += check_stated(p->gang_checks.items[i], gpus) + (p->short_gang ? 0 : p->gang_checks.items[i]->longer);
    return sum;
}

/* The gang's seconds are reserved first: node checks that stretch take what is left. */
static void test_required_gang_checks_are_never_left_out(void **state) {
    (void)state;
    static const int counts[] = {1, 2, 4, 8, 16}, minutes[] = {1, 5, 20};
    for (size_t g = 0; g < GP_ARRAY_LEN(counts); g++)
        for (int nodes = 1; nodes <= 2; nodes++)
            for (size_t m = 0; m < GP_ARRAY_LEN(minutes); m++) {
                struct spec s = make_spec(nodes, counts[g], minutes[m] * 60000);
                GP_CLEANUP(validate_plan_clear) struct validate_plan p = {0};
                struct gp_error err = {0};
                assert_int_equal(validate_choose(&s, &p, &err), 0);
                int64_t sum = stated(&p, counts[g]), gang = sum;
                for (size_t i = 0; i < p.node_checks.len; i++) gang -= check_stated(p.node_checks.items[i], counts[g]);
                assert_true(sum * 1000 <= s.validate.time_ms);
                assert_true(p.node_time_ms + gang * 1000 <= s.validate.time_ms);
                assert_int_equal(p.short_gang, minutes[m] == 1);
                for (size_t i = 0; i < check_count(); i++) {
                    const struct check_info *c = &check_table[i];
                    bool can = !c->images && !((c->needs & NEED_PEERS) && nodes < 2) &&
                               !((c->needs & NEED_GPUS) && counts[g] * (c->level == CHECK_GANG ? nodes : 1) < 2);
                    bool wanted = c->level == CHECK_GANG || minutes[m] > 1;
                    if (c->required && can && wanted && !has(&p, c->id))
                        fail_msg("%d nodes with %d GPUs, %d m: %s is left out", nodes, counts[g], minutes[m], c->id);
                }
            }
}

/* With eight GPUs, which is the usual large node. */
static void test_a_minute_is_enough_for_the_required_checks_of_a_node(void **state) {
    (void)state;
    int64_t sum = 0;
    for (size_t i = 0; i < check_count(); i++)
        if (check_table[i].required && check_table[i].level != CHECK_GANG) sum += check_stated(&check_table[i], 8);
    assert_in_range(sum, 1, 59);
}

static void test_the_table_is_sound(void **state) {
    (void)state;
    for (size_t i = 0; i < check_count(); i++) {
        const struct check_info *c = &check_table[i];
        assert_ptr_equal(check_find(c->id), c); /* no id twice */
        assert_true(c->seconds > 0 && c->finds && c->how && c->suggestion);
        for (size_t k = 0; k < GP_ARRAY_LEN(c->metrics) && c->metrics[k].name; k++) {
            const struct check_metric_info *m = &c->metrics[k];
            bool limited = m->fail >= 0 || m->degraded >= 0;
            assert_non_null(m->unit);
            assert_true(!limited || (m->source && *m->source)); /* a limit says where it comes from */
            if (m->fail >= 0 && m->degraded >= 0)
                assert_true(m->ceiling ? m->degraded <= m->fail : m->degraded >= m->fail);
        }
    }
    assert_null(check_find("no.such"));
}

static void test_page_has_every_check_and_limit(void **state) {
    (void)state;
    GP_AUTO_FREE char *page = checks_markdown();
    for (size_t i = 0; i < check_count(); i++) {
        GP_AUTO_FREE char *head = xasprintf("\n### %s\n", check_table[i].id);
        assert_non_null(strstr(page, head));
    }
    assert_non_null(strstr(page, "| `wrong_words` | words | more than 0 words | - | memory is exact |"));
    GP_AUTO_STR struct str kept = {0};
    struct gp_error err = {0};
    if (getenv("UPDATE_GOLDEN")) assert_int_equal(fs_write_atomic("docs/checks.md", page, strlen(page), 0644, &err), 0);
    if (fs_read("docs/checks.md", 1 << 20, &kept, &err) < 0) fail_msg("%s", err.msg);
    if (!str_eq(kept.s, page)) fail_msg("docs/checks.md is not what the table says: run 'make docs'");
}

static void test_page_of_models(void **state) {
    (void)state;
    GP_AUTO_FREE char *page = models_markdown();
    const struct gpu_model *m = NULL;
    for (size_t i = 0; (m = gpu_model_at(i)) != NULL; i++) {
        GP_AUTO_FREE char *head = xasprintf("\n## %s\n", gpu_model_name(m));
        assert_non_null(strstr(page, head));
    }
    GP_AUTO_STR struct str kept = {0};
    struct gp_error err = {0};
    if (getenv("UPDATE_GOLDEN"))
        assert_int_equal(fs_write_atomic("docs/gpu-models.md", page, strlen(page), 0644, &err), 0);
    if (fs_read("docs/gpu-models.md", 1 << 20, &kept, &err) < 0) fail_msg("%s", err.msg);
    if (!str_eq(kept.s, page)) fail_msg("docs/gpu-models.md is not what the table says: run 'make docs'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_apply),
        cmocka_unit_test(test_a_framework_is_checked_where_the_spec_installs_one),
        cmocka_unit_test(test_what_cannot_apply_is_said),
        cmocka_unit_test(test_required_must_exist_apply_and_fit),
        cmocka_unit_test(test_floors_must_apply_and_fit),
        cmocka_unit_test(test_what_does_not_fit_is_left_out),
        cmocka_unit_test(test_a_framework_is_required_by_its_package),
        cmocka_unit_test(test_images_are_required_unless_none_has_torch),
        cmocka_unit_test(test_required_gang_checks_are_never_left_out),
        cmocka_unit_test(test_a_minute_is_enough_for_the_required_checks_of_a_node),
        cmocka_unit_test(test_the_table_is_sound),
        cmocka_unit_test(test_page_has_every_check_and_limit),
        cmocka_unit_test(test_page_of_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

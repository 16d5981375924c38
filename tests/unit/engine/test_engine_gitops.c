/* SPDX-License-Identifier: Apache-2.0 */
/* Typed changes of a plan, what was changed by hand, plan files, and stacks of a unit. */
#include "base/gp_base.h"

#include "base/hash.h"
#include "engine/plan_file.h"
#include "engine_cloud.h"

#include <sys/stat.h>
#include <unistd.h>

#define SPEC "name: t\nnodes: 2\noffers: [{provider: aws}]\n"

/* --- helpers --- */

static struct plan plan_of(struct fixture *f) {
    struct plan plan = {0};
    struct gp_error err = {0};
    if (engine_plan(f->e, f->spec, &plan, &err) != 0) fail_msg("%s", err.msg);
    return plan;
}

static const struct plan_change *find(const struct plan *p, enum change_action action, const char *key) {
    for (size_t i = 0; i < p->resource_changes.list.len; i++) {
        const struct plan_change *c = &p->resource_changes.list.items[i];
        if (c->action == action && str_eq(c->key, key)) return c;
    }
    return NULL;
}

static const struct plan_change *must_find(const struct plan *p, enum change_action action, const char *key) {
    static const struct plan_change none = {0};
    const struct plan_change *c = find(p, action, key);
    if (c == NULL) fail_msg("no change of '%s'", key != NULL ? key : "the whole");
    return c != NULL ? c : &none;
}

static struct resource *thing(const char *id) {
    for (size_t i = 0; i < cloud.things.list.len; i++)
        if (str_eq(cloud.things.list.items[i].id, id)) return &cloud.things.list.items[i];
    fail_msg("the cloud has no %s", id);
    return &cloud.things.list.items[0];
}

static void launched(struct fixture *f, const char *text) {
    struct gp_error err = {0};
    load(f, text);
    if (launch(f, &err) != 0) fail_msg("%s", err.msg);
}

/* --- typed changes --- */

static void test_changes_of_a_new_stack(void **state) {
    struct plan plan = plan_of(*state);
    assert_true(plan.changes);
    assert_int_equal(plan.resource_changes.list.len, 3);
    assert_string_equal(plan.resource_changes.list.items[0].resource, "claim");
    for (int i = 0; i < 2; i++) {
        const struct plan_change *c = &plan.resource_changes.list.items[1 + i];
        assert_int_equal(c->action, CHANGE_CREATE);
        assert_int_equal(c->node, i);
        assert_null(c->before);
        assert_non_null(strstr(c->after, "aws r1-a"));
    }
    assert_null(plan.state.uid);
    plan_clear(&plan);
}

static void test_changes_of_running_nodes(void **state) {
    struct fixture *f = *state;
    launched(f, SPEC);
    struct plan plan = plan_of(f);
    const struct plan_change *c = must_find(&plan, CHANGE_RESUME, "phase");
    assert_string_equal(c->after, "ready");
    assert_int_equal(plan.state.nodes.len, 2);
    assert_non_null(plan.state.uid);
    plan_clear(&plan);

    thing("i-1")->state = RES_STOPPED;
    plan = plan_of(f);
    c = must_find(&plan, CHANGE_REPLACE, "state");
    assert_int_equal(c->node, 1);
    assert_string_equal(c->id, "i-1");
    assert_string_equal(c->before, "stopped");
    assert_string_equal(c->after, "running");
    assert_null(find(&plan, CHANGE_DESTROY, NULL)); /* one row, not two */
    plan_clear(&plan);

    thing("i-1")->state = RES_GONE;
    plan = plan_of(f);
    assert_non_null(find(&plan, CHANGE_CREATE, NULL)); /* the list shows that it is gone for good */
    plan_clear(&plan);
}

static void test_a_machine_that_is_not_listed_any_more(void **state) {
    struct fixture *f = *state;
    launched(f, SPEC);
    resource_set(&thing("i-1")->stack, "another"); /* the tag was changed: no list of 't' has it */
    resource_set(&thing("i-1")->owner, "another");
    struct plan plan = plan_of(f);
    const struct plan_change *c = must_find(&plan, CHANGE_REPLACE, "state");
    assert_string_equal(c->before, "gone");
    assert_string_equal(c->id, "i-1");
    plan_clear(&plan);
}

/* --- drift --- */

static void test_drift_of_nodes(void **state) {
    struct fixture *f = *state;
    launched(f, SPEC);
    struct plan plan = plan_of(f);
    assert_null(find(&plan, CHANGE_REFUSE, "tag expires"));
    plan_clear(&plan);
    thing("i-0")->expires_s += 3600;
    plan = plan_of(f);
    const struct plan_change *c = must_find(&plan, CHANGE_REFUSE, "tag expires");
    assert_int_equal(c->node, 0);
    assert_string_not_equal(c->before, c->after);
    plan_clear(&plan);
}

static void test_drift_of_rules(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *from, *ingress, *before, *after; /* one row; both NULL: none */
    } cases[] = {
        {"[10.0.0.0/8]", "tcp 22 10.1.2.3/8", NULL, NULL}, /* the same network in another form */
        {"[10.0.0.0/8]", "", NULL, NULL},                  /* a provider that does not show them */
        {"[10.0.0.0/8]", "tcp 22 10.0.0.0/8\ntcp 22 0.0.0.0/0", "tcp 22 0.0.0.0/0", NULL},
        {"[10.0.0.0/8]", "tcp 22 10.0.0.0/8\nall ::/0", "all ::/0", NULL},
        {"[10.0.0.0/8]", "tcp 22-23 10.0.0.0/8\ntcp 22 10.0.0.0/8", "tcp 22-23 10.0.0.0/8", NULL},
        {"[10.0.0.0/8]", "none", NULL, "tcp 22 10.0.0.0/8"},
        {"[]", "tcp 22 203.0.113.7/32", NULL, NULL}, /* it may be this controller's own address */
        {"[]", "tcp 22 203.0.113.0/24", "tcp 22 203.0.113.0/24", NULL},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *text =
            xasprintf("name: t\naccess: {ssh_from: %s}\noffers: [{provider: aws}]\n", cases[i].from);
        cloud_reset();
        launched(f, str_eq(cases[i].from, "[]") ? "name: t\noffers: [{provider: aws}]\n" : text);
        resource_set(&thing("sg-1")->ingress, cases[i].ingress);
        struct plan plan = plan_of(f);
        const struct plan_change *c = find(&plan, CHANGE_REPAIR, "ingress");
        if (cases[i].before == NULL && cases[i].after == NULL && c != NULL) fail_msg("case %zu: %s", i, c->before);
        if ((cases[i].before != NULL || cases[i].after != NULL) && c == NULL) fail_msg("case %zu: nothing", i);
        if (c != NULL && (!str_eq(c->before, cases[i].before) || !str_eq(c->after, cases[i].after)))
            fail_msg("case %zu: %s, %s", i, c->before, c->after);
        if (c != NULL) assert_true(plan.changes);
        plan_clear(&plan);
        down_ok(f);
    }
}

/* Another access in the spec is a change of the spec, not one by hand. */
static void test_no_drift_while_the_spec_changes(void **state) {
    struct fixture *f = *state;
    launched(f, "name: t\naccess: {ssh_from: [10.0.0.0/8]}\noffers: [{provider: aws}]\n");
    resource_set(&thing("sg-1")->ingress, "tcp 22 10.0.0.0/8");
    load(f, "name: t\naccess: {ssh_from: [192.0.2.0/24]}\noffers: [{provider: aws}]\n");
    struct plan plan = plan_of(f);
    assert_null(find(&plan, CHANGE_REPAIR, "ingress"));
    assert_non_null(find(&plan, CHANGE_UPDATE, "access.ssh_from"));
    plan_clear(&plan);
}

/* --- plan files --- */

static char *file_of(struct fixture *f) { return fs_join(f->dir, "t.plan"); }

static void write_plan(struct fixture *f, const char *spec_path) {
    GP_AUTO_FREE char *path = file_of(f);
    struct gp_error err = {0};
    struct plan plan = plan_of(f);
    if (plan_file_write(path, spec_path, "prod", f->spec, &plan, &err) != 0) fail_msg("%s", err.msg);
    plan_clear(&plan);
}

static void test_a_plan_file_read_back(void **state) {
    struct fixture *f = *state;
    GP_AUTO_FREE char *path = file_of(f);
    GP_AUTO_PLAN_FILE struct plan_file file = {0};
    GP_AUTO_MOVES struct plan_moves moves = {0};
    struct gp_error err = {0};
    struct stat st;
    write_plan(f, NULL);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_true(plan_file_is(path));
    if (plan_file_read(path, &file, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(file.spec->hash, f->spec->hash);
    assert_string_equal(file.unit, "prod");
    struct plan now = plan_of(f);
    plan_file_moves(&file, &now, &moves);
    plan_file_spec_moves(&file, &moves);
    assert_int_equal(moves.list.len, 0);
    for (size_t i = 0; i < now.offers.list.len; i++) assert_true(plan_file_may_use(&file, &now.offers.list.items[i]));
    plan_clear(&now);
}

/* A path that cannot be looked at is not one where nothing is. */
static void test_a_plan_file_at_a_bad_path(void **state) {
    struct fixture *f = *state;
    GP_AUTO_FREE char *path = file_of(f);
    struct gp_error err = {0};
    struct stat st;
    struct plan plan = plan_of(f);
    assert_int_equal(symlink("t.plan", path), 0);
    assert_int_equal(plan_file_write(path, NULL, "prod", f->spec, &plan, &err), -GP_EIO);
    assert_non_null(strstr(err.msg, "could not write the plan file"));
    assert_non_null(strstr(err.msg, "t.plan': Too many levels of symbolic links"));
    assert_true(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    plan_clear(&plan);
}

/* Replaces text in the file; fix_hash: as somebody does who knows the format. */
static void edit(const char *path, const char *from, const char *to, bool fix_hash) {
    GP_AUTO_STR struct str text = {0}, out = {0};
    struct gp_error err = {0};
    assert_int_equal(fs_read(path, 1 << 20, &text, &err), 0);
    char *at = strstr(text.s, from);
    if (at == NULL) fail_msg("the file has no '%s'", from);
    str_add_mem(&out, text.s, (size_t)(at - text.s));
    str_addf(&out, "%s%s", to, at + strlen(from));
    GP_AUTO_JSON json_t *j = NULL;
    if (fix_hash && json_parse(out.s, out.len, "plan", &j, NULL) == 0) {
        GP_AUTO_FREE char *plan = json_text_exact(json_object_get(j, "plan"), 0);
        char hash[65];
        sha256_hex(plan, strlen(plan), hash);
        json_object_set_new(j, "sha256", json_string(hash));
        GP_AUTO_FREE char *whole = json_text_exact(j, 1);
        str_reset(&out);
        str_add(&out, whole);
    }
    assert_int_equal(fs_write_atomic(path, out.s, out.len, 0600, &err), 0);
}

static void test_plan_files_that_are_refused(void **state) {
    struct fixture *f = *state;
    GP_AUTO_FREE char *path = file_of(f);
    static const struct {
        const char *from, *to;
        bool fix_hash;
        const char *why;
    } cases[] = {
        {"gpuprov-plan/v1", "gpuprov-plan/v2", false, "its schema is 'gpuprov-plan/v2'"},
        {"\"nodes\": 2", "\"nodes\": 8", false, "edited or damaged"},
        {"\"nodes\": 2", "\"nodes\": 8", true, "not the one of its hash"},
        {"\"nodes\": 2", "\"nodes\": -1", true, "its spec does not decode here"},
        {"\"gpuprov\": \"" GP_VERSION, "\"gpuprov\": \"9.9.9", true, "gpuprov 9.9.9 made it"},
        {"\"stack\": \"t\"", "\"stack\": \"other\"", true, "not the one of its hash"},
        {"\"id\": \"", "\"id\": \"../../", true, "its 'id' is malformed"},
        {"\"unit\": \"prod\"", "\"unit\": \"a b\"", true, "its 'unit' is malformed"},
        {"\"created\": 1", "\"created\": -1", true, "its 'created' is malformed"},
        {"\"usd_per_h\": ", "\"usd_per_h\": \"x\", \"w\": ", true, "its 'offers' is malformed"},
        {"\"sha256\": \"", "\"sha256\": \"\", \"y\": \"", false, "edited or damaged"},
        {"\"plan\": {", "\"plan\": [], \"z\": {", false, "it has no 'plan'"},
        {"\"state\": {", "\"state\": {{", false, "cut or damaged"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct gp_error err = {0};
        struct plan_file file = {0};
        write_plan(f, NULL);
        edit(path, cases[i].from, cases[i].to, cases[i].fix_hash);
        assert_true(plan_file_is(path));
        assert_int_equal(plan_file_read(path, &file, &err), -GP_EUSAGE);
        if (strstr(err.msg, cases[i].why) == NULL) fail_msg("'%s' has no '%s'", err.msg, cases[i].why);
        assert_non_null(strstr(err.msg, "nothing was changed"));
    }
}

/* A file that is cut at any byte is refused, or is no plan file at all. */
static void test_a_cut_plan_file(void **state) {
    struct fixture *f = *state;
    GP_AUTO_FREE char *path = file_of(f);
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    write_plan(f, NULL);
    assert_int_equal(fs_read(path, 1 << 20, &text, &err), 0);
    for (size_t n = 0; n + 2 < text.len; n += 1 + n / 16) {
        struct plan_file file = {0};
        gp_error_clear(&err);
        assert_int_equal(fs_write_atomic(path, text.s, n, 0600, &err), 0);
        if (n > 40) assert_true(plan_file_is(path));
        assert_int_equal(plan_file_read(path, &file, &err), -GP_EUSAGE);
    }
}

static size_t count_moves(struct fixture *f, const struct plan_file *file, struct str *text) {
    GP_AUTO_MOVES struct plan_moves moves = {0};
    struct plan now = plan_of(f);
    plan_file_moves(file, &now, &moves);
    plan_clear(&now);
    str_reset(text);
    for (size_t i = 0; i < moves.list.len; i++)
        str_addf(text, "%s: %s, %s\n", moves.list.items[i].field, moves.list.items[i].planned, moves.list.items[i].now);
    return moves.list.len;
}

static void test_what_moves(void **state) {
    struct fixture *f = *state;
    GP_AUTO_FREE char *path = file_of(f);
    GP_AUTO_PLAN_FILE struct plan_file file = {0};
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    launched(f, SPEC);
    write_plan(f, NULL);
    assert_int_equal(plan_file_read(path, &file, &err), 0);
    assert_int_equal(count_moves(f, &file, &text), 0);
    thing("i-1")->state = RES_STOPPED;
    assert_true(count_moves(f, &file, &text) > 0);
    assert_non_null(strstr(text.s, "nodes 1: i-1, none"));
    assert_non_null(strstr(text.s, "other machines: none, i-1"));
    assert_null(strstr(text.s, "nodes 0"));
    thing("i-1")->state = RES_RUNNING;
    down_ok(f);
    assert_true(count_moves(f, &file, &text) > 0);
    assert_non_null(strstr(text.s, "uid: "));
}

static void test_dearer_offers_are_not_used(void **state) {
    struct fixture *f = *state;
    GP_AUTO_FREE char *path = file_of(f);
    GP_AUTO_PLAN_FILE struct plan_file file = {0};
    struct gp_error err = {0};
    write_plan(f, NULL);
    assert_int_equal(plan_file_read(path, &file, &err), 0);
    struct plan now = plan_of(f);
    struct offer *o = &now.offers.list.items[0];
    o->price_usd_per_h *= 1.01;
    assert_false(plan_file_may_use(&file, o));
    assert_int_equal(file.left_out.n, 1);
    o->price_usd_per_h = -1; /* not known now */
    assert_false(plan_file_may_use(&file, o));
    o->price_usd_per_h = 0.01;
    assert_true(plan_file_may_use(&file, o));
    free(o->zone);
    o->zone = xstrdup("r9-z"); /* not of the plan */
    assert_false(plan_file_may_use(&file, o));
    plan_clear(&now);
}

/* The hook of the engine: offers that the caller refuses are neither tried nor shown. */
static bool only_second_zone(void *ctx, const struct offer *o) {
    (void)ctx;
    return str_eq(o->zone, "r1-b");
}
static bool none(void *ctx, const struct offer *o) {
    (void)ctx;
    (void)o;
    return false;
}
static void test_offers_that_may_not_be_used(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    struct plan plan = {0};
    f->e->may_use = only_second_zone;
    cloud.script[0] = (struct refusal){GP_ECAPACITY, GP_SCOPE_ZONE, "Insufficient"};
    assert_int_equal(engine_up(f->e, f->spec, &res, &err), -GP_ECAPACITY);
    assert_string_equal(cloud.tried, "r1-b ");
    up_result_clear(&res);
    gp_error_clear(&err);
    f->e->may_use = none;
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EUSAGE);
    f->e->may_use = NULL;
}

static void test_a_plan_is_applied_once(void **state) {
    struct fixture *f = *state;
    GP_AUTO_FREE char *path = file_of(f);
    GP_AUTO_PLAN_FILE struct plan_file file = {0};
    struct gp_error err = {0};
    write_plan(f, NULL);
    assert_int_equal(plan_file_read(path, &file, &err), 0);
    assert_int_equal(plan_file_begin(&file, f->e->state_dir, &err), 0);
    assert_int_equal(plan_file_begin(&file, f->e->state_dir, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "applied before"));
    plan_file_undo(&file, f->e->state_dir);
    gp_error_clear(&err);
    assert_int_equal(plan_file_begin(&file, f->e->state_dir, &err), 0);
}

/* --- units --- */

static int down_of_unit(struct fixture *f, const char *unit, struct gp_error *err) {
    struct down_result res = {0};
    gp_error_clear(err);
    int r = engine_down(f->e, &(struct down_req){.name = "t", .unit = unit, .yes = true}, &res, err);
    down_result_clear(&res);
    return r;
}

static void test_only_stacks_of_the_unit_are_pruned(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    launched(f, SPEC);
    assert_int_equal(down_of_unit(f, "prod", &err), -GP_EUSAGE); /* no unit at all */
    assert_non_null(strstr(err.msg, "no unit"));
    resource_set(&thing("sg-1")->unit, "prod");
    resource_set(&thing("i-0")->unit, "prod");
    resource_set(&thing("i-1")->unit, "other");
    assert_int_equal(down_of_unit(f, "prod", &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "the unit 'other'"));
    assert_int_equal(running(), 2);
    resource_set(&thing("i-1")->unit, "");
    add_of(RES_INSTANCE, "i-9", 0, "me", "t", "dddddddddddddddd", clock_wall_s() + 3600); /* an earlier stack's */
    assert_int_equal(down_of_unit(f, "prod", &err), -GP_EUSAGE);
    assert_int_equal(running(), 3);
    thing("i-9")->state = RES_GONE;
    if (down_of_unit(f, "prod", &err) != 0) fail_msg("%s", err.msg); /* i-1 has the uid of the unit's claim */
    assert_int_equal(alive(), 0);
}

static void test_a_stack_stays_in_its_unit(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct plan plan = {0};
    launched(f, SPEC);
    resource_set(&thing("sg-1")->unit, "prod");
    f->e->opts.unit = "other";
    assert_int_equal(engine_plan(f->e, f->spec, &plan, &err), -GP_EUSAGE);
    assert_non_null(strstr(err.msg, "belongs to the unit 'prod', not to 'other'"));
    f->e->opts.unit = "prod";
    plan = plan_of(f);
    plan_clear(&plan);
    resource_set(&thing("sg-1")->unit, "");
    plan = plan_of(f);
    bool noted = false;
    for (size_t i = 0; i < plan.notes.n; i++) noted = noted || strstr(plan.notes.v[i], "outside of the unit") != NULL;
    assert_true(noted);
    plan_clear(&plan);
}

/* A node that is launched later carries the unit of the stack, also by an `up` of the one spec. */
static void test_new_stacks_carry_the_unit(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct up_result res = {0};
    f->e->opts.unit = "prod";
    for (int i = 0; i < 16; i++) cloud.script[i] = (struct refusal){GP_ECAPACITY, GP_SCOPE_PROVIDER, "Insufficient"};
    cloud.partial[0] = 1;
    (void)engine_up(f->e, f->spec, &res, &err);
    up_result_clear(&res);
    bool seen = false;
    for (size_t i = 0; i < cloud.things.list.len; i++) {
        if (cloud.things.list.items[i].kind != RES_INSTANCE) continue;
        assert_string_equal(cloud.things.list.items[i].unit, "prod");
        seen = true;
    }
    assert_true(seen);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, finish)
int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_changes_of_a_new_stack),
        T(test_changes_of_running_nodes),
        T(test_a_machine_that_is_not_listed_any_more),
        T(test_drift_of_nodes),
        T(test_drift_of_rules),
        T(test_no_drift_while_the_spec_changes),
        T(test_a_plan_file_read_back),
        T(test_a_plan_file_at_a_bad_path),
        T(test_plan_files_that_are_refused),
        T(test_a_cut_plan_file),
        T(test_what_moves),
        T(test_dearer_offers_are_not_used),
        T(test_offers_that_may_not_be_used),
        T(test_a_plan_is_applied_once),
        T(test_only_stacks_of_the_unit_are_pruned),
        T(test_a_stack_stays_in_its_unit),
        T(test_new_stacks_carry_the_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

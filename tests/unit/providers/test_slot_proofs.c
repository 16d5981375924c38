/* SPDX-License-Identifier: Apache-2.0 */
/* Gangs at clouds with one machine per request, in an account where somebody else launches machines with copied
 * tags. */
#include "base/gp_base.h"

#include "slot_world.h"

/* A machine of somebody else with the tags of the launch. forged: also its tag "launch", as a copy of a genuine one. */
static void add_foreign(struct cloud *c, const char *id, int slot, bool forged) {
    struct resource r;
    char launch[PROOF_SIZE] = "00112233445566778899aabbccddeeff";
    resource_init(&r, RES_INSTANCE, "cloud");
    if (forged) proof_of_launch(&c->key, UID, slot, 1, 1, launch);
    resource_set(&r.id, id);
    resource_set(&r.uid, UID);
    resource_set(&r.region, "north");
    resource_set(&r.launch, launch);
    r.slot = r.slot_first = slot;
    r.slot_count = r.attempt = 1;
    c->tokens[c->there.list.len] = xstrdup("");
    vec_push(&c->there.list, r);
}

static void test_foreign_machine_is_not_taken_for_a_lost_one(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->acts[0] = LOSES_REQUEST;
    add_foreign(c, "evil", 0, false);
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_ELOST);
    assert_int_equal(made.list.len, 0);
    assert_int_equal(c->destroyed, 0);
    known(c, 0);
}

static void test_of_two_equal_ones_none_is_taken(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0}, later = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->ops.repeat_max_s = 600;
    c->acts[0] = LOSES_REPLY;
    add_foreign(c, "evil", 0, true);
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EUNKNOWN);
    assert_non_null(strstr(err.msg, "evil"));
    assert_non_null(strstr(err.msg, "vm-0-1"));
    assert_true(made.list.len == 0 && c->sends[0] == 1 && c->destroyed == 0);
    states(c, 1, 0, 0);
    replay_open(c, &later, -GP_EUNKNOWN, &err);
    char proof[PROOF_SIZE]; /* once one has its own proof, the copy does not count */
    struct resource *genuine = &c->there.list.items[1];
    resource_set(&genuine->host_keys, "SHA256:one");
    proof_of_machine(&c->key, UID, "cloud", genuine->id, 0, genuine->host_keys, proof);
    resource_set(&genuine->proof, proof);
    replay_open(c, &later, 0, &err);
    assert_true(later.list.len == 1 && later.list.items[0].ours);
    assert_string_equal(later.list.items[0].id, "vm-0-1");
}

/* A machine has the name of the first request. */
static void test_name_is_taken(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0}, again = {0};
    struct gp_error err = {0};
    char proof[PROOF_SIZE];
    c->acts[0] = NAME_TAKEN;
    add_foreign(c, "evil", 0, true);
    resource_copy(&c->namesake, &c->there.list.items[0]);
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EREACH);
    assert_int_equal(err.scope, GP_SCOPE_NONE);
    assert_non_null(strstr(err.msg, "node 0: another run launched it at cloud"));
    assert_non_null(strstr(err.msg, "gpuprov down llm"));
    assert_true(made.list.len == 0 && c->destroyed == 0);
    states(c, 0, 0, 1);
    known(c, 0);
    resource_set(&c->namesake.host_keys, "SHA256:one");
    proof_of_machine(&c->key, UID, "cloud", "another", 0, "SHA256:one", proof); /* of another machine */
    resource_set(&c->namesake.proof, proof);
    gp_error_clear(&err);
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EREACH);
    proof_of_machine(&c->key, UID, "cloud", "evil", 0, "SHA256:one", proof);
    resource_set(&c->namesake.proof, proof);
    gp_error_clear(&err);
    assert_int_equal(create(c, 1, NULL, &again, &err), 0);
    assert_true(again.list.len == 1 && again.list.items[0].other_run && again.list.items[0].ours);
}

/* The same answer to a repeated request: the first one made it. */
static void test_name_is_taken_by_an_earlier_request(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0}, later = {0};
    struct gp_error err = {0};
    c->ops.replay_max_s = 0;
    c->list_fails = true;
    c->acts[0] = LOSES_REQUEST;
    assert_int_equal(create(c, 1, NULL, &made, &err), -GP_EUNKNOWN);
    c->ops.replay_max_s = 3600;
    c->acts[0] = NAME_TAKEN;
    add_foreign(c, "vm-ours", 0, true);
    resource_copy(&c->namesake, &c->there.list.items[0]);
    replay_open(c, &later, 0, &err);
    assert_true(later.list.len == 1 && later.list.items[0].ours && !later.list.items[0].other_run);
}

static void namesake(struct cloud *c) {
    char proof[PROOF_SIZE];
    add_foreign(c, "theirs", 0, true);
    resource_copy(&c->namesake, &c->there.list.items[0]);
    resource_set(&c->namesake.host_keys, "SHA256:one");
    proof_of_machine(&c->key, UID, "cloud", "theirs", 0, "SHA256:one", proof);
    resource_set(&c->namesake.proof, proof);
}

/* Another run's machine failed: that run decides about it. */
static void test_a_failed_one_of_another_run_stays(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[0] = TAKEN_FAILED;
    namesake(c);
    assert_int_not_equal(create(c, 1, NULL, &made, &err), 0);
    assert_true(made.list.len == 0 && c->destroyed == 0);
}

/* It was gone when the request was sent again: what that made is this run's own. */
static void test_a_name_that_is_free_again(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error err = {0};
    c->acts[0] = TAKEN_ONCE;
    c->ops.replay_max_s = 3600;
    c->hidden_lists = 1000; /* no list shows a machine */
    namesake(c);
    assert_int_equal(create(c, 1, NULL, &made, &err), 0);
    assert_int_equal(c->sends[0], 2);
    assert_true(made.list.len == 1 && !made.list.items[0].other_run && made.list.items[0].ours == OURS_LAUNCHED);
}

static void test_no_launch_without_a_key(void **state) {
    struct cloud *c = *state;
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct proof_key none = {0};
    c->sent_key = NULL;
    assert_int_equal(create(c, 1, NULL, &made, NULL), -GP_EINTERNAL);
    c->sent_key = &none;
    assert_int_equal(create(c, 1, NULL, &made, NULL), -GP_EINTERNAL);
    assert_int_equal(c->sends[0], 0);
    states(c, 0, 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_foreign_machine_is_not_taken_for_a_lost_one),
        T(test_of_two_equal_ones_none_is_taken),
        T(test_name_is_taken),
        T(test_name_is_taken_by_an_earlier_request),
        T(test_a_failed_one_of_another_run_stays),
        T(test_a_name_that_is_free_again),
        T(test_no_launch_without_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The provider contract on bad days. Each case holds for any implementation of provider_ops, whether its
 * cloud behaves or not: whoever starts this program names one case (GPUPROV_CONTRACT_CASE) and makes the
 * cloud behave that way; providers without such days run the same cases. After each case every node that
 * the cloud lists is in the journal, no slot has two nodes, and `destroy` leaves nothing. */
#include "base/gp_base.h"

#include "provider_world.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPLAYS 20

static void begin(void) {
    need_world();
    open_provider(w.journal, &w.p);
    if (w.offers.list.len == 0) OK(w.ops->offers(w.p, w.spec, 0, &w.offers, err));
    new_stack(&w.stack, w.p);
    struct prepare_req req = {.stack = &w.stack, .spec = w.spec};
    OK(w.ops->prepare(w.p, &req, err));
    OK(journal_stack_put(w.journal, &w.stack, "{}", err));
}

static struct create_req request(const struct offer *o, const struct intent *replay) {
    return (struct create_req){.stack = &w.stack,
                               .spec = w.spec,
                               .offer = o,
                               .slot_first = replay ? replay->slot_first : 0,
                               .slot_count = replay ? replay->slot_count : 2,
                               .attempt = replay ? replay->attempt : 1,
                               .proof = one_stack_key(),
                               .login_pubkey = w.pubkey,
                               .user_data = w.ops->user_data ? "#cloud-config\n{}\n" : "",
                               .host_key_private = "",
                               .host_key_public = "",
                               .replay = replay};
}

static size_t open_launches(struct intent_list *ret) {
    struct intent_list all = {0};
    OK(journal_intents(w.journal, w.stack.uid, 1U << INTENT_OPEN, &all, err));
    for (size_t i = 0; i < all.list.len; i++) {
        if (all.list.items[i].kind == node_kind()) vec_push(&ret->list, all.list.items[i]);
        else intent_clear(&all.list.items[i]);
    }
    vec_free(&all.list);
    return ret->list.len;
}

/* What the engine does about launches of which nobody knows the outcome: until each is known. */
static void settle(void) {
    for (int i = 0; i < REPLAYS; i++) {
        struct intent_list open = {0};
        if (open_launches(&open) == 0) return;
        for (size_t k = 0; k < open.list.len; k++) {
            struct gp_error e = {0};
            struct create_req req = request(&w.offers.list.items[0], &open.list.items[k]);
            w.ops->create(w.p, &req, &w.made, &e);
        }
        intent_list_clear(&open);
        OK(gp_sleep(100, &w.cancel, err));
    }
    fail_msg("a launch is still unknown after %d replays", REPLAYS);
}

/* Creates the gang, through an unknown outcome where there is one. */
static void create_gang(void) {
    struct gp_error e = {0};
    struct create_req req = request(&w.offers.list.items[0], NULL);
    int r = w.ops->create(w.p, &req, &w.made, &e);
    if (r != 0 && r != -GP_EUNKNOWN) fail_msg("create: %s [%s]", e.msg, e.detail);
    if (r == -GP_EUNKNOWN) settle();
}

/* want: live nodes; fails when one is not in the journal, or a slot has two. */
static void check_nodes(size_t want) {
    GP_AUTO_RESOURCES struct resource_list seen = {0}, kept = {0};
    struct intent_list open = {0};
    list_nodes(w.p, want, &seen);
    assert_int_equal(count_live(&seen, node_kind()), want);
    for (size_t slot = 0; slot < want; slot++) by_slot(&seen, (int)slot);
    OK(journal_resources(w.journal, w.stack.uid, &kept, err));
    for (size_t slot = 0; slot < want; slot++)
        assert_string_equal(by_slot(&kept, (int)slot)->id, by_slot(&seen, (int)slot)->id);
    assert_int_equal(open_launches(&open), 0);
}

static void end(void) { destroy_all(w.spec->name); }

/* --- cases --- */

/* The whole story under a cloud that refuses some calls as too many, lists in pages and in no order, or
 * gives half a reply: gang_cut, lost_reply, paged, throttled. */
static void test_story(void **state) {
    (void)state;
    begin();
    create_gang();
    check_nodes(2);
    if (w.ops->tag != NULL) {
        GP_AUTO_RESOURCES struct resource_list l = {0};
        list_nodes(w.p, 2, &l);
        OK(one_stack_prove(w.p, by_slot(&l, 0), err));
    }
    end();
}

/* create does not wait for addresses: they come with a later list. */
static void test_late_address(void **state) {
    (void)state;
    begin();
    create_gang();
    int64_t deadline = clock_deadline(w.ops->boot_timeout_ms);
    for (int polls = 0;; polls++) {
        GP_AUTO_RESOURCES struct resource_list l = {0};
        list_nodes(w.p, 2, &l);
        const struct resource *r = by_slot(&l, 1);
        if (r->kind == RES_HOST || r->public_ip[0] != '\0' || r->dial_socket[0] != '\0') break;
        if (clock_left_ms(deadline) == 0) fail_msg("no address after %d lists", polls);
        OK(gp_sleep(50, &w.cancel, err));
    }
    check_nodes(2);
    end();
}

/* A list that lags behind shows neither the claim nor the nodes yet: nothing is made a second time. */
static void test_late_list(void **state) {
    (void)state;
    begin();
    create_gang();
    if (w.ops->unique_claim) {
        struct stack again = {0};
        new_stack(&again, w.p);
        struct prepare_req req = {.stack = &again, .spec = w.spec};
        OK(w.ops->prepare(w.p, &req, err));
        assert_string_equal(again.uid, w.stack.uid);
        stack_clear(&again);
    }
    check_nodes(2);
    end();
}

/* What `up` does in a process of its own, which the test kills. */
static void child(void) {
    struct journal *j = NULL;
    struct gp_error e = {0};
    GP_AUTO_FREE char *file = fs_join(w.state_dir, "journal.db");
    if (journal_open(file, &j, NULL, &e) != 0) _exit(10);
    struct provider_env env = {
        .cancel = &w.cancel, .journal = j, .state_dir = w.state_dir, .owner = getenv("GPUPROV_OWNER"), .spec = w.spec};
    if (w.ops->open(&env, &w.p, &e) != 0) _exit(11);
    new_stack(&w.stack, w.p);
    struct prepare_req prepare = {.stack = &w.stack, .spec = w.spec};
    if (w.ops->prepare(w.p, &prepare, &e) != 0) _exit(13);
    struct create_req req = request(&w.offers.list.items[0], NULL);
    _exit(w.ops->create(w.p, &req, &w.made, &e) == 0 ? 0 : 14);
}

/* Killed at some moment between its first call and its last: one round per moment, spread evenly; the last
 * one is not killed. A launch that left an intent is settled; what is there is written down. */
static void test_killed(void **state) {
    (void)state;
    need_world();
    enum { ROUNDS = 8 };
    int64_t whole_ms = 0;
    for (int round = ROUNDS; round >= 1; round--) {
        struct provider *p = NULL;
        open_provider(w.journal, &p);
        OK(w.ops->offers(p, w.spec, 0, &w.offers, err));
        w.ops->close(p);
        int64_t began = clock_ms();
        int status = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) child();
        if (round < ROUNDS) {
            OK(gp_sleep(whole_ms * round / ROUNDS, &w.cancel, err));
            kill(pid, SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (round == ROUNDS) {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
            whole_ms = clock_ms() - began;
        }
        begin();
        settle();
        GP_AUTO_RESOURCES struct resource_list seen = {0};
        list_nodes(w.p, 0, &seen);
        size_t live = count_live(&seen, node_kind());
        assert_true(live == 0 || live == 2);
        if (round == ROUNDS) assert_int_equal(live, 2);
        check_nodes(live);
        end();
        OK(journal_stack_forget(w.journal, w.stack.uid, err));
        resource_list_clear(&w.made);
        offer_list_clear(&w.offers);
        stack_clear(&w.stack);
        w.ops->close(w.p);
        w.p = NULL;
    }
}

/* async_failure: the cloud accepts the whole gang, and then has no room. gang_partial: it has room for one node of two.
 * create fails as capacity or quota, and no launch stays open. A node that is left is in the journal. */
static void test_no_room(void **state) {
    (void)state;
    begin();
    struct gp_error e = {0};
    struct create_req req = request(&w.offers.list.items[0], NULL);
    int r = w.ops->create(w.p, &req, &w.made, &e);
    if (r != -GP_ECAPACITY && r != -GP_EQUOTA) fail_msg("create: %d %s [%s]", r, e.msg, e.detail);
    struct intent_list open = {0};
    assert_int_equal(open_launches(&open), 0);
    GP_AUTO_RESOURCES struct resource_list seen = {0}, kept = {0};
    OK(journal_resources(w.journal, w.stack.uid, &kept, err));
    list_nodes(w.p, 0, &seen);
    size_t left = 0;
    for (size_t i = 0; i < seen.list.len; i++) {
        const struct resource *one = &seen.list.items[i];
        if (one->kind != node_kind() || one->state == RES_GONE || one->state == RES_STOPPING) continue;
        assert_string_equal(by_slot(&kept, one->slot)->id, one->id);
        left++;
    }
    assert_true(left <= 1);
    end();
}

/* From here on the cloud refuses what the case says. */
static void begin_refusals(void) {
    const char *flag = getenv("GPUPROV_CONTRACT_FLAG");
    if (flag == NULL) fail_msg("GPUPROV_CONTRACT_FLAG names no file");
    OK(fs_write_atomic(flag, "", 0, 0600, err));
}

static void end_refusals(void) { assert_int_equal(unlink(getenv("GPUPROV_CONTRACT_FLAG")), 0); }

/* A list that is refused, or whose reply is a success without a list, is never "no machines": it is an error, and no region
 * counts as read. */
static void test_list_refused(void **state) {
    (void)state;
    begin();
    create_gang();
    begin_refusals();
    GP_AUTO_RESOURCES struct resource_list l = {0};
    GP_AUTO_STRV struct strv regions = {0};
    struct coverage looked = {0};
    struct gp_error e = {0};
    strv_add(&regions, w.stack.region);
    struct list_req req = {.owner = w.p->owner, .stack = w.spec->name, .regions = &regions, .looked = &looked};
    if (w.ops->list(w.p, &req, &l, &e) == 0) fail_msg("a refused list is a success with %zu resources", l.list.len);
    assert_true(e.msg[0] != '\0');
    assert_false(coverage_whole(&looked));
    coverage_clear(&looked);
    end_refusals();
    check_nodes(2);
    end();
}

/* The cloud refuses to terminate machines: destroy returns an error, and they stay listed. */
static void test_destroy_refused(void **state) {
    (void)state;
    begin();
    create_gang();
    begin_refusals();
    GP_AUTO_RESOURCES struct resource_list l = {0};
    struct gp_error e = {0};
    list_nodes(w.p, 2, &l);
    if (w.ops->destroy(w.p, &l, &e) == 0) fail_msg("machines that the cloud keeps count as being destroyed");
    assert_true(e.msg[0] != '\0');
    check_nodes(2);
    end_refusals();
    end();
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "__holder") == 0) return local_holder_main(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {
        {"async_failure", test_no_room, NULL, NULL, NULL},
        {"destroy_refused", test_destroy_refused, NULL, NULL, NULL},
        {"gang_cut", test_story, NULL, NULL, NULL},
        {"gang_partial", test_no_room, NULL, NULL, NULL},
        {"killed", test_killed, NULL, NULL, NULL},
        {"late_address", test_late_address, NULL, NULL, NULL},
        {"late_list", test_late_list, NULL, NULL, NULL},
        {"list_hollow", test_list_refused, NULL, NULL, NULL},
        {"list_refused", test_list_refused, NULL, NULL, NULL},
        {"lost_reply", test_story, NULL, NULL, NULL},
        {"paged", test_story, NULL, NULL, NULL},
        {"throttled", test_story, NULL, NULL, NULL},
    };
    const char *name = getenv("GPUPROV_CONTRACT_CASE");
    if (name != NULL) cmocka_set_test_filter(name);
    return cmocka_run_group_tests_name("provider faults", tests, setup, teardown);
}

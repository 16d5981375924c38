// SPDX-License-Identifier: Apache-2.0
/* The local provider on its bad days: a deadline that passes, a holder killed or still setting up, its
 * folder removed or moved, several controllers at once, kill -9 at any moment; afterwards nothing is left. */
#include "local_world.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

static void test_deadline(void **state) {
    (void)state;
    need_local();
    struct up u;
    /* short, but long enough here and now for the node to be made */
    struct gp_error late = {0};
    for (int64_t ttl_s = 2;; ttl_s *= 2) {
        gp_error_clear(&late);
        up_open(&u, "late", 1, ttl_s);
        if (up_try(&u, 0, 1, 1, &late) == 0) break;
        if (ttl_s > 60) fail_msg("%s", late.msg);
        up_close(&u);
    }
    GP_AUTO_RESOURCES struct resource_list all = {0};
    /* nobody ends it: it must go, with its folder */
    for (int64_t end = clock_deadline(150000); clock_left_ms(end) > 0;) {
        up_list(&u, &all);
        if (all.list.len == 0) break;
        gp_sleep(50, NULL, NULL);
    }
    assert_int_equal(all.list.len, 0);
    up_close(&u);
    /* the process itself ends a moment after its folder */
    for (int64_t end = clock_deadline(60000); count_holders() > 0 && clock_left_ms(end) > 0;) gp_sleep(20, NULL, NULL);
    assert_nothing_left();
}

static void test_holder_killed(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "killed", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "killed");
    GP_AUTO_FREE char *uid = xstrdup(u.stack.uid);
    OK(local_holder_kill(dir, clock_deadline(10000), err));
    GP_AUTO_RESOURCES struct resource_list all = {0};
    up_list(&u, &all);
    assert_int_equal(all.list.len, 1);
    assert_int_equal(all.list.items[0].state, RES_STOPPED);
    OK(up_try(&u, 0, 1, 2, err)); /* the claim is still there: same stack, new holder */
    assert_string_equal(u.stack.uid, uid);
    GP_AUTO_FREE char *name = on(the(&u.made, RES_INSTANCE, 0), "hostname");
    assert_string_equal(name, "killed-0");
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

struct renamer {
    char *from, *to;
};

static void *rename_soon(void *arg) {
    const struct renamer *r = arg;
    gp_sleep(100, NULL, NULL);
    assert_int_equal(rename(r->from, r->to), 0);
    return NULL;
}

/* The record of a holder is there before it can be asked: a create in between waits. */
static void test_holder_that_is_setting_up(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "slow", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "slow");
    struct renamer r = {.from = fs_join(dir, "later"), .to = fs_join(dir, "ctl")};
    pthread_t thread = 0;
    assert_int_equal(rename(r.to, r.from), 0);
    assert_int_equal(pthread_create(&thread, NULL, rename_soon, &r), 0);
    OK(up_try(&u, 0, 1, 1, err));
    pthread_join(thread, NULL);
    assert_non_null(find(&u.made, RES_INSTANCE, 0));
    free(r.from);
    free(r.to);
    up_down(&u);
    up_close(&u);
    assert_nothing_left();
}

static void test_folder_removed_by_hand(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "rm", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "rm");
    OK(local_remove(stacks, dir, u.stack.uid, err));
    for (int64_t end = clock_deadline(60000); count_holders() > 0 && clock_left_ms(end) > 0;) gp_sleep(20, NULL, NULL);
    up_close(&u);
    assert_nothing_left();
}

/* The state folder moved away: nobody can find that stack by its name, so it ends. */
static void test_folder_moved(void **state) {
    (void)state;
    need_local();
    struct up u;
    up_open(&u, "mv", 1, 3600);
    OK(up_try(&u, 0, 1, 1, err));
    GP_AUTO_FREE char *stacks = fs_join(w.state, "local");
    GP_AUTO_FREE char *dir = local_dir(stacks, u.p->owner, "mv");
    GP_AUTO_FREE char *away = fs_join(w.state, "elsewhere");
    assert_int_equal(rename(dir, away), 0);
    for (int64_t end = clock_deadline(60000); count_holders() > 0 && clock_left_ms(end) > 0;) gp_sleep(20, NULL, NULL);
    assert_int_equal(count_holders(), 0);
    OK(fs_remove_tree(away, err));
    up_close(&u);
    assert_nothing_left();
}

struct racer {
    struct up u;
    pthread_t thread;
    struct gp_error err;
    int r;
};
static void *race(void *arg) {
    struct racer *r = arg;
    r->r = up_try(&r->u, 0, 2, 1, &r->err);
    return NULL;
}

static void test_two_at_once(void **state) {
    (void)state;
    need_local();
    struct racer r[3] = {0};
    for (int i = 0; i < 3; i++) up_open(&r[i].u, "race", 2, 3600);
    for (int i = 0; i < 3; i++) pthread_create(&r[i].thread, NULL, race, &r[i]);
    for (int i = 0; i < 3; i++) pthread_join(r[i].thread, NULL);
    for (int i = 0; i < 3; i++) {
        if (r[i].r != 0) fail_msg("%d: %s", i, r[i].err.msg);
        assert_string_equal(r[i].u.stack.uid, r[0].u.stack.uid);
        for (int s = 0; s < 2; s++)
            assert_string_equal(the(&r[i].u.made, RES_INSTANCE, s)->id, the(&r[0].u.made, RES_INSTANCE, s)->id);
    }
    up_down(&r[0].u);
    for (int i = 0; i < 3; i++) up_close(&r[i].u);
    assert_nothing_left();
}

/* This program again, as a controller that is killed in the middle of its work. */
static pid_t start_controller(void) {
    char exe[] = "/proc/self/exe", mode[] = "__up";
    char *argv[] = {exe, mode, w.state, w.pubkey, NULL}, *envp[] = {NULL};
    pid_t pid = -1;
    assert_int_equal(posix_spawn(&pid, exe, NULL, NULL, argv, envp), 0);
    return pid;
}

static void test_killed_at_any_moment(void **state) {
    (void)state;
    need_local();
    for (int i = 0; i < 20; i++) {
        unsigned ms = 0;
        OK(fs_random(&ms, sizeof ms, err));
        pid_t pid = start_controller();
        gp_sleep(ms % 70, NULL, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        struct up u;
        up_open(&u, "crash", 2, 3600);
        up_down(&u);
        up_close(&u);
    }
    /* a starter outlives its controller for a moment; its stack is recorded and found like any */
    for (int64_t end = clock_deadline(30000); count_holders() > 0 && clock_left_ms(end) > 0;) {
        struct up u;
        up_open(&u, "crash", 2, 3600);
        up_down(&u);
        up_close(&u);
        gp_sleep(50, NULL, NULL);
    }
    assert_nothing_left();
}

static int controller_main(char **argv) {
    str_put(w.state, sizeof w.state, argv[2]);
    w.pubkey = argv[3];
    struct gp_error err = {0};
    struct up u;
    if (gp_cancel_init(&w.cancel, &err) != 0) return 1;
    up_open(&u, "crash", 2, 3600);
    return up_try(&u, 0, 2, 1, &err) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "__holder") == 0) return local_holder_main(argc - 1, argv + 1);
    if (argc > 3 && strcmp(argv[1], "__up") == 0) return controller_main(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_deadline),
                                       cmocka_unit_test(test_holder_killed),
                                       cmocka_unit_test(test_holder_that_is_setting_up),
                                       cmocka_unit_test(test_folder_removed_by_hand),
                                       cmocka_unit_test(test_folder_moved),
                                       cmocka_unit_test(test_two_at_once),
                                       cmocka_unit_test(test_killed_at_any_moment)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

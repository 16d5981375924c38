/* SPDX-License-Identifier: Apache-2.0 */
/* Running the node checks over real sshd. The agents are shell scripts here, because these tests are
 * about what goes wrong: an agent that dies, lies, babbles, or whose connection is cut. */
#include "validate_bench.h"

static void test_good(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_node(&b,
                              "echo \"$*\" >\"$HOME/args\";" HELLO START("host.clock") PASS("host.clock")
                                  START("host.cores") PASS("host.cores") END "exit 0",
                              &err),
                     0);
    expect(&b, 0, VERDICT_PASS, "");
    expect(&b, 1, VERDICT_PASS, "");
    expect(&b, 2, VERDICT_SKIPPED, "no gpu");
    assert_true(b.rns[0].checks.items[0].required);
    assert_false(b.rns[0].checks.items[2].required); /* what cannot apply is not held against it */
    assert_int_equal(b.events[EVENT_START], 2);
    assert_int_equal(b.events[EVENT_DONE], 2);
    GP_AUTO_FREE char *args = node_file(0, "args");
    assert_contains(args, "run --time ");
    assert_contains(args, " --checks host.clock,host.cores --now-ms ");
    assert_contains(args, " --now-boot "); /* the agent's own boot would be no second clock */
    assert_contains(args, " --gpus 0");
    bench_close(&b);
}

static void broken(const char *script, enum verdict running, enum verdict waiting, const char *says) {
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_node(&b, script, &err), 0);
    expect(&b, 0, running, says);
    expect(&b, 1, waiting, says);
    bench_close(&b);
}

static void test_what_was_not_said_is_no_pass(void **state) {
    (void)state;
    NEEDS_SSHD();
    broken(HELLO START("host.clock") "exit 0", VERDICT_ERROR, VERDICT_SKIPPED, "exit status 0");
    broken(HELLO START("host.clock") "echo 'out of luck' >&2; exit 3", VERDICT_ERROR, VERDICT_SKIPPED,
           "exit status 3: out of luck");
    broken(HELLO START("host.clock") "kill -9 $$", VERDICT_ERROR, VERDICT_SKIPPED, "SIGKILL");
    broken(HELLO START("host.clock") "sleep 2; kill -9 $PPID; sleep 5", VERDICT_ERROR, VERDICT_SKIPPED,
           "lost the connection to the node");
    broken(HELLO START("host.clock") "echo Segmentation fault; " PASS("host.clock") PASS("host.cores") END,
           VERDICT_ERROR, VERDICT_SKIPPED, "JSON");
    broken(HELLO START("host.clock") "head -c 300000 /dev/zero | tr '\\0' x; echo; " PASS("host.clock") END,
           VERDICT_ERROR, VERDICT_SKIPPED, "agent");
    broken(HELLO START("host.clock") "echo '{\"type\":\"result\",\"check\":\"host.disk\",\"verdict\":\"pass\"}'",
           VERDICT_ERROR, VERDICT_SKIPPED, "not requested");
    /* all passed, and then something happened */
    broken(HELLO GOOD "kill -9 $$", VERDICT_ERROR, VERDICT_ERROR, "but then: the agent was killed by SIGKILL");
    broken(HELLO GOOD "exit 0", VERDICT_ERROR, VERDICT_ERROR, "but then: the agent ended early");
    broken(HELLO GOOD END "echo Killed", VERDICT_ERROR, VERDICT_ERROR, "JSON");
    broken(HELLO GOOD "sleep 2; kill -9 $PPID; sleep 5", VERDICT_ERROR, VERDICT_ERROR,
           "but then: lost the connection to the node");
    broken(HELLO GOOD "echo '{\"type\":\"end\",\"verdict\":\"fail\",\"reason\":\"driver hang\"}'; exit 2",
           VERDICT_ERROR, VERDICT_ERROR, "driver hang");
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_node(&b, GOOD END, &err), -GP_EVALIDATE); /* of no protocol that is known */
    assert_contains(err.msg, "did not send hello");
    expect(&b, 0, VERDICT_ERROR, "hello");
    expect(&b, 1, VERDICT_ERROR, "hello");
    bench_close(&b);
}

/* Another boot than the one that the agent spoke of: the controller looks, and says so. */
static void test_a_reboot_is_told(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    static const char hello[] = "echo '{\"v\":1,\"type\":\"hello\",\"boot_id\":\"0b0b0b0b-1111\"}';";
    GP_AUTO_FREE char *cut = xasprintf(
        "%s" START("host.clock") PASS("host.clock") START("host.cores") "sleep 2; kill -9 $PPID; sleep 5", hello);
    assert_int_equal(run_node(&b, cut, &err), 0);
    expect(&b, 0, VERDICT_ERROR, "but then: the node rebooted while its checks ran");
    expect(&b, 1, VERDICT_ERROR, "no result: the node rebooted while its checks ran");
    bench_close(&b);
    /* the same boot: only the connection was lost */
    GP_AUTO_STR struct str boot = {0};
    assert_int_equal(fs_read("/proc/sys/kernel/random/boot_id", 64, &boot, NULL), 0);
    GP_AUTO_FREE char *same = xasprintf(
        "echo '{\"v\":1,\"type\":\"hello\",\"boot_id\":\"%s\"}';" START("host.clock") "sleep 2; kill -9 $PPID; sleep 5",
        str_trim(boot.s));
    assert_int_equal(run_node(&b, same, &err), 0);
    expect(&b, 0, VERDICT_ERROR, "no result: lost the connection to the node");
    bench_close(&b);
}

static void test_what_the_agent_is_asked(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err = {0};
    bench_open(&b);
    b.env.all = true;
    b.plan.node_time_ms = 90000;
    struct spec_floor f = {
        .check = xstrdup("host.cores"), .metric = xstrdup("usable"), .value = 1, .unit = xstrdup("cores")};
    vec_push(&b.spec.validate.floors, f);
    write_agent(0, "echo \"$*\" >\"$HOME/args\";" HELLO
                   "echo '{\"type\":\"loaded\",\"load_ms\":2100,\"gpus\":[]}';" GOOD END);
    vec_push(&b.plan.node_checks, check_find("host.clock"));
    vec_push(&b.plan.node_checks, check_find("host.cores"));
    assert_int_equal(validate_node(&b.links[0], &b.env, &b.rns[0], &err), 0);
    expect(&b, 0, VERDICT_PASS, "");
    expect(&b, 1, VERDICT_PASS, "");
    assert_int_equal(b.rns[0].load_ms, 2100);
    assert_int_equal(b.events[EVENT_INFO], 1);
    GP_AUTO_FREE char *args = node_file(0, "args");
    assert_contains(args, "run --time 90000ms ");
    assert_contains(args, " --floors host.cores");
    assert_contains(args, " --all");
    free(f.check);
    free(f.metric);
    free(f.unit);
    vec_free(&b.spec.validate.floors);
    bench_close(&b);
}

/* An agent that babbles is ended, not only ignored. */
static void test_babbling_agent_is_ended(void **state) {
    (void)state;
    NEEDS_SSHD();
    broken("echo \"{\\\"v\\\":1,\\\"type\\\":\\\"hello\\\",\\\"pid\\\":$$}\"; echo $$ >\"$HOME/pid\";" START(
               "host.clock") "echo babble; while :; do sleep 0.1; done",
           VERDICT_ERROR, VERDICT_SKIPPED, "JSON");
    GP_AUTO_FREE char *pid = node_file(0, "pid");
    int64_t n = 0;
    assert_true(str_to_i64(str_trim(pid), 2, 1 << 30, &n));
    int64_t deadline = clock_deadline(60000);
    while (kill((pid_t)n, 0) == 0 && clock_left_ms(deadline)) usleep(10000);
    assert_int_not_equal(kill((pid_t)n, 0), 0);
}

static void test_no_agent(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    bench_open(&b);
    GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/agent/gpuprov-agent", homes[0]);
    unlink(path);
    vec_push(&b.plan.node_checks, check_find("host.clock"));
    err = (struct gp_error){0};
    assert_int_equal(validate_node(&b.links[0], &b.env, &b.rns[0], &err), -GP_EVALIDATE);
    assert_contains(err.msg, "llm/0: cannot run the agent");
    assert_contains(err.msg, "there is no agent at");
    expect(&b, 0, VERDICT_ERROR, "there is no agent at");
    bench_close(&b);
}

static void test_cancel(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err = {0};
    bench_open(&b);
    b.cancel_on_start = true;
    GP_AUTO_FREE char *endless = xasprintf("%s echo $$ >>%s/pids; exec sleep 1000", HELLO START("host.clock"), fx.dir);
    write_agent(0, endless);
    vec_push(&b.plan.node_checks, check_find("host.clock"));
    assert_int_equal(validate_node(&b.links[0], &b.env, &b.rns[0], &err), -GP_ECANCELLED);
    expect(&b, 0, VERDICT_ERROR, "");
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_what_was_not_said_is_no_pass),
        cmocka_unit_test(test_a_reboot_is_told),
        cmocka_unit_test(test_what_the_agent_is_asked),
        cmocka_unit_test(test_babbling_agent_is_ended),
        cmocka_unit_test(test_no_agent),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

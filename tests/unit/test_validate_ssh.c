/* SPDX-License-Identifier: Apache-2.0 */
/* Running agents over real sshd. The agents are shell scripts here, because these tests are about
 * what goes wrong: an agent that dies, lies, babbles, or whose connection is cut. Two servers on
 * loopback are two nodes, each with a home of its own. */
#include "ssh_fixture.h"

#include "validate/validate.h"

static struct sshd nodes[2];
static char *homes[2];

static int setup(void **state)
{
    fx_setup(state);
    for (size_t i = 0; !fx.skip && i < 2; i++) {
        GP_AUTO_FREE char *name = xasprintf("node%zu", i);
        homes[i] = xasprintf("%s/home%zu", fx.dir, i);
        GP_AUTO_FREE char *agent = xasprintf("%s/.gpuprov/agent", homes[i]);
        assert_int_equal(fs_mkdirs(agent, 0700, NULL), 0);
        GP_AUTO_FREE char *extra = xasprintf("SetEnv HOME=%s\n", homes[i]);
        fx_sshd_start(&nodes[i], name, "ed25519", extra);
    }
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        fx_sshd_clear(&nodes[i]);
        free(homes[i]);
    }
    return fx_teardown(state);
}

static void write_agent(size_t node, const char *script)
{
    GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/agent/gpuprov-agent", homes[node]);
    GP_AUTO_FREE char *text = xasprintf("#!/bin/sh\n%s\n", script);
    fx_write(path, text, 0700);
}

static char *node_file(size_t node, const char *name)
{
    GP_AUTO_FREE char *path = xasprintf("%s/%s", homes[node], name);
    GP_AUTO_STR struct str s = {0};
    fs_read(path, 1 << 20, &s, NULL);
    return xstrdup(s.s ? s.s : "");
}

/* --- what a validation needs --- */

struct bench {
    struct spec spec;
    struct validate_plan plan;
    struct validate_env env;
    struct gp_cancel cancel;
    struct event_sink sink;
    struct node_link links[2];
    struct report_node rns[2];
    struct report report;
    int events[EVENT_FAIL + 1];
    bool cancel_on_start;
};

static void on_event(void *ctx, const struct event *e)
{
    struct bench *b = ctx;
    b->events[e->status]++;
    if (b->cancel_on_start && e->status == EVENT_START)
        gp_cancel_set(&b->cancel);
}

static void bench_open(struct bench *b)
{
    *b = (struct bench){.spec.nodes = 2};
    assert_int_equal(gp_cancel_init(&b->cancel, NULL), 0);
    b->sink = (struct event_sink){on_event, b};
    b->env = (struct validate_env){.spec = &b->spec,
                                   .plan = &b->plan,
                                   .stack = "llm",
                                   .uid = "0123456789abcdef",
                                   .run = "fedcba9876543210",
                                   .cancel = &b->cancel,
                                   .sink = &b->sink};
    for (size_t i = 0; i < 2; i++) {
        b->links[i] = (struct node_link){
            .slot = (int)i, .reach_timeout_ms = 20000, .cancel = &b->cancel, .sink = &b->sink};
        fx_target(&b->links[i].target, &nodes[i]);
        free(b->links[i].target.label);
        b->links[i].target.label = xasprintf("llm/%zu", i);
    }
}

static void bench_close(struct bench *b)
{
    for (size_t i = 0; i < 2; i++) {
        node_link_close(&b->links[i]);
        ssh_target_clear(&b->links[i].target);
        for (size_t k = 0; k < b->rns[i].checks.len; k++)
            check_result_clear(&b->rns[i].checks.items[k]);
        vec_free(&b->rns[i].checks);
        free(b->rns[i].host);
    }
    for (size_t k = 0; k < b->report.gang.len; k++)
        check_result_clear(&b->report.gang.items[k]);
    vec_free(&b->report.gang);
    validate_plan_clear(&b->plan);
    gp_cancel_clear(&b->cancel);
}

/* Runs host.clock and host.cores on node 0 with this script as the agent. */
static int run_node(struct bench *b, const char *script, struct gp_error *err)
{
    bench_open(b);
    write_agent(0, script);
    vec_push(&b->plan.node_checks, check_find("host.clock"));
    vec_push(&b->plan.node_checks, check_find("host.cores"));
    strv_add(&b->plan.left_out, "gpu.memfill (the spec asks for no gpu)");
    strv_add(&b->plan.left_out, "net.pair (needs two nodes or more)");
    *err = (struct gp_error){0};
    int rc = validate_node(&b->links[0], &b->env, &b->rns[0], err);
    assert_int_equal(b->rns[0].checks.len, 3); /* the gang's left-out check is not a node's */
    return rc;
}

#define HELLO "echo '{\"v\":1,\"type\":\"hello\"}';"
#define START(id) "echo '{\"type\":\"start\",\"check\":\"" id "\"}';"
/* with the figures that each of the checks used here is held to */
#define PASS(id)                                                                                   \
    "echo '{\"type\":\"result\",\"check\":\"" id "\",\"verdict\":\"pass\",\"metrics\":["              \
    "{\"name\":\"offset\",\"value\":1,\"unit\":\"s\"},{\"name\":\"usable\",\"value\":1,\"unit\":"        \
    "\"cores\"},{\"name\":\"loss\",\"value\":1.4,\"unit\":\"nats\"},{\"name\":\"straggler\",\"value\":1,"  \
    "\"unit\":\"ratio\"},{\"name\":\"agreement\",\"value\":0,\"unit\":\"of bound\"}]}';"
#define GOOD START("host.clock") PASS("host.clock") START("host.cores") PASS("host.cores")
#define END "echo '{\"type\":\"end\",\"verdict\":\"pass\"}';"

static void expect(const struct bench *b, size_t i, enum verdict v, const char *says)
{
    const struct check_result *r = &b->rns[0].checks.items[i];
    if (r->verdict != v)
        fail_msg("%s is %s: %s", r->check, verdict_name(r->verdict), r->message);
    if (*says)
        assert_contains(r->message, says);
}

static void test_good(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_node(&b, "echo \"$*\" >\"$HOME/args\";" HELLO START("host.clock")
                                  PASS("host.clock") START("host.cores") PASS("host.cores") END "exit 0",
                              &err), 0);
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
    assert_contains(args, " --gpus 0");
    bench_close(&b);
}

static void broken(const char *script, enum verdict running, enum verdict waiting, const char *says)
{
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_node(&b, script, &err), 0);
    expect(&b, 0, running, says);
    expect(&b, 1, waiting, says);
    bench_close(&b);
}

static void test_what_was_not_said_is_no_pass(void **state)
{
    (void)state;
    NEEDS_SSHD();
    broken(HELLO START("host.clock") "exit 0", VERDICT_ERROR, VERDICT_SKIPPED, "exit status 0");
    broken(HELLO START("host.clock") "echo 'out of luck' >&2; exit 3", VERDICT_ERROR, VERDICT_SKIPPED,
           "exit status 3: out of luck");
    broken(HELLO START("host.clock") "kill -9 $$", VERDICT_ERROR, VERDICT_SKIPPED, "SIGKILL");
    broken(HELLO START("host.clock") "sleep 0.3; kill -9 $PPID; sleep 5", VERDICT_ERROR, VERDICT_SKIPPED,
           "connection to the node was lost");
    broken(HELLO START("host.clock") "echo Segmentation fault; " PASS("host.clock") PASS("host.cores") END,
           VERDICT_ERROR, VERDICT_SKIPPED, "JSON");
    broken(HELLO START("host.clock") "head -c 300000 /dev/zero | tr '\\0' x; echo; " PASS("host.clock") END,
           VERDICT_ERROR, VERDICT_SKIPPED, "agent");
    broken(HELLO START("host.clock") "echo '{\"type\":\"result\",\"check\":\"host.disk\",\"verdict\":\"pass\"}'",
           VERDICT_ERROR, VERDICT_SKIPPED, "not asked for");
    /* all passed, and then something happened */
    broken(HELLO GOOD "kill -9 $$", VERDICT_ERROR, VERDICT_ERROR, "but then: the agent was killed by SIGKILL");
    broken(HELLO GOOD "exit 0", VERDICT_ERROR, VERDICT_ERROR, "but then: the agent ended early");
    broken(HELLO GOOD END "echo Killed", VERDICT_ERROR, VERDICT_ERROR, "JSON");
    broken(HELLO GOOD "sleep 0.3; kill -9 $PPID; sleep 5", VERDICT_ERROR, VERDICT_ERROR,
           "but then: the connection to the node was lost");
    broken(HELLO GOOD "echo '{\"type\":\"end\",\"verdict\":\"fail\",\"reason\":\"driver hang\"}'; exit 2",
           VERDICT_ERROR, VERDICT_ERROR, "driver hang");
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_node(&b, GOOD END, &err), -GP_EVALIDATE); /* of no protocol that is known */
    assert_contains(err.msg, "did not say hello");
    expect(&b, 0, VERDICT_ERROR, "hello");
    expect(&b, 1, VERDICT_ERROR, "hello");
    bench_close(&b);
}

/* An agent that babbles is ended, not only ignored. */
static void test_babbling_agent_is_ended(void **state)
{
    (void)state;
    NEEDS_SSHD();
    broken("echo \"{\\\"v\\\":1,\\\"type\\\":\\\"hello\\\",\\\"pid\\\":$$}\"; echo $$ >\"$HOME/pid\";" START("host.clock")
           "echo babble; while :; do sleep 0.1; done", VERDICT_ERROR, VERDICT_SKIPPED, "JSON");
    GP_AUTO_FREE char *pid = node_file(0, "pid");
    int64_t n = 0;
    assert_true(str_to_i64(str_trim(pid), 2, 1 << 30, &n));
    int64_t deadline = clock_deadline(10000);
    while (kill((pid_t)n, 0) == 0 && clock_left_ms(deadline))
        usleep(10000);
    assert_int_not_equal(kill((pid_t)n, 0), 0);
}

static void test_no_agent(void **state)
{
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
    assert_contains(err.msg, "llm/0: the agent could not be run");
    assert_contains(err.msg, "there is no agent at");
    expect(&b, 0, VERDICT_ERROR, "there is no agent at");
    bench_close(&b);
}

static void test_cancel(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err = {0};
    bench_open(&b);
    b.cancel_on_start = true;
    write_agent(0, HELLO START("host.clock") "sleep 30");
    vec_push(&b.plan.node_checks, check_find("host.clock"));
    int64_t began = clock_ms();
    assert_int_equal(validate_node(&b.links[0], &b.env, &b.rns[0], &err), -GP_ECANCELLED);
    assert_true(clock_ms() - began < 25000); /* not after the agent's own end */
    expect(&b, 0, VERDICT_ERROR, "");
    bench_close(&b);
}

/* --- the gang --- */

/* A rank that writes its lines to a file and is "alive" as long as the file `alive` is there. MORE is
 * what it writes after it was followed once, so that rank 0 has not ended before the others begin. */
#define RANK(MORE)                                                                                 \
    "verb=$1; shift; dir=; from=0; rank=;\n"                                                       \
    "while [ $# -gt 0 ]; do case $1 in --dir) dir=$2;; --from) from=$2;; --rank) rank=$2;; esac; " \
    "shift 2; done\n"                                                                              \
    "case $verb in\n"                                                                              \
    "rank) read -r token; read -r addr; echo \"$token\" >\"$HOME/token\"; echo \"$addr\" "         \
    ">\"$HOME/addr\"; : >\"$dir/alive\"\n"                                                         \
    "  { echo '{\"v\":1,\"type\":\"hello\",\"rank\":'$rank',\"size\":2,\"boot_id\":\"'$BOOT'\"}'; [ $rank != 0 ] || echo '{\"type\":\"listen\",\"addr\":\"10.0.0.1:4444\"}'; "    \
    START("train.ddp") " } >\"$dir/rank.jsonl\"\n"                                                \
    "  echo '{\"type\":\"started\",\"pid\":'$$'}';;\n"                                             \
    "follow) size=$(wc -c <\"$dir/rank.jsonl\"); alive=false; [ ! -e \"$dir/alive\" ] || "         \
    "alive=true; tail -c +$((from + 1)) \"$dir/rank.jsonl\"\n"                                     \
    "  echo '{\"type\":\"at\",\"offset\":'$size',\"alive\":'$alive'}'\n"                           \
    "  [ -e \"$dir/more\" ] || { : >\"$dir/more\"; { " MORE " } >>\"$dir/rank.jsonl\"; };;\n"       \
    "stop) echo stopped >>\"$HOME/stopped\";;\n"                                                  \
    "esac"

static int run_gang(struct bench *b, const char *zero, const char *one, struct gp_error *err)
{
    bench_open(b);
    write_agent(0, zero);
    write_agent(1, one);
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *stopped = xasprintf("%s/stopped", homes[i]);
        unlink(stopped);
    }
    vec_push(&b->plan.gang_checks, check_find("train.ddp"));
    struct gang_node gang[2] = {{&b->links[0], "10.0.0.1", &b->rns[0]},
                                {&b->links[1], "10.0.0.2", &b->rns[1]}};
    *err = (struct gp_error){0};
    return validate_gang(gang, 2, &b->env, &b->report, err);
}

static void nothing_left(void)
{
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *dir = xasprintf("%s/.gpuprov/run/fedcba9876543210-rank%zu", homes[i], i);
        assert_false(fs_exists(dir));
    }
}

static void test_gang_good(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    const char *good = RANK(PASS("train.ddp") END);
    if (run_gang(&b, good, good, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(b.report.gang.len, 1);
    assert_int_equal(b.events[EVENT_START], 2); /* on every node that takes part */
    if (b.report.gang.items[0].verdict != VERDICT_PASS)
        fail_msg("%s", b.report.gang.items[0].message);
    assert_true(b.report.gang.items[0].required);
    GP_AUTO_FREE char *token0 = node_file(0, "token");
    GP_AUTO_FREE char *token1 = node_file(1, "token");
    GP_AUTO_FREE char *addr0 = node_file(0, "addr");
    GP_AUTO_FREE char *addr1 = node_file(1, "addr");
    assert_int_equal(strlen(token0), 65);
    assert_string_equal(token0, token1);
    assert_string_equal(addr0, "\n"); /* rank 0 is the rendezvous */
    assert_string_equal(addr1, "10.0.0.1:4444\n");
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(b.rns[i].checks.items[0].verdict, VERDICT_PASS);
    nothing_left();
    bench_close(&b);
}

/* What ~/.bashrc prints is nobody's word, with and without a newline at its end. */
static void test_start_up_files_that_print(void **state)
{
    (void)state;
    NEEDS_SSHD();
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/.bashrc", homes[i]);
        fx_write(path, "echo ran >>\"$HOME/bashrc-ran\"; echo 'to err' >&2; echo welcome; printf 'today:'\n",
                 0600);
    }
    struct bench b;
    struct gp_error err;
    if (run_node(&b, HELLO START("host.clock") PASS("host.clock") START("host.cores")
                 PASS("host.cores") END "exit 0", &err) != 0)
        fail_msg("%s", err.msg);
    expect(&b, 0, VERDICT_PASS, "");
    bench_close(&b);
    assert_int_equal(run_node(&b, HELLO START("host.clock") "exit 3", &err), 0);
    expect(&b, 0, VERDICT_ERROR, "exit status 3");
    assert_null(strstr(b.rns[0].checks.items[0].message, "to err"));
    bench_close(&b);
    const char *good = RANK(PASS("train.ddp") END);
    if (run_gang(&b, good, good, &err) != 0)
        fail_msg("%s", err.msg);
    if (b.report.gang.items[0].verdict != VERDICT_PASS)
        fail_msg("%s", b.report.gang.items[0].message);
    nothing_left();
    bench_close(&b);
    GP_AUTO_FREE char *ran = node_file(0, "bashrc-ran");
    if (!*ran)
        print_message("this login shell reads no ~/.bashrc: shown without it\n");
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/.bashrc", homes[i]);
        unlink(path);
    }
}

static void test_gang_rank_dies(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_gang(&b, RANK(PASS("train.ddp") END), RANK("rm \"$dir/alive\";"), &err), 0);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.report.gang.items[0].message, "llm/1: ");
    assert_contains(b.report.gang.items[0].message, "ended without a result");
    assert_int_equal(b.rns[1].checks.items[0].verdict, VERDICT_ERROR);
    GP_AUTO_FREE char *stopped = node_file(1, "stopped");
    assert_contains(stopped, "stopped");
    nothing_left();
    bench_close(&b);
}

/* The connection breaks once while it is followed: the rank goes on, and nothing is read twice. */
static void test_gang_connection_breaks_once(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    GP_AUTO_FREE char *cut = xasprintf("%s/cut", homes[1]);
    unlink(cut);
    const char *good = RANK(PASS("train.ddp") END);
    GP_AUTO_FREE char *cuts = xasprintf(
        "if [ $1 = follow ] && [ ! -e \"$HOME/cut\" ]; then : >\"$HOME/cut\"; "
        "cat \"$3/rank.jsonl\"; sleep 0.3; kill -9 $PPID; sleep 5; fi\n%s", good);
    if (run_gang(&b, good, cuts, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(fs_exists(cut));
    if (b.report.gang.items[0].verdict != VERDICT_PASS)
        fail_msg("%s", b.report.gang.items[0].message);
    nothing_left();
    bench_close(&b);
}

/* A rank whose connection breaks whenever it is looked at: given up, and stopped all the same. */
static void test_gang_lost_rank_is_stopped(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_gang(&b, RANK(PASS("train.ddp") END),
                              "[ \"$1\" != follow ] || { kill -9 $PPID; exit; }\n" RANK("true;"), &err), 0);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.rns[1].checks.items[0].message, "connection to the node was lost");
    GP_AUTO_FREE char *stopped = node_file(1, "stopped");
    assert_contains(stopped, "stopped");
    nothing_left();
    bench_close(&b);
}

/* The last line that came before the connection broke was half a line: it is read again, whole. */
static void test_gang_line_cut_in_half(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    GP_AUTO_FREE char *cut = xasprintf("%s/cut", homes[1]);
    unlink(cut);
    const char *good = RANK(PASS("train.ddp") END);
    GP_AUTO_FREE char *cuts = xasprintf(
        "if [ $1 = follow ] && [ ! -e \"$HOME/cut\" ]; then : >\"$HOME/cut\"; "
        "head -c 60 \"$3/rank.jsonl\"; sleep 0.3; kill -9 $PPID; sleep 5; fi\n%s", good);
    if (run_gang(&b, good, cuts, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(fs_exists(cut));
    if (b.report.gang.items[0].verdict != VERDICT_PASS)
        fail_msg("%s", b.report.gang.items[0].message);
    bench_close(&b);
}

/* A node that was rebooted after its own checks is another node than the one that they proved. */
static void test_gang_in_another_boot(void **state)
{
    (void)state;
    NEEDS_SSHD();
    const char *good = RANK(PASS("train.ddp") END);
    for (int same = 0; same < 2; same++) {
        struct bench b;
        struct gp_error err;
        GP_AUTO_FREE char *one = xasprintf("BOOT=%s\n%s", same ? "before" : "after", good);
        bench_open(&b);
        str_put(b.rns[1].boot_id, sizeof b.rns[1].boot_id, "before");
        write_agent(0, good);
        write_agent(1, one);
        vec_push(&b.plan.gang_checks, check_find("train.ddp"));
        struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]},
                                    {&b.links[1], "10.0.0.2", &b.rns[1]}};
        err = (struct gp_error){0};
        assert_int_equal(validate_gang(gang, 2, &b.env, &b.report, &err), 0);
        assert_int_equal(b.report.gang.items[0].verdict, same ? VERDICT_PASS : VERDICT_ERROR);
        if (!same)
            assert_contains(b.rns[1].checks.items[0].message, "rebooted since its own checks");
        bench_close(&b);
    }
}

/* Its node goes away after its rank's end, before anything is handed over. */
static void test_gang_node_dies_after_its_end(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    const char *good = RANK(PASS("train.ddp") END);
    GP_AUTO_FREE char *dies = xasprintf("[ \"$1\" != stop ] || { kill -9 $PPID; exit; }\n%s", good);
    run_gang(&b, good, dies, &err);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.report.gang.items[0].message, "llm/1: ");
    assert_contains(b.report.gang.items[0].message, "does not answer any more");
    assert_int_equal(b.rns[1].checks.items[0].verdict, VERDICT_ERROR);
    bench_close(&b);
}

/* What SIGKILL does not end is held by a driver, whatever the rank said before. */
static void test_gang_rank_cannot_be_stopped(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    const char *good = RANK(PASS("train.ddp") END);
    GP_AUTO_FREE char *held = xasprintf("[ \"$1\" != stop ] || exit 2\n%s", good);
    run_gang(&b, good, held, &err);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.rns[1].checks.items[0].message, "driver hang");
    bench_close(&b);
}

static void test_gang_cannot_start(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_gang(&b, "echo 'no room' >&2; exit 3", "exit 3", &err), -GP_EVALIDATE);
    assert_contains(err.msg, "llm/0: the gang checks could not be run");
    assert_contains(err.msg, "no room");
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    bench_close(&b);
}

static void test_gang_node_cannot_be_reached(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    fx_sshd_stop(&nodes[1]);
    bench_open(&b);
    b.links[1].reach_timeout_ms = 300;
    write_agent(0, RANK(PASS("train.ddp") END));
    vec_push(&b.plan.gang_checks, check_find("train.ddp"));
    struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]},
                                {&b.links[1], "10.0.0.2", &b.rns[1]}};
    err = (struct gp_error){0};
    assert_int_equal(validate_gang(gang, 2, &b.env, &b.report, &err), -GP_EVALIDATE);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_int_equal(b.rns[1].checks.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.rns[1].checks.items[0].message, "llm/1");
    bench_close(&b);
    fx_sshd_run(&nodes[1], 0);
}

static void test_gang_cancel(void **state)
{
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err = {0};
    bench_open(&b);
    b.cancel_on_start = true;
    for (size_t i = 0; i < 2; i++)
        write_agent(i, RANK("true;"));
    vec_push(&b.plan.gang_checks, check_find("train.ddp"));
    struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]},
                                {&b.links[1], "10.0.0.2", &b.rns[1]}};
    assert_int_equal(validate_gang(gang, 2, &b.env, &b.report, &err), -GP_ECANCELLED);
    assert_int_not_equal(b.report.gang.items[0].verdict, VERDICT_PASS);
    bench_close(&b);
}

/* --- the real agent, where this build has it --- */

static char *real_agent; /* B/agent/gpuprov-agent */

static void test_real_agent(void **state)
{
    (void)state;
    NEEDS_SSHD();
    if (!fs_exists(real_agent)) {
        print_message("skipped: %s is not built\n", real_agent);
        skip();
    }
    struct bench b;
    struct gp_error err = {0};
    bench_open(&b);
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/agent/gpuprov-agent", homes[i]);
        assert_int_equal(RUN("cp", real_agent, path), 0);
    }
    vec_push(&b.plan.node_checks, check_find("host.clock"));
    vec_push(&b.plan.node_checks, check_find("host.cores"));
    vec_push(&b.plan.node_checks, check_find("gpu.presence"));
    vec_push(&b.plan.gang_checks, check_find("net.pair"));
    b.env.gpus_expected = 3; /* bought, and not there: must be said */
    if (validate_node(&b.links[0], &b.env, &b.rns[0], &err) != 0)
        fail_msg("%s", err.msg);
    expect(&b, 1, VERDICT_PASS, "");
    if (fs_exists("/dev/nvidia0")) /* no word about GPUs that this agent cannot ask */
        expect(&b, 2, VERDICT_ERROR, "agent without CUDA");
    else
        expect(&b, 2, VERDICT_FAIL, "no GPU device nodes: 3 GPUs bought");
    struct gang_node gang[2] = {{&b.links[0], "127.0.0.1", &b.rns[0]},
                                {&b.links[1], "127.0.0.1", &b.rns[1]}};
    if (validate_gang(gang, 2, &b.env, &b.report, &err) != 0)
        fail_msg("%s", err.msg);
    const struct check_result *net = &b.report.gang.items[0];
    if (net->verdict != VERDICT_PASS && net->verdict != VERDICT_DEGRADED)
        fail_msg("%s: %s", verdict_name(net->verdict), net->message);
    assert_non_null(check_metric(net, "bandwidth"));
    assert_true(check_metric(net, "latency")->has_floor);
    nothing_left();
    bench_close(&b);
}

int main(int argc, char **argv)
{
    (void)argc;
    GP_AUTO_FREE char *self = xstrdup(argv[0]); /* B/tests/unit/test_validate_ssh */
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = 0;
    real_agent = xasprintf("%s/../../agent/gpuprov-agent", slash ? self : ".");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_what_was_not_said_is_no_pass),
        cmocka_unit_test(test_babbling_agent_is_ended),
        cmocka_unit_test(test_no_agent),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_gang_good),
        cmocka_unit_test(test_start_up_files_that_print),
        cmocka_unit_test(test_gang_rank_dies),
        cmocka_unit_test(test_gang_connection_breaks_once),
        cmocka_unit_test(test_gang_lost_rank_is_stopped),
        cmocka_unit_test(test_gang_line_cut_in_half),
        cmocka_unit_test(test_gang_in_another_boot),
        cmocka_unit_test(test_gang_node_dies_after_its_end),
        cmocka_unit_test(test_gang_rank_cannot_be_stopped),
        cmocka_unit_test(test_gang_cannot_start),
        cmocka_unit_test(test_gang_node_cannot_be_reached),
        cmocka_unit_test(test_gang_cancel),
        cmocka_unit_test(test_real_agent),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    free(real_agent);
    return failed;
}

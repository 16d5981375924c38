/* SPDX-License-Identifier: Apache-2.0 */
/* Running the gang checks over real sshd, with ranks that are shell scripts: lost connections, ranks and
 * nodes that go away at each stage; and once the real agent. */
#include "validate_bench.h"

#include "base/json.h"

/* A rank that writes its lines to a file and is "alive" as long as the file `alive` is there. MORE is
 * what it writes after it was followed once, so that rank 0 has not ended before the others begin. */
#define RANK(MORE)                                                                                                                                                                    \
    "verb=$1; shift; dir=; from=0; rank=;\n"                                                                                                                                          \
    "while [ $# -gt 0 ]; do case $1 in --dir) dir=$2;; --from) from=$2;; --rank) rank=$2;; --unjudged) shift; continue;; esac; "                                                      \
    "shift 2; done\n"                                                                                                                                                                 \
    "case $verb in\n"                                                                                                                                                                 \
    "rank) read -r token; read -r addr; echo \"$token\" >\"$HOME/token\"; echo \"$addr\" "                                                                                            \
    ">\"$HOME/addr\"; : >\"$dir/alive\"\n"                                                                                                                                            \
    "  { echo '{\"v\":1,\"type\":\"hello\",\"rank\":'$rank',\"size\":2,\"boot_id\":\"'$BOOT'\"}'; [ $rank != 0 ] || echo '{\"type\":\"listen\",\"addr\":\"10.0.0.1:4444\"}'; " START( \
        "train.ddp") " } >\"$dir/rank.jsonl\"\n"                                                                                                                                      \
                     "  echo '{\"type\":\"started\",\"pid\":'$$'}';;\n"                                                                                                               \
                     "follow) size=$(wc -c <\"$dir/rank.jsonl\"); alive=false; [ ! -e \"$dir/alive\" ] || "                                                                           \
                     "alive=true; tail -c +$((from + 1)) \"$dir/rank.jsonl\"\n"                                                                                                       \
                     "  echo '{\"type\":\"at\",\"offset\":'$size',\"alive\":'$alive'}'\n"                                                                                             \
                     "  [ -e \"$dir/more\" ] || { : >\"$dir/more\"; { " MORE " } >>\"$dir/rank.jsonl\"; };;\n"                                                                        \
                     "stop) echo stopped >>\"$HOME/stopped\";;\n"                                                                                                                     \
                     "esac"

static int run_gang(struct bench *b, const char *zero, const char *one, struct gp_error *err) {
    bench_open(b);
    write_agent(0, zero);
    write_agent(1, one);
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *stopped = xasprintf("%s/stopped", homes[i]);
        unlink(stopped);
    }
    vec_push(&b->plan.gang_checks, check_find("train.ddp"));
    struct gang_node gang[2] = {{&b->links[0], "10.0.0.1", &b->rns[0]}, {&b->links[1], "10.0.0.2", &b->rns[1]}};
    *err = (struct gp_error){0};
    return validate_gang(gang, 2, &b->env, &b->report, err);
}

static void nothing_left(void) {
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *dir = xasprintf("%s/.gpuprov/run/fedcba9876543210-rank%zu", homes[i], i);
        assert_false(fs_exists(dir));
    }
}

static void test_gang_good(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    const char *good = RANK(PASS("train.ddp") END);
    if (run_gang(&b, good, good, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(b.report.gang.len, 1);
    assert_int_equal(b.events[EVENT_START], 2); /* on every node that takes part */
    if (b.report.gang.items[0].verdict != VERDICT_PASS) fail_msg("%s", b.report.gang.items[0].message);
    assert_true(b.report.gang.items[0].required);
    GP_AUTO_FREE char *token0 = node_file(0, "token");
    GP_AUTO_FREE char *token1 = node_file(1, "token");
    GP_AUTO_FREE char *addr0 = node_file(0, "addr");
    GP_AUTO_FREE char *addr1 = node_file(1, "addr");
    assert_int_equal(strlen(token0), 65);
    assert_string_equal(token0, token1);
    assert_string_equal(addr0, "\n"); /* rank 0 is the rendezvous */
    assert_string_equal(addr1, "10.0.0.1:4444\n");
    for (size_t i = 0; i < 2; i++) assert_int_equal(b.rns[i].checks.items[0].verdict, VERDICT_PASS);
    nothing_left();
    bench_close(&b);
}

/* What ~/.bashrc prints is nobody's word, with and without a newline at its end. */
static void test_start_up_files_that_print(void **state) {
    (void)state;
    NEEDS_SSHD();
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/.bashrc", homes[i]);
        fx_write(path, "echo ran >>\"$HOME/bashrc-ran\"; echo 'to err' >&2; echo welcome; printf 'today:'\n", 0600);
    }
    struct bench b;
    struct gp_error err;
    if (run_node(&b, HELLO START("host.clock") PASS("host.clock") START("host.cores") PASS("host.cores") END "exit 0",
                 &err) != 0)
        fail_msg("%s", err.msg);
    expect(&b, 0, VERDICT_PASS, "");
    bench_close(&b);
    assert_int_equal(run_node(&b, HELLO START("host.clock") "exit 3", &err), 0);
    expect(&b, 0, VERDICT_ERROR, "exit status 3");
    assert_null(strstr(b.rns[0].checks.items[0].message, "to err"));
    bench_close(&b);
    const char *good = RANK(PASS("train.ddp") END);
    if (run_gang(&b, good, good, &err) != 0) fail_msg("%s", err.msg);
    if (b.report.gang.items[0].verdict != VERDICT_PASS) fail_msg("%s", b.report.gang.items[0].message);
    nothing_left();
    bench_close(&b);
    GP_AUTO_FREE char *ran = node_file(0, "bashrc-ran");
    if (!*ran) print_message("this login shell reads no ~/.bashrc: shown without it\n");
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/.bashrc", homes[i]);
        unlink(path);
    }
}

#define NAMES(VERDICT, CODE)                                                                               \
    RANK("echo '{\"type\":\"result\",\"check\":\"train.ddp\",\"verdict\":\"" VERDICT "\",\"code\":\"" CODE \
         "\",\"message\":\"rank 1 has not answered for 41 s\",\"data\":{\"culprits\":[1]}}';"              \
         "echo '{\"type\":\"end\",\"verdict\":\"" VERDICT "\"}';")

/* A fail blames the rank that it names, an error only suspects it; the others' share is short, and the gang has one
 * sentence. */
static void test_one_sentence_names_the_culprit(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const struct {
        const char *zero, *says, *key;
        enum verdict first, second;
    } cases[] = {
        {NAMES("fail", "rank_lost"),
         "rank 1 has not answered for 41 s (to blame: llm/1); 1 other rank stopped because of it", "blamed",
         VERDICT_ERROR, VERDICT_FAIL},
        {NAMES("error", "stalled"), "rank 1 has not answered for 41 s (suspected: llm/1)", "suspected", VERDICT_ERROR,
         VERDICT_ERROR},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct bench b;
        struct gp_error err;
        if (run_gang(&b, cases[i].zero, RANK(PASS("train.ddp") END), &err) != 0) fail_msg("%s", err.msg);
        const struct check_result *all = &b.report.gang.items[0];
        assert_string_equal(all->message, cases[i].says);
        assert_int_equal(json_int(json_array_get(json_at(all->data, cases[i].key), 0), "rank", -1), 1);
        assert_int_equal(b.rns[0].checks.items[0].verdict, cases[i].first);
        assert_int_equal(b.rns[1].checks.items[0].verdict, cases[i].second);
        if (i == 0) assert_string_equal(b.rns[0].checks.items[0].message, "stopped because of llm/1");
        bench_close(&b);
    }
}

static void test_the_time_that_is_left_is_the_gangs(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const struct {
        int64_t time_ms, least_s, most_s;
    } cases[] = {
        {0, 90, 130},       /* never under the row's seconds; 70 are for naming one that hangs */
        {300000, 350, 390}, /* a small or busy machine may use what the spec gives */
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct bench b;
        struct gp_error err = {0};
        bench_open(&b);
        b.spec.validate.time_ms = cases[i].time_ms;
        for (size_t n = 0; n < 2; n++)
            write_agent(n, "[ $1 != rank ] || echo \"$@\" >\"$HOME/args\"\n" RANK(PASS("train.ddp") END));
        vec_push(&b.plan.gang_checks, check_find("train.ddp"));
        struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]}, {&b.links[1], "10.0.0.2", &b.rns[1]}};
        assert_int_equal(validate_gang(gang, 2, &b.env, &b.report, &err), 0);
        GP_AUTO_FREE char *args = node_file(1, "args");
        const char *at = strstr(args, "--deadline ");
        assert_non_null(at);
        assert_in_range(strtol(at + 11, NULL, 10), cases[i].least_s, cases[i].most_s);
        bench_close(&b);
    }
}

static void test_gang_rank_dies(void **state) {
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

/* The connection breaks once while it is followed, after `shown` of its lines: the rank goes on, and nothing is read
 * twice. */
static void break_once(const char *shown) {
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    GP_AUTO_FREE char *cut = xasprintf("%s/cut", homes[1]);
    unlink(cut);
    const char *good = RANK(PASS("train.ddp") END);
    GP_AUTO_FREE char *cuts = xasprintf("if [ $1 = follow ] && [ ! -e \"$HOME/cut\" ]; then : >\"$HOME/cut\"; "
                                        "%s \"$3/rank.jsonl\"; sleep 2; kill -9 $PPID; sleep 5; fi\n%s",
                                        shown, good);
    if (run_gang(&b, good, cuts, &err) != 0) fail_msg("%s", err.msg);
    assert_true(fs_exists(cut));
    if (b.report.gang.items[0].verdict != VERDICT_PASS) fail_msg("%s", b.report.gang.items[0].message);
    nothing_left();
    bench_close(&b);
}

static void test_gang_connection_breaks_once(void **state) {
    (void)state;
    break_once("cat");
}

/* The last line that came before the connection broke was half a line: it is read again, whole. */
static void test_gang_line_cut_in_half(void **state) {
    (void)state;
    break_once("head -c 60");
}

/* A rank whose connection breaks whenever it is looked at: given up, and stopped all the same. */
static void test_gang_lost_rank_is_stopped(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_gang(&b, RANK(PASS("train.ddp") END),
                              "[ \"$1\" != follow ] || { kill -9 $PPID; exit; }\n" RANK("true;"), &err),
                     0);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.rns[1].checks.items[0].message, "lost the connection to the node");
    GP_AUTO_FREE char *stopped = node_file(1, "stopped");
    assert_contains(stopped, "stopped");
    nothing_left();
    bench_close(&b);
}

/* A node that was rebooted after its own checks is another node than the one that they proved. */
static void test_gang_in_another_boot(void **state) {
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
        struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]}, {&b.links[1], "10.0.0.2", &b.rns[1]}};
        err = (struct gp_error){0};
        assert_int_equal(validate_gang(gang, 2, &b.env, &b.report, &err), 0);
        assert_int_equal(b.report.gang.items[0].verdict, same ? VERDICT_PASS : VERDICT_ERROR);
        if (!same) assert_contains(b.rns[1].checks.items[0].message, "rebooted since its own checks");
        bench_close(&b);
    }
}

/* Its node goes away after its rank's end, before anything is handed over. */
static void test_gang_node_dies_after_its_end(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    const char *good = RANK(PASS("train.ddp") END);
    GP_AUTO_FREE char *dies = xasprintf("[ \"$1\" != stop ] || { kill -9 $PPID; exit; }\n%s", good);
    run_gang(&b, good, dies, &err);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.report.gang.items[0].message, "llm/1: ");
    assert_contains(b.report.gang.items[0].message, "stopped answering");
    assert_int_equal(b.rns[1].checks.items[0].verdict, VERDICT_ERROR);
    bench_close(&b);
}

/* What SIGKILL does not end is held by a driver, whatever the rank said before. */
static void test_gang_rank_cannot_be_stopped(void **state) {
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

static void test_gang_cannot_start(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    assert_int_equal(run_gang(&b, "echo 'no room' >&2; exit 3", "exit 3", &err), -GP_EVALIDATE);
    assert_contains(err.msg, "llm/0: cannot run the gang checks");
    assert_contains(err.msg, "no room");
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    bench_close(&b);
}

static void test_gang_node_cannot_be_reached(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err;
    fx_sshd_stop(&nodes[1]);
    bench_open(&b);
    b.links[1].reach_timeout_ms = 300;
    write_agent(0, RANK(PASS("train.ddp") END));
    vec_push(&b.plan.gang_checks, check_find("train.ddp"));
    struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]}, {&b.links[1], "10.0.0.2", &b.rns[1]}};
    err = (struct gp_error){0};
    assert_int_equal(validate_gang(gang, 2, &b.env, &b.report, &err), -GP_EVALIDATE);
    assert_int_equal(b.report.gang.items[0].verdict, VERDICT_ERROR);
    assert_int_equal(b.rns[1].checks.items[0].verdict, VERDICT_ERROR);
    assert_contains(b.rns[1].checks.items[0].message, "llm/1");
    bench_close(&b);
    fx_sshd_run(&nodes[1], 0);
}

static void test_gang_cancel(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err = {0};
    bench_open(&b);
    b.cancel_on_start = true;
    for (size_t i = 0; i < 2; i++) write_agent(i, RANK("true;"));
    vec_push(&b.plan.gang_checks, check_find("train.ddp"));
    struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]}, {&b.links[1], "10.0.0.2", &b.rns[1]}};
    assert_int_equal(validate_gang(gang, 2, &b.env, &b.report, &err), -GP_ECANCELLED);
    assert_int_not_equal(b.report.gang.items[0].verdict, VERDICT_PASS);
    bench_close(&b);
}

/* --- the real agent, where this build has it --- */

static char *real_agent; /* B/agent/gpuprov-agent */

static void real_bench_open(struct bench *b) {
    if (!fs_exists(real_agent)) {
        print_message("skipped: %s is not built\n", real_agent);
        skip();
    }
    bench_open(b);
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/agent/gpuprov-agent", homes[i]);
        assert_int_equal(RUN("cp", real_agent, path), 0);
    }
}

static void test_real_agent(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err = {0};
    real_bench_open(&b);
    vec_push(&b.plan.node_checks, check_find("host.clock"));
    vec_push(&b.plan.node_checks, check_find("host.cores"));
    vec_push(&b.plan.node_checks, check_find("gpu.presence"));
    vec_push(&b.plan.gang_checks, check_find("net.pair"));
    b.env.gpus_expected = 3; /* bought, and not there: must be said */
    if (validate_node(&b.links[0], &b.env, &b.rns[0], &err) != 0) fail_msg("%s", err.msg);
    expect(&b, 1, VERDICT_PASS, "");
    if (fs_exists("/dev/nvidia0")) /* no word about GPUs that this agent cannot ask */
        expect(&b, 2, VERDICT_ERROR, "agent has no CUDA");
    else expect(&b, 2, VERDICT_FAIL, "no GPU device files: 3 GPUs bought");
    struct gang_node gang[2] = {{&b.links[0], "127.0.0.1", &b.rns[0]}, {&b.links[1], "127.0.0.1", &b.rns[1]}};
    if (validate_gang(gang, 2, &b.env, &b.report, &err) != 0) fail_msg("%s", err.msg);
    const struct check_result *net = &b.report.gang.items[0];
    if (net->verdict != VERDICT_PASS && net->verdict != VERDICT_DEGRADED)
        fail_msg("%s: %s", verdict_name(net->verdict), net->message);
    assert_non_null(check_metric(net, "bandwidth"));
    assert_true(check_metric(net, "latency")->has_floor);
    nothing_left();
    bench_close(&b);
}

/* One rank for each GPU: two nodes with two each are four ranks, two processes trees, and one pair. The
 * static agent has no CUDA, so the ranks only meet; what they find of GPUs is not this test's. */
static void test_ranks_of_gpus(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct bench b;
    struct gp_error err = {0};
    real_bench_open(&b);
    vec_push(&b.plan.gang_checks, check_find("net.pair"));
    b.env.nvidia_expected = true;
    b.env.gpus_expected = 2;
    struct gang_node gang[2] = {{&b.links[0], "127.0.0.1", &b.rns[0]}, {&b.links[1], "127.0.0.1", &b.rns[1]}};
    if (validate_gang(gang, 2, &b.env, &b.report, &err) != 0) fail_msg("%s", err.msg);
    const struct check_result *net = &b.report.gang.items[0];
    if (net->verdict != VERDICT_PASS && net->verdict != VERDICT_DEGRADED)
        fail_msg("%s: %s", verdict_name(net->verdict), net->message);
    assert_int_equal(json_integer_value(json_at(net->data, "pairs_measured")), 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(b.rns[i].checks.len, 1);
        const json_t *here = json_at(b.rns[i].checks.items[0].data, "ranks_here");
        assert_int_equal(json_array_size(here), 2);
        for (size_t k = 0; k < 2; k++) {
            const json_t *one = json_array_get(here, k);
            assert_int_equal(json_int(one, "rank", -1), 2 * i + k);
            assert_int_equal(json_int(one, "gpu", -1), k);
        }
    }
    nothing_left();
    bench_close(&b);
}

/* Of two ranks on a node one dies and one blames it: the report names node and GPU. A line that names a
 * rank of another node is believed by nobody. */
static void test_gpu_is_named(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const char good[] =
        "{\"type\":\"result\",\"check\":\"train.ddp\",\"verdict\":\"pass\",\"metrics\":["
        "{\"name\":\"loss\",\"value\":1.4,\"unit\":\"nats\"},{\"name\":\"straggler\",\"value\":1,\"unit\":\"ratio\"},"
        "{\"name\":\"agreement\",\"value\":0,\"unit\":\"of bound\"}],";
    for (int foreign = 0; foreign < 2; foreign++) {
        GP_AUTO_FREE char *script = xasprintf(
            "verb=$1; shift; dir=; from=0; rank=;\n"
            "while [ $# -gt 0 ]; do case $1 in --dir) dir=$2;; --from) from=$2;; --rank) rank=$2;; --unjudged) shift; continue;; esac; shift 2; done\n"
            "l() { echo \"$1\" >>\"$dir/rank.jsonl\"; }\n"
            "case $verb in\n"
            "rank) read -r token; read -r addr; next=$((rank + 1))\n"
            "  for r in $rank $next; do l '{\"v\":1,\"type\":\"hello\",\"rank\":'$r',\"size\":4}'; done\n"
            "  [ $rank != 0 ] || l '{\"type\":\"listen\",\"addr\":\"10.0.0.1:4444\"}'\n"
            "  echo '{\"type\":\"started\",\"pid\":'$$'}';;\n"
            "follow) next=$((rank + 1)); case $dir in *rank0) a=0; b=1;; *) a=2; b=3;; esac\n"
            "  if [ ! -e $dir/told ] && [ $(wc -l <$dir/rank.jsonl) -ge $((a == 0 ? 3 : 2)) ] && [ $from != 0 ]; then : >$dir/told\n"
            "  for r in $a $b; do l '{\"type\":\"start\",\"check\":\"train.ddp\",\"rank\":'$r'}'; done\n"
            "  if [ $a = 0 ]; then for r in 0 %d; do l '{\"type\":\"result\",\"check\":\"train.ddp\",\"rank\":'$r',\"verdict\":\"fail\","
            "\"code\":\"wrong\",\"message\":\"rank 3 computes wrong\",\"data\":{\"culprits\":[3]}}'; done\n"
            "  else for r in 2 3; do l '%s\"rank\":'$r'}'; done; fi\n"
            "  for r in $a $b; do l '{\"type\":\"end\",\"verdict\":\"fail\",\"rank\":'$r'}'; done; fi\n"
            "  size=$(wc -c <\"$dir/rank.jsonl\"); tail -c +$((from + 1)) \"$dir/rank.jsonl\"\n"
            "  echo '{\"type\":\"at\",\"offset\":'$size',\"alive\":true}';;\n"
            "stop) ;; esac",
            foreign ? 2 : 1, good);
        struct bench b;
        struct gp_error err = {0};
        bench_open(&b);
        for (size_t i = 0; i < 2; i++) write_agent(i, script);
        vec_push(&b.plan.gang_checks, check_find("train.ddp"));
        b.env.nvidia_expected = true;
        b.env.gpus_expected = 2;
        struct gang_node gang[2] = {{&b.links[0], "10.0.0.1", &b.rns[0]}, {&b.links[1], "10.0.0.2", &b.rns[1]}};
        if (validate_gang(gang, 2, &b.env, &b.report, &err) != 0) fail_msg("%s", err.msg);
        const struct check_result *all = &b.report.gang.items[0];
        assert_int_equal(all->verdict, VERDICT_FAIL);
        assert_contains(all->message, "to blame: llm/1 gpu 1");
        const json_t *blamed = json_array_get(json_at(all->data, "blamed"), 0);
        assert_int_equal(json_int(blamed, "rank", -1), 3);
        assert_int_equal(json_int(blamed, "gpu", -1), 1);
        assert_string_equal(json_str(blamed, "node", ""), "llm/1");
        /* node 1 holds the blamed rank; node 0's ranks only suffered from it */
        assert_int_equal(b.rns[1].checks.items[0].verdict, VERDICT_FAIL);
        assert_int_equal(b.rns[0].checks.items[0].verdict, VERDICT_ERROR);
        if (foreign) {
            const json_t *here = json_at(b.rns[0].checks.items[0].data, "ranks_here");
            assert_contains(json_str(json_array_get(here, 1), "message", ""), "does not run on this node");
        }
        nothing_left();
        bench_close(&b);
    }
}

/* The real CUDA agent over the stand-ins for NVIDIA's libraries, on two nodes of two GPUs: sound, and with a
 * GPU that adds up wrong. */
static void test_nccl_over_two_nodes(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *cuda = xasprintf("%s-cuda", real_agent);
    GP_AUTO_FREE char *standin =
        xasprintf("%.*s/../tests/standin", (int)(strrchr(real_agent, '/') - real_agent), real_agent);
    GP_AUTO_FREE char *folder = realpath(standin, NULL);
    GP_AUTO_FREE char *program = realpath(cuda, NULL);
    GP_AUTO_FREE char *nccl = xasprintf("%s/libnccl.so.2", folder ? folder : "");
    if (!program || !fs_exists(nccl)) {
        print_message("skipped: this build has no CUDA agent, or no stand-ins\n");
        skip();
    }
    int late = 0;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct bench b;
        struct gp_error err = {0};
        bench_open(&b);
        for (size_t i = 0; i < 2; i++) {
            GP_AUTO_FREE char *host = xasprintf("%s/.gpuprov/agent/gpuprov-agent", homes[i]);
            GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/agent/gpuprov-agent-cuda", homes[i]);
            assert_int_equal(RUN("cp", real_agent, host), 0);
            GP_AUTO_FREE char *text = xasprintf(
                "#!/bin/sh\nexport GPUPROV_LIBRARY_PATH=%s GPUPROV_STANDIN=gpus=2 GPUPROV_STANDIN_NVML=gpus=2 "
                "NCCL_HOSTID=node%zu GPUPROV_STANDIN_NCCL=%s\nexec %s \"$@\"\n",
                folder, i, wrong ? "rank=3,sums=1,sign=1" : "", program);
            fx_write(path, text, 0700);
        }
        vec_push(&b.plan.gang_checks, check_find("nccl.values"));
        b.env.nvidia_expected = true;
        b.env.gpus_expected = 2;
        struct gang_node gang[2] = {{&b.links[0], "127.0.0.1", &b.rns[0]}, {&b.links[1], "127.0.0.1", &b.rns[1]}};
        if (validate_gang(gang, 2, &b.env, &b.report, &err) != 0) fail_msg("%s", err.msg);
        const struct check_result *all = &b.report.gang.items[0];
        if (all->verdict != (wrong ? VERDICT_FAIL : VERDICT_PASS))
            fail_msg("%s: %s", verdict_name(all->verdict), all->message);
        /* on a busy machine the search may have no time left: once more */
        bool search_ended = strstr(all->message, "the time was over") == NULL;
        if (wrong && !search_ended && late++ < 4) {
            bench_close(&b);
            wrong--;
            continue;
        }
        if (wrong) {
            assert_contains(all->message, "to blame: llm/1 gpu 1)");
            assert_int_equal(b.rns[0].checks.items[0].verdict, VERDICT_ERROR);
            assert_int_equal(b.rns[1].checks.items[0].verdict, VERDICT_FAIL);
        }
        nothing_left();
        bench_close(&b);
    }
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/agent/gpuprov-agent-cuda", homes[i]);
        unlink(path);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    GP_AUTO_FREE char *self = xstrdup(argv[0]); /* B/tests/unit/test_validate_gang */
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    real_agent = xasprintf("%s/../../../agent/gpuprov-agent", slash ? self : ".");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gang_good),
        cmocka_unit_test(test_start_up_files_that_print),
        cmocka_unit_test(test_one_sentence_names_the_culprit),
        cmocka_unit_test(test_the_time_that_is_left_is_the_gangs),
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
        cmocka_unit_test(test_ranks_of_gpus),
        cmocka_unit_test(test_gpu_is_named),
        cmocka_unit_test(test_nccl_over_two_nodes),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    free(real_agent);
    return failed;
}

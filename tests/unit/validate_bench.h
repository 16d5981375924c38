/* SPDX-License-Identifier: Apache-2.0 */
/* What test_validate_ssh.c and test_validate_gang.c share: two sshd on loopback are two nodes, each with a
 * home of its own, and a shell script on each is the agent. */
#ifndef GP_VALIDATE_BENCH_H
#define GP_VALIDATE_BENCH_H

#include "ssh_fixture.h"

#include "validate/validate.h"

static struct sshd nodes[2];
static char *homes[2];

static int setup(void **state) {
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

static int teardown(void **state) {
    for (size_t i = 0; i < 2; i++) {
        fx_sshd_clear(&nodes[i]);
        free(homes[i]);
    }
    return fx_teardown(state);
}

__attribute__((unused)) static void write_agent(size_t node, const char *script) {
    GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/agent/gpuprov-agent", homes[node]);
    GP_AUTO_FREE char *text = xasprintf("#!/bin/sh\n%s\n", script);
    fx_write(path, text, 0700);
}

__attribute__((unused)) static char *node_file(size_t node, const char *name) {
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

static void on_event(void *ctx, const struct event *e) {
    struct bench *b = ctx;
    b->events[e->status]++;
    if (b->cancel_on_start && e->status == EVENT_START) gp_cancel_set(&b->cancel);
}

static void bench_open(struct bench *b) {
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
        b->links[i] =
            (struct node_link){.slot = (int)i, .reach_timeout_ms = 20000, .cancel = &b->cancel, .sink = &b->sink};
        fx_target(&b->links[i].target, &nodes[i]);
        free(b->links[i].target.label);
        b->links[i].target.label = xasprintf("llm/%zu", i);
    }
}

static void bench_close(struct bench *b) {
    for (size_t i = 0; i < 2; i++) {
        node_link_close(&b->links[i]);
        ssh_target_clear(&b->links[i].target);
        for (size_t k = 0; k < b->rns[i].checks.len; k++) check_result_clear(&b->rns[i].checks.items[k]);
        vec_free(&b->rns[i].checks);
        free(b->rns[i].host);
    }
    for (size_t k = 0; k < b->report.gang.len; k++) check_result_clear(&b->report.gang.items[k]);
    vec_free(&b->report.gang);
    validate_plan_clear(&b->plan);
    gp_cancel_clear(&b->cancel);
}

/* Runs host.clock and host.cores on node 0 with this script as the agent. */
__attribute__((unused)) static int run_node(struct bench *b, const char *script, struct gp_error *err) {
    bench_open(b);
    write_agent(0, script);
    vec_push(&b->plan.node_checks, check_find("host.clock"));
    vec_push(&b->plan.node_checks, check_find("host.cores"));
    strv_add(&b->plan.left_out, "gpu.memory (the spec has no gpu)");
    strv_add(&b->plan.left_out, "net.pair (needs two nodes or more)");
    *err = (struct gp_error){0};
    int rc = validate_node(&b->links[0], &b->env, &b->rns[0], err);
    assert_int_equal(b->rns[0].checks.len, 3); /* the gang's left-out check is not a node's */
    return rc;
}

#define HELLO "echo '{\"v\":1,\"type\":\"hello\"}';"
#define START(id) "echo '{\"type\":\"start\",\"check\":\"" id "\"}';"
/* with the figures that each of the checks used here is held to */
#define PASS(id)                                                                                          \
    "echo '{\"type\":\"result\",\"check\":\"" id "\",\"verdict\":\"pass\",\"metrics\":["                  \
    "{\"name\":\"offset\",\"value\":1,\"unit\":\"s\"},{\"name\":\"usable\",\"value\":1,\"unit\":"         \
    "\"cores\"},{\"name\":\"loss\",\"value\":1.4,\"unit\":\"nats\"},{\"name\":\"straggler\",\"value\":1," \
    "\"unit\":\"ratio\"},{\"name\":\"agreement\",\"value\":0,\"unit\":\"of bound\"}]}';"
#define GOOD START("host.clock") PASS("host.clock") START("host.cores") PASS("host.cores")
#define END "echo '{\"type\":\"end\",\"verdict\":\"pass\"}';"

__attribute__((unused)) static void expect(const struct bench *b, size_t i, enum verdict v, const char *says) {
    const struct check_result *r = &b->rns[0].checks.items[i];
    if (r->verdict != v) fail_msg("%s is %s: %s", r->check, verdict_name(r->verdict), r->message);
    if (*says) assert_contains(r->message, says);
}

#endif

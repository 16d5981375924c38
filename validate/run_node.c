/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the node checks: starts the agent over SSH, reads its JSON lines as they come, judges each result, and sets
 * each missing one to error or skipped. Does not copy the agent there (bootstrap does). Called in the node's own
 * thread; blocks until the agent ended or its deadline. */
#include "base/gp_base.h"

#include "validate/validate.h"

#include "base/fs.h"
#include "validate/judge.h"
#include "validate/remote.h"

#include <ctype.h>
#include <inttypes.h>
#include <time.h>

#define NODE_KILL_MS 5000
#define NODE_AGAIN_MS 60000 /* to find out whether a node with a lost connection rebooted */

struct node_run {
    const struct validate_env *env;
    struct node_link *link;
    struct agent_stream stream;
    bool heard[2]; /* see agent_line_foreign */
    bool loaded;   /* reported already */
};

static void node_told(void *ctx, const struct check_info *info, struct check_result *r) {
    struct node_run *run = ctx;
    if (r) validate_apply_floors(run->env->spec, r);
    check_event(run->env->sink, run->link->slot, NODE_CHECKING, info, r);
}

static bool node_line(void *ctx, bool is_stderr, const char *line, size_t len) {
    struct node_run *run = ctx;
    if (agent_line_foreign(run->heard, is_stderr, line)) return true;
    bool on = agent_stream_line(&run->stream, is_stderr, line, len);
    if (run->stream.load_ms >= 0 && !run->loaded) {
        char took[32];
        duration_format(took, sizeof took, run->stream.load_ms);
        event_emit(run->env->sink, run->link->slot, NODE_CHECKING, EVENT_INFO, "load", "the driver was loaded in %s",
                   took);
        run->loaded = true;
    }
    return on;
}

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The node checks with floors in the spec, which replace the table's limits. */
static char *own_floors(const struct validate_env *env) {
    GP_AUTO_STR struct str s = {0};
    const struct validate_plan *plan = env->plan;
    for (size_t i = 0; i < plan->node_checks.len; i++) {
        const char *id = plan->node_checks.items[i]->id;
        bool own = false;
        for (size_t k = 0; k < env->spec->validate.floors.len; k++)
            own = own || str_eq(env->spec->validate.floors.items[k].check, id);
        if (own) str_addf(&s, "%s%s", s.len ? "," : " --floors ", id);
    }
    return xstrdup(s.s ? s.s : "");
}

/* " --gpu-model H100"; "" when none was bought. Blanks and dashes are ignored in such names. */
static char *bought_model(const struct validate_env *env) {
    const char *name = env->spec->gpu.model;
    if (env->gpus_expected <= 0 || !name || !*name) return xstrdup("");
    char *s = xasprintf(" --gpu-model %s", name);
    for (char *p = s + strlen(" --gpu-model "); *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._", *p)) *p = '-';
    return s;
}

/* The controller's clock, for host.clock. Nodes of one machine share its clock. */
static char *clock_args(bool same_clock) {
    GP_AUTO_STR struct str boot = {0};
    if (same_clock) return xstrdup("--same-clock");
    const char *id = fs_read("/proc/sys/kernel/random/boot_id", 64, &boot, NULL) == 0 ? str_trim(boot.s) : "";
    bool known = *id && strspn(id, "0123456789abcdef-") == strlen(id);
    return xasprintf("--now-ms %" PRId64 "%s%s", wall_ms(), known ? " --now-boot " : "", known ? id : "");
}

char *agent_run_args(const struct validate_env *env, bool same_clock) {
    const struct check_info *const *checks = env->plan->node_checks.items;
    GP_AUTO_FREE char *ids = check_ids(checks, env->plan->node_checks.len);
    GP_AUTO_FREE char *floors = own_floors(env);
    GP_AUTO_FREE char *model = bought_model(env);
    GP_AUTO_FREE char *clock = clock_args(same_clock);
    GP_AUTO_FREE char *rdma = env->rdma_expected > 0 ? xasprintf(" --rdma %d", env->rdma_expected) : xstrdup("");
    enum spec_engine engine = env->spec->container.engine;
    return xasprintf("run --time %" PRId64 "ms --checks %s %s --gpus %d --unjudged%s%s%s%s%s%s",
                     env->plan->node_time_ms, ids, clock, env->gpus_expected, rdma, model, floors,
                     engine != ENGINE_NONE ? " --container-engine " : "",
                     engine != ENGINE_NONE ? spec_engine_name(engine) : "", env->all ? " --all" : "");
}

int64_t agent_run_wait_ms(const struct validate_env *env) {
    const struct validate_plan *plan = env->plan;
    int64_t stated_ms = check_seconds(plan->node_checks.items, plan->node_checks.len) * 1000;
    int64_t load_ms = env->nvidia_expected ? AGENT_LOAD_MS : 0;
    return load_ms + GP_MAX(plan->node_time_ms, stated_ms) + AGENT_GRACE_MS;
}

static void node_command(const struct validate_env *env, const struct ssh_target *t, struct str *cmd) {
    const struct check_info *const *checks = env->plan->node_checks.items;
    GP_AUTO_FREE char *args = agent_run_args(env, t->dial_socket != NULL); /* a socket of this machine */
    agent_command(cmd, env->nvidia_expected, check_any_needs(checks, env->plan->node_checks.len, NEED_ROOT), args);
    agent_command_end(cmd);
}

/* Ends an agent that did not end, or that must not be read any further; its workers die with it. Ignores
 * cancellation: nothing is left running after a Ctrl-C. */
static void node_kill(struct node_run *run) {
    if (run->stream.pid <= 1) return; /* it sent no pid: its own watchdog ends it */
    GP_AUTO_STR struct str cmd = {0};
    str_addf(&cmd, "kill -9 %" PRId64 " 2>/dev/null || sudo -n kill -9 %" PRId64, run->stream.pid, run->stream.pid);
    agent_command_end(&cmd);
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(NODE_KILL_MS)};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    struct gp_error ignored = {0};
    ssh_exec(run->link->session, cmd.s, &opts, &res, &ignored);
}

/* After a lost connection: a text if the node is in another boot than its agent was; NULL if it is not, or if that
 * is not known. Caller frees. */
static char *node_rebooted(struct node_run *run) {
    struct gp_error ignored = {0};
    if (!run->stream.boot_id[0] || gp_cancelled(run->env->cancel)) return NULL;
    int64_t reach_ms = run->link->reach_timeout_ms;
    run->link->reach_timeout_ms = GP_MIN(reach_ms, NODE_AGAIN_MS);
    int rc = node_link_ensure(run->link, &ignored);
    run->link->reach_timeout_ms = reach_ms;
    if (rc < 0) return NULL;
    GP_AUTO_STR struct str cmd = {0};
    str_add(&cmd, "cat /proc/sys/kernel/random/boot_id");
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(NODE_KILL_MS), .cancel = run->env->cancel};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    if (ssh_exec(run->link->session, cmd.s, &opts, &res, &ignored) < 0 || res.end != SSH_EXITED || res.status != 0 ||
        !res.out.s || strstr(res.out.s, run->stream.boot_id))
        return NULL;
    return xstrdup("the node rebooted while its checks ran");
}

/* Runs the agent; 0 when it was run, however it ended (the stream is complete or finished then). */
static int node_exec(struct node_run *run, struct gp_error *err) {
    int rc = node_link_ensure(run->link, err);
    if (rc < 0) return rc;
    GP_AUTO_STR struct str cmd = {0};
    node_command(run->env, &run->link->target, &cmd);
    int64_t wait_ms = agent_run_wait_ms(run->env);
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(wait_ms),
                                 .max_output = 1 << 16,
                                 .cancel = run->env->cancel,
                                 .on_line = node_line,
                                 .ctx = run};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    rc = ssh_exec(run->link->session, cmd.s, &opts, &res, err);
    if (rc < 0) {
        node_kill(run);
        return rc;
    }
    if (res.end == SSH_TIMED_OUT) node_kill(run);
    if (res.end != SSH_EXITED) node_link_close(run->link);
    bool over = res.end != SSH_TIMED_OUT; /* an agent that did not end may be stuck in the kernel */
    if (agent_stream_complete(&run->stream) && run->stream.ended && !run->stream.bad.code && over) return 0;
    GP_AUTO_FREE char *why = agent_end_reason(&run->stream, &res, wait_ms);
    if (!agent_stream_began(&run->stream)) {
        rc = gp_fail(err, res.end == SSH_LOST ? GP_EREACH : GP_EVALIDATE, "%s: cannot run the agent: %s",
                     run->link->target.label, why);
        err->domain = GP_D_AGENT;
        return rc;
    }
    GP_AUTO_FREE char *reboot = res.end == SSH_LOST ? node_rebooted(run) : NULL;
    agent_stream_finish(&run->stream, reboot ? reboot : why);
    if (!over) agent_stream_doubt(&run->stream, why);
    return 0;
}

int validate_node(struct node_link *l, const struct validate_env *env, struct report_node *rn, struct gp_error *err) {
    struct node_run run = {.env = env, .link = l};
    agent_stream_init(&run.stream, env->plan->node_checks.items, env->plan->node_checks.len);
    run.stream.told = node_told;
    run.stream.ctx = &run;
    struct gp_error own = {0};
    int rc = env->plan->node_checks.len ? node_exec(&run, &own) : 0;
    if (rc == -GP_ECANCELLED) run.stream.told = NULL; /* the verb reports it, once */
    if (rc < 0) agent_stream_fail(&run.stream, own.msg);
    for (size_t i = 0; i < run.stream.checks.len; i++) {
        vec_push(&rn->checks, run.stream.checks.items[i].result);
        run.stream.checks.items[i].result = (struct check_result){0};
    }
    struct check_result left;
    for (size_t i = 0; check_left_out(env, false, &i, &left);) vec_push(&rn->checks, left);
    if (run.stream.host[0]) {
        free(rn->host);
        rn->host = xstrdup(run.stream.host);
    }
    str_put(rn->boot_id, sizeof rn->boot_id, run.stream.boot_id);
    rn->load_ms = GP_MAX(run.stream.load_ms, 0);
    agent_stream_clear(&run.stream);
    if (rc < 0 && err) *err = own;
    return rc;
}

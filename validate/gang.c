/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the gang checks: one detached rank per node, rank 0 first, read by one poll loop in the calling
 * thread, so a gang larger than the pool cannot wait for itself. The token goes over stdin only. What
 * each rank said is merged into the gang's results and each node's share (gang_merge.c). */
#include "base/gp_base.h"

#include "validate/gang.h"

#include "base/fs.h"
#include "base/secret.h"
#include "validate/judge.h"
#include "validate/remote.h"

#include <inttypes.h>

enum {
    GANG_START_MS = 20000,     /* to start a rank, to hear where rank 0 listens */
    GANG_FOLLOW_MS = 2000,     /* how long one `follow` waits on the node */
    GANG_FOLLOW_SLACK_MS = 15000, /* what a slow connection may add to that */
    GANG_RECONNECT_MS = 20000,
    GANG_AFTER_LOSS_MS = 20000, /* the others may say what they saw of a rank that is gone */
    GANG_STOP_MS = 10000,
    GANG_MEET_S = 15,           /* for ranks to find each other, beyond what the checks take */
    GANG_REREAD_MAX = 3
};

static void gang_told(void *ctx, const struct check_info *info, struct check_result *r)
{
    struct gang_rank *rank = ctx;
    if (r)
        validate_apply_floors(rank->gang->env->spec, r);
    check_event(rank->gang->env->sink, rank->node->link->slot, NODE_GANG, info, r);
}

static bool gang_line(void *ctx, bool is_stderr, const char *line, size_t len)
{
    struct gang_rank *rank = ctx;
    struct agent_stream *s = &rank->stream;
    if (agent_line_foreign(rank->heard, is_stderr, line))
        return true;
    bool more = agent_stream_line(s, is_stderr, line, len);
    if (more && rank->following && !is_stderr && !s->at)
        s->offset += (int64_t)len + 1; /* so that a lost connection is resumed without a repeat */
    return more;
}

/* Also after its end: a node that is not there any more is not handed over. */
static void rank_lose(struct gang_rank *r, const char *why)
{
    if (r->state == RANK_GONE)
        return;
    r->state = RANK_GONE;
    r->reason = xstrdup(why);
}

static void rank_gone(struct gang_rank *r, const char *why)
{
    if (r->state == RANK_DONE || r->state == RANK_GONE)
        return;
    rank_lose(r, why);
    event_emit(r->gang->env->sink, r->node->link->slot, NODE_GANG, EVENT_WARN, "", "rank %zu: %s",
               r->index, why);
}

/* A batch of commands, one per rank that `want` picks. command: made per rank. */
typedef void rank_command(const struct gang_rank *r, struct str *cmd);

struct gang_batch {
    VEC_OF(struct ssh_job) jobs;
    VEC_OF(struct gang_rank *) ranks;
    struct strv commands;
};

static void batch_clear(struct gang_batch *b)
{
    for (size_t i = 0; i < b->jobs.len; i++)
        ssh_result_clear(&b->jobs.items[i].result);
    vec_free(&b->jobs);
    vec_free(&b->ranks);
    strv_clear(&b->commands);
}

static void batch_add(struct gang_batch *b, struct gang_rank *r, rank_command *command,
                      const struct secret *in, int64_t timeout_ms)
{
    struct str cmd = {0};
    command(r, &cmd);
    agent_command_end(&cmd);
    r->heard[0] = r->heard[1] = false;
    struct ssh_job job = {.session = r->node->link->session,
                          .opts = {.deadline_ms = clock_deadline(timeout_ms),
                                   .max_output = 1 << 16,
                                   .on_line = gang_line,
                                   .ctx = r}};
    if (in) {
        job.opts.in = secret_reveal(in);
        job.opts.in_len = in->len;
    }
    strv_take(&b->commands, str_steal(&cmd));
    vec_push(&b->jobs, job);
    vec_push(&b->ranks, r);
}

/* cancel may be NULL (clean-up goes on when all else was cancelled). */
static int batch_run(struct gang_batch *b, struct gp_cancel *cancel, struct gp_error *err)
{
    for (size_t i = 0; i < b->jobs.len; i++) {
        b->jobs.items[i].command = b->commands.v[i];
        b->jobs.items[i].opts.cancel = cancel;
    }
    return b->jobs.len ? ssh_exec_many(b->jobs.items, b->jobs.len, cancel, err) : 0;
}

/* --- starting --- */

static void rank_dir(const struct gang_rank *r, struct str *cmd)
{
    str_addf(cmd, "R=" GP_NODE_DIR "/run/%s-rank%zu; ", r->gang->env->run, r->index);
}

static void start_command(const struct gang_rank *r, struct str *cmd)
{
    const struct gang *g = r->gang;
    rank_dir(r, cmd);
    str_add(cmd, "rm -rf \"$R\"; mkdir -p \"$R\" && chmod 700 \"$R\" || exit 3; ");
    GP_AUTO_FREE char *ids = check_ids(g->checks, g->n_checks);
    GP_AUTO_STR struct str args = {0};
    str_addf(&args, "rank --dir \"$R\" --rank %zu --size %zu --bind ", r->index, g->n);
    str_add_shquoted(&args, r->node->private_ip);
    str_addf(&args, " --check %s --deadline %" PRId64 "s", ids, g->seconds + GANG_MEET_S);
    agent_command(cmd, false, false, args.s);
}

static void alive_command(const struct gang_rank *r, struct str *cmd)
{
    (void)r;
    str_add(cmd, ":");
}

static void follow_command(const struct gang_rank *r, struct str *cmd)
{
    rank_dir(r, cmd);
    GP_AUTO_FREE char *args = xasprintf("follow --dir \"$R\" --from %" PRId64 " --wait %d",
                                        r->stream.offset, GANG_FOLLOW_MS);
    agent_command(cmd, false, false, args);
}

static void stop_command(const struct gang_rank *r, struct str *cmd)
{
    rank_dir(r, cmd);
    str_add(cmd, "( ");
    agent_command(cmd, false, false, "stop --dir \"$R\"");
    str_add(cmd, " ) >/dev/null 2>&1; s=$?; rm -rf \"$R\"; exit $s");
}

static void rank_started(struct gang_rank *r, struct ssh_job *job)
{
    if (r->stream.started) {
        r->state = RANK_RUNNING;
        return;
    }
    GP_AUTO_FREE char *why = job->rc < 0 ? xstrdup(job->err.msg)
                                         : agent_end_reason(&r->stream, &job->result, GANG_START_MS);
    GP_AUTO_FREE char *text = xasprintf("could not be started: %s", why);
    if (job->rc < 0 || job->result.end == SSH_LOST)
        node_link_close(r->node->link); /* else it is kept: the rank may come up late and is stopped */
    rank_gone(r, text);
}

/* Connections slept at the barrier: one round trip on all of them tells which died there. */
static int gang_connect(struct gang *g, struct gp_error *err)
{
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = 0; i < g->n; i++)
        if (g->ranks[i].node->link->session)
            batch_add(&b, &g->ranks[i], alive_command, NULL, GANG_STOP_MS);
    int rc = batch_run(&b, g->env->cancel, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < b.jobs.len; i++)
        if (b.jobs.items[i].rc < 0 || b.jobs.items[i].result.end != SSH_EXITED)
            node_link_close(b.ranks.items[i]->node->link);
    for (size_t i = 0; i < g->n; i++) {
        struct gang_rank *r = &g->ranks[i];
        struct gp_error own = {0};
        if (r->node->link->session || node_link_ensure(r->node->link, &own) == 0)
            continue;
        if (own.code == GP_ECANCELLED)
            return gp_fail(err, GP_ECANCELLED, "%s", own.msg);
        rank_gone(r, own.msg);
    }
    return 0;
}

/* Starts ranks [first, last) at once. */
static int gang_start(struct gang *g, size_t first, size_t last, const char *addr,
                      struct gp_error *err)
{
    GP_AUTO_FREE char *text = xasprintf("%s\n%s\n", secret_reveal(&g->token), addr);
    GP_AUTO_SECRET struct secret in = {0};
    secret_set(&in, text, strlen(text));
    explicit_bzero(text, strlen(text));
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = first; i < last; i++)
        if (g->ranks[i].state == RANK_IDLE) {
            g->ranks[i].asked = true;
            batch_add(&b, &g->ranks[i], start_command, &in, GANG_START_MS);
        }
    int rc = batch_run(&b, g->env->cancel, err);
    for (size_t i = 0; i < b.jobs.len; i++)
        rank_started(b.ranks.items[i], &b.jobs.items[i]);
    return rc == -GP_ECANCELLED ? rc : (gp_error_clear(err), 0);
}

/* --- following --- */

/* The connection broke, the rank did not: it writes to a file. One short try to come back. */
static void rank_reconnect(struct gang_rank *r, const char *why)
{
    struct node_link *l = r->node->link;
    node_link_close(l);
    int64_t usual = l->reach_timeout_ms;
    l->reach_timeout_ms = GP_MIN(usual > 0 ? usual : GANG_RECONNECT_MS, GANG_RECONNECT_MS);
    struct gp_error own = {0};
    int rc = ++r->rereads > GANG_REREAD_MAX ? -GP_ELOST : node_link_ensure(l, &own);
    l->reach_timeout_ms = usual;
    if (rc == 0)
        return;
    GP_AUTO_FREE char *text = xasprintf("%s%s%s", why, own.code ? ": " : "", own.msg);
    rank_gone(r, text);
}

static void rank_followed(struct gang_rank *r, struct ssh_job *job)
{
    struct agent_stream *s = &r->stream;
    if (job->result.end == SSH_LOST)
        gp_error_clear(&s->bad); /* a line cut with the connection is read again, from its beginning */
    if (s->bad.code) {
        rank_gone(r, s->bad.msg);
    } else if (job->rc < 0 || job->result.end == SSH_LOST || job->result.end == SSH_TIMED_OUT) {
        rank_reconnect(r, "the connection to the node was lost");
    } else if (!s->at) {
        GP_AUTO_FREE char *why = agent_end_reason(s, &job->result, GANG_FOLLOW_MS);
        rank_gone(r, why);
    } else if (s->ended) {
        r->state = RANK_DONE;
    } else if (!s->alive) {
        GP_AUTO_FREE char *text =
            xasprintf("its process ended without a result%s%s", s->last_err[0] ? ": " : "", s->last_err);
        rank_gone(r, text);
    }
}

/* One round over every running rank among [first, last). */
static int gang_follow(struct gang *g, size_t first, size_t last, struct gp_error *err)
{
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = first; i < last; i++) {
        struct gang_rank *r = &g->ranks[i];
        if (r->state != RANK_RUNNING)
            continue;
        r->stream.at = false;
        r->following = true;
        batch_add(&b, r, follow_command, NULL, GANG_FOLLOW_MS + GANG_FOLLOW_SLACK_MS);
    }
    int rc = batch_run(&b, g->env->cancel, err);
    if (rc == -GP_ECANCELLED)
        return rc;
    gp_error_clear(err);
    for (size_t i = 0; i < b.jobs.len; i++)
        rank_followed(b.ranks.items[i], &b.jobs.items[i]);
    return 0;
}

static size_t count_state(const struct gang *g, enum rank_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n; i++)
        n += g->ranks[i].state == state;
    return n;
}

/* Waits until rank 0 said where it listens. */
static int gang_rendezvous(struct gang *g, struct gp_error *err)
{
    struct gang_rank *zero = &g->ranks[0];
    int64_t deadline = clock_deadline(GANG_START_MS);
    while (zero->state == RANK_RUNNING && !zero->stream.addr[0]) {
        if (clock_left_ms(deadline) == 0) {
            rank_gone(zero, "did not say where it listens");
            break;
        }
        int rc = gang_follow(g, 0, 1, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Reads all ranks until all ended, the deadline, or a while after the first loss. */
static int gang_watch(struct gang *g, struct gp_error *err)
{
    int64_t deadline = clock_deadline((g->seconds + GANG_MEET_S) * 1000 + AGENT_GRACE_MS);
    int64_t after_loss = GP_NEVER;
    while (count_state(g, RANK_RUNNING)) {
        if (after_loss == GP_NEVER && count_state(g, RANK_GONE))
            after_loss = clock_deadline(GANG_AFTER_LOSS_MS);
        if (clock_left_ms(deadline) == 0 || clock_left_ms(after_loss) == 0)
            break;
        int rc = gang_follow(g, 0, g->n, err);
        if (rc < 0)
            return rc;
    }
    bool late = clock_left_ms(deadline) == 0;
    for (size_t i = 0; i < g->n; i++)
        if (g->ranks[i].state == RANK_RUNNING)
            rank_gone(&g->ranks[i], late ? "had not ended at the deadline"
                                         : "was stopped, because another rank is gone");
    return 0;
}

static void may_go_on(const struct gang_rank *r, const char *why)
{
    event_emit(r->gang->env->sink, r->node->link->slot, NODE_GANG, EVENT_WARN, "",
               "rank %zu could not be stopped (%s): it ends by itself within %" PRId64 " s", r->index,
               why, r->gang->seconds + GANG_MEET_S);
}

/* A session that was cancelled while it opened a channel is of no use; a lost one may come back. */
static bool stop_reconnect(struct gang_rank *r, int64_t deadline_ms)
{
    struct node_link *l = r->node->link, usual = *l;
    node_link_close(l);
    l->cancel = NULL;
    l->reach_timeout_ms = clock_left_ms(deadline_ms);
    l->login_grace_ms = 0;
    struct gp_error ignored = {0};
    int rc = l->reach_timeout_ms > 0 ? node_link_ensure(l, &ignored) : -GP_EREACH;
    l->cancel = usual.cancel;
    l->reach_timeout_ms = usual.reach_timeout_ms;
    l->login_grace_ms = usual.login_grace_ms;
    return rc == 0;
}

/* Stops every rank that was asked to start, over the sessions that are there. */
static void stop_round(struct gang *g)
{
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = 0; i < g->n; i++)
        if (g->ranks[i].asked && g->ranks[i].node->link->session)
            batch_add(&b, &g->ranks[i], stop_command, NULL, GANG_STOP_MS);
    struct gp_error ignored = {0};
    batch_run(&b, NULL, &ignored);
    for (size_t i = 0; i < b.jobs.len; i++) {
        const struct ssh_job *job = &b.jobs.items[i];
        struct gang_rank *r = b.ranks.items[i];
        if (job->rc < 0 || job->result.end != SSH_EXITED) {
            node_link_close(r->node->link);
            continue;
        }
        r->asked = false;
        if (job->result.status == 0 || (job->result.status != 2 && !r->stream.started))
            continue;
        const char *why = job->result.status == 2 ? "driver hang" : "the agent there could not tell";
        may_go_on(r, why);
        rank_lose(r, why);
    }
}

/* Ends what is left and removes the run's folders; also after cancellation. What could not be ended is
 * said: it ends itself at its own deadline. */
static void gang_stop(struct gang *g)
{
    stop_round(g);
    int64_t deadline_ms = clock_deadline(GANG_STOP_MS);
    bool again = false;
    for (size_t i = 0; i < g->n; i++)
        if (g->ranks[i].asked)
            again = stop_reconnect(&g->ranks[i], deadline_ms) || again;
    if (again)
        stop_round(g);
    for (size_t i = 0; i < g->n; i++)
        if (g->ranks[i].asked) {
            may_go_on(&g->ranks[i], "its node does not answer");
            rank_lose(&g->ranks[i], "its node does not answer any more");
        }
}

static int gang_run(struct gang *g, struct gp_error *err)
{
    int rc = gang_connect(g, err);
    if (rc < 0)
        return rc;
    if (count_state(g, RANK_GONE)) {
        for (size_t i = 0; i < g->n; i++)
            rank_gone(&g->ranks[i], "not started, because another node cannot be reached");
        return 0;
    }
    rc = gang_start(g, 0, 1, "", err);
    if (rc == 0 && g->n > 1) {
        rc = gang_rendezvous(g, err);
        if (rc == 0 && g->ranks[0].state == RANK_RUNNING)
            rc = gang_start(g, 1, g->n, g->ranks[0].stream.addr, err);
    }
    return rc == 0 ? gang_watch(g, err) : rc;
}

/* How long the gang checks may take: what validate.time leaves beside the node checks. Their stated
 * seconds are those of a sound node and choose; they do not condemn a machine that is busy or small. */
static int64_t gang_seconds(const struct gang *g)
{
    const struct validate_plan *plan = g->env->plan;
    int64_t left = g->env->spec->validate.time_ms / 1000 -
                   check_seconds(plan->node_checks.items, plan->node_checks.len);
    return GP_MAX(left, check_seconds(g->checks, g->n_checks));
}

static int gang_open(struct gang *g, struct gang_node *nodes, size_t n,
                     const struct validate_env *env, struct gp_error *err)
{
    *g = (struct gang){.env = env,
                       .n = n,
                       .checks = env->plan->gang_checks.items,
                       .n_checks = env->plan->gang_checks.len};
    g->seconds = gang_seconds(g);
    char hex[65];
    int rc = fs_random_hex(hex, 32, err);
    if (rc < 0)
        return rc;
    secret_set(&g->token, hex, 64);
    explicit_bzero(hex, sizeof hex);
    g->ranks = xcalloc(n, sizeof *g->ranks);
    for (size_t i = 0; i < n; i++) {
        struct gang_rank *r = &g->ranks[i];
        *r = (struct gang_rank){.gang = g, .node = &nodes[i], .index = i};
        agent_stream_init(&r->stream, g->checks, g->n_checks);
        r->stream.told = gang_told;
        r->stream.ctx = r;
        r->stream.want_rank = (int64_t)i;
        r->stream.want_size = (int64_t)n;
        str_put(r->stream.want_boot_id, sizeof r->stream.want_boot_id, nodes[i].rn->boot_id);
    }
    return 0;
}

static void gang_close(struct gang *g)
{
    for (size_t i = 0; g->ranks && i < g->n; i++) {
        agent_stream_clear(&g->ranks[i].stream);
        free(g->ranks[i].reason);
    }
    free(g->ranks);
    secret_clear(&g->token);
}

int validate_gang(struct gang_node *nodes, size_t n, const struct validate_env *env,
                  struct report *report, struct gp_error *err)
{
    struct gp_error own = {0};
    int rc = 0;
    if (n && env->plan->gang_checks.len) {
        GP_CLEANUP(gang_close) struct gang g = {0};
        rc = gang_open(&g, nodes, n, env, &own);
        if (rc == 0)
            rc = gang_run(&g, &own);
        if (g.ranks)
            gang_stop(&g);
        if (g.ranks)
            gang_merge(&g, rc < 0 ? own.msg : NULL, report);
        if (rc == 0 && !gang_began(&g)) {
            rc = gp_fail(&own, GP_EVALIDATE, "%s: the gang checks could not be run: %s",
                         nodes[0].link->target.label,
                         g.ranks[0].reason ? g.ranks[0].reason : "no rank began");
            own.domain = GP_D_AGENT;
        }
    }
    struct check_result left;
    for (size_t i = 0; check_left_out(env, true, &i, &left);)
        vec_push(&report->gang, left);
    if (rc < 0 && err)
        *err = own;
    return rc;
}

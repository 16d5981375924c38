/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the gang checks: detached ranks, one per GPU or one per node, rank 0's node first, read by one poll
 * loop in the calling thread, so a gang larger than the pool cannot wait for itself. The token goes over stdin only.
 * gang_merge.c merges the ranks' results into the gang's and each node's share. */
#include "base/gp_base.h"

#include "validate/gang_session.h"

#include "base/fs.h"
#include "base/secret.h"
#include "bootstrap/bootstrap.h"
#include "validate/judge.h"
#include "validate/remote.h"

#include <inttypes.h>

enum {
    GANG_START_MS = 20000,        /* to start a rank, to receive rank 0's address */
    GANG_FOLLOW_MS = 2000,        /* one `follow` waits this long on the node */
    GANG_FOLLOW_SLACK_MS = 15000, /* a slow connection may add this */
    GANG_RECONNECT_MS = 20000,
    GANG_AFTER_LOSS_MS = 20000, /* the others may still report on a rank that is gone */
    GANG_STOP_MS = 10000,
    GANG_MEET_S = 15,  /* for ranks to find each other, beyond the time of the checks */
    GANG_LOAD_S = 120, /* for the driver and NCCL to start on every GPU */
    GANG_STALL_S = 70, /* for a rank that hangs to be named: twice its limit (comm_pulse.c) */
    GANG_CROWD = 8,    /* so many nodes on one machine take no longer */
    GANG_FOLLOW_MAX_MS = 10000,
    GANG_RANKS_MAX = 1024,
    GANG_REREAD_MAX = 3
};

static struct agent_stream *place_stream(const struct gang_place *p) { return &p->gang->ranks[p->first].stream; }

char *gang_rank_label(const struct gang_rank *r) {
    const char *node = r->place->node->link->target.label;
    return r->gpu >= 0 ? xasprintf("%s gpu %d", node, r->gpu) : xstrdup(node);
}

/* One event per node and check; from the other ranks only those that are not good. */
static void gang_told(void *ctx, const struct check_info *info, struct check_result *r) {
    struct gang_rank *rank = ctx;
    const struct gang *g = rank->place->gang;
    if (r) validate_apply_floors(g->env->spec, r);
    if (rank->index != rank->place->first && (!r || r->verdict == VERDICT_PASS)) return;
    check_event(g->env->sink, rank->place->node->link->slot, NODE_GANG, info, r);
}

/* The stream of the line's rank: the place's first rank unless it names another. NULL: not a rank of this place. */
static struct agent_stream *line_stream(struct gang_place *p, const struct agent_line *l) {
    if (p->count == 1 || l->rank < 0) return place_stream(p);
    size_t rank = (size_t)l->rank;
    return rank >= p->first && rank < p->first + p->count ? &p->gang->ranks[rank].stream : NULL;
}

static bool place_take(struct gang_place *p, const char *line, size_t len) {
    struct agent_stream *first = place_stream(p);
    struct agent_line l = {0};
    bool more = false;
    if (first->bad.code) return false;
    if (!len) return true;
    if (agent_line_decode(line, len, &l, &first->bad) == 0) {
        struct agent_stream *s = line_stream(p, &l);
        if (s) {
            more = agent_stream_take(s, &l);
        } else {
            gp_fail(&first->bad, GP_EPROTO, "received a line of rank %" PRId64 ", which does not run on this node",
                    l.rank);
            first->bad.domain = GP_D_AGENT;
        }
    }
    agent_line_clear(&l);
    return more;
}

static bool gang_line(void *ctx, bool is_stderr, const char *line, size_t len) {
    struct gang_place *p = ctx;
    struct agent_stream *s = place_stream(p);
    if (agent_line_foreign(p->heard, is_stderr, line)) return true;
    if (is_stderr) return agent_stream_line(s, true, line, len);
    bool more = place_take(p, line, len);
    if (more && p->following && !s->at)
        s->offset += (int64_t)len + 1; /* so that a lost connection is resumed without a repeat */
    return more;
}

/* Also after its end: a node that is gone is not handed over. */
static void place_lose(struct gang_place *p, const char *why) {
    if (p->state == PLACE_GONE) return;
    p->state = PLACE_GONE;
    p->reason = xstrdup(why);
}

static void place_gone(struct gang_place *p, const char *why) {
    if (p->state == PLACE_DONE || p->state == PLACE_GONE) return;
    place_lose(p, why);
    GP_AUTO_FREE char *who = p->count > 1 ? xasprintf("ranks %zu to %zu", p->first, p->first + p->count - 1)
                                          : xasprintf("rank %zu", p->first);
    event_emit(p->gang->env->sink, p->node->link->slot, NODE_GANG, EVENT_WARN, "", "%s: %s", who, why);
}

/* A batch of commands, one per place. command: made per place. */
typedef void place_command(const struct gang_place *p, struct str *cmd);

struct gang_batch {
    VEC_OF(struct ssh_job) jobs;
    VEC_OF(struct gang_place *) places;
    struct strv commands;
};

static void batch_clear(struct gang_batch *b) {
    for (size_t i = 0; i < b->jobs.len; i++) ssh_result_clear(&b->jobs.items[i].result);
    vec_free(&b->jobs);
    vec_free(&b->places);
    strv_clear(&b->commands);
}

static void batch_add(struct gang_batch *b, struct gang_place *p, place_command *command, const struct secret *in,
                      int64_t timeout_ms) {
    struct str cmd = {0};
    command(p, &cmd);
    agent_command_end(&cmd);
    p->heard[0] = p->heard[1] = false;
    struct ssh_job job = {
        .session = p->node->link->session,
        .opts = {.deadline_ms = clock_deadline(timeout_ms), .max_output = 1 << 16, .on_line = gang_line, .ctx = p}};
    if (in) {
        job.opts.in = secret_reveal(in);
        job.opts.in_len = in->len;
    }
    strv_take(&b->commands, str_steal(&cmd));
    vec_push(&b->jobs, job);
    vec_push(&b->places, p);
}

/* cancel may be NULL: clean-up continues after cancellation. */
static int batch_run(struct gang_batch *b, struct gp_cancel *cancel, struct gp_error *err) {
    for (size_t i = 0; i < b->jobs.len; i++) {
        b->jobs.items[i].command = b->commands.v[i];
        b->jobs.items[i].opts.cancel = cancel;
    }
    return b->jobs.len ? ssh_exec_many(b->jobs.items, b->jobs.len, cancel, err) : 0;
}

/* --- starting --- */

/* Nodes of one boot share a machine: everything takes so many times as long on the most crowded one. */
static int64_t gang_crowd(const struct gang *g) {
    int64_t most = 0;
    for (size_t i = 0; i < g->n_places; i++) {
        const char *boot = g->places[i].node->rn->boot_id;
        int64_t same = 0;
        for (size_t k = 0; *boot && k < g->n_places; k++) same += str_eq(g->places[k].node->rn->boot_id, boot);
        most = GP_MAX(most, same);
    }
    return GP_MAX(1, (most + GANG_CROWD - 1) / GANG_CROWD);
}

/* Includes the time for ranks to find each other, for GPUs to be opened, and for one that hangs to be named. */
static int64_t gang_deadline_s(const struct gang *g) {
    int64_t seconds = GP_MAX(g->seconds, g->crowd * check_seconds(g->checks, g->n_checks));
    size_t images = g->env->spec->container.images.n;
    for (size_t i = 0; i < g->n_checks && images > 1; i++) /* the table's seconds are those of one */
        if (g->checks[i]->images) seconds += g->crowd * g->checks[i]->seconds * (int64_t)(images - 1);
    return seconds + GANG_STALL_S + g->crowd * GANG_MEET_S + (g->gpus ? GANG_LOAD_S : 0);
}

static int64_t follow_ms(const struct gang *g) { return GP_MIN(GANG_FOLLOW_MAX_MS, g->crowd * GANG_FOLLOW_MS); }

static void place_dir(const struct gang_place *p, struct str *cmd) {
    str_addf(cmd, "R=" GP_NODE_DIR "/run/%s-rank%zu; ", p->gang->env->run, p->first);
}

/* The names as they are on the node. */
static void add_images(const struct spec *spec, struct str *args) {
    const struct spec_container *box = &spec->container;
    if (box->engine == ENGINE_NONE || box->images.n == 0) return;
    str_addf(args, " --container-engine %s --images ", spec_engine_name(box->engine));
    GP_AUTO_STR struct str names = {0};
    for (size_t i = 0; i < box->images.n; i++) {
        GP_AUTO_FREE char *name = boot_image_name(box->images.v[i]);
        str_addf(&names, "%s%s", i > 0 ? "," : "", name);
    }
    str_add_shquoted(args, names.s);
}

static void start_command(const struct gang_place *p, struct str *cmd) {
    const struct gang *g = p->gang;
    place_dir(p, cmd);
    str_add(cmd, "rm -rf \"$R\"; mkdir -p \"$R\" && chmod 700 \"$R\" || exit 3; ");
    GP_AUTO_FREE char *ids = check_ids(g->checks, g->n_checks);
    GP_AUTO_STR struct str args = {0};
    str_addf(&args, "rank --dir \"$R\" --rank %zu --size %zu --bind ", p->first, g->n);
    str_add_shquoted(&args, p->node->private_ip);
    str_addf(&args, " --check %s --deadline %" PRId64 "s --unjudged", ids, gang_deadline_s(g));
    if (g->env->plan->short_gang) str_addf(&args, " --timed %dms", TRAIN_SHORT_MS);
    if (g->env->spec->python.wanted) {
        const char *venv = g->env->spec->python.venv;
        GP_AUTO_FREE char *python = fs_join(venv ? venv : SPEC_PYTHON_VENV, "bin/python");
        str_add(&args, " --python ");
        str_add_shquoted(&args, python);
    }
    add_images(g->env->spec, &args);
    if (g->gpus) str_addf(&args, " --ranks %zu --gpu 0", p->count);
    agent_command(cmd, g->gpus > 0, false, args.s);
}

static void alive_command(const struct gang_place *p, struct str *cmd) {
    (void)p;
    str_add(cmd, ":");
}

static void follow_command(const struct gang_place *p, struct str *cmd) {
    place_dir(p, cmd);
    GP_AUTO_FREE char *args =
        xasprintf("follow --dir \"$R\" --from %" PRId64 " --wait %d", place_stream(p)->offset, (int)follow_ms(p->gang));
    agent_command(cmd, false, false, args);
}

static void stop_command(const struct gang_place *p, struct str *cmd) {
    place_dir(p, cmd);
    str_add(cmd, "( ");
    agent_command(cmd, false, false, "stop --dir \"$R\"");
    str_add(cmd, " ) >/dev/null 2>&1; s=$?; rm -rf \"$R\"; exit $s");
}

static void place_started(struct gang_place *p, struct ssh_job *job) {
    if (place_stream(p)->started) {
        p->state = PLACE_RUNNING;
        return;
    }
    GP_AUTO_FREE char *why = job->rc < 0
                                 ? xstrdup(job->err.msg)
                                 : agent_end_reason(place_stream(p), &job->result, p->gang->crowd * GANG_START_MS);
    GP_AUTO_FREE char *text = xasprintf("cannot start: %s", why);
    if (job->rc < 0 || job->result.end == SSH_LOST)
        node_link_close(p->node->link); /* else it is kept: the rank may start late and is stopped */
    place_gone(p, text);
}

/* Connections were idle at the barrier: one round trip on each finds those that died there. */
static int gang_connect(struct gang *g, struct gp_error *err) {
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = 0; i < g->n_places; i++)
        if (g->places[i].node->link->session)
            batch_add(&b, &g->places[i], alive_command, NULL, g->crowd * GANG_STOP_MS);
    int rc = batch_run(&b, g->env->cancel, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < b.jobs.len; i++)
        if (b.jobs.items[i].rc < 0 || b.jobs.items[i].result.end != SSH_EXITED)
            node_link_close(b.places.items[i]->node->link);
    for (size_t i = 0; i < g->n_places; i++) {
        struct gang_place *p = &g->places[i];
        struct gp_error own = {0};
        if (p->node->link->session || node_link_ensure(p->node->link, &own) == 0) continue;
        if (own.code == GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s", own.msg);
        place_gone(p, own.msg);
    }
    return 0;
}

/* Starts places [first, last) at once. */
static int gang_start(struct gang *g, size_t first, size_t last, const char *addr, struct gp_error *err) {
    GP_AUTO_FREE char *text = xasprintf("%s\n%s\n", secret_reveal(&g->token), addr);
    GP_AUTO_SECRET struct secret in = {0};
    secret_set(&in, text, strlen(text));
    explicit_bzero(text, strlen(text));
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = first; i < last; i++)
        if (g->places[i].state == PLACE_IDLE) {
            g->places[i].asked = true;
            batch_add(&b, &g->places[i], start_command, &in, g->crowd * GANG_START_MS);
        }
    int rc = batch_run(&b, g->env->cancel, err);
    for (size_t i = 0; i < b.jobs.len; i++) place_started(b.places.items[i], &b.jobs.items[i]);
    return rc == -GP_ECANCELLED ? rc : (gp_error_clear(err), 0);
}

/* --- following --- */

/* Only the connection broke: the rank writes to a file. One short attempt to reconnect. */
static void place_reconnect(struct gang_place *p, const char *why) {
    struct node_link *l = p->node->link;
    node_link_close(l);
    int64_t usual = l->reach_timeout_ms;
    l->reach_timeout_ms = GP_MIN(usual > 0 ? usual : GANG_RECONNECT_MS, GANG_RECONNECT_MS);
    struct gp_error own = {0};
    int rc = ++p->rereads > GANG_REREAD_MAX ? -GP_ELOST : node_link_ensure(l, &own);
    l->reach_timeout_ms = usual;
    if (rc == 0) return;
    GP_AUTO_FREE char *text = xasprintf("%s%s%s", why, own.code ? ": " : "", own.msg);
    place_gone(p, text);
}

static void place_followed(struct gang_place *p, struct ssh_job *job) {
    struct agent_stream *s = place_stream(p);
    const struct gp_error *bad = NULL;
    bool ended = true;
    for (size_t i = 0; i < p->count; i++) {
        struct agent_stream *one = &p->gang->ranks[p->first + i].stream;
        if (job->result.end == SSH_LOST)
            gp_error_clear(&one->bad); /* a line cut with the connection is read again, from its beginning */
        bad = one->bad.code && !bad ? &one->bad : bad;
        ended = ended && one->ended;
    }
    if (bad) {
        place_gone(p, bad->msg);
    } else if (job->rc < 0 || job->result.end == SSH_LOST || job->result.end == SSH_TIMED_OUT) {
        place_reconnect(p, "lost the connection to the node");
    } else if (!s->at) {
        GP_AUTO_FREE char *why = agent_end_reason(s, &job->result, follow_ms(p->gang));
        place_gone(p, why);
    } else if (ended) {
        p->state = PLACE_DONE;
    } else if (!s->alive) {
        GP_AUTO_FREE char *text =
            xasprintf("its process ended without a result%s%s", s->last_err[0] ? ": " : "", s->last_err);
        place_gone(p, text);
    }
}

/* One round over every running place among [first, last). */
static int gang_follow(struct gang *g, size_t first, size_t last, struct gp_error *err) {
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = first; i < last; i++) {
        struct gang_place *p = &g->places[i];
        if (p->state != PLACE_RUNNING) continue;
        place_stream(p)->at = false;
        p->following = true;
        batch_add(&b, p, follow_command, NULL, follow_ms(g) + g->crowd * GANG_FOLLOW_SLACK_MS);
    }
    int rc = batch_run(&b, g->env->cancel, err);
    if (rc == -GP_ECANCELLED) return rc;
    gp_error_clear(err);
    for (size_t i = 0; i < b.jobs.len; i++) place_followed(b.places.items[i], &b.jobs.items[i]);
    return 0;
}

static size_t count_state(const struct gang *g, enum place_state state) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_places; i++) n += g->places[i].state == state;
    return n;
}

/* Waits until rank 0 has reported its address. */
static int gang_rendezvous(struct gang *g, struct gp_error *err) {
    struct gang_place *zero = &g->places[0];
    int64_t deadline = clock_deadline(g->crowd * GANG_START_MS);
    while (zero->state == PLACE_RUNNING && !place_stream(zero)->addr[0]) {
        if (clock_left_ms(deadline) == 0) {
            place_gone(zero, "did not report its address");
            break;
        }
        int rc = gang_follow(g, 0, 1, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Reads all ranks until all ended, until the deadline, or until GANG_AFTER_LOSS_MS after the first loss. */
static int gang_watch(struct gang *g, struct gp_error *err) {
    int64_t deadline = clock_deadline(gang_deadline_s(g) * 1000 + AGENT_GRACE_MS);
    int64_t after_loss = GP_NEVER;
    while (count_state(g, PLACE_RUNNING)) {
        if (after_loss == GP_NEVER && count_state(g, PLACE_GONE)) after_loss = clock_deadline(GANG_AFTER_LOSS_MS);
        if (clock_left_ms(deadline) == 0 || clock_left_ms(after_loss) == 0) break;
        int rc = gang_follow(g, 0, g->n_places, err);
        if (rc < 0) return rc;
    }
    bool late = clock_left_ms(deadline) == 0;
    for (size_t i = 0; i < g->n_places; i++)
        if (g->places[i].state == PLACE_RUNNING)
            place_gone(&g->places[i],
                       late ? "had not ended at the deadline" : "was stopped, because another rank is gone");
    return 0;
}

static void may_go_on(const struct gang_place *p, const char *why) {
    event_emit(p->gang->env->sink, p->node->link->slot, NODE_GANG, EVENT_WARN, "",
               "cannot stop %s %zu (%s): it ends by itself within %" PRId64 " s",
               p->count > 1 ? "the ranks from" : "rank", p->first, why, gang_deadline_s(p->gang));
}

/* A session that was cancelled while it opened a channel is unusable; a lost one can be opened again. */
static bool stop_reconnect(struct gang_place *p, int64_t deadline_ms) {
    struct node_link *l = p->node->link, usual = *l;
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

/* Stops every rank that may have started, over the open sessions. */
static void stop_round(struct gang *g) {
    GP_CLEANUP(batch_clear) struct gang_batch b = {0};
    for (size_t i = 0; i < g->n_places; i++)
        if (g->places[i].asked && g->places[i].node->link->session)
            batch_add(&b, &g->places[i], stop_command, NULL, g->crowd * GANG_STOP_MS);
    struct gp_error ignored = {0};
    batch_run(&b, NULL, &ignored);
    for (size_t i = 0; i < b.jobs.len; i++) {
        const struct ssh_job *job = &b.jobs.items[i];
        struct gang_place *p = b.places.items[i];
        if (job->rc < 0 || job->result.end != SSH_EXITED) {
            node_link_close(p->node->link);
            continue;
        }
        p->asked = false;
        if (job->result.status == 0 || (job->result.status != 2 && !place_stream(p)->started)) continue;
        const char *why = job->result.status == 2 ? "driver hang" : "the agent on the node failed";
        may_go_on(p, why);
        place_lose(p, why);
    }
}

/* Stops the remaining ranks and removes the run's folders; also after cancellation. Reports each rank that cannot be
 * stopped: it ends by itself at its own deadline. */
static void gang_stop(struct gang *g) {
    stop_round(g);
    int64_t deadline_ms = clock_deadline(GANG_STOP_MS);
    bool again = false;
    for (size_t i = 0; i < g->n_places; i++)
        if (g->places[i].asked) again = stop_reconnect(&g->places[i], deadline_ms) || again;
    if (again) stop_round(g);
    for (size_t i = 0; i < g->n_places; i++)
        if (g->places[i].asked) {
            may_go_on(&g->places[i], "its node does not answer");
            place_lose(&g->places[i], "its node stopped answering");
        }
}

static int gang_run(struct gang *g, struct gp_error *err) {
    int rc = gang_connect(g, err);
    if (rc < 0) return rc;
    if (count_state(g, PLACE_GONE)) {
        for (size_t i = 0; i < g->n_places; i++)
            place_gone(&g->places[i], "not started, because another node is unreachable");
        return 0;
    }
    rc = gang_start(g, 0, 1, "", err);
    if (rc == 0 && g->n_places > 1) {
        rc = gang_rendezvous(g, err);
        if (rc == 0 && g->places[0].state == PLACE_RUNNING)
            rc = gang_start(g, 1, g->n_places, place_stream(&g->places[0])->addr, err);
    }
    return rc == 0 ? gang_watch(g, err) : rc;
}

/* The time of the gang checks: validate.time without that of the node checks. The stated seconds select checks;
 * exceeding them does not fail a busy or small machine. */
static int64_t gang_seconds(const struct gang *g) {
    const struct validate_plan *plan = g->env->plan;
    int64_t left = (g->env->spec->validate.time_ms - plan->node_time_ms) / 1000;
    return GP_MAX(left, check_seconds(g->checks, g->n_checks));
}

static int gang_open(struct gang *g, struct gang_node *nodes, size_t n, const struct validate_env *env,
                     struct gp_error *err) {
    size_t per = env->nvidia_expected && env->gpus_expected > 0 ? (size_t)env->gpus_expected : 1;
    *g = (struct gang){.env = env,
                       .n = n * per,
                       .n_places = n,
                       .gpus = env->nvidia_expected ? env->gpus_expected : 0,
                       .checks = env->plan->gang_checks.items,
                       .n_checks = env->plan->gang_checks.len};
    g->seconds = gang_seconds(g);
    if (g->n > GANG_RANKS_MAX)
        return gp_fail(err, GP_EUSAGE,
                       "a gang has at most %d ranks, fewer than %zu nodes with %zu GPUs have: validate the nodes in "
                       "parts",
                       GANG_RANKS_MAX, n, per);
    char hex[65];
    int rc = fs_random_hex(hex, 32, err);
    if (rc < 0) return rc;
    secret_set(&g->token, hex, 64);
    explicit_bzero(hex, sizeof hex);
    g->places = xcalloc(n, sizeof *g->places);
    g->ranks = xcalloc(g->n, sizeof *g->ranks);
    for (size_t i = 0; i < n; i++)
        g->places[i] = (struct gang_place){.gang = g, .node = &nodes[i], .first = i * per, .count = per};
    g->crowd = gang_crowd(g);
    for (size_t i = 0; i < g->n; i++) {
        struct gang_rank *r = &g->ranks[i];
        *r = (struct gang_rank){.place = &g->places[i / per], .index = i};
        r->gpu = g->gpus ? (int)(i % per) : -1;
        agent_stream_init(&r->stream, g->checks, g->n_checks);
        r->stream.told = gang_told;
        r->stream.ctx = r;
        r->stream.want_rank = (int64_t)i;
        r->stream.want_size = (int64_t)g->n;
        str_put(r->stream.want_boot_id, sizeof r->stream.want_boot_id, nodes[i / per].rn->boot_id);
    }
    return 0;
}

static void gang_close(struct gang *g) {
    for (size_t i = 0; g->ranks && i < g->n; i++) agent_stream_clear(&g->ranks[i].stream);
    for (size_t i = 0; g->places && i < g->n_places; i++) free(g->places[i].reason);
    free(g->ranks);
    free(g->places);
    secret_clear(&g->token);
}

int validate_gang(struct gang_node *nodes, size_t n, const struct validate_env *env, struct report *report,
                  struct gp_error *err) {
    struct gp_error own = {0};
    int rc = 0;
    if (n && env->plan->gang_checks.len) {
        GP_CLEANUP(gang_close) struct gang g = {0};
        rc = gang_open(&g, nodes, n, env, &own);
        if (rc == 0) rc = gang_run(&g, &own);
        if (g.ranks) gang_stop(&g);
        if (g.ranks) gang_merge(&g, rc < 0 ? own.msg : NULL, report);
        if (rc == 0 && !gang_began(&g)) {
            rc = gp_fail(&own, GP_EVALIDATE, "%s: cannot run the gang checks: %s", nodes[0].link->target.label,
                         g.places[0].reason ? g.places[0].reason : "no rank began a check");
            own.domain = GP_D_AGENT;
        }
    }
    struct check_result left;
    for (size_t i = 0; check_left_out(env, true, &i, &left);) vec_push(&report->gang, left);
    if (rc < 0 && err) *err = own;
    return rc;
}

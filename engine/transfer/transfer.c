/* SPDX-License-Identifier: Apache-2.0 */
/* Files and folders over a node's connection: one side of the transfer here, the other one in the agent, one command
 * for all of it. After a lost connection it is repeated, and continues. */
#include "base/gp_base.h"

#include "engine/transfer/pace.h"
#include "engine/transfer/peers.h"
#include "engine/transfer/transfer.h"

#include "base/fs.h"

#define PING_MS 10000
#define OUT_ENOUGH ((size_t)64 << 10) /* bytes that wait to be sent: send them first */
#define PROGRESS_MS 500
#define LOST_AGAIN_MS 120000 /* a connection that lasted so long: count its losses from the start */
#define SILENT_MAX 3
#define GAP_MS 10000 /* callbacks come every few seconds: in a longer pause this process did not run */

struct transfer {
    struct node_link *link;
    struct tree_side *side;
    void (*progress)(void *ctx, const struct tree_stats *so_far);
    void *ctx;
    int64_t progress_at_ms, ping_at_ms;
    struct pace *pace; /* the caller's, or own_pace */
    struct pace own_pace;
    int64_t left_ms; /* when this machine began to wait: the end of the last callback */
    enum pace_fate fate;
    bool ended;
    int rc;
    struct gp_error err;
};

static void tell(struct transfer *t) {
    int64_t now = clock_ms();
    if (t->progress == NULL || now < t->progress_at_ms) return;
    t->progress_at_ms = now + PROGRESS_MS;
    t->progress(t->ctx, tree_side_stats(t->side));
}

/* How long the node was waited for, when a callback begins. */
static int64_t waited_ms(const struct transfer *t) { return GP_MIN(clock_ms() - t->left_ms, (int64_t)GAP_MS); }

/* Whether to wait for the node again. */
static bool goes_on(struct transfer *t, int64_t waited) {
    const struct tree_work done = tree_side_work(t->side);
    t->fate = pace_take(t->pace, waited, &done);
    t->left_ms = clock_ms();
    return t->fate == PACE_GOES_ON;
}

static enum ssh_pull pull_some(struct transfer *t, const void **ret, size_t *ret_n) {
    enum tree_state state = TREE_WAITS;
    if (t->ended) return SSH_PULL_EOF;
    *ret = tree_out(t->side, ret_n);
    if (*ret_n >= OUT_ENOUGH) return SSH_PULL_AGAIN;
    t->rc = tree_work(t->side, &state, &t->err);
    tell(t);
    if (t->rc != 0) {
        *ret_n = 0;
        return SSH_PULL_STOP;
    }
    if (clock_ms() >= t->ping_at_ms) {
        t->ping_at_ms = clock_deadline(PING_MS);
        tree_ping(t->side);
    }
    *ret = tree_out(t->side, ret_n);
    if (state == TREE_ENDED && *ret_n == 0) {
        t->ended = true;
        return SSH_PULL_EOF;
    }
    return state == TREE_BUSY ? SSH_PULL_AGAIN : SSH_PULL_WAIT;
}

static enum ssh_pull pull(void *ctx, const void **ret, size_t *ret_n) {
    struct transfer *t = ctx;
    int64_t waited = waited_ms(t);
    enum ssh_pull next = pull_some(t, ret, ret_n);
    if (t->ended || goes_on(t, waited)) return next;
    *ret_n = 0;
    return SSH_PULL_STOP;
}

static void pulled(void *ctx, size_t n) {
    struct transfer *t = ctx;
    tree_sent(t->side, n);
}

static bool on_data(void *ctx, const void *p, size_t n) {
    struct transfer *t = ctx;
    int64_t waited = waited_ms(t);
    if (t->ended) return false; /* nothing is expected any more */
    t->rc = tree_feed(t->side, p, n, &t->err);
    tell(t);
    return t->rc == 0 && goes_on(t, waited);
}

/* The agent ended before the transfer did. */
static int agent_failed(const struct transfer *t, const struct ssh_result *r, struct gp_error *err) {
    const char *label = t->link->target.label;
    const char *said = r->err.s != NULL ? str_last_lines(r->err.s, 1, 200) : "";
    GP_AUTO_STR struct str clean = {0};
    str_add_clean(&clean, said);
    if (clean.s != NULL) str_one_line(clean.s);
    if (r->end == SSH_EXITED && (r->status == 127 || r->status == 126))
        return gp_fail(err, GP_EBOOTSTRAP, "%s: the agent is not on the node: run 'gpuprov bootstrap' first", label);
    if (clean.s != NULL && strstr(clean.s, "unknown verb") != NULL)
        return gp_fail(err, GP_EBOOTSTRAP,
                       "%s: the node's agent is of an older gpuprov: run 'gpuprov bootstrap' to replace it", label);
    if (r->end == SSH_SIGNALED)
        return gp_fail(err, GP_EIO, "%s: the agent was killed by signal %s during the transfer", label, r->signal);
    return gp_fail(err, GP_EIO, "%s: the agent ended with status %d during the transfer%s%s", label, r->status,
                   clean.len > 0 ? ": " : "", clean.len > 0 ? clean.s : "");
}

/* The limits of all attempts together. No repetition in the same call is of use. */
static int too_late(const struct transfer *t, const char *limit, struct gp_error *err) {
    node_link_close(t->link); /* the agent may go on */
    int r = gp_fail(err, GP_ETIMEOUT, "%s: the transfer did not finish in time%s; repeat it: it continues",
                    t->link->target.label, limit);
    if (err != NULL) str_put(err->detail, sizeof err->detail, TREE_LIMIT);
    return r;
}

static int too_slow(const struct transfer *t, struct gp_error *err) {
    return too_late(t, " (1h of waiting for the node, and 1s for each 32 kB that came)", err);
}

enum fate { FATE_ENDED, FATE_LOST, FATE_SILENT, FATE_STALLED };

/* One attempt. *ret FATE_LOST, FATE_SILENT, FATE_STALLED: the connection was lost, the agent gave no sign of life, or
 * nothing but these; another attempt may help. */
static int attempt(struct transfer *t, const struct tree_request *q, int64_t deadline_ms, enum fate *ret,
                   struct gp_error *err) {
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    struct ssh_exec_opts opts = {.pull = pull,
                                 .pulled = pulled,
                                 .on_data = on_data,
                                 .ctx = t,
                                 .deadline_ms = deadline_ms,
                                 .silent_ms = TREE_SILENT_MS,
                                 .max_output = 8192,
                                 .cancel = t->link->cancel};
    tree_side_ask(t->side, q);
    t->ping_at_ms = clock_deadline(PING_MS);
    t->fate = PACE_GOES_ON;
    pace_begin(t->pace);
    t->left_ms = clock_ms();
    int rc = ssh_exec(t->link->session, TREE_AGENT, &opts, &r, err);
    if (rc != 0) return rc;
    if (t->rc != 0) {
        if (err != NULL) *err = t->err;
        bool here = !tree_side_remote(t->side) && t->rc != -GP_EPROTO; /* a local error names a local path */
        return here ? t->rc : gp_wrap(err, "%s", t->link->target.label);
    }
    if (t->ended) return 0;
    if (t->fate == PACE_OVER) return too_slow(t, err);
    if (t->fate == PACE_STALLED) *ret = FATE_STALLED;
    else if (r.end == SSH_LOST || ssh_cut_short(&r)) *ret = FATE_LOST;
    else if (r.end == SSH_TIMED_OUT && clock_left_ms(deadline_ms) > 0) *ret = FATE_SILENT;
    if (*ret != FATE_ENDED) return 0;
    if (r.end == SSH_TIMED_OUT) return too_late(t, "", err);
    return agent_failed(t, &r, err);
}

/* Moves what is in a side's statistics to the caller; the list counts are those of the last attempt. */
static void add_stats(struct tree_stats *to, const struct tree_stats *s) {
    uint64_t files_sent = to->files_sent + s->files_sent, bytes_sent = to->bytes_sent + s->bytes_sent;
    uint64_t removed = to->removed + s->removed;
    strv_clear(&to->notes);
    *to = *s;
    to->notes = (struct strv){0};
    strv_copy(&to->notes, &s->notes);
    to->files_sent = files_sent;
    to->bytes_sent = bytes_sent;
    to->removed = removed;
}

/* An agent whose disk hangs answers no more, while its sshd does. What it wrote meanwhile is no progress: no one knows
 * of it. */
static int still_silent(const struct node_link *l, enum fate fate, int times, struct gp_error *err) {
    if (fate == FATE_STALLED && times >= SILENT_MAX)
        return gp_fail(err, GP_EREACH,
                       "%s: its agent answers, but the transfer makes no progress (%d times less than %d kB in %d s): "
                       "look at the node's network and at ~/.gpuprov/agent there, and repeat this: it continues",
                       l->target.label, times, PACE_STALL_BYTES / 1000, PACE_STALL_MS / 1000);
    if (fate == FATE_STALLED) {
        event_emit(l->sink, l->slot, NODE_BOOTSTRAPPING, EVENT_WARN, "transfer",
                   "the transfer has made no progress for %d s, though the agent answers: tries again",
                   PACE_STALL_MS / 1000);
        return 0;
    }
    if (times >= SILENT_MAX)
        return gp_fail(err, GP_EREACH,
                       "%s: its agent does not answer, though its sshd does (%d times for %d s): look whether its disk "
                       "hangs, and repeat this: it continues",
                       l->target.label, times, TREE_SILENT_MS / 1000);
    event_emit(l->sink, l->slot, NODE_BOOTSTRAPPING, EVENT_WARN, "transfer",
               "the agent has not answered for %d s during a transfer: tries again", TREE_SILENT_MS / 1000);
    return 0;
}

typedef struct tree_side *make_side(const void *of, uint64_t id, const struct gp_cancel *cancel);

static int transfer(struct transfer *t, make_side *make, const void *of, struct tree_request *q, int64_t deadline_ms,
                    struct tree_stats *ret, struct gp_error *err) {
    struct node_link *l = t->link;
    int64_t end = deadline_ms != 0 ? deadline_ms : GP_NEVER;
    int lost = 0, silent = 0;
    pace_init(&t->own_pace, deadline_ms != 0);
    if (t->pace == NULL) t->pace = &t->own_pace;
    int rc = fs_random(&q->id, sizeof q->id, err);
    if (rc == 0 && l->session == NULL) rc = node_link_ensure(l, err);
    while (rc == 0) {
        enum fate fate = FATE_ENDED;
        uint64_t moved = 0;
        int64_t begun = clock_ms();
        t->side = make(of, q->id, l->cancel);
        rc = attempt(t, q, end, &fate, err);
        add_stats(ret, tree_side_stats(t->side));
        moved = tree_side_stats(t->side)->bytes_sent;
        tree_side_free(t->side);
        t->side = NULL;
        if (rc != 0 || fate == FATE_ENDED) break;
        if (clock_left_ms(end) == 0) return too_late(t, "", err);
        if (moved > 0 || clock_ms() - begun > LOST_AGAIN_MS) lost = 0;
        if (pace_progressed(t->pace)) silent = 0;
        rc = fate != FATE_LOST ? still_silent(l, fate, ++silent, err) : 0;
        if (rc != 0) break;
        t->left_ms = clock_ms();
        if (fate == FATE_LOST)
            event_emit(l->sink, l->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, "transfer", "connection lost, reconnects");
        struct gp_error why = {0};
        rc = node_link_lost(l, &lost, end, &why);
        if (rc != 0 && rc != -GP_ECANCELLED && clock_left_ms(end) == 0) return too_late(t, "", err);
        if (rc != 0 && err != NULL) *err = why;
        const struct tree_work nothing = {0};
        if (rc == 0 && pace_take(t->pace, clock_ms() - t->left_ms, &nothing) == PACE_OVER) return too_slow(t, err);
    }
    return rc;
}

static struct tree_side *make_giver(const void *of, uint64_t id GP_UNUSED, const struct gp_cancel *cancel) {
    const struct tree_up_req *req = of;
    const struct tree_give_opts opts = {
        .root = req->from, .ignore = req->ignore, .omit = req->omit, .sums = req->sums, .cancel = cancel};
    return tree_giver(&opts);
}

int tree_up(struct node_link *l, const struct tree_up_req *req, struct tree_stats *ret, struct gp_error *err) {
    struct transfer t = {.link = l, .progress = req->progress, .ctx = req->ctx};
    GP_AUTO_FREE char *to = xstrdup(req->to);
    struct tree_request q = {.verb = TREE_TAKE, .path = to, .mirror = req->mirror, .by_hash = req->by_hash};
    return transfer(&t, make_giver, req, &q, req->deadline_ms, ret, err);
}

static struct tree_side *make_taker(const void *of, uint64_t id GP_UNUSED, const struct gp_cancel *cancel) {
    const struct tree_down_req *req = of;
    const struct tree_take_opts opts = {.root = req->to,
                                        .keep_name = req->keep_name,
                                        .mirror = req->mirror,
                                        .by_hash = req->by_hash,
                                        .inside = true,
                                        .durable = req->durable,
                                        .cancel = cancel};
    const struct tree_expect expect = tree_expect_path(req->from);
    return tree_taker(&opts, &expect);
}

int tree_down(struct node_link *l, const struct tree_down_req *req, struct tree_stats *ret, struct gp_error *err) {
    struct transfer t = {.link = l, .progress = req->progress, .ctx = req->ctx, .pace = req->pace};
    GP_AUTO_FREE char *from = xstrdup(req->from);
    struct tree_request q = {.verb = TREE_GIVE, .path = from};
    return transfer(&t, make_taker, req, &q, req->deadline_ms, ret, err);
}

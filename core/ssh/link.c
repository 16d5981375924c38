/* SPDX-License-Identifier: Apache-2.0 */
/* A node's connection: opened on demand, reopened when lost, and short idempotent scripts
 * over it. Used by the node's own thread. */
#include "base/gp_base.h"

#include "ssh/link.h"

#define ALIVE_MS 15000
#define RELOGIN_GRACE_MS 60000 /* a booting node refuses logins for a while */
#define RETRY_MS 500
#define RETRY_MAX_MS 8000
#define LOST_MAX 20 /* connections lost in a row: about two minutes without the reconnects */
#define CUT_MAX 3   /* replies that a shutdown may have cut, before one counts as a reply */

struct waiting {
    const struct node_link *link;
    enum node_phase phase;
};

static void on_waiting(void *ctx, const char *why) {
    const struct waiting *w = ctx;
    event_emit(w->link->sink, w->link->slot, w->phase, EVENT_PROGRESS, "ssh", "%s", why);
}

static int link_open(struct node_link *l, int64_t deadline_ms, int64_t grace_ms, enum node_phase phase,
                     struct gp_error *err) {
    struct waiting w = {l, phase};
    struct ssh_open_opts opts = {
        .deadline_ms = deadline_ms, .login_grace_ms = grace_ms, .cancel = l->cancel, .waiting = on_waiting, .ctx = &w};
    int rc = ssh_open(&l->target, &opts, &l->session, err);
    if (!rc && l->beats) ssh_beat(l->session, l->cancel);
    return rc;
}

void node_link_close(struct node_link *l) {
    ssh_close(l->session);
    l->session = NULL;
}

int node_link_ensure(struct node_link *l, struct gp_error *err) {
    if (l->session) {
        struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(ALIVE_MS), .cancel = l->cancel};
        GP_AUTO_SSH_RESULT struct ssh_result r = {0};
        struct gp_error why = {0};
        int rc = ssh_exec(l->session, ":", &opts, &r, &why);
        if (rc == -GP_ECANCELLED && err) *err = why;
        if (rc == -GP_ECANCELLED || (!rc && r.end == SSH_EXITED)) return rc;
        node_link_close(l);
    }
    return link_open(l, clock_deadline(l->reach_timeout_ms), l->login_grace_ms, NODE_REACHING, err);
}

int node_link_again(struct node_link *l, int64_t deadline_ms, struct gp_error *err) {
    node_link_close(l);
    int64_t reach = clock_deadline(l->reach_timeout_ms);
    return link_open(l, GP_MIN(reach, deadline_ms), RELOGIN_GRACE_MS, NODE_BOOTSTRAPPING, err);
}

int node_link_lost(struct node_link *l, int *times, int64_t deadline_ms, struct gp_error *err) {
    int64_t pause = RETRY_MS;
    for (int i = 0; i < *times && pause < RETRY_MAX_MS; i++) pause *= 2;
    if (++*times > LOST_MAX)
        return gp_fail(err, GP_EREACH, "%s: the connection was lost %d times in a row, last: %s", l->target.label,
                       *times, l->session ? ssh_lost_why(l->session) : "");
    int rc = gp_sleep(GP_MIN(pause, (int64_t)RETRY_MAX_MS), l->cancel, err);
    return rc ? rc : node_link_again(l, deadline_ms, err);
}

char *script_sealed(const struct str *script, size_t *ret_n) {
    static const char head[] = "{\n", tail[] = "\n} </dev/null\n";
    *ret_n = sizeof head - 1 + script->len + sizeof tail - 1;
    char *out = xmalloc(*ret_n + 1);
    memcpy(out, head, sizeof head - 1);
    if (script->len > 0) memcpy(out + sizeof head - 1, script->s, script->len);
    memcpy(out + sizeof head - 1 + script->len, tail, sizeof tail);
    return out;
}

int node_link_exec(struct node_link *l, const struct str *script, struct ssh_exec_opts *opts, struct ssh_result *ret,
                   struct gp_error *err) {
    GP_AUTO_FREE char *sealed = script_sealed(script, &opts->in_len);
    opts->in = sealed;
    opts->cancel = l->cancel;
    int rc = ssh_exec(l->session, "exec sh -s", opts, ret, err);
    explicit_bzero(sealed, opts->in_len); /* secrets */
    return rc;
}

bool ssh_cut_short(const struct ssh_result *r) {
    return r->end == SSH_SIGNALED ||
           (r->end == SSH_EXITED && (r->status == 129 || r->status == 137 || r->status == 143));
}

int node_link_sh(struct node_link *l, const char *what, const struct str *script, int64_t each_ms, int64_t deadline_ms,
                 struct ssh_result *ret, struct gp_error *err) {
    for (int lost = 0, cuts = 0;;) {
        if (l->session) {
            int64_t end = clock_deadline(each_ms);
            struct ssh_exec_opts opts = {.deadline_ms = GP_MIN(end, deadline_ms)};
            struct gp_error why = {0};
            ssh_result_clear(ret);
            int rc = node_link_exec(l, script, &opts, ret, &why);
            bool again = rc ? rc != -GP_ECANCELLED : ret->end == SSH_LOST || ssh_cut_short(ret);
            if (rc || ssh_cut_short(ret)) cuts++;
            if (rc && (!again || cuts > CUT_MAX)) {
                if (err) *err = why;
                return rc;
            }
            if (!rc && ret->end == SSH_TIMED_OUT)
                return gp_fail(err, GP_ETIMEOUT, "%s: %s did not answer in time", l->target.label, what);
            if (!rc && ret->end == SSH_EXITED && (!again || cuts > CUT_MAX)) return 0;
            if (!rc && ret->end == SSH_SIGNALED && cuts > CUT_MAX)
                return gp_fail(err, GP_EBOOTSTRAP, "%s: %s was killed by signal %s on the node", l->target.label, what,
                               ret->signal);
        }
        if (clock_left_ms(deadline_ms) == 0)
            return gp_fail(err, GP_ETIMEOUT, "%s: %s did not answer in time", l->target.label, what);
        event_emit(l->sink, l->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, "ssh", "connection lost, reconnects");
        int rc = node_link_lost(l, &lost, deadline_ms, err);
        if (rc) return gp_wrap(err, "%s", what);
    }
}

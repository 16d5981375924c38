/* SPDX-License-Identifier: Apache-2.0 */
/* A node's connection: made when it is not there, made again when it was lost, and short scripts
 * over it that bear being run twice. Knows no steps. Used by the node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/log.h"

#define ALIVE_MS 15000
#define RELOGIN_GRACE_MS 60000 /* a booting node refuses logins for a while */
#define RETRY_MS 500

struct waiting {
    const struct node_link *link;
    enum node_phase phase;
};

static void on_waiting(void *ctx, const char *why) {
    const struct waiting *w = ctx;
    event_emit(w->link->sink, w->link->slot, w->phase, EVENT_PROGRESS, "ssh", "%s", why);
}

static int link_open(struct node_link *l, int64_t deadline_ms, int64_t grace_ms,
                     enum node_phase phase, struct gp_error *err) {
    struct waiting w = {l, phase};
    struct ssh_open_opts opts = {.deadline_ms = deadline_ms,
                                 .login_grace_ms = grace_ms,
                                 .cancel = l->cancel,
                                 .waiting = on_waiting,
                                 .ctx = &w};
    return ssh_open(&l->target, &opts, &l->session, err);
}

void node_link_close(struct node_link *l) {
    ssh_close(l->session);
    l->session = NULL;
}

int node_link_ensure(struct node_link *l, struct gp_error *err) {
    if (l->session) {
        struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(ALIVE_MS), .cancel = l->cancel};
        GP_AUTO_SSH_RESULT struct ssh_result r = {0};
        int rc = ssh_exec(l->session, ":", &opts, &r, err);
        if (rc || r.end == SSH_EXITED) return rc;
        node_link_close(l);
    }
    return link_open(l, clock_deadline(l->reach_timeout_ms), l->login_grace_ms, NODE_REACHING, err);
}

int node_link_again(struct node_link *l, int64_t deadline_ms, struct gp_error *err) {
    node_link_close(l);
    int64_t reach = clock_deadline(l->reach_timeout_ms);
    return link_open(l, GP_MIN(reach, deadline_ms), RELOGIN_GRACE_MS, NODE_BOOTSTRAPPING, err);
}

int node_sh(struct node_link *l, const char *what, const struct str *script, int64_t deadline_ms,
            struct ssh_result *ret, struct gp_error *err) {
    for (;;) {
        struct ssh_exec_opts opts = {.in = script->s,
                                     .in_len = script->len,
                                     .deadline_ms = deadline_ms,
                                     .cancel = l->cancel};
        if (l->session) {
            ssh_result_clear(ret);
            int rc = ssh_exec(l->session, "exec sh -s", &opts, ret, err);
            if (rc) return rc;
            if (ret->end == SSH_EXITED) return 0;
            if (ret->end == SSH_SIGNALED)
                return gp_fail(err, GP_EBOOTSTRAP, "%s: %s was ended by signal %s on the node",
                               l->target.label, what, ret->signal);
        }
        if (clock_left_ms(deadline_ms) == 0)
            return gp_fail(err, GP_ETIMEOUT, "%s: %s did not answer in time", l->target.label,
                           what);
        event_emit(l->sink, l->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, "ssh",
                   "connection lost, connects again");
        int rc = gp_sleep(RETRY_MS, l->cancel, err);
        if (!rc) rc = node_link_again(l, deadline_ms, err);
        if (rc) return gp_wrap(err, "%s", what);
    }
}

int boot_fail(const struct node_link *l, const char *step, struct gp_error *err, const char *text) {
    GP_AUTO_FREE char *clean = log_redacted(text);
    if (err) err->domain = GP_D_NODE;
    return gp_fail(err, GP_EBOOTSTRAP, "%s: step '%s': %s", l->target.label, step, clean);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A node's connection that is reopened when it is lost, and short scripts over it. */
#ifndef GP_SSH_LINK_H
#define GP_SSH_LINK_H

#include "model/event.h"
#include "ssh/ssh.h"

/* A node for bootstrap and validate: its target and its session, which a reconnect may
 * replace. Owned by the node's thread (the coordinator after the barrier). */
struct node_link {
    int slot;
    struct ssh_target target;
    struct ssh_session *session; /* NULL when not connected */
    int64_t reach_timeout_ms;    /* for a reconnect */
    int64_t login_grace_ms;      /* how long "permission denied" may mean "not ready yet" at the first
                                    connect (see ssh_open_opts); reconnects have their own */
    bool beats; /* the node has limits.controller: each new session reports to it that a gpuprov is connected */
    struct gp_cancel *cancel;
    const struct event_sink *sink;
};
/* Connects when not connected; closes a dead session first (one short command detects it).
 * Blocks up to reach_timeout_ms. Errors: those of ssh_open. */
int node_link_ensure(struct node_link *l, struct gp_error *err);
void node_link_close(struct node_link *l);

/* Runs a short script with sh. When the connection or the script was cut it reconnects and runs the script
 * again, so the script must be idempotent, also while its first run continues.
 * One attempt may take each_ms, all of them until deadline_ms. 0: it exited (see ret). Errors:
 * -GP_ETIMEOUT, -GP_EREACH (lost too often), those of ssh_open. */
int node_link_sh(struct node_link *l, const char *what, const struct str *script, int64_t each_ms, int64_t deadline_ms,
                 struct ssh_result *ret, struct gp_error *err);
/* One attempt of the same; the caller judges ssh_exec's result. opts: all but in and cancel. */
int node_link_exec(struct node_link *l, const struct str *script, struct ssh_exec_opts *opts, struct ssh_result *ret,
                   struct gp_error *err);
/* It was killed by a signal: a shutdown kills a script before it closes the connection. */
bool ssh_cut_short(const struct ssh_result *r);
/* Wraps the script so that sh reads all of it before it runs any: a script that arrived only in part does
 * nothing. */
char *script_sealed(const struct str *script, size_t *ret_n); /* caller frees */
/* Closes the session and connects again, until deadline_ms. */
int node_link_again(struct node_link *l, int64_t deadline_ms, struct gp_error *err);
/* The same after a pause that grows with *times, which it increments; -GP_EREACH after too many. */
int node_link_lost(struct node_link *l, int *times, int64_t deadline_ms, struct gp_error *err);

#endif

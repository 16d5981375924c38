/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to one node of a stack. Verb's thread. */
#include "base/gp_base.h"

#include "engine/proof/node_connect.h"

#include "engine/proof/node_target.h"
#include "engine/run/login_key.h"
#include "engine/trust/trust.h"

int node_connect_prepare(struct run *run, int slot, int64_t timeout_ms, struct gp_error *err) {
    bool there = slot < run->n_nodes && run->nodes[slot].exists;
    if (!there && trust_no_node(run, err) != 0) return -(int)GP_ENOTFOUND;
    if (!there)
        return gp_fail(err, GP_ENOTFOUND, "%s/%d: there is no such node: 'gpuprov status %s' lists the nodes",
                       run->stack.name, slot, run->stack.name);
    struct run_node *n = &run->nodes[slot];
    int r = login_key_get(run, false, err);
    if (r == 0) r = node_target(run, n, &n->link.target, err);
    n->link.slot = slot;
    n->link.cancel = &run->e->cancel;
    n->link.sink = &run->e->sink;
    n->link.reach_timeout_ms = timeout_ms;
    return r;
}

int node_connect(struct run *run, int slot, int64_t timeout_ms, struct gp_error *err) {
    int r = node_connect_prepare(run, slot, timeout_ms, err);
    if (r != 0) return r;
    struct node_link *l = &run->nodes[slot].link;
    struct ssh_open_opts opts = {.deadline_ms = clock_deadline(timeout_ms), .cancel = l->cancel};
    return ssh_open(&l->target, &opts, &l->session, err);
}

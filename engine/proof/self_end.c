/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and confirms the credentials with which nodes end themselves. */
#include "base/gp_base.h"

#include "engine/proof/self_end.h"

#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"

static const struct self_end_ops *ops_of(const struct run_node *n) {
    const struct provider_ops *ops = n->exists ? provider_find(n->res.provider) : NULL;
    return ops != NULL ? ops->self_end : NULL;
}

int self_end_prepare(struct run *run, struct gp_error *err) {
    for (int i = 0; i < run->n_nodes && i < run->spec->nodes; i++) {
        struct run_node *n = &run->nodes[i];
        const struct self_end_ops *ops = ops_of(n);
        struct provider *p = NULL;
        if (ops == NULL) continue;
        int r = run_provider(run, n->res.provider, &p, err);
        if (r == 0) r = ops->make(p, &run->stack, run->spec, &n->res, &n->end_credential, err);
        if (r != 0) return gp_wrap(err, "%s/%d: its right to end itself", run->stack.name, i);
    }
    return 0;
}

int self_end_confirm(struct run *run, struct gp_error *err) {
    int r = 0;
    for (int i = 0; i < run->n_nodes; i++) {
        struct run_node *n = &run->nodes[i];
        const struct self_end_ops *ops = ops_of(n);
        struct provider *p = NULL;
        struct gp_error why = {0};
        secret_clear(&n->end_credential);
        if (ops == NULL || !n->end_given) continue;
        int one = run_provider(run, n->res.provider, &p, &why);
        if (one == 0) one = ops->confirm(p, &n->res, &why);
        n->res.ends_itself = one == 0;
        if (one == 0 || n->rc != 0 || r != 0) continue; /* the node's own failure counts; it may be gone */
        r = one;
        if (err != NULL) *err = why;
        gp_wrap(err, "%s/%d: its right to end itself", run->stack.name, i);
    }
    return r;
}

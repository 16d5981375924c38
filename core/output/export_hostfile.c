/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as a hostfile of MPI, for a job that starts on one of its nodes: the addresses between the nodes, and a slot
 * for each GPU (one on a node without GPUs). Pure. */
#include "base/gp_base.h"

#include "export_forms.h"

static int write_hostfile(const struct export_stack *s, struct str *out, struct gp_error *err) {
    for (size_t i = 0; i < s->nodes.len; i++) {
        const struct export_node *n = &s->nodes.items[i];
        int r = export_check_address(n, n->peer_address, err);
        if (r != 0) return r;
        str_addf(out, "%s slots=%d\n", n->peer_address, GP_MAX(n->gpus, 1));
    }
    return 0;
}

const struct export_form export_form_hostfile = {
    .name = "hostfile",
    .write = write_hostfile,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions of the nccl.* checks, and the report of a failed communicator. One thread. */
#include "base/gp_base.h"

#include "nccl_check_cuda.h"

#include "base/clock.h"

bool nccl_one_gpu_for_all(const struct check_ctx *c) { return c->who != NULL && c->who[0].alike; }

bool nccl_needs(struct check_ctx *c, struct agent_result *r) {
    if (!gang_has_gpus(c)) {
        agent_set(r, VERDICT_SKIPPED, "no_gpu", "no rank has a GPU");
        return false;
    }
    if (c->size < 2) {
        agent_set(r, VERDICT_SKIPPED, "one_gpu", "there is only one GPU");
        return false;
    }
    if (c->no_gpu[0] == '\0') return true;
    GP_AUTO_STR struct str who = {.max = 300};
    if (c->stuck != NULL) nccl_start_isolate(c, r, &who);
    if (c->no_gpu_culprit >= 0 && c->no_gpu_fail) agent_culprit(r, c->no_gpu_culprit);
    agent_set(r, c->no_gpu_fail ? VERDICT_FAIL : VERDICT_ERROR, c->no_gpu_fail ? "nccl_start" : "no_nccl", "%s%s",
              c->no_gpu, who.len ? who.s : "");
    agent_suggest(r, c->no_gpu_fail
                         ? "look for 'NVRM' in that node's kernel log; check its fabric manager, and NCCL_ settings "
                           "in the environment and /etc/nccl.conf; replace the node"
                         : "install the driver and the same NCCL (libnccl2, 2.18 or newer) on every node, or "
                           "set GPUPROV_LIBRARY_PATH to its folder");
    return false;
}

void nccl_start_isolate(struct check_ctx *c, struct agent_result *r, struct str *text) {
    struct nccl_buffers b;
    const struct device_ops *usual = c->dev_ops;
    c->dev_ops = agent_kind.device;
    c->data = c->stuck;
    if (nccl_buffers_open(c, r, (size_t)1 << 20, 256, &b)) {
        nccl_isolate(c, r, &b, NCCL_STUCK, b.bytes, c->deadline_ms, text);
        nccl_buffers_close(&b);
    }
    agent_kind.comm->abort(c->stuck, "NCCL did not start", -1);
    agent_kind.device->close(c->dev);
    c->dev = NULL;
    c->stuck = NULL;
    c->data = c->comm;
    c->dev_ops = usual;
}

void nccl_broken(struct check_ctx *c, struct agent_result *r, struct nccl_buffers *b, const struct gp_error *err) {
    GP_AUTO_STR struct str who = {.max = 300};
    int culprit = comm_culprit(err);
    if (err->code == GP_ELOST) { /* the ranks' own links are lost too */
        gang_broken(c, r, err, false);
        return;
    }
    char name[120];
    if (culprit >= 0) {
        gang_name(c, culprit, name, sizeof name);
        agent_culprit(r, culprit);
        str_addf(&who, "; to blame: %s", name);
    } else {
        nccl_isolate(c, r, b, NCCL_STUCK, GP_MIN(b->bytes, (size_t)1 << 20), c->deadline_ms, &who);
    }
    agent_set(r, VERDICT_FAIL, "nccl_failed", "%s%s", err->msg, who.len ? who.s : "");
    if (c->comm_err.code == GP_OK) {
        /* The first rank that ends the gang interrupts those that still receive the others' findings. */
        comm_tcp.barrier(c->comm, NULL);
        c->comm_err = *err;
        if (culprit >= 0) comm_blame(&c->comm_err, culprit);
    }
}

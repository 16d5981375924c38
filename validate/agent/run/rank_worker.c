/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's worker: meets the others, runs the gang checks one after the other, and sends results over its pipe. Its
 * watcher handles hangs and crashes. One thread (NCCL has its own). */
#include "base/gp_base.h"

#include "rank.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/gang/gang.h"

#include <poll.h>
#include <unistd.h>

struct rank_out {
    int out;
};

static void on_listen(void *ctx, const char *addr) {
    const struct rank_out *o = ctx;
    worker_put(o->out, MSG_LISTEN, addr, strlen(addr));
}

/* Rank 0 is in this process too: its address comes over the pipe. */
static bool hear_address(const struct rank_plan *plan, int in, char addr[80], struct gp_error *err) {
    int64_t deadline = GP_MIN(plan->deadline_ms, clock_deadline(plan->meet_ms));
    char text[sizeof plan->rendezvous] = "";
    for (size_t have = 0; have < sizeof text;) {
        if (gp_wait_fd(in, POLLIN, deadline, NULL, NULL, NULL) != 0) break;
        ssize_t n = read(in, text + have, sizeof text - have);
        if (n <= 0) break;
        have += (size_t)n;
    }
    text[sizeof text - 1] = '\0';
    if (text[0] == '\0') {
        gp_fail(err, GP_ELOST, "rank 0, on this node, did not report its address");
        comm_blame(err, 0);
        return false;
    }
    memcpy(addr, text, sizeof text);
    return true;
}

static void one_check(struct check_ctx *c, int index, bool record, int out) {
    const struct check_info *info = &check_table[index];
    const struct check_ops *ops = agent_check_ops(info->id);
    struct agent_result r;
    agent_result_init(&r, info);
    r.rank = c->rank;
    int64_t began = clock_ms();
    if (c->comm_err.code == GP_OK && !info->on_host) gang_open_gpus(c);
    if (ops == NULL) {
        agent_set(&r, VERDICT_SKIPPED, "no_code", "this agent (%s) has no code for %s", agent_kind.name, info->id);
    } else if (c->comm_err.code != GP_OK) {
        agent_set(&r, VERDICT_ERROR, "comm_failed", "not run: %s", c->comm_err.msg);
        if (comm_culprit(&c->comm_err) >= 0) agent_culprit(&r, comm_culprit(&c->comm_err));
    } else if (ops->needs == NULL || ops->needs(c, &r)) {
        bool counted = c->dev != NULL && agent_kind.before != NULL && agent_kind.after != NULL;
        if (counted) agent_kind.before(c);
        ops->run(c, &r);
        if (ops->conclude != NULL && r.verdict != VERDICT_SKIPPED && r.verdict != VERDICT_ERROR) ops->conclude(c, &r);
        if (counted) agent_kind.after(c, &r);
        gang_stalled(c, &r);
        agent_judge(&r, 1, record);
    }
    if (info->proves_gpus && c->no_gpu[0] != '\0')
        agent_set(&r, VERDICT_ERROR, "no_gpu_training", "no GPU took part: %s", c->no_gpu);
    r.took_ms = clock_ms() - began;
    worker_put_result(out, &r);
    agent_result_clear(&r);
}

/* NCCL refuses two ranks of one machine on one GPU; ranks of different machines are not compared. */
static void as_node_of_its_own(int rank) {
    char id[40];
    snprintf(id, sizeof id, "gpuprov-rank-%d", rank);
    nccl_setting("NCCL_HOSTID", id);
    nccl_setting("NCCL_SOCKET_IFNAME", "lo");
}

/* The node's first rank: all ranks of one plan are on one machine. */
static int node_of(const struct rank_plan *plan) { return plan->first; }

void rank_worker(void *arg, int in, int out) {
    struct rank_plan *k = arg;
    struct rank_out o = {.out = out};
    char addr[sizeof k->rendezvous];
    memcpy(addr, k->rendezvous, sizeof addr);
    struct check_ctx c = {.deadline_ms = k->deadline_ms,
                          .bind = k->bind,
                          .python = k->python,
                          .container_engine = k->container_engine,
                          .images = k->images,
                          .gpu = k->gpu < 0    ? -1
                                 : k->same_gpu ? k->gpu
                                               : k->gpu + k->starting,
                          .same_gpu = k->same_gpu,
                          .gpus = k->gpu < 0 ? 0 : k->count,
                          .gpus_expected = -1,
                          .rank = k->first + k->starting,
                          .size = k->size,
                          .seed = (uint64_t)k->seed,
                          .steps = (int)k->steps,
                          .timed_ms = k->timed_ms,
                          .precisions = k->precisions,
                          .stall_ms = k->stall_ms,
                          .dev_ops = &device_host,
                          .data_ops = &comm_tcp};
    struct comm_setup s = {.rank = c.rank,
                           .size = c.size,
                           .bind_ip = k->bind,
                           .rendezvous = addr,
                           .token = k->token,
                           .token_len = k->token_len,
                           .deadline_ms = k->deadline_ms,
                           .meet_ms = k->meet_ms,
                           .stall_ms = k->stall_ms,
                           .dev_ops = &device_host,
                           .on_listen = on_listen,
                           .ctx = &o};
#ifdef GPUPROV_FAULTS
    /* the host's arithmetic under another name: a device that may differ from the reference's bits */
    struct device_ops other = device_host;
    other.name = "other";
    const char *fault = getenv("GPUPROV_FAULT");
    if (fault != NULL && str_starts(fault, "other-")) c.dev_ops = &other;
#endif
    if (k->same_gpu) as_node_of_its_own(c.rank);
    bool found = c.rank == 0 || addr[0] != '\0' || hear_address(k, in, addr, &c.comm_err);
    if (!found || comm_tcp.init(&s, &c.comm, &c.comm_err) != 0) c.comm = NULL;
    explicit_bzero(k->token, sizeof k->token);
    c.data = c.comm;
    if (c.comm != NULL) gang_meet(&c, node_of(k));
    for (size_t i = 0; i < k->checks.n; i++) {
        uint32_t index = (uint32_t)k->checks.items[i];
        worker_put(out, MSG_START, &index, sizeof index);
        one_check(&c, (int)index, !k->unjudged, out);
    }
    if (c.comm != NULL && c.comm_err.code == GP_OK) comm_tcp.barrier(c.comm, &c.comm_err);
    const char *reason = c.comm_err.code != GP_OK ? c.comm_err.msg : NULL;
    gang_close_gpus(&c, reason, comm_culprit(&c.comm_err));
    comm_tcp.abort(c.comm, reason, comm_culprit(&c.comm_err));
    worker_put(out, MSG_DONE, "", 0);
}

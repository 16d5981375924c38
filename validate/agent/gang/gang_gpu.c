/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a gang compute on and talk through: their GPUs and NCCL when every rank has both,
 * else the host, and then why. All ranks take the same decision, because each hears all. One thread. */
#include "base/gp_base.h"

#include "gang.h"

#include "base/clock.h"

#include <sys/utsname.h>

#define LOAD_MS 120000 /* a driver may take this long to open a GPU, without CPU time */

static struct gang_who *who_of(struct check_ctx *c) {
    static struct gang_who *all; /* one gang per process; lives as long as it */
    if (all == NULL) all = xcalloc((size_t)c->size, sizeof *all);
    return all;
}

static bool exchange_who(struct check_ctx *c, const struct gang_who *own) {
    struct gang_who *all = who_of(c);
    c->who = all;
    if (comm_tcp.all_gather(c->comm, (dev_addr)(uintptr_t)own, (dev_addr)(uintptr_t)all, sizeof *own, &c->comm_err) !=
        0)
        return false;
    for (int i = 0; i < c->size; i++) {
        all[i].host[sizeof all[i].host - 1] = all[i].why[sizeof all[i].why - 1] = '\0';
        all[i].pci[sizeof all[i].pci - 1] = '\0';
        for (char *p = all[i].host; *p != '\0'; p++) /* it comes from another machine */
            if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
    return true;
}

/* A machine is known by its boot: nodes of the local provider and containers share one. */
static uint64_t this_machine(void) {
    char id[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    size_t n = f != NULL ? fread(id, 1, sizeof id, f) : 0;
    if (f != NULL) fclose(f);
    return n > 0 ? gang_hash(id, n) : 0;
}

/* Finds the machine with the most ranks per core. Nodes of one machine may each have a part of its cores. */
static void find_crowd(struct check_ctx *c) {
    int most = 0, most_cores = 1;
    for (int i = 0; i < c->size; i++) {
        int ranks = 0;
        int64_t own = 0;
        for (int k = 0; k < c->size; k++) {
            if (c->who[k].machine != c->who[i].machine) continue;
            ranks++;
            if (c->who[k].node == k) own += c->who[k].own;
        }
        int cores = (int)GP_MAX(1, GP_MIN(c->who[i].cores, (own + 50) / 100));
        if (c->who[i].machine == 0 || (int64_t)ranks * most_cores <= (int64_t)most * cores) continue;
        most = ranks;
        most_cores = cores;
    }
    if (most > 0) comm_tcp_crowd(c->comm, most, most_cores);
}

bool gang_meet(struct check_ctx *c, int node) {
    struct utsname u;
    struct gang_who own = {.gpu = c->gpu, .node = node, .alike = c->same_gpu, .machine = this_machine()};
    int online = 0;
    own.own = (int32_t)(agent_cores(&online) * 100);
    own.cores = online;
    if (uname(&u) == 0) str_put(own.host, sizeof own.host, u.nodename);
    if (!exchange_who(c, &own)) return false;
    find_crowd(c);
    return true;
}

bool gang_has_gpus(const struct check_ctx *c) {
    for (int i = 0; c->who != NULL && i < c->size; i++)
        if (c->who[i].gpu >= 0) return true;
    return c->gpu >= 0;
}

void gang_name(const struct check_ctx *c, int rank, char *dst, size_t n) {
    bool known = c->who != NULL && rank >= 0 && rank < c->size;
    if (known && c->who[rank].gpu >= 0)
        snprintf(dst, n, "rank %d (%s, gpu %d)", rank, c->who[rank].host, c->who[rank].gpu);
    else if (known && c->who[rank].host[0] != '\0') snprintf(dst, n, "rank %d (%s)", rank, c->who[rank].host);
    else snprintf(dst, n, "rank %d", rank);
}

/* This rank's GPU, in own->open and own->why. */
static void open_own(struct check_ctx *c, struct gang_who *own) {
    struct gp_error err = {0};
    if (c->gpu < 0) {
        str_put(own->why, sizeof own->why, "this rank was given no GPU");
    } else if (agent_kind.device == &device_host) {
        str_put(own->why, sizeof own->why, "the agent there is the one without CUDA");
    } else if (agent_kind.device->open(c->gpu, &c->dev, &err) != 0) {
        int64_t code = 0;
        c->dev = NULL;
        /* the driver's own number, or a hang: the GPU's fault; else something is missing */
        if (err.code == GP_ETIMEOUT || str_to_i64(err.detail, 1, 100000, &code)) own->open = -1;
        str_put(own->why, sizeof own->why, err.msg);
    } else {
        struct gpu_identity id = {.pci = ""};
        own->open = 1;
        if (agent_kind.identify == NULL) return;
        agent_kind.identify(c->gpu, &id);
        c->model = gpu_model_find(id.device, id.subsystem);
        str_put(own->pci, sizeof own->pci, id.pci);
    }
}

static void without(struct check_ctx *c, int rank, const char *why) {
    char name[120];
    gang_name(c, rank, name, sizeof name);
    snprintf(c->no_gpu, sizeof c->no_gpu, "%s: %s", name, why);
    c->no_gpu_culprit = rank;
    c->no_gpu_fail = c->who[rank].open < 0;
}

static int meet_nccl(struct check_ctx *c, struct gp_error *err) {
    struct comm_setup s = {.rank = c->rank,
                           .size = c->size,
                           .deadline_ms = c->deadline_ms,
                           .stall_ms = c->stall_ms,
                           .dev_ops = agent_kind.device,
                           .dev = c->dev,
                           .meet = c->comm,
                           .who = c->who};
    return agent_kind.comm->init(&s, &c->data, err);
}

/* The same ranks once more, by the algorithm that adds in one way only. NCCL reads these when it starts. */
static int meet_plain(struct check_ctx *c, struct gp_error *err) {
    nccl_setting("NCCL_ALGO", "Ring");
    nccl_setting("NCCL_PROTO", "Simple");
    c->data_ops->abort(c->data, NULL, -1);
    c->data = NULL;
    return meet_nccl(c, err);
}

void gang_open_gpus(struct check_ctx *c) {
    static bool tried;
    if (tried || !gang_has_gpus(c)) return;
    tried = true;
    c->no_gpu_culprit = -1;
    struct gang_who own = c->who[c->rank];
    comm_tcp_patience(c->comm, LOAD_MS);
    open_own(c, &own);
    bool met = exchange_who(c, &own);
    comm_tcp_patience(c->comm, 0);
    if (!met) return;
    for (int i = 0; i < c->size && c->no_gpu[0] == '\0'; i++)
        if (c->who[i].open != 1) without(c, i, c->who[i].why);
    struct gp_error err = {0};
    if (c->no_gpu[0] == '\0') {
        bool alone = c->size == 1; /* nobody to talk to */
        c->data = NULL;
        if ((alone ? comm_tcp_alone(agent_kind.device, c->dev, c->deadline_ms, &c->data, &err) : meet_nccl(c, &err)) ==
            0) {
            c->data_ops = alone ? &comm_tcp : agent_kind.comm;
            c->dev_ops = agent_kind.device;
            if (!alone) c->data_plain = meet_plain;
            return;
        }
        str_put(c->no_gpu, sizeof c->no_gpu, err.msg);
        c->no_gpu_culprit = comm_culprit(&err);
        c->no_gpu_fail = err.code != GP_EENV;
        if (err.code == GP_ELOST) c->comm_err = err; /* the ranks do not hear each other any more */
        c->stuck = c->data;
    }
    c->data = c->comm;
    if (c->stuck != NULL) return; /* its device too is still needed */
    agent_kind.device->close(c->dev);
    c->dev = NULL;
}

void gang_close_gpus(struct check_ctx *c, const char *reason, int culprit) {
    if (c->stuck != NULL) agent_kind.comm->abort(c->stuck, reason != NULL ? reason : "not started", culprit);
    c->stuck = NULL;
    if (c->data != c->comm && c->data != NULL) c->data_ops->abort(c->data, reason, culprit);
    c->data = c->comm;
    if (c->dev != NULL) agent_kind.device->close(c->dev);
    c->dev = NULL;
}

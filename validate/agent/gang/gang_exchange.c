/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers shared by the gang checks, and their table. One thread; ranks call in lock-step. */
#include "base/gp_base.h"

#include "gang.h"

#include "base/clock.h"
#include "validate/agent/device/numeric.h"

#include <time.h>

void gang_broken(struct check_ctx *c, struct agent_result *r, const struct gp_error *err, bool own) {
    int culprit = own ? c->rank : comm_culprit(err);
    bool late = !own && err->code == GP_ETIMEOUT; /* no proof against a rank: it is named, not failed */
    const char *code = err->code == GP_ELOST ? "rank_lost" : own ? "rank_failed" : late ? "no_time" : "comm_failed";
    agent_set(r, late ? VERDICT_ERROR : VERDICT_FAIL, code, "%s", err->msg);
    if (late) agent_suggest(r, "give it more time (validate.time), or put fewer nodes on one machine");
    if (culprit >= 0) agent_culprit(r, culprit);
    if (c->comm_err.code != GP_OK) return;
    c->comm_err = *err;
    if (culprit >= 0) comm_blame(&c->comm_err, culprit);
}

static dev_addr addr_of(const void *p) { return (dev_addr)(uintptr_t)p; }

bool gang_gather(struct check_ctx *c, struct agent_result *r, const void *own, void *all, size_t n) {
    struct gp_error err = {0};
    if (comm_tcp.all_gather(c->comm, addr_of(own), addr_of(all), n, &err) == 0) return true;
    gang_broken(c, r, &err, false);
    return false;
}

bool gang_broadcast(struct check_ctx *c, struct agent_result *r, void *p, size_t n, int root) {
    struct gp_error err = {0};
    if (comm_tcp.broadcast(c->comm, addr_of(p), n, root, &err) == 0) return true;
    gang_broken(c, r, &err, false);
    return false;
}

bool gang_barrier(struct check_ctx *c, struct agent_result *r) {
    struct gp_error err = {0};
    if (comm_tcp.barrier(c->comm, &err) == 0) return true;
    gang_broken(c, r, &err, false);
    return false;
}

void gang_too_late(struct check_ctx *c, struct agent_result *r, const char *done) {
    GP_AUTO_STR struct str why = {.max = 300};
    bool busy = c->comm != NULL && comm_tcp_busy(c->comm, &why);
    agent_set(r, VERDICT_ERROR, "no_time", "%s%s%s", busy ? why.s : "", busy ? ": " : "", done);
    if (c->comm != NULL && c->comm_err.code == GP_OK) { /* others may wait for this rank: it does not just leave */
        comm_tcp_late(c->comm);
        gp_fail(&c->comm_err, GP_ETIMEOUT, "%s", r->message);
    }
    agent_suggest(r, "give it more time (validate.time), or put fewer nodes on one machine");
}

void gang_stalled(struct check_ctx *c, struct agent_result *r) {
    int64_t ms = 0;
    int rank = c->comm != NULL && c->comm_err.code == GP_OK ? comm_tcp_stalled(c->comm, &ms) : -1;
    char name[120];
    if (rank < 0 || r->verdict == VERDICT_FAIL) return;
    gang_name(c, rank, name, sizeof name);
    agent_set(r, VERDICT_ERROR, "stalled", "%s did not answer for %lld s, and then continued", name,
              (long long)(ms + 500) / 1000);
    agent_suggest(r, "run validate again: a node that stalls a second time is at fault");
    agent_culprit(r, rank);
}

double gang_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *gang_device_text(const struct device_ops *ops) {
    return ops == &device_host ? "the CPU (device host), no GPU took part" : ops->name;
}

void gang_say_device(struct agent_result *r, const struct device_ops *ops) { agent_data_str(r, "device", ops->name); }

uint64_t gang_hash(const void *p, size_t n) {
    const unsigned char *b = p;
    uint64_t h = num_mix(n);
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t w = 0;
        memcpy(&w, b, sizeof w);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    uint64_t w = 0;
    memcpy(&w, b, n);
    return num_mix(h ^ w);
}

const struct check_ops gang_checks[] = {
    {.id = "net.pair", .run = net_pair_run},
    {.id = "train.ddp", .run = train_run, .conclude = train_conclude},
    {.id = "framework.torch", .run = framework_torch_run},
    {.id = "framework.images", .run = framework_images_run},
    {.id = "framework.deepspeed", .run = framework_deepspeed_run},
    {.id = "framework.horovod", .run = framework_horovod_run},
    {.id = NULL},
};

/* SPDX-License-Identifier: Apache-2.0 */
/* comm_ops: communication between ranks. Two implementations: `tcp` (ring over private addresses, every peer
 * authenticated with the run's token) and `nccl`. All ranks make the same calls in the same order. */
#ifndef GP_AGENT_COMM_H
#define GP_AGENT_COMM_H

#include "base/error.h"
#include "validate/agent/device/device.h"

struct gang_who;
struct str;
struct comm; /* each implementation's own; used by one thread */

#define COMM_TOKEN_MAX 64

struct comm_setup {
    int rank, size;
    const char *bind_ip;    /* this rank's private address */
    const char *rendezvous; /* "IP:PORT" of rank 0; "" on rank 0, which binds to port 0 */
    const unsigned char *token;
    size_t token_len;
    int64_t deadline_ms;              /* monotonic: nothing here waits beyond it */
    int64_t meet_ms;                  /* how long to wait for peers to connect */
    int64_t stall_ms;                 /* least limit of a peer's silence; the second time it is blamed */
    const struct device_ops *dev_ops; /* device of the buffers */
    struct device *dev;
    void (*on_listen)(void *ctx, const char *addr); /* rank 0 only, once it can be reached */
    void *ctx;
    struct comm *meet;          /* nccl only: a tcp communicator of the same ranks. It carries the unique id and
                                 * failures, and answers peers while NCCL works. Kept by nccl */
    const struct gang_who *who; /* nccl only: per rank, for messages */
};

enum comm_type { COMM_F32, COMM_F16, COMM_BF16, COMM_I32 };

struct all_reduce_args {
    dev_addr buf;        /* sum, in place */
    size_t count;        /* elements */
    enum comm_type type; /* tcp: COMM_F32 only, else -GP_EENV */
    /* Optional. A communicator with partial sums passes each to this: v[0..n) at element `first` as received, the
     * sum over `ranks` ranks from rank `start` upwards (modulo size). */
    void (*partial)(void *ctx, int chunk, int start, int ranks, size_t first, const float *v, size_t n);
    void *ctx;
};

/* Failure: -GP_ELOST (a peer is gone, hangs, or ended it), -GP_ETIMEOUT (the deadline; no proof against a rank),
 * -GP_EPROTO, -GP_EAUTH; comm_culprit(err) names the rank to blame, or with -GP_ETIMEOUT the one that was awaited.
 * After a failure only abort may be called. */
struct comm_ops {
    const char *name; /* "tcp", "nccl" */
    /* Meets all peers. Blocks until the deadline at most. On failure *ret may be set: a dead communicator, valid
     * only for abort and for the search for the culprit. */
    int (*init)(const struct comm_setup *s, struct comm **ret, struct gp_error *err);
    /* The result is bit-identical on all ranks. Ordered after the device's earlier work; may return before it is
     * done, so that the device can compute meanwhile: nothing may touch buf until flush. */
    int (*all_reduce)(struct comm *c, const struct all_reduce_args *a, struct gp_error *err);
    int (*broadcast)(struct comm *c, dev_addr buf, size_t bytes, int root, struct gp_error *err);
    /* Each rank sends `bytes` at send; recv gets size * bytes, in rank order. */
    int (*all_gather)(struct comm *c, dev_addr send, dev_addr recv, size_t bytes, struct gp_error *err);
    int (*barrier)(struct comm *c, struct gp_error *err);
    /* Waits for every all_reduce begun (deadline: monotonic ms, -GP_ETIMEOUT). Returns at once if there is none. */
    int (*flush)(struct comm *c, int64_t deadline_ms, struct gp_error *err);
    /* Ends it and frees c. reason NULL: the ordinary end, after a barrier. Otherwise sends peers the reason and the
     * culprit (-1: none) at once. Never blocks for more than a second. */
    void (*abort)(struct comm *c, const char *reason, int culprit);
};

/* The rank that an error of a comm_ops call blames (kept in err->detail), or -1. */
int comm_culprit(const struct gp_error *err);
int comm_blame(struct gp_error *err, int rank); /* sets it; returns -err->code */

/* For a rank that is busy elsewhere: answers and reads its peers. Never blocks. Fails like an operation if a peer is
 * gone or ended it. */
int comm_tcp_serve(struct comm *c, struct gp_error *err);

/* Of a tcp communicator. The most crowded machine of the gang: its limit of silence grows with ranks per core. */
void comm_tcp_crowd(struct comm *c, int ranks, int cores);
/* For the next patience_ms this rank may work without progress, because a driver starts. 0: no longer. */
void comm_tcp_patience(struct comm *c, int64_t patience_ms);
/* A peer that reached the limit of silence once and then continued, since the last call: its rank and how long it was
 * silent; or -1. */
int comm_tcp_stalled(struct comm *c, int64_t *ret_ms);
/* Whether more ranks than cores share a machine, and late heartbeats show it. Adds a sentence about it to ret (may be
 * NULL). */
bool comm_tcp_busy(struct comm *c, struct str *ret);
/* This rank stops because its deadline has passed: abort tells the others so, and no rank is at fault. */
void comm_tcp_late(struct comm *c);

/* A tcp communicator of one rank: its collectives are copies. dev: where buffers live. */
int comm_tcp_alone(const struct device_ops *dev_ops, struct device *dev, int64_t deadline_ms, struct comm **ret,
                   struct gp_error *err);

extern const struct comm_ops comm_tcp;
extern const struct comm_ops comm_nccl; /* only in gpuprov-agent-cuda */

/* Sets NCCL_... for this process (nccl_setting.c). */
void nccl_setting(const char *name, const char *value);

#endif

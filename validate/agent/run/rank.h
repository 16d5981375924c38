/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks watched by one process: `rank` starts those of one node (one per GPU, or one), and a node without a
 * controller starts its own gang (gang_local.c). */
#ifndef GP_AGENT_RANK_H
#define GP_AGENT_RANK_H

#include "validate/agent/base/worker.h"
#include "validate/agent/verbs.h"

#define RANKS_MAX 64 /* of one node */

struct rank_plan {      /* shared by the ranks of this process */
    const char *bind;   /* private address of this node */
    const char *python; /* these three: see struct check_ctx */
    const char *container_engine, *images;
    int first, count, size; /* ranks [first, first + count) of size */
    int gpu;                /* of the first rank, the next ones follow; -1: no GPU takes part */
    bool same_gpu;          /* all on that one GPU, each as if it were a node of its own */
    int64_t deadline_ms;    /* monotonic: the workers' own */
    int64_t meet_ms, stall_ms;
    int64_t seed, steps;
    int64_t timed_ms;    /* of train.ddp's large model; 0: its usual time */
    bool unjudged;       /* results carry figures and faults: the caller judges the limits */
    unsigned precisions; /* of train.ddp, see struct check_ctx */
    struct check_list checks;
    unsigned char token[COMM_TOKEN_MAX]; /* wiped once the workers have it */
    size_t token_len;
    char rendezvous[80]; /* rank 0's address; "" if rank 0 is one of these */
    int starting;        /* index of the rank of the next worker */
};

/* Callbacks for the workers' messages; local: 0 to count - 1. Called in the watching process. */
struct rank_ears {
    void *ctx;
    void (*hello)(void *ctx, int local);
    void (*listen)(void *ctx, const char *addr); /* rank 0 waits there; may be NULL */
    void (*begin)(void *ctx, int local, const struct check_info *check);
    void (*result)(void *ctx, int local, const struct agent_result *r); /* also for checks without a result */
    /* why: "" or why it ended early. hang: a driver holds its process. */
    void (*end)(void *ctx, int local, const char *why, bool hang);
    bool (*broken)(void *ctx); /* the output is broken: stop */
};
/* Starts a worker for each rank, reads their messages, ends them. Blocks until all ended, at most some seconds
 * beyond the plan's deadline. */
void ranks_watch(struct rank_plan *plan, const struct rank_ears *ears);

/* The worker's part (rank_worker.c): worker_fn with a struct rank_plan. */
void rank_worker(void *arg, int in, int out);

#endif

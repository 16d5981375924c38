/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's thread, which makes NCCL's blocking calls in their order: a blocking call costs the host a few
 * microseconds, a non-blocking one a new thread. The rank itself only queues and polls, so it answers its peers and
 * keeps its deadlines. A thread that does not return from a call is left behind together with all memory that NCCL
 * may still write. */
#ifndef GP_AGENT_NCCL_CALLER_H
#define GP_AGENT_NCCL_CALLER_H

#include "nccl_cuda.h"

#include <pthread.h>

enum nccl_task_kind { NCCL_TASK_INIT, NCCL_TASK_SPLIT, NCCL_TASK_CALL, NCCL_TASK_MARK, NCCL_TASK_END, NCCL_TASK_ABORT };

struct nccl_caller;
struct nccl_task {
    enum nccl_task_kind kind;
    const char *what;          /* for messages; static */
    struct nccl_id id;         /* INIT */
    int size, rank, color;     /* INIT, SPLIT; color -1: in no group */
    struct nccl_caller *child; /* SPLIT: gets the handle; NULL with color -1 */
    struct nccl_call call;     /* CALL */
    int type;                  /* CALL: ncclDataType_t */
    cu_event event;            /* MARK */
    int which;                 /* MARK: 0 or 1 */
};

struct nccl_caller {
    const struct nccl_api *api;
    const struct cuda_api *cu;
    cu_context context;
    cu_stream stream;
    struct nccl_config config;
    nccl_handle h; /* NCCL writes it, perhaps after its call was given up */
    nccl_handle none;
    int size;
    /* read by the owner only when nccl_caller_idle is true */
    nccl_result result;   /* of the first failed task; the tasks after it are not done */
    cu_result cuda;       /* the same of the driver */
    const char *what;     /* of that task */
    int64_t marked_ns[2]; /* the host's time at the marks */
    uint64_t calls;       /* collectives that were accepted; read with nccl_caller_calls */
    bool awaited;         /* a parent's split may still write h */
    /* the queue */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less;
    struct nccl_task tasks[64];
    size_t put, done;
    bool started, ending;
};

/* config is copied. The thread starts with the first task. */
struct nccl_caller *nccl_caller_new(const struct nccl_api *api, const struct cuda_api *cu, cu_context context,
                                    cu_stream stream, const struct nccl_config *config);
/* -GP_EENV: no thread, -GP_EINTERNAL: the queue is full. */
int nccl_caller_put(struct nccl_caller *k, const struct nccl_task *task, struct gp_error *err);
/* Waits until all tasks are done, at most wait_us. */
bool nccl_caller_idle(struct nccl_caller *k, long wait_us);
uint64_t nccl_caller_calls(struct nccl_caller *k);
/* Ends the communicator by `last` (END or ABORT), if it has one, and the thread. False: it did not return within
 * limit_ms and is left behind; then its stream and events must stay too. */
bool nccl_caller_free(struct nccl_caller *k, enum nccl_task_kind last, int64_t limit_ms);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in NCCL's inside: shared memory and its barriers (libnccl_shared.c), the collectives and what
 * they cost (libnccl_ops.c), the API (libnccl.c). */
#ifndef GP_STANDIN_NCCL_H
#define GP_STANDIN_NCCL_H

#include "standin_gpu.h"

#include <pthread.h>
#include <stdatomic.h>

#define NGET(key, def) standin_get("GPUPROV_STANDIN_NCCL", key, def)

enum { NCCL_RANKS = 64, PIECE = 1 << 20, OPS_OF_GROUP = 256 };
enum { N_OK, N_CUDA, N_SYSTEM, N_INTERNAL, N_ARGUMENT, N_USAGE, N_REMOTE, N_IN_PROGRESS };
enum { T_I8, T_U8, T_I32, T_U32, T_I64, T_U64, T_F16, T_F32, T_F64, T_BF16 };
enum nop { NOP_ALL_REDUCE, NOP_ALL_GATHER, NOP_REDUCE_SCATTER, NOP_BROADCAST, NOP_EXCHANGE, NOP_SPLIT };

/* What all ranks of one communicator see: a file in memory, and after it a mailbox of PIECE bytes for
 * each rank and one for results. */
struct shared_rank {
    _Atomic int come;
    int pid, world, device;
    char host[64];
    _Atomic double ns; /* its stream's time, at the last piece of work */
    _Atomic int color, key;
    int order; /* of the collective it does: all must agree */
};
struct shared {
    _Atomic unsigned magic;
    int size;
    _Atomic int arrived, turn; /* the barrier */
    struct shared_rank ranks[NCCL_RANKS];
};

struct peer_op { /* of a group: a send or a receive */
    int sending, peer, type;
    size_t bytes;
    char *buf;
};
struct work {
    struct ncclComm *comm;
    enum nop op;
    int begin, type, root, never; /* begin: of the GPU; never: it is queued and does not begin */
    const char *send;
    char *recv;
    size_t count;
    void *stream;
    double ns; /* the stream's time when it was queued, at least */
    struct peer_op *peers;
    int n_peers;
    struct ncclComm *child; /* NOP_SPLIT */
    struct ncclComm **where;
    _Atomic int *split_done;
    int color, key;
    struct work *next;
};
struct ncclComm {
    int rank, size, world; /* world: this process's rank in its first communicator */
    int device, blocking;
    int worlds[NCCL_RANKS];
    struct shared *s;
    size_t bytes;
    _Atomic int state; /* what ncclCommGetAsyncError gives */
    _Atomic int aborted;
    _Atomic int ops; /* collectives done */
    char why[200];
    int queued;
};

struct nccl_gpu { /* of the stand-in libcuda */
    int (*current)(void);
    int (*begin)(void);
    double (*time)(void *stream);
    unsigned long long (*later)(void *stream);
    void (*ended)(void *stream, double ns);
    int (*holds)(uint64_t at, size_t bytes);
};
extern struct nccl_gpu nccl_gpu;

/* shared: 0, or an error (N_...). Waiting ends with N_REMOTE when the communicator is aborted. */
int shared_new(char path[100]);
int shared_open(struct ncclComm *c, const char *path);
int shared_meet(struct ncclComm *c); /* all ranks have come; checks two on one GPU */
int shared_barrier(struct ncclComm *c);
char *shared_box(const struct ncclComm *c, int rank); /* rank size: the results */
void shared_close(struct ncclComm *c);

/* Does a piece of work; the streams' common time when it ends is *ret_ns. */
int work_do(struct work *w, double *ret_ns);
size_t type_bytes(int type);
int nccl_mine(const struct ncclComm *c, const char *key); /* is the knob's rank this one? */
int nccl_has(const struct ncclComm *c, long long world);  /* is that rank of the world in it? */
void nccl_log(const struct ncclComm *c);                  /* what NCCL_DEBUG=INFO would have said */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL by dlopen at run time: its functions (load_nccl_cuda.c), the communicator of comm_nccl_cuda.c beyond
 * comm_ops, and the nccl.* checks. One thread. */
#ifndef GP_AGENT_NCCL_H
#define GP_AGENT_NCCL_H

#include "validate/agent/cuda/cuda.h"

#include <limits.h>

typedef int nccl_result; /* ncclResult_t */
typedef struct ncclComm *nccl_handle;

enum { /* ncclResult_t */
       NCCL_OK,
       NCCL_CUDA_ERROR,
       NCCL_SYSTEM_ERROR,
       NCCL_INTERNAL_ERROR,
       NCCL_INVALID_ARGUMENT,
       NCCL_INVALID_USAGE,
       NCCL_REMOTE_ERROR,
       NCCL_IN_PROGRESS
};

struct nccl_id { /* ncclUniqueId */
    char bytes[128];
};
/* ncclConfig_t as NCCL 2.18 has it. Later versions append members, read only `size` bytes and use their defaults for
 * members newer than `version`. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};
#define NCCL_UNDEFINED INT_MIN
#define NCCL_VERSION_OLDEST 21800 /* ncclCommSplit */
#define NCCL_VERSION_KNOWN 23099  /* the newest known version; a newer 2.x is only noted */

struct nccl_api {
    nccl_result (*get_version)(int *ret);
    const char *(*error_string)(nccl_result r);
    const char *(*last_error)(nccl_handle c);
    nccl_result (*unique_id)(struct nccl_id *ret);
    nccl_result (*init)(nccl_handle *ret, int size, struct nccl_id id, int rank, const struct nccl_config *config);
    nccl_result (*async_error)(nccl_handle c, nccl_result *ret);
    nccl_result (*abort)(nccl_handle c);
    nccl_result (*finalize)(nccl_handle c);
    nccl_result (*destroy)(nccl_handle c);
    nccl_result (*split)(nccl_handle c, int color, int key, nccl_handle *ret, const struct nccl_config *config);
    nccl_result (*all_reduce)(const void *send, void *recv, size_t n, int type, int op, nccl_handle c, cu_stream s);
    nccl_result (*all_gather)(const void *send, void *recv, size_t n, int type, nccl_handle c, cu_stream s);
    nccl_result (*reduce_scatter)(const void *send, void *recv, size_t n, int type, int op, nccl_handle c, cu_stream s);
    nccl_result (*broadcast)(const void *send, void *recv, size_t n, int type, int root, nccl_handle c, cu_stream s);
    nccl_result (*send)(const void *p, size_t n, int type, int peer, nccl_handle c, cu_stream s);
    nccl_result (*recv)(void *p, size_t n, int type, int peer, nccl_handle c, cu_stream s);
    nccl_result (*group_start)(void);
    nccl_result (*group_end)(void);
};

/* Loads libnccl.so.2 once. -GP_EENV when there is none, it lacks a function, or its version is older than
 * NCCL_VERSION_OLDEST or of another major number. *ret_version: 22809 for 2.28.9. */
int nccl_load(const struct nccl_api **ret, int *ret_version, struct gp_error *err);
const char *nccl_path(void);                       /* what was loaded; "" */
void nccl_version_text(int version, char dst[16]); /* "2.28.9" */

/* --- the communicator, beyond comm_ops --- */

enum nccl_op { NCCL_ALL_REDUCE, NCCL_ALL_GATHER, NCCL_REDUCE_SCATTER, NCCL_BROADCAST, NCCL_ALL_TO_ALL, NCCL_OPS };
const char *nccl_op_name(enum nccl_op op);    /* "all_reduce" */
const char *comm_type_name(enum comm_type t); /* "float", "half", "bfloat16", "int32", as in nccl-tests */
size_t comm_type_bytes(enum comm_type t);

struct nccl_call {
    enum nccl_op op;
    enum comm_type type;
    /* all_reduce, broadcast: count elements both. all_gather: send has count, recv size * count;
     * reduce_scatter the other way round; all_to_all: size * count both. */
    size_t count;
    dev_addr send, recv; /* in place: all_gather's send is its part of recv, reduce_scatter's recv of send */
    int root;
};
/* Queues it in the communicator's own stream. An error is kept for nccl_wait, so that all ranks get there. */
void nccl_queue(struct comm *c, const struct nccl_call *a);
/* Keeps this rank's own failure before queueing: nccl_wait reports it too. */
void nccl_keep(struct comm *c, const struct gp_error *err);
/* Waits until the queued work is done; expected_ms beyond the stall time. Answers peers meanwhile. On failure the
 * communicator is dead, err names the culprit if it is known, and all ranks return the same. */
int nccl_wait(struct comm *c, int64_t expected_ms, struct gp_error *err);
/* Events in its stream, as cuda_mark, 0 or 1; a failure is kept for nccl_wait. After nccl_wait: the GPU's time
 * between them, and the host's for each call. */
void nccl_mark(struct comm *c, int which);
double nccl_host_us(const struct comm *c, int calls);
int nccl_elapsed(struct comm *c, double *ret_s, struct gp_error *err);
/* Orders its stream after the device's work so far. */
int nccl_follow_device(struct comm *c, struct gp_error *err);

/* A communicator of some ranks; all ranks of `world` call it, with the colour of their group or -1. Made by
 * ncclCommSplit from the world's, or by a new unique id if that is dead. *ret NULL for colour -1. A collective of the
 * group may take stall_ms beyond its expected time, the meeting of its ranks twice that. Only its members see a
 * group's failure: it is not sent over tcp. Freed with nccl_group_free. */
int nccl_group(struct comm *world, int color, int64_t stall_ms, struct comm **ret, struct gp_error *err);
void nccl_group_free(struct comm *c, bool failed);
bool nccl_is_dead(const struct comm *c);
int nccl_size(const struct comm *c);
int nccl_version(const struct comm *c);
/* Milliseconds that its meeting took, with the library's loading. */
int64_t nccl_start_ms(const struct comm *c);
/* The file of NCCL's log. */
const char *nccl_log_path(const struct comm *c);

/* --- the checks --- */

void nccl_values_run(struct check_ctx *c, struct agent_result *r);
void nccl_bandwidth_run(struct check_ctx *c, struct agent_result *r);
void nccl_bandwidth_conclude(struct check_ctx *c, struct agent_result *r);
bool nccl_needs(struct check_ctx *c, struct agent_result *r);

#endif

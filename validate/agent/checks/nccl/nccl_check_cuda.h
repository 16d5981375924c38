/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the nccl.* checks: their conditions, buffers that are filled and verified on the GPU, the search for the
 * culprit, the transport that NCCL chose. One thread; all ranks call in lock-step. */
#ifndef GP_AGENT_NCCL_CHECK_H
#define GP_AGENT_NCCL_CHECK_H

#include "validate/agent/comm/nccl_cuda.h"
#include "validate/agent/gang/gang.h"

/* --- buffers (nccl_buffers_cuda.c) --- */

struct nccl_buffers {
    struct check_ctx *c;
    dev_addr a, b, found; /* two of `bytes` each */
    size_t bytes;
    struct coll_found *seen;
};
/* bytes is reduced when the GPUs have less; all ranks get the same. False: the verdict is in r. */
bool nccl_buffers_open(struct check_ctx *c, struct agent_result *r, size_t bytes, size_t part_of_free,
                       struct nccl_buffers *ret);
void nccl_buffers_close(struct nccl_buffers *b);

struct nccl_wrong { /* of one collective on this rank */
    uint64_t wrong, index;
    uint32_t got, want;
    int32_t source;   /* the rank of the first wrong data; -1: a sum */
    uint64_t sources; /* bit k: rank k's data were wrong (ranks below 64) */
};
/* A collective with known values among `size` ranks, of which this is `rank`: fill, do, verify. bytes: of the
 * larger buffer. seed: a new one for each. False: err is set and the communicator is dead. */
struct nccl_trial_args {
    struct comm *comm;
    enum nccl_op op;
    enum comm_type type;
    size_t bytes;
    bool in_place;
    int rank, size;
    uint64_t seed;
};
int nccl_known_values(struct nccl_buffers *b, const struct nccl_trial_args *a, struct nccl_wrong *ret,
                      struct gp_error *err);
/* Elements of a call of so many bytes; *ret_bytes: the bytes that it moves (nccl-tests' S). */
size_t nccl_elements(enum nccl_op op, enum comm_type t, size_t bytes, int size, size_t *ret_bytes);
/* nccl-tests' factor between algorithm and bus bandwidth. */
double nccl_bus_factor(enum nccl_op op, int size);
/* Queues a collective without known values. */
void nccl_queue_plain(struct nccl_buffers *b, struct comm *comm, enum nccl_op op, enum comm_type t, size_t count,
                      int root);

/* --- the search for the culprit (nccl_isolate_cuda.c) --- */

enum nccl_trouble {
    NCCL_WRONG,
    NCCL_SLOW,
    NCCL_SLOW_PCIE, /* without NVLink: the way between two sockets is slower by design */
    NCCL_STUCK
};
struct nccl_trial { /* this rank's finding in a group */
    int32_t ran, failed, late;
    uint64_t wrong;
    double gb_s;
};
/* Splits the ranks in halves and pairs until a rank or a link between two is named, and sets culprits and data.link
 * of r; `text`: the end of a message. Bounded by until_ms; NCCL_STUCK by the gang's deadline only, because each round
 * with a stuck rank takes its whole limit. All ranks call it. */
void nccl_isolate(struct check_ctx *c, struct agent_result *r, struct nccl_buffers *b, enum nccl_trouble trouble,
                  size_t bytes, int64_t until_ms, struct str *text);

/* --- NCCL's transport (nccl_transport_cuda.c) --- */

struct nccl_transport {
    int p2p, shm, net; /* channels of each kind, of this rank */
    char net_name[32]; /* "IB", "Socket", "AWS Libfabric"; "" none in use */
    char links[16];    /* the connection of the node's GPUs: "NVL", "PIX", "SYS"; "" not known */
    bool gdr, nvls, nvlink;
};
void nccl_transport_read(const char *log_path, struct nccl_transport *ret);
/* Reports all ranks' transports in r: data.transport, data.overrides; a slower transport than the hardware has is
 * degraded or fail. ret: of all ranks together (NVLS only if all have it). */
bool nccl_transport_judge(struct check_ctx *c, struct agent_result *r, const char *log_path,
                          struct nccl_transport *ret);

/* The check cannot go on because the communicator failed: sets the verdict and the culprit (by a search if NCCL does
 * not name it), and stops its use by later checks. */
void nccl_broken(struct check_ctx *c, struct agent_result *r, struct nccl_buffers *b, const struct gp_error *err);
/* NCCL did not start for an unknown reason: the same search, with the dead communicator. */
void nccl_start_isolate(struct check_ctx *c, struct agent_result *r, struct str *text);
bool nccl_one_gpu_for_all(const struct check_ctx *c); /* logic only */

#endif

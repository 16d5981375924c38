/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in GPUs: what the files of the stand-in libcuda share, and what other stand-ins (cuBLASLt,
 * NCCL) need of them, so that all spend time on one clock. Another library finds the functions of the
 * last part by  dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW), name). */
#ifndef GP_STANDIN_GPU_H
#define GP_STANDIN_GPU_H

#include "standin.h"

#include <stddef.h>
#include <stdint.h>

#define GET(key, def) standin_get("GPUPROV_STANDIN", key, def)
#define EXPORT __attribute__((visibility("default")))

enum { GPUS_MAX = 64, ALLOCS_MAX = 4096 };

/* What a piece of work is limited by. Amounts: bytes, floating point operations, or nanoseconds. */
enum standin_work {
    WORK_MEMORY, /* bytes read and written in the GPU's own memory */
    WORK_H2D,
    WORK_D2H,
    WORK_PEER,
    WORK_FP32,
    WORK_TF32,
    WORK_FP16,
    WORK_BF16,
    WORK_FP8,
    WORK_INT8,
    WORK_NS,
    WORKS
};

/* A GPU model: rate[w] in 1e9 per second (GB/s, GFLOP/s); 0: it cannot. */
struct profile {
    const char *key, *name;
    int pci_id, major, minor, sms;
    int clock_khz, memory_clock_khz, bus_bits;
    long long l2_bytes;
    double rate[WORKS];
};

struct sgpu { /* one GPU; a context is a pointer to it */
    int index;
    size_t used, n_allocs;
    struct {
        char *p;
        size_t bytes;
    } allocs[ALLOCS_MAX];
    long long launches;       /* pieces of work begun */
    uint64_t draws;           /* of the noise */
    double total_ns;          /* work done in all streams */
    double product_ns[WORKS]; /* that of matrix products, by kind */
    int link_busy, peer_busy; /* copies with the host, or to other GPUs, since it was last idle */
    double first_s;           /* real time of the first product */
    int stuck;                /* standin_gpu_hang */
    int fault;                /* the error that the next query gives */
    void *filled;             /* what a fill kernel wrote to first */
    uint64_t *flipped;        /* the word that lost its bit, to be given back when stuck=0 */
    unsigned long long peers; /* bit i: access to GPU i is on */
};
enum { TICKETS = 4096 };
struct sstream {
    struct sgpu *gpu;
    double ns; /* its own time */
    /* Work of another library that ends later (a collective): tickets given out, and ended in order. */
    unsigned long long issued, ended;
    double at[TICKETS]; /* the stream's time when each ended */
};
struct sevent {
    struct sgpu *gpu;
    int recorded;
    double ns;
    struct sstream *stream;
    unsigned long long ticket; /* it is reached when this one has ended */
};

extern _Thread_local struct sgpu *standin_now; /* whose context is current; NULL none */

const struct profile *standin_profile(void);
int standin_differs(int device);          /* is this the one of another model? */
size_t standin_memory(int device);        /* its size in bytes */
int standin_mine(const struct sgpu *g);   /* is this the GPU (or one of those) that misbehaves? */
long long standin_fault(const char *key); /* a knob, where the current GPU misbehaves; else 0 */
int standin_status(const struct sgpu *g); /* 0, or what every call gives: it fell off the bus */
int standin_hangs(const struct sgpu *g);
struct sstream *standin_stream(void *stream);                        /* NULL: the current GPU's default stream */
int standin_inside(const struct sgpu *g, uint64_t at, size_t bytes); /* in one allocation? */
double standin_crowd(struct sgpu *g, int to_host);
double standin_cost_ns(struct sgpu *g, enum standin_work w, double amount);
/* Runs a kernel (a row of a kernels_*.c table). */
int standin_run(const void *kernel, unsigned grid, unsigned block, void **params, void *stream);

/* --- for other stand-ins --- */

/* The GPU whose context is current, -1 none. */
EXPORT int standin_gpu_current(void);
/* Counts a piece of work of the current GPU. 0: do it. Positive: the error (a CUresult) that the call
 * is to give. Negative: it never ends: do nothing and say that it was queued. */
EXPORT int standin_gpu_begin(void);
/* Work takes its time in a stream (NULL: the default one) of the current GPU. */
EXPORT void standin_gpu_spend(void *stream, enum standin_work w, double amount);
/* Can the model do this kind of work? */
EXPORT int standin_gpu_can(enum standin_work w);
/* The time of a stream, ns, and setting it (a collective ends for all at once). */
EXPORT double standin_gpu_time(void *stream);
EXPORT void standin_gpu_set_time(void *stream, double ns);
/* Work in a stream that ends later, in any thread: a ticket now, its end (in the order of tickets; ns: the
 * stream's time then) when it is done. Until then the stream and events after it are not ready. */
EXPORT unsigned long long standin_gpu_later(void *stream);
EXPORT void standin_gpu_ended(void *stream, double ns);
/* Spoils a result of `elements` of `size` bytes as the knobs gemm_bit and gemm_nan say. */
EXPORT void standin_gpu_spoil(void *at, size_t elements, size_t size);
/* What the current GPU was given never ends. */
EXPORT void standin_gpu_hang(void);
/* Does [at, at + bytes) lie in memory of the current GPU? */
EXPORT int standin_gpu_holds(uint64_t at, size_t bytes);

#endif

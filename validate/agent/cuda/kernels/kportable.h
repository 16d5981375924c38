/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel source for nvcc and for gcc. On the CPU a caller (the stand-in driver of the tests) steps a
 * kernel through its launch, so the index arithmetic is the same as on a GPU. Two forms:
 *
 *   KERNEL(name, args...) { KITEMS(i) ... }     n independent items; stepped thread by thread. No shared
 *                                               memory, no syncs.
 *   KBLOCK_KERNEL(name, threads, args...) {     blocks of at most `threads` threads (a literal; launch
 *       KSHARED(float, tile, 256);              with that many or fewer); stepped block by block, each
 *       KLOCAL(float, sum);                     phase for all threads before the next one.
 *       KTHREADS { K(sum) = 0; tile[tid] = x[KINDEX]; }
 *       KSYNC;
 *       KTHREADS { K(sum) += tile[tid ^ 1]; }
 *       KWARP_SUM(sum);                         all lanes of a warp get the sum of K(sum)
 *   }
 *
 * Rules of the second form: values of a thread that live from one KTHREADS to another are KLOCAL or KLOCALS, read
 * and written as K(name); everything outside KTHREADS must be the same for all threads of a block (loop bounds,
 * pointers); KSYNC and the KWARP_ helpers stand outside KTHREADS; inside it `continue` ends a thread's phase,
 * `break` and `return` are not allowed. A warp helper needs full warps. */
#ifndef GP_KPORTABLE_H
#define GP_KPORTABLE_H

typedef unsigned long long ku64;
typedef long long ki64;

#ifdef __CUDACC__

#define KERNEL(name, ...) extern "C" __global__ void name(ki64 n, __VA_ARGS__)
#define KBLOCK_KERNEL(name, threads, ...) \
    extern "C" __global__ void __launch_bounds__(threads) name(ki64 n, __VA_ARGS__)
#define KFUNC static __device__ __forceinline__
#define KINDEX ((ki64)blockIdx.x * blockDim.x + threadIdx.x)
#define KBLOCK ((int)blockIdx.x)
#define KBLOCKS ((int)gridDim.x)
#define KBLOCK_THREADS ((int)blockDim.x)
#define KTHREADS for (int tid = (int)threadIdx.x, k_once = 1; k_once; k_once = k_done(tid))
#define KSYNC __syncthreads()
#define KSHARED(T, name, len) __shared__ __align__(16) T name[len]
#define KLOCAL(T, name) T name
#define KLOCALS(T, name, len) T name[len]
#define K(name) name
#define KUNROLL _Pragma("unroll")
#define KNOUNROLL _Pragma("unroll 1")
#define KALIGNED(n) __align__(n) /* struct KALIGNED(16) name { ... } */
#define KATOMIC_ADD(p, v) atomicAdd(p, v)
#define KATOMIC_MIN(p, v) atomicMin(p, v)
#define KATOMIC_MAX(p, v) atomicMax(p, v)
#define KATOMIC_OR(p, v) atomicOr(p, v)
#define KATOMIC_XOR(p, v) atomicXor(p, v)
KFUNC int k_done(int tid) {
    (void)tid; /* not every phase uses tid */
    return 0;
}
KFUNC int k_smid(void) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return (int)sm;
}
#define KSMID k_smid() /* the multiprocessor that this block runs on */
#define K_WARP(name, combine)                                          \
    do {                                                               \
        for (int k_mask = 16; k_mask; k_mask >>= 1) {                  \
            auto k_other = __shfl_xor_sync(0xffffffffu, name, k_mask); \
            name = combine(name, k_other);                             \
        }                                                              \
    } while (0)

#else /* gcc: the stepping caller sets the position */

struct kstep {
    unsigned block, thread, block_dim, grid_dim, sm;
};
extern struct kstep kstep; /* one thread steps */

enum { KTHREADS_MAX = 1024 };

typedef struct { /* as in nvcc: 16 bytes moved at once */
    unsigned x, y, z, w;
} __attribute__((aligned(16), may_alias)) uint4;

#define KERNEL(name, ...)           \
    void name(ki64 n, __VA_ARGS__); \
    void name(ki64 n, __VA_ARGS__)
#define KBLOCK_KERNEL(name, threads, ...)                          \
    _Static_assert((threads) <= KTHREADS_MAX, "too many threads"); \
    KERNEL(name, __VA_ARGS__)
#define KFUNC static inline
#define KINDEX ((ki64)kstep.block * kstep.block_dim + kstep.thread)
#define KBLOCK ((int)kstep.block)
#define KBLOCKS ((int)kstep.grid_dim)
#define KBLOCK_THREADS ((int)kstep.block_dim)
#define KTHREADS for (int tid = 0; tid < KBLOCK_THREADS && (kstep.thread = (unsigned)tid, 1); tid++)
#define KSYNC ((void)0)
/* Shared memory and registers are undefined at first: poisoned for every block. */
#define KSHARED(T, name, len)        \
    static _Alignas(16) T name[len]; \
    k_poison(name, sizeof name)
#define KLOCAL(T, name)          \
    static T name[KTHREADS_MAX]; \
    k_poison(name, sizeof *name *(unsigned)KBLOCK_THREADS)
#define KLOCALS(T, name, len)         \
    static T name[KTHREADS_MAX][len]; \
    k_poison(name, sizeof *name *(unsigned)KBLOCK_THREADS)
#define K(name) name[tid]
#define KUNROLL
#define KNOUNROLL
#define KALIGNED(n) __attribute__((aligned(n)))
#define K_ATOMIC(p, v, expr)                      \
    __extension__({                               \
        __typeof__(p) k_p = (p);                  \
        __typeof__(*(p)) k_old = *k_p, k_v = (v); \
        *k_p = (expr);                            \
        k_old;                                    \
    })
#define KATOMIC_ADD(p, v) K_ATOMIC(p, v, k_old + k_v)
#define KATOMIC_MIN(p, v) K_ATOMIC(p, v, k_old < k_v ? k_old : k_v)
#define KATOMIC_MAX(p, v) K_ATOMIC(p, v, k_old > k_v ? k_old : k_v)
#define KATOMIC_OR(p, v) K_ATOMIC(p, v, k_old | k_v)
#define KATOMIC_XOR(p, v) K_ATOMIC(p, v, k_old ^ k_v)
#define KSMID ((int)kstep.sm)
#define K_WARP(name, combine)                                                             \
    do {                                                                                  \
        for (int k_w = 0; k_w < KBLOCK_THREADS; k_w += 32)                                \
            for (int k_mask = 16; k_mask; k_mask >>= 1)                                   \
                for (int k_t = k_w; k_t < k_w + 32; k_t++)                                \
                    if ((k_t & k_mask) == 0) { /* both lanes of a pair get the same */    \
                        __typeof__(*(name)) k_x = combine(name[k_t], name[k_t | k_mask]); \
                        name[k_t] = name[k_t | k_mask] = k_x;                             \
                    }                                                                     \
    } while (0)

static inline void k_poison(void *p, unsigned long bytes) { __builtin_memset(p, 0xa5, bytes); }

#endif

/* Combines a KLOCAL of the 32 lanes of each warp, in one stated order, on the GPU and on the CPU. */
#define K_SUM2(a, b) ((a) + (b))
#define K_MAX2(a, b) ((a) > (b) ? (a) : (b))
#define K_MIN2(a, b) ((a) < (b) ? (a) : (b))
#define K_XOR2(a, b) ((a) ^ (b))
#define KWARP_SUM(name) K_WARP(name, K_SUM2)
#define KWARP_MAX(name) K_WARP(name, K_MAX2)
#define KWARP_MIN(name) K_WARP(name, K_MIN2)
#define KWARP_XOR(name) K_WARP(name, K_XOR2)

#define K_STRIDE ((ki64)KBLOCKS * KBLOCK_THREADS)
#define KITEMS(i) for (ki64 i = KINDEX; i < n; i += K_STRIDE)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel source for nvcc and for gcc. A kernel is KERNEL(name, args...) with KITEMS(i) over its n
 * items; on the CPU the caller steps it through every block and thread, so the index arithmetic is
 * the one that runs on a GPU. No shared memory, no syncs, no atomics: items are independent. */
#ifndef GP_KPORTABLE_H
#define GP_KPORTABLE_H

typedef unsigned long long ku64;
typedef long long ki64;

#ifdef __CUDACC__
#define KERNEL(name, ...) extern "C" __global__ void name(ki64 n, __VA_ARGS__)
#define KFUNC static __device__ __forceinline__
#define KTHREAD ((ki64)blockIdx.x * blockDim.x + threadIdx.x)
#define KTHREADS ((ki64)gridDim.x * blockDim.x)
#else
/* Where the stepping caller is; defined by it. */
struct kstep {
    unsigned block, thread, block_dim, grid_dim;
};
extern _Thread_local struct kstep kstep;
#define KERNEL(name, ...)                 \
    void name(ki64 n, __VA_ARGS__);       \
    void name(ki64 n, __VA_ARGS__)
#define KFUNC static inline
#define KTHREAD ((ki64)kstep.block * kstep.block_dim + kstep.thread)
#define KTHREADS ((ki64)kstep.grid_dim * kstep.block_dim)
#endif

#define KITEMS(i) for (ki64 i = KTHREAD; i < n; i += KTHREADS)

#endif

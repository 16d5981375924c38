/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's table of kernels. A family of kernels has a file kernels_FAMILY.c with a table
 * of rows, listed in libcuda_kernels.c:
 *   ITEMS(name, types of the arguments after n)   defines step_name for a KERNEL
 *   BLOCKS(name, types...)                        the same for a KBLOCK_KERNEL
 *   {ROW(name), .cost = cost_of_it}               a row
 * Up to 16 arguments. cost says what a launch takes; without one: 8 bytes of memory for each item. */
#ifndef GP_STANDIN_KERNELS_H
#define GP_STANDIN_KERNELS_H

#include "standin_gpu.h"
#include "validate/agent/cuda/kernels/kportable.h"

/* p[0] points to n, p[1] to the first argument. */
#define ARG(type, i) (*(type *)p[i])

struct kernel_cost {
    double amount[WORKS]; /* all kinds together; they overlap: the longest counts */
    /* What it writes that a faulty multiprocessor would spoil; NULL: nothing. */
    void *out;
    size_t out_elements, out_size;
    int product; /* a matrix product: gemm_bit and gemm_nan apply */
};

struct standin_kernel {
    const char *name;
    void (*step)(void **p);
    int blocks; /* stepped by block, not by thread */
    void (*cost)(void **p, struct kernel_cost *ret);
};

#define K_ARGS_1(A) ARG(A, 1)
#define K_ARGS_2(A, B) K_ARGS_1(A), ARG(B, 2)
#define K_ARGS_3(A, B, C) K_ARGS_2(A, B), ARG(C, 3)
#define K_ARGS_4(A, B, C, D) K_ARGS_3(A, B, C), ARG(D, 4)
#define K_ARGS_5(A, B, C, D, E) K_ARGS_4(A, B, C, D), ARG(E, 5)
#define K_ARGS_6(A, B, C, D, E, F) K_ARGS_5(A, B, C, D, E), ARG(F, 6)
#define K_ARGS_7(A, B, C, D, E, F, G) K_ARGS_6(A, B, C, D, E, F), ARG(G, 7)
#define K_ARGS_8(A, B, C, D, E, F, G, H) K_ARGS_7(A, B, C, D, E, F, G), ARG(H, 8)
#define K_ARGS_9(A, B, C, D, E, F, G, H, I) K_ARGS_8(A, B, C, D, E, F, G, H), ARG(I, 9)
#define K_ARGS_10(A, B, C, D, E, F, G, H, I, J) K_ARGS_9(A, B, C, D, E, F, G, H, I), ARG(J, 10)
#define K_ARGS_11(A, B, C, D, E, F, G, H, I, J, L) K_ARGS_10(A, B, C, D, E, F, G, H, I, J), ARG(L, 11)
#define K_ARGS_12(A, B, C, D, E, F, G, H, I, J, L, M) K_ARGS_11(A, B, C, D, E, F, G, H, I, J, L), ARG(M, 12)
#define K_ARGS_13(A, B, C, D, E, F, G, H, I, J, L, M, N) K_ARGS_12(A, B, C, D, E, F, G, H, I, J, L, M), ARG(N, 13)
#define K_ARGS_14(A, B, C, D, E, F, G, H, I, J, L, M, N, O) K_ARGS_13(A, B, C, D, E, F, G, H, I, J, L, M, N), ARG(O, 14)
#define K_ARGS_15(A, B, C, D, E, F, G, H, I, J, L, M, N, O, P) \
    K_ARGS_14(A, B, C, D, E, F, G, H, I, J, L, M, N, O), ARG(P, 15)
#define K_ARGS_16(A, B, C, D, E, F, G, H, I, J, L, M, N, O, P, Q) \
    K_ARGS_15(A, B, C, D, E, F, G, H, I, J, L, M, N, O, P), ARG(Q, 16)
#define K_PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, it, ...) it
#define K_ARGS(...)                                                                                            \
    K_PICK(__VA_ARGS__, K_ARGS_16, K_ARGS_15, K_ARGS_14, K_ARGS_13, K_ARGS_12, K_ARGS_11, K_ARGS_10, K_ARGS_9, \
           K_ARGS_8, K_ARGS_7, K_ARGS_6, K_ARGS_5, K_ARGS_4, K_ARGS_3, K_ARGS_2, K_ARGS_1, 0)                  \
    (__VA_ARGS__)

#define K_STEP(name, by_block, ...)    \
    void name(ki64 n, __VA_ARGS__);    \
    enum { blocks_##name = by_block }; \
    static void step_##name(void **p) { name(ARG(ki64, 0), K_ARGS(__VA_ARGS__)); }
#define ITEMS(name, ...) K_STEP(name, 0, __VA_ARGS__)
#define BLOCKS(name, ...) K_STEP(name, 1, __VA_ARGS__)
#define ROW(kernel) .name = #kernel, .step = step_##kernel, .blocks = blocks_##kernel

/* name NULL ends each. */
extern const struct standin_kernel kernels_collective[], kernels_memory[], kernels_gemm[], kernels_sdc[],
    kernels_test[], kernels_train[];

#endif

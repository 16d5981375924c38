/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for kernels/gemm.cu and gemm_mma.cu. */
#include "kernels.h"

ITEMS(gp_gemm_f32, const float *, const float *, float *, int, int, int, int, ki64, ki64, ki64)
ITEMS(gp_gemm_pack, void *, const void *, int, int, ki64, ki64, ki64, ki64, ki64, ki64, ki64)
#define MMA(name)                                                                                                  \
    BLOCKS(name, const unsigned char *, const unsigned char *, void *, int, int, ki64, int, int, ki64, ki64, ki64, \
           int *)
MMA(gp_mma_f16)
MMA(gp_mma_bf16)
MMA(gp_mma_tf32)
MMA(gp_mma_e4m3)
MMA(gp_mma_s8)

static void cost_gemm_f32(void **p, struct kernel_cost *ret) {
    double outputs = (double)ARG(ki64, 0);
    ret->amount[WORK_FP32] = 2 * outputs * ARG(int, 6);
    if (ARG(ki64, 0) == (ki64)ARG(int, 4) * ARG(int, 5)) { /* a batch has gaps: left alone */
        ret->out = ARG(float *, 3);
        ret->out_elements = (size_t)ARG(ki64, 0);
        ret->out_size = sizeof(float);
    }
    ret->product = 1;
}

static void cost_pack(void **p, struct kernel_cost *ret) {
    ret->amount[WORK_MEMORY] = 2.0 * (double)ARG(ki64, 0) * ARG(int, 3);
}

/* Our own kernels reach about half of what cuBLASLt does. */
static void cost_mma(void **p, struct kernel_cost *ret, enum standin_work w, int size) {
    ki64 tiles = (ARG(int, 4) + 127ll) / 128 * ((ARG(int, 5) + 127ll) / 128);
    ki64 k = ARG(ki64, 6) / size;
    double products = (double)ARG(int, 4) * ARG(int, 5) * (double)k;
    ret->amount[w] = 2 * 2 * products * (double)ARG(ki64, 0) / (double)tiles;
    if (ARG(ki64, 0) == tiles) { /* no batch */
        ret->out = ARG(void *, 3);
        ret->out_elements = (size_t)ARG(int, 4) * (size_t)ARG(int, 5);
        ret->out_size = ARG(int, 8) ? 2 : 4;
    }
    ret->product = 1;
}
static void cost_f16(void **p, struct kernel_cost *ret) { cost_mma(p, ret, WORK_FP16, 2); }
static void cost_bf16(void **p, struct kernel_cost *ret) { cost_mma(p, ret, WORK_BF16, 2); }
static void cost_tf32(void **p, struct kernel_cost *ret) { cost_mma(p, ret, WORK_TF32, 4); }
static void cost_e4m3(void **p, struct kernel_cost *ret) { cost_mma(p, ret, WORK_FP8, 1); }
static void cost_s8(void **p, struct kernel_cost *ret) { cost_mma(p, ret, WORK_INT8, 1); }

const struct standin_kernel kernels_gemm[] = {
    {ROW(gp_gemm_f32), .cost = cost_gemm_f32}, {ROW(gp_gemm_pack), .cost = cost_pack},
    {ROW(gp_mma_f16), .cost = cost_f16},       {ROW(gp_mma_bf16), .cost = cost_bf16},
    {ROW(gp_mma_tf32), .cost = cost_tf32},     {ROW(gp_mma_e4m3), .cost = cost_e4m3},
    {ROW(gp_mma_s8), .cost = cost_s8},         {.name = NULL},
};

/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for kernels/checksum.cu. */
#include "kernels.h"

ITEMS(gp_known_operand, void *, ki64, ki64, int, int, int, int, int, ku64)
ITEMS(gp_random_operand, void *, int, ku64)
ITEMS(gp_column_sums, const unsigned *, ki64, int, ku64 *)
ITEMS(gp_tile_sums, const ku64 *, ki64, int, ku64 *)
ITEMS(gp_count_numbers, const void *, ki64, int, ku64 *)
ITEMS(gp_sm_product, const float *, const float *, int, float *, int *)

static void cost_columns(void **p, struct kernel_cost *ret) {
    ret->amount[WORK_MEMORY] = 4.0 * (double)ARG(ki64, 0) * ARG(int, 3);
}

static void cost_count(void **p, struct kernel_cost *ret) { ret->amount[WORK_MEMORY] = 4.0 * (double)ARG(ki64, 2); }

static void cost_product(void **p, struct kernel_cost *ret) {
    ret->amount[WORK_FP32] = 2.0 * (double)ARG(ki64, 0) * ARG(int, 3);
    ret->out = ARG(float *, 4);
    ret->out_elements = (size_t)ARG(ki64, 0);
    ret->out_size = sizeof(float);
}

const struct standin_kernel kernels_sdc[] = {
    {ROW(gp_known_operand)},
    {ROW(gp_random_operand)},
    {ROW(gp_column_sums), .cost = cost_columns},
    {ROW(gp_tile_sums)},
    {ROW(gp_count_numbers), .cost = cost_count},
    {ROW(gp_sm_product), .cost = cost_product},
    {.name = NULL},
};

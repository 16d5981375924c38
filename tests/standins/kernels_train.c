/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for train.ddp's kernels. */
#include "kernels.h"

typedef float *fp;
typedef const float *fc;
typedef const int *ic;

/* --- train.cu --- */
ITEMS(embed_fwd, fp, ic, fc, fc, ki64, ki64)
ITEMS(embed_bwd_tok, fp, fc, ic, ki64, ki64)
ITEMS(embed_bwd_pos, fp, fc, ki64, ki64)
ITEMS(layernorm_fwd, fp, fp, fp, fc, fc, fc, ki64)
ITEMS(layernorm_bwd_x, fp, fc, fc, fc, fc, fc, ki64)
ITEMS(layernorm_bwd_p, fp, fp, fc, fc, fc, fc, ki64)
ITEMS(bias_add, fp, fc, ki64)
ITEMS(bias_bwd, fp, fc, ki64)
ITEMS(attention_fwd, fp, fp, fc, ki64, ki64, ki64, float)
ITEMS(attention_bwd_q, fp, fp, fc, fc, fc, ki64, ki64, ki64, float)
ITEMS(attention_bwd_kv, fp, fc, fc, fc, fc, ki64, ki64, ki64)
ITEMS(gelu_fwd, fp, fc)
ITEMS(gelu_bwd, fp, fc)
ITEMS(add, fp, fc)
ITEMS(scale, fp, float)
ITEMS(softmax_xent, fp, fp, ic, ki64, float)
ITEMS(adamw, fp, fc, fp, fp, float, float, float, float, float, float)

const struct standin_kernel kernels_train[] = {
    {ROW(embed_fwd)}, {ROW(embed_bwd_tok)}, {ROW(embed_bwd_pos)}, {ROW(layernorm_fwd)},
    {ROW(layernorm_bwd_x)}, {ROW(layernorm_bwd_p)}, {ROW(bias_add)}, {ROW(bias_bwd)},
    {ROW(attention_fwd)}, {ROW(attention_bwd_q)}, {ROW(attention_bwd_kv)}, {ROW(gelu_fwd)},
    {ROW(gelu_bwd)}, {ROW(add)}, {ROW(scale)}, {ROW(softmax_xent)}, {ROW(adamw)},
    {.name = NULL},
};

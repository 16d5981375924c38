/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in driver's rows for train.ddp's kernels. */
#include "kernels.h"

typedef float *fp;
typedef const float *fc;
typedef const int *ic;
typedef void *hp; /* 16-bit floats */
typedef const void *hc;

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

/* --- train_mixed.cu --- */
ITEMS(mx_cast, hp, fc, ki64)
ITEMS(mx_embed, fp, ic, fc, fc, ki64, ki64)
BLOCKS(mx_add_norm, hp, fp, fp, fp, fc, hc, fc, fc, fc, ki64, ki64)
BLOCKS(mx_norm_bwd, fp, hp, hc, fc, fc, fc, fc, ki64, ki64, ki64)
ITEMS(mx_norm_bwd_p, fp, hc, fc, fc, fc, ki64, ki64, ki64, ki64)
ITEMS(mx_colsum, fp, hc, ki64, ki64, ki64, ki64)
ITEMS(mx_sum_parts, fp, fc, ki64, ki64, ki64)
ITEMS(mx_qkv_split, hp, hc, fc, ki64, ki64, ki64, ki64, ki64)
ITEMS(mx_qkv_merge, hp, hc, ki64, ki64, ki64, ki64)
ITEMS(mx_heads_merge, hp, hc, ki64, ki64, ki64)
ITEMS(mx_heads_split, hp, hc, ki64, ki64, ki64)
BLOCKS(mx_softmax, hp, ki64, float, ki64)
BLOCKS(mx_softmax_bwd, hp, hc, ki64, float, ki64)
ITEMS(mx_bias_gelu, hp, hc, fc, ki64, ki64)
ITEMS(mx_gelu_bwd, hp, hc, fc, ki64, ki64)
BLOCKS(mx_xent, fp, hp, fc, ic, ki64, float, ki64)
ITEMS(mx_embed_bwd_tok, fp, fc, ic, ki64, ki64, ki64)
ITEMS(mx_embed_bwd_pos, fp, fc, ki64, ki64, ki64)
ITEMS(mx_adamw, fp, hp, fc, fp, fp, float, float, float, float, float, float, float, ki64)
BLOCKS(mx_square_sum, fp, fc, ki64)
ITEMS(mx_hash, ku64 *, const unsigned *, ki64)

const struct standin_kernel kernels_train[] = {
    {ROW(embed_fwd)},
    {ROW(embed_bwd_tok)},
    {ROW(embed_bwd_pos)},
    {ROW(layernorm_fwd)},
    {ROW(layernorm_bwd_x)},
    {ROW(layernorm_bwd_p)},
    {ROW(bias_add)},
    {ROW(bias_bwd)},
    {ROW(attention_fwd)},
    {ROW(attention_bwd_q)},
    {ROW(attention_bwd_kv)},
    {ROW(gelu_fwd)},
    {ROW(gelu_bwd)},
    {ROW(add)},
    {ROW(scale)},
    {ROW(softmax_xent)},
    {ROW(adamw)},
    {ROW(mx_cast)},
    {ROW(mx_embed)},
    {ROW(mx_add_norm)},
    {ROW(mx_norm_bwd)},
    {ROW(mx_norm_bwd_p)},
    {ROW(mx_colsum)},
    {ROW(mx_sum_parts)},
    {ROW(mx_qkv_split)},
    {ROW(mx_qkv_merge)},
    {ROW(mx_heads_merge)},
    {ROW(mx_heads_split)},
    {ROW(mx_softmax)},
    {ROW(mx_softmax_bwd)},
    {ROW(mx_bias_gelu)},
    {ROW(mx_gelu_bwd)},
    {ROW(mx_xent)},
    {ROW(mx_embed_bwd_tok)},
    {ROW(mx_embed_bwd_pos)},
    {ROW(mx_adamw)},
    {ROW(mx_square_sum)},
    {ROW(mx_hash)},
    {.name = NULL},
};

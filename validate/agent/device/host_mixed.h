/* SPDX-License-Identifier: Apache-2.0 */
/* The host device's kernels for bf16 and fp16 (host_mixed.c); entries of the table in host_kernels.c. */
#ifndef GP_AGENT_HOST_MIXED_H
#define GP_AGENT_HOST_MIXED_H

#include "device.h"

/* clang-format off */
#define HOST_MIXED(X) \
    X(mx_cast, 3) X(mx_embed, 6) X(mx_add_norm, 11) X(mx_norm_bwd, 10) \
    X(mx_norm_bwd_p, 9) X(mx_colsum, 6) X(mx_sum_parts, 5) X(mx_qkv_split, 8) \
    X(mx_qkv_merge, 6) X(mx_heads_merge, 5) X(mx_heads_split, 5) X(mx_softmax, 4) \
    X(mx_softmax_bwd, 5) X(mx_bias_gelu, 5) X(mx_gelu_bwd, 5) X(mx_xent, 7) \
    X(mx_embed_bwd_tok, 6) X(mx_embed_bwd_pos, 5) X(mx_adamw, 13) X(mx_square_sum, 3) \
    X(mx_hash, 3)
/* clang-format on */
#define HOST_MIXED_DECLARE(name, n) void host_##name(const union kernel_arg *a, int64_t items);
HOST_MIXED(HOST_MIXED_DECLARE)

#endif

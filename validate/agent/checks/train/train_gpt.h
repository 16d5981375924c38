/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT of train.ddp in mixed precision and of any size, on device_ops: weights, moments, gradients
 * and the residual stream in fp32, operands of matrix products in bf16 or fp16. A layer's parameters are contiguous,
 * so that its gradient can be summed over the ranks while the backward pass of earlier layers still runs. One
 * thread; independent of ranks. */
#ifndef GP_AGENT_TRAIN_GPT_H
#define GP_AGENT_TRAIN_GPT_H

#include "validate/agent/device/device.h"

/* vocab, dim, ctx, ff and dim / heads: multiples of eight. */
struct mx_shape {
    int vocab, dim, ctx, heads, layers, ff;
};

struct mx_block { /* element offsets into the parameters */
    size_t ln1_g, ln1_b, qkv_w, qkv_b, out_w, out_b, ln2_g, ln2_b, up_w, up_b, down_w, down_b;
};
struct mx_acts { /* of one block, kept for the backward pass; 16-bit except x, mid and the norms' statistics */
    dev_addr x, ln1, mean1, rstd1, qkv, p, att, mid, ln2, mean2, rstd2, up, gelu;
};
struct mx_segment { /* parameters whose gradients are complete together, in the order of completion */
    size_t at, n;
};

struct mx_gpt {
    const struct device_ops *ops;
    struct device *dev;
    struct mx_shape shape;
    enum gemm_type type; /* GEMM_BF16 or GEMM_F16 */
    int batch, rows;     /* sequences and tokens of one micro-batch */
    size_t n_params, tok, pos, lnf_g, lnf_b, head;
    struct mx_block *block; /* [layers] */
    struct mx_acts *acts;   /* [layers] */
    struct mx_segment *segments;
    int n_segments;
    dev_addr params, weights16, grads, m, v;
    dev_addr tokens, targets, top, lnf, meanf, rstdf, logits, dlogits, loss;
    dev_addr dx, dx16, narrow, wide, wide2, heads16, scores, o, parts, figures;
    float beta1_t, beta2_t; /* running products */
    float *loss_host, *figures_host;
};

size_t mx_params(const struct mx_shape *s);
/* Bytes of device memory that mx_open takes for micro-batches of `batch` sequences. */
size_t mx_bytes(const struct mx_shape *s, int batch);
/* Floating point operations of one token, forward and backward: six for each parameter of a matrix, and attention's
 * two products, without savings by the causal mask: 12 * layers * ctx * dim. */
double mx_flop_per_token(const struct mx_shape *s);

int mx_open(const struct device_ops *ops, struct device *dev, const struct mx_shape *shape, enum gemm_type type,
            int batch, struct mx_gpt *ret, struct gp_error *err);
void mx_close(struct mx_gpt *g); /* frees its device memory too */
/* Parameters from the seed, moments to zero. */
int mx_init(struct mx_gpt *g, uint64_t seed, struct gp_error *err);

struct mx_gradient_args {
    const int32_t *in, *next; /* batch * ctx each */
    float weight;             /* the loss is multiplied by it: loss scale / micro-batches */
    bool add;                 /* adds to the gradient instead of replacing it */
    /* Called in order when a segment's gradient has been queued; may queue more. NULL: not called. */
    int (*done)(void *ctx, int segment, struct gp_error *err);
    void *ctx;
};
/* The gradient of weight * mean loss into g->grads; *ret_loss: the mean loss. Waits for the device. */
int mx_gradient(struct mx_gpt *g, const struct mx_gradient_args *a, float *ret_loss, struct gp_error *err);
/* One AdamW step with gscale * gradient, at learning rate lr. Only queued. */
int mx_update(struct mx_gpt *g, float lr, float gscale, struct gp_error *err);

/* Of n fp32 values at `from`: a hash that depends on every bit (computed on the device)... */
int mx_hash(struct mx_gpt *g, dev_addr from, size_t n, uint64_t *ret, struct gp_error *err);
/* ...and the sum of their squares; NaN or infinity if one value is. */
int mx_square_sum(struct mx_gpt *g, dev_addr from, size_t n, double *ret, struct gp_error *err);
int mx_get(struct mx_gpt *g, dev_addr from, float *to, struct gp_error *err); /* n_params values */
int mx_put(struct mx_gpt *g, dev_addr to, const float *from, struct gp_error *err);
/* Rounds the parameters to weights16 again, after mx_put to g->params. */
int mx_weights(struct mx_gpt *g, struct gp_error *err);

#endif

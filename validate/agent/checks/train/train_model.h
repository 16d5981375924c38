/* SPDX-License-Identifier: Apache-2.0 */
/* A small GPT on device_ops: embedding, two blocks (layer norm, causal attention, GELU MLP), softmax
 * cross entropy, AdamW. All parameters are one flat array, and so are the gradients. */
#ifndef GP_AGENT_TRAIN_MODEL_H
#define GP_AGENT_TRAIN_MODEL_H

#include "validate/agent/device/device.h"

enum { GPT_VOCAB = 64, GPT_DIM = 32, GPT_CTX = 32, GPT_HEADS = 2, GPT_LAYERS = 2, GPT_FF = 128 };

/* The Markov source: 64 symbols, each with 4 equally likely successors (and as many predecessors). */
struct markov {
    unsigned char next[GPT_VOCAB][4];
};
void markov_init(struct markov *m, uint64_t seed);
/* Sequence `index` of step `step`: n inputs and the n symbols that follow each. */
void markov_sequence(const struct markov *m, uint64_t seed, int step, int64_t index, int n, int32_t *ret_in,
                     int32_t *ret_next);

struct gpt_block { /* element offsets into the parameters */
    size_t ln1_g, ln1_b, qkv_w, qkv_b, out_w, out_b, ln2_g, ln2_b, up_w, up_b, down_w, down_b;
};
struct gpt_acts { /* of one block, kept for the backward pass */
    dev_addr x, ln1, mean1, rstd1, qkv, p, att, mid, ln2, mean2, rstd2, up, gelu;
};
struct gpt {
    const struct device_ops *ops;
    struct device *dev;
    int batch, rows; /* sequences and tokens of one micro-batch */
    size_t n_params, tok, pos, lnf_g, lnf_b, head;
    struct gpt_block block[GPT_LAYERS];
    struct gpt_acts acts[GPT_LAYERS];
    dev_addr params, grads, m, v;
    dev_addr tokens, targets, top, lnf, meanf, rstdf, logits, loss;
    dev_addr dx, dy, dwide, dqkv, ds;
    float beta1_t, beta2_t; /* running products */
    float *loss_host;
};

/* Allocates for micro-batches of `batch` sequences. gpt_close also after a failure. */
int gpt_open(const struct device_ops *ops, struct device *dev, int batch, struct gpt *ret, struct gp_error *err);
void gpt_close(struct gpt *g);
/* Parameters from the seed, moments to zero. */
int gpt_init(struct gpt *g, uint64_t seed, struct gp_error *err);
/* Mean loss over the micro-batch, and its gradient in g->grads. in, next: batch * GPT_CTX each. */
int gpt_gradient(struct gpt *g, const int32_t *in, const int32_t *next, float *ret_loss, struct gp_error *err);
/* One AdamW step with g->grads. step counts from 0; steps: the total (the learning rate falls towards the end). */
int gpt_update(struct gpt *g, int step, int steps, struct gp_error *err);
int gpt_get(struct gpt *g, dev_addr from, float *to, struct gp_error *err); /* n_params floats */
int gpt_put(struct gpt *g, dev_addr to, const float *from, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The model, forward and backward, as a list of device calls. Independent of ranks. One thread. */
#include "base/gp_base.h"

#include "train_model.h"

#include "base/clock.h"
#include "validate/agent/device/numeric.h"

#define LR 1e-2f
#define LR_WARMUP 10
#define BETA1 0.9f
#define BETA2 0.98f
#define DECAY 0.01f
#define DEVICE_WAIT_MS 60000

/* --- calls; the first failure is kept and all later calls do nothing --- */

struct call {
    struct gpt *g;
    struct gp_error *err;
    int rc;
};

static void launch(struct call *c, const char *kernel, int64_t items, const union kernel_arg *args, size_t n) {
    struct launch_args a = {.kernel = kernel, .items = items, .args = args, .n_args = n};
    if (c->rc == 0) c->rc = c->g->ops->launch(c->g->dev, &a, c->err);
}
#define ARG_P(x) \
    { .p = (x) }
#define ARG_I(x) \
    { .i = (x) }
#define ARG_F(x) \
    { .f = (x) }
#define LAUNCH(c, kernel, items, ...)                               \
    do {                                                            \
        const union kernel_arg args_[] = {__VA_ARGS__};             \
        launch((c), (kernel), (items), args_, GP_ARRAY_LEN(args_)); \
    } while (0)

static void gemm(struct call *c, int m, int n, int k, dev_addr a, bool ta, dev_addr b, bool tb, dev_addr out) {
    struct gemm_args x = {.type = GEMM_F32,
                          .in_order = true,
                          .m = m,
                          .n = n,
                          .k = k,
                          .batch = 1,
                          .a = a,
                          .b = b,
                          .c = out,
                          .trans_a = ta,
                          .trans_b = tb};
    if (c->rc == 0) c->rc = c->g->ops->gemm(c->g->dev, &x, c->err);
}

static dev_addr param(const struct gpt *g, size_t at) { return g->params + at * sizeof(float); }
static dev_addr grad(const struct gpt *g, size_t at) { return g->grads + at * sizeof(float); }

/* y = x * W + b */
static void linear(struct call *c, dev_addr y, dev_addr x, size_t w, size_t b, int in, int out) {
    struct gpt *g = c->g;
    gemm(c, g->rows, out, in, x, false, param(g, w), false, y);
    LAUNCH(c, "bias_add", g->rows, ARG_P(y), ARG_P(param(g, b)), ARG_I(out));
}

/* dx = dy * W^T; gradients of W and b */
static void linear_back(struct call *c, dev_addr dx, dev_addr dy, dev_addr x, size_t w, size_t b, int in, int out) {
    struct gpt *g = c->g;
    gemm(c, in, out, g->rows, x, true, dy, false, grad(g, w));
    LAUNCH(c, "bias_bwd", out, ARG_P(grad(g, b)), ARG_P(dy), ARG_I(g->rows));
    gemm(c, g->rows, in, out, dy, false, param(g, w), true, dx);
}

static void norm(struct call *c, dev_addr y, dev_addr mean, dev_addr rstd, dev_addr x, size_t gain, size_t bias) {
    struct gpt *g = c->g;
    LAUNCH(c, "layernorm_fwd", g->rows, ARG_P(y), ARG_P(mean), ARG_P(rstd), ARG_P(x), ARG_P(param(g, gain)),
           ARG_P(param(g, bias)), ARG_I(GPT_DIM));
}

/* dx += the gradient through the norm */
static void norm_back(struct call *c, dev_addr dx, dev_addr dy, dev_addr x, dev_addr mean, dev_addr rstd, size_t gain,
                      size_t bias) {
    struct gpt *g = c->g;
    LAUNCH(c, "layernorm_bwd_x", g->rows, ARG_P(dx), ARG_P(dy), ARG_P(x), ARG_P(mean), ARG_P(rstd),
           ARG_P(param(g, gain)), ARG_I(GPT_DIM));
    LAUNCH(c, "layernorm_bwd_p", GPT_DIM, ARG_P(grad(g, gain)), ARG_P(grad(g, bias)), ARG_P(dy), ARG_P(x), ARG_P(mean),
           ARG_P(rstd), ARG_I(g->rows));
}

/* --- forward and back --- */

static float att_scale(void) {
    const int dh = GPT_DIM / GPT_HEADS;
    return 1.0f / num_sqrt((float)dh);
}

static void block_forward(struct call *c, int layer, dev_addr out) {
    struct gpt *g = c->g;
    const struct gpt_block *b = &g->block[layer];
    const struct gpt_acts *a = &g->acts[layer];
    int64_t n = (int64_t)g->rows * GPT_DIM;
    norm(c, a->ln1, a->mean1, a->rstd1, a->x, b->ln1_g, b->ln1_b);
    linear(c, a->qkv, a->ln1, b->qkv_w, b->qkv_b, GPT_DIM, 3 * GPT_DIM);
    LAUNCH(c, "attention_fwd", (int64_t)g->rows * GPT_HEADS, ARG_P(a->att), ARG_P(a->p), ARG_P(a->qkv), ARG_I(GPT_CTX),
           ARG_I(GPT_HEADS), ARG_I(GPT_DIM / GPT_HEADS), ARG_F(att_scale()));
    linear(c, a->mid, a->att, b->out_w, b->out_b, GPT_DIM, GPT_DIM);
    LAUNCH(c, "add", n, ARG_P(a->mid), ARG_P(a->x));
    norm(c, a->ln2, a->mean2, a->rstd2, a->mid, b->ln2_g, b->ln2_b);
    linear(c, a->up, a->ln2, b->up_w, b->up_b, GPT_DIM, GPT_FF);
    LAUNCH(c, "gelu_fwd", (int64_t)g->rows * GPT_FF, ARG_P(a->gelu), ARG_P(a->up));
    linear(c, out, a->gelu, b->down_w, b->down_b, GPT_FF, GPT_DIM);
    LAUNCH(c, "add", n, ARG_P(out), ARG_P(a->mid));
}

/* g->dx: gradient of the block's output, becomes that of its input */
static void block_back(struct call *c, int layer) {
    struct gpt *g = c->g;
    const struct gpt_block *b = &g->block[layer];
    const struct gpt_acts *a = &g->acts[layer];
    int64_t items = (int64_t)g->rows * GPT_HEADS;
    const int64_t dh = GPT_DIM / GPT_HEADS;
    linear_back(c, g->dwide, g->dx, a->gelu, b->down_w, b->down_b, GPT_FF, GPT_DIM);
    LAUNCH(c, "gelu_bwd", (int64_t)g->rows * GPT_FF, ARG_P(g->dwide), ARG_P(a->up));
    linear_back(c, g->dy, g->dwide, a->ln2, b->up_w, b->up_b, GPT_DIM, GPT_FF);
    norm_back(c, g->dx, g->dy, a->mid, a->mean2, a->rstd2, b->ln2_g, b->ln2_b);
    linear_back(c, g->dy, g->dx, a->att, b->out_w, b->out_b, GPT_DIM, GPT_DIM);
    LAUNCH(c, "attention_bwd_q", items, ARG_P(g->dqkv), ARG_P(g->ds), ARG_P(g->dy), ARG_P(a->p), ARG_P(a->qkv),
           ARG_I(GPT_CTX), ARG_I(GPT_HEADS), ARG_I(dh), ARG_F(att_scale()));
    LAUNCH(c, "attention_bwd_kv", items, ARG_P(g->dqkv), ARG_P(g->ds), ARG_P(g->dy), ARG_P(a->p), ARG_P(a->qkv),
           ARG_I(GPT_CTX), ARG_I(GPT_HEADS), ARG_I(dh));
    linear_back(c, g->dy, g->dqkv, a->ln1, b->qkv_w, b->qkv_b, GPT_DIM, 3 * GPT_DIM);
    norm_back(c, g->dx, g->dy, a->x, a->mean1, a->rstd1, b->ln1_g, b->ln1_b);
}

static void forward(struct call *c) {
    struct gpt *g = c->g;
    LAUNCH(c, "embed_fwd", g->rows, ARG_P(g->acts[0].x), ARG_P(g->tokens), ARG_P(param(g, g->tok)),
           ARG_P(param(g, g->pos)), ARG_I(GPT_DIM), ARG_I(GPT_CTX));
    for (int l = 0; l < GPT_LAYERS; l++) block_forward(c, l, l + 1 < GPT_LAYERS ? g->acts[l + 1].x : g->top);
    norm(c, g->lnf, g->meanf, g->rstdf, g->top, g->lnf_g, g->lnf_b);
    gemm(c, g->rows, GPT_VOCAB, GPT_DIM, g->lnf, false, param(g, g->head), false, g->logits);
    LAUNCH(c, "softmax_xent", g->rows, ARG_P(g->loss), ARG_P(g->logits), ARG_P(g->targets), ARG_I(GPT_VOCAB),
           ARG_F(1.0f / (float)g->rows));
}

static void back(struct call *c) {
    struct gpt *g = c->g;
    gemm(c, GPT_DIM, GPT_VOCAB, g->rows, g->lnf, true, g->logits, false, grad(g, g->head));
    gemm(c, g->rows, GPT_DIM, GPT_VOCAB, g->logits, false, param(g, g->head), true, g->dy);
    LAUNCH(c, "scale", (int64_t)g->rows * GPT_DIM, ARG_P(g->dx), ARG_F(0.0f));
    norm_back(c, g->dx, g->dy, g->top, g->meanf, g->rstdf, g->lnf_g, g->lnf_b);
    for (int l = GPT_LAYERS - 1; l >= 0; l--) block_back(c, l);
    LAUNCH(c, "embed_bwd_tok", GPT_VOCAB, ARG_P(grad(g, g->tok)), ARG_P(g->dx), ARG_P(g->tokens), ARG_I(g->rows),
           ARG_I(GPT_DIM));
    LAUNCH(c, "embed_bwd_pos", GPT_CTX, ARG_P(grad(g, g->pos)), ARG_P(g->dx), ARG_I(g->rows), ARG_I(GPT_DIM));
}

static int put(struct gpt *g, dev_addr to, const void *from, size_t bytes, struct gp_error *err) {
    struct copy_args a = {.kind = COPY_TO_DEVICE, .dev = to, .bytes = bytes};
    memcpy(&a.host, &from, sizeof from); /* only read, see device.h */
    return g->ops->copy(g->dev, &a, err);
}

static int get(struct gpt *g, dev_addr from, void *to, size_t bytes, struct gp_error *err) {
    struct copy_args a = {.kind = COPY_FROM_DEVICE, .dev = from, .host = to, .bytes = bytes};
    return g->ops->copy(g->dev, &a, err);
}

int gpt_get(struct gpt *g, dev_addr from, float *to, struct gp_error *err) {
    return get(g, from, to, g->n_params * sizeof *to, err);
}

int gpt_put(struct gpt *g, dev_addr to, const float *from, struct gp_error *err) {
    return put(g, to, from, g->n_params * sizeof *from, err);
}

int gpt_gradient(struct gpt *g, const int32_t *in, const int32_t *next, float *ret_loss, struct gp_error *err) {
    size_t n = (size_t)g->rows;
    struct call c = {.g = g, .err = err};
    c.rc = put(g, g->tokens, in, n * sizeof *in, err);
    if (c.rc == 0) c.rc = put(g, g->targets, next, n * sizeof *next, err);
    forward(&c);
    back(&c);
    if (c.rc == 0) c.rc = g->ops->sync(g->dev, clock_deadline(DEVICE_WAIT_MS), err);
    if (c.rc == 0) c.rc = get(g, g->loss, g->loss_host, n * sizeof(float), err);
    float sum = 0.0f;
    for (size_t i = 0; c.rc == 0 && i < n; i++) sum = sum + g->loss_host[i];
    if (c.rc == 0) *ret_loss = sum / (float)g->rows;
    return c.rc;
}

/* Rises over the first steps, then falls to a twentieth so that the last steps settle. */
static float learning_rate(int step, int steps) {
    if (step < LR_WARMUP) return LR * (float)(step + 1) / (float)LR_WARMUP;
    float left = (float)(steps - step) / (float)steps;
    return left > 0.05f ? LR * left : LR * 0.05f;
}

int gpt_update(struct gpt *g, int step, int steps, struct gp_error *err) {
    struct call c = {.g = g, .err = err};
    float lr = learning_rate(step, steps);
    g->beta1_t = g->beta1_t * BETA1;
    g->beta2_t = g->beta2_t * BETA2;
    LAUNCH(&c, "adamw", (int64_t)g->n_params, ARG_P(g->params), ARG_P(g->grads), ARG_P(g->m), ARG_P(g->v), ARG_F(lr),
           ARG_F(BETA1), ARG_F(BETA2), ARG_F(1.0f / (1.0f - g->beta1_t)), ARG_F(1.0f / (1.0f - g->beta2_t)),
           ARG_F(DECAY));
    if (c.rc == 0) c.rc = g->ops->sync(g->dev, clock_deadline(DEVICE_WAIT_MS), err);
    return c.rc;
}

/* --- layout --- */

static size_t take(struct gpt *g, size_t n) {
    size_t at = g->n_params;
    g->n_params += n;
    return at;
}

static void layout(struct gpt *g) {
    g->tok = take(g, GPT_VOCAB * GPT_DIM);
    g->pos = take(g, GPT_CTX * GPT_DIM);
    for (int l = 0; l < GPT_LAYERS; l++) {
        struct gpt_block *b = &g->block[l];
        b->ln1_g = take(g, GPT_DIM);
        b->ln1_b = take(g, GPT_DIM);
        b->qkv_w = take(g, GPT_DIM * 3 * GPT_DIM);
        b->qkv_b = take(g, 3 * GPT_DIM);
        b->out_w = take(g, GPT_DIM * GPT_DIM);
        b->out_b = take(g, GPT_DIM);
        b->ln2_g = take(g, GPT_DIM);
        b->ln2_b = take(g, GPT_DIM);
        b->up_w = take(g, GPT_DIM * GPT_FF);
        b->up_b = take(g, GPT_FF);
        b->down_w = take(g, GPT_FF * GPT_DIM);
        b->down_b = take(g, GPT_DIM);
    }
    g->lnf_g = take(g, GPT_DIM);
    g->lnf_b = take(g, GPT_DIM);
    g->head = take(g, GPT_DIM * GPT_VOCAB);
}

/* Uniform in (-r, r), each value exactly representable before the one multiplication. */
static void fill_uniform(float *p, size_t n, float r, uint64_t *seed) {
    for (size_t i = 0; i < n; i++) {
        *seed = num_mix(*seed);
        p[i] = ((float)(int32_t)(*seed >> 40) - 8388608.0f) / 8388608.0f * r;
    }
}

static void fill_ones(float *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = 1.0f;
}

int gpt_init(struct gpt *g, uint64_t seed, struct gp_error *err) {
    GP_AUTO_FREE float *p = xcalloc(g->n_params, sizeof *p);
    int r = gpt_put(g, g->m, p, err);
    if (r == 0) r = gpt_put(g, g->v, p, err);
    uint64_t z = num_mix(seed ^ 0x696e6974);
    fill_uniform(p + g->tok, GPT_VOCAB * GPT_DIM, 0.5f, &z);
    fill_uniform(p + g->pos, GPT_CTX * GPT_DIM, 0.05f, &z);
    for (int l = 0; l < GPT_LAYERS; l++) {
        const struct gpt_block *b = &g->block[l];
        fill_ones(p + b->ln1_g, GPT_DIM);
        fill_ones(p + b->ln2_g, GPT_DIM);
        fill_uniform(p + b->qkv_w, GPT_DIM * 3 * GPT_DIM, 0.15f, &z);
        fill_uniform(p + b->out_w, GPT_DIM * GPT_DIM, 0.1f, &z);
        fill_uniform(p + b->up_w, GPT_DIM * GPT_FF, 0.2f, &z);
        fill_uniform(p + b->down_w, GPT_FF * GPT_DIM, 0.05f, &z);
    }
    fill_ones(p + g->lnf_g, GPT_DIM);
    fill_uniform(p + g->head, GPT_DIM * GPT_VOCAB, 0.1f, &z);
    g->beta1_t = g->beta2_t = 1.0f;
    return r == 0 ? gpt_put(g, g->params, p, err) : r;
}

static void room(struct call *c, dev_addr *ret, size_t elements) {
    if (c->rc == 0) c->rc = c->g->ops->alloc(c->g->dev, elements * sizeof(float), ret, c->err);
}

static void room_block(struct call *c, struct gpt_acts *a) {
    size_t rows = (size_t)c->g->rows, wide = rows * GPT_DIM;
    dev_addr *narrow[] = {&a->mean1, &a->rstd1, &a->mean2, &a->rstd2};
    dev_addr *dim[] = {&a->x, &a->ln1, &a->att, &a->mid, &a->ln2};
    for (size_t i = 0; i < GP_ARRAY_LEN(narrow); i++) room(c, narrow[i], rows);
    for (size_t i = 0; i < GP_ARRAY_LEN(dim); i++) room(c, dim[i], wide);
    room(c, &a->qkv, 3 * wide);
    room(c, &a->p, rows * GPT_HEADS * GPT_CTX);
    room(c, &a->up, rows * GPT_FF);
    room(c, &a->gelu, rows * GPT_FF);
}

int gpt_open(const struct device_ops *ops, struct device *dev, int batch, struct gpt *ret, struct gp_error *err) {
    *ret = (struct gpt){.ops = ops, .dev = dev, .batch = batch, .rows = batch * GPT_CTX};
    layout(ret);
    struct call c = {.g = ret, .err = err};
    size_t rows = (size_t)ret->rows, wide = rows * GPT_DIM;
    dev_addr *flat[] = {&ret->params, &ret->grads, &ret->m, &ret->v};
    dev_addr *narrow[] = {&ret->tokens, &ret->targets, &ret->meanf, &ret->rstdf, &ret->loss};
    dev_addr *dim[] = {&ret->top, &ret->lnf, &ret->dx, &ret->dy};
    for (size_t i = 0; i < GP_ARRAY_LEN(flat); i++) room(&c, flat[i], ret->n_params);
    for (size_t i = 0; i < GP_ARRAY_LEN(narrow); i++) room(&c, narrow[i], rows);
    for (size_t i = 0; i < GP_ARRAY_LEN(dim); i++) room(&c, dim[i], wide);
    room(&c, &ret->logits, rows * GPT_VOCAB);
    room(&c, &ret->dwide, rows * GPT_FF);
    room(&c, &ret->dqkv, 3 * wide);
    room(&c, &ret->ds, rows * GPT_HEADS * GPT_CTX);
    for (int l = 0; l < GPT_LAYERS; l++) room_block(&c, &ret->acts[l]);
    ret->loss_host = xcalloc(rows, sizeof *ret->loss_host);
    return c.rc;
}

void gpt_close(struct gpt *g) {
    free(g->loss_host); /* device memory goes with the device */
    g->loss_host = NULL;
}

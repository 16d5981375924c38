/* SPDX-License-Identifier: Apache-2.0 */
/* The mixed-precision GPT, forward and backward, as a list of device calls; memory and layout are in
 * train_gpt_room.c. Kernels: kernels/train_mixed.cu and host_mixed.c. One thread. */
#include "base/gp_base.h"

#include "train_gpt.h"

#include "base/clock.h"
#include "train_gpt_room.h"
#include "validate/agent/device/numeric.h"

#define BETA1 0.9f
#define BETA2 0.98f
#define DECAY 0.01f
#define DEVICE_WAIT_MS 60000

/* --- calls; the first failure is kept and all later calls do nothing --- */

struct mx_call {
    struct mx_gpt *g;
    struct gp_error *err;
    int rc;
    bool add; /* of this gradient */
};

enum { ROW_THREADS = 128, ROW_BLOCKS_MAX = 1 << 20 };

static void launch(struct mx_call *c, bool rows, const char *kernel, int64_t items, const union kernel_arg *args,
                   size_t n) {
    struct launch_args a = {.kernel = kernel, .items = items, .args = args, .n_args = n};
    if (rows) {
        a.block = ROW_THREADS;
        a.grid = (unsigned)GP_MIN(items, ROW_BLOCKS_MAX);
    }
    if (c->rc == 0) c->rc = c->g->ops->launch(c->g->dev, &a, c->err);
}
#define P(x) \
    { .p = (x) }
#define I(x) \
    { .i = (x) }
#define R(x) \
    { .f = (x) }
#define BF(g) \
    { .i = (g)->type == GEMM_BF16 }
#define ITEMS(c, kernel, items, ...)                                       \
    do {                                                                   \
        const union kernel_arg args_[] = {__VA_ARGS__};                    \
        launch((c), false, (kernel), (items), args_, GP_ARRAY_LEN(args_)); \
    } while (0)
#define ROWS(c, kernel, rows, ...)                                       \
    do {                                                                 \
        const union kernel_arg args_[] = {__VA_ARGS__};                  \
        launch((c), true, (kernel), (rows), args_, GP_ARRAY_LEN(args_)); \
    } while (0)

static dev_addr param(const struct mx_gpt *g, size_t at) { return g->params + at * sizeof(float); }
static dev_addr weight(const struct mx_gpt *g, size_t at) { return g->weights16 + at * 2; }
static dev_addr grad(const struct mx_gpt *g, size_t at) { return g->grads + at * sizeof(float); }

static void gemm(struct mx_call *c, struct gemm_args a) {
    a.type = c->g->type;
    a.batch = GP_MAX(a.batch, 1);
    if (c->rc == 0) c->rc = c->g->ops->gemm(c->g->dev, &a, c->err);
}

/* y (16-bit) = x * W; the reader of y adds the bias. */
static void linear(struct mx_call *c, dev_addr y, dev_addr x, size_t w, int in, int out) {
    gemm(c, (struct gemm_args){
                .m = c->g->rows, .n = out, .k = in, .a = x, .b = weight(c->g, w), .c = y, .out_same = true});
}

/* Sums of the columns of d[rows][cols] into the bias' gradient. */
static void bias_back(struct mx_call *c, dev_addr d, size_t b, int cols) {
    struct mx_gpt *g = c->g;
    int64_t chunks = mx_chunks(g->rows);
    ITEMS(c, "mx_colsum", chunks * cols / 8, P(g->parts), P(d), I(g->rows), I(cols), I(MX_CHUNK), BF(g));
    ITEMS(c, "mx_sum_parts", cols, P(grad(g, b)), P(g->parts), I(chunks), I(cols), I(c->add));
}

/* Gradients of W and its bias; dx (16-bit) = dy * W^T. */
static void linear_back(struct mx_call *c, dev_addr dx, dev_addr dy, dev_addr x, size_t w, size_t b, int in, int out) {
    struct mx_gpt *g = c->g;
    gemm(c,
         (struct gemm_args){
             .m = in, .n = out, .k = g->rows, .a = x, .trans_a = true, .b = dy, .c = grad(g, w), .accumulate = c->add});
    bias_back(c, dy, b, out);
    gemm(c,
         (struct gemm_args){
             .m = g->rows, .n = in, .k = out, .a = dy, .b = weight(g, w), .trans_b = true, .c = dx, .out_same = true});
}

/* to = x + (o + bias) unless o is 0; y = norm(to) */
static void add_norm(struct mx_call *c, dev_addr y, dev_addr to, dev_addr mean, dev_addr rstd, dev_addr x, dev_addr o,
                     size_t o_bias, size_t gain, size_t bias) {
    struct mx_gpt *g = c->g;
    ROWS(c, "mx_add_norm", g->rows, P(y), P(to), P(mean), P(rstd), P(x), P(o), P(param(g, o_bias)), P(param(g, gain)),
         P(param(g, bias)), I(g->shape.dim), BF(g));
}

/* dx (and dx16) += the gradient of g->narrow through the norm; `first`: dx is set. */
static void norm_back(struct mx_call *c, dev_addr x, dev_addr mean, dev_addr rstd, size_t gain, size_t bias,
                      bool first) {
    struct mx_gpt *g = c->g;
    int64_t dim = g->shape.dim, chunks = mx_chunks(g->rows);
    ITEMS(c, "mx_norm_bwd_p", chunks * dim / 8, P(g->parts), P(g->narrow), P(x), P(mean), P(rstd), I(g->rows), I(dim),
          I(MX_CHUNK), BF(g));
    ITEMS(c, "mx_sum_parts", dim, P(grad(g, gain)), P(g->parts), I(chunks), I(2 * dim), I(c->add));
    ITEMS(c, "mx_sum_parts", dim, P(grad(g, bias)), P(g->parts + (dev_addr)dim * sizeof(float)), I(chunks), I(2 * dim),
          I(c->add));
    ROWS(c, "mx_norm_bwd", g->rows, P(g->dx), P(g->dx16), P(g->narrow), P(x), P(mean), P(rstd), P(param(g, gain)),
         I(dim), I(first), BF(g));
}

/* --- attention: every head of every sequence is one matrix product of a batch --- */

struct heads {
    int64_t each; /* elements of q (or k, v) of one head of one sequence */
    dev_addr q, k, v;
    int batch;
};
static struct heads heads_of(const struct mx_gpt *g, dev_addr qkv) {
    int64_t all = (int64_t)g->rows * g->shape.dim;
    return (struct heads){.each = (int64_t)g->shape.ctx * (g->shape.dim / g->shape.heads),
                          .q = qkv,
                          .k = qkv + (dev_addr)all * 2,
                          .v = qkv + (dev_addr)all * 4,
                          .batch = g->batch * g->shape.heads};
}

/* c[ctx][ctx] = a * b^T, both [ctx][dh] */
static void scores(struct mx_call *c, const struct heads *h, dev_addr out, dev_addr a, dev_addr b) {
    const struct mx_shape *s = &c->g->shape;
    gemm(c, (struct gemm_args){.m = s->ctx,
                               .n = s->ctx,
                               .k = s->dim / s->heads,
                               .batch = h->batch,
                               .a = a,
                               .b = b,
                               .trans_b = true,
                               .c = out,
                               .stride_a = h->each,
                               .stride_b = h->each,
                               .stride_c = (int64_t)s->ctx * s->ctx,
                               .out_same = true});
}

/* c[ctx][dh] = op(a[ctx][ctx]) * b[ctx][dh] */
static void weighted(struct mx_call *c, const struct heads *h, dev_addr out, dev_addr a, bool trans, dev_addr b) {
    const struct mx_shape *s = &c->g->shape;
    gemm(c, (struct gemm_args){.m = s->ctx,
                               .n = s->dim / s->heads,
                               .k = s->ctx,
                               .batch = h->batch,
                               .a = a,
                               .trans_a = trans,
                               .b = b,
                               .c = out,
                               .stride_a = (int64_t)s->ctx * s->ctx,
                               .stride_b = h->each,
                               .stride_c = h->each,
                               .out_same = true});
}

static float att_scale(const struct mx_shape *s) {
    int dh = s->dim / s->heads;
    return 1.0f / num_sqrt((float)dh);
}

static void attention(struct mx_call *c, const struct mx_acts *a, const struct mx_block *b) {
    struct mx_gpt *g = c->g;
    const struct mx_shape *s = &g->shape;
    struct heads h = heads_of(g, a->qkv);
    int64_t vectors = (int64_t)g->rows * s->dim / 8, dh = s->dim / s->heads;
    ITEMS(c, "mx_qkv_split", 3 * vectors, P(a->qkv), P(g->wide), P(param(g, b->qkv_b)), I(g->rows), I(s->ctx),
          I(s->heads), I(dh), BF(g));
    scores(c, &h, a->p, h.q, h.k);
    ROWS(c, "mx_softmax", (int64_t)g->rows * s->heads, P(a->p), I(s->ctx), R(att_scale(s)), BF(g));
    weighted(c, &h, g->heads16, a->p, false, h.v);
    ITEMS(c, "mx_heads_merge", vectors, P(a->att), P(g->heads16), I(s->ctx), I(s->heads), I(dh));
}

/* g->narrow: gradient of att; leaves that of qkv in g->wide */
static void attention_back(struct mx_call *c, const struct mx_acts *a) {
    struct mx_gpt *g = c->g;
    const struct mx_shape *s = &g->shape;
    struct heads h = heads_of(g, a->qkv), d = heads_of(g, g->wide2);
    int64_t vectors = (int64_t)g->rows * s->dim / 8, dh = s->dim / s->heads;
    ITEMS(c, "mx_heads_split", vectors, P(g->heads16), P(g->narrow), I(s->ctx), I(s->heads), I(dh));
    weighted(c, &h, d.v, a->p, true, g->heads16);
    scores(c, &h, g->scores, g->heads16, h.v);
    ROWS(c, "mx_softmax_bwd", (int64_t)g->rows * s->heads, P(g->scores), P(a->p), I(s->ctx), R(att_scale(s)), BF(g));
    weighted(c, &h, d.q, g->scores, false, h.k);
    weighted(c, &h, d.k, g->scores, true, h.q);
    ITEMS(c, "mx_qkv_merge", 3 * vectors, P(g->wide), P(g->wide2), I(g->rows), I(s->ctx), I(s->heads), I(dh));
}

/* --- forward and back --- */

/* Leaves the block's output without its bias in g->o; the next norm adds the bias. */
static void block_forward(struct mx_call *c, int l) {
    struct mx_gpt *g = c->g;
    const struct mx_shape *s = &g->shape;
    const struct mx_block *b = &g->block[l];
    const struct mx_acts *a = &g->acts[l], *before = l > 0 ? &g->acts[l - 1] : NULL;
    add_norm(c, a->ln1, a->x, a->mean1, a->rstd1, before != NULL ? before->mid : a->x, before != NULL ? g->o : 0,
             before != NULL ? g->block[l - 1].down_b : 0, b->ln1_g, b->ln1_b);
    linear(c, g->wide, a->ln1, b->qkv_w, s->dim, 3 * s->dim);
    attention(c, a, b);
    linear(c, g->o, a->att, b->out_w, s->dim, s->dim);
    add_norm(c, a->ln2, a->mid, a->mean2, a->rstd2, a->x, g->o, b->out_b, b->ln2_g, b->ln2_b);
    linear(c, a->up, a->ln2, b->up_w, s->dim, s->ff);
    ITEMS(c, "mx_bias_gelu", (int64_t)g->rows * s->ff / 8, P(a->gelu), P(a->up), P(param(g, b->up_b)), I(s->ff), BF(g));
    linear(c, g->o, a->gelu, b->down_w, s->ff, s->dim);
}

static void forward(struct mx_call *c, float w) {
    struct mx_gpt *g = c->g;
    const struct mx_shape *s = &g->shape;
    int last = s->layers - 1;
    ITEMS(c, "mx_embed", (int64_t)g->rows * s->dim / 8, P(g->acts[0].x), P(g->tokens), P(param(g, g->tok)),
          P(param(g, g->pos)), I(s->dim), I(s->ctx));
    for (int l = 0; l < s->layers; l++) block_forward(c, l);
    add_norm(c, g->lnf, g->top, g->meanf, g->rstdf, g->acts[last].mid, g->o, g->block[last].down_b, g->lnf_g, g->lnf_b);
    gemm(c, (struct gemm_args){
                .m = g->rows, .n = s->vocab, .k = s->dim, .a = g->lnf, .b = weight(g, g->head), .c = g->logits});
    ROWS(c, "mx_xent", g->rows, P(g->loss), P(g->dlogits), P(g->logits), P(g->targets), I(s->vocab),
         R(w / (float)g->rows), BF(g));
}

/* g->dx, g->dx16: gradient of the block's output, become that of its input */
static void block_back(struct mx_call *c, int l) {
    struct mx_gpt *g = c->g;
    const struct mx_shape *s = &g->shape;
    const struct mx_block *b = &g->block[l];
    const struct mx_acts *a = &g->acts[l];
    linear_back(c, g->wide, g->dx16, a->gelu, b->down_w, b->down_b, s->ff, s->dim);
    ITEMS(c, "mx_gelu_bwd", (int64_t)g->rows * s->ff / 8, P(g->wide), P(a->up), P(param(g, b->up_b)), I(s->ff), BF(g));
    linear_back(c, g->narrow, g->wide, a->ln2, b->up_w, b->up_b, s->dim, s->ff);
    norm_back(c, a->mid, a->mean2, a->rstd2, b->ln2_g, b->ln2_b, false);
    linear_back(c, g->narrow, g->dx16, a->att, b->out_w, b->out_b, s->dim, s->dim);
    attention_back(c, a);
    linear_back(c, g->narrow, g->wide, a->ln1, b->qkv_w, b->qkv_b, s->dim, 3 * s->dim);
    norm_back(c, a->x, a->mean1, a->rstd1, b->ln1_g, b->ln1_b, false);
}

static void back(struct mx_call *c, const struct mx_gradient_args *ga) {
    struct mx_gpt *g = c->g;
    const struct mx_shape *s = &g->shape;
    int segment = 0;
    gemm(c, (struct gemm_args){.m = s->dim,
                               .n = s->vocab,
                               .k = g->rows,
                               .a = g->lnf,
                               .trans_a = true,
                               .b = g->dlogits,
                               .c = grad(g, g->head),
                               .accumulate = c->add});
    gemm(c, (struct gemm_args){.m = g->rows,
                               .n = s->dim,
                               .k = s->vocab,
                               .a = g->dlogits,
                               .b = weight(g, g->head),
                               .trans_b = true,
                               .c = g->narrow,
                               .out_same = true});
    norm_back(c, g->top, g->meanf, g->rstdf, g->lnf_g, g->lnf_b, true);
    for (int l = s->layers - 1; l >= -1; l--, segment++) {
        if (c->rc == 0 && ga->done != NULL) c->rc = ga->done(ga->ctx, segment, c->err);
        if (l >= 0) block_back(c, l);
    }
    ITEMS(c, "mx_embed_bwd_tok", (int64_t)s->vocab * s->dim / 8, P(grad(g, g->tok)), P(g->dx), P(g->tokens), I(g->rows),
          I(s->dim), I(c->add));
    ITEMS(c, "mx_embed_bwd_pos", (int64_t)s->ctx * s->dim / 8, P(grad(g, g->pos)), P(g->dx), I(g->rows), I(s->dim),
          I(c->add));
    if (c->rc == 0 && ga->done != NULL) c->rc = ga->done(ga->ctx, segment, c->err);
}

/* --- public functions --- */

static int put(struct mx_gpt *g, dev_addr to, const void *from, size_t bytes, struct gp_error *err) {
    struct copy_args a = {.kind = COPY_TO_DEVICE, .dev = to, .bytes = bytes};
    memcpy(&a.host, &from, sizeof from); /* only read, see device.h */
    return g->ops->copy(g->dev, &a, err);
}

static int get(struct mx_gpt *g, dev_addr from, void *to, size_t bytes, struct gp_error *err) {
    struct copy_args a = {.kind = COPY_FROM_DEVICE, .dev = from, .host = to, .bytes = bytes};
    return g->ops->copy(g->dev, &a, err);
}

static int wait_for(struct mx_gpt *g, struct gp_error *err) {
    return g->ops->sync(g->dev, clock_deadline(DEVICE_WAIT_MS), err);
}

int mx_get(struct mx_gpt *g, dev_addr from, float *to, struct gp_error *err) {
    return get(g, from, to, g->n_params * sizeof *to, err);
}

int mx_put(struct mx_gpt *g, dev_addr to, const float *from, struct gp_error *err) {
    return put(g, to, from, g->n_params * sizeof *from, err);
}

int mx_weights(struct mx_gpt *g, struct gp_error *err) {
    struct mx_call c = {.g = g, .err = err};
    ITEMS(&c, "mx_cast", (int64_t)g->n_params / 8, P(g->weights16), P(g->params), BF(g));
    return c.rc == 0 ? wait_for(g, err) : c.rc;
}

int mx_gradient(struct mx_gpt *g, const struct mx_gradient_args *a, float *ret_loss, struct gp_error *err) {
    size_t n = (size_t)g->rows;
    struct mx_call c = {.g = g, .err = err, .add = a->add};
    c.rc = put(g, g->tokens, a->in, n * sizeof *a->in, err);
    if (c.rc == 0) c.rc = put(g, g->targets, a->next, n * sizeof *a->next, err);
    forward(&c, a->weight);
    back(&c, a);
    if (c.rc == 0) c.rc = wait_for(g, err);
    if (c.rc == 0) c.rc = get(g, g->loss, g->loss_host, n * sizeof(float), err);
    float sum = 0.0f;
    for (size_t i = 0; c.rc == 0 && i < n; i++) sum = sum + g->loss_host[i];
    if (c.rc == 0) *ret_loss = sum / (float)g->rows;
    return c.rc;
}

int mx_update(struct mx_gpt *g, float lr, float gscale, struct gp_error *err) {
    struct mx_call c = {.g = g, .err = err};
    g->beta1_t = g->beta1_t * BETA1;
    g->beta2_t = g->beta2_t * BETA2;
    ITEMS(&c, "mx_adamw", (int64_t)g->n_params / 8, P(g->params), P(g->weights16), P(g->grads), P(g->m), P(g->v), R(lr),
          R(BETA1), R(BETA2), R(1.0f / (1.0f - g->beta1_t)), R(1.0f / (1.0f - g->beta2_t)), R(DECAY), R(gscale), BF(g));
    return c.rc;
}

int mx_hash(struct mx_gpt *g, dev_addr from, size_t n, uint64_t *ret, struct gp_error *err) {
    struct mx_call c = {.g = g, .err = err};
    uint64_t *sums = (uint64_t *)(void *)g->figures_host, all = num_mix(n);
    int64_t items = GP_MIN((int64_t)n, MX_FIGURES / 2);
    ITEMS(&c, "mx_hash", items, P(g->figures), P(from), I((int64_t)n));
    if (c.rc == 0) c.rc = wait_for(g, err);
    if (c.rc == 0) c.rc = get(g, g->figures, sums, (size_t)items * sizeof *sums, err);
    for (int64_t i = 0; c.rc == 0 && i < items; i++) all += sums[i];
    if (c.rc == 0) *ret = num_mix(all);
    return c.rc;
}

int mx_square_sum(struct mx_gpt *g, dev_addr from, size_t n, double *ret, struct gp_error *err) {
    struct mx_call c = {.g = g, .err = err};
    int64_t blocks = GP_MIN(((int64_t)n + 4095) / 4096, 1024);
    double sum = 0;
    ROWS(&c, "mx_square_sum", blocks, P(g->figures), P(from), I((int64_t)n));
    if (c.rc == 0) c.rc = wait_for(g, err);
    if (c.rc == 0) c.rc = get(g, g->figures, g->figures_host, (size_t)blocks * sizeof(float), err);
    for (int64_t i = 0; c.rc == 0 && i < blocks; i++) sum += (double)g->figures_host[i];
    if (c.rc == 0) *ret = sum;
    return c.rc;
}

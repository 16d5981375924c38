/* SPDX-License-Identifier: Apache-2.0 */
/* Layout, memory and first values of the mixed-precision GPT. One list names every piece of device memory; it serves
 * to add up, to allocate and to free. One thread. */
#include "base/gp_base.h"

#include "train_gpt.h"

#include "train_gpt_room.h"
#include "validate/agent/device/numeric.h"

/* --- layout of the parameters --- */

static size_t take(size_t *at, size_t n) {
    size_t was = *at;
    *at += n;
    return was;
}

static size_t layout_block(const struct mx_shape *s, size_t at, struct mx_block *b) {
    size_t dim = (size_t)s->dim, ff = (size_t)s->ff;
    b->ln1_g = take(&at, dim);
    b->ln1_b = take(&at, dim);
    b->qkv_w = take(&at, dim * 3 * dim);
    b->qkv_b = take(&at, 3 * dim);
    b->out_w = take(&at, dim * dim);
    b->out_b = take(&at, dim);
    b->ln2_g = take(&at, dim);
    b->ln2_b = take(&at, dim);
    b->up_w = take(&at, dim * ff);
    b->up_b = take(&at, ff);
    b->down_w = take(&at, ff * dim);
    b->down_b = take(&at, dim);
    return at;
}

static void layout(struct mx_gpt *g) {
    const struct mx_shape *s = &g->shape;
    size_t at = 0, layers = (size_t)s->layers, dim = (size_t)s->dim;
    g->block = xcalloc(layers, sizeof *g->block);
    g->acts = xcalloc(layers, sizeof *g->acts);
    g->segments = xcalloc(layers + 2, sizeof *g->segments);
    g->n_segments = s->layers + 2;
    g->tok = take(&at, (size_t)s->vocab * dim);
    g->pos = take(&at, (size_t)s->ctx * dim);
    g->segments[layers + 1] = (struct mx_segment){0, at};
    for (size_t l = 0; l < layers; l++) {
        size_t from = at;
        at = layout_block(s, at, &g->block[l]);
        g->segments[layers - l] = (struct mx_segment){from, at - from};
    }
    size_t from = at;
    g->lnf_g = take(&at, dim);
    g->lnf_b = take(&at, dim);
    g->head = take(&at, dim * (size_t)s->vocab);
    g->segments[0] = (struct mx_segment){from, at - from};
    g->n_params = at;
}

size_t mx_params(const struct mx_shape *s) {
    struct mx_block b;
    size_t dim = (size_t)s->dim;
    return (size_t)(2 * s->vocab + s->ctx) * dim + 2 * dim + (size_t)s->layers * layout_block(s, 0, &b);
}

double mx_flop_per_token(const struct mx_shape *s) {
    double dim = s->dim, matrices = 4 * dim * dim + 2 * dim * s->ff;
    return 6 * (s->layers * matrices + dim * s->vocab) + 12.0 * s->layers * s->ctx * dim;
}

/* --- device memory --- */

struct room {
    struct mx_gpt *g; /* NULL: only add up */
    struct gp_error *err;
    bool freeing;
    size_t bytes;
    int rc;
};

static void room(struct room *r, dev_addr *at, size_t bytes) {
    r->bytes += (bytes + 511) / 512 * 512;
    if (r->freeing) {
        r->g->ops->free(r->g->dev, *at);
        *at = 0;
    } else if (r->g != NULL && r->rc == 0) {
        r->rc = r->g->ops->alloc(r->g->dev, bytes, at, r->err);
    }
}

static void room_block(struct room *r, const struct mx_shape *s, size_t rows, struct mx_acts *a) {
    size_t wide = rows * (size_t)s->dim;
    dev_addr *narrow[] = {&a->mean1, &a->rstd1, &a->mean2, &a->rstd2};
    for (size_t i = 0; i < GP_ARRAY_LEN(narrow); i++) room(r, narrow[i], rows * 4);
    room(r, &a->x, wide * 4);
    room(r, &a->mid, wide * 4);
    room(r, &a->ln1, wide * 2);
    room(r, &a->ln2, wide * 2);
    room(r, &a->att, wide * 2);
    room(r, &a->qkv, 3 * wide * 2);
    room(r, &a->p, rows * (size_t)s->heads * (size_t)s->ctx * 2);
    room(r, &a->up, rows * (size_t)s->ff * 2);
    room(r, &a->gelu, rows * (size_t)s->ff * 2);
}

static void room_all(struct room *r, const struct mx_shape *s, size_t batch, struct mx_gpt *g) {
    size_t rows = batch * (size_t)s->ctx, wide = rows * (size_t)s->dim, n = mx_params(s);
    size_t widest = (size_t)GP_MAX(3 * s->dim, s->ff);
    dev_addr *flat[] = {&g->params, &g->grads, &g->m, &g->v};
    dev_addr *narrow[] = {&g->tokens, &g->targets, &g->meanf, &g->rstdf, &g->loss};
    dev_addr *half[] = {&g->lnf, &g->dx16, &g->narrow, &g->heads16, &g->o};
    for (size_t i = 0; i < GP_ARRAY_LEN(flat); i++) room(r, flat[i], n * 4);
    room(r, &g->weights16, n * 2);
    for (size_t i = 0; i < GP_ARRAY_LEN(narrow); i++) room(r, narrow[i], rows * 4);
    for (size_t i = 0; i < GP_ARRAY_LEN(half); i++) room(r, half[i], wide * 2);
    room(r, &g->top, wide * 4);
    room(r, &g->dx, wide * 4);
    room(r, &g->logits, rows * (size_t)s->vocab * 4);
    room(r, &g->dlogits, rows * (size_t)s->vocab * 2);
    room(r, &g->wide, rows * widest * 2);
    room(r, &g->wide2, 3 * wide * 2);
    room(r, &g->scores, rows * (size_t)s->heads * (size_t)s->ctx * 2);
    room(r, &g->parts, (size_t)mx_chunks((int64_t)rows) * widest * 4);
    room(r, &g->figures, MX_FIGURES * 4);
    for (int l = 0; l < s->layers; l++) {
        struct mx_acts none = {0};
        room_block(r, s, rows, g->acts != NULL ? &g->acts[l] : &none);
    }
}

size_t mx_bytes(const struct mx_shape *s, int batch) {
    struct room r = {0};
    struct mx_gpt g = {0};
    room_all(&r, s, (size_t)batch, &g);
    return r.bytes;
}

int mx_open(const struct device_ops *ops, struct device *dev, const struct mx_shape *shape, enum gemm_type type,
            int batch, struct mx_gpt *ret, struct gp_error *err) {
    *ret = (struct mx_gpt){
        .ops = ops, .dev = dev, .shape = *shape, .type = type, .batch = batch, .rows = batch * shape->ctx};
    layout(ret);
    ret->loss_host = xcalloc((size_t)ret->rows, sizeof *ret->loss_host);
    ret->figures_host = xcalloc(MX_FIGURES, sizeof *ret->figures_host);
    struct room r = {.g = ret, .err = err};
    room_all(&r, shape, (size_t)batch, ret);
    return r.rc;
}

void mx_close(struct mx_gpt *g) {
    struct room r = {.g = g, .freeing = true};
    if (g->acts != NULL && g->dev != NULL) room_all(&r, &g->shape, (size_t)g->batch, g);
    free(g->block);
    free(g->acts);
    free(g->segments);
    free(g->loss_host);
    free(g->figures_host);
    *g = (struct mx_gpt){0};
}

/* --- first values --- */

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

int mx_init(struct mx_gpt *g, uint64_t seed, struct gp_error *err) {
    const struct mx_shape *s = &g->shape;
    size_t dim = (size_t)s->dim, ff = (size_t)s->ff;
    GP_AUTO_FREE float *p = xcalloc(g->n_params, sizeof *p);
    int r = mx_put(g, g->m, p, err);
    if (r == 0) r = mx_put(g, g->v, p, err);
    uint64_t z = num_mix(seed ^ 0x6d69786564);
    float in_dim = 1.0f / num_sqrt((float)s->dim), in_ff = 1.0f / num_sqrt((float)s->ff);
    float deep = 1.0f / num_sqrt(2.0f * (float)s->layers);
    fill_uniform(p + g->tok, (size_t)s->vocab * dim, 0.5f, &z);
    fill_uniform(p + g->pos, (size_t)s->ctx * dim, 0.05f, &z);
    for (int l = 0; l < s->layers; l++) {
        const struct mx_block *b = &g->block[l];
        fill_ones(p + b->ln1_g, dim);
        fill_ones(p + b->ln2_g, dim);
        fill_uniform(p + b->qkv_w, dim * 3 * dim, in_dim, &z);
        fill_uniform(p + b->out_w, dim * dim, in_dim * deep, &z);
        fill_uniform(p + b->up_w, dim * ff, in_dim, &z);
        fill_uniform(p + b->down_w, ff * dim, in_ff * deep, &z);
    }
    fill_ones(p + g->lnf_g, dim);
    fill_uniform(p + g->head, dim * (size_t)s->vocab, 0.5f * in_dim, &z);
    g->beta1_t = g->beta2_t = 1.0f;
    if (r == 0) r = mx_put(g, g->params, p, err);
    return r == 0 ? mx_weights(g, err) : r;
}

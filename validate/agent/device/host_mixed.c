/* SPDX-License-Identifier: Apache-2.0 */
/* What training in bf16 and fp16 needs beside matrix products, in plain C: the reference of
 * kernels/train_mixed.cu, with the same sums in the same order. Rows are summed by 128 lanes, lane l
 * over the groups of eight l, l + 128, ..., then 32 lanes by halves, then those four one by one. `bf`:
 * bf16, else fp16. Pure. */
#include "base/gp_base.h"

#include "host_mixed.h"

#include "numeric.h"

#define LANES 128
#define F(i) ((float *)(uintptr_t)a[i].p)
#define H(i) ((uint16_t *)(uintptr_t)a[i].p)
#define I32(i) ((const int32_t *)(uintptr_t)a[i].p)

static float up(uint16_t h, int64_t bf) { return bf != 0 ? num_from_bf16(h) : num_from_f16(h); }
static uint16_t down(float x, int64_t bf) { return bf != 0 ? num_to_bf16(x) : num_to_f16(x); }

static int lane_of(int64_t j) { return (int)(j / 8 % LANES); }
static float lanes_sum(float *v) {
    for (int w = 0; w < LANES; w += 32)
        for (int s = 16; s > 0; s /= 2)
            for (int l = w; l < w + s; l++) v[l] = v[l] + v[l + s];
    return ((v[0] + v[32]) + v[64]) + v[96];
}

/* out, in, bf */
void host_mx_cast(const union kernel_arg *a, int64_t items) {
    for (int64_t i = 0; i < items * 8; i++) H(0)[i] = down(F(1)[i], a[2].i);
}

/* x, tokens, tok, pos, dim, ctx */
void host_mx_embed(const union kernel_arg *a, int64_t items) {
    int64_t dim = a[4].i;
    for (int64_t i = 0; i < items * 8; i++) {
        int64_t r = i / dim, j = i % dim;
        F(0)[i] = F(2)[I32(1)[r] * dim + j] + F(3)[r % a[5].i * dim + j];
    }
}

/* y, xout, mean, rstd, x, o, obias, gain, bias, dim, bf */
void host_mx_add_norm(const union kernel_arg *a, int64_t items) {
    int64_t dim = a[9].i, bf = a[10].i;
    for (int64_t r = 0; r < items; r++) {
        float part[LANES] = {0};
        float *x = F(4) + r * dim;
        if (a[5].p != 0) {
            float *to = F(1) + r * dim;
            for (int64_t j = 0; j < dim; j++) to[j] = x[j] + (up(H(5)[r * dim + j], bf) + F(6)[j]);
            x = to;
        }
        for (int64_t j = 0; j < dim; j++) part[lane_of(j)] = part[lane_of(j)] + x[j];
        float mean = lanes_sum(part) / (float)dim;
        memset(part, 0, sizeof part);
        for (int64_t j = 0; j < dim; j++) part[lane_of(j)] = part[lane_of(j)] + (x[j] - mean) * (x[j] - mean);
        float rstd = 1.0f / num_sqrt(lanes_sum(part) / (float)dim + 1e-5f);
        for (int64_t j = 0; j < dim; j++) H(0)[r * dim + j] = down((x[j] - mean) * rstd * F(7)[j] + F(8)[j], bf);
        F(2)[r] = mean;
        F(3)[r] = rstd;
    }
}

/* dx, dx16, dy, x, mean, rstd, gain, dim, first, bf */
void host_mx_norm_bwd(const union kernel_arg *a, int64_t items) {
    int64_t dim = a[7].i, bf = a[9].i;
    for (int64_t r = 0; r < items; r++) {
        float p1[LANES] = {0}, p2[LANES] = {0}, mean = F(4)[r], rstd = F(5)[r];
        float *dx = F(0) + r * dim;
        const float *x = F(3) + r * dim;
        const uint16_t *dy = H(2) + r * dim;
        for (int64_t j = 0; j < dim; j++) {
            float t = up(dy[j], bf) * F(6)[j];
            p1[lane_of(j)] = p1[lane_of(j)] + t;
            p2[lane_of(j)] = p2[lane_of(j)] + t * ((x[j] - mean) * rstd);
        }
        float s1 = lanes_sum(p1) / (float)dim, s2 = lanes_sum(p2) / (float)dim;
        for (int64_t j = 0; j < dim; j++) {
            float t = rstd * ((up(dy[j], bf) * F(6)[j] - s1) - (x[j] - mean) * rstd * s2);
            dx[j] = a[8].i != 0 ? t : dx[j] + t;
            H(1)[r * dim + j] = down(dx[j], bf);
        }
    }
}

/* part, dy, x, mean, rstd, rows, dim, chunk, bf */
void host_mx_norm_bwd_p(const union kernel_arg *a, int64_t items) {
    int64_t rows = a[5].i, dim = a[6].i, chunk = a[7].i;
    memset(F(0), 0, (size_t)items * 8 * 2 * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        float *dg = F(0) + r / chunk * 2 * dim, *db = dg + dim;
        for (int64_t j = 0; j < dim; j++) {
            float d = up(H(1)[r * dim + j], a[8].i);
            dg[j] = dg[j] + d * ((F(2)[r * dim + j] - F(3)[r]) * F(4)[r]);
            db[j] = db[j] + d;
        }
    }
}

/* part, d, rows, cols, chunk, bf */
void host_mx_colsum(const union kernel_arg *a, int64_t items) {
    int64_t rows = a[2].i, cols = a[3].i;
    memset(F(0), 0, (size_t)items * 8 * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        float *sum = F(0) + r / a[4].i * cols;
        for (int64_t j = 0; j < cols; j++) sum[j] = sum[j] + up(H(1)[r * cols + j], a[5].i);
    }
}

/* out, part, parts, stride, add */
void host_mx_sum_parts(const union kernel_arg *a, int64_t items) {
    for (int64_t j = 0; j < items; j++) {
        float sum = 0.0f;
        for (int64_t c = 0; c < a[2].i; c++) sum = sum + F(1)[c * a[3].i + j];
        F(0)[j] = a[4].i != 0 ? F(0)[j] + sum : sum;
    }
}

/* Where column col of row r, [row][q, k, v][head][dh], is by heads: [q, k, v][sequence][head][token][dh]. a: rows,
 * ctx, heads, dh */
static int64_t qkv_by_head(const union kernel_arg *a, int64_t r, int64_t col) {
    int64_t rows = a[0].i, ctx = a[1].i, heads = a[2].i, dh = a[3].i, dim = heads * dh;
    int64_t which = col / dim, h = col % dim / dh, j = col % dh;
    return (((which * (rows / ctx) + r / ctx) * heads + h) * ctx + r % ctx) * dh + j;
}

/* out, in, bias, rows, ctx, heads, dh, bf */
void host_mx_qkv_split(const union kernel_arg *a, int64_t items) {
    int64_t width = 3 * a[5].i * a[6].i;
    (void)items;
    for (int64_t r = 0; r < a[3].i; r++)
        for (int64_t col = 0; col < width; col++)
            H(0)[qkv_by_head(a + 3, r, col)] = down(up(H(1)[r * width + col], a[7].i) + F(2)[col], a[7].i);
}

/* out, in, rows, ctx, heads, dh */
void host_mx_qkv_merge(const union kernel_arg *a, int64_t items) {
    int64_t width = 3 * a[4].i * a[5].i;
    (void)items;
    for (int64_t r = 0; r < a[2].i; r++)
        for (int64_t col = 0; col < width; col++) H(0)[r * width + col] = H(1)[qkv_by_head(a + 2, r, col)];
}

/* out, in, ctx, heads, dh. i: an element in [row][head][dh]; where it is by heads */
static int64_t by_head(const union kernel_arg *a, int64_t i) {
    int64_t ctx = a[2].i, heads = a[3].i, dh = a[4].i, r = i / (heads * dh);
    return ((r / ctx * heads + i / dh % heads) * ctx + r % ctx) * dh + i % dh;
}
void host_mx_heads_merge(const union kernel_arg *a, int64_t items) {
    for (int64_t i = 0; i < items * 8; i++) H(0)[i] = H(1)[by_head(a, i)];
}
void host_mx_heads_split(const union kernel_arg *a, int64_t items) {
    for (int64_t i = 0; i < items * 8; i++) H(0)[by_head(a, i)] = H(1)[i];
}

/* s, ctx, scale, bf */
void host_mx_softmax(const union kernel_arg *a, int64_t items) {
    int64_t ctx = a[1].i, bf = a[3].i;
    for (int64_t r = 0; r < items; r++) {
        uint16_t *s = H(0) + r * ctx;
        int64_t last = r % ctx;
        float part[LANES] = {0}, top = up(s[0], bf) * a[2].f;
        for (int64_t j = 1; j <= last; j++) top = GP_MAX(top, up(s[j], bf) * a[2].f);
        for (int64_t j = 0; j <= last; j++) part[lane_of(j)] = part[lane_of(j)] + num_exp(up(s[j], bf) * a[2].f - top);
        float of = 1.0f / lanes_sum(part);
        for (int64_t j = 0; j < ctx; j++) s[j] = down(j <= last ? num_exp(up(s[j], bf) * a[2].f - top) * of : 0.0f, bf);
    }
}

/* dp, p, ctx, scale, bf */
void host_mx_softmax_bwd(const union kernel_arg *a, int64_t items) {
    int64_t ctx = a[2].i, bf = a[4].i;
    for (int64_t r = 0; r < items; r++) {
        uint16_t *d = H(0) + r * ctx;
        const uint16_t *p = H(1) + r * ctx;
        float part[LANES] = {0};
        for (int64_t j = 0; j <= r % ctx; j++) part[lane_of(j)] = part[lane_of(j)] + up(d[j], bf) * up(p[j], bf);
        float sum = lanes_sum(part);
        for (int64_t j = 0; j < ctx; j++)
            d[j] = down(j <= r % ctx ? up(p[j], bf) * (up(d[j], bf) - sum) * a[3].f : 0.0f, bf);
    }
}

/* y, x, bias, cols, bf */
void host_mx_bias_gelu(const union kernel_arg *a, int64_t items) {
    for (int64_t i = 0; i < items * 8; i++) {
        float x = up(H(1)[i], a[4].i) + F(2)[i % a[3].i];
        H(0)[i] = down(0.5f * x * (1.0f + num_tanh(0.79788456f * (x + 0.044715f * x * x * x))), a[4].i);
    }
}

/* d, x, bias, cols, bf */
void host_mx_gelu_bwd(const union kernel_arg *a, int64_t items) {
    for (int64_t i = 0; i < items * 8; i++) {
        float x = up(H(1)[i], a[4].i) + F(2)[i % a[3].i];
        float t = num_tanh(0.79788456f * (x + 0.044715f * x * x * x));
        float du = 0.79788456f * (1.0f + 0.134145f * x * x);
        H(0)[i] = down(up(H(0)[i], a[4].i) * (0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * du), a[4].i);
    }
}

/* loss, dlogits, logits, targets, vocab, weight, bf */
void host_mx_xent(const union kernel_arg *a, int64_t items) {
    int64_t vocab = a[4].i;
    for (int64_t r = 0; r < items; r++) {
        const float *x = F(2) + r * vocab;
        float part[LANES] = {0}, top = x[0];
        int32_t want = I32(3)[r];
        for (int64_t j = 1; j < vocab; j++) top = GP_MAX(top, x[j]);
        for (int64_t j = 0; j < vocab; j++) part[lane_of(j)] = part[lane_of(j)] + num_exp(x[j] - top);
        float sum = lanes_sum(part), of = a[5].f / sum;
        for (int64_t j = 0; j < vocab; j++)
            H(1)[r * vocab + j] = down(num_exp(x[j] - top) * of - (j == want ? a[5].f : 0.0f), a[6].i);
        F(0)[r] = num_log(sum) - (x[want] - top);
    }
}

/* dtok, dx, tokens, rows, dim, add */
void host_mx_embed_bwd_tok(const union kernel_arg *a, int64_t items) {
    int64_t dim = a[4].i;
    GP_AUTO_FREE float *sum = xcalloc((size_t)items * 8, sizeof *sum);
    for (int64_t r = 0; r < a[3].i; r++) {
        float *d = sum + I32(2)[r] * dim;
        for (int64_t j = 0; j < dim; j++) d[j] = d[j] + F(1)[r * dim + j];
    }
    for (int64_t i = 0; i < items * 8; i++) F(0)[i] = a[5].i != 0 ? F(0)[i] + sum[i] : sum[i];
}

/* dpos, dx, rows, dim, add */
void host_mx_embed_bwd_pos(const union kernel_arg *a, int64_t items) {
    int64_t n = items * 8, dim = a[3].i;
    for (int64_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int64_t at = i; at < a[2].i * dim; at += n) sum = sum + F(1)[at];
        F(0)[i] = a[4].i != 0 ? F(0)[i] + sum : sum;
    }
}

/* p, w16, g, m, v, lr, b1, b2, c1, c2, decay, gscale, bf */
void host_mx_adamw(const union kernel_arg *a, int64_t items) {
    float *restrict p = F(0), *restrict m = F(3), *restrict v = F(4);
    const float *restrict g = F(2);
    float lr = a[5].f, b1 = a[6].f, b2 = a[7].f, c1 = a[8].f, c2 = a[9].f, decay = a[10].f;
    for (int64_t i = 0; i < items * 8; i++) {
        float x = g[i] * a[11].f;
        m[i] = b1 * m[i] + (1.0f - b1) * x;
        v[i] = b2 * v[i] + (1.0f - b2) * (x * x);
        float step = (m[i] * c1) / (num_sqrt(v[i] * c2) + 1e-8f);
        p[i] = p[i] - lr * (step + decay * p[i]);
        H(1)[i] = down(p[i], a[12].i);
    }
}

/* out, x, count */
void host_mx_square_sum(const union kernel_arg *a, int64_t items) {
    int64_t groups = a[2].i / 8;
    for (int64_t r = 0; r < items; r++) {
        float part[LANES] = {0};
        for (int64_t l = 0; l < LANES; l++)
            for (int64_t c = r * LANES + l; c < groups; c += items * LANES)
                for (int e = 0; e < 8; e++) part[l] = part[l] + F(1)[c * 8 + e] * F(1)[c * 8 + e];
        F(0)[r] = lanes_sum(part);
    }
}

/* out, words, count */
void host_mx_hash(const union kernel_arg *a, int64_t items) {
    uint64_t *out = (uint64_t *)(uintptr_t)a[0].p;
    const uint32_t *words = (const uint32_t *)(uintptr_t)a[1].p;
    for (int64_t i = 0; i < items; i++) {
        out[i] = 0;
        for (int64_t w = i; w < a[2].i; w += items) out[i] += num_mix((uint64_t)w << 32 | words[w]);
    }
}

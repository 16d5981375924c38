/* SPDX-License-Identifier: Apache-2.0 */
/* Training's kernels beside matrix products, in plain C: fp32 with + - * / sqrt only, one stated
 * order of additions, no atomics. Arguments are listed above each kernel, in order. */
#include "base/gp_base.h"

#include "host_kernels.h"
#include "host_mixed.h"
#include "numeric.h"
#include "wide.h"

#define F(i) ((float *)(uintptr_t)a[i].p)
#define I32(i) ((const int32_t *)(uintptr_t)a[i].p)

/* items: rows. out, tokens, tok[vocab][dim], pos[ctx][dim], dim, ctx */
static void embed_fwd(const union kernel_arg *a, int64_t n) {
    int64_t dim = a[4].i, ctx = a[5].i;
    for (int64_t r = 0; r < n; r++) {
        const float *tok = F(2) + I32(1)[r] * dim, *pos = F(3) + r % ctx * dim;
        for (int64_t j = 0; j < dim; j++) F(0)[r * dim + j] = tok[j] + pos[j];
    }
}

/* items: vocab. dtok, dx, tokens, rows, dim */
static void embed_bwd_tok(const union kernel_arg *a, int64_t n) {
    int64_t rows = a[3].i, dim = a[4].i;
    memset(F(0), 0, (size_t)(n * dim) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        float *d = F(0) + I32(2)[r] * dim;
        for (int64_t j = 0; j < dim; j++) d[j] = d[j] + F(1)[r * dim + j];
    }
}

/* items: ctx. dpos, dx, rows, dim */
static void embed_bwd_pos(const union kernel_arg *a, int64_t n) {
    int64_t rows = a[2].i, dim = a[3].i;
    memset(F(0), 0, (size_t)(n * dim) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        float *d = F(0) + r % n * dim;
        for (int64_t j = 0; j < dim; j++) d[j] = d[j] + F(1)[r * dim + j];
    }
}

/* items: rows. y, mean, rstd, x, gain, bias, dim */
static HOST_WIDE void layernorm_fwd(const union kernel_arg *a, int64_t n) {
    int64_t dim = a[6].i;
    for (int64_t r = 0; r < n; r++) {
        const float *x = F(3) + r * dim;
        float sum = 0.0f, var = 0.0f;
        for (int64_t j = 0; j < dim; j++) sum = sum + x[j];
        float mean = sum / (float)dim;
        for (int64_t j = 0; j < dim; j++) var = var + (x[j] - mean) * (x[j] - mean);
        float rstd = 1.0f / num_sqrt(var / (float)dim + 1e-5f);
        for (int64_t j = 0; j < dim; j++) F(0)[r * dim + j] = (x[j] - mean) * rstd * F(4)[j] + F(5)[j];
        F(1)[r] = mean;
        F(2)[r] = rstd;
    }
}

/* items: rows. dx (added to), dy, x, mean, rstd, gain, dim */
static HOST_WIDE void layernorm_bwd_x(const union kernel_arg *a, int64_t n) {
    int64_t dim = a[6].i;
    for (int64_t r = 0; r < n; r++) {
        const float *dy = F(1) + r * dim, *x = F(2) + r * dim;
        float mean = F(3)[r], rstd = F(4)[r], s1 = 0.0f, s2 = 0.0f;
        for (int64_t j = 0; j < dim; j++) {
            float g = dy[j] * F(5)[j];
            s1 = s1 + g;
            s2 = s2 + g * ((x[j] - mean) * rstd);
        }
        s1 = s1 / (float)dim;
        s2 = s2 / (float)dim;
        for (int64_t j = 0; j < dim; j++) {
            float xh = (x[j] - mean) * rstd;
            F(0)[r * dim + j] = F(0)[r * dim + j] + rstd * ((dy[j] * F(5)[j] - s1) - xh * s2);
        }
    }
}

/* items: dim. dgain, dbias, dy, x, mean, rstd, rows */
static HOST_WIDE void layernorm_bwd_p(const union kernel_arg *a, int64_t n) {
    int64_t rows = a[6].i;
    float *restrict dg = F(0), *restrict db = F(1);
    for (int64_t j = 0; j < n; j++) dg[j] = db[j] = 0.0f;
    for (int64_t r = 0; r < rows; r++) {
        const float *dy = F(2) + r * n, *x = F(3) + r * n;
        float mean = F(4)[r], rstd = F(5)[r];
        for (int64_t j = 0; j < n; j++) {
            dg[j] = dg[j] + dy[j] * ((x[j] - mean) * rstd);
            db[j] = db[j] + dy[j];
        }
    }
}

/* items: rows. y (added to), bias, cols */
static HOST_WIDE void bias_add(const union kernel_arg *a, int64_t n) {
    int64_t cols = a[2].i;
    for (int64_t r = 0; r < n; r++)
        for (int64_t j = 0; j < cols; j++) F(0)[r * cols + j] = F(0)[r * cols + j] + F(1)[j];
}

/* items: cols. dbias, dy, rows */
static HOST_WIDE void bias_bwd(const union kernel_arg *a, int64_t n) {
    float *restrict d = F(0);
    const float *restrict dy = F(1);
    for (int64_t j = 0; j < n; j++) d[j] = 0.0f;
    for (int64_t r = 0; r < a[2].i; r++)
        for (int64_t j = 0; j < n; j++) d[j] = d[j] + dy[r * n + j];
}

/* Attention: qkv[rows][3 * heads * dh] with q, k, v side by side; item = (sequence, head, query). */
struct att {
    int64_t ctx, heads, dh, width; /* width of a qkv row */
};
static int64_t att_row(const struct att *t, int64_t item) {
    return item / (t->heads * t->ctx) * t->ctx + item % t->ctx;
}
static int64_t att_head(const struct att *t, int64_t item) { return item / t->ctx % t->heads; }

/* items: batch*heads*ctx. out[rows][heads*dh], p[items][ctx], qkv, ctx, heads, dh, scale */
static HOST_WIDE void attention_fwd(const union kernel_arg *a, int64_t n) {
    struct att t = {a[3].i, a[4].i, a[5].i, 3 * a[4].i * a[5].i};
    for (int64_t i = 0; i < n; i++) {
        int64_t row = att_row(&t, i), first = row - row % t.ctx, last = row % t.ctx;
        int64_t head = att_head(&t, i) * t.dh, k_at = t.heads * t.dh + head;
        const float *q = F(2) + row * t.width + head;
        float *p = F(1) + i * t.ctx, top = 0.0f, sum = 0.0f;
        for (int64_t j = 0; j <= last; j++) {
            const float *k = F(2) + (first + j) * t.width + k_at;
            float s = 0.0f;
            for (int64_t d = 0; d < t.dh; d++) s = s + q[d] * k[d];
            p[j] = s * a[6].f;
            if (j == 0 || p[j] > top) top = p[j];
        }
        for (int64_t j = 0; j <= last; j++) p[j] = num_exp(p[j] - top);
        for (int64_t j = 0; j <= last; j++) sum = sum + p[j];
        float *out = F(0) + row * t.heads * t.dh + head;
        for (int64_t d = 0; d < t.dh; d++) out[d] = 0.0f;
        for (int64_t j = 0; j <= last; j++) {
            p[j] = p[j] / sum;
            const float *v = F(2) + (first + j) * t.width + 2 * t.heads * t.dh + head;
            for (int64_t d = 0; d < t.dh; d++) out[d] = out[d] + p[j] * v[d];
        }
        for (int64_t j = last + 1; j < t.ctx; j++) p[j] = 0.0f;
    }
}

/* items: batch*heads*ctx. dqkv (q part), ds[items][ctx], dout, p, qkv, ctx, heads, dh, scale */
static HOST_WIDE void attention_bwd_q(const union kernel_arg *a, int64_t n) {
    struct att t = {a[5].i, a[6].i, a[7].i, 3 * a[6].i * a[7].i};
    for (int64_t i = 0; i < n; i++) {
        int64_t row = att_row(&t, i), first = row - row % t.ctx, last = row % t.ctx;
        int64_t head = att_head(&t, i) * t.dh;
        const float *dout = F(2) + row * t.heads * t.dh + head, *p = F(3) + i * t.ctx;
        float *ds = F(1) + i * t.ctx, sum = 0.0f;
        for (int64_t j = 0; j <= last; j++) {
            const float *v = F(4) + (first + j) * t.width + 2 * t.heads * t.dh + head;
            float s = 0.0f;
            for (int64_t d = 0; d < t.dh; d++) s = s + dout[d] * v[d];
            ds[j] = s;
            sum = sum + s * p[j];
        }
        float *dq = F(0) + row * t.width + head;
        for (int64_t d = 0; d < t.dh; d++) dq[d] = 0.0f;
        for (int64_t j = 0; j <= last; j++) {
            const float *k = F(4) + (first + j) * t.width + t.heads * t.dh + head;
            ds[j] = p[j] * (ds[j] - sum) * a[8].f;
            for (int64_t d = 0; d < t.dh; d++) dq[d] = dq[d] + ds[j] * k[d];
        }
    }
}

/* items: batch*heads*ctx (here the key). dqkv (k and v parts), ds, dout, p, qkv, ctx, heads, dh */
static HOST_WIDE void attention_bwd_kv(const union kernel_arg *a, int64_t n) {
    struct att t = {a[5].i, a[6].i, a[7].i, 3 * a[6].i * a[7].i};
    for (int64_t i = 0; i < n; i++) {
        int64_t row = att_row(&t, i), key = row % t.ctx, first = row - key;
        int64_t head = att_head(&t, i) * t.dh;
        float *dk = F(0) + row * t.width + t.heads * t.dh + head, *dv = dk + t.heads * t.dh;
        for (int64_t d = 0; d < t.dh; d++) dk[d] = dv[d] = 0.0f;
        for (int64_t q = key; q < t.ctx; q++) {
            int64_t item = i - key + q;
            float ds = F(1)[item * t.ctx + key], p = F(3)[item * t.ctx + key];
            const float *qv = F(4) + (first + q) * t.width + head;
            const float *dout = F(2) + (first + q) * t.heads * t.dh + head;
            for (int64_t d = 0; d < t.dh; d++) {
                dk[d] = dk[d] + ds * qv[d];
                dv[d] = dv[d] + p * dout[d];
            }
        }
    }
}

/* items: elements. y, x (tanh form) */
static HOST_WIDE void gelu_fwd(const union kernel_arg *a, int64_t n) {
    float *restrict y = F(0);
    const float *restrict x = F(1);
    for (int64_t i = 0; i < n; i++) {
        float u = 0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        y[i] = 0.5f * x[i] * (1.0f + num_tanh(u));
    }
}

/* items: elements. dx (times gelu'(x), in place), x */
static HOST_WIDE void gelu_bwd(const union kernel_arg *a, int64_t n) {
    float *restrict dx = F(0);
    const float *restrict x = F(1);
    for (int64_t i = 0; i < n; i++) {
        float t = num_tanh(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i]));
        float du = 0.79788456f * (1.0f + 0.134145f * x[i] * x[i]);
        dx[i] = dx[i] * (0.5f * (1.0f + t) + 0.5f * x[i] * (1.0f - t * t) * du);
    }
}

/* items: elements. y (added to), x */
static HOST_WIDE void add(const union kernel_arg *a, int64_t n) {
    float *restrict y = F(0);
    const float *restrict x = F(1);
    for (int64_t i = 0; i < n; i++) y[i] = y[i] + x[i];
}

/* items: elements. y (times s), s */
static HOST_WIDE void scale(const union kernel_arg *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) F(0)[i] = F(0)[i] * a[1].f;
}

/* items: rows. loss[rows], logits (becomes its gradient), targets, vocab, weight */
static HOST_WIDE void softmax_xent(const union kernel_arg *a, int64_t n) {
    int64_t vocab = a[3].i;
    for (int64_t r = 0; r < n; r++) {
        float *x = F(1) + r * vocab, top = x[0], sum = 0.0f;
        int32_t want = I32(2)[r];
        for (int64_t j = 1; j < vocab; j++)
            if (x[j] > top) top = x[j];
        float at = x[want] - top;
        for (int64_t j = 0; j < vocab; j++) x[j] = num_exp(x[j] - top);
        for (int64_t j = 0; j < vocab; j++) sum = sum + x[j];
        F(0)[r] = num_log(sum) - at;
        for (int64_t j = 0; j < vocab; j++) x[j] = (x[j] / sum - (j == want ? 1.0f : 0.0f)) * a[4].f;
    }
}

/* items: elements. p, grad, m, v, lr, b1, b2, 1/(1-b1^t), 1/(1-b2^t), decay */
static HOST_WIDE void adamw(const union kernel_arg *a, int64_t n) {
    float *restrict p = F(0), *restrict m = F(2), *restrict v = F(3);
    const float *restrict g = F(1);
    float lr = a[4].f, b1 = a[5].f, b2 = a[6].f, c1 = a[7].f, c2 = a[8].f, decay = a[9].f;
    for (int64_t i = 0; i < n; i++) {
        m[i] = b1 * m[i] + (1.0f - b1) * g[i];
        v[i] = b2 * v[i] + (1.0f - b2) * (g[i] * g[i]);
        float step = (m[i] * c1) / (num_sqrt(v[i] * c2) + 1e-8f);
        p[i] = p[i] - lr * (step + decay * p[i]);
    }
}

const struct host_kernel host_kernels[] = {
    {"embed_fwd", 6, embed_fwd},
    {"embed_bwd_tok", 5, embed_bwd_tok},
    {"embed_bwd_pos", 4, embed_bwd_pos},
    {"layernorm_fwd", 7, layernorm_fwd},
    {"layernorm_bwd_x", 7, layernorm_bwd_x},
    {"layernorm_bwd_p", 7, layernorm_bwd_p},
    {"bias_add", 3, bias_add},
    {"bias_bwd", 3, bias_bwd},
    {"attention_fwd", 7, attention_fwd},
    {"attention_bwd_q", 9, attention_bwd_q},
    {"attention_bwd_kv", 8, attention_bwd_kv},
    {"gelu_fwd", 2, gelu_fwd},
    {"gelu_bwd", 2, gelu_bwd},
    {"add", 2, add},
    {"scale", 2, scale},
    {"softmax_xent", 5, softmax_xent},
    {"adamw", 10, adamw},
#define HOST_MIXED_ROW(name, n) {#name, n, host_##name},
    HOST_MIXED(HOST_MIXED_ROW){.name = NULL},
};

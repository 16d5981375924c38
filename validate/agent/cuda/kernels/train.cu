/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of train.ddp in fp32 (host_kernels.c has the same in plain C): one item per row, column or
 * element, every sum in the host's order, no atomics, so that the bits are the host's. For the small model that is
 * compared bit for bit; the fast kernels are in train_mixed.cu. */
#include "kportable.h"

#define NUM_FUNC KFUNC
#include "../../device/numeric.h"

/* items: rows */
KERNEL(embed_fwd, float *out, const int *tokens, const float *tok, const float *pos, ki64 dim, ki64 ctx) {
    KITEMS (r)
        for (ki64 j = 0; j < dim; j++) out[r * dim + j] = tok[tokens[r] * dim + j] + pos[r % ctx * dim + j];
}

/* items: vocab */
KERNEL(embed_bwd_tok, float *dtok, const float *dx, const int *tokens, ki64 rows, ki64 dim) {
    KITEMS (v) {
        for (ki64 j = 0; j < dim; j++) dtok[v * dim + j] = 0.0f;
        for (ki64 r = 0; r < rows; r++)
            for (ki64 j = 0; j < dim && tokens[r] == v; j++) dtok[v * dim + j] = dtok[v * dim + j] + dx[r * dim + j];
    }
}

/* items: ctx */
KERNEL(embed_bwd_pos, float *dpos, const float *dx, ki64 rows, ki64 dim) {
    KITEMS (t)
        for (ki64 j = 0; j < dim; j++) {
            float sum = 0.0f;
            for (ki64 r = t; r < rows; r += n) sum = sum + dx[r * dim + j];
            dpos[t * dim + j] = sum;
        }
}

/* items: rows */
KERNEL(layernorm_fwd, float *y, float *mean_out, float *rstd_out, const float *x_all, const float *gain,
       const float *bias, ki64 dim) {
    KITEMS (r) {
        const float *x = x_all + r * dim;
        float sum = 0.0f, var = 0.0f;
        for (ki64 j = 0; j < dim; j++) sum = sum + x[j];
        float mean = sum / (float)dim;
        for (ki64 j = 0; j < dim; j++) var = var + (x[j] - mean) * (x[j] - mean);
        float rstd = 1.0f / num_sqrt(var / (float)dim + 1e-5f);
        for (ki64 j = 0; j < dim; j++) y[r * dim + j] = (x[j] - mean) * rstd * gain[j] + bias[j];
        mean_out[r] = mean;
        rstd_out[r] = rstd;
    }
}

/* items: rows. dx is added to */
KERNEL(layernorm_bwd_x, float *dx, const float *dy_all, const float *x_all, const float *means, const float *rstds,
       const float *gain, ki64 dim) {
    KITEMS (r) {
        const float *dy = dy_all + r * dim, *x = x_all + r * dim;
        float mean = means[r], rstd = rstds[r], s1 = 0.0f, s2 = 0.0f;
        for (ki64 j = 0; j < dim; j++) {
            float g = dy[j] * gain[j];
            s1 = s1 + g;
            s2 = s2 + g * ((x[j] - mean) * rstd);
        }
        s1 = s1 / (float)dim;
        s2 = s2 / (float)dim;
        for (ki64 j = 0; j < dim; j++) {
            float xh = (x[j] - mean) * rstd;
            dx[r * dim + j] = dx[r * dim + j] + rstd * ((dy[j] * gain[j] - s1) - xh * s2);
        }
    }
}

/* items: dim */
KERNEL(layernorm_bwd_p, float *dgain, float *dbias, const float *dy, const float *x, const float *mean,
       const float *rstd, ki64 rows) {
    KITEMS (j) {
        float dg = 0.0f, db = 0.0f;
        for (ki64 r = 0; r < rows; r++) {
            dg = dg + dy[r * n + j] * ((x[r * n + j] - mean[r]) * rstd[r]);
            db = db + dy[r * n + j];
        }
        dgain[j] = dg;
        dbias[j] = db;
    }
}

/* items: rows */
KERNEL(bias_add, float *y, const float *bias, ki64 cols) {
    KITEMS (r)
        for (ki64 j = 0; j < cols; j++) y[r * cols + j] = y[r * cols + j] + bias[j];
}

/* items: cols */
KERNEL(bias_bwd, float *dbias, const float *dy, ki64 rows) {
    KITEMS (j) {
        float sum = 0.0f;
        for (ki64 r = 0; r < rows; r++) sum = sum + dy[r * n + j];
        dbias[j] = sum;
    }
}

/* Attention: qkv[rows][3 * heads * dh] with q, k, v side by side; an item is (sequence, head, query or
 * key); p and ds have ctx columns per item. */
struct katt {
    ki64 row, at, first, head; /* of the item: its row, its place in the sequence, the sequence's first */
};
KFUNC struct katt att_item(ki64 i, ki64 ctx, ki64 heads, ki64 dh) {
    struct katt a;
    a.at = i % ctx;
    a.first = i / (heads * ctx) * ctx;
    a.row = a.first + a.at;
    a.head = i / ctx % heads * dh;
    return a;
}

KERNEL(attention_fwd, float *out_all, float *p_all, const float *qkv, ki64 ctx, ki64 heads, ki64 dh, float scale) {
    KITEMS (i) {
        struct katt a = att_item(i, ctx, heads, dh);
        ki64 dim = heads * dh, width = 3 * dim;
        const float *q = qkv + a.row * width + a.head;
        float *p = p_all + i * ctx, *out = out_all + a.row * dim + a.head, top = 0.0f, sum = 0.0f;
        for (ki64 j = 0; j <= a.at; j++) {
            const float *k = qkv + (a.first + j) * width + dim + a.head;
            float s = 0.0f;
            for (ki64 d = 0; d < dh; d++) s = s + q[d] * k[d];
            p[j] = s * scale;
            if (j == 0 || p[j] > top) top = p[j];
        }
        for (ki64 j = 0; j <= a.at; j++) {
            p[j] = num_exp(p[j] - top);
            sum = sum + p[j];
        }
        for (ki64 d = 0; d < dh; d++) out[d] = 0.0f;
        for (ki64 j = 0; j <= a.at; j++) {
            const float *v = qkv + (a.first + j) * width + 2 * dim + a.head;
            p[j] = p[j] / sum;
            for (ki64 d = 0; d < dh; d++) out[d] = out[d] + p[j] * v[d];
        }
        for (ki64 j = a.at + 1; j < ctx; j++) p[j] = 0.0f;
    }
}

KERNEL(attention_bwd_q, float *dqkv, float *ds_all, const float *dout_all, const float *p_all, const float *qkv,
       ki64 ctx, ki64 heads, ki64 dh, float scale) {
    KITEMS (i) {
        struct katt a = att_item(i, ctx, heads, dh);
        ki64 dim = heads * dh, width = 3 * dim;
        const float *dout = dout_all + a.row * dim + a.head, *p = p_all + i * ctx;
        float *ds = ds_all + i * ctx, *dq = dqkv + a.row * width + a.head, sum = 0.0f;
        for (ki64 j = 0; j <= a.at; j++) {
            const float *v = qkv + (a.first + j) * width + 2 * dim + a.head;
            float s = 0.0f;
            for (ki64 d = 0; d < dh; d++) s = s + dout[d] * v[d];
            ds[j] = s;
            sum = sum + s * p[j];
        }
        for (ki64 d = 0; d < dh; d++) dq[d] = 0.0f;
        for (ki64 j = 0; j <= a.at; j++) {
            const float *k = qkv + (a.first + j) * width + dim + a.head;
            ds[j] = p[j] * (ds[j] - sum) * scale;
            for (ki64 d = 0; d < dh; d++) dq[d] = dq[d] + ds[j] * k[d];
        }
    }
}

KERNEL(attention_bwd_kv, float *dqkv, const float *ds_all, const float *dout_all, const float *p_all, const float *qkv,
       ki64 ctx, ki64 heads, ki64 dh) {
    KITEMS (i) {
        struct katt a = att_item(i, ctx, heads, dh); /* at: the key */
        ki64 dim = heads * dh, width = 3 * dim;
        float *dk = dqkv + a.row * width + dim + a.head, *dv = dk + dim;
        for (ki64 d = 0; d < dh; d++) dk[d] = dv[d] = 0.0f;
        for (ki64 q = a.at; q < ctx; q++) {
            ki64 item = i - a.at + q;
            float ds = ds_all[item * ctx + a.at], p = p_all[item * ctx + a.at];
            const float *qv = qkv + (a.first + q) * width + a.head;
            const float *dout = dout_all + (a.first + q) * dim + a.head;
            for (ki64 d = 0; d < dh; d++) {
                dk[d] = dk[d] + ds * qv[d];
                dv[d] = dv[d] + p * dout[d];
            }
        }
    }
}

/* items of these four: elements */
KERNEL(gelu_fwd, float *y, const float *x) {
    KITEMS (i) {
        float u = 0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        y[i] = 0.5f * x[i] * (1.0f + num_tanh(u));
    }
}

KERNEL(gelu_bwd, float *dx, const float *x) {
    KITEMS (i) {
        float t = num_tanh(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i]));
        float du = 0.79788456f * (1.0f + 0.134145f * x[i] * x[i]);
        dx[i] = dx[i] * (0.5f * (1.0f + t) + 0.5f * x[i] * (1.0f - t * t) * du);
    }
}

KERNEL(add, float *y, const float *x) {
    KITEMS (i) y[i] = y[i] + x[i];
}

KERNEL(scale, float *y, float s) {
    KITEMS (i) y[i] = y[i] * s;
}

/* items: rows. logits becomes its gradient */
KERNEL(softmax_xent, float *loss, float *logits, const int *targets, ki64 vocab, float weight) {
    KITEMS (r) {
        float *x = logits + r * vocab, top = x[0], sum = 0.0f;
        int want = targets[r];
        for (ki64 j = 1; j < vocab; j++)
            if (x[j] > top) top = x[j];
        float at = x[want] - top;
        for (ki64 j = 0; j < vocab; j++) {
            x[j] = num_exp(x[j] - top);
            sum = sum + x[j];
        }
        loss[r] = num_log(sum) - at;
        for (ki64 j = 0; j < vocab; j++) x[j] = (x[j] / sum - (j == want ? 1.0f : 0.0f)) * weight;
    }
}

/* items: elements. c1, c2: 1/(1-b1^t), 1/(1-b2^t) */
KERNEL(adamw, float *p, const float *g, float *m, float *v, float lr, float b1, float b2, float c1, float c2,
       float decay) {
    KITEMS (i) {
        m[i] = b1 * m[i] + (1.0f - b1) * g[i];
        v[i] = b2 * v[i] + (1.0f - b2) * (g[i] * g[i]);
        float step = (m[i] * c1) / (num_sqrt(v[i] * c2) + 1e-8f);
        p[i] = p[i] - lr * (step + decay * p[i]);
    }
}

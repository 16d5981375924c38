/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of train.ddp in bf16 and fp16 beside matrix products: activations are 16-bit patterns
 * (bf != 0: bf16, else fp16), everything is computed and summed in fp32, the residual stream stays fp32.
 * One pass over memory per kernel, 16 bytes of 16-bit values per thread. No atomics; each sum has one
 * order (host_mixed.c has the same): a row's by 128 lanes, each over its own groups of eight, then a
 * warp by halves, then warp by warp; a column's by chunks of rows, then chunk by chunk. Widths are
 * multiples of eight.
 * Kernels with "blocks" in their comment do one row per block, with 128 threads in each. */
#include "kportable.h"

#define NUM_FUNC KFUNC
#include "../../device/numeric.h"

#define LANES 128
#define MX_ROWS(r) for (ki64 r = KBLOCK; r < n; r += KBLOCKS)
/* Over all lanes of K(name): each warp's, then warp by warp. at: four places of `part` of its own. */
#define MX_ALL(warp, name, at)                              \
    warp(name);                                             \
    KTHREADS {                                              \
        if (tid % 32 == 0) part[(at) + tid / 32] = K(name); \
    }                                                       \
    KSYNC
#define MX_SUM(name, at) MX_ALL(KWARP_SUM, name, at)
#define MX_MAX(name, at) MX_ALL(KWARP_MAX, name, at)
#define MX_SUMMED(at) (((part[at] + part[(at) + 1]) + part[(at) + 2]) + part[(at) + 3])
#define MX_LARGEST(at) K_MAX2(K_MAX2(part[at], part[(at) + 1]), K_MAX2(part[(at) + 2], part[(at) + 3]))

struct KALIGNED(16) mx_half8 {
    unsigned w[4];
};
struct mx_float8 {
    struct mx_half8 half[2]; /* as bits */
};
struct mx8 {
    float v[8];
};

KFUNC float mx_up(uint32_t h, ki64 bf) { return bf ? num_from_bf16((uint16_t)h) : num_from_f16((uint16_t)h); }
KFUNC uint32_t mx_down(float x, ki64 bf) { return bf ? num_to_bf16(x) : num_to_f16(x); }
/* i: which group of eight */
KFUNC struct mx8 mx_load16(const void *p, ki64 i, ki64 bf) {
    struct mx_half8 h = ((const struct mx_half8 *)p)[i];
    struct mx8 r;
    for (int e = 0; e < 4; e++) {
        r.v[2 * e] = mx_up(h.w[e] & 0xffffu, bf);
        r.v[2 * e + 1] = mx_up(h.w[e] >> 16, bf);
    }
    return r;
}
KFUNC void mx_store16(void *p, ki64 i, struct mx8 r, ki64 bf) {
    struct mx_half8 h;
    for (int e = 0; e < 4; e++) h.w[e] = mx_down(r.v[2 * e], bf) | mx_down(r.v[2 * e + 1], bf) << 16;
    ((struct mx_half8 *)p)[i] = h;
}
KFUNC struct mx8 mx_load(const float *p, ki64 i) {
    struct mx_half8 a = ((const struct mx_half8 *)p)[2 * i], b = ((const struct mx_half8 *)p)[2 * i + 1];
    struct mx8 r;
    for (int e = 0; e < 4; e++) {
        r.v[e] = num_from_bits(a.w[e]);
        r.v[4 + e] = num_from_bits(b.w[e]);
    }
    return r;
}
KFUNC void mx_store(float *p, ki64 i, struct mx8 r) {
    struct mx_half8 a, b;
    for (int e = 0; e < 4; e++) {
        a.w[e] = num_bits(r.v[e]);
        b.w[e] = num_bits(r.v[4 + e]);
    }
    ((struct mx_half8 *)p)[2 * i] = a;
    ((struct mx_half8 *)p)[2 * i + 1] = b;
}

/* items: elements / 8. The 16-bit copy of the weights. */
KERNEL(mx_cast, void *out, const float *in, ki64 bf) {
    KITEMS (i) mx_store16(out, i, mx_load(in, i), bf);
}

/* items: rows * dim / 8 */
KERNEL(mx_embed, float *x, const int *tokens, const float *tok, const float *pos, ki64 dim, ki64 ctx) {
    KITEMS (i) {
        ki64 g = dim / 8, r = i / g, j = i % g;
        struct mx8 t = mx_load(tok, tokens[r] * g + j), p = mx_load(pos, r % ctx * g + j);
        for (int e = 0; e < 8; e++) t.v[e] = t.v[e] + p.v[e];
        mx_store(x, i, t);
    }
}

/* blocks: rows. With o: xout = x + (o + obias), else xout is x itself (and not written); y = norm(xout). */
KBLOCK_KERNEL(mx_add_norm, LANES, void *y, float *xout, float *mean_out, float *rstd_out, const float *x, const void *o,
              const float *obias, const float *gain, const float *bias, ki64 dim, ki64 bf) {
    KSHARED(float, part, 8);
    KLOCAL(float, one);
    KLOCAL(float, two);
    MX_ROWS (r) {
        ki64 g = dim / 8, at = r * g;
        const float *in = o ? xout : x;
        KTHREADS {
            float sum = 0.0f;
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 v = mx_load(x, at + c);
                if (o) {
                    struct mx8 a = mx_load16(o, at + c, bf), b = mx_load(obias, c);
                    for (int e = 0; e < 8; e++) v.v[e] = v.v[e] + (a.v[e] + b.v[e]);
                    mx_store(xout, at + c, v);
                }
                for (int e = 0; e < 8; e++) sum = sum + v.v[e];
            }
            K(one) = sum;
        }
        MX_SUM(one, 0);
        float mean = MX_SUMMED(0) / (float)dim;
        KTHREADS {
            float sum = 0.0f;
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 v = mx_load(in, at + c);
                for (int e = 0; e < 8; e++) sum = sum + (v.v[e] - mean) * (v.v[e] - mean);
            }
            K(two) = sum;
        }
        MX_SUM(two, 4);
        float rstd = 1.0f / num_sqrt(MX_SUMMED(4) / (float)dim + 1e-5f);
        KTHREADS {
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 v = mx_load(in, at + c), a = mx_load(gain, c), b = mx_load(bias, c);
                for (int e = 0; e < 8; e++) v.v[e] = (v.v[e] - mean) * rstd * a.v[e] + b.v[e];
                mx_store16(y, at + c, v, bf);
            }
            if (tid == 0) {
                mean_out[r] = mean;
                rstd_out[r] = rstd;
            }
        }
        KSYNC;
    }
}

/* blocks: rows. dx = (first ? 0 : dx) + the gradient through the norm; dx16: the same, rounded. */
KBLOCK_KERNEL(mx_norm_bwd, LANES, float *dx, void *dx16, const void *dy, const float *x, const float *mean_in,
              const float *rstd_in, const float *gain, ki64 dim, ki64 first, ki64 bf) {
    KSHARED(float, part, 8);
    KLOCAL(float, sum1);
    KLOCAL(float, sum2);
    MX_ROWS (r) {
        ki64 g = dim / 8, at = r * g;
        float mean = mean_in[r], rstd = rstd_in[r];
        KTHREADS {
            float s1 = 0.0f, s2 = 0.0f;
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 d = mx_load16(dy, at + c, bf), v = mx_load(x, at + c), a = mx_load(gain, c);
                for (int e = 0; e < 8; e++) {
                    float t = d.v[e] * a.v[e];
                    s1 = s1 + t;
                    s2 = s2 + t * ((v.v[e] - mean) * rstd);
                }
            }
            K(sum1) = s1;
            K(sum2) = s2;
        }
        MX_SUM(sum1, 0);
        MX_SUM(sum2, 4);
        float s1 = MX_SUMMED(0) / (float)dim, s2 = MX_SUMMED(4) / (float)dim;
        KTHREADS {
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 d = mx_load16(dy, at + c, bf), v = mx_load(x, at + c), a = mx_load(gain, c), was;
                if (!first) was = mx_load(dx, at + c);
                for (int e = 0; e < 8; e++) {
                    float xh = (v.v[e] - mean) * rstd;
                    float t = rstd * ((d.v[e] * a.v[e] - s1) - xh * s2);
                    d.v[e] = first ? t : was.v[e] + t;
                }
                mx_store(dx, at + c, d);
                mx_store16(dx16, at + c, d, bf);
            }
        }
        KSYNC;
    }
}

/* items: chunks * dim / 8. part[chunk][2 * dim]: sums over the chunk's rows of dy * xhat, and of dy. */
KERNEL(mx_norm_bwd_p, float *part, const void *dy, const float *x, const float *mean, const float *rstd, ki64 rows,
       ki64 dim, ki64 chunk, ki64 bf) {
    KITEMS (i) {
        ki64 g = dim / 8, c = i / g, j = i % g, end = (c + 1) * chunk < rows ? (c + 1) * chunk : rows;
        struct mx8 dg, db;
        for (int e = 0; e < 8; e++) dg.v[e] = db.v[e] = 0.0f;
        for (ki64 r = c * chunk; r < end; r++) {
            struct mx8 d = mx_load16(dy, r * g + j, bf), v = mx_load(x, r * g + j);
            for (int e = 0; e < 8; e++) {
                dg.v[e] = dg.v[e] + d.v[e] * ((v.v[e] - mean[r]) * rstd[r]);
                db.v[e] = db.v[e] + d.v[e];
            }
        }
        mx_store(part, 2 * c * g + j, dg);
        mx_store(part, (2 * c + 1) * g + j, db);
    }
}

/* items: chunks * cols / 8. part[chunk][cols]: sums of d over the chunk's rows. */
KERNEL(mx_colsum, float *part, const void *d, ki64 rows, ki64 cols, ki64 chunk, ki64 bf) {
    KITEMS (i) {
        ki64 g = cols / 8, c = i / g, j = i % g, end = (c + 1) * chunk < rows ? (c + 1) * chunk : rows;
        struct mx8 sum;
        for (int e = 0; e < 8; e++) sum.v[e] = 0.0f;
        for (ki64 r = c * chunk; r < end; r++) {
            struct mx8 v = mx_load16(d, r * g + j, bf);
            for (int e = 0; e < 8; e++) sum.v[e] = sum.v[e] + v.v[e];
        }
        mx_store(part, i, sum);
    }
}

/* items: columns. out (added to, or set) the sum of `parts` values, `stride` elements apart. */
KERNEL(mx_sum_parts, float *out, const float *part, ki64 parts, ki64 stride, ki64 add) {
    KITEMS (j) {
        float sum = 0.0f;
        for (ki64 c = 0; c < parts; c++) sum = sum + part[c * stride + j];
        out[j] = add ? out[j] + sum : sum;
    }
}

/* items: rows * 3 * dim / 8 of the output [q, k, v][sequence][head][position][dh]. */
KERNEL(mx_qkv_split, void *out, const void *in, const float *bias, ki64 rows, ki64 ctx, ki64 heads, ki64 dh, ki64 bf) {
    KITEMS (i) {
        ki64 g = dh / 8, width = 3 * heads * g, j = i % g, t = i / g % ctx, h = i / (g * ctx) % heads;
        ki64 s = i / (g * ctx * heads) % (rows / ctx), which = i / (g * heads * rows);
        ki64 col = (which * heads + h) * g + j;
        struct mx8 v = mx_load16(in, (s * ctx + t) * width + col, bf), b = mx_load(bias, col);
        for (int e = 0; e < 8; e++) v.v[e] = v.v[e] + b.v[e];
        mx_store16(out, i, v, bf);
    }
}

/* items: rows * 3 * dim / 8 of the output [row][q, k, v][head][dh]: the backward pass, without the bias. */
KERNEL(mx_qkv_merge, struct mx_half8 *out, const struct mx_half8 *in, ki64 rows, ki64 ctx, ki64 heads, ki64 dh) {
    KITEMS (i) {
        ki64 g = dh / 8, width = 3 * heads * g, j = i % g, h = i / g % heads, which = i / (g * heads) % 3;
        ki64 r = i / width;
        out[i] = in[((which * (rows / ctx) + r / ctx) * heads + h) * ctx * g + r % ctx * g + j];
    }
}

/* items: rows * dim / 8 of the output. [sequence][head][position][dh] to [row][head][dh], and back */
KERNEL(mx_heads_merge, struct mx_half8 *out, const struct mx_half8 *in, ki64 ctx, ki64 heads, ki64 dh) {
    KITEMS (i) {
        ki64 g = dh / 8, j = i % g, h = i / g % heads, r = i / (g * heads);
        out[i] = in[((r / ctx * heads + h) * ctx + r % ctx) * g + j];
    }
}

KERNEL(mx_heads_split, struct mx_half8 *out, const struct mx_half8 *in, ki64 ctx, ki64 heads, ki64 dh) {
    KITEMS (i) {
        ki64 g = dh / 8, j = i % g, t = i / g % ctx, h = i / (g * ctx) % heads, s = i / (g * ctx * heads);
        out[i] = in[((s * ctx + t) * heads + h) * g + j];
    }
}

/* blocks: sequences * heads * ctx. s[row][ctx] becomes its causal softmax: row r sees r % ctx + 1. */
KBLOCK_KERNEL(mx_softmax, LANES, void *s, ki64 ctx, float scale, ki64 bf) {
    KSHARED(float, part, 8);
    KLOCAL(float, one);
    KLOCAL(float, two);
    MX_ROWS (r) {
        ki64 g = ctx / 8, at = r * g, last = r % ctx;
        KTHREADS {
            float top = -3.0e38f;
            for (ki64 c = tid; c * 8 <= last; c += LANES) {
                struct mx8 v = mx_load16(s, at + c, bf);
                for (int e = 0; e < 8; e++)
                    if (c * 8 + e <= last && v.v[e] * scale > top) top = v.v[e] * scale;
            }
            K(one) = top;
        }
        MX_MAX(one, 0);
        float top = MX_LARGEST(0);
        KTHREADS {
            float sum = 0.0f;
            for (ki64 c = tid; c * 8 <= last; c += LANES) {
                struct mx8 v = mx_load16(s, at + c, bf);
                for (int e = 0; e < 8; e++)
                    if (c * 8 + e <= last) sum = sum + num_exp(v.v[e] * scale - top);
            }
            K(two) = sum;
        }
        MX_SUM(two, 4);
        float of = 1.0f / MX_SUMMED(4);
        KTHREADS {
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 v;
                if (c * 8 <= last) v = mx_load16(s, at + c, bf);
                for (int e = 0; e < 8; e++) v.v[e] = c * 8 + e <= last ? num_exp(v.v[e] * scale - top) * of : 0.0f;
                mx_store16(s, at + c, v, bf);
            }
        }
        KSYNC;
    }
}

/* blocks: sequences * heads * ctx. dp becomes ds = p * (dp - sum(dp * p)) * scale */
KBLOCK_KERNEL(mx_softmax_bwd, LANES, void *dp, const void *p, ki64 ctx, float scale, ki64 bf) {
    KSHARED(float, part, 4);
    KLOCAL(float, one);
    MX_ROWS (r) {
        ki64 g = ctx / 8, at = r * g;
        KTHREADS {
            float sum = 0.0f;
            for (ki64 c = tid; c * 8 <= r % ctx; c += LANES) {
                struct mx8 d = mx_load16(dp, at + c, bf), q = mx_load16(p, at + c, bf);
                for (int e = 0; e < 8; e++)
                    if (c * 8 + e <= r % ctx) sum = sum + d.v[e] * q.v[e];
            }
            K(one) = sum;
        }
        MX_SUM(one, 0);
        float sum = MX_SUMMED(0);
        KTHREADS {
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 d, q;
                if (c * 8 <= r % ctx) {
                    d = mx_load16(dp, at + c, bf);
                    q = mx_load16(p, at + c, bf);
                }
                for (int e = 0; e < 8; e++) d.v[e] = c * 8 + e <= r % ctx ? q.v[e] * (d.v[e] - sum) * scale : 0.0f;
                mx_store16(dp, at + c, d, bf);
            }
        }
        KSYNC;
    }
}

/* items: rows * cols / 8. y = gelu(x + bias), tanh form */
KERNEL(mx_bias_gelu, void *y, const void *x, const float *bias, ki64 cols, ki64 bf) {
    KITEMS (i) {
        struct mx8 v = mx_load16(x, i, bf), b = mx_load(bias, i % (cols / 8));
        for (int e = 0; e < 8; e++) {
            float a = v.v[e] + b.v[e];
            v.v[e] = 0.5f * a * (1.0f + num_tanh(0.79788456f * (a + 0.044715f * a * a * a)));
        }
        mx_store16(y, i, v, bf);
    }
}

/* items: rows * cols / 8. d (times gelu'(x + bias), in place) */
KERNEL(mx_gelu_bwd, void *d, const void *x, const float *bias, ki64 cols, ki64 bf) {
    KITEMS (i) {
        struct mx8 v = mx_load16(x, i, bf), b = mx_load(bias, i % (cols / 8)), dy = mx_load16(d, i, bf);
        for (int e = 0; e < 8; e++) {
            float a = v.v[e] + b.v[e];
            float t = num_tanh(0.79788456f * (a + 0.044715f * a * a * a));
            float du = 0.79788456f * (1.0f + 0.134145f * a * a);
            v.v[e] = dy.v[e] * (0.5f * (1.0f + t) + 0.5f * a * (1.0f - t * t) * du);
        }
        mx_store16(d, i, v, bf);
    }
}

/* blocks: rows. loss[row]; dlogits = (softmax(logits) - target) * weight */
KBLOCK_KERNEL(mx_xent, LANES, float *loss, void *dlogits, const float *logits, const int *targets, ki64 vocab,
              float weight, ki64 bf) {
    KSHARED(float, part, 8);
    KLOCAL(float, one);
    KLOCAL(float, two);
    MX_ROWS (r) {
        ki64 g = vocab / 8, at = r * g;
        KTHREADS {
            float top = -3.0e38f;
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 v = mx_load(logits, at + c);
                for (int e = 0; e < 8; e++)
                    if (v.v[e] > top) top = v.v[e];
            }
            K(one) = top;
        }
        MX_MAX(one, 0);
        float top = MX_LARGEST(0);
        KTHREADS {
            float sum = 0.0f;
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 v = mx_load(logits, at + c);
                for (int e = 0; e < 8; e++) sum = sum + num_exp(v.v[e] - top);
            }
            K(two) = sum;
        }
        MX_SUM(two, 4);
        float sum = MX_SUMMED(4), of = weight / sum;
        KTHREADS {
            for (ki64 c = tid; c < g; c += LANES) {
                struct mx8 v = mx_load(logits, at + c);
                for (int e = 0; e < 8; e++)
                    v.v[e] = num_exp(v.v[e] - top) * of - (c * 8 + e == targets[r] ? weight : 0.0f);
                mx_store16(dlogits, at + c, v, bf);
            }
            if (tid == 0) loss[r] = num_log(sum) - (logits[r * vocab + targets[r]] - top);
        }
        KSYNC;
    }
}

/* items: vocab * dim / 8. dtok (added to, or set) */
KERNEL(mx_embed_bwd_tok, float *dtok, const float *dx, const int *tokens, ki64 rows, ki64 dim, ki64 add) {
    KITEMS (i) {
        ki64 g = dim / 8, v = i / g, j = i % g;
        struct mx8 sum;
        for (int e = 0; e < 8; e++) sum.v[e] = 0.0f;
        for (ki64 r = 0; r < rows; r++) {
            if (tokens[r] != v) continue;
            struct mx8 d = mx_load(dx, r * g + j);
            for (int e = 0; e < 8; e++) sum.v[e] = sum.v[e] + d.v[e];
        }
        if (add) {
            struct mx8 was = mx_load(dtok, i);
            for (int e = 0; e < 8; e++) sum.v[e] = was.v[e] + sum.v[e];
        }
        mx_store(dtok, i, sum);
    }
}

/* items: ctx * dim / 8. dpos (added to, or set) */
KERNEL(mx_embed_bwd_pos, float *dpos, const float *dx, ki64 rows, ki64 dim, ki64 add) {
    KITEMS (i) {
        struct mx8 sum;
        for (int e = 0; e < 8; e++) sum.v[e] = 0.0f;
        for (ki64 at = i; at < rows * (dim / 8); at += n) {
            struct mx8 d = mx_load(dx, at);
            for (int e = 0; e < 8; e++) sum.v[e] = sum.v[e] + d.v[e];
        }
        if (add) {
            struct mx8 was = mx_load(dpos, i);
            for (int e = 0; e < 8; e++) sum.v[e] = was.v[e] + sum.v[e];
        }
        mx_store(dpos, i, sum);
    }
}

/* items: elements / 8. The step with g * gscale; w16: the new weights, rounded. */
KERNEL(mx_adamw, float *p, void *w16, const float *g, float *m, float *v, float lr, float b1, float b2, float c1,
       float c2, float decay, float gscale, ki64 bf) {
    KITEMS (i) {
        struct mx8 w = mx_load(p, i), d = mx_load(g, i), a = mx_load(m, i), b = mx_load(v, i);
        for (int e = 0; e < 8; e++) {
            float x = d.v[e] * gscale;
            a.v[e] = b1 * a.v[e] + (1.0f - b1) * x;
            b.v[e] = b2 * b.v[e] + (1.0f - b2) * (x * x);
            float step = (a.v[e] * c1) / (num_sqrt(b.v[e] * c2) + 1e-8f);
            w.v[e] = w.v[e] - lr * (step + decay * w.v[e]);
        }
        mx_store(p, i, w);
        mx_store(m, i, a);
        mx_store(v, i, b);
        mx_store16(w16, i, w, bf);
    }
}

/* blocks: any number; block r sums the squares of x's groups r, r + n, ... by tids. */
KBLOCK_KERNEL(mx_square_sum, LANES, float *out, const float *x, ki64 count) {
    KSHARED(float, part, 4);
    KLOCAL(float, one);
    MX_ROWS (r) {
        ki64 g = count / 8;
        KTHREADS {
            float sum = 0.0f;
            for (ki64 c = r * LANES + tid; c < g; c += n * LANES) {
                struct mx8 v = mx_load(x, c);
                for (int e = 0; e < 8; e++) sum = sum + v.v[e] * v.v[e];
            }
            K(one) = sum;
        }
        MX_SUM(one, 0);
        KTHREADS {
            if (tid == 0) out[r] = MX_SUMMED(0);
        }
        KSYNC;
    }
}

/* items: any number. The sum of out modulo 2^64 depends on every bit of every word and on its place,
 * and not on the number of items. */
KERNEL(mx_hash, ku64 *out, const unsigned *words, ki64 count) {
    KITEMS (i) {
        ku64 sum = 0;
        for (ki64 w = i; w < count; w += n) sum += num_mix((ku64)w << 32 | words[w]);
        out[i] = sum;
    }
}

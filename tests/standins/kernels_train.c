/* SPDX-License-Identifier: Apache-2.0 */
/* train.ddp's kernels for the stand-in driver: names, and how a launch's parameters become a call. */
#include "kernels_train.h"

#include "validate/agent/kernels/kportable.h"

#define ARG(type, i) (*(type *)p[i])

/* K<number of arguments after n>(name, types...) */
#define K2(f, A, B)                                              \
    void f(ki64, A, B);                                          \
    static void step_##f(void **p) { f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2)); }
#define K3(f, A, B, C)                                           \
    void f(ki64, A, B, C);                                       \
    static void step_##f(void **p) { f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3)); }
#define K4(f, A, B, C, D)                                        \
    void f(ki64, A, B, C, D);                                    \
    static void step_##f(void **p) { f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3), ARG(D, 4)); }
#define K5(f, A, B, C, D, E)                                     \
    void f(ki64, A, B, C, D, E);                                 \
    static void step_##f(void **p)                               \
    {                                                            \
        f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3), ARG(D, 4), ARG(E, 5)); \
    }
#define K6(f, A, B, C, D, E, F)                                  \
    void f(ki64, A, B, C, D, E, F);                              \
    static void step_##f(void **p)                               \
    {                                                            \
        f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3), ARG(D, 4), ARG(E, 5), ARG(F, 6)); \
    }
#define K7(f, A, B, C, D, E, F, G)                               \
    void f(ki64, A, B, C, D, E, F, G);                           \
    static void step_##f(void **p)                               \
    {                                                            \
        f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3), ARG(D, 4), ARG(E, 5), ARG(F, 6), ARG(G, 7)); \
    }
#define K8(f, A, B, C, D, E, F, G, H)                            \
    void f(ki64, A, B, C, D, E, F, G, H);                        \
    static void step_##f(void **p)                               \
    {                                                            \
        f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3), ARG(D, 4), ARG(E, 5), ARG(F, 6), ARG(G, 7), \
          ARG(H, 8));                                            \
    }
#define K9(f, A, B, C, D, E, F, G, H, I)                         \
    void f(ki64, A, B, C, D, E, F, G, H, I);                     \
    static void step_##f(void **p)                               \
    {                                                            \
        f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3), ARG(D, 4), ARG(E, 5), ARG(F, 6), ARG(G, 7), \
          ARG(H, 8), ARG(I, 9));                                 \
    }
#define K10(f, A, B, C, D, E, F, G, H, I, J)                     \
    void f(ki64, A, B, C, D, E, F, G, H, I, J);                  \
    static void step_##f(void **p)                               \
    {                                                            \
        f(ARG(ki64, 0), ARG(A, 1), ARG(B, 2), ARG(C, 3), ARG(D, 4), ARG(E, 5), ARG(F, 6), ARG(G, 7), \
          ARG(H, 8), ARG(I, 9), ARG(J, 10));                     \
    }
typedef float *fp;
typedef const float *fc;
typedef const int *ic;

/* --- train.cu --- */
K6(embed_fwd, fp, ic, fc, fc, ki64, ki64)
K5(embed_bwd_tok, fp, fc, ic, ki64, ki64)
K4(embed_bwd_pos, fp, fc, ki64, ki64)
K7(layernorm_fwd, fp, fp, fp, fc, fc, fc, ki64)
K7(layernorm_bwd_x, fp, fc, fc, fc, fc, fc, ki64)
K7(layernorm_bwd_p, fp, fp, fc, fc, fc, fc, ki64)
K3(bias_add, fp, fc, ki64)
K3(bias_bwd, fp, fc, ki64)
K7(attention_fwd, fp, fp, fc, ki64, ki64, ki64, float)
K9(attention_bwd_q, fp, fp, fc, fc, fc, ki64, ki64, ki64, float)
K8(attention_bwd_kv, fp, fc, fc, fc, fc, ki64, ki64, ki64)
K2(gelu_fwd, fp, fc)
K2(gelu_bwd, fp, fc)
K2(add, fp, fc)
K2(scale, fp, float)
K5(softmax_xent, fp, fp, ic, ki64, float)
K10(adamw, fp, fc, fp, fp, float, float, float, float, float, float)

#define E(f) {#f, step_##f}
const struct standin_kernel train_kernels[] = {
    E(embed_fwd), E(embed_bwd_tok), E(embed_bwd_pos), E(layernorm_fwd), E(layernorm_bwd_x),
    E(layernorm_bwd_p), E(bias_add), E(bias_bwd), E(attention_fwd), E(attention_bwd_q),
    E(attention_bwd_kv), E(gelu_fwd), E(gelu_bwd), E(add), E(scale), E(softmax_xent), E(adamw),
    {0, 0},
};

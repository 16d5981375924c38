/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of gpu.gemm and gpu.sdc: the types of a GPU, sizes, and buffers with operands. CUDA agent only;
 * one thread. */
#ifndef GP_AGENT_PRODUCTS_H
#define GP_AGENT_PRODUCTS_H

#include "known_product.h"
#include "validate/agent/agent.h"

struct product_type {
    const char *name; /* "bf16": the figure's name too */
    enum gemm_type type;
    bool trans_b; /* B is stored column by column, as 8-bit units require */
};
extern const struct product_type product_types[]; /* name NULL ends */
/* True if the GPU and its library (or own kernels) have that type. */
bool product_has(struct device *d, const struct product_type *t);
/* True if our own kernels multiply: their rate means little for the GPU. */
bool product_by_own(struct device *d);

/* *ret: the edge of square products on this GPU, of which `sets` of three matrices are kept at once: 8192; less with
 * little memory, or with our own slow kernels. 128: a stand-in. */
int product_edge(struct device *d, int sets, int *ret, struct gp_error *err);

/* Operands and result of one product of an opened device; address 0: none. */
struct product {
    const struct product_type *t;
    int m, n, k;
    dev_addr a, b, c; /* c may be borrowed */
};
/* A and B, m x k and k x n (n x k with trans_b). product_free afterwards, also after a failure. */
int product_alloc(struct device *d, struct product *p, struct gp_error *err);
void product_free(struct device *d, struct product *p);
int product_fill_random(struct device *d, const struct product *p, uint64_t seed, struct gp_error *err);
int product_fill_known(struct device *d, const struct product *p, const struct known_product *k, struct gp_error *err);
struct gemm_args product_args(const struct product *p, bool out_same);
/* C = A * B, C in fp32, or with out_same in 16 bits (device.h). Queued. */
int product_queue(struct device *d, const struct product *p, bool out_same, struct gp_error *err);

/* Launches a kernel over items with arguments. Queued. */
int product_launch(struct device *d, const char *kernel, int64_t items, const union kernel_arg *args, size_t n_args,
                   struct gp_error *err);
/* Counts of C: numbers read, not finite, not zero. Waits. */
struct number_counts {
    uint64_t seen, odd, some;
};
struct number_room {
    struct device *dev;
    dev_addr counts; /* 3 words */
    int64_t deadline_ms;
};
int product_count(const struct number_room *room, dev_addr c, int64_t count, int known_type, struct number_counts *ret,
                  struct gp_error *err);

#endif

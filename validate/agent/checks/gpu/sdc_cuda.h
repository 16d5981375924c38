/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.sdc's parts: the run and its verdict (check_sdc_cuda.c), products and their checksums (sdc_products_cuda.c),
 * the search for the faulty multiprocessor (sdc_probe_cuda.c). One thread. */
#ifndef GP_AGENT_SDC_CUDA_H
#define GP_AGENT_SDC_CUDA_H

#include "products.h"

#include "base/vec.h"

enum { SDC_TYPES_MAX = 8, SDC_SMS_MAX = 1024, SDC_NAMED_MAX = 8 };

/* One product with a known answer: its operands, and its tiles' expected checksums. */
struct sdc_known {
    struct known_product known;
    struct product product;
};
struct sdc_type {
    const struct product_type *t;
    struct sdc_known full; /* by device_ops.gemm */
    struct sdc_known own;  /* by our own tensor-core kernel, for naming SMs; t NULL: none of this type */
    struct product random;
    ku64 *random_sums; /* of the first time; NULL: not yet */
    uint64_t own_fold; /* of the random product by our own kernel; 0: none */
    uint64_t products;
};
struct sdc_wrong {
    const char *type;
    int tile_row, tile_col, tile;
    bool found; /* the host saw a wrong element: row, col, got, want are its */
    int row, col;
    uint32_t got, want;   /* fp32 bits */
    bool repeated, again; /* the product was computed once more; wrong then too */
};
struct sdc {
    struct check_ctx *c;
    struct agent_result *r;
    struct device *d;
    int edge, tile;
    struct sdc_type types[SDC_TYPES_MAX];
    size_t n_types;
    /* on the device */
    dev_addr result, partial, sums, tile_sms, counts;
    dev_addr probe_a, probe_b, probe_result, probe_sm;
    size_t result_bytes, sums_max;
    ku64 *got;                  /* checksums read back */
    struct known_product probe; /* of sm_product: one element for each thread */
    int probe_items;
    /* findings */
    uint64_t products, wrong_tiles, unsteady;
    int rounds;
    VEC_OF(struct sdc_wrong) named;
    uint64_t odd; /* elements of random products that are not finite */
    const char *odd_type;
    char unsteady_type[16];
    int unsteady_row, unsteady_col;
    struct sdc_sm {
        uint64_t did, wrong;
    } sms[SDC_SMS_MAX];
};

/* sdc_products_cuda.c. Negative: the device failed; wrong results are noted in s. */
int sdc_setup(struct sdc *s, struct gp_error *err);
void sdc_clear(struct sdc *s);
int sdc_known_round(struct sdc *s, struct sdc_type *t, struct gp_error *err);
int sdc_random_round(struct sdc *s, struct sdc_type *t, struct gp_error *err);
/* Sets C to NaN, so that a product that was not computed is detected. */
int sdc_spoil_result(struct sdc *s, struct gp_error *err);
/* Checksums of the m x n result into s->got. Waits. */
int sdc_sum_tiles(struct sdc *s, int m, int n, int tile, struct gp_error *err);
/* The host reads tile number `at` of a known product's result. ret->found: an element is wrong. */
int sdc_look_tile(struct sdc *s, const struct known_product *k, size_t at, struct sdc_wrong *ret, struct gp_error *err);

/* sdc_probe_cuda.c: every SM computes exact products; s->sms has those with wrong results. */
int sdc_probe_setup(struct sdc *s, struct gp_error *err);
int sdc_probe_fp32(struct sdc *s, struct gp_error *err);
int sdc_probe_own(struct sdc *s, struct sdc_type *t, struct gp_error *err);

#endif

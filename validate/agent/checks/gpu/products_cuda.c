/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of matrix products, made on the GPU, and the products themselves. One thread. */
#include "base/gp_base.h"

#include "products.h"

#include "validate/agent/cuda/cuda.h"

#define GIB ((size_t)1 << 30)

const struct product_type product_types[] = {
    {"fp32", GEMM_F32, false}, {"tf32", GEMM_TF32, false},   {"bf16", GEMM_BF16, false},
    {"fp16", GEMM_F16, false}, {"fp8", GEMM_FP8_E4M3, true}, {.name = NULL},
};

bool product_has(struct device *d, const struct product_type *t) {
    struct gp_error ignored = {0};
    return cuda_gemm_has(d, t->type, &ignored) == 0;
}

bool product_by_own(struct device *d) { return str_starts(cuda_gemm_by(d), "own"); }

/* A set of three fp32 matrices in a 12th of the memory: 8192 from 10 GiB on, with four sets (in a 48th) from 40 GiB
 * on, else 4096. No GPU has less than 1 GiB; a stand-in that has gets a small product. */
int product_edge(struct device *d, int sets, int *ret, struct gp_error *err) {
    size_t avail = 0, total = 0;
    int rc = cuda_memory(d, &avail, &total, err);
    if (rc < 0) return rc;
    int n = 8192;
    while (n > 512 && (size_t)n * (size_t)n * 12 > total / 12 / (size_t)sets) n /= 2;
    if (product_by_own(d)) n = GP_MIN(n, 2048);
    *ret = total < GIB ? 128 : n;
    return 0;
}

int product_alloc(struct device *d, struct product *p, struct gp_error *err) {
    size_t each = (size_t)known_bytes((int)p->t->type);
    int rc = agent_kind.device->alloc(d, (size_t)p->m * (size_t)p->k * each, &p->a, err);
    return rc < 0 ? rc : agent_kind.device->alloc(d, (size_t)p->n * (size_t)p->k * each, &p->b, err);
}

void product_free(struct device *d, struct product *p) {
    agent_kind.device->free(d, p->a);
    agent_kind.device->free(d, p->b);
    p->a = p->b = 0;
}

int product_launch(struct device *d, const char *kernel, int64_t items, const union kernel_arg *args, size_t n_args,
                   struct gp_error *err) {
    struct launch_args l = {.kernel = kernel, .items = items, .args = args, .n_args = n_args};
    return agent_kind.device->launch(d, &l, err);
}

int product_fill_random(struct device *d, const struct product *p, uint64_t seed, struct gp_error *err) {
    union kernel_arg a[3] = {{.p = p->a}, {.i32 = (int32_t)p->t->type}, {.u = seed}};
    union kernel_arg b[3] = {{.p = p->b}, {.i32 = (int32_t)p->t->type}, {.u = ~seed}};
    int rc = product_launch(d, "gp_random_operand", (int64_t)p->m * p->k, a, 3, err);
    return rc < 0 ? rc : product_launch(d, "gp_random_operand", (int64_t)p->n * p->k, b, 3, err);
}

static int fill_known(struct device *d, const struct product *p, const struct known_product *k, bool is_b,
                      struct gp_error *err) {
    int outer = is_b ? p->n : p->m;
    union kernel_arg a[9] = {{.p = is_b ? p->b : p->a},
                             {.i = outer},
                             {.i = p->k},
                             {.i32 = (int32_t)p->t->type},
                             {.i32 = is_b},
                             {.i32 = !is_b || p->t->trans_b},
                             {.i32 = k->limits.big},
                             {.i32 = k->limits.small},
                             {.u = k->seed}};
    return product_launch(d, "gp_known_operand", (int64_t)outer * p->k, a, GP_ARRAY_LEN(a), err);
}

int product_fill_known(struct device *d, const struct product *p, const struct known_product *k, struct gp_error *err) {
    int rc = fill_known(d, p, k, false, err);
    return rc < 0 ? rc : fill_known(d, p, k, true, err);
}

struct gemm_args product_args(const struct product *p, bool out_same) {
    return (struct gemm_args){.type = p->t->type,
                              .m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .batch = 1,
                              .a = p->a,
                              .b = p->b,
                              .c = p->c,
                              .trans_b = p->t->trans_b,
                              .out_same = out_same};
}

int product_queue(struct device *d, const struct product *p, bool out_same, struct gp_error *err) {
    struct gemm_args g = product_args(p, out_same);
    return agent_kind.device->gemm(d, &g, err);
}

int product_count(const struct number_room *room, dev_addr c, int64_t count, int known_type, struct number_counts *ret,
                  struct gp_error *err) {
    uint64_t words[3] = {0, 0, 0};
    int sms = cuda_attribute(room->dev, CU_ATTR_SMS);
    struct copy_args copy = {.kind = COPY_TO_DEVICE,
                             .dev = room->counts,
                             .host = words,
                             .bytes = sizeof words,
                             .deadline_ms = room->deadline_ms};
    union kernel_arg a[4] = {{.p = c}, {.i = count}, {.i32 = known_type}, {.p = room->counts}};
    int rc = agent_kind.device->copy(room->dev, &copy, err);
    if (rc == 0)
        rc = product_launch(room->dev, "gp_count_numbers", GP_MIN((int64_t)GP_MAX(sms, 1) * 1024, count), a, 4, err);
    if (rc == 0) rc = agent_kind.device->sync(room->dev, room->deadline_ms, err);
    copy.kind = COPY_FROM_DEVICE;
    if (rc == 0) rc = agent_kind.device->copy(room->dev, &copy, err);
    *ret = (struct number_counts){.seen = words[0], .odd = words[1], .some = words[2]};
    return rc;
}

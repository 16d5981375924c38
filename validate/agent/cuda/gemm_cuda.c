/* SPDX-License-Identifier: Apache-2.0 */
/* device_ops.gemm on a GPU: cuBLASLt if it is found, else our own tensor-core kernels; fp32 in the host's order by a
 * kernel of its own. A kernel first converts operands into the layout that the multiplier needs. One thread per
 * device. */
#include "base/gp_base.h"

#include "cublaslt_cuda.h"
#include "device_cuda.h"
#include "validate/agent/cuda/kernels/gemm.h"

struct piece {
    dev_addr p;
    size_t bytes;
};
struct gemm_state {
    struct str by;
    struct blas *blas;    /* NULL: our own kernels */
    struct piece a, b, c; /* converted operands; kept */
};

static const struct {
    const char *name, *kernel;
    int size, blas_sm, own_sm; /* bytes of an element; compute capabilities needed, 0: none has it */
} types[GEMM_TYPES] = {
    [GEMM_F32] = {"fp32", NULL, 4, 50, 0},
    [GEMM_TF32] = {"tf32", "gp_mma_tf32", 4, 80, 80},
    [GEMM_F16] = {"fp16", "gp_mma_f16", 2, 53, 75},
    [GEMM_BF16] = {"bf16", "gp_mma_bf16", 2, 80, 80},
    [GEMM_FP8_E4M3] = {"fp8", "gp_mma_e4m3", 1, 89, 89},
    [GEMM_INT8] = {"int8", "gp_mma_s8", 1, 75, 80},
};

/* --- the library --- */

int cuda_gemm_start(struct device *d, struct gp_error *err) {
    if (d->gemm) return 0;
    int rc = device_use(d, err);
    if (rc < 0) return rc;
    d->gemm = xcalloc(1, sizeof *d->gemm);
    const char *wanted = getenv("GPUPROV_CUBLASLT");
    GP_AUTO_STR struct str said = {.max = 1000};
    if (wanted && str_eq(wanted, "off")) str_add(&said, "GPUPROV_CUBLASLT=off");
    else d->gemm->blas = blas_open(d, &said);
    if (d->gemm->blas) str_add(&d->gemm->by, said.s);
    else str_addf(&d->gemm->by, "own kernels (%s)", said.s);
    return 0;
}

const char *cuda_gemm_by(struct device *d) {
    return cuda_gemm_start(d, NULL) < 0 ? "nothing: the GPU's context is unusable" : d->gemm->by.s;
}

uint64_t cuda_gemm_algorithm(struct device *d, const struct gemm_args *a) {
    return d->gemm && d->gemm->blas ? blas_algorithm(d->gemm->blas, a) : 0;
}

void gemm_close(struct device *d, bool driver) {
    if (!d->gemm) return;
    blas_close(d->gemm->blas, driver);
    str_clear(&d->gemm->by);
    free(d->gemm);
    d->gemm = NULL;
}

static int needs_sm(struct device *d, enum gemm_type type, int sm, const char *by, struct gp_error *err) {
    int major = cuda_attribute(d, CU_ATTR_MAJOR), minor = cuda_attribute(d, CU_ATTR_MINOR);
    if (major < 0 || minor < 0)
        return gp_fail(err, GP_EENV,
                       "gpu %d: the driver does not report its compute "
                       "capability",
                       d->index);
    if (major * 10 + minor >= sm) return 0;
    int rc = gp_fail(err, GP_EENV, "gpu %d: no %s matrix products on compute capability %d.%d%s", d->index,
                     types[type].name, major, minor, by);
    if (err) {
        err->domain = GP_D_NODE;
        str_put(err->detail, sizeof err->detail, "NO_SUCH_TYPE");
    }
    return rc;
}

int cuda_gemm_has(struct device *d, enum gemm_type type, struct gp_error *err) {
    int rc = cuda_gemm_start(d, err);
    if (rc < 0 || type == GEMM_F32) return rc;
    return d->gemm->blas ? needs_sm(d, type, types[type].blas_sm, "", err)
                         : needs_sm(d, type, types[type].own_sm, " without cuBLASLt", err);
}

static int check(struct device *d, const struct gemm_args *a, struct gp_error *err) {
    if ((unsigned)a->type >= GEMM_TYPES || a->m < 1 || a->n < 1 || a->k < 1 || a->batch < 1)
        return gp_fail(err, GP_EINTERNAL, "gpu %d: unsupported matrix product: type %d, %d x %d x %d, batch %d",
                       d->index, (int)a->type, a->m, a->n, a->k, a->batch);
    if (a->out_same && a->type != GEMM_F16 && a->type != GEMM_BF16 && a->type != GEMM_FP8_E4M3)
        return gp_fail(err, GP_EENV, "gpu %d: only products of 8 and 16 bits, except int8, have 16-bit results",
                       d->index);
    return 0;
}

/* --- conversion of operands --- */

/* Grows a buffer; queued work may still use the old one until the GPU is done. */
static int piece_grow(struct device *d, struct piece *p, size_t bytes, struct gp_error *err) {
    enum { LIMIT_MS = 60000 };
    if (p->bytes >= bytes) return 0;
    int rc = device_cuda.sync(d, device_deadline(d, LIMIT_MS), err);
    if (rc < 0) return rc;
    device_cuda.free(d, p->p);
    *p = (struct piece){.p = 0};
    rc = device_cuda.alloc(d, bytes, &p->p, err);
    if (rc == 0) p->bytes = bytes;
    return rc;
}

struct form { /* a matrix, rows x columns: its layout and the required one */
    dev_addr from;
    int64_t ld, stride;
    bool turned; /* stored transposed */
    int64_t rows, columns, to_rows, to_columns, to_stride;
};

static int pack(struct device *d, const struct form *f, dev_addr to, int size, int batch, struct gp_error *err) {
    union kernel_arg args[11] = {{.p = to},      {.p = f->from},      {.i32 = size},     {.i32 = f->turned},
                                 {.i = f->rows}, {.i = f->columns},   {.i = f->to_rows}, {.i = f->to_columns},
                                 {.i = f->ld},   {.i = f->to_stride}, {.i = f->stride}};
    struct launch_args l = {.kernel = "gp_gemm_pack",
                            .items = f->to_rows * f->to_columns * batch,
                            .args = args,
                            .n_args = GP_ARRAY_LEN(args)};
    return device_cuda.launch(d, &l, err);
}

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* rows x k, k first in memory, k a multiple of `unit` elements, rows of `rows_unit`. */
static int form_operand(struct device *d, struct piece *p, struct form f, int size, int batch, int unit, int rows_unit,
                        dev_addr *ret, int64_t *ret_stride, struct gp_error *err) {
    f.to_rows = up(f.rows, rows_unit);
    f.to_columns = up(f.columns, unit);
    f.to_stride = f.to_rows * f.to_columns;
    bool fits = !f.turned && f.to_rows == f.rows && f.to_columns == f.columns && f.from % 16 == 0 &&
                (batch == 1 || f.stride * size % 16 == 0);
    *ret = f.from;
    *ret_stride = f.stride;
    if (fits) return 0;
    int rc = piece_grow(d, p, (size_t)(f.to_stride * batch * size), err);
    if (rc == 0) rc = pack(d, &f, p->p, size, batch, err);
    *ret = p->p;
    *ret_stride = f.to_stride;
    return rc;
}

/* A as m x k, B as n x k (trans_b): the layout of 8-bit products of cuBLASLt and of our own kernels. */
static int form_operands(struct device *d, const struct gemm_args *a, int unit, int rows_unit, struct gemm_args *ret,
                         struct gp_error *err) {
    struct form x = {.from = a->a,
                     .ld = a->trans_a ? a->m : a->k,
                     .stride = a->stride_a,
                     .turned = a->trans_a,
                     .rows = a->m,
                     .columns = a->k};
    struct form y = {.from = a->b,
                     .ld = a->trans_b ? a->k : a->n,
                     .stride = a->stride_b,
                     .turned = !a->trans_b,
                     .rows = a->n,
                     .columns = a->k};
    int size = types[a->type].size;
    *ret = *a;
    ret->trans_a = false;
    ret->trans_b = true;
    ret->k = (int)up(a->k, unit);
    int rc = form_operand(d, &d->gemm->a, x, size, a->batch, unit, rows_unit, &ret->a, &ret->stride_a, err);
    if (rc < 0) return rc;
    return form_operand(d, &d->gemm->b, y, size, a->batch, unit, rows_unit, &ret->b, &ret->stride_b, err);
}

/* cuBLASLt multiplies 8-bit matrices whose sizes are multiples of 16; C then has its own buffer too. */
static int blas_gemm_8(struct device *d, const struct gemm_args *a, struct gp_error *err) {
    enum { UNIT = 16 };
    struct gemm_args g;
    int rc = form_operands(d, a, UNIT, UNIT, &g, err);
    if (rc < 0) return rc;
    g.m = (int)up(a->m, UNIT);
    g.n = (int)up(a->n, UNIT);
    int size = a->out_same ? 2 : 4;
    if (g.m == a->m && g.n == a->n && a->c % 16 == 0 && (a->batch == 1 || a->stride_c * size % 16 == 0))
        return blas_gemm(d->gemm->blas, &g, err);
    struct form in = {.from = a->c,
                      .ld = a->n,
                      .stride = a->stride_c,
                      .rows = a->m,
                      .columns = a->n,
                      .to_rows = g.m,
                      .to_columns = g.n,
                      .to_stride = (int64_t)g.m * g.n};
    rc = piece_grow(d, &d->gemm->c, (size_t)(in.to_stride * a->batch * size), err);
    g.c = d->gemm->c.p;
    g.stride_c = in.to_stride;
    if (rc == 0 && a->accumulate) rc = pack(d, &in, g.c, size, a->batch, err);
    if (rc == 0) rc = blas_gemm(d->gemm->blas, &g, err);
    struct form out = {.from = g.c,
                       .ld = g.n,
                       .stride = in.to_stride,
                       .rows = a->m,
                       .columns = a->n,
                       .to_rows = a->m,
                       .to_columns = a->n,
                       .to_stride = a->stride_c};
    return rc < 0 ? rc : pack(d, &out, a->c, size, a->batch, err);
}

/* --- our own kernels --- */

static int gemm_in_order(struct device *d, const struct gemm_args *a, struct gp_error *err) {
    union kernel_arg args[10] = {{.p = a->a},
                                 {.p = a->b},
                                 {.p = a->c},
                                 {.i32 = a->m},
                                 {.i32 = a->n},
                                 {.i32 = a->k},
                                 {.i32 = (a->trans_a ? 1 : 0) | (a->trans_b ? 2 : 0) | (a->accumulate ? 4 : 0)},
                                 {.i = a->stride_a},
                                 {.i = a->stride_b},
                                 {.i = a->stride_c}};
    struct launch_args l = {
        .kernel = "gp_gemm_f32", .items = (int64_t)a->m * a->n * a->batch, .args = args, .n_args = GP_ARRAY_LEN(args)};
    return device_cuda.launch(d, &l, err);
}

static int gemm_mma(struct device *d, const struct gemm_args *a, dev_addr sms, struct gp_error *err) {
    int size = types[a->type].size;
    struct gemm_args g;
    int rc = form_operands(d, a, 16 / size, 1, &g, err);
    int64_t tiles = up(a->m, MMA_TILE) / MMA_TILE * (up(a->n, MMA_TILE) / MMA_TILE) * a->batch;
    int out = !a->out_same ? MMA_OUT_WORD : a->type == GEMM_F16 ? MMA_OUT_F16 : MMA_OUT_BF16;
    union kernel_arg args[12] = {{.p = g.a},
                                 {.p = g.b},
                                 {.p = g.c},
                                 {.i32 = g.m},
                                 {.i32 = g.n},
                                 {.i = (int64_t)g.k * size},
                                 {.i32 = g.accumulate},
                                 {.i32 = out},
                                 {.i = g.stride_a * size},
                                 {.i = g.stride_b * size},
                                 {.i = g.stride_c},
                                 {.p = sms}};
    struct launch_args l = {.kernel = types[a->type].kernel,
                            .items = tiles,
                            .block = MMA_THREADS,
                            .grid = (unsigned)GP_MIN(tiles, 1 << 30),
                            .args = args,
                            .n_args = GP_ARRAY_LEN(args)};
    return rc < 0 ? rc : device_cuda.launch(d, &l, err);
}

int cuda_gemm_own(struct device *d, const struct gemm_args *a, dev_addr sms, struct gp_error *err) {
    int rc = check(d, a, err);
    if (rc < 0) return rc;
    if (a->type == GEMM_F32) return gp_fail(err, GP_EENV, "gpu %d: fp32 has no tensor-core product", d->index);
    rc = cuda_gemm_start(d, err);
    if (rc == 0) rc = needs_sm(d, a->type, types[a->type].own_sm, " with our own kernels", err);
    return rc < 0 ? rc : gemm_mma(d, a, sms, err);
}

int device_gemm(struct device *d, const struct gemm_args *a, struct gp_error *err) {
    int rc = check(d, a, err);
    if (rc < 0) return rc;
    if (a->type == GEMM_F32 && a->in_order) return gemm_in_order(d, a, err);
    rc = cuda_gemm_has(d, a->type, err);
    if (rc == 0) rc = device_use(d, err);
    if (rc < 0) return rc;
    if (!d->gemm->blas) return a->type == GEMM_F32 ? gemm_in_order(d, a, err) : gemm_mma(d, a, 0, err);
    if (a->type == GEMM_FP8_E4M3 || a->type == GEMM_INT8) return blas_gemm_8(d, a, err);
    return blas_gemm(d->gemm->blas, a, err);
}

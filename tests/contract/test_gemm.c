/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: one suite against both devices, all types. Operands are small whole numbers (times a
 * power of two), so every sum is exact in any order and the result has one right value; random operands
 * are held against a sum in double. The CUDA device runs on the stand-in driver, once with a stand-in
 * cuBLASLt and once without any, where the agent's own kernels multiply. */
#include "base/gp_base.h"

#include "cuda_world.h"
#include "validate/agent/device/numeric.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

static const struct kind {
    const char *name;
    size_t size;
    double epsilon; /* of a product of two rounded operands, relative to the sum of absolute products */
} kinds[GEMM_TYPES] = {
    [GEMM_F32] = {"fp32", 4, 1e-6},  [GEMM_TF32] = {"tf32", 4, 1e-6},    [GEMM_F16] = {"fp16", 2, 1e-6},
    [GEMM_BF16] = {"bf16", 2, 1e-6}, [GEMM_FP8_E4M3] = {"fp8", 1, 1e-6}, [GEMM_INT8] = {"int8", 1, 0}};

static void encode(enum gemm_type t, void *at, size_t i, double v) {
    float f = (float)v;
    uint16_t half = t == GEMM_F16 ? num_to_f16(f) : num_to_bf16(f);
    if (t == GEMM_F32) ((float *)at)[i] = f;
    else if (t == GEMM_TF32) ((float *)at)[i] = num_from_bits(num_bits(f) & 0xffffe000u);
    else if (t == GEMM_INT8) ((int8_t *)at)[i] = (int8_t)v;
    else if (t == GEMM_FP8_E4M3) ((uint8_t *)at)[i] = num_to_e4m3(f);
    else ((uint16_t *)at)[i] = half;
}

static double decode(enum gemm_type t, const void *at, size_t i) {
    switch (t) {
    case GEMM_INT8: return ((const int8_t *)at)[i];
    case GEMM_FP8_E4M3: return (double)num_from_e4m3(((const uint8_t *)at)[i]);
    case GEMM_F16: return (double)num_from_f16(((const uint16_t *)at)[i]);
    case GEMM_BF16: return (double)num_from_bf16(((const uint16_t *)at)[i]);
    default: return (double)((const float *)at)[i];
    }
}

static uint64_t dice;
static uint64_t draw(void) { return dice = num_mix(dice); }

struct product {
    struct gemm_args g;
    size_t na, nb, nc; /* elements */
    void *a, *b, *c;
    double *was; /* C before */
};

static void *room(size_t n) {
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    return p;
}

static size_t c_size(const struct gemm_args *g) { return g->out_same ? 2 : 4; }

/* The type of C, as encode and decode know it. */
static enum gemm_type c_type(const struct gemm_args *g) {
    if (!g->out_same) return GEMM_F32;
    return g->type == GEMM_FP8_E4M3 ? GEMM_BF16 : g->type;
}

static double c_value(const struct gemm_args *g, const void *c, size_t i) {
    if (g->type == GEMM_INT8) return ((const int32_t *)c)[i];
    return decode(c_type(g), c, i);
}

/* whole: small whole numbers, else random in (-1, 1). What lies between two matrices of a batch is NaN
 * in A and B, so that nobody reads it, and must stay as it is in C. */
static void fill(struct product *p, bool whole) {
    struct gemm_args *g = &p->g;
    int gap = g->batch > 1 ? 5 : 0;
    g->stride_a = (int64_t)g->m * g->k + gap;
    g->stride_b = (int64_t)g->k * g->n + gap;
    g->stride_c = (int64_t)g->m * g->n + gap;
    p->na = (size_t)(g->stride_a * g->batch);
    p->nb = (size_t)(g->stride_b * g->batch);
    p->nc = (size_t)(g->stride_c * g->batch);
    p->a = room(p->na * 4);
    p->b = room(p->nb * 4);
    p->c = room(p->nc * 4);
    p->was = room(p->nc * sizeof *p->was);
    for (size_t i = 0; i < p->na; i++)
        encode(g->type, p->a, i,
               (int64_t)i % g->stride_a >= (int64_t)g->m * g->k ? (double)NAN
               : whole || g->type == GEMM_INT8                  ? (double)(draw() % 15) - 7
                                                                : (double)(int32_t)draw() / 2147483648.0);
    for (size_t i = 0; i < p->nb; i++)
        encode(g->type, p->b, i,
               (int64_t)i % g->stride_b >= (int64_t)g->k * g->n ? (double)NAN
               : whole || g->type == GEMM_INT8                  ? (double)(draw() % 13) - 6
                                                                : (double)(int32_t)draw() / 2147483648.0);
    for (size_t i = 0; i < p->nc; i++) {
        int v = (int)(draw() % 101) - 50;
        if (g->type == GEMM_INT8) ((int32_t *)p->c)[i] = v;
        else encode(c_type(g), p->c, i, v);
        p->was[i] = v;
    }
}

static void clear(struct product *p) {
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->was);
}

static void copy(const struct device_ops *ops, struct device *d, enum copy_kind kind, dev_addr at, void *host,
                 size_t bytes) {
    struct gp_error err = {0};
    struct copy_args c = {.kind = kind, .dev = at, .host = host, .bytes = bytes};
    if (ops->copy(d, &c, &err) < 0) fail_msg("%s", err.msg);
}

static int run(const struct device_ops *ops, struct device *d, struct product *p, struct gp_error *err) {
    struct gemm_args *g = &p->g;
    size_t size = kinds[g->type].size;
    assert_int_equal(ops->alloc(d, p->na * size, &g->a, err), 0);
    assert_int_equal(ops->alloc(d, p->nb * size, &g->b, err), 0);
    assert_int_equal(ops->alloc(d, p->nc * 4, &g->c, err), 0);
    copy(ops, d, COPY_TO_DEVICE, g->a, p->a, p->na * size);
    copy(ops, d, COPY_TO_DEVICE, g->b, p->b, p->nb * size);
    copy(ops, d, COPY_TO_DEVICE, g->c, p->c, p->nc * c_size(g));
    int rc = ops->gemm(d, g, err);
    if (rc == 0) rc = ops->sync(d, clock_deadline(10000), err);
    if (rc == 0) copy(ops, d, COPY_FROM_DEVICE, g->c, p->c, p->nc * c_size(g));
    ops->free(d, g->a);
    ops->free(d, g->b);
    ops->free(d, g->c);
    return rc;
}

/* What C must be: the sum in double, rounded to C's type. *ret_abs: the sum of absolute values. */
static double want(const struct product *p, size_t at, double *ret_abs) {
    const struct gemm_args *g = &p->g;
    size_t s = at / (size_t)g->stride_c, e = at % (size_t)g->stride_c;
    *ret_abs = 0;
    if (e >= (size_t)g->m * (size_t)g->n) return p->was[at];
    size_t i = e / (size_t)g->n, j = e % (size_t)g->n, m = (size_t)g->m, n = (size_t)g->n;
    double sum = g->accumulate ? p->was[at] : 0;
    *ret_abs = fabs(sum);
    for (size_t k = 0; k < (size_t)g->k; k++) {
        size_t ia = (size_t)g->stride_a * s + (g->trans_a ? k * m + i : i * (size_t)g->k + k);
        size_t ib = (size_t)g->stride_b * s + (g->trans_b ? j * (size_t)g->k + k : k * n + j);
        double x = decode(g->type, p->a, ia) * decode(g->type, p->b, ib);
        sum += x;
        *ret_abs += fabs(x);
    }
    if (!g->out_same) return sum;
    float f = (float)sum;
    return (double)(c_type(g) == GEMM_F16 ? num_from_f16(num_to_f16(f)) : num_from_bf16(num_to_bf16(f)));
}

static void one(const struct device_ops *ops, struct device *d, struct gemm_args g, bool whole) {
    struct product p = {.g = g};
    struct gp_error err = {0};
    fill(&p, whole);
    if (run(ops, d, &p, &err) < 0) fail_msg("%s %d x %d x %d: %s", kinds[g.type].name, g.m, g.n, g.k, err.msg);
    for (size_t i = 0; i < p.nc; i++) {
        double sum_abs = 0, w = want(&p, i, &sum_abs), got = c_value(&p.g, p.c, i);
        double may = whole ? 0 : kinds[g.type].epsilon * sum_abs * sqrt(g.k) + (g.out_same ? fabs(w) / 128 : 0);
        if (!(fabs(got - w) <= may))
            fail_msg("%s %d x %d x %d, batch %d, transposed %d %d, added %d, own type %d: element %zu is "
                     "%.9g, not %.9g",
                     kinds[g.type].name, g.m, g.n, g.k, g.batch, g.trans_a, g.trans_b, g.accumulate, g.out_same, i, got,
                     w);
    }
    clear(&p);
}

static struct device *opened(const struct device_ops *ops) {
    struct device *d = NULL;
    struct gp_error err = {0};
    dice = 1;
    if (ops->open(0, &d, &err) < 0) fail_msg("%s", err.msg);
    return d;
}

static const int shapes[][4] = {{1, 1, 1, 1}, {3, 5, 7, 1}, {16, 16, 16, 3}, {33, 17, 40, 2}, {64, 80, 48, 1}};

static void test_every_type_and_form(void **state) {
    struct device *d = opened(*state);
    for (int type = 0; type < GEMM_TYPES; type++)
        for (size_t s = 0; s < GP_ARRAY_LEN(shapes); s++)
            for (int form = 0; form < 16; form++) {
                struct gemm_args g = {.type = (enum gemm_type)type,
                                      .m = shapes[s][0],
                                      .n = shapes[s][1],
                                      .k = shapes[s][2],
                                      .batch = shapes[s][3],
                                      .trans_a = form & 1,
                                      .trans_b = form & 2,
                                      .accumulate = form & 4,
                                      .out_same = form & 8};
                if (g.out_same && type != GEMM_F16 && type != GEMM_BF16 && type != GEMM_FP8_E4M3) continue;
                one(*state, d, g, true);
                if (form % 4 == 2) /* one form is enough for rounding */
                    one(*state, d, g, false);
            }
    ((const struct device_ops *)*state)->close(d);
}

static void test_refused(void **state) {
    const struct device_ops *ops = *state;
    struct device *d = opened(ops);
    struct gemm_args g = {.type = GEMM_INT8, .m = 16, .n = 16, .k = 16, .batch = 1, .out_same = true};
    assert_int_equal(ops->gemm(d, &g, &(struct gp_error){0}), -GP_EENV);
    g = (struct gemm_args){.type = GEMM_TYPES, .m = 1, .n = 1, .k = 1, .batch = 1};
    assert_int_equal(ops->gemm(d, &g, &(struct gp_error){0}), -GP_EINTERNAL);
    g = (struct gemm_args){.type = GEMM_F32, .m = 0, .n = 1, .k = 1, .batch = 1};
    assert_int_equal(ops->gemm(d, &g, &(struct gp_error){0}), -GP_EINTERNAL);
    ops->close(d);
}

/* Large enough for threads: the bits are those of the sum in order. */
static void test_threads_do_not_change_the_result(void **state) {
    (void)state;
    struct gemm_args g = {.type = GEMM_F32, .m = 509, .n = 257, .k = 251, .batch = 1};
    struct device *d = opened(&device_host);
    struct product p = {.g = g};
    fill(&p, false);
    assert_int_equal(run(&device_host, d, &p, &(struct gp_error){0}), 0);
    for (int i = 0; i < g.m; i += 7)
        for (int j = 0; j < g.n; j += 5) {
            volatile float sum = 0;
            for (int k = 0; k < g.k; k++) {
                volatile float x = ((float *)p.a)[i * g.k + k] * ((float *)p.b)[k * g.n + j];
                sum = sum + x;
            }
            assert_true(num_bits(sum) == num_bits(((float *)p.c)[i * g.n + j]));
        }
    clear(&p);
    device_host.close(d);
}

/* A NaN in an operand reaches C. */
static void test_nan_is_seen(void **state) {
    const struct device_ops *ops = *state;
    struct device *d = opened(ops);
    for (int type = 0; type < GEMM_INT8; type++) {
        struct product p = {.g = {.type = (enum gemm_type)type, .m = 8, .n = 16, .k = 16, .batch = 1}};
        fill(&p, true);
        encode(p.g.type, p.a, 5 * 16 + 3, (double)NAN);
        assert_int_equal(run(ops, d, &p, &(struct gp_error){0}), 0);
        for (size_t i = 0; i < p.nc; i++) assert_int_equal(isnan(((float *)p.c)[i]) != 0, i / 16 == 5);
        clear(&p);
    }
    ops->close(d);
}

/* The 256 values of E4M3 by its definition, and rounding to the nearest of them, ties to even. */
static void test_e4m3(void **state) {
    (void)state;
    for (int h = 0; h < 256; h++) {
        int e = h >> 3 & 15, m = h & 7;
        double v = (e ? ldexp(8 + m, e - 10) : ldexp(m, -9)) * (h & 128 ? -1 : 1);
        float f = num_from_e4m3((uint8_t)h);
        if ((h & 127) == 127) {
            assert_true(isnan(f));
            continue;
        }
        assert_true((double)f == v);
        assert_int_equal(num_to_e4m3(f), h);
        if ((h & 127) == 126) continue;
        float next = num_from_e4m3((uint8_t)(h + 1)), middle = (f + next) / 2;
        assert_int_equal(num_to_e4m3(middle), h % 2 ? h + 1 : h);
        assert_int_equal(num_to_e4m3(middle + (next - f) / 64), h + 1);
        assert_int_equal(num_to_e4m3(middle - (next - f) / 64), h);
    }
    assert_int_equal(num_to_e4m3(1e9f), 126);
    assert_int_equal(num_to_e4m3(-INFINITY), 128 + 126);
    assert_int_equal(num_to_e4m3(NAN) & 127, 127);
}

/* --- the CUDA device's multipliers --- */

static double seconds_of(struct device *d, struct product *p) {
    double s = 0;
    struct gp_error err = {0};
    assert_int_equal(cuda_mark(d, 0, &err), 0);
    if (device_cuda.gemm(d, &p->g, &err) < 0) fail_msg("%s", err.msg);
    assert_int_equal(cuda_mark(d, 1, &err), 0);
    assert_int_equal(device_cuda.sync(d, clock_deadline(10000), &err), 0);
    assert_int_equal(cuda_elapsed(d, 0, 1, &s, &err), 0);
    return s;
}

/* A and B of a square product, left on the device. */
static void lay_out(struct device *d, struct product *p, enum gemm_type type, int size) {
    *p = (struct product){.g = {.type = type, .m = size, .n = size, .k = size, .batch = 1, .trans_b = true}};
    fill(p, true);
    dev_addr *at[3] = {&p->g.a, &p->g.b, &p->g.c};
    void *from[3] = {p->a, p->b, p->c};
    for (int i = 0; i < 3; i++) {
        size_t bytes = p->na * (i < 2 ? kinds[type].size : 4);
        assert_int_equal(device_cuda.alloc(d, bytes, at[i], &(struct gp_error){0}), 0);
        copy(&device_cuda, d, COPY_TO_DEVICE, *at[i], from[i], bytes);
    }
}

/* The first times of algorithms may be wrong: the best three are timed again. */
static void test_an_early_lead_is_not_believed(void **state) {
    (void)state;
    struct product p;
    setenv("GPUPROV_STANDIN_CUBLASLT", "early=80", 1);
    struct device *d = opened(&device_cuda);
    lay_out(d, &p, GEMM_BF16, 128);
    p.g.fastest = true;
    seconds_of(d, &p);
    double got = 2 * 128.0 * 128 * 128 / seconds_of(d, &p) / 1e12;
    unsetenv("GPUPROV_STANDIN_CUBLASLT");
    if (got < 0.97 * 770) fail_msg("%g TFLOP/s, not about 770", got);
    clear(&p);
    device_cuda.close(d);
}

/* The stand-in's third algorithm is the fastest, and only trying shows it. */
static void test_fastest_algorithm_is_found(void **state) {
    (void)state;
    static const struct {
        enum gemm_type type;
        double tflops; /* of the stand-in's model */
    } rates[] = {{GEMM_F32, 52},   {GEMM_TF32, 400},      {GEMM_F16, 760},
                 {GEMM_BF16, 770}, {GEMM_FP8_E4M3, 1480}, {GEMM_INT8, 1450}};
    struct device *d = opened(&device_cuda);
    assert_string_equal(cuda_gemm_by(d), "cuBLASLt 13.1.0");
    for (size_t i = 0; i < GP_ARRAY_LEN(rates); i++) {
        struct product p;
        lay_out(d, &p, rates[i].type, 128);
        p.g.out_same = rates[i].type == GEMM_FP8_E4M3;
        seconds_of(d, &p); /* the first, which is not the fastest, on every GPU alike */
        p.g.fastest = true;
        seconds_of(d, &p); /* tries them */
        double got = 2 * 128.0 * 128 * 128 / seconds_of(d, &p) / 1e12;
        if (got < 0.97 * rates[i].tflops || got > 1.03 * rates[i].tflops)
            fail_msg("%s: %g TFLOP/s, not about %g", kinds[rates[i].type].name, got, rates[i].tflops);
        clear(&p);
    }
    device_cuda.close(d);
}

static void by(const char *cublaslt, const char *standin, const char *says) {
    setenv("GPUPROV_STANDIN_CUBLASLT", cublaslt, 1);
    setenv("GPUPROV_STANDIN", standin, 1);
    struct device *d = opened(&device_cuda);
    if (!strstr(cuda_gemm_by(d), says)) fail_msg("'%s' does not say '%s'", cuda_gemm_by(d), says);
    one(&device_cuda, d, (struct gemm_args){.type = GEMM_BF16, .m = 20, .n = 30, .k = 40, .batch = 1}, true);
    device_cuda.close(d);
    unsetenv("GPUPROV_STANDIN_CUBLASLT");
    unsetenv("GPUPROV_STANDIN");
}

/* A folder with the stand-in driver and no cuBLASLt; the caller frees the path. */
static char *bare_folder(const char *standin) {
    static char folder[] = "/tmp/gpuprov-bare-XXXXXX";
    assert_non_null(mkdtemp(folder));
    GP_AUTO_FREE char *from = realpath(standin, NULL);
    GP_AUTO_FREE char *target = xasprintf("%s/libcuda.so.1", from);
    GP_AUTO_FREE char *link = xasprintf("%s/libcuda.so.1", folder);
    assert_int_equal(symlink(target, link), 0);
    return xstrdup(folder);
}

static void remove_folder(const char *folder) {
    GP_AUTO_FREE char *link = xasprintf("%s/libcuda.so.1", folder);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_which_library(void **state) {
    (void)state;
    by("", "", "cuBLASLt 13.1.0");
    by("version=120908", "", "cuBLASLt 12.9.8");
    by("version=140000", "", "own kernels (");
    by("version=140000", "", "version 140000 is unknown to this agent");
    by("create=1", "", "cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)");
    setenv("GPUPROV_CUBLASLT", "off", 1);
    by("", "", "own kernels (GPUPROV_CUBLASLT=off)");
    unsetenv("GPUPROV_CUBLASLT");
    bool has_12 = false;
    for (const struct cuda_fatbin *f = cuda_fatbins; f->cuda; f++) has_12 |= f->cuda < 13000;
    if (has_12) /* else the agent itself wants the newer driver */
        by("", "driver=12040", "needs a driver of CUDA 13, this one offers 12.4");
}

static bool real_library(void) {
    void *lib = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!lib) lib = dlopen("/usr/local/cuda/lib64/libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    return lib != NULL;
}

/* The toolkit's own cuBLASLt loads and finds no driver that it can use: said, and not taken. Then the
 * next one is: version 12 by its file's name. */
static void test_real_library_without_a_gpu(void **state) {
    (void)state;
    if (!real_library()) {
        print_message("skipped: no CUDA toolkit with libcublasLt.so.13 is installed\n");
        skip();
    }
    GP_AUTO_FREE char *was = xstrdup(getenv("GPUPROV_LIBRARY_PATH"));
    GP_AUTO_FREE char *bare = bare_folder(was);
    GP_AUTO_FREE char *with_12 = xasprintf("%s:%s-12", bare, was);
    setenv("GPUPROV_LIBRARY_PATH", bare, 1);
    by("", "", "own kernels (");
    by("", "", "libcublasLt.so.13: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED (1)");
    setenv("GPUPROV_LIBRARY_PATH", with_12, 1);
    by("", "", "cuBLASLt 12.9.8");
    setenv("GPUPROV_LIBRARY_PATH", was, 1);
    remove_folder(bare);
}

/* What goes wrong in a product, and what is said of it. */
static void test_products_go_wrong(void **state) {
    (void)state;
    static const struct {
        const char *cublaslt, *standin;
        enum gemm_type type;
        int code;
        const char *says;
    } days[] = {
        {"status=15", "", GEMM_BF16, -GP_EENV, "none of its algorithms runs: CUBLAS_STATUS_NOT_SUPPORTED (15)"},
        {"offers=0", "", GEMM_F16, -GP_EENV, "no algorithm"},
        {"status=14", "", GEMM_F32, -GP_EENV, "CUBLAS_STATUS_INTERNAL_ERROR (14)"},
        {"broken=1", "", GEMM_BF16, 0, ""}, /* the next one is taken */
        {"", "lost_after=3", GEMM_BF16, -GP_EENV, "CUDA_ERROR_UNKNOWN (999)"},
        {"", "profile=t4", GEMM_BF16, -GP_EENV, "no bf16 matrix products on compute capability 7.5"},
        {"", "profile=t4", GEMM_F16, 0, ""},
        {"", "profile=t4", GEMM_INT8, 0, ""},
        {"", "profile=a100", GEMM_FP8_E4M3, -GP_EENV, "no fp8 matrix products on compute capability 8.0"},
        {"create=1", "profile=t4", GEMM_INT8, -GP_EENV, "compute capability 7.5 without cuBLASLt"},
        {"create=1", "profile=t4", GEMM_F16, 0, ""},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(days); i++) {
        setenv("GPUPROV_STANDIN_CUBLASLT", days[i].cublaslt, 1);
        setenv("GPUPROV_STANDIN", days[i].standin, 1);
        struct device *d = opened(&device_cuda);
        struct product p = {.g = {.type = days[i].type, .m = 32, .n = 48, .k = 64, .batch = 1}};
        struct gp_error err = {0};
        fill(&p, true);
        int rc = run(&device_cuda, d, &p, &err);
        if (rc != days[i].code || (rc && !strstr(err.msg, days[i].says)))
            fail_msg("%s %s: %d '%s'", days[i].cublaslt, days[i].standin, rc, err.msg);
        clear(&p);
        device_cuda.close(d);
    }
    unsetenv("GPUPROV_STANDIN_CUBLASLT");
    unsetenv("GPUPROV_STANDIN");
}

/* Our own kernels say where each tile was computed; a faulty multiprocessor spoils its tiles only. */
static void test_tiles_name_their_multiprocessor(void **state) {
    (void)state;
    enum { SIZE = 300, TILES = 9, BAD = 4 };
    struct device *d = opened(&device_cuda);
    int sms[TILES];
    dev_addr at = 0;
    assert_int_equal(device_cuda.alloc(d, sizeof sms, &at, &(struct gp_error){0}), 0);
    for (int type = GEMM_TF32; type < GEMM_TYPES; type++) {
        struct product p;
        lay_out(d, &p, (enum gemm_type)type, SIZE);
        setenv("GPUPROV_STANDIN", "sm=4,sm_bit=22", 1);
        assert_int_equal(cuda_gemm_own(d, &p.g, at, &(struct gp_error){0}), 0);
        unsetenv("GPUPROV_STANDIN");
        copy(&device_cuda, d, COPY_FROM_DEVICE, p.g.c, p.c, p.nc * 4);
        copy(&device_cuda, d, COPY_FROM_DEVICE, at, sms, sizeof sms);
        int wrong[TILES] = {0};
        for (size_t i = 0; i < p.nc; i++) {
            double sum_abs = 0;
            size_t tile = i / SIZE / CUDA_TILE * 3 + i % SIZE / CUDA_TILE;
            wrong[tile] += c_value(&p.g, p.c, i) != want(&p, i, &sum_abs);
        }
        for (int t = 0; t < TILES; t++) {
            assert_int_equal(sms[t], t);
            assert_int_equal(wrong[t], t == BAD);
        }
        dev_addr gone[3] = {p.g.a, p.g.b, p.g.c};
        for (int i = 0; i < 3; i++) device_cuda.free(d, gone[i]);
        clear(&p);
    }
    struct gemm_args f32 = {.type = GEMM_F32, .m = 1, .n = 1, .k = 1, .batch = 1};
    assert_int_equal(cuda_gemm_own(d, &f32, 0, &(struct gp_error){0}), -GP_EENV);
    device_cuda.close(d);
}

/* A product that never ends is given up at the deadline, also while algorithms are tried. */
static void test_hang(void **state) {
    (void)state;
    struct device *d = opened(&device_cuda);
    struct product p;
    struct gp_error err = {0};
    lay_out(d, &p, GEMM_BF16, 32);
    seconds_of(d, &p);
    setenv("GPUPROV_STANDIN_CUBLASLT", "hang=1", 1);
    assert_int_equal(device_cuda.gemm(d, &p.g, &err), 0);
    unsetenv("GPUPROV_STANDIN_CUBLASLT");
    assert_int_equal(device_cuda.sync(d, clock_deadline(30), &err), -GP_ETIMEOUT);
    clear(&p);
    device_cuda.close(d);
}

static int own_kernels(void **state) {
    (void)state;
    return setenv("GPUPROV_CUBLASLT", "off", 1);
}

static int cublaslt_again(void **state) {
    (void)state;
    return unsetenv("GPUPROV_CUBLASLT");
}

int main(int argc, char **argv) {
    (void)argc;
    use_standins(argv[0]);
#define CUDA(f) \
    { .name = #f " (cuda)", .test_func = f, .initial_state = (void *)(uintptr_t)&device_cuda }
#define HOST(f) \
    { .name = #f " (host)", .test_func = f, .initial_state = (void *)(uintptr_t)&device_host }
    const struct CMUnitTest tests[] = {
        HOST(test_every_type_and_form),
        CUDA(test_every_type_and_form),
        {.name = "test_every_type_and_form (own kernels)",
         .test_func = test_every_type_and_form,
         .setup_func = own_kernels,
         .teardown_func = cublaslt_again,
         .initial_state = (void *)(uintptr_t)&device_cuda},
        HOST(test_refused),
        CUDA(test_refused),
        HOST(test_nan_is_seen),
        CUDA(test_nan_is_seen),
        cmocka_unit_test(test_threads_do_not_change_the_result),
        cmocka_unit_test(test_e4m3),
        cmocka_unit_test(test_an_early_lead_is_not_believed),
        cmocka_unit_test(test_fastest_algorithm_is_found),
        cmocka_unit_test(test_which_library),
        cmocka_unit_test(test_real_library_without_a_gpu),
        cmocka_unit_test(test_products_go_wrong),
        cmocka_unit_test(test_tiles_name_their_multiprocessor),
        cmocka_unit_test(test_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* device_ops: one suite against both devices. The CUDA one runs on the stand-in driver, which steps the
 * agent's own kernels on the CPU; its matrix product must be the host's bit for bit. */
#include "base/gp_base.h"

#include "cuda_world.h"
#include "validate/agent/cuda/kernels/memory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_device(const struct device_ops *ops, struct device **ret) {
    struct gp_error err = {0};
    if (ops->open(0, ret, &err) < 0) fail_msg("%s", err.msg);
}

static dev_addr put(const struct device_ops *ops, struct device *d, const void *p, size_t bytes) {
    struct gp_error err = {0};
    dev_addr at = 0;
    struct copy_args c = {.kind = COPY_TO_DEVICE, .bytes = bytes};
    memcpy(&c.host, &p, sizeof p);
    assert_int_equal(ops->alloc(d, bytes, &at, &err), 0);
    assert_int_equal(at % 256, 0);
    c.dev = at;
    assert_int_equal(ops->copy(d, &c, &err), 0);
    return at;
}

static void get(const struct device_ops *ops, struct device *d, dev_addr at, void *p, size_t bytes) {
    struct gp_error err = {0};
    struct copy_args c = {.kind = COPY_FROM_DEVICE, .dev = at, .host = p, .bytes = bytes};
    assert_int_equal(ops->sync(d, clock_deadline(10000), &err), 0);
    assert_int_equal(ops->copy(d, &c, &err), 0);
}

static void test_copy(void **state) {
    const struct device_ops *ops = *state;
    struct device *d = NULL;
    open_device(ops, &d);
    uint64_t in[1000], out[1000] = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(in); i++) in[i] = i * 0x9e3779b97f4a7c15u;
    dev_addr a = put(ops, d, in, sizeof in), b = 0;
    struct gp_error err = {0};
    assert_int_equal(ops->alloc(d, sizeof in, &b, &err), 0);
    struct copy_args within = {.kind = COPY_WITHIN, .dev = b + 8, .dev_src = a, .bytes = sizeof in - 8};
    assert_int_equal(ops->copy(d, &within, &err), 0);
    get(ops, d, b + 8, out, sizeof in - 8);
    assert_memory_equal(in, out, sizeof in - 8);
    ops->free(d, a);
    ops->free(d, 0);
    ops->close(d); /* b is freed by it */
    ops->close(NULL);
}

static void test_too_much_memory(void **state) {
    const struct device_ops *ops = *state;
    struct device *d = NULL;
    open_device(ops, &d);
    struct gp_error err = {0};
    dev_addr at = 0;
    assert_int_equal(ops->alloc(d, (size_t)1 << 60, &at, &err), -GP_EENV);
    assert_non_null(strstr(err.msg, "memory"));
    assert_int_equal(at, 0);
    ops->close(d);
}

static void test_unknown_kernel(void **state) {
    const struct device_ops *ops = *state;
    struct device *d = NULL;
    open_device(ops, &d);
    struct gp_error err = {0};
    struct launch_args l = {.kernel = "no_such_kernel", .items = 1};
    assert_int_equal(ops->launch(d, &l, &err), -GP_EINTERNAL);
    assert_non_null(strstr(err.msg, "no_such_kernel"));
    ops->close(d);
}

/* The reference, written down once more: k rising, one rounded product and one rounded sum at a time. */
static void reference(const struct gemm_args *g, const float *a, const float *b, float *c) {
    for (int s = 0; s < g->batch; s++) {
        const float *x = a + s * g->stride_a, *y = b + s * g->stride_b;
        float *z = c + s * g->stride_c;
        for (int i = 0; i < g->m; i++) {
            for (int j = 0; j < g->n; j++) {
                volatile float sum = g->accumulate ? z[i * g->n + j] : 0.0f;
                for (int k = 0; k < g->k; k++) {
                    volatile float p =
                        x[g->trans_a ? k * g->m + i : i * g->k + k] * y[g->trans_b ? j * g->k + k : k * g->n + j];
                    sum = sum + p;
                }
                z[i * g->n + j] = sum;
            }
        }
    }
}

static void one_gemm(const struct device_ops *ops, struct device *d, struct gemm_args g) {
    enum { MAX = 4096 };
    float a[MAX], b[MAX], c[MAX], want[MAX];
    uint64_t x = (uint64_t)g.m * 31 + (uint64_t)g.n * 7 + (uint64_t)g.k;
    for (size_t i = 0; i < MAX; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        a[i] = (float)(int32_t)(x >> 32) / 1e9f;
        b[i] = (float)(int32_t)(x >> 20) / 7e8f;
        c[i] = want[i] = (float)(int)i / 3.0f;
    }
    g.stride_a = (int64_t)g.m * g.k;
    g.stride_b = (int64_t)g.k * g.n;
    g.stride_c = (int64_t)g.m * g.n + 3; /* what lies between must stay as it is */
    assert_true(g.batch * g.stride_a <= MAX && g.batch * g.stride_b <= MAX && g.batch * g.stride_c <= MAX);
    reference(&g, a, b, want);
    struct gp_error err = {0};
    g.a = put(ops, d, a, sizeof a);
    g.b = put(ops, d, b, sizeof b);
    g.c = put(ops, d, c, sizeof c);
    assert_int_equal(ops->gemm(d, &g, &err), 0);
    get(ops, d, g.c, c, sizeof c);
    assert_memory_equal(c, want, sizeof c);
    ops->free(d, g.a);
    ops->free(d, g.b);
    ops->free(d, g.c);
}

static void test_gemm_is_the_reference(void **state) {
    const struct device_ops *ops = *state;
    static const int shapes[][4] = {{1, 1, 1, 1}, {3, 5, 7, 1}, {16, 16, 16, 4}, {33, 17, 40, 2}, {2, 64, 9, 3}};
    struct device *d = NULL;
    open_device(ops, &d);
    for (size_t i = 0; i < GP_ARRAY_LEN(shapes); i++) {
        for (int flags = 0; flags < 8; flags++) {
            struct gemm_args g = {.type = GEMM_F32,
                                  .in_order = true,
                                  .m = shapes[i][0],
                                  .n = shapes[i][1],
                                  .k = shapes[i][2],
                                  .batch = shapes[i][3],
                                  .trans_a = flags & 1,
                                  .trans_b = flags & 2,
                                  .accumulate = flags & 4};
            one_gemm(ops, d, g);
        }
    }
    ops->close(d);
}

/* Only the CUDA device has these kernels. Any shape of the launch gives the same. */
static void test_memory_kernels(void **state) {
    const struct device_ops *ops = *state;
    struct device *d = NULL;
    open_device(ops, &d);
    enum { WORDS = 5000, ITEMS = 130 };
    static uint64_t words[WORDS], seen[ITEMS];
    struct mem_log log;
    dev_addr at = put(ops, d, words, sizeof words), log_at = put(ops, d, &log, sizeof log);
    dev_addr seen_at = put(ops, d, seen, sizeof seen);
    union kernel_arg args[7] = {{.p = at}, {.i = WORDS},  {.i32 = MEM_RANDOM}, {.u = 7},
                                {.u = 0},  {.p = log_at}, {.p = seen_at}};
    static const unsigned shapes[][2] = {{0, 0}, {32, 1}, {64, 7}, {128, 2}};
    for (size_t s = 0; s < GP_ARRAY_LEN(shapes); s++) {
        struct gp_error err = {0};
        struct launch_args l = {.kernel = "gp_mem_fill",
                                .items = ITEMS,
                                .block = shapes[s][0],
                                .grid = shapes[s][1],
                                .args = args,
                                .n_args = 5};
        assert_int_equal(ops->launch(d, &l, &err), 0);
        get(ops, d, at, words, sizeof words);
        words[4711] ^= (uint64_t)1 << 63;
        memset(seen, 0, sizeof seen);
        memset(&log, 0, sizeof log);
        struct copy_args back[3] = {{.kind = COPY_TO_DEVICE, .dev = at, .host = words, .bytes = sizeof words},
                                    {.kind = COPY_TO_DEVICE, .dev = log_at, .host = &log, .bytes = sizeof log},
                                    {.kind = COPY_TO_DEVICE, .dev = seen_at, .host = seen, .bytes = sizeof seen}};
        for (size_t i = 0; i < GP_ARRAY_LEN(back); i++) assert_int_equal(ops->copy(d, &back[i], &err), 0);
        l.kernel = "gp_mem_verify";
        l.n_args = 7;
        assert_int_equal(ops->launch(d, &l, &err), 0);
        get(ops, d, log_at, &log, sizeof log);
        get(ops, d, seen_at, seen, sizeof seen);
        assert_int_equal(log.wrong, 1);
        assert_int_equal(log.logged, 1);
        assert_true(log.words[0].at == at + 4711 * 8 && (log.words[0].got ^ log.words[0].want) == (uint64_t)1 << 63);
        uint64_t all = 0;
        for (size_t i = 0; i < ITEMS; i++) all += seen[i];
        assert_int_equal(all, WORDS);
    }
    ops->close(d);
}

/* Times are the stand-in's virtual ones, of its model H100 with noise of 2 %. */
static void near_rate(double bytes, double seconds, double gb_per_s) {
    double rate = bytes / 1e9 / seconds;
    if (rate < 0.97 * gb_per_s || rate > 1.03 * gb_per_s) fail_msg("%g GB/s, not about %g", rate, gb_per_s);
}

static void test_marks_and_queued_copies(void **state) {
    (void)state;
    enum { BYTES = 8 << 20 };
    struct device *d = NULL;
    struct gp_error err = {0};
    dev_addr a = 0, b = 0;
    void *in = NULL, *out = NULL;
    double s[3] = {0};
    open_device(&device_cuda, &d);
    assert_int_equal(device_cuda.alloc(d, BYTES, &a, &err), 0);
    assert_int_equal(device_cuda.alloc(d, BYTES, &b, &err), 0);
    assert_int_equal(cuda_host_alloc(d, BYTES, &in, &err), 0);
    assert_int_equal(cuda_host_alloc(d, BYTES, &out, &err), 0);
    for (size_t i = 0; i < BYTES; i++) ((unsigned char *)in)[i] = (unsigned char)(i * 7 / 3);
    struct copy_args c[3] = {{.kind = COPY_TO_DEVICE, .dev = a, .host = in, .bytes = BYTES},
                             {.kind = COPY_WITHIN, .dev = b, .dev_src = a, .bytes = BYTES},
                             {.kind = COPY_FROM_DEVICE, .dev = b, .host = out, .bytes = BYTES}};
    assert_int_equal(cuda_elapsed(d, 0, 1, &s[0], &err), -GP_EINTERNAL); /* not recorded yet */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cuda_mark(d, i, &(struct gp_error){0}), 0);
        assert_int_equal(cuda_copy_queue(d, &c[i], &(struct gp_error){0}), 0);
    }
    assert_int_equal(cuda_mark(d, 3, &(struct gp_error){0}), 0);
    assert_int_equal(device_cuda.sync(d, clock_deadline(10000), &(struct gp_error){0}), 0);
    assert_memory_equal(in, out, BYTES);
    for (int i = 0; i < 3; i++) assert_int_equal(cuda_elapsed(d, i, i + 1, &s[i], &(struct gp_error){0}), 0);
    near_rate(BYTES, s[0], 55);
    near_rate(2.0 * BYTES, s[1], 2950);
    near_rate(BYTES, s[2], 54);
    assert_int_equal(cuda_mark(d, CUDA_MARKS, &(struct gp_error){0}), -GP_EINTERNAL);
    /* memory that is not page-locked is refused by the driver, not waited for */
    c[2].host = malloc(BYTES);
    assert_int_equal(cuda_copy_queue(d, &c[2], &(struct gp_error){0}), -GP_EENV);
    assert_int_equal(device_cuda.copy(d, &c[2], &(struct gp_error){0}), 0);
    assert_memory_equal(in, c[2].host, BYTES);
    free(c[2].host);
    cuda_host_free(d, in); /* out is freed with the device */
    device_cuda.close(d);
}

static void test_peers(void **state) {
    (void)state;
    enum { BYTES = 4 << 20 };
    struct device *d[2] = {NULL, NULL};
    dev_addr at[2] = {0, 0};
    static unsigned char in[BYTES], out[BYTES];
    struct gp_error err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(device_cuda.open(i, &d[i], &err), 0);
        assert_int_equal(device_cuda.alloc(d[i], BYTES, &at[i], &err), 0);
    }
    for (size_t i = 0; i < BYTES; i++) in[i] = (unsigned char)(i % 251);
    struct copy_args c = {.kind = COPY_TO_DEVICE, .dev = at[0], .host = in, .bytes = BYTES};
    assert_int_equal(device_cuda.copy(d[0], &c, &err), 0);
    double s[2] = {0};
    bool direct = false;
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(cuda_mark(d[0], 0, &err), 0);
        assert_int_equal(cuda_copy_peer(d[0], at[0], d[1], at[1], BYTES, &err), 0);
        assert_int_equal(cuda_mark(d[0], 1, &err), 0);
        assert_int_equal(device_cuda.sync(d[0], clock_deadline(10000), &err), 0);
        assert_int_equal(cuda_elapsed(d[0], 0, 1, &s[pass], &err), 0);
        assert_int_equal(cuda_peer_enable(d[0], d[1], &direct, &err), 0);
        assert_true(direct); /* and again: already enabled is no error */
    }
    near_rate(BYTES, s[1], 390);
    assert_true(s[0] > 5 * s[1]); /* through the host */
    c = (struct copy_args){.kind = COPY_FROM_DEVICE, .dev = at[1], .host = out, .bytes = BYTES};
    assert_int_equal(device_cuda.copy(d[1], &c, &err), 0);
    assert_memory_equal(in, out, BYTES);
    device_cuda.close(d[0]);
    device_cuda.close(d[1]);
}

/* GB/s of copies within GPU 0 and to it, by a stand-in that is told how to be. */
static void rates_of(const char *standin, double *ret_within, double *ret_to) {
    enum { BYTES = 4 << 20 };
    struct device *d = NULL;
    struct gp_error err = {0};
    dev_addr a = 0, b = 0;
    void *host = NULL;
    double s[2] = {0};
    setenv("GPUPROV_STANDIN", standin, 1);
    open_device(&device_cuda, &d);
    assert_int_equal(device_cuda.alloc(d, BYTES, &a, &err), 0);
    assert_int_equal(device_cuda.alloc(d, BYTES, &b, &err), 0);
    assert_int_equal(cuda_host_alloc(d, BYTES, &host, &err), 0);
    struct copy_args c[2] = {{.kind = COPY_WITHIN, .dev = b, .dev_src = a, .bytes = BYTES},
                             {.kind = COPY_TO_DEVICE, .dev = a, .host = host, .bytes = BYTES}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuda_mark(d, i, &err), 0);
        assert_int_equal(cuda_copy_queue(d, &c[i], &err), 0);
    }
    assert_int_equal(cuda_mark(d, 2, &err), 0);
    assert_int_equal(device_cuda.sync(d, clock_deadline(10000), &err), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(cuda_elapsed(d, i, i + 1, &s[i], &err), 0);
    *ret_within = 2.0 * BYTES / 1e9 / s[0];
    *ret_to = BYTES / 1e9 / s[1];
    device_cuda.close(d);
    unsetenv("GPUPROV_STANDIN");
}

static void test_slow_gpus(void **state) {
    (void)state;
    static const struct {
        const char *standin;
        double within, to; /* percent of the model's */
    } knobs[] = {{"slow=50", 50, 50},
                 {"slow_copy=40", 40, 100},
                 {"slow_h2d=30", 100, 30},
                 {"slow=50,slow_copy=50", 25, 50},
                 {"gpu=1,slow=50", 100, 100},
                 {"noise=0", 100, 100},
                 {"decay=60,decay_after=0", 60, 60},
                 {"seed=7", 100, 100}};
    for (size_t i = 0; i < GP_ARRAY_LEN(knobs); i++) {
        double within = 0, to = 0;
        rates_of(knobs[i].standin, &within, &to);
        near_rate(within * 1e9, 1, 29.5 * knobs[i].within);
        near_rate(to * 1e9, 1, 0.55 * knobs[i].to);
    }
    double t4 = 0, to = 0;
    rates_of("profile=t4", &t4, &to);
    near_rate(t4 * 1e9, 1, 250);
}

static void test_attributes(void **state) {
    (void)state;
    struct device *d = NULL;
    unsigned device = 0, subsystem = 0;
    open_device(&device_cuda, &d);
    assert_int_equal(cuda_attribute(d, CU_ATTR_SMS), 132);
    assert_true(cuda_pci_ids(d, &device, &subsystem));
    assert_int_equal(device, 0x2330);
    assert_int_equal(subsystem, 0x16c1);
    device_cuda.close(d);
}

/* Shared memory, phases, atomics, warps, the multiprocessor's number; and a faulty multiprocessor. */
static void test_block_kernels(void **state) {
    (void)state;
    enum { COUNT = 10000, BLOCKS = 16 };
    static int x[COUNT];
    int tree[BLOCKS], warps[BLOCKS], sm[BLOCKS], seen[3] = {0, 1 << 30, -1}, want[BLOCKS] = {0};
    struct device *d = NULL;
    struct gp_error err = {0};
    open_device(&device_cuda, &d);
    for (int i = 0; i < COUNT; i++) {
        x[i] = i * 37 % 1001 - 500;
        want[i / 256 % BLOCKS] += x[i];
    }
    for (int bad = 0; bad < 2; bad++) {
        const struct device_ops *ops = &device_cuda;
        union kernel_arg args[6] = {{.p = put(ops, d, x, sizeof x)},       {.i = COUNT},
                                    {.p = put(ops, d, tree, sizeof tree)}, {.p = put(ops, d, warps, sizeof warps)},
                                    {.p = put(ops, d, sm, sizeof sm)},     {.p = put(ops, d, seen, sizeof seen)}};
        struct launch_args l = {
            .kernel = "gp_test_sums", .items = COUNT, .block = 256, .grid = BLOCKS, .args = args, .n_args = 6};
        setenv("GPUPROV_STANDIN", bad ? "sm=5,sm_bit=9" : "", 1);
        assert_int_equal(ops->launch(d, &l, &err), 0);
        unsetenv("GPUPROV_STANDIN");
        int got[3];
        get(ops, d, args[2].p, tree, sizeof tree);
        get(ops, d, args[3].p, warps, sizeof warps);
        get(ops, d, args[4].p, sm, sizeof sm);
        get(ops, d, args[5].p, got, sizeof got);
        for (int b = 0; b < BLOCKS; b++) {
            assert_int_equal(tree[b], bad && b == 5 ? want[b] ^ 1 << 9 : want[b]);
            assert_int_equal(warps[b], want[b]);
            assert_int_equal(sm[b], b);
        }
        assert_int_equal(got[1], 0);
        assert_int_equal(got[2], COUNT - 1);
        if (!bad) assert_int_equal(got[0], 256 * BLOCKS);
    }
    device_cuda.close(d);
}

/* A device that misbehaves: what its calls say, and that none of them blocks. */
static void test_bad_days(void **state) {
    (void)state;
    static const struct {
        const char *standin;
        int copies; /* that work before */
        int code;
        const char *says;
    } days[] = {
        {"lost_after=3", 3, -GP_EENV, "(999)"},
        {"lost_after=2,lost=719", 2, -GP_EENV, "LAUNCH_FAILED"},
        {"hang_after=2", 2, -GP_ETIMEOUT, "did not end before"},
        {"pinned=2", 0, -GP_EENV, "page-lock"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(days); i++) {
        struct device *d = NULL;
        struct gp_error err = {0};
        dev_addr at = 0;
        int word = 7, rc = 0, good = 0;
        open_device(&device_cuda, &d);
        assert_int_equal(device_cuda.alloc(d, sizeof word, &at, &err), 0);
        setenv("GPUPROV_STANDIN", days[i].standin, 1);
        for (; rc == 0 && good < 10; good += rc == 0) {
            struct copy_args c = {.kind = COPY_TO_DEVICE,
                                  .dev = at,
                                  .host = &word,
                                  .bytes = sizeof word,
                                  .deadline_ms = clock_deadline(50)};
            rc = device_cuda.copy(d, &c, &err);
        }
        assert_int_equal(rc, days[i].code);
        assert_int_equal(good, days[i].copies);
        if (!strstr(err.msg, days[i].says)) fail_msg("'%s' does not say '%s'", err.msg, days[i].says);
        device_cuda.close(d);
        unsetenv("GPUPROV_STANDIN");
    }
}

/* A process that was stopped for longer than the deadline: its work gets the rest of the time. */
static void test_time_that_stood_still(void **state) {
    (void)state;
    struct device *d = NULL;
    struct gp_error err = {0};
    dev_addr at = 0;
    int word = 7;
    open_device(&device_cuda, &d);
    assert_int_equal(device_cuda.alloc(d, sizeof word, &at, &err), 0);
    setenv("GPUPROV_STANDIN", "hang_after=0", 1);
    int begins[2];
    assert_int_equal(pipe(begins), 0);
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        if (read(begins[0], &word, 1) != 1) _exit(1);
        usleep(100000);
        kill(self, SIGSTOP);
        usleep(2500000);
        kill(self, SIGCONT);
        _exit(0);
    }
    int64_t began = clock_ms();
    struct copy_args c = {
        .kind = COPY_TO_DEVICE, .dev = at, .host = &word, .bytes = sizeof word, .deadline_ms = clock_deadline(2000)};
    assert_int_equal(write(begins[1], "x", 1), 1); /* the time of the copy runs */
    assert_int_equal(device_cuda.copy(d, &c, &err), -GP_ETIMEOUT);
    assert_true(clock_ms() - began >= 4400);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(begins[0]);
    close(begins[1]);
    device_cuda.close(d);
    unsetenv("GPUPROV_STANDIN");
}

int main(int argc, char **argv) {
    (void)argc;
    use_standins(argv[0]);
#define BOTH(f)                                                                                 \
    {.name = #f " (host)", .test_func = f, .initial_state = (void *)(uintptr_t)&device_host}, { \
        .name = #f " (cuda)", .test_func = f, .initial_state = (void *)(uintptr_t)&device_cuda  \
    }
    const struct CMUnitTest tests[] = {
        BOTH(test_copy),
        BOTH(test_too_much_memory),
        BOTH(test_unknown_kernel),
        BOTH(test_gemm_is_the_reference),
        {.name = "test_memory_kernels (cuda)",
         .test_func = test_memory_kernels,
         .initial_state = (void *)(uintptr_t)&device_cuda},
        cmocka_unit_test(test_marks_and_queued_copies),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_slow_gpus),
        cmocka_unit_test(test_block_kernels),
        cmocka_unit_test(test_bad_days),
        cmocka_unit_test(test_time_that_stood_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

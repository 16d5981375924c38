/* SPDX-License-Identifier: Apache-2.0 */
/* Each kernel that train.ddp launches: the host device's implementation and the CUDA one, stepped by
 * the stand-in driver, on the same random operands. What both leave in memory must be the same bits,
 * whatever the shape of the launch. */
#include "base/gp_base.h"

#include "cuda_world.h"
#include "validate/agent/device/host_kernels.h"
#include "validate/agent/device/numeric.h"

/* An argument: N elements of memory filled as WHAT says, or a number. */
enum fill {
    END,
    FLOATS,   /* in (-1, 1) */
    POSITIVE, /* in (0.5, 1.5) */
    HALVES,   /* 16-bit, in (-1, 1): bf16 or fp16, see BF */
    TOKENS,   /* int32 below VOCAB */
    INT,
    BF, /* 1 in the first of two runs, 0 in the second */
    FLOAT
};
struct arg {
    enum fill fill;
    int64_t n; /* elements, or the number of INT */
    float f;
};
/* Wide rows use more than one group of eight per lane, and leave lanes without any. */
enum { WIDE = 1288, CHUNK = 5, CHUNKS = 4, G = 8 /* of mixed kernels: elements of an item */ };
enum { BATCH = 2, CTX = 8, ROWS = BATCH * CTX, DIM = 24, HEADS = 3, DH = 8, VOCAB = 11 };
struct kernel_case {
    const char *name;
    int64_t items;
    struct arg args[14];
};
/* A block does one row, with 128 threads. */
static const char *const by_rows[] = {"mx_add_norm",    "mx_norm_bwd", "mx_softmax",
                                      "mx_softmax_bwd", "mx_xent",     "mx_square_sum"};
#define HALF(n) \
    { HALVES, n, 0 }
#define BF16 \
    { BF, 0, 0 }
#define BUF(n) \
    { FLOATS, n, 0 }
#define POS(n) \
    { POSITIVE, n, 0 }
#define TOK(n) \
    { TOKENS, n, 0 }
#define I(v) \
    { INT, v, 0 }
#define S(v) \
    { FLOAT, 0, v }
static const struct kernel_case cases[] = {
    {"embed_fwd", ROWS, {BUF(ROWS * DIM), TOK(ROWS), BUF(VOCAB *DIM), BUF(CTX *DIM), I(DIM), I(CTX)}},
    {"embed_bwd_tok", VOCAB, {BUF(VOCAB * DIM), BUF(ROWS *DIM), TOK(ROWS), I(ROWS), I(DIM)}},
    {"embed_bwd_pos", CTX, {BUF(CTX * DIM), BUF(ROWS *DIM), I(ROWS), I(DIM)}},
    {"layernorm_fwd", ROWS, {BUF(ROWS * DIM), BUF(ROWS), BUF(ROWS), BUF(ROWS *DIM), BUF(DIM), BUF(DIM), I(DIM)}},
    {"layernorm_bwd_x",
     ROWS,
     {BUF(ROWS * DIM), BUF(ROWS *DIM), BUF(ROWS *DIM), BUF(ROWS), POS(ROWS), BUF(DIM), I(DIM)}},
    {"layernorm_bwd_p", DIM, {BUF(DIM), BUF(DIM), BUF(ROWS *DIM), BUF(ROWS *DIM), BUF(ROWS), POS(ROWS), I(ROWS)}},
    {"bias_add", ROWS, {BUF(ROWS * DIM), BUF(DIM), I(DIM)}},
    {"bias_bwd", DIM, {BUF(DIM), BUF(ROWS *DIM), I(ROWS)}},
    {"attention_fwd",
     ROWS *HEADS,
     {BUF(ROWS * DIM), BUF(ROWS *HEADS *CTX), BUF(ROWS * 3 * DIM), I(CTX), I(HEADS), I(DH), S(0.35f)}},
    {"attention_bwd_q",
     ROWS *HEADS,
     {BUF(ROWS * 3 * DIM), BUF(ROWS *HEADS *CTX), BUF(ROWS *DIM), BUF(ROWS *HEADS *CTX), BUF(ROWS * 3 * DIM), I(CTX),
      I(HEADS), I(DH), S(0.35f)}},
    {"attention_bwd_kv",
     ROWS *HEADS,
     {BUF(ROWS * 3 * DIM), BUF(ROWS *HEADS *CTX), BUF(ROWS *DIM), BUF(ROWS *HEADS *CTX), BUF(ROWS * 3 * DIM), I(CTX),
      I(HEADS), I(DH)}},
    {"gelu_fwd", 1000, {BUF(1000), BUF(1000)}},
    {"gelu_bwd", 1000, {BUF(1000), BUF(1000)}},
    {"add", 1000, {BUF(1000), BUF(1000)}},
    {"scale", 1000, {BUF(1000), S(1.7f)}},
    {"softmax_xent", ROWS, {BUF(ROWS), BUF(ROWS *VOCAB), TOK(ROWS), I(VOCAB), S(0.0625f)}},
    {"adamw",
     1000,
     {BUF(1000), BUF(1000), BUF(1000), POS(1000), S(0.01f), S(0.9f), S(0.98f), S(1.3f), S(2.5f), S(0.01f)}},
    {"mx_cast", 1000 / G, {HALF(1000), BUF(1000), BF16}},
    {"mx_embed", ROWS *DIM / G, {BUF(ROWS * DIM), TOK(ROWS), BUF(VOCAB *DIM), BUF(CTX *DIM), I(DIM), I(CTX)}},
    {"mx_add_norm",
     ROWS,
     {HALF(ROWS * WIDE), BUF(ROWS *WIDE), BUF(ROWS), BUF(ROWS), BUF(ROWS *WIDE), HALF(ROWS *WIDE), BUF(WIDE), BUF(WIDE),
      BUF(WIDE), I(WIDE), BF16}},
    {"mx_add_norm",
     ROWS,
     {HALF(ROWS * DIM), I(0), BUF(ROWS), BUF(ROWS), BUF(ROWS *DIM), I(0), I(0), BUF(DIM), BUF(DIM), I(DIM), BF16}},
    {"mx_norm_bwd",
     ROWS,
     {BUF(ROWS * WIDE), HALF(ROWS *WIDE), HALF(ROWS *WIDE), BUF(ROWS *WIDE), BUF(ROWS), POS(ROWS), BUF(WIDE), I(WIDE),
      I(0), BF16}},
    {"mx_norm_bwd",
     ROWS,
     {BUF(ROWS * DIM), HALF(ROWS *DIM), HALF(ROWS *DIM), BUF(ROWS *DIM), BUF(ROWS), POS(ROWS), BUF(DIM), I(DIM), I(1),
      BF16}},
    {"mx_norm_bwd_p",
     CHUNKS *DIM / G,
     {BUF(CHUNKS * 2 * DIM), HALF(ROWS *DIM), BUF(ROWS *DIM), BUF(ROWS), POS(ROWS), I(ROWS), I(DIM), I(CHUNK), BF16}},
    {"mx_colsum", CHUNKS *DIM / G, {BUF(CHUNKS * DIM), HALF(ROWS *DIM), I(ROWS), I(DIM), I(CHUNK), BF16}},
    {"mx_sum_parts", DIM, {BUF(DIM), BUF(5 * 100), I(5), I(100), I(1)}},
    {"mx_sum_parts", DIM, {BUF(DIM), BUF(5 * 100), I(5), I(100), I(0)}},
    {"mx_qkv_split",
     ROWS * 3 * DIM / G,
     {HALF(ROWS * 3 * DIM), HALF(ROWS * 3 * DIM), BUF(3 * DIM), I(ROWS), I(CTX), I(HEADS), I(DH), BF16}},
    {"mx_qkv_merge",
     ROWS * 3 * DIM / G,
     {HALF(ROWS * 3 * DIM), HALF(ROWS * 3 * DIM), I(ROWS), I(CTX), I(HEADS), I(DH)}},
    {"mx_heads_merge", ROWS *DIM / G, {HALF(ROWS * DIM), HALF(ROWS *DIM), I(CTX), I(HEADS), I(DH)}},
    {"mx_heads_split", ROWS *DIM / G, {HALF(ROWS * DIM), HALF(ROWS *DIM), I(CTX), I(HEADS), I(DH)}},
    {"mx_softmax", ROWS *HEADS, {HALF(ROWS * HEADS * CTX), I(CTX), S(2.5f), BF16}},
    {"mx_softmax", WIDE, {HALF(WIDE * WIDE), I(WIDE), S(2.5f), BF16}},
    {"mx_softmax_bwd", ROWS *HEADS, {HALF(ROWS * HEADS * CTX), HALF(ROWS *HEADS *CTX), I(CTX), S(0.5f), BF16}},
    {"mx_softmax_bwd", WIDE, {HALF(WIDE * WIDE), HALF(WIDE *WIDE), I(WIDE), S(0.5f), BF16}},
    {"mx_bias_gelu", ROWS *DIM / G, {HALF(ROWS * DIM), HALF(ROWS *DIM), BUF(DIM), I(DIM), BF16}},
    {"mx_gelu_bwd", ROWS *DIM / G, {HALF(ROWS * DIM), HALF(ROWS *DIM), BUF(DIM), I(DIM), BF16}},
    {"mx_xent", ROWS, {BUF(ROWS), HALF(ROWS *WIDE), BUF(ROWS *WIDE), TOK(ROWS), I(WIDE), S(64.0f), BF16}},
    {"mx_embed_bwd_tok", VOCAB *DIM / G, {BUF(VOCAB * DIM), BUF(ROWS *DIM), TOK(ROWS), I(ROWS), I(DIM), I(0)}},
    {"mx_embed_bwd_tok", VOCAB *DIM / G, {BUF(VOCAB * DIM), BUF(ROWS *DIM), TOK(ROWS), I(ROWS), I(DIM), I(1)}},
    {"mx_embed_bwd_pos", CTX *DIM / G, {BUF(CTX * DIM), BUF(ROWS *DIM), I(ROWS), I(DIM), I(1)}},
    {"mx_adamw",
     1000 / G,
     {BUF(1000), HALF(1000), BUF(1000), BUF(1000), POS(1000), S(0.01f), S(0.9f), S(0.98f), S(1.3f), S(2.5f), S(0.01f),
      S(0.37f), BF16}},
    {"mx_square_sum", 3, {BUF(3), BUF(10000), I(10000)}},
    {"mx_hash", 70, {BUF(2 * 70), BUF(1000), I(1000)}},
};

static size_t element_bytes(const struct arg *a) { return a->fill >= INT ? 0 : a->fill == HALVES ? 2 : 4; }

static uint32_t element(const struct arg *a, bool bf, uint64_t *seed) {
    *seed = num_mix(*seed);
    float unit = ((float)(int32_t)(*seed >> 40) - 8388608.0f) / 8388608.0f;
    if (a->fill == TOKENS) return (uint32_t)(*seed % VOCAB);
    if (a->fill == HALVES) return bf ? num_to_bf16(unit) : num_to_f16(unit);
    return num_bits(a->fill == POSITIVE ? 1.0f + 0.5f * unit : unit);
}

static void fill(const struct arg *a, bool bf, void *p, uint64_t *seed) {
    for (int64_t i = 0; i < a->n; i++) {
        uint32_t v = element(a, bf, seed);
        memcpy((char *)p + (size_t)i * element_bytes(a), &v, element_bytes(a));
    }
}

/* What each buffer holds after the launch, one after the other; the caller frees it. */
static unsigned char *launch(const struct device_ops *ops, const struct kernel_case *k, bool bf, unsigned block,
                             unsigned grid, size_t *ret_bytes) {
    struct gp_error err = {0};
    struct device *d = NULL;
    union kernel_arg args[GP_ARRAY_LEN(k->args)] = {0};
    uint64_t seed = 42;
    size_t n = 0, total = 0, at = 0;
    if (ops->open(0, &d, &err) < 0) fail_msg("%s", err.msg);
    for (; k->args[n].fill != END; n++) {
        const struct arg *a = &k->args[n];
        size_t bytes = (size_t)a->n * element_bytes(a);
        args[n].i = a->n;
        if (a->fill == FLOAT) args[n] = (union kernel_arg){.f = a->f};
        if (a->fill == BF) args[n].i = bf;
        if (!element_bytes(a)) continue;
        GP_AUTO_FREE void *p = xcalloc(1, bytes);
        fill(a, bf, p, &seed);
        assert_int_equal(ops->alloc(d, bytes, &args[n].p, &err), 0);
        struct copy_args c = {.kind = COPY_TO_DEVICE, .dev = args[n].p, .host = p, .bytes = bytes};
        assert_int_equal(ops->copy(d, &c, &err), 0);
        total += bytes;
    }
    struct launch_args l = {
        .kernel = k->name, .items = k->items, .block = block, .grid = grid, .args = args, .n_args = n};
    if (ops->launch(d, &l, &err) != 0 || ops->sync(d, clock_deadline(20000), &err) != 0)
        fail_msg("%s on %s: %s", k->name, ops->name, err.msg);
    unsigned char *out = xcalloc(1, total);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)k->args[i].n * element_bytes(&k->args[i]);
        struct copy_args c = {.kind = COPY_FROM_DEVICE, .dev = args[i].p, .host = out + at, .bytes = bytes};
        if (bytes) assert_int_equal(ops->copy(d, &c, &err), 0);
        at += bytes;
    }
    ops->close(d);
    *ret_bytes = total;
    return out;
}

static bool rowwise(const struct kernel_case *k) {
    for (size_t i = 0; i < GP_ARRAY_LEN(by_rows); i++)
        if (str_eq(k->name, by_rows[i])) return true;
    return false;
}

static void the_same_bits(const struct kernel_case *k, bool bf) {
    static const unsigned shapes[][2] = {{0, 0}, {32, 1}, {64, 7}}, rows[][2] = {{128, 1}, {128, 7}};
    size_t bytes = 0, other = 0;
    GP_AUTO_FREE unsigned char *want = launch(&device_host, k, bf, 0, 0, &bytes);
    const bool by_row = rowwise(k);
    for (size_t s = 0; s < (by_row ? GP_ARRAY_LEN(rows) : GP_ARRAY_LEN(shapes)); s++) {
        const unsigned *shape = by_row ? rows[s] : shapes[s];
        GP_AUTO_FREE unsigned char *got = launch(&device_cuda, k, bf, shape[0], shape[1], &other);
        assert_int_equal(bytes, other);
        for (size_t i = 0; i < bytes; i++)
            if (got[i] != want[i])
                fail_msg("%s (bf %d): byte %zu of its buffers is 0x%02x, on the host 0x%02x (%u blocks of "
                         "%u)",
                         k->name, bf, i, got[i], want[i], shape[1], shape[0]);
    }
}

static void test_the_same_bits(void **state) {
    the_same_bits(*state, true);
    the_same_bits(*state, false);
}

/* A kernel without a case above would be one that nothing compares. */
static void test_every_kernel_is_here(void **state) {
    (void)state;
    for (const struct host_kernel *h = host_kernels; h->name; h++) {
        size_t i = 0;
        while (i < GP_ARRAY_LEN(cases) && !str_eq(cases[i].name, h->name)) i++;
        if (i == GP_ARRAY_LEN(cases)) fail_msg("kernel '%s' of the host device has no case here", h->name);
        size_t n = 0;
        while (cases[i].args[n].fill != END) n++;
        assert_int_equal(n, h->n_args);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    use_standins(argv[0]);
    struct CMUnitTest tests[GP_ARRAY_LEN(cases) + 1] = {
        {.name = "test_every_kernel_is_here", .test_func = test_every_kernel_is_here}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++)
        tests[i + 1] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_the_same_bits, .initial_state = (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

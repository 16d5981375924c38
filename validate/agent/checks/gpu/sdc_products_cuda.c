/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.sdc's products: known ones, whose tiles' checksums are compared with integer arithmetic, and random ones,
 * which must be equal every time. One thread. */
#include "base/gp_base.h"

#include "sdc_cuda.h"

#include "validate/agent/cuda/cuda.h"
#include "validate/agent/cuda/kernels/memory.h"

static const ku64 known_seed = 0x6b6e6f776eull, random_seed = 0x72616e646full;

static int copy(struct sdc *s, enum copy_kind kind, dev_addr dev, void *host, size_t bytes, struct gp_error *err) {
    struct copy_args a = {.kind = kind, .dev = dev, .host = host, .bytes = bytes, .deadline_ms = s->c->deadline_ms};
    return agent_kind.device->copy(s->d, &a, err);
}

int sdc_spoil_result(struct sdc *s, struct gp_error *err) {
    union kernel_arg a[5] = {
        {.p = s->result}, {.i = (int64_t)(s->result_bytes / 8)}, {.i32 = MEM_ZEROS}, {.u = 0}, {.u = ~(uint64_t)0}};
    int sms = cuda_attribute(s->d, CU_ATTR_SMS);
    return product_launch(s->d, "gp_mem_fill", (int64_t)GP_MAX(sms, 1) * 2048, a, 5, err);
}

int sdc_sum_tiles(struct sdc *s, int m, int n, int tile, struct gp_error *err) {
    int64_t tiles = (int64_t)(m / tile) * (n / tile);
    memset(s->got, 0, (size_t)tiles * sizeof *s->got);
    union kernel_arg cols[4] = {{.p = s->result}, {.i = n}, {.i32 = tile}, {.p = s->partial}};
    union kernel_arg all[4] = {{.p = s->partial}, {.i = n}, {.i32 = tile}, {.p = s->sums}};
    int rc = copy(s, COPY_TO_DEVICE, s->sums, s->got, (size_t)tiles * sizeof *s->got, err);
    if (rc == 0) rc = product_launch(s->d, "gp_column_sums", (int64_t)(m / tile) * n, cols, 4, err);
    if (rc == 0) rc = product_launch(s->d, "gp_tile_sums", tiles, all, 4, err);
    if (rc == 0) rc = agent_kind.device->sync(s->d, s->c->deadline_ms, err);
    return rc < 0 ? rc : copy(s, COPY_FROM_DEVICE, s->sums, s->got, (size_t)tiles * sizeof *s->got, err);
}

int sdc_look_tile(struct sdc *s, const struct known_product *k, size_t at, struct sdc_wrong *ret,
                  struct gp_error *err) {
    int across = k->n / k->tile, first_row = (int)at / across * k->tile, first_col = (int)at % across * k->tile;
    uint32_t words[128];
    ret->tile_row = (int)at / across;
    ret->tile_col = (int)at % across;
    ret->tile = k->tile;
    ret->found = false;
    for (int i = 0; i < k->tile && !ret->found; i++) {
        int row = first_row + i;
        dev_addr from = s->result + ((uint64_t)row * (uint64_t)k->n + (uint64_t)first_col) * 4;
        int rc = copy(s, COPY_FROM_DEVICE, from, words, (size_t)k->tile * 4, err);
        if (rc < 0) return rc;
        for (int j = 0; j < k->tile && !ret->found; j++) {
            int col = first_col + j;
            uint32_t want = k->bits[row % KNOWN_ROWS * KNOWN_COLS + col % KNOWN_COLS];
            if (known_bits(words[j]) == want) continue;
            ret->found = true;
            ret->row = row;
            ret->col = col;
            ret->got = words[j];
            ret->want = want;
        }
    }
    return 0;
}

/* --- known products --- */

static int known_once(struct sdc *s, struct sdc_type *t, struct gp_error *err) {
    const struct known_product *k = &t->full.known;
    int rc = sdc_spoil_result(s, err);
    if (rc == 0) rc = product_queue(s->d, &t->full.product, false, err);
    if (rc == 0) rc = sdc_sum_tiles(s, k->m, k->n, k->tile, err);
    if (rc == 0) {
        s->products++;
        t->products++;
    }
    return rc;
}

static size_t wrong_tiles(const struct sdc *s, const struct known_product *k, size_t *ret_first) {
    size_t n = (size_t)(k->m / k->tile) * (size_t)(k->n / k->tile), wrong = 0;
    for (size_t i = n; i-- > 0;) {
        if (s->got[i] == k->sums[i]) continue;
        wrong++;
        *ret_first = i;
    }
    return wrong;
}

/* A tile's sum is wrong: finds the wrong element on the host and repeats the product. */
static int name_wrong(struct sdc *s, struct sdc_type *t, size_t first, struct gp_error *err) {
    struct sdc_wrong w = {.type = t->t->name};
    size_t ignored = 0;
    int rc = sdc_look_tile(s, &t->full.known, first, &w, err);
    if (rc == 0) rc = known_once(s, t, err);
    w.repeated = rc == 0;
    w.again = rc == 0 && wrong_tiles(s, &t->full.known, &ignored) > 0;
    vec_push(&s->named, w);
    return rc;
}

int sdc_known_round(struct sdc *s, struct sdc_type *t, struct gp_error *err) {
    int repeats = t->t->type == GEMM_F32 || s->edge < 512 ? 1 : 4, rc = 0;
    for (int i = 0; rc == 0 && i < repeats; i++) {
        size_t first = 0;
        rc = known_once(s, t, err);
        size_t wrong = rc < 0 ? 0 : wrong_tiles(s, &t->full.known, &first);
        s->wrong_tiles += wrong;
        if (wrong && s->named.len < SDC_NAMED_MAX) rc = name_wrong(s, t, first, err);
    }
    return rc;
}

/* --- random products --- */

static int random_first(struct sdc *s, struct sdc_type *t, struct gp_error *err) {
    size_t tiles = (size_t)(s->edge / s->tile) * (size_t)(s->edge / s->tile);
    int64_t count = (int64_t)s->edge * s->edge;
    struct number_room room = {s->d, s->counts, s->c->deadline_ms};
    struct number_counts n;
    int rc = product_count(&room, s->result, count, KNOWN_F32, &n, err);
    if (rc < 0) return rc;
    if (n.seen != (uint64_t)count)
        return gp_fail(err, GP_EPROTO, "gpu %d: the counting kernel read %llu of %lld numbers", s->c->gpu,
                       (unsigned long long)n.seen, (long long)count);
    s->odd += n.odd;
    if (n.odd && !s->odd_type) s->odd_type = t->t->name;
    t->random_sums = xmalloc(tiles * sizeof *t->random_sums);
    memcpy(t->random_sums, s->got, tiles * sizeof *t->random_sums);
    return 0;
}

/* The same by our own kernel, whose order of additions is the same on every GPU. */
static int random_own(struct sdc *s, struct sdc_type *t, struct gp_error *err) {
    size_t tiles = (size_t)(s->edge / s->tile) * (size_t)(s->edge / s->tile);
    struct gemm_args g = product_args(&t->random, false);
    struct gp_error lacks = {0};
    int rc = sdc_spoil_result(s, err);
    if (rc == 0 && cuda_gemm_own(s->d, &g, 0, &lacks) < 0) {
        if (str_eq(lacks.detail, "NO_SUCH_TYPE")) return 0;
        *err = lacks;
        return -(int)lacks.code;
    }
    if (rc == 0) rc = sdc_sum_tiles(s, s->edge, s->edge, s->tile, err);
    if (rc < 0) return rc;
    t->own_fold = known_fold(s->got, tiles);
    s->products++;
    t->products++;
    return 0;
}

int sdc_random_round(struct sdc *s, struct sdc_type *t, struct gp_error *err) {
    size_t across = (size_t)(s->edge / s->tile), tiles = across * across;
    int rc = sdc_spoil_result(s, err);
    if (rc == 0) rc = product_queue(s->d, &t->random, false, err);
    if (rc == 0) rc = sdc_sum_tiles(s, s->edge, s->edge, s->tile, err);
    if (rc < 0) return rc;
    s->products++;
    t->products++;
    if (!t->random_sums) {
        rc = random_first(s, t, err);
        return rc < 0 || t->t->type == GEMM_F32 ? rc : random_own(s, t, err);
    }
    for (size_t i = 0; i < tiles; i++) {
        if (s->got[i] == t->random_sums[i]) continue;
        if (s->unsteady++ == 0) {
            str_put(s->unsteady_type, sizeof s->unsteady_type, t->t->name);
            s->unsteady_row = (int)(i / across);
            s->unsteady_col = (int)(i % across);
        }
    }
    return 0;
}

/* --- setting up --- */

static int setup_known(struct sdc *s, struct sdc_known *k, const struct product_type *t, int edge, int depth, int tile,
                       struct gp_error *err) {
    k->product = (struct product){.t = t, .m = edge, .n = edge, .k = depth, .c = s->result};
    k->known = (struct known_product){
        .type = (int)t->type, .m = edge, .n = edge, .k = depth, .tile = tile, .seed = known_seed};
    known_product_make(&k->known);
    int rc = product_alloc(s->d, &k->product, err);
    return rc < 0 ? rc : product_fill_known(s->d, &k->product, &k->known, err);
}

static int setup_type(struct sdc *s, const struct product_type *t, struct gp_error *err) {
    struct sdc_type *x = &s->types[s->n_types++];
    x->t = t;
    int rc = setup_known(s, &x->full, t, s->edge, GP_MIN(s->edge, known_depth_max((int)t->type)), s->tile, err);
    x->random = (struct product){.t = t, .m = s->edge, .n = s->edge, .k = s->edge, .c = s->result};
    if (rc == 0) rc = product_alloc(s->d, &x->random, err);
    if (rc == 0) rc = product_fill_random(s->d, &x->random, random_seed + (unsigned)t->type, err);
    /* 16 tiles for each SM on a large GPU; on a tiny one a tile for each SM, of one type only. */
    bool own = t->type != GEMM_F32 && (s->edge >= 512 || t->type == GEMM_F16);
    if (rc == 0 && own)
        rc = setup_known(s, &x->own, t, s->edge >= 512 ? GP_MAX(s->edge / 2, 2048) : 1536, s->edge >= 512 ? 256 : 32,
                         128, err);
    return rc;
}

int sdc_setup(struct sdc *s, struct gp_error *err) {
    const struct device_ops *ops = agent_kind.device;
    int rc = cuda_gemm_start(s->d, err);
    if (rc == 0) rc = product_edge(s->d, 4, &s->edge, err);
    if (rc < 0) return rc;
    s->tile = s->edge >= 512 ? 128 : 32;
    size_t largest = (size_t)GP_MAX(s->edge, 2048);
    s->result_bytes = largest * largest * 4;
    s->sums_max = GP_MAX(largest / 128 * (largest / 128), (size_t)(s->edge / s->tile) * (size_t)(s->edge / s->tile));
    s->got = xcalloc(s->sums_max, sizeof *s->got);
    rc = ops->alloc(s->d, s->result_bytes, &s->result, err);
    if (rc == 0)
        rc = ops->alloc(s->d, GP_MAX(largest / 128, (size_t)(s->edge / s->tile)) * largest * 8, &s->partial, err);
    if (rc == 0) rc = ops->alloc(s->d, s->sums_max * 8, &s->sums, err);
    if (rc == 0) rc = ops->alloc(s->d, s->sums_max * 4, &s->tile_sms, err);
    if (rc == 0) rc = ops->alloc(s->d, 3 * sizeof(uint64_t), &s->counts, err);
    for (const struct product_type *t = product_types; rc == 0 && t->name; t++)
        if (product_has(s->d, t)) rc = setup_type(s, t, err);
    return rc < 0 ? rc : sdc_probe_setup(s, err);
}

void sdc_clear(struct sdc *s) {
    const struct device_ops *ops = agent_kind.device;
    for (size_t i = 0; i < s->n_types; i++) {
        struct sdc_type *t = &s->types[i];
        product_free(s->d, &t->full.product);
        product_free(s->d, &t->own.product);
        product_free(s->d, &t->random);
        known_product_clear(&t->full.known);
        known_product_clear(&t->own.known);
        free(t->random_sums);
    }
    dev_addr all[] = {s->result,  s->partial, s->sums,         s->tile_sms, s->counts,
                      s->probe_a, s->probe_b, s->probe_result, s->probe_sm};
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++) ops->free(s->d, all[i]);
    known_product_clear(&s->probe);
    vec_free(&s->named);
    free(s->got);
}

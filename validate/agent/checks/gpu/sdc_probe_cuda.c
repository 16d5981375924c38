/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the multiprocessor that computes wrong: our own kernels compute exact products on every SM and record the
 * SM. The results are compared elsewhere (checksums on all SMs, then the host), because a faulty SM may compare
 * wrong too. One thread. */
#include "base/gp_base.h"

#include "sdc_cuda.h"

#include "validate/agent/cuda/cuda.h"

static int copy(struct sdc *s, enum copy_kind kind, dev_addr dev, void *host, size_t bytes, struct gp_error *err) {
    struct copy_args a = {.kind = kind, .dev = dev, .host = host, .bytes = bytes, .deadline_ms = s->c->deadline_ms};
    return agent_kind.device->copy(s->d, &a, err);
}

static int probe_operand(struct sdc *s, bool is_b, dev_addr to, struct gp_error *err) {
    int64_t outer = is_b ? KNOWN_COLS : KNOWN_ROWS;
    union kernel_arg a[9] = {{.p = to},
                             {.i = outer},
                             {.i = s->probe.k},
                             {.i32 = KNOWN_F32},
                             {.i32 = is_b},
                             {.i32 = 1},
                             {.i32 = s->probe.limits.big},
                             {.i32 = s->probe.limits.small},
                             {.u = s->probe.seed}};
    return product_launch(s->d, "gp_known_operand", outer * s->probe.k, a, GP_ARRAY_LEN(a), err);
}

int sdc_probe_setup(struct sdc *s, struct gp_error *err) {
    const struct device_ops *ops = agent_kind.device;
    int sms = cuda_attribute(s->d, CU_ATTR_SMS);
    s->probe_items = GP_MAX(sms, 1) * (s->edge >= 512 ? 2048 : 256);
    s->probe = (struct known_product){
        .type = KNOWN_F32, .m = 128, .n = 128, .k = s->edge >= 512 ? 512 : 64, .tile = 128, .seed = 0x736d};
    known_product_make(&s->probe);
    size_t depth = (size_t)s->probe.k, items = (size_t)s->probe_items;
    int rc = ops->alloc(s->d, KNOWN_ROWS * depth * 4, &s->probe_a, err);
    if (rc == 0) rc = ops->alloc(s->d, KNOWN_COLS * depth * 4, &s->probe_b, err);
    if (rc == 0) rc = ops->alloc(s->d, items * 4, &s->probe_result, err);
    if (rc == 0) rc = ops->alloc(s->d, items * 4, &s->probe_sm, err);
    if (rc == 0) rc = probe_operand(s, false, s->probe_a, err);
    return rc < 0 ? rc : probe_operand(s, true, s->probe_b, err);
}

static int note_sm(struct sdc *s, int sm, bool wrong, struct gp_error *err) {
    if (sm < 0 || sm >= SDC_SMS_MAX)
        return gp_fail(err, GP_EPROTO, "gpu %d: the probe kernel did not complete (SM %d)", s->c->gpu, sm);
    s->sms[sm].did++;
    s->sms[sm].wrong += wrong;
    return 0;
}

int sdc_probe_fp32(struct sdc *s, struct gp_error *err) {
    size_t n = (size_t)s->probe_items;
    GP_AUTO_FREE uint32_t *result = xmalloc(n * sizeof *result);
    GP_AUTO_FREE int32_t *sm = xmalloc(n * sizeof *sm);
    memset(sm, 0xff, n * sizeof *sm);
    memset(result, 0xff, n * sizeof *result);
    int rc = copy(s, COPY_TO_DEVICE, s->probe_sm, sm, n * sizeof *sm, err);
    if (rc == 0) rc = copy(s, COPY_TO_DEVICE, s->probe_result, result, n * sizeof *result, err);
    union kernel_arg a[5] = {
        {.p = s->probe_a}, {.p = s->probe_b}, {.i32 = s->probe.k}, {.p = s->probe_result}, {.p = s->probe_sm}};
    if (rc == 0) rc = product_launch(s->d, "gp_sm_product", (int64_t)n, a, GP_ARRAY_LEN(a), err);
    if (rc == 0) rc = agent_kind.device->sync(s->d, s->c->deadline_ms, err);
    if (rc == 0) rc = copy(s, COPY_FROM_DEVICE, s->probe_sm, sm, n * sizeof *sm, err);
    if (rc == 0) rc = copy(s, COPY_FROM_DEVICE, s->probe_result, result, n * sizeof *result, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint32_t want = s->probe.bits[i % KNOWN_ROWS * KNOWN_COLS + i % KNOWN_COLS];
        rc = note_sm(s, sm[i], known_bits(result[i]) != want, err);
    }
    return rc;
}

int sdc_probe_own(struct sdc *s, struct sdc_type *t, struct gp_error *err) {
    const struct known_product *k = &t->own.known;
    const struct product *p = &t->own.product;
    if (!p->t) return 0;
    size_t tiles = (size_t)(k->m / k->tile) * (size_t)(k->n / k->tile);
    GP_AUTO_FREE int32_t *sm = xmalloc(tiles * sizeof *sm);
    memset(sm, 0xff, tiles * sizeof *sm);
    struct gemm_args g = product_args(p, false);
    int rc = copy(s, COPY_TO_DEVICE, s->tile_sms, sm, tiles * sizeof *sm, err);
    if (rc == 0) rc = sdc_spoil_result(s, err);
    if (rc == 0) rc = cuda_gemm_own(s->d, &g, s->tile_sms, err);
    if (rc == 0) rc = sdc_sum_tiles(s, k->m, k->n, k->tile, err);
    if (rc == 0) rc = copy(s, COPY_FROM_DEVICE, s->tile_sms, sm, tiles * sizeof *sm, err);
    for (size_t i = 0; rc == 0 && i < tiles; i++) {
        struct sdc_wrong w = {.type = t->t->name};
        bool odd = s->got[i] != k->sums[i];
        if (odd) /* counts only if the host finds it too */
            rc = sdc_look_tile(s, k, i, &w, err);
        s->wrong_tiles += odd;
        if (odd && s->named.len < SDC_NAMED_MAX) vec_push(&s->named, w);
        if (rc == 0) rc = note_sm(s, sm[i], w.found, err);
    }
    s->products += rc == 0;
    return rc;
}

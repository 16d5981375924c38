/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce of known answers, as nccl-tests builds them: each element's final sum is chosen first and
 * then split into shares that, like every partial sum of them, are small integers times one power of
 * two, so that the result is exact in any order. Every partial sum is known too, and the first wrong one names the
 * rank that sent it. One thread. */
#include "base/gp_base.h"

#include "validate/agent/device/numeric.h"
#include "validate/agent/gang/gang.h"

struct known {
    struct check_ctx *c;
    uint64_t seed;
    size_t count;
    unsigned char *bad; /* [2][size]: wrong partial, wrong result received, per chunk */
    size_t wrong;       /* wrong partial values received */
};

static uint64_t known_bits(const struct known *k, size_t i, uint64_t what) {
    return num_mix(num_mix(k->seed + i) + what);
}

/* |small| <= 2^10 and |sum| <= 2^20: with up to 1024 ranks every partial sum stays below 2^22. */
static int32_t known_small(const struct known *k, size_t i, int rank) {
    return (int32_t)(known_bits(k, i, (uint64_t)rank + 16) % 2049) - 1024;
}

static float known_unit(const struct known *k, size_t i) {
    return num_from_bits((uint32_t)(127 - 6 + (int)(known_bits(k, i, 1) % 13)) << 23);
}

static int32_t known_sum(const struct known *k, size_t i) { return (int32_t)(known_bits(k, i, 2) % 2097151) - 1048575; }

/* The rank with the remainder of element i, a different one for each element: its share follows from all others. */
static int known_rest_rank(const struct known *k, size_t i) {
    return (int)(known_bits(k, i, 3) % (uint64_t)k->c->size);
}

/* The exact sum of the shares of `ranks` ranks from `start` upwards. */
static float known_partial(const struct known *k, size_t i, int start, int ranks) {
    int n = k->c->size, rest = known_rest_rank(k, i);
    int32_t inside = 0, others = 0;
    bool has_rest = (rest - start + n) % n < ranks;
    for (int r = 0; r < n; r++) {
        if (r == rest) continue;
        int32_t v = known_small(k, i, r);
        others += v;
        if ((r - start + n) % n < ranks) inside += v;
    }
    if (has_rest) inside += known_sum(k, i) - others;
    return (float)inside * known_unit(k, i);
}

static void on_partial(void *ctx, int chunk, int start, int ranks, size_t first, const float *v, size_t n) {
    struct known *k = ctx;
    bool result = ranks == k->c->size;
    for (size_t i = 0; i < n; i++) {
        float want = result ? (float)known_sum(k, first + i) * known_unit(k, first + i)
                            : known_partial(k, first + i, start, ranks);
        if (num_bits(v[i]) == num_bits(want) || (v[i] == 0.0f && want == 0.0f)) continue;
        k->bad[(result ? k->c->size : 0) + chunk] = 1;
        k->wrong++;
    }
}

/* Along a chunk's path: the predecessor of the first rank that received wrong data is to blame. */
static void blame(struct known *k, struct agent_result *r, const unsigned char *all) {
    int n = k->c->size;
    for (int chunk = 0; chunk < n; chunk++) {
        for (int hop = 0; hop < 2 * (n - 1); hop++) {
            int at = (chunk + 1 + hop) % n;
            bool result = hop >= n - 1;
            if (!all[(size_t)at * (2 * (size_t)n + 1) + (size_t)(result ? n : 0) + (size_t)chunk]) continue;
            agent_culprit(r, (at - 1 + n) % n);
            break;
        }
    }
    if (r->culprits.len > 0) return;
    for (int q = 0; q < n; q++) /* its input was right, but its result is wrong */
        if (all[(size_t)q * (2 * (size_t)n + 1) + 2 * (size_t)n]) agent_culprit(r, q);
}

static bool one_size(struct known *k, struct agent_result *r, float *buf) {
    size_t n = (size_t)k->c->size, record = 2 * n + 1, wrong = 0;
    for (size_t i = 0; i < k->count; i++) buf[i] = known_partial(k, i, k->c->rank, 1);
    struct all_reduce_args a = {.buf = (dev_addr)(uintptr_t)buf, .count = k->count, .partial = on_partial, .ctx = k};
    struct gp_error err = {0};
    memset(k->bad, 0, record);
    k->wrong = 0;
    if (comm_tcp.all_reduce(k->c->comm, &a, &err) != 0) {
        gang_broken(k->c, r, &err, false);
        return false;
    }
    if (agent_fault("deliver", k->c->rank, 0)) buf[0] += 1.0f;
    for (size_t i = 0; i < k->count; i++) wrong += buf[i] != (float)known_sum(k, i) * known_unit(k, i);
    k->bad[2 * n] = wrong > 0;
    GP_AUTO_FREE unsigned char *all = xcalloc(n, record);
    if (!gang_gather(k->c, r, k->bad, all, record)) return false;
    bool any = false;
    for (size_t i = 0; i < n * record; i++) any = any || all[i] != 0;
    if (!any) return true;
    blame(k, r, all);
    agent_set(r, VERDICT_FAIL, "wrong_sum", "all-reduce of %zu known values is wrong; to blame: rank %s", k->count,
              r->culprits.len > 0 ? r->culprits.s : "unknown");
    return true;
}

bool known_answer_run(struct check_ctx *c, struct agent_result *r) {
    static const size_t sizes[] = {1, 2, 7, 1000, 4099, 65537};
    GP_AUTO_FREE unsigned char *bad = xcalloc(2 * (size_t)c->size + 1, 1);
    GP_AUTO_FREE float *buf = xcalloc(sizes[GP_ARRAY_LEN(sizes) - 1], sizeof *buf);
    bool going = true;
    for (size_t i = 0; i < GP_ARRAY_LEN(sizes) && going && r->verdict == VERDICT_PASS; i++) {
        struct known k = {.c = c, .seed = num_mix(c->seed + i), .count = sizes[i], .bad = bad};
        going = one_size(&k, r, buf);
    }
    return going;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.sdc over the GPUs of a node: compares the checksums of random products in the GPUs' data. In the parent, which
 * calls no driver. */
#include "base/gp_base.h"

#include "known_product.h"
#include "products.h"
#include "samples.h"

enum { GPUS_MAX = 64 };

/* The text after "key": in data, up to the end of that value (a string or a number). False: no such key. */
static bool data_value(const struct agent_result *r, const char *key, const char **ret, size_t *ret_len) {
    GP_AUTO_FREE char *want = xasprintf("\"%s\":", key);
    const char *p = r->data.s ? strstr(r->data.s, want) : NULL;
    if (!p) return false;
    *ret = p + strlen(want);
    *ret_len = strcspn(*ret, ",}");
    return true;
}

static bool same_value(const struct agent_result *a, const struct agent_result *b, const char *key) {
    const char *x = NULL, *y = NULL;
    size_t nx = 0, ny = 0;
    return data_value(a, key, &x, &nx) && data_value(b, key, &y, &ny) && nx == ny && memcmp(x, y, nx) == 0;
}

/* "TYPE":"0x..." of the object "list". */
static bool hex_of(const struct agent_result *r, const char *list, const char *type, uint64_t *ret) {
    GP_AUTO_FREE char *head = xasprintf("\"%s\":{", list);
    GP_AUTO_FREE char *want = xasprintf("\"%s\":\"0x", type);
    const char *from = r->data.s ? strstr(r->data.s, head) : NULL;
    const char *end = from ? strchr(from, '}') : NULL, *p = from ? strstr(from, want) : NULL;
    if (!p || !end || p > end) return false;
    *ret = strtoull(p + strlen(want), NULL, 16);
    return true;
}

/* The two multiply that type in the same way: the same model, library and (own: our own kernel) algorithm. */
static bool comparable(const struct agent_result *a, const struct agent_result *b, const char *type, bool own) {
    uint64_t x = 0, y = 0;
    /* models outside the table are distinguished by their properties */
    if (a->about.model != b->about.model || !same_value(a, b, "edge") || !same_value(a, b, "capability") ||
        !same_value(a, b, "sms"))
        return false;
    return own ||
           (same_value(a, b, "by") && hex_of(a, "algorithms", type, &x) && hex_of(b, "algorithms", type, &y) && x == y);
}

/* GPUs that are comparable with each[first], of those that have this type. A GPU known to be wrong does not count. */
static size_t group_of(struct agent_result *each, size_t n, size_t first, const char *type, bool own, size_t *who,
                       uint64_t *folds) {
    size_t k = 0;
    for (size_t i = first; i < n && k < GPUS_MAX; i++)
        if (each[i].verdict != VERDICT_FAIL && comparable(&each[first], &each[i], type, own) &&
            hex_of(&each[i], own ? "random_own" : "random", type, &folds[k]))
            who[k++] = i;
    return k;
}

static void blame(struct agent_result *each, const size_t *who, size_t k, const bool *same, const char *type) {
    size_t alike = 0;
    for (size_t i = 0; i < k; i++) alike += same[i];
    for (size_t i = 0; i < k; i++) {
        struct agent_result *r = &each[who[i]];
        if (alike && !same[i])
            agent_set(r, VERDICT_FAIL, "sdc_differs",
                      "%s: the product of the same random numbers differs from "
                      "that of %zu other GPUs of its model",
                      type, alike);
        else if (!alike)
            agent_set(r, VERDICT_DEGRADED, "sdc_disagree",
                      "%s: %zu GPUs of one model multiply the same random numbers, and no more than half agree: one "
                      "of them computes wrong",
                      type, k);
    }
}

static void compare_type(struct agent_result *each, size_t n, const char *type, bool own) {
    bool done[GPUS_MAX] = {false};
    for (size_t first = 0; first < n && first < GPUS_MAX; first++) {
        size_t who[GPUS_MAX];
        uint64_t folds[GPUS_MAX];
        bool same[GPUS_MAX];
        size_t k = done[first] ? 0 : group_of(each, n, first, type, own, who, folds);
        for (size_t i = 0; i < k; i++) done[who[i]] = true;
        if (k > 1 && known_odd_ones(folds, k, same)) blame(each, who, k, same, type);
    }
}

void gpu_sdc_compare(struct agent_result *each, size_t n) {
    for (const struct product_type *t = product_types; t->name; t++) {
        compare_type(each, n, t->name, false);
        compare_type(each, n, t->name, true);
    }
}

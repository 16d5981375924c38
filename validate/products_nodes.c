/* SPDX-License-Identifier: Apache-2.0 */
/* Compares gpu.sdc over the nodes of a run: GPUs of one model that multiply the same random numbers in the same way
 * must have equal products. The checksums are in each GPU's data; the agent has compared them within its node. The
 * coordinator's thread; emits events. */
#include "base/gp_base.h"

#include "base/json.h"
#include "validate/remote.h"
#include "validate/samples.h"

/* One GPU's checksum of one type. */
struct voice {
    const struct sample *gpu;
    const char *sum;
    char *way; /* model, size, architecture, library, algorithm: voices of one way are compared. Owned */
    bool done;
};
struct voices {
    VEC_OF(struct voice) list;
};

static void voices_clear(struct voices *v) {
    for (size_t i = 0; i < v->list.len; i++) free(v->list.items[i].way);
    vec_free(&v->list);
}

/* data.gpus[] of that GPU; NULL when it is missing, or known to be wrong: then it has no voice. */
static json_t *gpu_of(const struct sample *one) {
    json_t *gpus = json_object_get(one->result->data, "gpus"), *g = NULL;
    size_t i = 0;
    json_array_foreach(gpus, i, g) {
        if (json_integer_value(json_object_get(g, "gpu")) != one->gpu) continue;
        const char *verdict = json_string_value(json_object_get(g, "verdict"));
        return verdict && !str_eq(verdict, "fail") ? g : NULL;
    }
    return NULL;
}

static const char *text_of(json_t *g, const char *list, const char *type) {
    const char *s = json_string_value(json_object_get(json_object_get(g, list), type));
    return s ? s : "";
}

static void collect(struct voices *v, const struct samples *all, const char *list, const char *type) {
    bool own = str_eq(list, "random_own"); /* our own kernel: one way on every GPU of a model */
    for (size_t i = 0; i < all->list.len; i++) {
        const struct sample *one = &all->list.items[i];
        json_t *g = gpu_of(one);
        const char *by = json_string_value(json_object_get(g, "by"));
        if (!g || !*text_of(g, list, type)) continue;
        struct voice x = {.gpu = one, .sum = text_of(g, list, type)};
        x.way =
            xasprintf("%s %lld %lld %lld %s %s", one->model, (long long)json_integer_value(json_object_get(g, "edge")),
                      (long long)json_integer_value(json_object_get(g, "capability")),
                      (long long)json_integer_value(json_object_get(g, "sms")), own || !by ? "" : by,
                      own ? "" : text_of(g, "algorithms", type));
        vec_push(&v->list, x);
    }
}

/* The checksum of more than half of voice `first` and those of its way, or NULL. Boyer and Moore's vote. */
static const char *majority(const struct voices *v, size_t first, size_t *ret_n, size_t *ret_for) {
    const char *lead = NULL;
    size_t ahead = 0;
    *ret_n = *ret_for = 0;
    for (size_t i = first; i < v->list.len; i++) {
        const struct voice *x = &v->list.items[i];
        if (!str_eq(x->way, v->list.items[first].way)) continue;
        ++*ret_n;
        if (ahead == 0) lead = x->sum;
        ahead = str_eq(lead, x->sum) ? ahead + 1 : ahead - 1;
    }
    for (size_t i = first; i < v->list.len; i++)
        *ret_for += str_eq(v->list.items[i].way, v->list.items[first].way) && str_eq(v->list.items[i].sum, lead);
    return 2 * *ret_for > *ret_n ? lead : NULL;
}

static void judge_way(const struct validate_env *env, struct voices *v, size_t first, const char *type) {
    size_t n = 0, alike = 0;
    const char *lead = majority(v, first, &n, &alike);
    for (size_t i = first; i < v->list.len; i++) {
        struct voice *x = &v->list.items[i];
        if (x != &v->list.items[first] && !str_eq(x->way, v->list.items[first].way)) continue;
        x->done = true;
        if (lead && str_eq(x->sum, lead)) continue;
        GP_AUTO_FREE char *text =
            lead ? xasprintf("gpu %d: %s: the product of the same random numbers differs from that of %zu "
                             "other GPUs of its model in this run",
                             x->gpu->gpu, type, alike)
                 : xasprintf("gpu %d: %s: %zu GPUs of one model in this run multiply the same random numbers, and "
                             "no more than half agree",
                             x->gpu->gpu, type, n);
        validate_worsen(env, x->gpu, lead ? VERDICT_FAIL : VERDICT_DEGRADED, lead ? "sdc_differs" : "sdc_disagree",
                        text);
    }
}

static void compare_type(const struct validate_env *env, const struct samples *all, const char *list,
                         const char *type) {
    GP_CLEANUP(voices_clear) struct voices v = {0};
    collect(&v, all, list, type);
    for (size_t i = 0; i < v.list.len; i++)
        if (!v.list.items[i].done) judge_way(env, &v, i, type);
}

void validate_products(const struct validate_env *env, struct report *report) {
    static const char *const types[] = {"fp32", "tf32", "bf16", "fp16", "fp8"};
    const struct check_info *info = check_table;
    GP_AUTO_SAMPLES struct samples all = {0};
    while (info->id && !info->products) info++;
    if (!info->id || report->nodes.len < 2) return;
    for (size_t i = 0; i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name; i++)
        if (str_eq(info->metrics[i].name, "products")) samples_of(&all, report, info, &info->metrics[i]);
    for (size_t t = 0; t < GP_ARRAY_LEN(types); t++) {
        compare_type(env, &all, "random", types[t]);
        compare_type(env, &all, "random_own", types[t]);
    }
}

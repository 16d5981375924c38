/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the GPUs of all nodes of a run with each other, after the nodes' own checks and before the
 * gang's: one that is out of line makes its node's check degraded, and is named. GPUs of different
 * models are not compared. The coordinator's thread; emits events. */
#include "base/gp_base.h"

#include "base/json.h"
#include "validate/judge.h"
#include "validate/peers.h"
#include "validate/remote.h"

/* One GPU's figure, or a node's where the check says nothing of single GPUs. */
struct sample {
    struct report_node *node;
    struct check_result *result;
    int64_t gpu; /* -1: the node's */
    const char *kind; /* PCI id; "" not known */
    double value;
};
struct samples {
    VEC_OF(struct sample) list;
};
static void samples_clear(struct samples *s)
{
    vec_free(&s->list);
}

static struct check_result *result_of(const struct report_node *rn, const char *check)
{
    for (size_t i = 0; i < rn->checks.len; i++)
        if (str_eq(rn->checks.items[i].check, check))
            return &rn->checks.items[i];
    return NULL;
}

static const json_t *gpu_at(const json_t *gpus, int64_t gpu)
{
    for (size_t i = 0; i < json_array_size(gpus); i++)
        if (json_int(json_array_get(gpus, i), "gpu", -1) == gpu)
            return json_array_get(gpus, i);
    return NULL;
}

/* The PCI id of a GPU as gpu.presence saw it. */
static const char *kind_of(const struct report_node *rn, int64_t gpu)
{
    const struct check_result *presence = result_of(rn, "gpu.presence");
    const json_t *g = presence ? gpu_at(json_at(presence->data, "gpus"), GP_MAX(gpu, 0)) : NULL;
    return json_str(g, "pci_id", "");
}

static void take_gpus(struct samples *s, struct report_node *rn, struct check_result *r,
                      const char *metric)
{
    const json_t *gpus = json_at(r->data, "gpus");
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *g = json_array_get(gpus, i), *v = json_at(json_at(g, "metrics"), metric);
        int64_t gpu = json_int(g, "gpu", -1);
        if (!json_is_number(v) || gpu < 0)
            continue;
        struct sample one = {rn, r, gpu, kind_of(rn, gpu), json_number_value(v)};
        vec_push(&s->list, one);
    }
}

static void take(struct samples *s, struct report_node *rn, const struct check_info *info,
                 const char *metric)
{
    struct check_result *r = result_of(rn, info->id);
    const struct metric *m = r ? check_metric(r, metric) : NULL;
    if (!m || r->verdict == VERDICT_SKIPPED || r->verdict == VERDICT_ERROR)
        return;
    size_t before = s->list.len;
    take_gpus(s, rn, r, metric);
    if (s->list.len > before)
        return;
    struct sample one = {rn, r, -1, kind_of(rn, -1), m->value};
    vec_push(&s->list, one);
}

/* All of them, for programs; the message has room for one. */
static void note_it(struct check_result *r, const struct sample *one, const char *metric,
                    const struct peers *p)
{
    if (!r->data)
        r->data = json_object();
    json_t *list = json_object_get(r->data, "outliers");
    if (!json_is_array(list)) {
        list = json_array();
        json_object_set_new(r->data, "outliers", list);
    }
    json_t *entry = json_object();
    if (one->gpu >= 0)
        json_object_set_new(entry, "gpu", json_integer(one->gpu));
    json_object_set_new(entry, "metric", json_string(metric));
    json_object_set_new(entry, "value", json_real(one->value));
    json_object_set_new(entry, "median", json_real(p->median));
    json_object_set_new(entry, "mad", json_real(p->mad));
    json_array_append_new(list, entry);
}

static void name_it(const struct validate_env *env, const struct sample *one,
                    const struct check_info *info, const struct check_metric_info *m,
                    const struct peers *p, size_t n)
{
    double away = 100 * (m->ceiling ? one->value - p->median : p->median - one->value) / p->median;
    GP_AUTO_FREE char *who = one->gpu >= 0 ? xasprintf("gpu %d: ", (int)one->gpu) : xstrdup("");
    GP_AUTO_FREE char *text = xasprintf(
        "%s%s is %.4g %s, %.3g %% %s the median %.4g of the %zu %s in this run (median absolute deviation "
        "%.3g)", who, m->name, one->value, m->unit, away, m->ceiling ? "above" : "under", p->median, n,
        one->gpu >= 0 ? "GPUs" : "nodes", p->mad);
    bool was_good = one->result->verdict < VERDICT_DEGRADED;
    note_it(one->result, one, m->name, p);
    check_result_worsen(one->result, VERDICT_DEGRADED, "outlier", text, info->suggestion);
    if (was_good && env->sink)
        check_event(env->sink, one->node->slot, NODE_CHECKING, info, one->result);
}

/* Those of one kind with each other. */
static void compare_kind(const struct validate_env *env, const struct samples *all, const char *kind,
                         const struct check_info *info, const struct check_metric_info *m)
{
    GP_AUTO_FREE double *v = xcalloc(all->list.len + 1, sizeof *v);
    GP_AUTO_FREE const struct sample **whose = xcalloc(all->list.len + 1, sizeof *whose);
    GP_AUTO_FREE bool *outlier = xcalloc(all->list.len + 1, sizeof *outlier);
    size_t n = 0;
    for (size_t i = 0; i < all->list.len; i++) {
        if (!str_eq(all->list.items[i].kind, kind))
            continue;
        whose[n] = &all->list.items[i];
        v[n++] = all->list.items[i].value;
    }
    struct peers p;
    if (!peers_compare(v, n, m->ceiling, outlier, &p))
        return;
    for (size_t i = 0; i < n; i++)
        if (outlier[i])
            name_it(env, whose[i], info, m, &p, n);
}

static void compare(const struct validate_env *env, struct report *report,
                    const struct check_info *info, const struct check_metric_info *m)
{
    GP_CLEANUP(samples_clear) struct samples all = {0};
    for (size_t i = 0; i < report->nodes.len; i++)
        take(&all, &report->nodes.items[i], info, m->name);
    for (size_t i = 0; i < all.list.len; i++) {
        const char *kind = all.list.items[i].kind;
        bool first = true;
        for (size_t k = 0; k < i && first; k++)
            first = !str_eq(all.list.items[k].kind, kind);
        if (first)
            compare_kind(env, &all, kind, info, m);
    }
}

void validate_peers(const struct validate_env *env, struct report *report)
{
    if (report->nodes.len < 2)
        return; /* within a node its agent has compared them */
    for (const struct check_info *info = check_table; info->id; info++) {
        if (info->level == CHECK_GANG)
            continue;
        for (const struct check_metric_info *m = info->metrics;
             m < info->metrics + GP_ARRAY_LEN(info->metrics) && m->name; m++)
            if (m->by_model || m->peers)
                compare(env, report, info, m);
    }
}

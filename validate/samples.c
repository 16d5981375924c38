/* SPDX-License-Identifier: Apache-2.0 */
/* Extracts the rates of a report, with the GPU model and driver from gpu.presence. Does not judge. Pure; any thread. */
#include "base/gp_base.h"

#include "validate/samples.h"

#include "base/json.h"
#include "validate/suite/models.h"

void samples_clear(struct samples *s) { vec_free(&s->list); }

bool sample_is_rate(const struct check_metric_info *m) { return m->by_model || m->peers; }

static struct check_result *result_of(const struct report_node *rn, const char *check) {
    for (size_t i = 0; i < rn->checks.len; i++)
        if (str_eq(rn->checks.items[i].check, check)) return &rn->checks.items[i];
    return NULL;
}

/* The result of the check that identifies the node's GPUs and driver. */
static const struct check_result *identity_of(const struct report_node *rn) {
    const struct check_info *info = check_table;
    while (info->id && !info->identifies) info++;
    return info->id ? result_of(rn, info->id) : NULL;
}

static const json_t *gpu_at(const json_t *gpus, int gpu) {
    for (size_t i = 0; i < json_array_size(gpus); i++)
        if (json_int(json_array_get(gpus, i), "gpu", -1) == gpu) return json_array_get(gpus, i);
    return NULL;
}

/* Copies model and driver of a GPU from gpu.presence; gpu -1: the first. */
static void identify(struct sample *one, const struct report_node *rn, int gpu) {
    const struct check_result *presence = identity_of(rn);
    const json_t *data = presence ? presence->data : NULL;
    const json_t *g = gpu_at(json_at(data, "gpus"), GP_MAX(gpu, 0));
    const char *id = json_str(g, "pci_id", ""), *sub = json_str(g, "subsystem", "");
    str_put(one->driver, sizeof one->driver, json_str(data, "driver", ""));
    const struct gpu_model *m = *id ? gpu_model_find((unsigned)strtoul(id, NULL, 16), (unsigned)strtoul(sub, NULL, 16))
                                    : gpu_model_named(json_str(g, "name", ""));
    if (!m && !*id) return;
    if (m) str_put(one->model, sizeof one->model, gpu_model_id(m));
    else snprintf(one->model, sizeof one->model, "pci-%s", id);
}

/* "cuBLASLt 13.0.2" to "cuBLASLt": another library has other rates; versions of one library are compared. */
static void take_by(struct sample *one, const json_t *from) {
    str_put(one->by, sizeof one->by, json_str(from, "by", ""));
    size_t n = strcspn(one->by, "0123456789");
    while (n > 0 && one->by[n - 1] == ' ') n--;
    one->by[n] = 0;
}

static void take_node(struct samples *s, struct sample one) {
    const json_t *gpus = json_at(one.result->data, "gpus");
    size_t before = s->list.len;
    for (size_t i = 0; i < json_array_size(gpus); i++) {
        const json_t *g = json_array_get(gpus, i), *v = json_at(json_at(g, "metrics"), one.metric->name);
        one.gpu = (int)json_int(g, "gpu", -1);
        const char *verdict = json_str(g, "verdict", "");
        if (!json_is_number(v) || one.gpu < 0 || str_eq(verdict, "error") || str_eq(verdict, "skipped")) continue;
        identify(&one, one.node, one.gpu);
        take_by(&one, g);
        one.value = json_number_value(v);
        vec_push(&s->list, one);
    }
    if (s->list.len > before) return;
    one.gpu = -1;
    identify(&one, one.node, -1);
    take_by(&one, one.result->data);
    vec_push(&s->list, one);
}

static bool measured(const struct check_result *r, const struct check_metric_info *m, double *ret) {
    const struct metric *found = r ? check_metric(r, m->name) : NULL;
    if (!found || r->verdict == VERDICT_SKIPPED || r->verdict == VERDICT_ERROR) return false;
    *ret = found->value;
    return true;
}

/* A gang's figure belongs to a model when all of its nodes are alike. */
static void take_gang(struct samples *s, const struct report *r, struct sample one) {
    for (size_t i = 0; i < r->nodes.len; i++) {
        struct sample node = {0};
        const struct check_result *presence = identity_of(&r->nodes.items[i]);
        const struct metric *gpus = presence ? check_metric(presence, "gpus") : NULL;
        identify(&node, &r->nodes.items[i], -1);
        one.gpus += gpus ? (int)gpus->value : 0;
        if (i == 0) {
            str_put(one.model, sizeof one.model, node.model);
            str_put(one.driver, sizeof one.driver, node.driver);
        }
        if (!str_eq(one.model, node.model) || !str_eq(one.driver, node.driver)) one.model[0] = one.driver[0] = 0;
    }
    vec_push(&s->list, one);
}

void samples_of(struct samples *s, struct report *r, const struct check_info *info, const struct check_metric_info *m) {
    struct sample one = {.info = info, .metric = m, .gpu = -1};
    for (size_t i = 0; info->level == CHECK_GANG && i < r->gang.len; i++) {
        one.result = &r->gang.items[i];
        if (str_eq(one.result->check, info->id) && measured(one.result, m, &one.value)) take_gang(s, r, one);
    }
    for (size_t i = 0; info->level != CHECK_GANG && i < r->nodes.len; i++) {
        one.node = &r->nodes.items[i];
        one.result = result_of(one.node, info->id);
        if (measured(one.result, m, &one.value)) take_node(s, one);
    }
}

void samples_all(struct samples *s, struct report *r) {
    for (const struct check_info *info = check_table; info->id; info++)
        for (size_t i = 0; i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name; i++)
            if (sample_is_rate(&info->metrics[i])) samples_of(s, r, info, &info->metrics[i]);
}

void sample_note(const struct sample *one, const char *list, json_t *further) {
    if (!one->result->data) one->result->data = json_object();
    json_t *all = json_object_get(one->result->data, list);
    if (!json_is_array(all)) {
        all = json_array();
        json_object_set_new(one->result->data, list, all);
    }
    json_t *entry = json_object();
    if (one->gpu >= 0) json_object_set_new(entry, "gpu", json_integer(one->gpu));
    json_object_set_new(entry, "metric", json_string(one->metric->name));
    json_object_set_new(entry, "value", json_real(one->value));
    json_object_update(entry, further);
    json_decref(further);
    json_array_append_new(all, entry);
}

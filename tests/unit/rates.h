/* SPDX-License-Identifier: Apache-2.0 */
/* Reports with rates of GPUs, for tests: nodes as gpu.presence and one check with a rate tell of them. */
#ifndef TEST_RATES_H
#define TEST_RATES_H

#include "base/json.h"
#include "validate/samples.h"
#include "validate/suite/checks.h"
#include "validate/validate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The first rate of the check table that is compared: tests follow the rows. */
static const struct check_metric_info *any_rate(const struct check_info **ret) {
    for (const struct check_info *c = check_table; c->id; c++)
        for (const struct check_metric_info *m = c->metrics; c->level == CHECK_GPU && m->name; m++)
            if (sample_is_rate(m)) {
                *ret = c;
                return m;
            }
    fail_msg("no check of a GPU has a rate that is compared");
    abort();
}

/* A node that is ready: gpu.presence with its GPUs' PCI id and driver, and the rate's check. */
static void add_node(struct report *r, const char *pci_id, const double *v, size_t n) {
    const struct check_info *info = NULL;
    const struct check_metric_info *m = any_rate(&info);
    struct report_node rn = {.slot = (int)r->nodes.len, .ready = true};
    struct check_result presence = {.check = xstrdup("gpu.presence"),
                                    .required = true,
                                    .data = json_object(),
                                    .code = xstrdup(""),
                                    .message = xstrdup(""),
                                    .suggestion = xstrdup("")};
    struct check_result c = {.data = json_object(),
                             .required = true,
                             .code = xstrdup(""),
                             .message = xstrdup(""),
                             .suggestion = xstrdup("")};
    json_t *seen = json_array(), *gpus = json_array();
    double worst = v[0];
    assert_non_null(info);
    c.check = xstrdup(info->id);
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(seen, json_pack("{s:i,s:s}", "gpu", (int)i, "pci_id", pci_id));
        json_array_append_new(
            gpus, json_pack("{s:i,s:s,s:{s:f}}", "gpu", (int)i, "verdict", "pass", "metrics", m->name, v[i]));
        worst = fmin(worst, v[i]);
    }
    json_object_set_new(presence.data, "gpus", seen);
    json_object_set_new(presence.data, "driver", json_string("580.65.06"));
    json_object_set_new(c.data, "gpus", gpus);
    struct metric one = {.name = xstrdup(m->name), .value = worst, .unit = xstrdup(m->unit), .source = xstrdup("")};
    vec_push(&c.metrics, one);
    vec_push(&rn.checks, presence);
    vec_push(&rn.checks, c);
    vec_push(&r->nodes, rn);
    r->ready = true;
}

/* The check with the rate, of a node. */
static struct check_result *rated(struct report *r, size_t node) { return &r->nodes.items[node].checks.items[1]; }

#endif

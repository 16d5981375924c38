/* SPDX-License-Identifier: Apache-2.0 */
/* Report JSON, of the journal, a file or a node: numbers are in range, and what was read is the same after it was
 * written again. */
#include "base/gp_base.h"

#include "base/json.h"
#include "model/report.h"
#include "model/tags.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_JSON json_t *j = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    struct report r = {0}, again = {0};
    struct gp_error err = {0};
    if (report_from_json(j, &r, &err) != 0) {
        must(err.code == GP_EPROTO && r.nodes.len == 0);
        return 0;
    }
    must(r.took_ms >= 0);
    for (size_t i = 0; i < r.nodes.len; i++) {
        const struct report_node *n = &r.nodes.items[i];
        must(n->slot >= -1 && n->slot < TAGS_SLOTS_MAX && n->load_ms >= 0);
        for (size_t k = 0; k < n->checks.len; k++) must(n->checks.items[k].took_ms >= 0);
    }
    GP_AUTO_JSON json_t *out = report_to_json(&r);
    must(report_from_json(out, &again, &err) == 0);
    GP_AUTO_JSON json_t *out2 = report_to_json(&again);
    must(json_equal(out, out2));
    report_judge(&again);
    report_clear(&r);
    report_clear(&again);
    return 0;
}

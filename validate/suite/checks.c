/* SPDX-License-Identifier: Apache-2.0 */
/* The check table: one row per check, by family in rows/. Facts only; the run functions are in validate/agent/. A
 * sound machine of any make meets the limits; a negative limit means that the figure is only reported. */
#include "base/gp_base.h"

#include "checks.h"

/* The GPU model table has the figure of a sound GPU of this model (models.h): fail under 80 % of it, degraded under
 * 90 %. A model that is not in the table leaves the figure unrated. */
#define BY_MODEL .by_model = true, .positive = true, .fail = -1, .degraded = -1, .source = ""
#define NO_LIMIT .fail = -1, .degraded = -1, .source = ""

const struct check_info check_table[] = {
/* in the order of the rows: not sorted */
/* clang-format off */
#include "validate/suite/rows/host.inc"
#include "validate/suite/rows/gpu.inc"
#include "validate/suite/rows/nccl.inc"
#include "validate/suite/rows/gang.inc"
    {.id = NULL},
};
/* clang-format on */

size_t check_count(void) { return GP_ARRAY_LEN(check_table) - 1; }

const struct check_info *check_find(const char *id) {
    for (const struct check_info *c = check_table; c->id != NULL; c++)
        if (strcmp(c->id, id) == 0) return c;
    return NULL;
}

int check_stated(const struct check_info *check, int gpus) {
    return check->seconds + (check->each_ms * (GP_MAX(gpus, 1) - 1) + 999) / 1000;
}

const struct check_metric_info *check_info_metric(const struct check_info *check, const char *name) {
    for (size_t i = 0; i < GP_ARRAY_LEN(check->metrics) && check->metrics[i].name != NULL; i++)
        if (strcmp(check->metrics[i].name, name) == 0) return &check->metrics[i];
    return NULL;
}

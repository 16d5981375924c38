/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the check table and the GPU models to the spec's decoder, which must not include this folder. Any thread. */
#include "base/gp_base.h"

#include "validate/validate.h"

#include "validate/suite/models.h"

static const char *check_id(size_t i) { return i < check_count() ? check_table[i].id : NULL; }

static bool metric(const char *check, size_t i, const char **ret_name, const char **ret_unit) {
    const struct check_info *info = check_find(check);
    if (!info || i >= GP_ARRAY_LEN(info->metrics) || !info->metrics[i].name) return false;
    *ret_name = info->metrics[i].name;
    *ret_unit = info->metrics[i].unit ? info->metrics[i].unit : "";
    return true;
}

static const char *gpu(size_t i) {
    const struct gpu_model *m = NULL;
    for (size_t k = 0; (m = gpu_model_at(k)) != NULL; k++)
        for (size_t a = 0; gpu_model_alias(m, a) != NULL; a++)
            if (i-- == 0) return gpu_model_alias(m, a);
    return NULL;
}

static bool gpu_known(const char *text) { return gpu_model_named(text) != NULL; }

static const struct spec_names names = {.check = check_id, .metric = metric, .gpu = gpu, .gpu_known = gpu_known};

const struct spec_names *validate_names(void) { return &names; }

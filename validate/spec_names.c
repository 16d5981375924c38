/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the check table to the spec's decoder, which must not include this folder. Any thread. */
#include "base/gp_base.h"

#include "validate/validate.h"

static const char *check_id(size_t i) { return i < check_count() ? check_table[i].id : NULL; }

static bool metric(const char *check, size_t i, const char **ret_name, const char **ret_unit) {
    const struct check_info *info = check_find(check);
    if (!info || i >= GP_ARRAY_LEN(info->metrics) || !info->metrics[i].name) return false;
    *ret_name = info->metrics[i].name;
    *ret_unit = info->metrics[i].unit ? info->metrics[i].unit : "";
    return true;
}

static const struct spec_names names = {.check = check_id, .metric = metric};

const struct spec_names *validate_names(void) { return &names; }

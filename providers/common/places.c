// SPDX-License-Identifier: Apache-2.0
/* The regions that a cloud's reply names. */
#include "base/gp_base.h"

#include "providers/common/places.h"

int places_add(struct strv *ret, const char *region, const char *list, struct gp_error *err) {
    if (strv_has(ret, region)) return 0;
    if (ret->n >= PLACES_MAX)
        return gp_fail(err, GP_EPROTO, "%s: the reply names more than %d regions: check the endpoint", list,
                       PLACES_MAX);
    strv_add(ret, region);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* InfiniBand between the nodes of a gang. Azure's documentation of RDMA-capable sizes: machines can communicate by it
 * if they are in the same scale set or availability set. An availability set has no zones, and takes no spot machines.
 * No calls. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

static bool wanted(const struct spec *spec) {
    return spec->nodes > 1 && (spec->fabric == FABRIC_INFINIBAND || spec->fabric == FABRIC_AUTO);
}

int azure_fabric_choose(const struct spec *spec, const struct spec_offer *want, const struct azure_size *size,
                        bool *ret, struct gp_error *err) {
    int r = 0;
    bool must = spec->fabric == FABRIC_INFINIBAND;
    *ret = false;
    if (!wanted(spec)) return 0;
    if (!size->rdma && must)
        r = gp_fail(err, GP_EUSAGE,
                    "azure: %s has no InfiniBand: give an instance_type that has it, or bootstrap.fabric: auto",
                    size->name);
    else if (want->market == MARKET_SPOT && must)
        r = gp_fail(err, GP_EUSAGE,
                    "azure: spot nodes cannot be in an availability set, and %s has InfiniBand only there: use market "
                    "on-demand, or bootstrap.fabric: auto",
                    size->name);
    else if (want->zones.n > 0 && must)
        r = gp_fail(err, GP_EUSAGE,
                    "azure: an availability set has no zones, and %s has InfiniBand only there: remove zones, or set "
                    "bootstrap.fabric: auto",
                    size->name);
    else *ret = size->rdma && want->market != MARKET_SPOT && want->zones.n == 0;
    if (r != 0 && err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

char *azure_fabric_text(const struct spec *spec, const struct spec_offer *want, const struct azure_size *size) {
    bool chosen = false;
    if (azure_fabric_choose(spec, want, size, &chosen, NULL) != 0 || !size->rdma || spec->nodes < 2) return xstrdup("");
    if (chosen) return xstrdup("InfiniBand, one availability set");
    if (spec->fabric == FABRIC_NONE)
        return xstrdup("TCP only; the size has InfiniBand: bootstrap.fabric: auto uses it");
    if (!wanted(spec)) return xstrdup("");
    return xstrdup(want->market == MARKET_SPOT ? "TCP only; the size has InfiniBand, but not for spot nodes"
                                               : "TCP only; the size has InfiniBand: without zones it is used");
}

/* The ND sizes of today have one card for each GPU; others have one. */
int azure_fabric_cards(const char *size, int gpus) {
    static const char *const one_each[] = {"Standard_ND96", "Standard_ND128"};
    for (size_t i = 0; i < GP_ARRAY_LEN(one_each); i++)
        if (strncasecmp(size, one_each[i], strlen(one_each[i])) == 0) return GP_MAX(gpus, 1);
    return 1;
}

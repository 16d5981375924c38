/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a resource whose provider lists none. Pure. */
#include "base/gp_base.h"

#include "engine/run/zero_price.h"

#include "providers/provider.h"

void zero_price_drop(struct resource *r) {
    const struct provider_ops *ops = provider_find(r->provider);
    bool paid = resource_is_machine(r) && (ops == NULL || ops->billed);
    if (paid && !(r->price_usd_per_h > 0)) r->price_usd_per_h = -1;
}

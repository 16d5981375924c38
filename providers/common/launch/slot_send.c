/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the launches of a gang one by one. */
#include "base/gp_base.h"

#include "providers/common/launch/slot_send.h"

static void fill(const struct intent *in, const struct stack *s, struct resource *made) {
    resource_set(&made->region, in->region);
    resource_set(&made->owner, s->owner);
    resource_set(&made->stack, s->name);
    resource_set(&made->uid, in->uid);
    resource_set(&made->spec_hash, in->spec_hash);
    made->slot = in->slot_first;
    made->attempt = in->attempt;
    made->expires_s = in->deadline_s;
    made->state = RES_PENDING;
    made->billed = true;
}

void slot_send_each(const struct stack *s, const struct intent *const *in, size_t n, struct slot_outcome *ret,
                    int (*launch)(void *ctx, const struct intent *in, struct slot_outcome *ret), void *ctx) {
    for (size_t i = 0; i < n; i++) {
        int r = launch(ctx, in[i], &ret[i]);
        ret[i].state = r == 0 ? SLOT_ACCEPTED : r == -GP_EUNKNOWN ? SLOT_UNKNOWN : SLOT_REFUSED;
        if (r == 0) fill(in[i], s, &ret[i].made);
    }
}

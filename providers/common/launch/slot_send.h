/* SPDX-License-Identifier: Apache-2.0 */
/* slot_ops.send for a cloud that takes one launch at a time (slot_ops.one_by_one). Blocks through the given function
 * only. One thread. */
#ifndef GP_COMMON_SLOT_SEND_H
#define GP_COMMON_SLOT_SEND_H

#include "providers/common/launch/slot_create.h"

/* Calls launch for each intent in turn. It sets ret->made.id, or returns a negative code with ret->err. An accepted
 * launch gets the facts of its intent and stack. */
void slot_send_each(const struct stack *s, const struct intent *const *in, size_t n, struct slot_outcome *ret,
                    int (*launch)(void *ctx, const struct intent *in, struct slot_outcome *ret), void *ctx);

#endif

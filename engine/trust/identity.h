/* SPDX-License-Identifier: Apache-2.0 */
/* The uid of a stack, and the unit that it belongs to, from what the clouds list. */
#ifndef GP_ENGINE_IDENTITY_H
#define GP_ENGINE_IDENTITY_H

#include "engine/run/run.h"

/* Sets run->stack, and the journal's stack where it has none. The uid in the journal stays as long as its claim or one
 * of its own machines is listed: another claim with the stack's name may be somebody's. Without one, a uid whose
 * machine is proven goes before a claim, and a claim before anything else. *ret_ended (caller frees): the uid in the
 * journal, if nothing of it is left and the claim has another one; the journal still has it then. */
int identity_take(struct run *run, const struct resource_list *seen, char **ret_ended, struct gp_error *err);
/* The unit of the stack is in its tags only. It counts if all its claims agree; without a
 * claim, if its machines that are not unproven do. */
void identity_take_unit(struct run *run, const struct resource_list *seen);

#endif

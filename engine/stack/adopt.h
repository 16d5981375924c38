/* SPDX-License-Identifier: Apache-2.0 */
/* Going on with what reconcile() found, for verbs that hold the stack's lock. */
#ifndef GP_ENGINE_ADOPT_H
#define GP_ENGINE_ADOPT_H

#include "engine/stack/reconcile.h"

/* reconcile(); then a stack that somebody else ended is forgotten, and the one that the cloud has takes its place in
 * the journal. ret as for reconcile(). */
int adopt_stack(struct run *run, struct finding *ret, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Adopts the result of reconcile(), for verbs that hold the stack's lock. */
#ifndef GP_ENGINE_ADOPT_H
#define GP_ENGINE_ADOPT_H

#include "engine/stack/reconcile.h"

/* Calls reconcile(). If somebody else destroyed the stack and launched it again, the journal forgets the old one and
 * records the cloud's. ret as for reconcile(). */
int adopt_stack(struct run *run, struct finding *ret, struct gp_error *err);

/* For verbs that work on existing nodes: takes the lock, adopts the stack, and reads its login key. Fails if it has no
 * node or if its spec is not known. */
int adopt_existing(struct run *run, struct gp_error *err);

#endif

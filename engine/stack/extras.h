/* SPDX-License-Identifier: Apache-2.0 */
/* Machines of the stack that its spec does not want. */
#ifndef GP_ENGINE_EXTRAS_H
#define GP_ENGINE_EXTRAS_H

#include "engine/stack/reconcile.h"

/* Ends what up does not want: found->extras, and slots past the spec. Waits until they are gone; `found` is brought up
 * to date. */
int extras_end(struct run *run, struct finding *found, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Destroys machines that the spec does not include. */
#ifndef GP_ENGINE_EXTRAS_H
#define GP_ENGINE_EXTRAS_H

#include "engine/stack/reconcile.h"

/* Destroys found->extras and the slots past the spec. Waits until they are gone, and updates `found`. -GP_EBILLED: one
 * of them does not terminate in time. */
int extras_end(struct run *run, struct finding *found, struct gp_error *err);

#endif

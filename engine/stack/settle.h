/* SPDX-License-Identifier: Apache-2.0 */
/* Settles launches whose outcome is not known. */
#ifndef GP_ENGINE_SETTLE_H
#define GP_ENGINE_SETTLE_H

#include "engine/stack/reconcile.h"

/* Each is found by its tags, replayed with its own token and body, or, if too old for that, left as a tombstone
 * (up only). `found` is updated if the provider is listed again. The journal is read again, because a stack that was
 * claimed since has another uid. */
int settle_launches(struct run *run, struct finding *found, struct gp_error *err);

#endif

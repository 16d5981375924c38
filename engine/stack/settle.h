/* SPDX-License-Identifier: Apache-2.0 */
/* Launches whose outcome nobody knows. */
#ifndef GP_ENGINE_SETTLE_H
#define GP_ENGINE_SETTLE_H

#include "engine/stack/reconcile.h"

/* Each is found by its tags, replayed with its own token and body, or, when too old for that, left as a
 * tombstone (up only). `found` is brought up to date where the cloud is asked again. The journal is read anew: a stack
 * that was claimed since has another uid. */
int settle_launches(struct run *run, struct finding *found, struct gp_error *err);

#endif

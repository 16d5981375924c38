/* SPDX-License-Identifier: Apache-2.0 */
/* Launches whose outcome nobody knows. */
#ifndef GP_ENGINE_SETTLE_H
#define GP_ENGINE_SETTLE_H

#include "engine/run/run.h"

/* Each is found by its tags, replayed with its own token and body, or, when too old for that, left as a
 * tombstone (up only). */
int settle_launches(struct run *run, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a destroyed stack from the journal and the state folder. */
#ifndef GP_ENGINE_FORGET_H
#define GP_ENGINE_FORGET_H

#include "engine/run/run.h"

/* The note of tombstones that `down` left: gc may destroy their machines. */
#define FORGET_NOTE "ended by down"

/* Forgets the run's own stack, which is gone: its login key, its records and its uid. */
int forget_stack(struct run *run, struct gp_error *err);
/* Forgets the stack `uid`, which somebody else destroyed: its open launches become tombstones, its records and its
 * login key are removed. */
int forget_ended(const struct run *run, const char *uid, struct gp_error *err);

#endif

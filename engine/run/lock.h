/* SPDX-License-Identifier: Apache-2.0 */
/* One run at a time works on a stack from this machine. The kernel drops the lock with its process. */
#ifndef GP_ENGINE_LOCK_H
#define GP_ENGINE_LOCK_H

#include "engine/run/run.h"

/* Waits until it has it, and reports whom it waits for. */
int run_lock(struct run *run, struct gp_error *err);
void run_unlock(struct run *run); /* accepts one that is not held */
bool run_is_locked(const struct run *run);
/* Removes lock files that nobody holds: what a killed process left. */
void locks_tidy(const char *state_dir);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a stack on this machine: one run at a time. The kernel releases it when the process exits. */
#ifndef GP_ENGINE_LOCK_H
#define GP_ENGINE_LOCK_H

#include "engine/run/run.h"

/* Waits until it holds the lock, for opts.lock_timeout_ms, and reports the current holder. Errors: -GP_EBUSY: the time
 * is over; -GP_EIO, -GP_ECANCELLED. */
int run_lock(struct run *run, struct gp_error *err);
/* Tells the waiting processes that the holder, this run, now destroys the stack. */
void run_lock_destroys(const struct run *run);
void run_unlock(struct run *run); /* accepts one that is not held */
/* Whether a gpuprov on this machine works on that stack, of any owner. Takes no lock. */
bool lock_is_held(const char *state_dir, const char *stack);
bool run_is_locked(const struct run *run);
/* Removes the lock files of killed processes. */
void locks_tidy(const char *state_dir);

#endif

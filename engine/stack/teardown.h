/* SPDX-License-Identifier: Apache-2.0 */
/* Destroys a stack and verifies that it is gone. */
#ifndef GP_ENGINE_TEARDOWN_H
#define GP_ENGINE_TEARDOWN_H

#include "engine/run/run.h"

/* Destroys everything of run->stack, the claim last, verifies it with two lists apart, and forgets the stack. Blocks
 * for up to run->end_ms. */
int teardown(struct run *run, struct down_result *ret, struct gp_error *err);
/* Reports the ids of what is left: -GP_EBILLED if any of it is billed, else why's code. 0 if it costs nothing and
 * nothing failed; gc destroys it then. */
int teardown_left(const char *name, const struct down_result *ret, const struct gp_error *why, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Ending a stack and proving that it is gone. */
#ifndef GP_ENGINE_TEARDOWN_H
#define GP_ENGINE_TEARDOWN_H

#include "engine/run/run.h"

/* Ends everything of run->stack and proves it: two reads apart, the claim last; then forgets it. */
int teardown(struct run *run, struct down_result *ret, struct gp_error *err);
/* What is left as one line with its ids: -GP_EBILLED when any of it is billed, else why's code; 0 when it
 * costs nothing and nothing went wrong (gc's work then). */
int teardown_left(const char *name, const struct down_result *ret, const struct gp_error *why, struct gp_error *err);

#endif

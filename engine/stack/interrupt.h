/* SPDX-License-Identifier: Apache-2.0 */
/* What Ctrl-C owes. */
#ifndef GP_ENGINE_INTERRUPT_H
#define GP_ENGINE_INTERRUPT_H

#include "engine/run/run.h"

/* After Ctrl-C, r: what the run ended with. Looks for launches that were under way; -GP_EUNKNOWN (exit
 * 8) when one of them cannot be settled. Blocks for the provider's settling time at most. */
int interrupt_settle(const struct run *run, int r, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Settles the launches under way after Ctrl-C. */
#ifndef GP_ENGINE_INTERRUPT_H
#define GP_ENGINE_INTERRUPT_H

#include "engine/run/run.h"

/* r: the run's error, returned if every launch is settled. Searches for the launches that were under way;
 * -GP_EUNKNOWN (exit 8) if one cannot be settled. Blocks for the provider's settling time per launch. */
int interrupt_settle(struct run *run, int r, struct gp_error *err);

#endif

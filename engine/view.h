/* SPDX-License-Identifier: Apache-2.0 */
/* How a stack is shown at the end of every verb. */
#ifndef GP_ENGINE_VIEW_H
#define GP_ENGINE_VIEW_H

#include "engine/run/run.h"

/* From a run (reconciled, or remembered only) to plain data. Reads the journal, no cloud. */
int view_fill(struct run *run, struct stack_view *v, struct gp_error *err);

#endif

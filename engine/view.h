/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the view of a stack that the verbs show. */
#ifndef GP_ENGINE_VIEW_H
#define GP_ENGINE_VIEW_H

#include "engine/run/run.h"

/* Fills v from a run, reconciled or read from the journal. Reads the journal, queries no provider. */
int view_fill(struct run *run, struct stack_view *v, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the view of a stack that the verbs show. */
#ifndef GP_ENGINE_VIEW_H
#define GP_ENGINE_VIEW_H

#include "engine/run/run.h"

/* Fills v from a run, reconciled or read from the journal. Reads the journal, queries no provider. */
int view_fill(struct run *run, struct stack_view *v, struct gp_error *err);
/* Whether the view has a resource with that id at that provider, as a node or beside them. */
bool view_has(const struct stack_view *v, const struct resource *r);
/* Adds a resource with the stack's name and owner that the view does not have. A machine that may be billed is named in
 * a note and counts in the price, and the stack is not "empty" or "gone". */
void view_add_other(struct stack_view *v, const struct resource *r);

#endif

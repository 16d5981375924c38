/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's part of gc, after the lists were swept. */
#ifndef GP_ENGINE_GC_JOURNAL_H
#define GP_ENGINE_GC_JOURNAL_H

#include "engine/engine.h"
#include "engine/gc/gc_clock.h"

/* Ends what is left of each stack of this provider (NULL: of all) that is past the journal's deadline, and of which the
 * lists showed nothing that is kept, and forgets it. Adds to ret->ended and ret->kept. Warns of stacks that have spent
 * most of what their spec allows. */
int gc_journal(struct engine *e, const char *provider, const struct gc_clocks *clocks, struct gc_result *ret,
               struct gp_error *err);

#endif

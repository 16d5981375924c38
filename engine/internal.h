/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of engine.c for the other files of engine/, not for the verbs. */
#ifndef GP_ENGINE_INTERNAL_H
#define GP_ENGINE_INTERNAL_H

#include "engine/engine.h"

/* Makes a private state folder for an engine that was opened with `scratch`; engine_close removes it. */
int engine_scratch_folder(struct engine *e, struct gp_error *err);
/* Adds an id to engine_billed_ids, or removes it. Callable from any thread. */
void engine_note_billed(struct engine *e, const char *id, bool billed);
/* The same for a resource that was listed or launched (there), or is gone. A machine is in engine_left_text also if it
 * is not billed. Callable from any thread. */
void engine_note_resource(struct engine *e, const struct resource *r, bool there);
/* The receivers of an engine's events (run/notify.c). free accepts NULL; what is queued is dropped, see
 * engine_settle. */
struct notify *notify_new(void);
void notify_free(struct notify *n);

/* The journal's part of gc, after the lists were swept: ends what is left of each stack of this provider (NULL: of all)
 * that is past the journal's deadline, and of which no machine is kept, and forgets it. Adds to ret->ended and
 * ret->kept. Warns of stacks that have spent most of what their spec allows. */
struct gc_clocks;
int gc_journal(struct engine *e, const char *provider, const struct gc_clocks *clocks, struct gc_result *ret,
               struct gp_error *err);

#endif

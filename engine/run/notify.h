/* SPDX-License-Identifier: Apache-2.0 */
/* Sends to the receivers of a spec (`notify`) a stack's events. Nothing here blocks or fails a run: a call copies what
 * is to be sent into the queue of each receiver, whose own thread sends it. engine_settle waits for the queues at the
 * end of the verb. Any thread. Nothing happens unless e->notifies. Of a verb that shows no plan (e->shows_plan), a
 * command that the journal's spec of the stack does not have is no receiver, and one warning names it.
 *
 * The URL and the key of a receiver are read in its thread, and are in no event, log or file. */
#ifndef GP_ENGINE_NOTIFY_H
#define GP_ENGINE_NOTIFY_H

#include "engine/run/run.h"

/* Of every event of a run, with its stack in it. Emits the warnings of receivers that have failed, so the engine's sink
 * must be one that the caller may use. */
void notify_event(struct run *run, const struct event *e);
/* Something that is no event. node -1: the whole stack. */
void notify_fact(struct run *run, enum notify_kind kind, int node, const char *fmt, ...) GP_PRINTF(4, 5);
/* All nodes of the run's spec are validated. */
void notify_ready(struct run *run);
/* The end of a stack that gc or an expired deadline destroyed: r and why are the result of its destruction. */
void notify_ended(struct run *run, int r, const struct gp_error *why, int destroyed);
/* Makes the run's stack known, so that its money and its deadline are looked at, also where nothing happens to it. A
 * run without a spec takes that of the journal, if it is of the same uid. False: nothing is sent. Reads the
 * journal; the verb's thread. */
bool notify_open(struct run *run);
/* Whether the run's spec has a command that the journal's spec of the stack does not have. Reads the journal. */
bool notify_has_new_command(const struct run *run);

#endif

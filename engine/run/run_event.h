/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a run: to the engine's sink and to the stack's event log. Any thread. */
#ifndef GP_ENGINE_RUN_EVENT_H
#define GP_ENGINE_RUN_EVENT_H

#include "engine/run/run.h"

/* Initialises run->sink and the log of the stack `name`; NULL: no log. */
void run_events_init(struct run *run, const char *name);
void run_events_clear(struct run *run);
void run_event(const struct run *run, int node, enum node_phase phase, enum event_status status, const char *step,
               const char *fmt, ...) GP_PRINTF(6, 7);
/* Reports the error that ended the run: "failed: ...", or after Ctrl-C that it was stopped. */
void run_event_end(const struct run *run, const struct gp_error *err);
/* Reports, once per engine, that the journal was set aside. run_open calls it; verbs without a run call it too. */
void run_say_damaged(struct engine *e, const struct event_sink *sink);

#endif

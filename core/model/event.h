/* SPDX-License-Identifier: Apache-2.0 */
/* The one event type of all progress output and logs. */
#ifndef GP_MODEL_EVENT_H
#define GP_MODEL_EVENT_H

#include "base/error.h"
#include "model/stack.h"

enum event_status {
    EVENT_INFO,
    EVENT_START,    /* a phase or step began */
    EVENT_PROGRESS, /* still in progress: text reports the reason for waiting */
    EVENT_DONE,
    EVENT_WARN,
    EVENT_FAIL
};
const char *event_status_name(enum event_status s);

struct event {
    int64_t wall_ms; /* since the epoch */
    int node;        /* slot; -1: the whole stack */
    enum node_phase phase;
    enum event_status status;
    const char *step;   /* "packages", "train.ddp"; "" ; borrowed for the call */
    const char *text;   /* one line, no secret; borrowed for the call */
    const char *stack;  /* NULL: no stack, or the sink adds it; borrowed for the call */
    const char *owner;  /* of the stack; NULL: not known yet; borrowed for the call */
    const char *run;    /* 16 hex digits, equal in all events of one call of a verb; NULL: unknown */
    const char *output; /* lines that explain the event, such as the end of a step's output; NULL: none; borrowed */
    int percent;        /* of the step that is in progress, also at the beginning of text: 1 to 100; 0: unknown */
    enum gp_code code;  /* of the error that ended the verb; GP_OK: none, or not known. Not in the JSON */
    int64_t limit_ms;   /* time limit of the phase or step that begins; 0: unknown */
};

/* Thread-safe sink; implementations copy the data that they keep and never block on I/O for long. */
struct event_sink {
    void (*emit)(void *ctx, const struct event *e);
    void *ctx;
};
/* Sends an event with all its fields; fills wall_ms. sink may be NULL. */
void event_send(const struct event_sink *sink, struct event e);
/* The same for an event with a text and no further fields. */
void event_emit(const struct event_sink *sink, int node, enum node_phase phase, enum event_status status,
                const char *step, const char *fmt, ...) GP_PRINTF(6, 7);

struct str;
/* One event as one JSON line with its newline, as progress, --log and the event log have it: {t, stack,
 * owner (where it is known), run, node (null: the whole stack), phase, status, step, text, percent (if it is known),
 * output (a list of lines; only if there are any)}. step and text must not be NULL. */
void event_jsonl(const struct event *e, struct str *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Inside core/output: an open progress writer and the list of writers. */
#ifndef GP_OUTPUT_PROGRESS_PRIV_H
#define GP_OUTPUT_PROGRESS_PRIV_H

#include "output.h"

#include "base/clock.h"

struct progress {
    const struct progress_ops *ops;
    struct event_sink sink;
    FILE *to;
    char *stack;
    int nodes;
    int64_t started_ms;
    int log_fd; /* -1: none */
    void *priv; /* the writer's own */
};

extern const struct progress_ops progress_live, progress_plain, progress_jsonl, progress_quiet;

/* "llm/3", or "llm" for node -1. e may be NULL; else its own stack comes before the writer's. */
void progress_label(const struct progress *p, const struct event *e, int node, struct str *out);
/* "warning: text", "failed: text", "done" ...: a line's text after phase and step. */
void progress_say(const struct progress *p, const struct event *e, struct str *out);

#endif

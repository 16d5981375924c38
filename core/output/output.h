/* SPDX-License-Identifier: Apache-2.0 */
/* Output: progress writers fed by events (stderr), result writers fed by plain data (stdout). */
#ifndef GP_OUTPUT_H
#define GP_OUTPUT_H

#include "base/error.h"
#include "model/event.h"
#include "model/report.h"
#include "model/stack.h"
#include "spec/spec.h"

#include <pthread.h>

enum output_mode {
    OUTPUT_AUTO,
    OUTPUT_LIVE,
    OUTPUT_PLAIN,
    OUTPUT_JSON,
    OUTPUT_QUIET,
    OUTPUT_WARNINGS, /* only warnings and failures, as lines: for verbs that finish at once */
    OUTPUT_WARNINGS_JSON
};

struct progress;
struct progress_ops {
    const char *name;
    int (*begin)(struct progress *p, struct gp_error *err);
    void (*event)(struct progress *p, const struct event *e);
    void (*end)(struct progress *p); /* clears the live area; plain summary stays */
    /* From now on lines instead of a live area, which is cleared. NULL: there is none. */
    void (*lines)(struct progress *p);
};
/* What the writers of one program share, one after another. All zero but the lock. */
struct progress_hub {
    pthread_mutex_t lock;
    int64_t started_ms;    /* of the first one: all show the time since then; 0: there was none */
    struct progress *live; /* the open one that has a live area; NULL: none */
    bool lines;            /* no live areas any more */
    bool news;             /* in a live area, events about the whole stack's result stay as lines */
};
/* After a signal: the terminal echoes ^C into a live area, and the reader wants to see each step. Any thread. */
void progress_hub_lines(struct progress_hub *hub);
/* AUTO: live on a terminal that can (TERM not dumb), else plain. Live: one line per node (phase,
 * step, elapsed, reason for waiting), redrawn at most 10 times a second by its own thread, fits the
 * width, follows resizes, no colour with NO_COLOR; more nodes than lines: the busiest, and a count.
 * log_path (may be NULL): every event as a JSON line too, appended, 0600. stack: for the headings. */
int progress_open(enum output_mode mode, FILE *to, const char *stack, int nodes, const char *log_path,
                  struct progress **ret, struct gp_error *err);
/* The same as one of several; the hub outlives it. */
int progress_open_in(struct progress_hub *hub, enum output_mode mode, FILE *to, const char *stack, int nodes,
                     const char *log_path, struct progress **ret, struct gp_error *err);
const struct event_sink *progress_sink(struct progress *p);
/* From now on the texts of nodes' failures that are printed are added to `to`, which must outlive p. */
void progress_collect_failures(struct progress *p, struct strv *to);
void progress_close(struct progress *p);

/* A table for the end of every verb: columns fitted to their content, plain ASCII borders none. */
struct table {
    struct strv head;
    VEC_OF(struct strv) rows;
    size_t whole; /* the last columns that are never broken, so that they can be copied */
};
void table_head(struct table *t, const char *first, ...) __attribute__((sentinel));
void table_row(struct table *t, const char *first, ...) __attribute__((sentinel));
void table_print(const struct table *t, FILE *to);
void table_clear(struct table *t);

/* Columns to break lines at: the terminal's, else 100. */
size_t output_width(FILE *to);
bool output_colour(FILE *to); /* terminal, TERM, NO_COLOR */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Inside core/output: an open progress writer and the list of writers. */
#ifndef GP_OUTPUT_PROGRESS_PRIV_H
#define GP_OUTPUT_PROGRESS_PRIV_H

#include "output.h"

#include "base/clock.h"
#include "base/hash.h"

#include <pthread.h>

struct progress {
    const struct progress_ops *ops;
    struct event_sink sink;
    FILE *to;
    char *stack;
    int nodes;
    int64_t started_ms;
    int log_fd;               /* -1: none */
    struct progress_hub *hub; /* NULL: none */
    bool news;                /* of the hub */
    int64_t beat_ms;          /* plain and JSON lines: a wait is repeated after this time */
    struct strv *failed;      /* the failures that were printed; NULL: not collected */
    VEC_OF(uint64_t) gang;    /* checks over all nodes: the lines that were printed, as hashes */
    struct hash_key key;      /* of these hashes */
    pthread_mutex_t lock;     /* failed, gang */
    void *priv;               /* the writer's own */
};

extern const struct progress_ops progress_live, progress_plain, progress_jsonl, progress_quiet;

/* "llm/3", or "llm" for node -1. e may be NULL; else its own stack comes before the writer's. */
void progress_label(const struct progress *p, const struct event *e, int node, struct str *out);
/* "warning: text", "failed: text", "done" ...: a line's text after phase and step. */
void progress_say(const struct progress *p, const struct event *e, struct str *out);

/* The phase of a node, or what happens on a ready one: "running" (a job), "sending", "fetching". */
const char *progress_phase(const struct event *e);

/* Appends the event's output, indented. */
void progress_output(const struct event *e, struct str *out);
/* Whether text writers print the event: not if the verb prints it itself, or if it is the same line about a check over
 * all nodes that another node had. *ret_node: the node to print it for. */
bool progress_prints(struct progress *p, const struct event *e, int *ret_node);

/* "45s", "1m05s", "2h03m". */
void progress_elapsed(char *dst, size_t n, int64_t ms);

/* --- waits.c: the lines that show that work goes on while no event arrives --- */
struct waits;
/* say() gets one event per group of nodes in the same phase and step: its label names them, its text has the elapsed
 * time, the limit and the reasons. Called by any thread, one at a time. */
typedef void waits_say(struct progress *p, const char *label, const struct event *e);
int waits_start(struct progress *p, waits_say *say, struct waits **ret, struct gp_error *err);
/* False: e only repeats a wait, or gives a node's reason for it, which waits for the next line about its group. */
bool waits_news(struct waits *w, const struct event *e);
/* Call it for every event. printed: it has a line of its own. */
void waits_event(struct waits *w, const struct event *e, bool printed);
void waits_stop(struct waits *w); /* accepts NULL */

#endif

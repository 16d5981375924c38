/* SPDX-License-Identifier: Apache-2.0 */
/* The event log of a stack: events/STACK.jsonl below the state folder, one JSON line per event. A
 * full one becomes STACK.jsonl.old in place of the one before, so that a log has a bound and its end,
 * with the verdicts and the last errors, is always there. Several processes may add to one log. */
#ifndef GP_ENGINE_EVENTLOG_H
#define GP_ENGINE_EVENTLOG_H

#include "base/error.h"
#include "journal/journal.h"
#include "model/event.h"

#define EVENT_LOG_MAX_BYTES ((int64_t)16 << 20) /* of each of the two files */
#define EVENT_LOG_KEEP_S (30 * 86400)           /* after the last line, once the stack is gone */

struct event_log {
    int fd; /* -1: not open */
    int64_t max_bytes;
    char *stack, *path, *old_path;
};
/* Opens nothing: looking for a stack that is not there leaves no file behind. */
void event_log_init(struct event_log *l, const char *state_dir, const char *stack);
void event_log_clear(struct event_log *l);
/* Adds the event as one line in one write. Callers take turns. Errors: -GP_EIO; the next call tries
 * again. Blocks for the write only. */
int event_log_add(struct event_log *l, const struct event *e, struct gp_error *err);
/* Hands every whole line (with its newline) to take(), oldest first. Lines that are older than what
 * is kept are said in a line of their own. *ret_found: there is a log. */
void event_log_read(const struct event_log *l, void (*take)(void *ctx, const char *line, size_t n), void *ctx,
                    bool *ret_found);
/* Removes logs that no stack of `known` has and that are older than EVENT_LOG_KEEP_S. Never fails:
 * what cannot be removed stays. */
void event_log_tidy(const char *state_dir, const struct stack_list *known, int64_t now_s);

#endif

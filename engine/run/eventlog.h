/* SPDX-License-Identifier: Apache-2.0 */
/* The event log of a stack: events/STACK.jsonl below the state folder, one JSON line per event. A
 * full log is renamed to STACK.jsonl.old and replaces the previous one. So the size is bounded, and the newest events
 * are always kept. Several processes may append to one log. */
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
/* Opens no file, so that a query for an unknown stack creates none. */
void event_log_init(struct event_log *l, const char *state_dir, const char *stack);
void event_log_clear(struct event_log *l);
/* Appends the event as one line in one write. Callers must not run at the same time. Errors: -GP_EIO; the next call
 * tries again. Blocks for the write only. */
int event_log_add(struct event_log *l, const struct event *e, struct gp_error *err);
/* Passes every whole line (with its newline) to take(), oldest first. If older lines were dropped, the first line
 * reports that. *ret_found: a log exists. */
void event_log_read(const struct event_log *l, void (*take)(void *ctx, const char *line, size_t n), void *ctx,
                    bool *ret_found);
/* The same, then new lines as they are written, also of a log that appears later: until go_on() returns false, which
 * is called after each look, and which waits. */
void event_log_follow(const struct event_log *l, void (*take)(void *ctx, const char *line, size_t n),
                      bool (*go_on)(void *ctx), void *ctx, bool *ret_found);
/* Whether the log's last line is the end of a `down` that left nothing. *ret_when: its time as text; caller frees. A
 * log that is absent, cannot be read or has another last line: false. */
bool event_log_ended(const char *state_dir, const char *stack, char **ret_when);
/* Removes logs that no stack of `known` has and that are older than EVENT_LOG_KEEP_S. Never fails: a
 * log that cannot be removed stays. */
void event_log_tidy(const char *state_dir, const struct stack_list *known, int64_t now_s);

#endif

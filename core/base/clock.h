/* SPDX-License-Identifier: Apache-2.0 */
/* Time and cancellation: monotonic milliseconds for every deadline, wall seconds for records, and
 * one eventfd that every wait polls. */
#ifndef GP_BASE_CLOCK_H
#define GP_BASE_CLOCK_H

#include "base/error.h"
#include "base/gp_base.h"

#include <stdatomic.h>

#define GP_NEVER INT64_MAX

#define CLOCK_WALL_MAX_S ((int64_t)253402300799) /* 9999-12-31T23:59:59Z: no record has a later time */

int64_t clock_ms(void);                     /* CLOCK_MONOTONIC, ms */
int64_t clock_wall_s(void);                 /* CLOCK_REALTIME, s since the epoch */
int64_t clock_left_ms(int64_t deadline_ms); /* >= 0; GP_NEVER for GP_NEVER */
/* For a loop that waits: the time since *last_ms beyond most_ms, if it is more than a second: this process did
 * not run (a snapshot, a move to another host, a suspended shell). Else 0. Sets *last_ms to now; 0 there: the
 * first round. */
int64_t clock_stood_ms(int64_t *last_ms, int64_t most_ms);
/* Deadline `timeout_ms` from now, saturating. */
int64_t clock_deadline(int64_t timeout_ms);

/* Cancellation: set once. Any thread may set it. */
struct gp_cancel {
    int efd;          /* readable once cancelled; -1 when not created */
    atomic_int state; /* 0 running, 1 cancelled */
};
int gp_cancel_init(struct gp_cancel *c, struct gp_error *err);
void gp_cancel_clear(struct gp_cancel *c);
void gp_cancel_set(struct gp_cancel *c);
/* Clears it, so that the caller can clean up with the same object. Nothing may wait on it meanwhile. */
void gp_cancel_reset(struct gp_cancel *c);
bool gp_cancelled(const struct gp_cancel *c); /* NULL: false */

/* Waits until fd has one of `events` (poll's), the deadline passes or cancel is set. fd -1: only
 * sleeps. cancel may be NULL. 0: ready, *ret_revents set (may be NULL).
 * -GP_ETIMEOUT or -GP_ECANCELLED otherwise (err set: "timed out" / "cancelled"). */
int gp_wait_fd(int fd, short events, int64_t deadline_ms, const struct gp_cancel *cancel, short *ret_revents,
               struct gp_error *err);
/* Sleeps ms; -GP_ECANCELLED at once when cancelled, else 0. */
int gp_sleep(int64_t ms, const struct gp_cancel *cancel, struct gp_error *err);

/* "4h", "90s", "5m", "2d", "1h30m", "250ms" to ms. A number without a unit is refused. */
bool duration_parse(const char *text, int64_t *ret_ms);
void duration_format(char *dst, size_t n, int64_t ms); /* "1h30m", "4.2s" */
/* RFC 3339 UTC, "2026-11-21T05:27:23Z". */
void time_format_utc(char *dst, size_t n, int64_t wall_s);
bool time_parse_utc(const char *text, int64_t *ret_wall_s); /* also with fraction and +hh:mm */

#endif

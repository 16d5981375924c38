/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of transfers with a bucket: what its requests move, held against pace.c. A request that is repeated moves
 * the same bytes again: only the furthest one counts. */
#include "base/gp_base.h"

#include "engine/transfer/bucket_pace.h"

#include "engine/transfer/transfer.h"

#define SILENT_MAX 3
#define OBJECT_ENTRIES 1000 /* an object costs a round trip: a second more in all */

/* A new attempt: what was done before is no progress of it. */
static void begin(struct bucket_pace *p) {
    pace_begin(&p->pace);
    p->base = p->done;
}

static void count(struct bucket_pace *p, uint64_t moved) {
    if (p->b == NULL) return;
    const struct bucket_progress *now = &p->b->so_far;
    uint64_t place = now->at + GP_MIN(moved, now->more);
    if (place > p->top) {
        p->done.bytes += place - p->top;
        p->top = place;
    }
    p->done.entries += now->keys - p->keys;
    p->keys = now->keys;
}

static enum http_wait waited(void *ctx, int64_t waited_ms, uint64_t moved) {
    struct bucket_pace *p = ctx;
    if (p->fate != PACE_GOES_ON) return HTTP_WAIT_OVER;
    count(p, moved);
    const struct tree_work so_far = {.bytes = p->done.bytes - p->base.bytes,
                                     .entries = p->done.entries - p->base.entries};
    enum pace_fate fate = pace_take(&p->pace, waited_ms, &so_far);
    if (fate == PACE_OVER || (p->end_ms != 0 && clock_left_ms(p->end_ms) == 0)) {
        p->fate = PACE_OVER;
        return HTTP_WAIT_OVER;
    }
    if (pace_progressed(&p->pace)) p->silent = 0;
    if (fate == PACE_GOES_ON) return HTTP_WAIT_ON;
    if (++p->silent >= SILENT_MAX) {
        p->fate = PACE_STALLED;
        return HTTP_WAIT_OVER;
    }
    begin(p);
    return HTTP_WAIT_AGAIN;
}

void bucket_pace_init(struct bucket_pace *p, int64_t limit_ms) {
    *p = (struct bucket_pace){.limit_ms = limit_ms, .end_ms = limit_ms > 0 ? clock_deadline(limit_ms) : 0};
    p->watch = (struct http_watch){.waited = waited, .ctx = p};
    pace_init(&p->pace, limit_ms > 0);
}

int bucket_pace_open(struct bucket_pace *p, const char *to, const struct gp_cancel *cancel, struct bucket **ret,
                     struct gp_error *err) {
    p->b = NULL;
    p->keys = p->top = 0;
    p->silent = 0;
    if (p->fate == PACE_STALLED) p->fate = PACE_GOES_ON;
    begin(p);
    int r = bucket_open(to, cancel, &p->watch, ret, err);
    if (r == 0) p->b = *ret;
    return r;
}

void bucket_pace_object(struct bucket_pace *p) {
    if (p == NULL) return;
    count(p, 0);
    p->top = 0;
    if (p->b != NULL) bucket_moved(p->b, 0);
    p->done.entries += OBJECT_ENTRIES;
}

int bucket_pace_end(struct bucket_pace *p, const char *to, int r, struct gp_error *err) {
    char limit[32];
    p->b = NULL;
    if (r == 0 || r == -GP_ECANCELLED || p->fate == PACE_GOES_ON) return r;
    if (err != NULL) gp_error_clear(err);
    duration_format(limit, sizeof limit, p->limit_ms);
    if (p->fate == PACE_STALLED)
        r = gp_fail(err, GP_ETIMEOUT,
                    "'%s': the store makes no progress (%d times less than %d kB in %d s): check its endpoint and the "
                    "network",
                    to, SILENT_MAX, PACE_STALL_BYTES / 1000, PACE_STALL_MS / 1000);
    else if (p->limit_ms > 0)
        r = gp_fail(err, GP_ETIMEOUT,
                    "'%s': the store did not finish within %s (--fetch-timeout): check its endpoint, or give it more "
                    "time",
                    to, limit);
    else
        r = gp_fail(err, GP_ETIMEOUT,
                    "'%s': the store did not finish in time (1h of waiting, and 1s for each 32 kB and each object): "
                    "check its endpoint and the network",
                    to);
    if (err != NULL) str_put(err->detail, sizeof err->detail, TREE_LIMIT);
    return r;
}

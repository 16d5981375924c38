/* SPDX-License-Identifier: Apache-2.0 */
/* How long a transfer waits for a node: by what moves, not by signs of life, which cost a node nothing. Both limits
 * count only the time in which this machine had to wait. Pure; any thread. */
#ifndef GP_ENGINE_PACE_H
#define GP_ENGINE_PACE_H

#include "base/clock.h"
#include "tree/tree.h"

/* Without progress. Progress of 500 bytes, or one entry, or 512 kB that are compared, is worth a second (an entry two):
 * slower is no network that carries SSH (a GSM modem has 1200 bytes a second) and no disk. */
#define PACE_STALL_MS 120000
#define PACE_STALL_BYTES 60000 /* in that time */
/* In all. A second more for each 32 kB, each 1000 entries that were looked at and each 16 MB that were compared: a link
 * of 256 kbit/s is never cut. */
#define PACE_END_MS 3600000
#define PACE_END_RATE 32 /* bytes a ms */

struct pace {
    int64_t stall_ms, end_ms; /* what is left */
    struct tree_work seen;    /* of the attempt that goes on */
};
enum pace_fate { PACE_GOES_ON, PACE_STALLED, PACE_OVER };
/* endless: the caller has a deadline of its own. */
void pace_init(struct pace *p, bool endless);
/* A new attempt, whose work counts from 0. */
void pace_begin(struct pace *p);
/* After waited_ms of waiting the attempt has done so much in all. */
enum pace_fate pace_take(struct pace *p, int64_t waited_ms, const struct tree_work *so_far);
/* Whether the attempt did as much as PACE_STALL_MS ask: however long it took, another is worth its while. */
bool pace_progressed(const struct pace *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that gc compares deadlines with. Deadlines are in the cloud's time, but the Date of a reply may be wrong: a
 * proxy can answer with an old reply, a server can have a wrong clock. One thread. */
#ifndef GP_ENGINE_GC_CLOCK_H
#define GP_ENGINE_GC_CLOCK_H

#include "base/vec.h"

#include <stdbool.h>
#include <stdint.h>

#define GC_CLOCKS_AGREE_S 600 /* the largest difference between two clocks that agree */

struct gc_clock {
    const char *provider; /* static */
    int64_t skew_s;       /* its clock minus this machine's */
};
struct gc_clocks {
    VEC_OF(struct gc_clock) list;
};

void gc_clocks_add(struct gc_clocks *c, const char *provider, int64_t skew_s); /* once for each provider */
/* Whether the cloud's clock counts: this machine's agrees with it, or another cloud's does. */
bool gc_clock_is_sure(const struct gc_clocks *c, const char *provider, int64_t skew_s);

/* The time of a provider. A deadline has passed at `now_s`. Without a sure clock that is the earlier of the two clocks,
 * and a deadline that only the later one has passed is reported. */
struct gc_time {
    int64_t now_s, later_s;
};
struct gc_time gc_time_of(const struct gc_clocks *c, const char *provider, int64_t skew_s, int64_t local_s);

#endif

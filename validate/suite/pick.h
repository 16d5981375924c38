/* SPDX-License-Identifier: Apache-2.0 */
/* Which checks a given time chooses, in which order they run, and how long each may take: the same rule
 * in the controller and in the agent. Depends on core/base and the check table. Pure; any thread. */
#ifndef GP_PICK_H
#define GP_PICK_H

#include "checks.h"

struct pick {
    const struct check_info *info;
    bool core;         /* must be taken: of the core, or asked for by name */
    bool required;     /* by default; left out, and said, where the time does not reach */
    bool taken;        /* set by pick_take */
    int64_t budget_ms; /* set by pick_share: what it may use; at least its stated seconds */
};

/* Sorts: core ones first, then required ones, each by stated seconds over how telling the check is. Where each check
 * costs c seconds and finds a bad node with probability p, the order by c / p finds it soonest. */
void pick_sort(struct pick *list, size_t n);

/* Sorts, then takes from the front what still fits time_ms by its stated seconds. Returns the seconds
 * that the core ones take together; more than time_ms means that not all of them were taken. */
int64_t pick_take(struct pick *list, size_t n, int64_t time_ms);

/* Divides the time of those taken: each gets its stated seconds, and what time_ms gives beyond one
 * minute (or beyond their sum, if that is longer) goes to those that can use it (check_info.stretch) by
 * their stated seconds. So 1m is the same suite at its shortest, 5m and 20m look longer. */
void pick_share(struct pick *list, size_t n, int64_t time_ms);

int64_t pick_seconds(const struct pick *list, size_t n); /* stated, of those taken */

#endif

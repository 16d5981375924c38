/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the checks for a given time, their order and the time of each: the same rule in the controller and in the
 * agent. Depends on core/base and the check table. Pure; any thread. */
#ifndef GP_PICK_H
#define GP_PICK_H

#include "checks.h"

struct pick {
    const struct check_info *info;
    int gpus;          /* of the node, for its stated seconds */
    bool core;         /* must be taken: of the core, or listed by name */
    bool required;     /* by default; left out, and reported, if the time does not suffice */
    bool taken;        /* set by pick_take */
    bool full;         /* set by pick_take: in its long form */
    int64_t budget_ms; /* set by pick_share: its share of the time; at least its stated seconds */
};

int pick_stated(const struct pick *p); /* its seconds, in the form that it has */

/* Sorts: core ones first, then required gang checks, because a gang is what the nodes are for, then other required
 * ones, each by stated seconds / telling. If each check costs c seconds and
 * finds a bad node with probability p, the order by c / p finds a bad node soonest. */
void pick_sort(struct pick *list, size_t n);

/* Sorts, then takes from the front each check whose stated seconds still fit time_ms, then the long forms that do.
 * Returns the sum of the core checks' seconds; if it is more than time_ms, not all of them were taken. */
int64_t pick_take(struct pick *list, size_t n, int64_t time_ms);

/* Divides the time of those taken: each gets its stated seconds, and the part of time_ms beyond one minute (or
 * beyond their sum, if that is longer) goes to those with check_info.stretch, in proportion to their stated seconds.
 * So 1m is the suite at its shortest, and 5m and 20m run the same checks longer. */
void pick_share(struct pick *list, size_t n, int64_t time_ms);

int64_t pick_seconds(const struct pick *list, size_t n); /* stated, of those taken */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses checks for a given time and divides it among them. Uses the table's facts only: the caller decides whether
 * a check applies here. Pure; any thread. */
#include "base/gp_base.h"

#include "pick.h"

#define MINUTE_MS 60000

/* By seconds / telling, compared without dividing; the table's order where they are equal. */
static int by_worth(const void *a, const void *b) {
    const struct pick *x = a, *y = b;
    if (x->core != y->core) return x->core ? -1 : 1;
    if (x->required != y->required) return x->required ? -1 : 1;
    int64_t cx = (int64_t)x->info->seconds * GP_MAX(y->info->telling, 1);
    int64_t cy = (int64_t)y->info->seconds * GP_MAX(x->info->telling, 1);
    if (cx != cy) return cx < cy ? -1 : 1;
    return x->info < y->info ? -1 : x->info > y->info;
}

void pick_sort(struct pick *list, size_t n) {
    if (n) qsort(list, n, sizeof *list, by_worth);
}

int64_t pick_take(struct pick *list, size_t n, int64_t time_ms) {
    int64_t left_ms = time_ms, core_s = 0;
    pick_sort(list, n);
    for (size_t i = 0; i < n; i++) {
        int64_t cost_ms = (int64_t)list[i].info->seconds * 1000;
        list[i].taken = cost_ms <= left_ms;
        left_ms -= list[i].taken ? cost_ms : 0;
        core_s += list[i].core ? list[i].info->seconds : 0;
    }
    return core_s;
}

int64_t pick_seconds(const struct pick *list, size_t n) {
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += list[i].taken ? list[i].info->seconds : 0;
    return sum;
}

void pick_share(struct pick *list, size_t n, int64_t time_ms) {
    int64_t weight = 0, spare_ms = time_ms - GP_MAX(MINUTE_MS, pick_seconds(list, n) * 1000);
    for (size_t i = 0; i < n; i++) weight += list[i].taken && list[i].info->stretch ? list[i].info->seconds : 0;
    for (size_t i = 0; i < n; i++) {
        const struct check_info *c = list[i].info;
        list[i].budget_ms = (int64_t)c->seconds * 1000;
        if (list[i].taken && c->stretch && spare_ms > 0 && weight > 0)
            list[i].budget_ms += spare_ms * c->seconds / weight;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses checks for a given time and divides it among them. Uses the table's facts only: the caller decides whether
 * a check applies here. Pure; any thread. */
#include "base/gp_base.h"

#include "pick.h"

#define MINUTE_MS 60000

int pick_stated(const struct pick *p) { return check_stated(p->info, p->gpus) + (p->full ? p->info->longer : 0); }

static int rank_of(const struct pick *p) {
    return p->core ? 0 : !p->required ? 3 : p->info->level == CHECK_GANG ? 1 : 2;
}

/* By seconds / telling, compared without dividing; the table's order where they are equal. */
static int by_worth(const void *a, const void *b) {
    const struct pick *x = a, *y = b;
    if (rank_of(x) != rank_of(y)) return rank_of(x) - rank_of(y);
    int64_t cx = (int64_t)check_stated(x->info, x->gpus) * GP_MAX(y->info->telling, 1);
    int64_t cy = (int64_t)check_stated(y->info, y->gpus) * GP_MAX(x->info->telling, 1);
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
        int64_t cost_ms = (int64_t)check_stated(list[i].info, list[i].gpus) * 1000;
        list[i].taken = cost_ms <= left_ms;
        left_ms -= list[i].taken ? cost_ms : 0;
        core_s += list[i].core ? cost_ms / 1000 : 0;
    }
    for (size_t i = 0; i < n; i++) {
        int64_t more_ms = (int64_t)list[i].info->longer * 1000;
        list[i].full = list[i].taken && more_ms > 0 && more_ms <= left_ms;
        left_ms -= list[i].full ? more_ms : 0;
    }
    return core_s;
}

int64_t pick_seconds(const struct pick *list, size_t n) {
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += list[i].taken ? pick_stated(&list[i]) : 0;
    return sum;
}

void pick_share(struct pick *list, size_t n, int64_t time_ms) {
    int64_t weight = 0, spare_ms = time_ms - GP_MAX(MINUTE_MS, pick_seconds(list, n) * 1000);
    for (size_t i = 0; i < n; i++) weight += list[i].taken && list[i].info->stretch ? pick_stated(&list[i]) : 0;
    for (size_t i = 0; i < n; i++) {
        const struct check_info *c = list[i].info;
        list[i].budget_ms = (int64_t)pick_stated(&list[i]) * 1000;
        if (list[i].taken && c->stretch && spare_ms > 0 && weight > 0)
            list[i].budget_ms += spare_ms * pick_stated(&list[i]) / weight;
    }
}

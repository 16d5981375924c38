/* SPDX-License-Identifier: Apache-2.0 */
/* The table of events that become notifications, and the thresholds of those that follow from time and money. */
#include "base/gp_base.h"

#include "engine/run/notify_kind.h"

#include "base/str.h"

#define NEAR_S (15 * 60)
#define SPENT 0.8

enum of { STACK, NODE };
/* The first row that fits counts. */
static const struct {
    enum of of;
    enum event_status status;
    const char *step;
    enum gp_code code; /* GP_OK: any */
    const char *begin; /* of the text; "": any */
    enum notify_kind kind;
} rows[] = {
    /* the watch of a running job (jobs on nodes) */
    {NODE, EVENT_WARN, "job.health", GP_OK, "preempted: ", NOTIFY_PREEMPTED},
    {NODE, EVENT_WARN, "job.health", GP_OK, "unhealthy: ", NOTIFY_UNHEALTHY},
    /* the provider's list shows that it ended the machine */
    {NODE, EVENT_WARN, "job", GP_OK, "its machine is ", NOTIFY_PREEMPTED},
    {NODE, EVENT_WARN, "watch", GP_OK, "", NOTIFY_PREEMPTED},
    /* the error that ended the verb */
    {STACK, EVENT_FAIL, "", GP_EJOB, "", NOTIFY_JOB},
    {STACK, EVENT_FAIL, "", GP_EBILLED, "", NOTIFY_LEAKED},
    {STACK, EVENT_FAIL, "", GP_OK, "", NOTIFY_FAILED},
    /* `down` has verified it */
    {STACK, EVENT_DONE, "", GP_OK, "", NOTIFY_GONE},
};

enum notify_kind notify_kind_of(const struct event *e) {
    const char *step = e->step != NULL ? e->step : "", *text = e->text != NULL ? e->text : "";
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        bool of = (rows[i].of == STACK) == (e->node < 0);
        bool code = rows[i].code == GP_OK || rows[i].code == e->code;
        if (!of || !code || rows[i].status != e->status || strcmp(rows[i].step, step) != 0) continue;
        if (rows[i].kind == NOTIFY_GONE && e->phase != NODE_GONE) continue;
        if (str_starts(text, rows[i].begin)) return rows[i].kind;
    }
    return NOTIFY_NONE;
}

bool notify_deadline_near(int64_t ttl_s, int64_t created_s, int64_t expires_s, int64_t now_s) {
    int64_t left_s = expires_s - now_s, life_s = expires_s - created_s;
    if (expires_s <= 0 || left_s <= 0 || life_s <= 0) return false;
    return left_s <= GP_MIN(GP_MAX(ttl_s / 10, (int64_t)NEAR_S), life_s / 2);
}

bool notify_spent_most(double usd, int64_t limit) {
    return limit > 0 && usd >= 0 && usd * 1e6 >= SPENT * (double)limit;
}

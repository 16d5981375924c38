/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the readiness from nodes that reported a fault during a job. The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_fault.h"

#include "engine/run/lock.h"
#include "engine/run/run_event.h"

/* The first fault of a rank; NULL: none. */
static const struct job_health *fault_of(const struct job_result *ret, int rank) {
    for (size_t i = 0; i < ret->health.len; i++) {
        const struct job_rank_health *h = &ret->health.items[i];
        if (h->rank == rank && h->found.kind == JOB_UNHEALTHY && strcmp(h->found.severity, "fail") == 0)
            return &h->found;
    }
    return NULL;
}

/* The record is read again under the lock: another gpuprov may have destroyed or validated the node meanwhile. */
static int record_one(struct job_session *s, struct node_record *rec, struct gp_error *err) {
    const struct run *run = s->run;
    const struct job_health *h = fault_of(s->ret, rec->slot);
    if (h == NULL || rec->phase != NODE_READY || (size_t)rec->slot >= s->all.len) return 0;
    const struct run_node *n = s->all.items[rec->slot].n;
    if (!n->exists || !str_eq(rec->resource_id, n->res.id)) return 0;
    char text[300];
    job_health_text(h, text, sizeof text);
    rec->phase = NODE_FAILED;
    free(rec->note);
    rec->note = xasprintf("a fault during a job: %s", text);
    int r = journal_node_put(run->e->journal, run->stack.uid, rec, err);
    if (r == 0)
        run_event(run, rec->slot, NODE_FAILED, EVENT_WARN, "job.health",
                  "the node is not ready any more: 'gpuprov up %s' validates it again, 'gpuprov down %s' ends it: %s",
                  run->stack.name, run->stack.name, text);
    return r;
}

void job_fault_record(struct job_session *s) {
    struct run *run = s->run;
    struct node_record_list all = {0};
    struct gp_error why = {0};
    bool any = false;
    for (size_t i = 0; run != NULL && i < s->all.len; i++) any = any || fault_of(s->ret, (int)i) != NULL;
    if (!any || run->stack.uid == NULL) return;
    int r = run_is_locked(run) ? 0 : run_lock(run, &why);
    if (r == 0) r = journal_nodes(run->e->journal, run->stack.uid, &all, &why);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) r = record_one(s, &all.list.items[i], &why);
    run_unlock(run);
    node_record_list_clear(&all);
    if (r != 0)
        run_event(run, -1, NODE_READY, EVENT_WARN, "job.health",
                  "a node has a fault and is still recorded as ready: %s", why.msg);
}

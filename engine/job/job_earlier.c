/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier job left on the nodes is fetched before another one begins. The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_earlier.h"

#include "engine/run/run_event.h"

static const struct job_state *unfetched(const struct job_node *j) {
    return j->used && !j->gone && j->state.phase == JOB_ENDED && !j->state.collected ? &j->state : NULL;
}

/* Of each id once: its nodes are marked at once. */
static void mark_all(struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_state *st = unfetched(&s->all.items[i]);
        if (st == NULL) continue;
        char id[sizeof st->id];
        memcpy(id, st->id, sizeof id);
        job_mark_collected(&s->all, id);
        for (size_t k = i; k < s->all.len; k++)
            if (strcmp(s->all.items[k].state.id, id) == 0) s->all.items[k].state.collected = true;
    }
}

int job_earlier_fetch(struct job_session *s, bool *ret_left, struct gp_error *err) {
    const struct spec_job *job = s->def.spec != NULL ? &s->def.spec->job : NULL;
    const struct job_state *first = NULL;
    struct gp_error why = {0};
    *ret_left = false;
    if (job == NULL || (job->outputs.len == 0 && job->checkpoint.path == NULL)) return 0;
    for (size_t i = 0; i < s->all.len; i++) s->all.items[i].used = i == 0 || !s->def.rank0;
    for (size_t i = 0; i < s->all.len && first == NULL; i++) first = unfetched(&s->all.items[i]);
    if (first == NULL) return 0;
    char id[sizeof first->id];
    memcpy(id, first->id, sizeof id);
    run_event(s->run, -1, NODE_READY, EVENT_INFO, "job",
              "job %s has ended there, and its outputs were not fetched: this comes first", id);
    int r = job_session_fetch(s, ret_left, &why);
    if (r == -GP_EIO && s->unkept && !s->unsent && !*ret_left) { /* it is here, and no repetition changes that */
        run_event(s->run, -1, NODE_READY, EVENT_WARN, "files", "%s", why.msg);
        r = 0;
    }
    if (r == 0) mark_all(s);
    if (r == 0) return 0;
    return gp_fail(err, why.code, "'%s': no job begins before the outputs of job %s are here: %.350s",
                   s->run->stack.name, id, why.msg);
}

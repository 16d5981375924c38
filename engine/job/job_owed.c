/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that still have files of a job that has ended. A node whose files are here is of no use, and costs money. */
#include "base/gp_base.h"

#include "engine/job/job_owed.h"

#include "engine/run/lock.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/give_back.h"
#include "engine/stack/open_known.h"

static bool is_lent(const struct job_node *j) {
    const struct provider_ops *ops = provider_find(j->n->res.provider);
    return ops == NULL || ops->lent;
}

/* Those that may go, by slot; and *owed those that have files. */
static size_t choose(const struct job_session *s, int *slots, struct job_owed_list *owed) {
    size_t n = 0;
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_node *j = &s->all.items[i];
        if (j->gone) continue;
        if (j->owes) job_owed_add(owed, (int)i, j->n->res.id);
        else if (!is_lent(j)) slots[n++] = (int)i;
    }
    return owed->list.len > 0 ? n : 0;
}

/* Another gpuprov may have replaced a machine meanwhile. */
static size_t same_machines(const struct job_session *s, const struct run *now, int *slots, size_t n) {
    size_t same = 0;
    for (size_t k = 0; k < n; k++) {
        int i = slots[k];
        if (i < now->n_nodes && now->nodes[i].exists && str_eq(now->nodes[i].res.id, s->run->nodes[i].res.id))
            slots[same++] = i;
    }
    return same;
}

static int end_them(struct job_session *s, const struct gp_error *its, int *slots, size_t n,
                    const struct job_owed_list *owed, struct gp_error *err) {
    struct run *now = NULL;
    run_unlock(s->run);
    int r = run_open_known(s->e, s->def.spec, NULL, &now, err);
    if (r == 0) r = run_lock(now, err);
    if (r == 0) r = adopt_stack(now, NULL, err);
    if (r == 0 && !str_eq(now->stack.uid, s->run->stack.uid))
        r = gp_fail(err, GP_EBUSY, "another gpuprov has destroyed the stack");
    n = r == 0 ? same_machines(s, now, slots, n) : 0;
    if (n > 0) r = job_end_write(s->run, s->ret, its, owed, err);
    if (r == 0 && n > 0) r = give_back(now, slots, n, "whose files are here", err);
    for (size_t k = 0; r == 0 && k < n; k++) s->all.items[slots[k]].gone = true;
    run_close(now);
    return r;
}

void job_owed_end_others(struct job_session *s, const struct gp_error *its) {
    struct job_owed_list owed = {0};
    struct gp_error why = {0};
    int *slots = xcalloc(s->all.len + 1, sizeof *slots);
    size_t n = s->run->stack.uid != NULL ? choose(s, slots, &owed) : 0;
    if (n > 0 && end_them(s, its, slots, n, &owed, &why) != 0)
        run_event(s->run, -1, NODE_READY, EVENT_FAIL, "files",
                  "the nodes whose files are here may be left, and cost money until the deadline: %s", why.msg);
    job_owed_clear(&owed);
    free(slots);
}

char *job_owed_text(const struct job_session *s) {
    GP_AUTO_STR struct str which = {0};
    size_t there = 0, owe = 0;
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_node *j = &s->all.items[i];
        there += !j->gone;
        if (j->gone || !j->owes) continue;
        owe++;
        str_addf(&which, "%s%zu", which.len > 0 ? ", " : "", i);
    }
    if (owe == 0 || owe < there || there == s->all.len)
        return xstrdup("the nodes stay until their deadline, because they have");
    return owe == 1 ? xasprintf("node %s stays until its deadline, because it has", which.s)
                    : xasprintf("nodes %s stay until their deadline, because they have", which.s);
}

static const struct job_owed *find_owed(const struct job_owed_list *owed, int rank) {
    for (size_t k = 0; k < owed->list.len; k++)
        if (owed->list.items[k].rank == rank) return &owed->list.items[k];
    return NULL;
}

/* What the last fetch said about a node that is asked again. */
static void forget_fetched(struct job_result *ret, const struct job_owed_list *owed) {
    size_t kept = 0;
    for (size_t i = 0; i < ret->fetched.len; i++) {
        struct job_fetched *f = &ret->fetched.items[i];
        if (find_owed(owed, f->rank) != NULL) job_fetched_clear(f);
        else ret->fetched.items[kept++] = *f;
    }
    ret->fetched.len = kept;
}

/* Files of an owing node that will not come. */
static void check_lost(const struct job_session *s, size_t i, struct gp_error *ret_lost) {
    const struct job_node *j = &s->all.items[i];
    bool other = !j->gone && j->state.id[0] != '\0' && strcmp(j->state.id, s->ret->id) != 0;
    if (ret_lost->code != GP_OK || (!j->gone && !other)) return;
    (void)gp_fail(ret_lost, GP_EREACH, "%s/%zu: %s, and its outputs that are not here with it", s->run->stack.name, i,
                  other ? "its job was replaced by another one" : "its machine is gone");
}

static void restrict_to(struct job_session *s, const struct job_owed_list *owed, struct gp_error *ret_lost) {
    for (size_t i = 0; i < s->all.len; i++) {
        struct job_node *j = &s->all.items[i];
        const struct job_owed *its = find_owed(owed, (int)i);
        j->used = i == 0 || !s->def.rank0;
        j->owes = its != NULL;
        if (its == NULL) {
            j->gone = true; /* for this: nothing is asked of it */
            continue;
        }
        check_lost(s, i, ret_lost);
    }
}

int job_owed_open(struct job_session *s, struct job_end *end, struct gp_error *ret_lost, struct gp_error *err) {
    int r = job_session_open_nodes(s, err);
    job_result_clear(s->ret);
    *s->ret = end->job;
    end->job = (struct job_result){0};
    forget_fetched(s->ret, &end->owed);
    if (r == 0) restrict_to(s, &end->owed, ret_lost);
    if (r == -GP_ENOTFOUND) {
        if (err != NULL) gp_error_clear(err);
        r = 0;
        s->all = (struct job_nodes){.run = s->run}; /* none: but what is here may have to be sent to its bucket */
        (void)gp_fail(ret_lost, GP_EREACH, "'%s': its last machines are gone, and outputs that are not here with them",
                      s->run->stack.name);
    }
    if (r == 0 && ret_lost->code != GP_OK) run_event(s->run, -1, NODE_READY, EVENT_FAIL, "files", "%s", ret_lost->msg);
    return r;
}

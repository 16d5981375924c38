/* SPDX-License-Identifier: Apache-2.0 */
/* Gives back the nodes that a job lost. They are launched again by `up`, so that they are validated like all others.
 * The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_recover.h"

#include "engine/run/lock.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/give_back.h"
#include "engine/stack/open_known.h"

#define LEFT_MIN_S 300  /* a node that is launched with less time until the deadline is of no use */
#define VANISH_MS 60000 /* how long a machine that shuts down may still be listed as running */
#define VANISH_LOOK_MS 3000

static const char was_preempted[] = "was preempted", is_gone[] = "is gone", has_fault[] = "has a fault";

const char *job_recover_why(const char *text) {
    const char *const all[] = {was_preempted, is_gone, has_fault};
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++)
        if (strcmp(all[i], text) == 0) return all[i];
    return NULL;
}

/* What the node itself reported about this job; NULL: nothing. */
static const char *reported(const struct job_session *s, size_t slot) {
    const struct job_state *st = &s->all.items[slot].state;
    const struct spec *spec = s->run->spec;
    if (strcmp(st->id, s->ret->id) != 0) return NULL;
    if (st->preempted || strcmp(st->reason, "preempted") == 0) return was_preempted;
    bool fault = st->unhealthy > 0 || strcmp(st->reason, "unhealthy") == 0;
    return fault && spec != NULL && spec_job_replaces(&spec->job) ? has_fault : NULL;
}

/* The nodes to launch again, by slot: the reason, NULL where a node stays. */
struct lost {
    const char **why;
    int *slots; /* those that still exist */
    size_t n, n_slots;
    bool stuck; /* the job may still run on a node that stays */
};

static void lost_clear(struct lost *l) {
    free(l->why);
    free(l->slots);
}

static void find_lost(const struct job_session *s, const struct run *now, struct lost *ret) {
    const struct job_outcome *o = &s->ret->outcome;
    ret->why = xcalloc(s->all.len + 1, sizeof *ret->why);
    ret->slots = xcalloc(s->all.len + 1, sizeof *ret->slots);
    for (size_t i = 0; i < s->all.len; i++) {
        bool there = (int)i < now->n_nodes && now->nodes[i].exists;
        const char *why = reported(s, i);
        if (why == NULL && !there) why = is_gone;
        ret->why[i] = why;
        ret->n += why != NULL;
        if (why != NULL && there) ret->slots[ret->n_slots++] = (int)i;
        ret->stuck = ret->stuck || (why == NULL && i < o->len && o->ranks[i].lost);
    }
}

/* "node 1 was preempted, node 3 is gone". */
static void lost_text(const struct lost *l, size_t len, struct str *to) {
    for (size_t i = 0; i < len; i++)
        if (l->why[i] != NULL) str_addf(to, "%snode %zu %s", to->len > 0 ? ", " : "", i, l->why[i]);
}

/* Machines that exist without gpuprov: the same one would be taken again. */
static bool any_lent(const struct run *now, const struct lost *l) {
    for (size_t k = 0; k < l->n_slots; k++) {
        const struct provider_ops *ops = provider_find(now->nodes[l->slots[k]].res.provider);
        if (ops == NULL || ops->lent) return true;
    }
    return false;
}

/* The nodes that are left have ended it well, and the others were gone when this call began: a `run` elsewhere, or one
 * whose state is lost, may have destroyed them because it has their files. */
static bool may_be_over(const struct job_session *s, const struct lost *l) {
    bool left = false;
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_node *j = &s->all.items[i];
        if (!j->used) continue;
        if (l->why[i] != NULL ? j->n->exists : !job_state_ok(&j->state)) return false;
        left = left || l->why[i] == NULL;
    }
    return left;
}

/* Why nothing is launched again, a clause; "": it may be. */
static void refusal(const struct job_session *s, const struct run *now, const struct lost *l, struct str *to) {
    const struct job_result *ret = s->ret;
    const struct provider_ops *home = provider_find(now->stack.provider);
    int most = s->def.spec->job.recover;
    int64_t left_s = now->stack.expires_s - run_cloud_s(now, now->stack.provider);
    char left[32];
    duration_format(left, sizeof left, GP_MAX(left_s, (int64_t)0) * 1000);
    if (ret->recovered >= most)
        str_addf(to, "nodes were launched again %d time%s already (job.recover)", most, most == 1 ? "" : "s");
    else if (l->stuck) str_add(to, "another node does not answer, and the job may still run there");
    else if (now->stack.expires_s > 0 && left_s < LEFT_MIN_S) str_addf(to, "the deadline is in %s", left);
    else if (may_be_over(s, l))
        str_add(to, "the nodes that are left have ended it well, and the others were gone before: their files may have "
                    "been fetched by another gpuprov");
    else if (any_lent(now, l)) str_add(to, "its machine is not gpuprov's to replace: remove it from the hosts file");
    else if (l->n == s->all.len && l->n_slots == 0 && (home == NULL || !home->unique_claim))
        str_add(to, "no node is left, and another gpuprov may have destroyed them");
}

static void note_replaced(struct job_session *s, const struct lost *l) {
    for (size_t i = 0; i < s->all.len; i++) {
        struct job_replaced one = {.rank = (int)i, .why = l->why[i]};
        str_put(one.id, sizeof one.id, s->ret->id);
        if (l->why[i] != NULL) vec_push(&s->ret->replaced, one);
    }
}

/* Under the stack's lock. The order matters to a run that continues after kill -9: as long as a node that must not be
 * used again exists, the job is there to be found, with the node's own words about it. */
static int give_back_lost(struct job_session *s, struct run *now, char ret_uid[17], struct gp_error *err) {
    GP_CLEANUP(lost_clear) struct lost l = {0};
    GP_AUTO_STR struct str which = {0}, why_not = {0};
    str_add(&why_not, "");
    find_lost(s, now, &l);
    if (l.n == 0) return 0;
    lost_text(&l, s->all.len, &which);
    refusal(s, now, &l, &why_not);
    if (why_not.len > 0) {
        run_event(now, -1, NODE_READY, EVENT_WARN, "job", "%s, and the job is not started again: %s", which.s,
                  why_not.s);
        return 0;
    }
    s->ret->recovered++;
    note_replaced(s, &l);
    run_event(now, -1, NODE_READY, EVENT_WARN, "job",
              "%s: %zu node%s launched again, then the job starts anew (recovery %d of %d)", which.s, l.n,
              l.n == 1 ? " is" : "s are", s->ret->recovered, s->def.spec->job.recover);
    int r = l.n_slots > 0 ? give_back(now, l.slots, l.n_slots, "that the job cannot use any more", err) : 0;
    if (r != 0) return r;
    for (size_t i = 0; i < s->all.len; i++) s->all.items[i].gone = s->all.items[i].gone || l.why[i] != NULL;
    job_mark_collected(&s->all, s->ret->id);
    str_put(ret_uid, 17, now->stack.uid);
    return 0;
}

/* A signal ended the supervisor of its job, as a shutdown does: the machine may be about to end. */
static bool may_vanish(const struct job_session *s, const struct run *now) {
    const struct job_outcome *o = &s->ret->outcome;
    for (size_t i = 0; i < o->len && (int)i < now->n_nodes; i++) {
        const struct job_rank_end *e = &o->ranks[i];
        if (now->nodes[i].exists && e->ended && strcmp(e->state.reason, "lost") == 0) return true;
    }
    return false;
}

/* Its provider lists such a machine for some time: asks again until it is gone, for a minute at most. */
static int wait_for_gone(struct job_session *s, struct run *now, struct gp_error *err) {
    int r = 0;
    int64_t end_ms = clock_deadline(VANISH_MS);
    if (!may_vanish(s, now)) return 0;
    run_event(
        now, -1, NODE_READY, EVENT_WARN, "job",
        "the job ended as at a shutdown of its node: its provider is asked for a minute whether the node is gone");
    while (r == 0 && may_vanish(s, now) && clock_left_ms(end_ms) > 0) {
        r = gp_sleep(VANISH_LOOK_MS, &s->e->cancel, err);
        if (r == 0) r = adopt_stack(now, NULL, err);
        if (r == 0 && !str_eq(now->stack.uid, s->run->stack.uid)) break;
    }
    return r;
}

int job_recover_give_back(struct job_session *s, char ret_uid[17], struct gp_error *err) {
    struct run *now = NULL;
    struct gp_error why = {0};
    ret_uid[0] = '\0';
    if (s->def.spec == NULL || s->def.spec->job.recover == 0 || s->ret->deadline) return 0;
    run_unlock(s->run);
    int r = run_open_known(s->e, s->def.spec, NULL, &now, &why);
    if (r == 0) r = run_lock(now, &why);
    if (r == 0) r = adopt_stack(now, NULL, &why);
    if (r == 0 && str_eq(now->stack.uid, s->run->stack.uid)) r = wait_for_gone(s, now, &why);
    if (r != 0) {
        run_close(now);
        if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s", why.msg);
        run_event(s->run, -1, NODE_READY, EVENT_WARN, "job",
                  "whether the job failed because of a node is not known, and it is not started again: %s", why.msg);
        return 0;
    }
    /* destroyed, or destroyed and launched again, by another gpuprov */
    if (str_eq(now->stack.uid, s->run->stack.uid)) r = give_back_lost(s, now, ret_uid, err);
    run_close(now);
    return r;
}

bool job_recover_is_needed(const struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++)
        if (!s->all.items[i].gone && reported(s, i) != NULL) return true;
    return false;
}

bool job_recover_may_follow(const struct job_session *s) {
    bool any = false;
    if (s->ret->outcome.failed < 0 || s->ret->deadline || s->ret->recovered >= s->def.spec->job.recover) return false;
    for (size_t i = 0; i < s->all.len; i++) any = any || s->all.items[i].gone || reported(s, i) != NULL;
    return any;
}

void job_recover_note(const struct job_session *s) {
    GP_AUTO_STR struct str which = {0};
    if (s->run == NULL || s->ret->outcome.failed < 0) return;
    for (size_t i = 0; i < s->all.len; i++) {
        const char *why = s->all.items[i].gone ? is_gone : reported(s, i);
        if (why != NULL) str_addf(&which, "%snode %zu %s", which.len > 0 ? ", " : "", i, why);
    }
    if (which.len == 0) return;
    run_event(s->run, -1, NODE_READY, EVENT_WARN, "job",
              "%s: only 'gpuprov run' launches nodes again during a job; 'gpuprov up' does it now", which.s);
}

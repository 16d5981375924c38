/* SPDX-License-Identifier: Apache-2.0 */
/* The deadline of a stack as its tags have it, and its move. A run that is cut anywhere leaves the earlier deadline in
 * force at one place at least: on the nodes, in the tags, or in the journal. */
#include "base/gp_base.h"

#include "engine/stack/deadline.h"

#include "engine/internal.h"
#include "engine/run/lock.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/trust/proof_key.h"
#include "engine/trust/trust.h"

#define FARTHEST_S ((int64_t)31 * 86400) /* limits.ttl and extend allow 30 days */
#define SAME_S 1

struct span {
    int64_t first_s, last_s; /* 0: no tag has one */
    bool strange;            /* a tag names a time that gpuprov does not write, or another one than the journal
                                without a proof */
};

/* Whether the stack wrote the tag's deadline: the journal has it or has begun to move to it, or its login key wrote it.
 * A proof holds for ever, so an earlier one than the journal's may be a former deadline that somebody put back. */
static bool is_written(struct run *run, const struct resource *r) {
    const struct stack *st = &run->stack;
    const struct provider_ops *ops = provider_find(r->provider);
    if (ops != NULL && ops->own_list) return true;
    if (run->takes_deadline || st->expires_s == 0) return trust_deadline(run, r);
    if (llabs(r->expires_s - st->expires_s) <= SAME_S || r->expires_s == st->moving_s) return true;
    return r->expires_s > st->expires_s && trust_deadline(run, r);
}

/* Unproven machines have no say in the stack's deadline. */
static void add(struct run *run, const struct resource *r, struct span *s) {
    const struct provider_ops *ops = provider_find(r->provider);
    if (!resource_is_machine(r) || r->expires_s <= 0 || r->state == RES_GONE || r->state == RES_STOPPING) return;
    if (ops == NULL || ops->lent || r->ours == OURS_NOT || !str_eq(r->uid, run->stack.uid)) return;
    if (!is_written(run, r) || r->expires_s > run_cloud_s(run, r->provider) + FARTHEST_S) {
        s->strange = true;
        return;
    }
    if (s->first_s == 0 || r->expires_s < s->first_s) s->first_s = r->expires_s;
    s->last_s = GP_MAX(s->last_s, r->expires_s);
}

static struct span span_of(struct run *run) {
    struct span s = {0};
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists) add(run, &run->nodes[i].res, &s);
    for (size_t i = 0; i < run->others.list.len; i++) add(run, &run->others.list.items[i], &s);
    return s;
}

int deadline_from_tags(struct run *run, struct gp_error *err) {
    struct span s = span_of(run);
    struct stack *st = &run->stack;
    if (st->uid == NULL || s.first_s == 0 || run->recalled) return 0;
    /* without the journal: a former one, earlier than the others, may have been put back with its proof */
    if (run->takes_deadline || st->expires_s == 0) s.first_s = s.last_s;
    bool moved = llabs(s.first_s - st->expires_s) > SAME_S || run->takes_deadline;
    bool complete = st->moving_s != 0 && s.first_s == st->moving_s && s.last_s == st->moving_s;
    if (!moved && !complete) return 0;
    if (moved && !run->takes_deadline && st->expires_s != 0 && st->moving_s == 0)
        run->journal_expires_s = st->expires_s;
    st->expires_s = s.first_s;
    run->takes_deadline = false;
    if (complete) st->moving_s = 0; /* the nodes and the tags have it: only the journal was left */
    return run_is_locked(run) ? journal_stack_put(run->e->journal, st, NULL, err) : 0;
}

void deadline_notes(struct run *run, struct strv *notes) {
    const struct stack *st = &run->stack;
    struct span s = span_of(run);
    char now[40], other[40];
    if (!run_any_exists(run)) return;
    time_format_utc(now, sizeof now, st->expires_s);
    if (s.strange)
        strv_take(
            notes,
            xasprintf("a node's tag names a deadline that this stack did not write, and it is ignored: 'gpuprov extend "
                      "%s TIME' writes it again",
                      st->name));
    if (st->moving_s != 0 && !run_is_locked(run) && lock_is_held(run->e->state_dir, st->name)) {
        time_format_utc(other, sizeof other, st->moving_s);
        strv_take(notes, xasprintf("another gpuprov is moving the deadline to %s", other));
    } else if (st->moving_s != 0) {
        time_format_utc(other, sizeof other, st->moving_s);
        strv_take(
            notes,
            xasprintf("moving the deadline to %s was interrupted, and nodes may have it: the earlier one counts, %s; "
                      "'gpuprov extend %s TIME' sets all",
                      other, st->moving_s < st->expires_s ? other : now, st->name));
    } else if (s.last_s - s.first_s > SAME_S) {
        time_format_utc(other, sizeof other, s.last_s);
        strv_take(
            notes,
            xasprintf("the nodes' tags name different deadlines, up to %s: the earliest counts, %s; 'gpuprov extend "
                      "%s TIME' sets all",
                      other, now, st->name));
    } else if (run->journal_expires_s != 0) {
        time_format_utc(other, sizeof other, run->journal_expires_s);
        strv_take(
            notes,
            xasprintf("the deadline is %s by the nodes' tags, and was %s in this journal: another machine moved it, "
                      "or somebody edited the tags",
                      now, other));
    }
}

/* What somebody else may have put there must not stop the move. */
static bool is_foreign(const struct run *run, const struct resource *r) {
    return !str_eq(r->uid, run->stack.uid) || (resource_is_machine(r) && r->ours == OURS_NOT);
}

const struct provider_ops *deadline_cannot_move(const struct run *run) {
    for (int i = 0; i < run->n_nodes; i++) {
        const struct provider_ops *ops = run->nodes[i].exists ? provider_find(run->nodes[i].res.provider) : NULL;
        if (ops != NULL && !ops->spec->moves_deadline) return ops;
    }
    for (size_t i = 0; i < run->others.list.len; i++) {
        if (is_foreign(run, &run->others.list.items[i])) continue;
        const struct provider_ops *ops = provider_find(run->others.list.items[i].provider);
        if (ops != NULL && !ops->spec->moves_deadline) return ops;
    }
    return NULL;
}

int deadline_begin(struct run *run, struct gp_error *err) {
    if (run->moved_expires_s == 0 || run->moved_expires_s == run->stack.expires_s) return 0;
    run->stack.moving_s = run->moved_expires_s;
    return journal_stack_put(run->e->journal, &run->stack, NULL, err);
}

int deadline_abandon(struct run *run, struct gp_error *err) {
    if (run->stack.moving_s == 0) return 0;
    run->stack.moving_s = 0;
    return journal_stack_put(run->e->journal, &run->stack, NULL, err);
}

int deadline_tag(struct run *run, struct gp_error *err) {
    char when[40], proof[PROOF_SIZE];
    int r = run_proof_key(run, false, err);
    if (r != 0) return gp_wrap(err, "could not prove the deadline of '%s'", run->stack.name);
    time_format_utc(when, sizeof when, run->stack.expires_s);
    proof_of_deadline(&run->proof, run->stack.uid, run->stack.expires_s, proof);
    const struct late_tag tags[] = {{"expires", when}, {"deadline", proof}};
    for (size_t i = 0; r == 0 && i < run->providers.len; i++) {
        struct provider *p = run->providers.items[i];
        struct resource_list its = {0}; /* borrowed */
        if (p->ops->tag == NULL || p->ops->lent) continue;
        for (int k = 0; k < run->n_nodes; k++)
            if (run->nodes[k].exists && str_eq(run->nodes[k].res.provider, p->ops->name))
                vec_push(&its.list, run->nodes[k].res);
        for (size_t k = 0; k < run->others.list.len; k++) {
            const struct resource *o = &run->others.list.items[k];
            if (is_foreign(run, o)) continue;
            if (o->state != RES_GONE && str_eq(o->provider, p->ops->name)) vec_push(&its.list, *o);
        }
        if (its.list.len > 0) r = p->ops->tag(p, &its, tags, GP_ARRAY_LEN(tags), err);
        vec_free(&its.list);
    }
    if (r != 0) return gp_wrap(err, "could not write the deadline to the tags of '%s'", run->stack.name);
    for (int i = 0; i < run->n_nodes; i++) {
        struct run_node *n = &run->nodes[i];
        if (!n->exists || n->res.expires_s == 0) continue;
        n->res.expires_s = run->stack.expires_s;
        engine_note_resource(run->e, &n->res, true);
    }
    return 0;
}

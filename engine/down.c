/* SPDX-License-Identifier: Apache-2.0 */
/* The verb down: destroys everything with the stack's name, also the resources of an earlier stack. Every failure names
 * what may still be billed. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/run/lock.h"
#include "engine/run/look.h"
#include "engine/run/owner.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/stack/adopt.h"
#include "engine/stack/open_known.h"
#include "engine/stack/preview.h"
#include "engine/stack/reconcile.h"
#include "engine/stack/teardown.h"
#include "engine/tidy.h"
#include "engine/trust/trust.h"

/* The journal's resources, for when no provider could be queried. */
static void remembered(struct engine *e, const char *name, struct down_result *ret) {
    struct stack_list all = {0};
    if (journal_stacks(e->journal, &all, NULL) != 0) return;
    for (size_t i = 0; i < all.list.len; i++) {
        const struct stack *s = &all.list.items[i];
        GP_AUTO_RESOURCES struct resource_list known = {0};
        bool mine = e->opts.owner == NULL || str_eq(e->opts.owner, s->owner);
        if (!mine || strcmp(s->name, name) != 0) continue;
        if (journal_resources(e->journal, s->uid, &known, NULL) != 0) continue;
        for (size_t k = 0; k < known.list.len; k++)
            if (known.list.items[k].state != RES_GONE) resource_list_add(&ret->left, &known.list.items[k]);
    }
    stack_list_clear(&all);
}

/* Launches whose outcome is not known: their machines may be billed and have no id here. */
static void unknown_launches(struct engine *e, const char *name, struct str *out) {
    struct stack_list all = {0};
    struct intent_list open = {0};
    if (journal_stacks(e->journal, &all, NULL) != 0) return;
    for (size_t i = 0; i < all.list.len; i++) {
        const struct stack *s = &all.list.items[i];
        bool mine = e->opts.owner == NULL || str_eq(e->opts.owner, s->owner);
        if (mine && strcmp(s->name, name) == 0)
            (void)journal_intents(e->journal, s->uid, 1u << INTENT_OPEN, &open, NULL);
    }
    for (size_t i = 0; i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        const struct provider_ops *ops = provider_find(in->provider);
        if (in->kind == RES_INSTANCE && (ops == NULL || ops->billed))
            str_addf(out, "%sthe launch of nodes %d..%d at %s, whose outcome is not known", out->len ? ", " : "",
                     in->slot_first, in->slot_first + in->slot_count - 1, in->provider);
    }
    intent_list_clear(&open);
    stack_list_clear(&all);
}

/* A failure before or between two lists still names what may be billed: exit 8 then. */
static int blind(struct engine *e, const char *name, struct down_result *ret, int r, struct gp_error *err) {
    GP_AUTO_STR struct str open = {0};
    if (ret->left.list.len == 0) remembered(e, name, ret);
    unknown_launches(e, name, &open);
    bool billed = open.len > 0;
    for (size_t i = 0; i < ret->left.list.len; i++) billed = billed || ret->left.list.items[i].billed;
    if (open.len > 0 && err != NULL && err->code == GP_EBILLED) return gp_wrap(err, "%s", open.s);
    if (!billed || err == NULL || err->code == GP_EBILLED) return r;
    struct gp_error why = *err;
    gp_error_clear(err);
    why.code = GP_EBILLED;
    if (open.len > 0) gp_wrap(&why, "and %s", open.s);
    return teardown_left(name, ret, &why, err);
}

/* Machines of other uids are destroyed first: they may use a group of this stack, which cannot be deleted before them.
 * end_earlier() repeats refused calls and reports them. */
static int end_their_machines(struct run *run) {
    int n = 0;
    for (size_t i = 0; i < run->providers.len; i++) {
        struct provider *p = run->providers.items[i];
        struct resource_list part = {0};
        for (size_t k = 0; k < run->others.list.len; k++) {
            const struct resource *r = &run->others.list.items[k];
            bool machine = r->kind == RES_INSTANCE && r->state != RES_GONE && r->state != RES_STOPPING;
            if (!machine || !str_eq(r->provider, p->ops->name) || str_eq(r->uid, run->stack.uid)) continue;
            if (trust_is_of_another(run, r->uid)) continue;
            vec_push(&part.list, *r); /* borrowed: only the array is freed */
            run_event(run, -1, NODE_ENDING, EVENT_START, "destroy", "%s %s", resource_kind_name(r->kind), r->id);
        }
        if (part.list.len > 0 && p->ops->destroy(p, &part, NULL) == 0) n += (int)part.list.len;
        vec_free(&part.list);
    }
    return n;
}

/* Destroys an earlier stack of this name: its claim is gone, but a late launch may exist. */
static int end_earlier(struct run *run, const char *uid, struct down_result *ret, struct gp_error *err) {
    struct down_result one = {0};
    free(run->stack.uid);
    run->stack.uid = xstrdup(uid);
    run->on_slow = NULL;
    run->named_only = true;       /* its uid may be copied from a stack with another name */
    strv_clear(&run->look.scope); /* that was the other one's claim */
    free(run->look.scope_provider);
    run->look.scope_provider = NULL;
    trust_uid(run, NULL);
    run_event(run, -1, NODE_ENDING, EVENT_WARN, "destroy", "destroying the resources of an earlier stack '%s' (%s) too",
              run->stack.name, uid);
    int r = teardown(run, &one, err);
    ret->destroyed += one.destroyed;
    ret->released += one.released;
    for (size_t i = 0; i < one.left.list.len; i++) resource_list_add(&ret->left, &one.left.list.items[i]);
    down_result_clear(&one);
    return r;
}

/* Machines that this journal launched, and their cloud lists, are the stack's whatever another cloud lists: one that is
 * slow, or means harm, does not keep them billed. The rest waits for all lists. */
static void end_early(struct run *run, struct provider *p, const struct resource_list *seen) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct resource_list part = {0}; /* borrowed */
    struct gp_error why = {0};
    bool may = run->stack.uid != NULL && run_is_locked(run) && !gp_cancelled(&run->e->cancel);
    if (!may || journal_resources(run->e->journal, run->stack.uid, &known, NULL) != 0) return;
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        bool runs = r->kind == RES_INSTANCE && r->state != RES_GONE && r->state != RES_STOPPING, ours = false;
        for (size_t k = 0; runs && k < known.list.len; k++)
            ours = ours || (known.list.items[k].ours == OURS_LAUNCHED && resource_same(&known.list.items[k], r));
        if (!ours || !str_eq(r->uid, run->stack.uid) || !account_has(p, r) || strv_has(&run->early, r->id)) continue;
        strv_add(&run->early, r->id);
        vec_push(&part.list, *r);
        run_event(run, r->slot, NODE_ENDING, EVENT_START, "destroy", "%s %s, while another list is open",
                  resource_kind_name(r->kind), r->id);
    }
    if (part.list.len > 0 && p->ops->destroy(p, &part, &why) != 0)
        run_event(run, -1, NODE_ENDING, EVENT_WARN, "destroy", "%s: trying again once all lists are here", why.msg);
    vec_free(&part.list);
}

static void say_left(struct run *run, size_t n) {
    run_event(run, -1, NODE_ENDING, EVENT_WARN, "destroy",
              "%zu unbilled resource%s not gone yet: run 'gpuprov gc' later", n, n == 1 ? " is" : "s are");
}

/* The result goes into the log too, because the journal forgets the stack. */
static void say_end(struct run *run, const struct down_result *ret, int r, const struct gp_error *err) {
    bool there = run->stack.uid != NULL;
    bool stopped = r == -GP_ECANCELLED;
    if (r != 0 && there && err != NULL)
        event_send(&run->sink, (struct event){.node = -1,
                                              .phase = NODE_ENDING,
                                              .status = stopped ? EVENT_WARN : EVENT_FAIL,
                                              .text = err->msg,
                                              .code = err->code});
    else if (r == 0 && ret->left.list.len > 0) say_left(run, ret->left.list.len);
    else if (r == 0 && ret->destroyed + ret->released > 0) {
        GP_AUTO_STR struct str what = {0};
        if (ret->destroyed > 0)
            str_addf(&what, "%d resource%s destroyed, ", ret->destroyed, ret->destroyed == 1 ? "" : "s");
        if (ret->released > 0) str_addf(&what, "%d host%s released, ", ret->released, ret->released == 1 ? "" : "s");
        run_event(run, -1, NODE_GONE, EVENT_DONE, "", "%snothing is left", what.s);
    }
}

static char *name_of(const struct down_req *req) { return xstrdup(req->spec != NULL ? req->spec->name : req->name); }

/* The spec's name alone does not make it this stack's: two starters may have the same one. */
static int check_spec(struct run *run, const struct down_req *req, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list list = {0};
    struct gp_error unread = {
        0}; /* a journal that cannot be read keeps no machine alive: the providers' lists decide */
    if (req->spec == NULL || req->yes) return 0;
    (void)preview_list(run, &list, &unread);
    GP_AUTO_FREE char *where = preview_other_places(run, &list, req->spec);
    if (where == NULL) return 0;
    if (req->confirm == NULL)
        return gp_fail(err, GP_EUSAGE,
                       "'%s' is at %s, where %s has no offer: it may be the spec of another stack, so nothing was "
                       "destroyed: run 'gpuprov down %s', or add --yes",
                       run->stack.name, where, req->spec->path, run->stack.name);
    GP_AUTO_FREE char *question =
        xasprintf("'%s' is at %s, where %s has no offer. Destroy it?", run->stack.name, where, req->spec->path);
    return req->confirm(req->ctx, question, err);
}

/* Everything found with the stack's name must be of the unit: with its tag, or of a uid that has it. */
static int check_unit(const struct run *run, const struct down_req *req, struct gp_error *err) {
    GP_AUTO_STRV struct strv uids = {0};
    const struct resource *odd = NULL;
    if (req->unit == NULL) return 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < run->n_nodes + (int)run->others.list.len; i++) {
            bool node = i < run->n_nodes;
            const struct resource *r = node ? &run->nodes[i].res : &run->others.list.items[i - run->n_nodes];
            if ((node && !run->nodes[i].exists) || r->state == RES_GONE) continue;
            bool its = str_eq(r->unit, req->unit), other = r->unit[0] != '\0' && !its;
            if (pass == 0 && its) strv_add(&uids, r->uid);
            if (pass == 1 && odd == NULL && (other || (!its && !strv_has(&uids, r->uid)))) odd = r;
        }
    if (odd == NULL) return 0;
    return gp_fail(
        err, GP_EUSAGE,
        "'%s': %s belongs to %s%s%s, so nothing of the stack was destroyed: run 'gpuprov down %s' if it may go",
        run->stack.name, odd->id, odd->unit[0] != '\0' ? "the unit '" : "no unit", odd->unit,
        odd->unit[0] != '\0' ? "'" : "", run->stack.name);
}

/* Another gpuprov may have destroyed the stack and launched it again: that one is not the caller's. */
static int check_uid(const struct run *run, const struct down_req *req, struct gp_error *err) {
    const char *uid = run->stack.uid;
    if (req->uid == NULL || uid == NULL || strcmp(uid, req->uid) == 0) return 0;
    return gp_fail(err, GP_EBUSY,
                   "'%s' was destroyed and launched again by another gpuprov: its uid is %s, not %s, so it is left "
                   "alone: 'gpuprov down %s' destroys it",
                   run->stack.name, uid, req->uid, run->stack.name);
}

/* Hands over whose stack it is, and the basis of what the result states. */
static void take_basis(struct run *run, struct down_result *ret) {
    ret->owner = xstrdup(run->owner);
    coverage_merge(&ret->looked, &run->look.covered);
    ret->unreadable = run->look.unreadable;
    run->look.unreadable = (struct resource_list){0};
}

static int dry_run(struct engine *e, const struct down_req *req, struct down_result *ret, struct gp_error *err) {
    struct run *run = NULL;
    GP_AUTO_FREE char *name = name_of(req);
    e->notifies = false; /* it only looks */
    int r = run_open_ending(e, req->spec, name, &run, err);
    if (r == 0) r = reconcile(run, NULL, err);
    if (r == 0) r = preview_list(run, &ret->would, err);
    if (r == 0 && req->spec != NULL) ret->elsewhere = preview_other_places(run, &ret->would, req->spec);
    if (run != NULL) take_basis(run, ret);
    run_close(run);
    if (r == 0) r = look_gap_error(&ret->looked, name, err);
    return r == 0 ? look_unreadable_error(&ret->unreadable, name, err) : r;
}

static void say_other(struct run *run, const char *uid) {
    run_event(run, -1, NODE_ENDING, EVENT_WARN, "destroy",
              "resources of another stack '%s' (%s) are left alone: 'gpuprov down %s' destroys them", run->stack.name,
              uid, run->stack.name);
}

/* Machines with this stack's name and the uid of another one of this journal: copies, or its own with an edited name.
 * Nobody can tell, so they are neither destroyed nor stated to be gone. */
static int say_anothers(struct run *run, struct down_result *ret, int r, struct gp_error *err) {
    struct gp_error why = {0};
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *o = &run->others.list.items[i];
        if (!resource_is_machine(o) || o->state == RES_GONE || o->state == RES_STOPPING || o->uid[0] == '\0' ||
            str_eq(o->uid, run->stack.uid) || !trust_is_of_another(run, o->uid))
            continue;
        resource_list_add(&ret->left, o);
        if (why.code == GP_OK)
            (void)gp_fail(&why, GP_EBILLED,
                          "'%s': left alone: %s in %s has this name and the uid %s of another stack of this journal: "
                          "check it in the cloud's console",
                          run->stack.name, o->id, o->region, o->uid);
    }
    if (why.code == GP_OK || r != 0) return r;
    if (err != NULL) *err = why;
    return -(int)GP_EBILLED;
}

static int destroy_all(struct engine *e, const struct down_req *req, struct run **ret_run, struct down_result *ret,
                       struct gp_error *err) {
    GP_AUTO_FINDING struct finding found = {0};
    GP_AUTO_FREE char *name = name_of(req);
    int r = run_open_ending(e, req->spec, name, ret_run, err);
    struct run *run = *ret_run;
    if (r == 0) r = run_lock(run, err);
    bool named = (req->spec == NULL || req->yes) && req->unit == NULL && req->uid == NULL; /* no check can refuse it */
    if (r == 0 && named) run->on_slow = end_early;
    if (r == 0) r = adopt_stack(run, &found, err);
    if (r == 0 && (r = check_spec(run, req, err)) != 0) return r;
    if (r == 0 && (r = check_unit(run, req, err)) != 0) return r;
    if (r == 0 && (r = check_uid(run, req, err)) != 0) return r;
    if (r == 0) run_lock_destroys(run);
    if (r == 0) run->on_slow = end_early;
    bool looked = r == 0;
    if (run != NULL) run->takes_late = req->uid == NULL && req->unit == NULL;
    int theirs = r == 0 && run->stack.uid != NULL && req->uid == NULL ? end_their_machines(run) : 0;
    if (r == 0) r = teardown(run, ret, err);
    ret->destroyed += theirs;
    for (size_t i = 0; run != NULL && i < run->early.n; i++) ret->destroyed += !strv_has(&ret->asked, run->early.v[i]);
    for (size_t i = 0; i < found.earlier_uids.n && !gp_cancelled(&e->cancel); i++) {
        struct gp_error why = {0};
        if (req->uid != NULL && strcmp(found.earlier_uids.v[i], req->uid) != 0) {
            say_other(run, found.earlier_uids.v[i]);
            continue;
        }
        if (trust_is_of_another(run, found.earlier_uids.v[i])) {
            run_event(
                run, -1, NODE_ENDING, EVENT_WARN, "destroy",
                "resources with the name '%s' have the uid %s of another stack of this journal: they are destroyed "
                "with that one",
                run->stack.name, found.earlier_uids.v[i]);
            continue;
        }
        int one = end_earlier(run, found.earlier_uids.v[i], ret, &why);
        if (r != 0 || one == 0) continue;
        r = one;
        if (err != NULL) *err = why;
    }
    if (looked && req->uid == NULL) r = say_anothers(run, ret, r, err);
    if (r != 0 && (run == NULL || !run->verdict || r == -GP_EBILLED)) r = blind(e, name, ret, r, err);
    if (run != NULL) say_end(run, ret, r, err);
    return r;
}

int engine_down(struct engine *e, const struct down_req *req, struct down_result *ret, struct gp_error *err) {
    struct run *run = NULL;
    if (req->dry_run) return dry_run(e, req, ret, err);
    int r = destroy_all(e, req, &run, ret, err);
    if (run != NULL) take_basis(run, ret);
    run_close(run);
    if (r == 0) engine_tidy(e);
    return r;
}

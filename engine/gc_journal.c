/* SPDX-License-Identifier: Apache-2.0 */
/* The stacks of the journal that are past their deadline (internal.h). Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/gc/gc_clock.h"
#include "engine/internal.h"
#include "engine/run/lock.h"
#include "engine/run/notify.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/cost.h"
#include "engine/stack/forget.h"
#include "engine/stack/open_known.h"
#include "engine/stack/teardown.h"
#include "engine/trust/trust.h"

/* The stack was read before its lock was held, and an `extend` may have moved its deadline since. */
static int read_deadline_again(struct run *run, struct gp_error *err) {
    struct stack_list all = {0};
    int r = journal_stacks(run->e->journal, &all, err);
    for (size_t i = 0; i < all.list.len; i++)
        if (str_eq(all.list.items[i].uid, run->stack.uid)) run->stack.expires_s = all.list.items[i].expires_s;
    stack_list_clear(&all);
    return r;
}

/* Whether machines of it are kept. Images are for other stacks, and what has its uid and another name is a copy. */
static bool is_kept(const struct resource_list *l, const struct stack *s) {
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        if (resource_is_machine(r) && str_eq(r->uid, s->uid) && str_eq(r->stack, s->name)) return true;
    }
    return false;
}

static void drop(struct resource_list *l, const struct resource *r) {
    size_t n = 0;
    for (size_t i = 0; i < l->list.len; i++) {
        if (resource_same(&l->list.items[i], r)) resource_clear(&l->list.items[i]);
        else l->list.items[n++] = l->list.items[i];
    }
    l->list.len = n;
}

/* What was destroyed after the lists were swept, by its record. */
static void add_ended(const struct resource_list *known, const struct down_result *gone, struct gc_result *ret) {
    for (size_t i = 0; i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (!strv_has(&gone->asked, k->id) || resource_list_has(&gone->left, k) || resource_list_has(&ret->ended, k))
            continue;
        resource_list_add(&ret->ended, k);
        drop(&ret->kept, k);
    }
    for (size_t i = 0; i < gone->left.list.len; i++)
        if (!resource_list_has(&ret->kept, &gone->left.list.items[i]))
            resource_list_add(&ret->kept, &gone->left.list.items[i]);
}

static int end_remembered(struct run *run, struct gc_result *ret, struct gp_error *err) {
    struct down_result gone = {0};
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    if (r != 0) return r;
    run_lock_destroys(run);
    r = teardown(run, &gone, err);
    notify_ended(run, r, err, gone.destroyed);
    add_ended(&known, &gone, ret);
    down_result_clear(&gone);
    return r;
}

/* A stack that was launched elsewhere may be launched again by its owner at any moment. So this journal's deadline
 * destroys nothing of it (each listed machine has its own): it is forgotten when nothing of it is there. */
static int forget_adopted(struct run *run, struct gp_error *err) {
    int r = 0;
    for (int quiet = 0; r == 0 && quiet < 2; quiet++) {
        if (quiet > 0) r = gp_sleep(run_pause_ms(run), &run->e->cancel, err);
        if (quiet > 0 && r == 0) r = adopt_stack(run, NULL, err);
        if (r != 0) return r;
        bool none = run->others.list.len == 0 && run->unproven.list.len == 0 && !run_any_exists(run);
        if (!none || !coverage_whole(&run->look.covered)) return 0;
    }
    return forget_stack(run, err);
}

/* A stack of the journal past its deadline: verifies that it is gone, destroys the rest, and forgets it. launched: this
 * journal launched some of it. */
static int gc_remembered(struct engine *e, const struct gc_clocks *clocks, const struct stack *s, bool launched,
                         struct gc_result *ret, struct gp_error *err) {
    struct run *run = NULL;
    struct engine_opts saved = e->opts;
    e->opts.owner = s->owner;
    int r = run_open_ending(e, NULL, s->name, &run, err);
    if (r == 0) r = run_lock(run, err);
    if (r == 0) r = read_deadline_again(run, err);
    if (r == 0) r = adopt_stack(run, NULL, err);
    /* the deadline is in the cloud's time: this machine's clock may be wrong by hours */
    bool over = false;
    if (r == 0 && str_eq(run->stack.uid, s->uid)) {
        int64_t local_s = clock_wall_s(), skew_s = run_cloud_s(run, run->stack.provider) - local_s;
        over = run->stack.expires_s == 0
                   ? !launched /* adopted, and nothing proved its deadline */
                   : gc_time_of(clocks, run->stack.provider, skew_s, local_s).now_s >= run->stack.expires_s;
    }
    if (over && !launched) r = forget_adopted(run, err);
    else if (over && !is_kept(&ret->kept, s)) r = end_remembered(run, ret, err); /* else it has a later one */
    run_close(run);
    e->opts = saved;
    return r;
}

/* Live stacks that have spent most of what their spec allows. */
static void warn_of_cost(struct engine *e, const char *name) {
    struct run *run = NULL;
    struct gp_error why = {0};
    if (run_open_remembered(e, NULL, name, &run, &why) != 0) return;
    (void)notify_open(run); /* its money and its deadline */
    GP_AUTO_FREE char *near = cost_near_limit(run);
    if (near != NULL) run_event(run, -1, NODE_PLANNED, EVENT_WARN, "cost", "%s", near);
    run_close(run);
}

int gc_journal(struct engine *e, const char *provider, const struct gc_clocks *clocks, struct gc_result *ret,
               struct gp_error *err) {
    struct stack_list all = {0};
    int r = journal_stacks(e->journal, &all, err), first = 0;
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct stack *s = &all.list.items[i];
        bool mine = e->opts.owner == NULL || strcmp(e->opts.owner, s->owner) == 0;
        bool asked = provider == NULL || str_eq(provider, s->provider);
        struct engine_opts saved = e->opts;
        e->opts.owner = s->owner;
        if (mine && asked) warn_of_cost(e, s->name);
        e->opts = saved;
        if (!mine || !asked || clock_wall_s() < s->expires_s) continue;
        struct gp_error why = {0};
        bool launched = false;
        int one = trust_launched_here(e->journal, s->uid, &launched, &why);
        if (launched && s->expires_s == 0) continue; /* hosts: they have none */
        if (one == 0) one = gc_remembered(e, clocks, s, launched, ret, &why);
        if (one != 0 && first == 0) {
            first = one;
            if (err != NULL) *err = why;
        }
    }
    stack_list_clear(&all);
    return r != 0 ? r : first;
}

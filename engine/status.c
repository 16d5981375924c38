/* SPDX-License-Identifier: Apache-2.0 */
/* The verb status: reads only. If a provider cannot be queried, it reports that and shows the journal. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/run/look.h"
#include "engine/run/open_known.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/stack/reconcile.h"
#include "engine/view.h"

/* Fills the run from the journal, if the provider is not queried or does not answer. */
static int from_memory(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    if (r == 0) r = run_nodes_recall(run, err);
    return r == 0 ? reconcile_listing(run, &known, NULL, err) : r;
}

/* Whether the stack may be at a billed provider. Called if the providers could not be queried. */
static bool may_be_billed(const struct run *run) {
    for (size_t i = 0; i < run->providers.len; i++)
        if (run->providers.items[i]->ops->billed) return true;
    const struct look *gap = coverage_gap(&run->look.covered);
    return gap != NULL && gap->billed;
}

static int ask(struct run *run, struct gp_error *err) {
    const struct look *gap = coverage_gap(&run->look.covered);
    if (gap == NULL || gap->region[0] != '\0' || run->stack.uid == NULL) return reconcile(run, NULL, err);
    if (err != NULL) *err = gap->why; /* a provider that has something of it did not open */
    return -(int)gap->why.code;
}

/* Builds one view, from the providers as far as they were read, else from the journal. */
static int one_view(struct run *run, bool refresh, struct stack_view_list *ret, struct gp_error *err) {
    struct gp_error why = {0}, second = {0};
    struct stack_view v = {.remembered = !refresh};
    int r = refresh ? ask(run, &why) : from_memory(run, &why);
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled");
    if (r != 0 && refresh) {
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "status", "shown from the journal only: %s", why.msg);
        v.remembered = true;
        if (from_memory(run, &second) != 0) r = -(int)second.code;
        else second = (struct gp_error){0};
    }
    int shown = second.code == GP_OK && (r == 0 || refresh) ? view_fill(run, &v, &second) : -1;
    if (shown == 0) vec_push(&ret->list, v);
    else stack_view_clear(&v);
    if (r == 0 && shown != 0) why = second;
    if (r == 0 && shown == 0 && refresh) r = look_gap_error(&run->look.covered, run->stack.name, &why);
    if (r == 0 && shown == 0 && refresh) r = look_unreadable_error(&run->look.unreadable, run->stack.name, &why);
    if (r == 0 && shown == 0) return 0;
    if (r != 0 && refresh && why.code != GP_EBILLED && may_be_billed(run)) why.code = GP_EBILLED;
    if (err != NULL) *err = why;
    return -(int)why.code;
}

static int status_one(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                      struct stack_view_list *ret, struct gp_error *err) {
    struct run *run = NULL;
    int r = refresh ? run_open_looking(e, spec, name, &run, err) : run_open_remembered(e, spec, name, &run, err);
    if (r != 0) return r;
    r = one_view(run, refresh, ret, err);
    run_close(run);
    return r;
}

int engine_status(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                  struct stack_view_list *ret, struct gp_error *err) {
    if (name != NULL || spec != NULL) return status_one(e, name, spec, refresh, ret, err);
    struct stack_list all = {0};
    run_say_damaged(e, &e->sink);
    int r = journal_stacks(e->journal, &all, err), first = 0;
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct stack *s = &all.list.items[i];
        if (e->opts.owner != NULL && strcmp(e->opts.owner, s->owner) != 0) continue;
        struct engine_opts saved = e->opts;
        e->opts.owner = s->owner;
        struct gp_error why = {0};
        int one = status_one(e, s->name, NULL, refresh, ret, &why); /* a failure does not hide the other stacks */
        e->opts = saved;
        if (one == 0) continue;
        int code = gp_exit_code(why.code);
        if (first == 0 || gp_exit_worst(code, gp_exit_code((enum gp_code) - first)) == code) {
            first = one;
            if (err != NULL) *err = why;
        }
        if (one == -GP_ECANCELLED) break;
    }
    stack_list_clear(&all);
    return r != 0 ? r : first;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The verb bootstrap: sets up the existing nodes of a stack, or the machines of a hosts file, by a spec. Launches
 * nothing and runs no check. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/internal.h"
#include "engine/proof/barrier.h"
#include "engine/proof/node_run.h"
#include "engine/proof/work.h"
#include "engine/run/notify.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/stack/adopt.h"
#include "engine/stack/claim.h"
#include "engine/stack/open_known.h"
#include "engine/up.h"
#include "providers/ssh/hosts.h"

void bootstrapped_clear(struct bootstrapped *b) {
    for (size_t i = 0; i < b->nodes.len; i++) {
        strv_clear(&b->nodes.items[i].steps);
        free(b->nodes.items[i].error);
    }
    vec_free(&b->nodes);
    free(b->stack);
    *b = (struct bootstrapped){0};
}

/* A node's record before the work on it. */
struct before {
    enum node_phase phase;
    char *note;
    char boot_id[64];
};

static struct before *remember(const struct run *run) {
    struct before *was = xcalloc((size_t)run->n_nodes + 1, sizeof *was);
    for (int i = 0; i < run->n_nodes; i++) {
        const struct node_record *rec = &run->nodes[i].rec;
        was[i].phase = rec->phase;
        was[i].note = rec->note != NULL ? xstrdup(rec->note) : NULL;
        str_put(was[i].boot_id, sizeof was[i].boot_id, rec->boot_id != NULL ? rec->boot_id : "");
    }
    return was;
}

/* A node that nothing was done to keeps its phase, so that it stays validated. Others wait for their validation. */
static int settle(struct run_node *n, const struct before *was, bool dry_run, struct gp_error *err) {
    if (n->skip) return 0;
    bool same = n->rc == 0 && n->boot.applied == 0 && str_eq(was->boot_id, n->rec.boot_id);
    if (dry_run || same) {
        n->rec.phase = was->phase;
        resource_set(&n->rec.note, was->note != NULL ? was->note : "");
    } else if (n->rc == 0) {
        n->rec.phase = NODE_WAITING;
    } else {
        return 0; /* end_node has saved it */
    }
    return run_node_save(n, err);
}

static void collect(struct run *run, struct bootstrapped *ret) {
    ret->stack = xstrdup(run->stack.name);
    for (int i = 0; i < run->n_nodes && i < run->spec->nodes; i++) {
        struct run_node *n = &run->nodes[i];
        struct bootstrapped_node one = {.slot = i, .steps = n->boot.steps};
        n->boot.steps = (struct strv){0};
        if (n->rc != 0) one.error = xstrdup(n->err.msg);
        ret->changes |= one.steps.n > 0;
        vec_push(&ret->nodes, one);
    }
}

static int work(struct run *run, const struct bootstrap_opts *opts, struct bootstrapped *ret, struct gp_error *err) {
    struct bootstrap_pick pick = {.only = &opts->only, .from = opts->from, .dry_run = opts->dry_run};
    run->pick = &pick;
    struct before *was = remember(run);
    int n = run->n_nodes;
    work_begin(run);
    int r = work_on_nodes(run, node_run_bootstrap, err);
    struct gp_error kept = {0};
    int k = 0;
    for (int i = 0; i < n; i++) {
        int one = settle(&run->nodes[i], &was[i], opts->dry_run, &kept);
        if (k == 0) k = one;
        free(was[i].note);
    }
    free(was);
    if (r == 0) r = barrier_failures(run, err);
    collect(run, ret);
    run->pick = NULL;
    if (r == 0 && k != 0 && err != NULL) *err = kept;
    return r != 0 ? r : k;
}

static int names_known(const struct spec *spec, const struct bootstrap_opts *opts, struct gp_error *err) {
    int r = opts->from != NULL ? bootstrap_step_known(spec, opts->from, err) : 0;
    for (size_t i = 0; r == 0 && i < opts->only.n; i++) r = bootstrap_step_known(spec, opts->only.v[i], err);
    return r;
}

/* A change that a bootstrap does not apply: NULL if there is none. */
static const struct spec_change *needs_up(const struct run *run) {
    for (size_t i = 0; i < run->changes.list.len; i++) {
        const struct spec_change *c = &run->changes.list.items[i];
        if (c->effect != SPEC_REPEATED && c->effect != SPEC_LATER) return c;
    }
    return NULL;
}

/* The nodes were validated for the earlier spec. */
static int validate_again(struct run *run, struct gp_error *err) {
    int r = 0;
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        struct run_node *n = &run->nodes[i];
        if (!n->exists || n->rec.phase != NODE_READY) continue;
        n->rec.phase = NODE_WAITING;
        r = run_node_save(n, err);
    }
    return r;
}

/* All nodes are set up by an edited spec: from now on it is the stack's. */
static int remember_spec(struct run *run, const struct bootstrap_opts *opts, struct gp_error *err) {
    const char *name = run->stack.name;
    bool whole = !opts->dry_run && opts->from == NULL && opts->only.n == 0;
    if (!whole || run->changes.list.len == 0) return 0;
    const struct spec_change *left = needs_up(run);
    if (left != NULL) {
        run_event(run, -1, NODE_BOOTSTRAPPING, EVENT_WARN, "spec",
                  "'%s' keeps its earlier spec, because only 'gpuprov up' applies the change of '%s'", name, left->key);
        return 0;
    }
    if (notify_has_new_command(run)) { /* this verb shows no plan */
        run_event(run, -1, NODE_BOOTSTRAPPING, EVENT_WARN, "spec",
                  "'%s' keeps its earlier spec, because only 'gpuprov up' shows and approves a command of 'notify'",
                  name);
        return 0;
    }
    bool ready = claim_keeps_ready(run);
    int r = ready ? 0 : validate_again(run, err);
    if (r == 0) r = claim_remember_spec(run, err);
    if (r == 0 && !ready)
        run_event(run, -1, NODE_BOOTSTRAPPING, EVENT_INFO, "spec",
                  "'%s' has this spec now: 'gpuprov validate %s' validates its nodes for it", name, name);
    return r;
}

int engine_bootstrap(struct engine *e, const char *name, const struct spec *spec, const struct bootstrap_opts *opts,
                     struct bootstrapped *ret, struct gp_error *err) {
    struct run *run = NULL;
    int r = spec != NULL ? names_known(spec, opts, err) : 0;
    if (r == 0) r = run_open_known(e, spec, name, &run, err);
    if (r == 0) r = adopt_existing(run, err);
    if (r == 0) r = names_known(run->spec, opts, err);
    if (r == 0 && spec != NULL) r = claim_same_machines(run, err);
    if (r == 0) r = run_read_secrets(run, err);
    if (r == 0) r = work(run, opts, ret, err);
    if (r == 0) r = remember_spec(run, opts, err);
    if (r != 0 && run != NULL && run->stack.uid != NULL) run_event_end(run, err);
    run_close(run);
    return r;
}

/* The spec's nodes are the machines of the file, wherever else it would launch some. */
static int use_hosts(const struct engine *e, struct spec *spec, const char *path, struct gp_error *err) {
    GP_AUTO_SSH_HOSTS struct ssh_host_list hosts = {0};
    int r = ssh_hosts_load(path, &e->cancel, &hosts, err);
    if (r == 0 && hosts.list.len == 0) r = gp_fail(err, GP_EUSAGE, "'%s' names no host", path);
    if (r != 0) return r;
    GP_AUTO_FREE char *absolute = ssh_hosts_absolute(path);
    spec_only_hosts(spec, absolute, (int)hosts.list.len);
    return 0;
}

int engine_bootstrap_hosts(struct engine *e, const char *hosts, struct spec *spec, const struct bootstrap_opts *opts,
                           struct bootstrapped *ret, struct gp_error *err) {
    struct run *run = NULL;
    struct up_result up = {0};
    int r = names_known(spec, opts, err);
    if (r == 0) r = use_hosts(e, spec, hosts, err);
    if (r == 0) r = engine_scratch_folder(e, err);
    if (r == 0) r = run_open(e, spec, spec->name, &run, err);
    if (r == 0) r = up_get_machines(run, &up, err);
    if (r == 0) r = work(run, opts, ret, err);
    if (r != 0 && run != NULL && run->stack.uid != NULL) run_event_end(run, err);
    up_result_clear(&up);
    run_close(run);
    return r;
}

int engine_step_script(const struct spec *spec, const char *step, const char *os, struct str *ret,
                       struct gp_error *err) {
    return bootstrap_print_script(spec, step, os, ret, err);
}

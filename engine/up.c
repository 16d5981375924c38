/* SPDX-License-Identifier: Apache-2.0 */
/* The verb up: offers, launch of the gang, work on each node, gang checks, verdict. Resumes an earlier run where it
 * stopped. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/up.h"

#include "engine/extend.h"
#include "engine/plan.h"
#include "engine/proof/barrier.h"
#include "engine/proof/kept_report.h"
#include "engine/proof/node_run.h"
#include "engine/proof/run_baseline.h"
#include "engine/proof/self_end.h"
#include "engine/proof/work.h"
#include "engine/run/login_key.h"
#include "engine/run/notify.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/run/stack_dir.h"
#include "engine/stack/adopt.h"
#include "engine/stack/claim.h"
#include "engine/stack/extras.h"
#include "engine/stack/interrupt.h"
#include "engine/stack/launch.h"
#include "engine/stack/meanwhile.h"
#include "engine/stack/reconcile.h"
#include "engine/stack/settle.h"
#include "engine/trust/proof_key.h"
#include "engine/trust/trust.h"
#include "engine/view.h"

static bool any_missing(const struct run *run) {
    for (int i = 0; i < run->spec->nodes; i++)
        if (i >= run->n_nodes || !run->nodes[i].exists) return true;
    return false;
}

static int find_offers(struct run *run, struct gp_error *err) {
    if (!any_missing(run) || run->offers.list.len > 0) return 0;
    return plan_offers(run, &run->offers, err);
}

static int launch(struct run *run, struct gp_error *err) {
    run_nodes_alloc(run, run->spec->nodes);
    if (!any_missing(run)) return 0;
    int r = find_offers(run, err); /* settling or destroying machines may have changed which nodes are missing */
    return r != 0 ? r : launch_missing(run, &run->offers, err);
}

static bool all_ready(const struct run *run, const struct finding *found) {
    if (finding_has_extras(found) || run->n_nodes < run->spec->nodes) return false;
    for (int i = 0; i < run->n_nodes; i++) {
        const struct run_node *n = &run->nodes[i];
        bool wanted = i < run->spec->nodes;
        if (n->exists != wanted || (wanted && n->rec.phase != NODE_READY)) return false;
    }
    return true;
}

/* Connects to each READY node, because one that was rebooted or does not answer must be validated again. */
static int nothing_to_do(struct run *run, struct finding *found, struct up_result *ret, struct gp_error *err) {
    if (!all_ready(run, found) || kept_report_read(run->e, run->stack.uid, &ret->report, NULL) != 0) return 0;
    if (!kept_report_proves(run, &ret->report)) { /* records and report are of different runs: both are ignored */
        report_clear(&ret->report);
        return 0;
    }
    int r = login_key_get(run, false, err);
    if (r == 0) r = work_look_again(run, &ret->nothing_to_do, err);
    if (ret->nothing_to_do) return r == 0 ? work_tag_host_keys(run, err) : r; /* a tag that was changed by hand */
    report_clear(&ret->report);
    return r == 0 ? adopt_stack(run, found, err) : r; /* a machine may have terminated meanwhile */
}

/* Where this machine's own list decides, nothing has tags: no agent is prompted for a signature. */
static bool writes_proofs(const struct run *run) {
    for (size_t i = 0; i < run->providers.len; i++)
        if (!run->providers.items[i]->ops->own_list) return true;
    return false;
}

/* After a launch that was refused everywhere the claim is removed, so that it blocks nobody. */
static bool was_refused(int r) {
    return r == -GP_ECAPACITY || r == -GP_EQUOTA || r == -GP_EMONEY || r == -GP_EAUTH || r == -GP_EUSAGE;
}

/* Shows the caller what this run will do. Offers are found before the claim, so that a spec without offers leaves
 * nothing behind. */
static int plan_and_approve(struct run *run, const struct finding *found, int *ret_approval, struct gp_error *err) {
    struct plan plan = {0};
    int r = plan_make(run, found, &plan, err);
    if (r != 0) return r;
    if (run->e->approve != NULL) r = run->e->approve(run->e->approve_ctx, &plan, err);
    *ret_approval = r == 0 ? 1 : -1;
    plan_clear(&plan);
    return r;
}

int up_get_machines(struct run *run, struct up_result *ret, struct gp_error *err) {
    GP_AUTO_FINDING struct finding found = {0};
    int r = engine_preflight(run->e, run->spec, &run->validation.plan, err);
    if (r == 0) r = run_baseline_open(run->e, run->spec, &run->validation.baseline, err);
    if (r == 0) r = run_read_secrets(run, err);
    if (r == 0) r = run_open_offers(run, err);
    if (r == 0) r = meanwhile_lock(run, err);
    if (r == 0) r = adopt_stack(run, &found, err);
    if (r == 0) r = trust_may_launch(run, err);
    if (r == 0) r = claim_may_go_on(run, err);
    if (r == 0) r = plan_and_approve(run, &found, &ret->approval, err);
    if (r == 0) r = stack_dir_forget_job_end(run->e, run->stack.uid, err);
    if (r == 0) r = claim_retire_expired(run, &found, err);
    if (r == 0) r = deadline_move_nodes(run, err);
    if (r == 0) r = claim_take(run, err);
    if (r == 0) r = claim_remember(run, err);
    ret->deadline_moved = r == 0 && run->moved_expires_s != 0;
    if (r == 0) r = nothing_to_do(run, &found, ret, err);
    if (r != 0 || ret->nothing_to_do) return r;
    r = login_key_get(run, !run_any_exists(run), err);
    if (r == 0 && writes_proofs(run)) r = run_proof_key(run, true, err);
    if (r == 0) r = settle_launches(run, &found, err);
    if (r == 0) r = extras_end(run, &found, err);
    if (r == 0) r = launch(run, err);
    if (was_refused(r)) claim_take_back(run);
    return r;
}

/* Everything between the spec and READY, in order. */
static int make_ready(struct run *run, struct up_result *ret, struct gp_error *err) {
    int r = up_get_machines(run, ret, err);
    if (r != 0 || ret->nothing_to_do) return r;
    work_begin(run);
    ret->report.started_s = clock_wall_s();
    r = self_end_prepare(run, err);
    if (r == 0) r = work_on_nodes(run, node_run_up, err);
    if (r == 0) r = work_tag_host_keys(run, err);
    if (r == 0) r = self_end_confirm(run, err);
    if (r == 0) r = barrier_run(run, &ret->report, err);
    return r;
}

/* Reports the existing nodes after a failure or Ctrl-C. Machines without a stack are not ours to destroy; another `up`
 * cannot do what the spec or the deadline forbids. */
static void say_what_is_there(struct run *run, int approval, const struct gp_error *why) {
    int there = 0;
    /* a plan that was refused is about nodes that may stay; the caller may destroy them next */
    if (run->e->opts.scratch || approval < 0 || (approval > 0 && run->e->destroys)) return;
    bool over = run->stack.expires_s > 0 && run_cloud_s(run, run->stack.provider) >= run->stack.expires_s;
    for (int i = 0; i < run->n_nodes; i++) there += run->nodes[i].exists && !run->nodes[i].ended;
    if (there > 0)
        run_event(run, -1, why->code == GP_ECANCELLED ? NODE_PLANNED : NODE_FAILED, EVENT_WARN, "",
                  "%d node%s of '%s' %s: %s'gpuprov down %s' destroys %s", there, there == 1 ? "" : "s",
                  run->stack.name,
                  over         ? "may still exist"
                  : there == 1 ? "exists"
                               : "exist",
                  why->code == GP_EUSAGE || over ? "" : "'gpuprov up' continues, ", run->stack.name,
                  there == 1 ? "it" : "them");
}

int engine_up(struct engine *e, const struct spec *spec, struct up_result *ret, struct gp_error *err) {
    struct run *run = NULL;
    int r = run_open(e, spec, spec->name, &run, err);
    if (r != 0) return r;
    r = make_ready(run, ret, err);
    if (r != 0 && gp_cancelled(&e->cancel)) r = interrupt_settle(run, r, err);
    if (r != 0) {
        run_event_end(run, err);
        say_what_is_there(run, ret->approval, err);
    }
    if (r == 0 && !ret->nothing_to_do) notify_ready(run);
    coverage_merge(&ret->looked, &run->look.covered);
    if (r == 0 && ret->nothing_to_do)
        r = look_gap_error(&run->look.covered, "every node that was looked at is ready", err);
    struct gp_error second = {0};
    int v = run->stack.uid != NULL ? view_fill(run, &ret->view, &second) : 0;
    if (v != 0 && r == 0) {
        *err = second;
        r = v;
    }
    run_close(run);
    return r;
}

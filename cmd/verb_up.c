/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov up [SPEC|PLAN|DIR]: shows the plan, asks on a terminal, launches, bootstraps and validates the nodes; resumes
 * an earlier run. Prints the short report, then the table of nodes. */
#include "base/gp_base.h"

#include "cmd/ask/approval.h"
#include "show/reports.h"
#include "show/up_show.h"
#include "unit/unit.h"

#include "engine/plan_file.h"

struct opts {
    bool yes, accept_new_host_key, even_if_changed, prune;
    int64_t lock_timeout_ms;
    struct report_opts reports;
};
static const struct opt options[] = {YES_ROW(struct opts, yes),
                                     {.name = "accept-new-host-key",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, accept_new_host_key),
                                      .help = "ssh: accept and store the key of a host that is in no known_hosts file"},
                                     {.name = "even-if-changed",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, even_if_changed),
                                      .help = "launch also if another gpuprov destroyed or changed it meanwhile"},
                                     {.name = "prune",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, prune),
                                      .help = "DIR: first destroy stacks of its unit that are no longer in it"},
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     REPORT_ROWS(struct opts, reports),
                                     {0}};

/* A run of a spec, or of a plan file. */
struct up_work {
    struct approval approval;
    struct plan_file *file; /* NULL: a spec was given */
    struct plan_moves moves;
    bool begun; /* the plan file is noted as applied */
};

/* The plan of now must be that of the file. */
static int compare(void *ctx, const struct plan *plan, struct gp_error *err) {
    struct up_work *a = ctx;
    plan_file_moves(a->file, plan, &a->moves);
    for (size_t i = 0; i < a->moves.list.len && !a->approval.inv->common->json; i++)
        fprintf(stderr, "moved: %s: planned %s, now %s\n", a->moves.list.items[i].field, a->moves.list.items[i].planned,
                a->moves.list.items[i].now);
    int r = plan_moves_error(a->file, &a->moves, err);
    if (r != 0) return r;
    r = plan_file_begin(a->file, a->approval.work->e->state_dir, err);
    a->begun = r == 0;
    a->approval.work->e->notifies = a->begun;
    return r;
}

static bool may_use(void *ctx, const struct offer *offer) {
    const struct up_work *a = ctx;
    return plan_file_may_use(a->file, offer);
}

static void show(struct invocation *inv, struct up_result *res, const struct up_work *a, const struct gp_error *err) {
    if (!inv->common->json) {
        up_show(res, err);
        return;
    }
    json_t *j = up_json(res, a->approval.plan), *moved = json_array();
    for (size_t i = 0; i < a->moves.list.len; i++) {
        const struct plan_move *m = &a->moves.list.items[i];
        json_array_append_new(moved, json_pack("{s:o, s:o, s:o}", "field", json_any_text(m->field), "planned",
                                               json_any_text(m->planned), "now", json_any_text(m->now)));
    }
    if (a->file != NULL) json_object_set(j, "moved", moved);
    json_decref(moved);
    if (err->code != GP_OK) result_error(inv, j, err);
    print_json(j);
}

/* A spec, or a plan file with its spec. */
static int begin(struct invocation *inv, struct app_work *w, struct plan_file *f, struct gp_error *err) {
    const char *arg = inv->n_args > 0 ? inv->args[0] : NULL;
    if (arg == NULL || strcmp(arg, "-") == 0 || !plan_file_is(arg)) {
        int one = app_begin(inv, true, w, err);
        return one == 0 ? unit_of_spec(arg != NULL ? arg : w->spec->path, &f->unit, err) : one;
    }
    int r = plan_file_read(arg, f, err);
    if (r != 0) return r;
    w->spec = f->spec; /* borrowed: run() takes it back */
    w->name = w->spec->name;
    r = app_engine(inv, &w->e, err);
    return r == 0 ? app_progress(inv, w->e, w->name, w->spec->nodes, &w->p, err) : r;
}

/* Nothing exists, and nothing can be under way: the plan may be applied again. */
static bool did_nothing(const struct up_result *res, const struct gp_error *err) {
    bool refused = err->code == GP_ECAPACITY || err->code == GP_EQUOTA || err->code == GP_EMONEY ||
                   err->code == GP_EAUTH || err->code == GP_EUSAGE;
    for (size_t i = 0; i < res->view.nodes.len; i++)
        if (res->view.nodes.items[i].id[0] != '\0') return false;
    return refused && res->view.unknown.list.len == 0;
}

static int up_folder(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const struct unit_up_opts unit = {.yes = o->yes, .prune = o->prune};
    if (o->reports.files.n > 0 || o->reports.certificate != NULL)
        return gp_fail(err, GP_EUSAGE,
                       "up: --report and --certificate take one spec: 'gpuprov report STACK' writes them afterwards");
    return unit_up(inv, inv->args[0], &unit, err);
}

/* The result of a run that a plan file began, or that it refused before it opened anything. */
static int up_work(struct invocation *inv, struct app_work *w, struct plan_file *f, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct up_result res = {0};
    bool planned = f->plan != NULL; /* what the file has was approved when it was written */
    struct up_work a = {.approval = {.inv = inv, .work = w, .yes = o->yes || planned}, .file = planned ? f : NULL};
    if (planned) a.approval.check = compare;
    if (planned) w->e->notifies = false; /* a plan that is refused runs no command and contacts no receiver */
    a.approval.check_ctx = &a;
    int r = report_opts_check(&o->reports, w->spec->nodes, err);
    if (r != 0) return r;
    if (a.file != NULL) plan_file_spec_moves(f, &a.moves);
    w->e->opts.unit = f->unit;
    approval_hold(&a.approval);
    w->e->approve = approval_ask;
    w->e->approve_ctx = &a.approval;
    w->e->may_use = a.file != NULL ? may_use : NULL;
    r = engine_up(w->e, w->spec, &res, err);
    w->e->approve = NULL;
    w->e->may_use = NULL;
    w->e->opts.unit = NULL;
    if (w->p != NULL) app_progress_end(w->e, &w->p);
    for (size_t i = 0; i < f->left_out.n && !inv->common->json; i++)
        fprintf(stderr, "left out: %s\n", f->left_out.v[i]);
    if (a.begun && r != 0 && did_nothing(&res, err)) plan_file_undo(f, w->e->state_dir);
    show(inv, &res, &a, err);
    json_decref(a.approval.plan);
    plan_moves_clear(&a.moves);
    if (!gp_cancelled(&w->e->cancel)) r = report_opts_after(inv, &o->reports, &res.report, r, err);
    up_result_clear(&res);
    return r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    inv->app->engine_opts.even_if_changed = o->even_if_changed;
    app_lock_timeout(inv, o->lock_timeout_ms);
    if (inv->n_args > 0 && unit_is_folder(inv->args[0])) return up_folder(inv, err);
    if (o->prune) return gp_fail(err, GP_EUSAGE, "up: --prune takes a folder of specs");
    GP_AUTO_WORK struct app_work w = {0};
    GP_AUTO_PLAN_FILE struct plan_file f = {0};
    int r = begin(inv, &w, &f, err);
    if (r == 0) r = up_work(inv, &w, &f, err);
    if (f.plan != NULL) w.spec = NULL;
    return r;
}

const struct verb verb_up = {
    .name = "up",
    .argspec = "[SPEC|PLAN|DIR]",
    .help = "launches, bootstraps and validates the nodes; resumes an earlier run",
    .details = VERB_SPEC_DETAILS VERB_FOLDER_DETAILS
    "  PLAN is a file of 'gpuprov plan -o': it is done exactly, or refused if anything moved since.\n"
    "  It prints the plan first, with the price and the worst case until the deadline. On a terminal it\n"
    "  requests a confirmation before it changes anything; --yes skips that, and --json needs it there.\n"
    "  Without a terminal it requests none.\n"
    "  A second 'up' of a ready stack changes nothing. Ctrl-C once stops launching and lists the\n"
    "  existing nodes; 'gpuprov down' destroys them, 'gpuprov up' continues with them.\n",
    .examples = "  gpuprov up gpuprov.yaml\n"
                "  gpuprov up --report html=report.html --certificate certs gpuprov.yaml\n"
                "  gpuprov up llm.plan                      # what 'gpuprov plan -o llm.plan' showed\n"
                "  gpuprov up --prune specs/                # every spec of a folder\n"
                "  gpuprov up --json --quiet gpuprov.yaml   # for scripts: one JSON object on stdout\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_NOTIFIES | VERB_PLANS,
};

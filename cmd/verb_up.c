/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov up [SPEC]: shows the plan, asks on a terminal, launches, bootstraps and validates the nodes; resumes an
 * earlier run. Prints the short report, then the table of nodes. */
#include "base/gp_base.h"

#include "confirm.h"
#include "show/plan_show.h"
#include "show/reports.h"

#include <unistd.h>

struct opts {
    bool yes, accept_new_host_key, even_if_changed;
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
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     REPORT_ROWS(struct opts, reports),
                                     {0}};

/* The report above has the reasons. */
static void cut_reasons(struct stack_view *v) {
    for (size_t i = 0; i < v->nodes.len; i++) {
        struct node_view *n = &v->nodes.items[i];
        if (n->phase == NODE_FAILED && n->verdict != NULL && str_starts(n->verdict, "failed:"))
            n->verdict[strlen("failed")] = '\0';
    }
}

/* The plan that engine_up shows, and where progress is. */
struct approval {
    struct invocation *inv;
    struct app_work *work;
    json_t *plan; /* for the result of --json */
};

/* Shows the plan, and asks if a person can answer. The live area would be drawn over both. */
static int approve(void *ctx, const struct plan *plan, struct gp_error *err) {
    struct approval *a = ctx;
    struct invocation *inv = a->inv;
    const struct opts *o = inv->opts;
    const struct spec *spec = a->work->spec;
    bool ask = plan->changes && !o->yes && confirm_can_ask(inv);
    if (inv->common->json) a->plan = plan_json(spec, plan);
    if (inv->common->json && plan->changes && !o->yes && isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1)
        return gp_fail(err, GP_EUSAGE,
                       "--json requests no confirmation on a terminal: add --yes, or run 'gpuprov plan' first");
    if (inv->common->json || !plan->changes || (inv->common->quiet && !ask)) return 0;
    app_progress_end(a->work->e, &a->work->p);
    plan_show(spec, plan, stderr);
    int r = 0;
    if (ask) {
        GP_AUTO_FREE char *question = xasprintf("Do this for '%s'?", spec->name);
        r = confirm_ask(a->work->e, question, err);
    }
    /* without approval there is no progress to show */
    return r == 0 ? app_progress(inv, a->work->e, spec->name, spec->nodes, &a->work->p, err) : r;
}

static void show(struct invocation *inv, struct up_result *res, json_t *plan, const struct gp_error *err) {
    bool has_view = res->view.stack.name != NULL;
    if (inv->common->json) {
        json_t *j = json_object();
        json_object_set_new(j, "stack", has_view ? stack_view_json(&res->view) : json_null());
        bool has_report = res->report.nodes.len > 0;
        json_object_set_new(j, "report", has_report ? report_to_json(&res->report) : json_null());
        json_object_set_new(j, "nothing_to_do", json_boolean(res->nothing_to_do));
        json_object_set_new(j, "looked", looked_json(&res->looked));
        json_object_set(j, "plan", plan != NULL ? plan : json_null());
        if (err->code != GP_OK) result_error(inv, j, err);
        print_json(j);
        return;
    }
    /* A run that a signal cut short gives no verdict on a node. */
    bool reported = res->report.nodes.len > 0 && !res->nothing_to_do && err->code != GP_ECANCELLED;
    if (reported) {
        GP_AUTO_STR struct str text = {0};
        const struct report_style style = output_style(stdout);
        report_brief(&res->report, &style, &text);
        fputs(text.s, stdout);
        putchar('\n');
    }
    if (reported) cut_reasons(&res->view);
    if (res->nothing_to_do)
        puts(res->deadline_moved ? "the deadline was moved: every node is ready already"
                                 : "nothing to do: every node is ready already");
    if (res->nothing_to_do) show_looked(&res->looked, stdout);
    if (has_view) show_stack(&res->view, stdout);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    inv->app->engine_opts.even_if_changed = o->even_if_changed;
    app_lock_timeout(inv, o->lock_timeout_ms);
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, true, &w, err);
    if (r == 0) r = report_opts_check(&o->reports, w.spec->nodes, err);
    if (r != 0) return r;
    struct up_result res = {0};
    struct approval a = {.inv = inv, .work = &w};
    w.e->approve = approve;
    w.e->approve_ctx = &a;
    r = engine_up(w.e, w.spec, &res, err);
    w.e->approve = NULL;
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    show(inv, &res, a.plan, err);
    json_decref(a.plan);
    if (!gp_cancelled(&w.e->cancel)) r = report_opts_after(inv, &o->reports, &res.report, r, err);
    up_result_clear(&res);
    return r;
}

const struct verb verb_up = {
    .name = "up",
    .argspec = "[SPEC]",
    .help = "launches, bootstraps and validates the nodes; resumes an earlier run",
    .details = VERB_SPEC_DETAILS
    "  It prints the plan first, with the price and the worst case until the deadline. On a terminal it\n"
    "  requests a confirmation before it changes anything; --yes skips that, and --json needs it there.\n"
    "  Without a terminal it requests none.\n"
    "  A second 'up' of a ready stack changes nothing. Ctrl-C once stops launching and lists the\n"
    "  existing nodes; 'gpuprov down' destroys them, 'gpuprov up' continues with them.\n",
    .examples = "  gpuprov up gpuprov.yaml\n"
                "  gpuprov up --report html=report.html --certificate certs gpuprov.yaml\n"
                "  gpuprov up --json --quiet gpuprov.yaml   # for scripts: one JSON object on stdout\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};

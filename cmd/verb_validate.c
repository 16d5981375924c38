/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov validate: runs the checks on the nodes of a stack, on the hosts of a file, or on this machine. Exits 7 if
 * a node is not ready. With --node-check it prints one line and exits with the codes that schedulers read. */
#include "base/gp_base.h"

#include "app.h"
#include "base/json.h"
#include "engine/certificate/kubernetes.h"
#include "show/reports.h"

enum { NODE_CHECK_MS = 30000 };

struct opts {
    bool local, node_check, strict, all, accept_new_host_key;
    bool calibrate, kubernetes;
    const char *hosts, *gpu, *baseline;
    int64_t time_ms, lock_timeout_ms;
    struct report_opts reports;
};
static const struct opt options[] = {{.name = "local",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, local),
                                      .help = "this machine, without a stack and without SSH"},
                                     {.name = "hosts",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, hosts),
                                      .arg = "FILE",
                                      .help = "the machines of a hosts file, without a stack"},
                                     {.name = "node-check",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, node_check),
                                      .help = "this machine, for schedulers: one line; exit 0, 1, 2 or 3"},
                                     {.name = "kubernetes",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, kubernetes),
                                      .help = "with --node-check, in a pod: set the condition of node $NODE_NAME"},
                                     {.name = "gpu",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, gpu),
                                      .arg = "MODEL:N",
                                      .help = "required GPUs of each machine (default: the GPUs found)"},
                                     {.name = "time",
                                      .type = OPT_DURATION,
                                      .offset = offsetof(struct opts, time_ms),
                                      .arg = "TIME",
                                      .min = 1000,
                                      .help = "time for the checks (default 5m; --node-check 30s)"},
                                     {.name = "all",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, all),
                                      .help = "run every check of a node, also after one has failed"},
                                     {.name = "calibrate",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, calibrate),
                                      .help = "write the rates of this run as your fleet's baseline if it passes"},
                                     {.name = "baseline",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, baseline),
                                      .arg = "FILE",
                                      .help = "baseline to compare with or to write (default: the spec's)"},
                                     {.name = "strict",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, strict),
                                      .help = "treat degraded as a failure"},
                                     {.name = "accept-new-host-key",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, accept_new_host_key),
                                      .help = "--hosts: accept and store keys that are in no known_hosts file"},
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     REPORT_ROWS(struct opts, reports),
                                     {0}};

static bool is_bare(const struct opts *o) { return o->local || o->node_check || o->hosts != NULL; }

static int check_opts(const struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    int places = inv->n_args + o->local + o->node_check + (o->hosts != NULL);
    if (places != 1)
        return gp_fail(err, GP_EUSAGE, "validate takes one of STACK, SPEC, --hosts FILE, --local and --node-check");
    if (!is_bare(o) && (o->gpu != NULL || o->time_ms > 0 || o->strict))
        return gp_fail(err, GP_EUSAGE,
                       "--gpu, --time and --strict are only for machines without a stack; set them in the "
                       "stack's spec");
    if (is_bare(o) && o->calibrate && o->baseline == NULL)
        return gp_fail(err, GP_EUSAGE, "--calibrate without a stack requires --baseline FILE");
    if (o->node_check && o->calibrate)
        return gp_fail(err, GP_EUSAGE, "--calibrate requires --local, --hosts or a stack, not --node-check");
    const char *node = getenv("NODE_NAME");
    if (o->kubernetes && (!o->node_check || node == NULL || node[0] == '\0'))
        return gp_fail(err, GP_EUSAGE,
                       "--kubernetes requires --node-check, and NODE_NAME in the environment "
                       "(fieldRef: spec.nodeName)");
    return report_opts_check(&o->reports, 0, err);
}

static void show(struct invocation *inv, const struct report *report, const struct gp_error *err) {
    if (inv->common->json) {
        json_t *j = report_to_json(report);
        if (err->code != GP_OK) result_error(inv, j, err);
        print_json(j);
        return;
    }
    GP_AUTO_STR struct str text = {0};
    const struct report_style style = output_style(stdout);
    report_text(report, &style, &text);
    fputs(text.s, stdout);
}

/* If the condition cannot be written, a pass becomes unknown, so that the pod's Job does not succeed. */
static void tell_kubernetes(struct invocation *inv, struct engine *e, const struct report *report) {
    struct gp_error why = {0};
    enum node_check verdict = (enum node_check)inv->exit_code;
    if (kubernetes_condition(getenv("NODE_NAME"), report, verdict, &e->cancel, &why) == 0) return;
    fprintf(stderr, "gpuprov: %s\n", why.msg);
    if (verdict <= NODE_CHECK_DEGRADED) inv->exit_code = NODE_CHECK_UNKNOWN;
}

/* The exit code is the verdict. Without a verdict it is 3, and the line has the reason. */
static int node_check(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct engine *e = NULL;
    struct report report = {0};
    struct gp_error why = {0};
    struct bare_req req = {.gpu = o->gpu, .time_ms = o->time_ms > 0 ? o->time_ms : NODE_CHECK_MS, .strict = o->strict};
    int r = app_engine(inv, &e, err);
    if (r != 0) return r;
    e->sink = (struct event_sink){0};
    e->baseline = o->baseline;
    r = engine_validate_local(e, &req, &report, &why);
    inv->exit_code = r != 0 ? NODE_CHECK_UNKNOWN : (int)report_node_check(&report);
    if (r == 0 && report_opts_write(inv, &o->reports, &report, &why) != 0) inv->exit_code = NODE_CHECK_UNKNOWN;
    GP_AUTO_STR struct str line = {0};
    if (why.code != GP_OK) str_addf(&line, "unknown: %s", why.msg);
    else report_line(&report, &line);
    if (inv->common->json) {
        json_t *j = report_to_json(&report);
        json_object_set_new(j, "line", json_any_text(line.s));
        print_json(j);
    } else {
        puts(line.s);
    }
    if (o->kubernetes) tell_kubernetes(inv, e, &report);
    report_clear(&report);
    return 0;
}

static int bare(struct invocation *inv, const char *name, struct report *ret, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_WORK struct app_work w = {.name = name};
    struct bare_req req = {.gpu = o->gpu, .time_ms = o->time_ms, .strict = o->strict};
    int r = app_engine(inv, &w.e, err);
    if (r == 0) r = app_progress(inv, w.e, name, 1, &w.p, err);
    if (r != 0) return r;
    w.e->baseline = o->baseline;
    w.e->calibrate = o->calibrate;
    r = o->local ? engine_validate_local(w.e, &req, ret, err) : engine_validate_hosts(w.e, o->hosts, &req, ret, err);
    app_progress_end(w.e, &w.p);
    return r;
}

static int of_stack(struct invocation *inv, struct report *ret, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    w.e->baseline = o->baseline;
    w.e->calibrate = o->calibrate;
    r = engine_validate(w.e, w.name, w.spec, ret, err);
    app_progress_end(w.e, &w.p);
    return r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct report report = {0};
    int r = check_opts(inv, err);
    if (r != 0) return r;
    inv->app->engine_opts.scratch = is_bare(o);
    app_lock_timeout(inv, o->lock_timeout_ms);
    inv->app->engine_opts.check_all = o->all;
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    if (o->node_check) return node_check(inv, err);
    r = is_bare(o) ? bare(inv, o->local ? "local" : "hosts", &report, err) : of_stack(inv, &report, err);
    if (r == 0 && !report.ready)
        r = gp_fail(err, GP_EVALIDATE, "%s: not every node is ready; see the report", report.stack);
    if (report.nodes.len > 0) show(inv, &report, err);
    if (err->code != GP_ECANCELLED) r = report_opts_after(inv, &o->reports, &report, r, err);
    report_clear(&report);
    return r;
}

const struct verb verb_validate = {
    .name = "validate",
    .argspec = "[STACK|SPEC]",
    .help = "runs the checks on a stack's nodes, on the hosts of a file, or on this machine",
    .details = VERB_TARGET_DETAILS
    "  --local and --hosts create no stack; --report keeps the report. --node-check prints one line\n"
    "  and exits 0 pass, 1 degraded, 2 fail, 3 unknown (templates/slurm, examples/kubernetes).\n",
    .examples = "  gpuprov validate try                           # the nodes of a stack again\n"
                "  gpuprov validate --hosts hosts.yaml --gpu H100:8\n"
                "  gpuprov validate --local --time 1m --report html=report.html\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_NOTIFIES,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov validate STACK|SPEC: runs the suite again on the nodes of a stack. Exit 7 when it does not
 * hold. */
#include "base/gp_base.h"

#include "app.h"
#include "reports.h"

struct opts {
    bool all, calibrate;
    const char *baseline;
    struct report_opts reports;
};
static const struct opt options[] = {
    {.name = "all", .type = OPT_FLAG, .offset = offsetof(struct opts, all),
     .help = "runs every check of a node, also after one has failed"},
    {.name = "calibrate", .type = OPT_FLAG, .offset = offsetof(struct opts, calibrate),
     .help = "makes a sound run's rates your fleet's baseline"},
    {.name = "baseline", .type = OPT_TEXT, .offset = offsetof(struct opts, baseline), .arg = "FILE",
     .help = "hold rates against it, or write it (default: the spec's)"},
    REPORT_ROWS(struct opts, reports),
    {0}};

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

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_WORK struct app_work w = {0};
    int r = report_opts_check(&o->reports, err);
    if (r == 0) r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    w.e->opts.check_all = o->all;
    w.e->baseline = o->baseline;
    w.e->calibrate = o->calibrate;
    struct report report = {0};
    r = engine_validate(w.e, w.name, w.spec, &report, err);
    app_progress_end(w.e, &w.p);
    if (r == 0 && !report.ready)
        r = gp_fail(err, GP_EVALIDATE, "%s: not every node is ready; the report says why", w.name);
    if (report.nodes.len > 0) show(inv, &report, err);
    if (!gp_cancelled(&w.e->cancel)) r = report_opts_after(inv, &o->reports, &report, r, err);
    report_clear(&report);
    return r;
}

const struct verb verb_validate = {
    .name = "validate",
    .argspec = "STACK|SPEC",
    .help = "runs the suite again on the nodes of a stack",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
};

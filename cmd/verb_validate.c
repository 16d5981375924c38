/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov validate STACK|SPEC: runs the suite again on the nodes of a stack. Exit 7 when it does not
 * hold. */
#include "base/gp_base.h"

#include "app.h"

static void show(struct invocation *inv, const struct report *report, const struct gp_error *err) {
    if (inv->common->json) {
        json_t *j = report_to_json(report);
        if (err->code != GP_OK) result_error(inv, j, err);
        print_json(j);
        return;
    }
    GP_AUTO_STR struct str text = {0};
    report_text(report, output_colour(stdout), output_width(stdout), &text);
    fputs(text.s, stdout);
}

static int run(struct invocation *inv, struct gp_error *err) {
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    struct report report = {0};
    r = engine_validate(w.e, w.name, w.spec, &report, err);
    app_progress_end(w.e, &w.p);
    if (r == 0 && !report.ready)
        r = gp_fail(err, GP_EVALIDATE, "%s: not every node is ready; the report says why", w.name);
    if (report.nodes.len > 0) show(inv, &report, err);
    report_clear(&report);
    return r;
}

const struct verb verb_validate = {
    .name = "validate",
    .argspec = "STACK|SPEC",
    .help = "runs the suite again on the nodes of a stack",
    .run = run,
    .min_args = 1,
    .max_args = 1,
};

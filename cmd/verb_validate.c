/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov validate STACK|SPEC: runs the suite again on the nodes of a stack. Exit 7 when it does not
 * hold. */
#include "base/gp_base.h"

#include "app.h"

static int run(struct invocation *inv, struct gp_error *err) {
    GP_AUTO_SPEC struct spec *spec = NULL;
    const char *name = NULL;
    int r = app_target(inv, inv->args[0], &spec, &name, err);
    if (r != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    struct progress *p = NULL;
    if ((r = app_progress(inv, e, name, spec ? spec->nodes : 0, &p, err)) != 0) return r;
    struct report report = {0};
    r = engine_validate(e, name, spec, &report, err);
    app_progress_end(e, &p);
    if (report.nodes.len > 0 && inv->common->json) {
        print_json(report_to_json(&report));
        if (r != 0) {
            fprintf(stderr, "gpuprov: %s\n", err->msg);
            inv->error_shown = true;
        }
    } else if (report.nodes.len > 0) {
        GP_AUTO_STR struct str text = {0};
        report_text(&report, output_colour(stdout), output_width(stdout), &text);
        fputs(text.s, stdout);
    }
    if (r == 0 && !report.ready)
        r = gp_fail(err, GP_EVALIDATE, "%s: not every node is ready; the report says why", name);
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

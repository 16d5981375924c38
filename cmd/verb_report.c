/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov report STACK: the last validation report, as text or JSON. */
#include "base/gp_base.h"

#include "app.h"

#include "base/json.h"

enum format { FORMAT_TEXT, FORMAT_JSON };
struct opts {
    int format;
};
static const struct opt options[] = {
    {.name = "format", .letter = 'f', .type = OPT_ENUM, .offset = offsetof(struct opts, format),
     .arg = "text|json", .help = "how it is written (default text; --json is json)"},
    {0}};

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_SPEC struct spec *spec = NULL;
    const char *name = NULL;
    int r = app_target(inv, inv->args[0], &spec, &name, err);
    if (r != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    struct report report = {0};
    if ((r = engine_report(e, name, &report, err)) != 0) return r;
    if (inv->common->json) {
        print_json(report_to_json(&report));
    } else if (o->format == FORMAT_JSON) {
        GP_AUTO_JSON json_t *j = report_to_json(&report);
        GP_AUTO_FREE char *text = json_text(j, 2);
        puts(text);
    } else {
        GP_AUTO_STR struct str text = {0};
        report_text(&report, output_colour(stdout), output_width(stdout), &text);
        fputs(text.s, stdout);
    }
    report_clear(&report);
    return 0;
}

const struct verb verb_report = {
    .name = "report",
    .argspec = "STACK|SPEC",
    .help = "the last validation report as text or JSON",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
};

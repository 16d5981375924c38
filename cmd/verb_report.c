/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov report STACK: prints the last validation report in any form, or writes it to a file; writes
 * certificates. */
#include "base/gp_base.h"

#include "app.h"
#include "show/reports.h"

struct opts {
    int format;
    bool history;
    const char *output;
    struct report_opts reports;
};
static const struct opt options[] = {{.name = "format",
                                      .letter = 'f',
                                      .type = OPT_ENUM,
                                      .offset = offsetof(struct opts, format),
                                      .arg = REPORT_FORMS,
                                      .help = "format of the report (default text; --json: json in one line)"},
                                     {.name = "output",
                                      .letter = 'o',
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, output),
                                      .arg = "FILE",
                                      .help = "write to FILE, whole or not at all, instead of stdout"},
                                     {.name = "history",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, history),
                                      .help = "print each figure over the runs of this stack (--json: every run)"},
                                     REPORT_ROWS(struct opts, reports),
                                     {0}};

static int print(const struct report *r, const struct report_ops *form, struct gp_error *err) {
    const struct report_style style = output_style(stdout);
    GP_AUTO_STR struct str text = {.max = (size_t)256 << 20};
    int rc = form->write(r, &style, &text, err);
    if (rc == 0) fwrite(text.s, 1, text.len, stdout);
    return rc;
}

static int write_it(struct invocation *inv, const struct report *r, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const struct report_ops *form = inv->common->json ? report_form("json") : report_forms[o->format];
    int rc = report_opts_write(inv, &o->reports, r, err);
    if (rc != 0) return rc;
    if (o->output != NULL) return report_save(r, form, o->output, err);
    if (!inv->common->json) return print(r, form, err);
    print_json(report_to_json(r));
    return 0;
}

static int history(struct invocation *inv, struct engine *e, const char *name, struct gp_error *err) {
    json_t *j = NULL;
    int r = engine_history(e, name, &j, err);
    if (r != 0) return r;
    if (inv->common->json) {
        print_json(j);
        return 0;
    }
    show_history(j, stdout);
    json_decref(j);
    return 0;
}

/* No option is ignored. */
static int check_opts(const struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const struct report_opts *more = &o->reports;
    if (o->history && (o->format != 0 || o->output != NULL || more->files.n > 0 || more->certificate != NULL))
        return gp_fail(err, GP_EUSAGE,
                       "--history prints text, or JSON with --json: it excludes --format, --output, --report and "
                       "--certificate");
    if (inv->common->json && o->format != 0 && !str_eq(report_forms[o->format]->name, "json"))
        return gp_fail(err, GP_EUSAGE, "--json and --format %s exclude each other", report_forms[o->format]->name);
    return report_opts_check(more, 0, err);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_SPEC struct spec *spec = NULL;
    const char *name = NULL;
    struct engine *e = NULL;
    int r = check_opts(inv, err);
    if (r == 0) r = app_target(inv, inv->args[0], &spec, &name, err);
    if (r == 0) r = app_engine(inv, &e, err);
    if (r != 0) return r;
    if (o->history) return history(inv, e, name, err);
    struct report report = {0};
    if ((r = engine_report(e, name, &report, err)) != 0) return r;
    r = write_it(inv, &report, err);
    report_clear(&report);
    return r;
}

const struct verb verb_report = {
    .name = "report",
    .argspec = "STACK|SPEC",
    .help = "prints the last validation report: text, JSON, JUnit, Prometheus or HTML",
    .details = VERB_TARGET_DETAILS "  The HTML file includes its plots. docs/report.schema.json describes the JSON.\n"
                                   "  docs/reports.md describes every form, and certificates.\n",
    .examples = "  gpuprov report try\n"
                "  gpuprov report --format html --output report.html try\n"
                "  gpuprov report --history try       # figures of earlier validations\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
};

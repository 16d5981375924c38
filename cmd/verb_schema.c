/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov schema: prints the JSON Schema of a spec or of a report, or the manual page of the spec. */
#include "base/gp_base.h"

#include "app.h"

#include "templates/templates.h"

struct opts {
    bool markdown, report;
};
static const struct opt options[] = {{.name = "markdown",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, markdown),
                                      .help = "print the tables as docs/spec.md has them"},
                                     {.name = "report",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, report),
                                      .help = "print the schema of a validation report instead"},
                                     {0}};

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (o->report && o->markdown) return gp_fail(err, GP_EUSAGE, "--report has no --markdown form");
    if (o->report) {
        const struct template_file *f = template_find("docs/report.schema.json");
        if (f == NULL) return gp_fail(err, GP_EINTERNAL, "the report's schema is missing from this build");
        fwrite(f->data, 1, f->size, stdout);
        return 0;
    }
    if (o->markdown) {
        GP_AUTO_FREE char *page = spec_markdown();
        print_text(inv, "markdown", page);
        return 0;
    }
    GP_AUTO_FREE char *text = spec_json_schema(); /* the same with and without --json */
    fputs(text, stdout);
    if (!str_ends(text, "\n")) putchar('\n');
    return 0;
}

const struct verb verb_schema = {
    .name = "schema",
    .argspec = "",
    .help = "prints the JSON Schema of a spec, for editors, or of a report",
    .details = "  In an editor with a YAML language server:\n"
               "    gpuprov schema >gpuprov.schema.json\n"
               "    # yaml-language-server: $schema=gpuprov.schema.json   (first line of the spec)\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .flags = VERB_PLAIN,
};

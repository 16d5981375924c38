/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov schema: prints the JSON Schema of a spec or of a report, or the manual page of the spec. */
#include "base/gp_base.h"

#include "app.h"

#include "providers/ssh/hosts.h"
#include "templates/templates.h"

struct opts {
    bool markdown, man, report, hosts;
};
static const struct opt options[] = {{.name = "markdown",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, markdown),
                                      .help = "print the tables as the pages of docs/ have them"},
                                     {.name = "man",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, man),
                                      .help = "print the manual page gpuprov.yaml(5), in roff"},
                                     {.name = "report",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, report),
                                      .help = "print the schema of a validation report instead"},
                                     {.name = "hosts",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, hosts),
                                      .help = "print the schema of a hosts file (provider ssh) instead"},
                                     {0}};

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (o->report + o->markdown + o->man > 1)
        return gp_fail(err, GP_EUSAGE, "give one of --markdown, --man and --report");
    if (o->hosts && (o->report || o->man))
        return gp_fail(err, GP_EUSAGE, "--hosts and --%s exclude each other", o->report ? "report" : "man");
    if (o->report) {
        const struct template_file *f = template_find("docs/report.schema.json");
        if (f == NULL) return gp_fail(err, GP_EINTERNAL, "the report's schema is missing from this build");
        fwrite(f->data, 1, f->size, stdout);
        return 0;
    }
    if (o->markdown || o->man) {
        GP_AUTO_FREE char *page = o->man ? spec_man() : o->hosts ? ssh_hosts_markdown() : spec_markdown();
        print_text(inv, o->man ? "man" : "markdown", page);
        return 0;
    }
    GP_AUTO_FREE char *text =
        o->hosts ? ssh_hosts_json_schema() : spec_json_schema(); /* the same with and without --json */
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
    .examples = "  gpuprov schema >gpuprov.schema.json\n"
                "  gpuprov schema --report            # the schema of a report\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .flags = VERB_PLAIN,
};

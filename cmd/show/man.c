/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the manual page gpuprov(1) from the tables of verbs and options. */
#include "base/gp_base.h"

#include "man.h"

#include "cmd/verbs.h"

static const char about[] =
    "gpuprov launches GPU nodes from a YAML spec, bootstraps them, validates them and destroys them again. "
    "Every node has a deadline, and no node is handed over before the required checks have "
    "run on it and passed. The spec is described in gpuprov.yaml(5).\n";

static const struct {
    const char *name, *text;
} environment[] = {
    {"GPUPROV_OWNER", "owner of the stacks, as `--owner`"},
    {"GPUPROV_STATE_DIR", "folder of the journal, the keys and the reports of this user"},
    {"XDG_STATE_HOME", "its `gpuprov` is that folder if GPUPROV_STATE_DIR is not set; default `~/.local/state`"},
    {"NO_COLOR", "no colours"},
};

/* Lines as they are. The help puts two blanks before each; not indented: they are omitted. */
static void lines(struct str *out, const char *text, bool is_indented) {
    str_add(out, ".nf\n");
    for (const char *p = text; *p != '\0';) {
        p += !is_indented && str_starts(p, "  ") ? 2 : 0;
        GP_AUTO_FREE char *line = xasprintf("%.*s\n", (int)strcspn(p, "\n"), p);
        str_add_roff(out, line);
        p += strcspn(p, "\n");
        p += *p == '\n';
    }
    str_add(out, ".fi\n");
}

static void add_options(struct str *out, const struct opt *table) {
    for (const struct opt *o = table; o != NULL && o->name != NULL; o++) {
        str_add(out, ".TP\n");
        if (o->letter != '\0') str_addf(out, "\\fB\\-%c\\fR, ", o->letter);
        str_add(out, "\\fB\\-\\-");
        str_add_roff(out, o->name);
        str_add(out, "\\fR");
        if (o->type != OPT_FLAG) {
            str_add(out, " \\fI");
            str_add_roff(out, o->arg);
            str_add(out, "\\fR");
        }
        str_addc(out, '\n');
        str_add_roff(out, o->help);
        str_addc(out, '\n');
    }
}

static void add_verb(struct str *out, const struct verb *v) {
    GP_AUTO_FREE char *usage = xasprintf("gpuprov %s %s", v->name, v->argspec);
    str_add(out, ".SS ");
    str_add_roff(out, usage);
    str_addc(out, '\n');
    str_add_roff(out, v->help);
    str_add(out, ".\n");
    if (v->details != NULL) {
        str_add(out, ".PP\n");
        lines(out, v->details, false);
    }
    add_options(out, v->options);
    if (v->examples != NULL) {
        str_add(out, ".PP\nExamples:\n.PP\n");
        lines(out, v->examples, true);
    }
}

void man_page(struct str *out) {
    str_add(out, ".TH GPUPROV 1 \"\" \"gpuprov " GP_VERSION "\"\n.SH NAME\n"
                 "gpuprov \\- launches, bootstraps, validates and destroys GPU nodes from a YAML spec\n"
                 ".SH SYNOPSIS\n\\fBgpuprov\\fR \\fIVERB\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]\n"
                 ".SH DESCRIPTION\n");
    str_add_roff(out, about);
    str_add(out, ".SH VERBS\n");
    for (size_t i = 0; verb_table[i] != NULL; i++)
        if (!(verb_table[i]->flags & VERB_HIDDEN)) add_verb(out, verb_table[i]);
    str_add(out, ".SH OPTIONS OF EVERY VERB\n");
    add_options(out, common_options);
    str_add(out, ".SH EXIT STATUS\n");
    lines(out, exit_codes_text, false);
    str_add(out, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < GP_ARRAY_LEN(environment); i++) {
        str_addf(out, ".TP\n.B %s\n", environment[i].name);
        str_add_roff(out, environment[i].text);
        str_addc(out, '\n');
    }
    str_add(out, ".SH SEE ALSO\n\\fBgpuprov.yaml\\fR(5), \\fBssh\\fR(1)\n");
}

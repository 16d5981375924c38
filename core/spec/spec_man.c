/* SPDX-License-Identifier: Apache-2.0 */
/* Generates the manual page gpuprov.yaml(5) from the decode tables. No I/O. Any thread. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

static const char intro[] = ".TH GPUPROV.YAML 5 \"\" \"gpuprov " GP_VERSION "\"\n"
                            ".SH NAME\n"
                            "gpuprov.yaml \\- the spec of a stack of GPU nodes\n"
                            ".SH DESCRIPTION\n"
                            "A spec is one YAML file that describes the nodes of a stack, their offers, their "
                            "bootstrap and their\nvalidation. \\fBgpuprov init\\fR writes a commented starter, "
                            "\\fBgpuprov check\\fR checks a spec and contacts\nno provider.\n"
                            ".SH RULES OF THE LANGUAGE\n";

static void add_rules(struct str *out) {
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, spec_rules_text, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        const char *line = lines.v[i];
        bool bullet = line[0] == '*';
        if (bullet) str_add(out, ".IP \\(bu 2\n");
        str_add_roff(out, line + (line[0] == '\0' ? 0 : 2));
        str_addc(out, '\n');
    }
}

static void add_changes(struct str *out) {
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, spec_changes_text, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        const char *line = lines.v[i], *cell = strstr(line, " | ");
        if (str_starts(line, "## ")) {
            str_addf(out, ".SH %s\n", line + 3);
        } else if (str_starts(line, "| ") && cell != NULL && !str_starts(line, "| change ")) {
            GP_AUTO_FREE char *effect = xstrndup(line + 2, (size_t)(cell - line - 2));
            GP_AUTO_FREE char *text = xstrndup(cell + 3, strlen(cell + 3) - 2);
            str_addf(out, ".TP\n.B %s\n", effect);
            str_add_roff(out, text);
            str_addc(out, '\n');
        } else if (line[0] != '|') {
            str_add(out, line[0] == '\0' && i > 1 && i + 1 < lines.n ? ".PP\n" : "");
            str_add_roff(out, line);
            str_add(out, line[0] == '\0' ? "" : "\n");
        }
    }
}

static void add_field(struct str *out, const struct spec_field *f) {
    GP_AUTO_STR struct str form = {0};
    spec_form(f, &form);
    str_addf(out, ".TP\n.B %s\n", f->name);
    str_add_roff(out, f->doc);
    str_add(out, ".\n.br\n");
    str_add_roff(out, form.s);
    str_add(out, f->required ? "; required" : "");
    if (f->def != NULL || f->def_doc != NULL) {
        str_add(out, "; default ");
        str_add_roff(out, f->def != NULL ? f->def : f->def_doc);
    }
    if (f->effect != SPEC_UNDECLARED) str_addf(out, "; change: %s", spec_effect_name(f->effect));
    str_addf(out, ". Example: \\fB%s: ", f->name);
    str_add_roff(out, spec_example(f));
    str_add(out, "\\fR\n");
}

static void add_providers(struct str *out) {
    const struct spec_provider *p = NULL;
    for (size_t i = 0; (p = spec_provider_at(i)) != NULL; i++) {
        str_addf(out, ".SH OFFERS OF PROVIDER %s\n", p->name);
        str_add_roff(out, p->doc);
        str_add(out, ".\n");
        for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++) {
            str_addf(out, ".TP\n.B %s\n", k->name);
            str_add_roff(out, k->note != NULL ? k->note : k->pattern_doc != NULL ? k->pattern_doc : "");
            str_addf(out, "%s\n", k->required ? " (required)" : "");
        }
    }
}

static void add_block(struct str *out, const struct spec_block *b) {
    str_add(out, ".SH ");
    str_add_roff(out, b->path[0] != '\0' ? b->path : "TOP LEVEL");
    str_addc(out, '\n');
    str_add_roff(out, b->doc);
    str_addc(out, '\n');
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) add_field(out, f);
    if (b == &spec_offer_block) add_providers(out);
    for (const struct spec_field *f = b->fields; f->name != NULL; f++)
        if (f->block != NULL && (b == &spec_root || !spec_is_top_level(f->block))) add_block(out, f->block);
}

char *spec_man(void) {
    struct str out = {0};
    str_add(&out, intro);
    add_rules(&out);
    add_changes(&out);
    add_block(&out, &spec_root);
    str_add(&out, ".SH SEE ALSO\n\\fBgpuprov\\fR(1)\n");
    return str_steal(&out);
}

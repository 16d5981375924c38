/* SPDX-License-Identifier: Apache-2.0 */
/* Generates docs/spec.md from the decode tables. The rules of the language are in no table and are written
 * here. No I/O. Any thread. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "spec/spec_internal.h"

static const char intro[] =
    "# The spec\n\n"
    "<!-- Generated from the tables in core/spec/spec_tables.c by tests/unit/core/test_spec.c\n"
    "     (UPDATE_GOLDEN=1 rewrites it). Do not edit. -->\n\n"
    "This page lists every key of a spec. It is for people who write one. A spec is one YAML file that describes the\n"
    "nodes of a stack, their offers, their bootstrap and their validation. The smallest one starts one node on this\n"
    "machine:\n\n"
    "```yaml\nname: try\n```\n\n"
    "`gpuprov init` writes a commented starter, `gpuprov check SPEC` checks a spec and buys nothing, `gpuprov schema`\n"
    "prints the JSON Schema for your editor.\n\n"
    "## Rules of the language\n\n";

/* One rule per line, with its bullet. */
const char spec_rules_text[] =
    "* A key that is not listed here is an error, with its line, its column and a suggestion. All errors of a file "
    "are\n"
    "  shown at once.\n"
    "* A duration has a unit: `90s`, `30m`, `12h`, `2d`, `1h30m`. So has an amount of money: `60 USD/h`, `500 USD`,\n"
    "  a size: `500GB`, `64 GiB`, `1.5 TB` (GB is 1e9 bytes, GiB 2^30; kept in whole GiB, rounded up), and a floor:\n"
    "  `300 GB/s`, `20 us`;\n"
    "  only a plain count has none (`host.cores.usable: 8`).\n"
    "* `${env:NAME}` and `${file:PATH}` in a value are replaced by a variable of your environment "
    "and by\n"
    "  the text of a file (relative to the spec, at most 64 KiB, without its last newline). A missing\n"
    "  one is an error. The replacement is a value, never YAML. `$${` stands for `${`.\n"
    "  In `run` and `check` every other `${...}` is left to the node's shell.\n"
    "* A replacement is part of the spec and kept with it in the journal. Secret values belong in `secrets`: they are\n"
    "  read when they are needed and are in no log, plan, tag, user-data, command line or file that others read.\n"
    "* Messages, plans, progress, events and reports show such a value as the text in the file, `${env:NAME}`,\n"
    "  because it may be a secret. Shown as they are: numbers, durations, amounts, words of a list, the stack's\n"
    "  `name`, places and types that the provider lists, and the variables HOME, USER, LOGNAME and PWD. Programs get\n"
    "  the values: nodes, `export`, `ssh --config`. A value of less than 6 characters is hidden only in quotes.\n"
    "* `true` and `false` are the only boolean values. A value that looks like a number or like `no` is\n"
    "  accepted for a text key. A number in quotes is refused for a number key.\n"
    "* Anchors, aliases, tags and several documents in one file are refused, because people\n"
    "  read specs.\n"
    "* A spec is at most 1 MiB, a value 64 KiB, all values with a replacement 1 MiB, a list 1000 entries.\n";

/* What another value does to a stack that has nodes: a table. */
const char spec_changes_text[] =
    "## Changes of a spec\n\n"
    "`gpuprov plan` lists each key that changed since the nodes were launched: `limits.ttl: 30m -> 2h`. The column\n"
    "\"change\" of the tables below names the effect of another value while nodes exist:\n\n"
    "| change | effect |\n|---|---|\n"
    "| refused | Other machines are needed: `plan` and `up` fail and name the key. Run `gpuprov down` first. |\n"
    "| repeated | Nodes are bootstrapped and validated again. Earlier packages and steps are not undone. |\n"
    "| scaled | Nodes are launched or destroyed, and all are validated again. |\n"
    "| deadline | The deadline moves to the launch plus the new `ttl`, and nodes stay ready. Refused by providers "
    "that cannot move it. |\n"
    "| access | Written to the running machines; nodes stay ready. |\n"
    "| later | Counts from the next connection or launch on; nodes stay ready. |\n"
    "| stack | Names another stack. |\n\n"
    "A key without an entry there is a map or a list: each of its own keys has one. Scripts are shown as `changed`,\n"
    "because a substituted secret may be in them.\n";

static const char *type_name(const struct spec_field *f) {
    switch (f->type) {
    case SPEC_TEXT: return "text";
    case SPEC_INT: return "number";
    case SPEC_BOOL: return "true or false";
    case SPEC_DURATION: return "duration";
    case SPEC_MONEY: return "amount of money";
    case SPEC_SIZE: return "size";
    case SPEC_ENUM: return "text";
    case SPEC_TEXTS: return "list of text";
    case SPEC_BLOCK: return "map";
    case SPEC_SHORT: return "text or map";
    case SPEC_LIST: return "list of maps";
    case SPEC_FLOORS: return "map of floors";
    case SPEC_VARS: return "map of variables";
    }
    return "text";
}

void spec_form(const struct spec_field *f, struct str *out) {
    str_add(out, type_name(f));
    const char *const *choices = spec_choices(f);
    if (choices != NULL) {
        for (size_t i = 0; choices[i] != NULL; i++) str_addf(out, "%s`%s`", i == 0 ? ": " : ", ", choices[i]);
    } else if (f->type == SPEC_INT) {
        str_addf(out, ", %lld to %lld", (long long)f->min, (long long)f->max);
    } else if (f->type == SPEC_DURATION) {
        char min[32], max[32];
        duration_format(min, sizeof min, f->min);
        duration_format(max, sizeof max, f->max);
        str_addf(out, ", %s to %s", min, max);
    } else if (f->type == SPEC_SIZE) {
        char min[24], max[24];
        spec_size_text(min, sizeof min, (int)f->min);
        spec_size_text(max, sizeof max, (int)f->max);
        str_addf(out, ", %s to %s", min, max);
    } else if (f->type == SPEC_MONEY) {
        str_addf(out, " in %s", f->unit);
    } else if (f->pattern_doc != NULL) {
        str_addf(out, ": %s", f->pattern_doc);
    }
}

/* A table cell: '|' would end it. */
static void cell(struct str *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|') str_addc(out, '\\');
        str_addc(out, *text);
    }
}

static void add_field(struct str *out, const struct spec_block *b, const struct spec_field *f) {
    str_addf(out, "| `%s`%s | ", f->name, f->required ? " (required)" : "");
    GP_AUTO_STR struct str form = {0};
    spec_form(f, &form);
    cell(out, form.s);
    str_add(out, " | ");
    if (f->def != NULL) str_addf(out, "`%s`", f->def);
    else if (f->def_doc != NULL) cell(out, f->def_doc);
    str_add(out, " | ");
    cell(out, f->doc);
    const struct spec_provider *p = NULL;
    for (size_t i = 0, n = 0; b == &spec_offer_block && !f->required && (p = spec_provider_at(i)) != NULL; i++)
        if (spec_provider_key(p, f->name) != NULL) str_addf(out, "%s `%s`", n++ == 0 ? "; taken by" : ",", p->name);
    if (f->block != NULL) str_addf(out, "; see below");
    str_addf(out, " | %s | `%s: ", spec_effect_name(f->effect), f->name);
    cell(out, spec_example(f));
    str_add(out, "` |\n");
}

/* The keys of offers[] of each provider. */
static void add_providers(struct str *out) {
    const struct spec_provider *p = NULL;
    for (size_t i = 0; (p = spec_provider_at(i)) != NULL; i++) {
        str_addf(out, "\n### `provider: %s`\n\n%s. A changed `limits.ttl` %s.%s%s\n", p->name, p->doc,
                 p->moves_deadline ? "moves the deadline of running nodes" : "is refused while nodes run",
                 p->by_default ? " A spec without `offers` uses this provider." : "",
                 p->gpu != NULL ? " Its GPU models are known: another `gpu` is an error, unless `instance_type` is "
                                  "given."
                                : "");
        if (p->keys->name != NULL) str_add(out, "\n| key | value | meaning | example |\n|---|---|---|---|\n");
        for (const struct spec_provider_key *k = p->keys; k->name != NULL; k++) {
            const struct spec_field *f = spec_offer_block.fields;
            while (f->name != NULL && strcmp(f->name, k->name) != 0) f++;
            if (f->name == NULL) continue;
            str_addf(out, "| `%s`%s | ", k->name, k->required ? " (required)" : "");
            if (k->pattern_doc != NULL) cell(out, k->pattern_doc);
            str_add(out, " | ");
            if (k->note != NULL) cell(out, k->note);
            str_addf(out, " | `%s: ", k->name);
            cell(out, k->example != NULL ? k->example : spec_example(f));
            str_add(out, "` |\n");
        }
    }
}

bool spec_is_top_level(const struct spec_block *b) {
    for (const struct spec_field *f = spec_root.fields; f->name != NULL; f++)
        if (f->block == b) return true;
    return false;
}

static void add_block(struct str *out, const struct spec_block *b) {
    if (b->path[0] != '\0') str_addf(out, "\n## `%s`\n\n%s\n\n", b->path, b->doc);
    else str_addf(out, "\n## Top level\n\n%s\n\n", b->doc);
    str_add(out, "| key | value | default | meaning | change | example |\n|---|---|---|---|---|---|\n");
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) add_field(out, b, f);
    if (b == &spec_offer_block) add_providers(out);
    for (const struct spec_field *f = b->fields; f->name != NULL; f++) /* each block once */
        if (f->block != NULL && (b == &spec_root || !spec_is_top_level(f->block))) add_block(out, f->block);
}

char *spec_markdown(void) {
    struct str out = {0};
    str_add(&out, intro);
    str_add(&out, spec_rules_text);
    str_addf(&out, "\n%s", spec_changes_text);
    add_block(&out, &spec_root);
    str_add(&out, "\n## Units of floors\n\n");
    for (size_t i = 0; spec_floor_units[i] != NULL; i++)
        str_addf(&out, "%s`%s`", i == 0 ? "" : ", ", spec_floor_units[i]);
    str_add(&out, ", and the unit that a figure itself has in [the checks](checks.md). A value is\n"
                  "converted to the figure's own unit; GB is 1e9 bytes, GiB 2^30, Gbit/s 1e9 bits.\n");
    return str_steal(&out);
}

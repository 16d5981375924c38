/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov help [VERB]: prints help from the verb and option tables. */
#include "base/gp_base.h"

#include "app.h"
#include "show/man.h"

#include "base/json.h"

static const char *type_name(enum opt_type t) {
    switch (t) {
    case OPT_FLAG: return "flag";
    case OPT_TEXT: return "text";
    case OPT_INT: return "integer";
    case OPT_DURATION: return "duration";
    case OPT_LIST: return "list";
    case OPT_ENUM: return "enum";
    }
    return "?";
}

static json_t *options_json(const struct opt *table) {
    json_t *list = json_array();
    for (const struct opt *o = table; o != NULL && o->name != NULL; o++) {
        char letter[2] = {o->letter, '\0'};
        json_t *j = json_pack("{s:s, s:s, s:s}", "name", o->name, "type", type_name(o->type), "help", o->help);
        json_object_set_new(j, "letter", o->letter != '\0' ? json_string(letter) : json_null());
        json_object_set_new(j, "value", o->arg != NULL ? json_string(o->arg) : json_null());
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *verb_json(const struct verb *v) {
    return json_pack("{s:s, s:s, s:s, s:o}", "name", v->name, "arguments", v->argspec, "help", v->help, "options",
                     options_json(v->options));
}

static json_t *help_json(const struct verb *verb) {
    json_t *verbs = json_array();
    for (size_t i = 0; verb_table[i] != NULL; i++)
        if (verb == verb_table[i] || (verb == NULL && !(verb_table[i]->flags & VERB_HIDDEN)))
            json_array_append_new(verbs, verb_json(verb_table[i]));
    return json_pack("{s:s, s:o, s:o}", "version", GP_VERSION, "verbs", verbs, "options", options_json(common_options));
}

void show_help(const struct verb *verb, bool all, bool json) {
    if (json) {
        print_json(help_json(verb));
        return;
    }
    GP_AUTO_STR struct str page = {0};
    verb_help(verb, all, &page);
    fputs(page.s, stdout);
}

struct opts {
    bool all, man;
};
static const struct opt options[] = {{.name = "all",
                                      .letter = 'a',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, all),
                                      .help = "also the options of every verb"},
                                     {.name = "man",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, man),
                                      .help = "print the manual page gpuprov(1), in roff"},
                                     {0}};

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (o->man && (o->all || inv->n_args > 0))
        return gp_fail(err, GP_EUSAGE, "--man prints one page with every verb: give it alone");
    if (o->man) {
        GP_AUTO_STR struct str page = {0};
        man_page(&page);
        print_text(inv, "man", page.s);
        return 0;
    }
    const struct verb *verb = NULL;
    if (inv->n_args == 1) {
        verb = verb_find(inv->args[0]);
        if (verb == NULL) return verb_unknown(inv->args[0], err);
    }
    show_help(verb, o->all, inv->common->json);
    return 0;
}

const struct verb verb_help_verb = {
    .name = "help",
    .argspec = "[VERB]",
    .help = "lists the verbs, or one verb's options",
    .examples = "  gpuprov help up       # what 'up' does, its options, examples\n"
                "  gpuprov help -a up    # also the options of every verb\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_PLAIN,
};

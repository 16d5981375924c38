/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov completion bash|zsh|fish: prints shell completion from the verb and option tables. */
#include "base/gp_base.h"

#include "app.h"

#include "base/fs.h"
#include "journal/journal.h"

static void option_words(const struct opt *table, struct str *out) {
    for (const struct opt *o = table; o != NULL && o->name != NULL; o++) str_addf(out, " --%s", o->name);
}

/* Verbs that take a stack's name, "down|logs". */
static void stack_verbs(const char *between, struct str *out) {
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        const struct verb *v = verb_table[i];
        if (v->flags & VERB_HIDDEN || strstr(v->argspec, "STACK") == NULL) continue;
        str_addf(out, "%s%s", out->len > 0 ? between : "", v->name);
    }
}

/* For the scripts: the journal's stacks, one a line. Creates no state folder and reports nothing. */
static int print_stacks(struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    struct stack_list all = {0};
    struct journal *j = NULL;
    (void)fs_state_path(&dir, NULL);
    GP_AUTO_FREE char *path = dir != NULL ? fs_join(dir, "journal.db") : NULL;
    if (path == NULL || !fs_exists(path)) return 0;
    int r = journal_open(path, &j, NULL, err);
    if (r == 0) r = journal_stacks(j, &all, err);
    for (size_t i = 0; i < all.list.len; i++) puts(all.list.items[i].name);
    stack_list_clear(&all);
    journal_close(j);
    return r;
}

static void bash(struct str *out) {
    GP_AUTO_STR struct str verbs = {0}, cases = {0}, common = {0}, stacks = {0};
    stack_verbs("|", &stacks);
    option_words(common_options, &common);
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        const struct verb *v = verb_table[i];
        if (v->flags & VERB_HIDDEN) continue;
        str_addf(&verbs, "%s%s", i > 0 ? " " : "", v->name);
        if (v->options == NULL) continue;
        str_addf(&cases, "    %s) words=\"$words", v->name);
        option_words(v->options, &cases);
        str_add(&cases, "\" ;;\n");
    }
    str_addf(out,
             "__gpuprov() {\n"
             "  local cur=${COMP_WORDS[COMP_CWORD]} verb= words i\n"
             "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
             "    case ${COMP_WORDS[i]} in -*) ;; *) verb=${COMP_WORDS[i]}; break ;; esac\n"
             "  done\n"
             "  words=\"%s\"\n"
             "  case $verb in\n"
             "    '') words=\"$words %s\" ;;\n"
             "%s"
             "  esac\n"
             "  case $verb in %s)\n"
             "    [ \"${cur#-}\" = \"$cur\" ] && words=\"$words $(gpuprov completion stacks 2>/dev/null)\" ;;\n"
             "  esac\n"
             "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
             "  if [ -n \"$verb\" ] && [ \"${cur#-}\" = \"$cur\" ]; then\n"
             "    COMPREPLY+=($(compgen -f -X '!*.y*ml' -- \"$cur\"; compgen -d -- \"$cur\"))\n"
             "  fi\n"
             "}\n"
             "complete -o filenames -F __gpuprov gpuprov\n",
             common.s, verbs.s, cases.s != NULL ? cases.s : "", stacks.s);
}

static void fish_options(const struct opt *table, const char *condition, struct str *out) {
    for (const struct opt *o = table; o != NULL && o->name != NULL; o++) {
        str_addf(out, "complete -c gpuprov%s -l %s", condition, o->name);
        if (o->letter != '\0') str_addf(out, " -s %c", o->letter);
        if (o->type != OPT_FLAG) str_add(out, " -r");
        str_add(out, " -d ");
        str_add_shquoted(out, o->help);
        str_addc(out, '\n');
    }
}

static void fish(struct str *out) {
    fish_options(common_options, "", out);
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        const struct verb *v = verb_table[i];
        if (v->flags & VERB_HIDDEN) continue;
        str_addf(out, "complete -c gpuprov -n __fish_use_subcommand -f -a %s -d ", v->name);
        str_add_shquoted(out, v->help);
        str_addc(out, '\n');
        GP_AUTO_FREE char *when = xasprintf(" -n '__fish_seen_subcommand_from %s'", v->name);
        fish_options(v->options, when, out);
    }
    GP_AUTO_STR struct str stacks = {0};
    stack_verbs(" ", &stacks);
    str_addf(out,
             "complete -c gpuprov -n '__fish_seen_subcommand_from %s' -a '(gpuprov completion stacks 2>/dev/null)'\n",
             stacks.s);
}

static int run(struct invocation *inv, struct gp_error *err) {
    GP_AUTO_STR struct str out = {0};
    const char *shell = inv->args[0];
    if (strcmp(shell, "stacks") == 0) return print_stacks(err);
    if (strcmp(shell, "bash") == 0) {
        bash(&out);
    } else if (strcmp(shell, "zsh") == 0) {
        /* As a file of site-functions it is the function _gpuprov: its first call has to complete as well. */
        str_add(&out, "#compdef gpuprov\nautoload -Uz bashcompinit && bashcompinit\n");
        bash(&out);
        str_add(&out, "[ \"${funcstack[1]}\" != _gpuprov ] || _bash_complete -o filenames -F __gpuprov\n");
    } else if (strcmp(shell, "fish") == 0) {
        fish(&out);
    } else {
        return gp_fail(err, GP_EUSAGE, "unknown shell '%s'; known: bash, zsh, fish", shell);
    }
    print_text(inv, "script", out.s);
    return 0;
}

const struct verb verb_completion = {
    .name = "completion",
    .argspec = "bash|zsh|fish",
    .help = "prints shell completion",
    .details = "  'make install' puts all three where the shells look for them.\n",
    .examples = "  source <(gpuprov completion bash)\n"
                "  gpuprov completion fish | source\n",
    .run = run,
    .min_args = 1,
    .max_args = 1,
    .flags = VERB_PLAIN,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* The verb table, the lookup of a verb, and the help pages. Pure. */
#include "base/gp_base.h"

#include "verbs.h"

const struct opt common_options[] = {{.name = "json",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct common_opts, json),
                                      .help = "the result as JSON on stdout, progress as JSON lines on stderr"},
                                     {.name = "quiet",
                                      .letter = 'q',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct common_opts, quiet),
                                      .help = "no progress, only the result"},
                                     {.name = "owner",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct common_opts, owner),
                                      .arg = "NAME",
                                      .help = "owner of the stacks (else GPUPROV_OWNER, the journal, the principal)"},
                                     {.name = "jobs",
                                      .letter = 'j',
                                      .type = OPT_INT,
                                      .offset = offsetof(struct common_opts, jobs),
                                      .arg = "N",
                                      .help = "nodes processed in parallel (default 64)",
                                      .min = 1,
                                      .max = 1024},
                                     {.name = "log",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct common_opts, log),
                                      .arg = "FILE",
                                      .help = "append every event to FILE as a JSON line"},
                                     {.name = "trace",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct common_opts, trace),
                                      .arg = "PARTS",
                                      .help = "trace http,ssh,state,node or all on stderr, without secrets"},
                                     {.name = "help",
                                      .letter = 'h',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct common_opts, help),
                                      .help = "print this page"},
                                     {.name = "version",
                                      .letter = 'V',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct common_opts, version),
                                      .help = "print the version"},
                                     {0}};

#define VERB_ADDRESS(name) &verb_##name,
const struct verb *const verb_table[] = {VERB_ROWS(VERB_ADDRESS) NULL};

/* Planned verbs, not in this version. */
static const char *const later[] = {"adopt", "audit", NULL};

const struct verb *verb_find(const char *name) {
    for (size_t i = 0; verb_table[i] != NULL; i++)
        if (strcmp(verb_table[i]->name, name) == 0) return verb_table[i];
    return NULL;
}

int verb_unknown(const char *name, struct gp_error *err) {
    for (size_t i = 0; later[i] != NULL; i++)
        if (strcmp(later[i], name) == 0)
            return gp_fail(err, GP_EUSAGE,
                           "unknown verb '%s': this version (" GP_VERSION
                           ") does not have it yet; 'gpuprov help' lists the verbs",
                           name);
    const char *names[GP_ARRAY_LEN(verb_table)] = {0};
    size_t n = 0;
    for (size_t i = 0; verb_table[i] != NULL; i++)
        if (!(verb_table[i]->flags & VERB_HIDDEN)) names[n++] = verb_table[i]->name;
    const char *near = str_closest(name, names);
    if (near != NULL) return gp_fail(err, GP_EUSAGE, "unknown verb '%s'; did you mean '%s'?", name, near);
    return gp_fail(err, GP_EUSAGE, "unknown verb '%s'; 'gpuprov help' lists the verbs", name);
}

const char exit_codes_text[] = "  0    done\n"
                               "  1    wrong usage, or something is missing on this machine\n"
                               "  2    plan, bootstrap --dry-run: there are changes\n"
                               "  3    no capacity\n"
                               "  4    quota or no money\n"
                               "  5    credentials of a cloud, or the key of a login or of a host\n"
                               "  6    node unreachable or not bootstrapped\n"
                               "  7    validation failed\n"
                               "  8    something may still be billed\n"
                               "  9    a job failed\n"
                               "  130  cancelled\n";

static void help_list(struct str *out) {
    str_add(out, "gpuprov " GP_VERSION ": launches, bootstraps, validates and destroys GPU nodes from a YAML spec\n\n"
                 "usage: gpuprov VERB [options] [arguments]\n\n");
    for (size_t i = 0; verb_table[i] != NULL; i++) {
        const struct verb *v = verb_table[i];
        if (v->flags & VERB_HIDDEN) continue;
        GP_AUTO_FREE char *left = xasprintf("%s %s", v->name, v->argspec);
        if (strlen(left) > 30) str_addf(out, "  %s\n  %-30s  %s\n", left, "", v->help);
        else str_addf(out, "  %-30s  %s\n", left, v->help);
    }
    str_add(out, "\nexit codes:\n");
    str_add(out, exit_codes_text);
}

static void help_common(bool all, struct str *out) {
    if (all) {
        str_add(out, "\noptions of every verb:\n");
        options_help(common_options, out);
    } else {
        str_add(out, "\n'gpuprov help -a' lists the options of every verb, such as --json and --quiet.\n");
    }
}

void verb_help(const struct verb *verb, bool all, struct str *out) {
    if (verb == NULL) {
        help_list(out);
        help_common(all, out);
        return;
    }
    str_addf(out, "gpuprov %s%s%s\n  %s\n", verb->name, verb->argspec[0] ? " " : "", verb->argspec, verb->help);
    if (verb->details != NULL) str_addf(out, "\n%s", verb->details);
    if (verb->options != NULL) {
        str_add(out, "\noptions:\n");
        options_help(verb->options, out);
    }
    if (verb->examples != NULL) {
        str_add(out, "\nexamples:\n");
        str_add(out, verb->examples);
    }
    help_common(all, out);
}

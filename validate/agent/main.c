/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's command line: verbs, options, check lists. Exit codes of node checks: 0 pass, 1 degraded, 2 fail, 3
 * unknown (also wrong usage). One thread. */
#include "base/gp_base.h"

#include "verbs.h"

#include "base/clock.h"

#include <signal.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"run", verb_run},     {"rank", verb_rank},   {"follow", verb_follow}, {"stop", verb_stop}, {"checks", verb_checks},
    {"train", verb_train}, {"cache", verb_cache}, {"watch", verb_watch},   {"job", verb_job},   {"tree", verb_tree},
};

int args_parse(int argc, char **argv, const struct arg *args, struct gp_error *err) {
    bool seen[32] = {false};
    for (int i = 0; i < argc; i++) {
        size_t k = 0;
        while (args[k].name != NULL && !str_eq(args[k].name, argv[i])) k++;
        const struct arg *a = &args[k];
        if (a->name == NULL) return gp_fail(err, GP_EUSAGE, "unknown option '%s'", argv[i]);
        seen[k] = true;
        if (a->type == ARG_FLAG) {
            *(bool *)a->ret = true;
            continue;
        }
        if (++i == argc) return gp_fail(err, GP_EUSAGE, "%s needs a value", a->name);
        bool ok = true;
        if (a->type == ARG_TEXT) *(const char **)a->ret = argv[i];
        if (a->type == ARG_INT) ok = str_to_i64(argv[i], INT64_MIN, INT64_MAX, a->ret);
        if (a->type == ARG_MS) ok = duration_parse(argv[i], a->ret);
        if (!ok)
            return gp_fail(err, GP_EUSAGE, "%s: '%s' is not a %s", a->name, argv[i],
                           a->type == ARG_MS ? "duration such as 30s" : "whole number");
    }
    for (size_t k = 0; args[k].name != NULL; k++)
        if (args[k].required && !seen[k]) return gp_fail(err, GP_EUSAGE, "%s is missing", args[k].name);
    return 0;
}

static void valid_names(bool gang, struct str *s) {
    for (const struct check_info *c = check_table; c->id != NULL; c++)
        if ((c->level == CHECK_GANG) == gang) str_addf(s, "%s%s", s->len ? ", " : "", c->id);
}

int check_list_parse(const char *ids, bool gang, struct check_list *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    strv_split(&names, ids, ",");
    ret->n = 0;
    if (names.n == 0) return gp_fail(err, GP_EUSAGE, "no check given");
    for (size_t i = 0; i < names.n; i++) {
        const struct check_info *c = check_find(names.v[i]);
        if (c == NULL || (c->level == CHECK_GANG) != gang) {
            GP_AUTO_STR struct str all = {0};
            valid_names(gang, &all);
            return gp_fail(err, GP_EUSAGE, "'%s' is not a %s check; the checks are: %s", names.v[i],
                           gang ? "gang" : "node", all.s != NULL ? all.s : "none");
        }
        int index = (int)(c - check_table);
        for (size_t k = 0; k < ret->n; k++)
            if (ret->items[k] == index) return gp_fail(err, GP_EUSAGE, "check '%s' is given twice", names.v[i]);
        if (ret->n == GP_ARRAY_LEN(ret->items)) return gp_fail(err, GP_EUSAGE, "too many checks");
        ret->items[ret->n++] = index;
    }
    return 0;
}

const struct check_ops *agent_check_ops(const char *id) {
    const struct check_ops *lists[] = {host_checks, gang_checks, agent_kind.gpu_checks};
    for (size_t l = 0; l < GP_ARRAY_LEN(lists); l++)
        for (const struct check_ops *c = lists[l]; c->id != NULL; c++)
            if (str_eq(c->id, id)) return c;
    const struct check_info *info = check_find(id);
    return info != NULL && info->level == CHECK_GPU ? agent_kind.gpu_other : NULL;
}

static bool asks_help(const char *arg) { return str_eq(arg, "--help") || str_eq(arg, "-h") || str_eq(arg, "help"); }

static int usage(const char *what, const char *name) {
    fprintf(stderr, "gpuprov-agent: %s%s; see 'gpuprov-agent --help'\n", what, name);
    return NODE_CHECK_UNKNOWN;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) return usage("no verb given", "");
    if (asks_help(argv[1]) || (argc == 3 && asks_help(argv[2]))) {
        agent_help(stdout);
        return 0;
    }
    if (str_eq(argv[1], "version") || str_eq(argv[1], "--version")) {
        printf("gpuprov-agent %s %s protocol %d\n", GP_VERSION, agent_kind.name, AGENT_PROTOCOL);
        return 0;
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(verbs); i++)
        if (str_eq(verbs[i].name, argv[1])) return verbs[i].run(argc - 2, argv + 2);
    return usage("unknown verb: ", argv[1]);
}

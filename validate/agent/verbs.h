/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's verbs and their options. Each verb returns the exit code. */
#ifndef GP_AGENT_VERBS_H
#define GP_AGENT_VERBS_H

#include "agent.h"

#include <stdio.h>

enum arg_type { ARG_TEXT, ARG_INT, ARG_MS, ARG_FLAG };
struct arg {
    const char *name; /* "--time"; NULL ends the list */
    enum arg_type type;
    bool required;
    void *ret; /* const char **, int64_t *, int64_t *, bool * */
};
/* Options only, no operands. -GP_EUSAGE names the wrong option. */
int args_parse(int argc, char **argv, const struct arg *args, struct gp_error *err);
/* Checks named in "a,b,c" that have level `gang` or not, in the given order, as indexes into
 * check_table; unknown names list the valid ones. */
struct check_list {
    int items[64];
    size_t n;
};
int check_list_parse(const char *ids, bool gang, struct check_list *ret, struct gp_error *err);

int verb_run(int argc, char **argv);
int verb_rank(int argc, char **argv);
int verb_follow(int argc, char **argv);
int verb_stop(int argc, char **argv);
int verb_checks(int argc, char **argv);
int verb_train(int argc, char **argv);
int verb_cache(int argc, char **argv);
int verb_watch(int argc, char **argv);
int verb_job(int argc, char **argv);
int verb_tree(int argc, char **argv);
void agent_help(FILE *to);

#endif

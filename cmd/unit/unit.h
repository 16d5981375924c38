/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of specs as one unit, for plan and up. Every *.yaml and *.yml of the folder is a spec, but: names that begin
 * with '.' or '_', sub folders, and hosts files (a mapping with 'hosts' and without 'name'). A file that is none of
 * these must decode, because a spec that was overlooked would look like one that was removed.
 * The file `gpuprov.unit` of the folder names the unit, in one line. Stacks that are launched from the folder, by
 * `up DIR` or from one of its specs, carry that name in their tags. Only those of the same owner and unit are ever
 * pruned. */
#ifndef GP_CMD_UNIT_H
#define GP_CMD_UNIT_H

#include "cmd/app.h"

#define UNIT_FILE "gpuprov.unit"
#define VERB_FOLDER_DETAILS                                                                               \
    "  DIR is a folder: every *.yaml and *.yml in it is a spec, but hosts files, names that begin with\n" \
    "  '_' or '.', and sub folders. " UNIT_FILE " in it names the unit, which --prune needs.\n"

struct unit_file {
    char *path;
    struct spec *spec;
};
struct unit_folder {
    char *dir;
    char *name;                     /* the unit's; NULL: the folder has no gpuprov.unit */
    VEC_OF(struct unit_file) files; /* by name */
    struct strv skipped;            /* hosts files, and names that begin with '_' */
};
void unit_folder_clear(struct unit_folder *u);
#define GP_AUTO_FOLDER GP_CLEANUP(unit_folder_clear)

bool unit_is_folder(const char *arg);
/* The unit of one spec: that of its folder. *ret is NULL without one, and for standard input; caller frees. */
int unit_of_spec(const char *spec_path, char **ret, struct gp_error *err);
/* Reads the folder. The problems of all files are printed at once, and the error counts them: -GP_EUSAGE. An empty
 * folder and two specs of one name are errors too. prune: gpuprov.unit and an owner must be given. */
int unit_open(struct invocation *inv, const char *dir, bool prune, struct unit_folder *ret, struct gp_error *err);

/* Stacks of the unit, and of the owner, whose name no spec of the folder has. The list is borrowed from `all`.
 * An error (a place that could not be read) leaves those that were found in ret. */
struct unit_left {
    struct stack_view_list all;
    VEC_OF(const struct stack_view *) list;
};
void unit_left_clear(struct unit_left *l);
int unit_find_left(struct engine *e, const struct unit_folder *u, struct unit_left *ret, struct gp_error *err);
void unit_show_left(const struct unit_left *l, FILE *to);
json_t *unit_left_json(const struct unit_left *l); /* new reference */

/* Keeps the error that is worse by the project's order of exit codes. */
void unit_keep_worst(struct gp_error *worst, const struct gp_error *one);

/* plan DIR: exit code 2 if any stack has changes; an error does not hide the other stacks. */
int unit_plan(struct invocation *inv, const char *dir, bool prune, bool markdown, struct gp_error *err);

struct unit_up_opts {
    bool yes, prune;
};
/* up DIR: prunes, then brings up all stacks, side by side within --jobs. */
int unit_up(struct invocation *inv, const char *dir, const struct unit_up_opts *o, struct gp_error *err);

#endif

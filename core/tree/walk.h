/* SPDX-License-Identifier: Apache-2.0 */
/* Lists a folder. Private to core/tree. */
#ifndef GP_TREE_WALK_H
#define GP_TREE_WALK_H

#include "base/clock.h"
#include "tree/frame.h"
#include "tree/ignore.h"
#include "tree/place.h"
#include "tree/tree.h"

struct tree_list {
    VEC_OF(struct tree_entry) all;    /* in the order of tree_path_compare */
    VEC_OF(struct ignore_rule) rules; /* unused fields but dir and pattern: the ignore files that were read, whole */
    struct strv notes;                /* what is not in it, and why */
    uint64_t files, bytes, left_out;
    bool partial; /* a folder could not be read: what is missing may be there */
};
void tree_list_clear(struct tree_list *l);
struct walk_req {
    struct tree_place *place;
    bool ignore;             /* apply ignore files, and leave out .git */
    const struct strv *omit; /* tree_give_opts */
    struct tree_beat beat;
    const struct gp_cancel *cancel;
};
/* Blocks on local files. Folders, regular files and links; everything else is noted. -GP_EIO: the root cannot be read;
 * -GP_EUSAGE: too many entries. */
int tree_walk(const struct walk_req *req, struct tree_list *ret, struct gp_error *err);
/* The entry of one file; false: neither folder, file nor link. link: of it, or NULL. */
bool tree_entry_of(const struct stat *st, const char *path, const char *link, struct tree_entry *ret);
void tree_beat(const struct tree_beat *b);
void tree_note(struct strv *notes, const char *path, const char *why); /* "'path': why", clean */

#endif

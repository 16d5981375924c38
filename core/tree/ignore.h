/* SPDX-License-Identifier: Apache-2.0 */
/* Ignore rules in the syntax of gitignore(5): which paths of a folder are not copied. */
#ifndef GP_TREE_IGNORE_H
#define GP_TREE_IGNORE_H

#include "base/str.h"
#include "base/vec.h"

#define TREE_IGNORE_FILE ".gpuprovignore"
#define TREE_IGNORE_MAX ((size_t)256 << 10) /* bytes of one ignore file */

struct ignore_rule {
    char *dir;     /* of the file that has it: "" or "a/b" */
    char *pattern; /* without '!', without the slashes at both ends */
    bool keep;     /* '!' */
    bool dirs;     /* ended in a slash: folders only */
    bool anchored; /* had a slash before its end: matches the path below dir, else the last name of a path */
};
struct ignore_rules {
    VEC_OF(struct ignore_rule) list;
};
void ignore_clear(struct ignore_rules *r);
void ignore_cut(struct ignore_rules *r, size_t n); /* forgets all but the first n */
/* Adds the lines of an ignore file in folder dir ("" for the root). Later rules win. */
void ignore_add(struct ignore_rules *r, const char *dir, const char *text, size_t n);
/* Whether path itself matches; the caller does not look below an ignored folder. Takes time proportional to the
 * product of the lengths of path and pattern at worst. */
bool ignore_match(const struct ignore_rules *r, const char *path, bool is_dir);

#endif

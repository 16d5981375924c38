/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a folder as text. */
#ifndef GP_TREE_LIST_H
#define GP_TREE_LIST_H

#include "base/error.h"

/* Prints one line of JSON per entry: "path", "type" (folder, file, link), "mode", "size", "mtime", of a link "link",
 * with sums of a file "sha256". Bytes that are no UTF-8 become U+FFFD. ignore: by the rules of ignore files. */
int tree_list_print(const char *root, bool ignore, bool sums, FILE *to, struct gp_error *err);

#endif

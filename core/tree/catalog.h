/* SPDX-License-Identifier: Apache-2.0 */
/* The list that another side sent, in little memory: an entry costs its own name, not its path. Private to core/tree.
 * One thread. */
#ifndef GP_TREE_CATALOG_H
#define GP_TREE_CATALOG_H

#include "base/error.h"
#include "base/vec.h"
#include "tree/frame.h"

#define CATALOG_BYTES_MAX ((size_t)256 << 20) /* of one list: more than 3,000,000 entries with names of 30 bytes */
#define CATALOG_NO_PARENT UINT32_MAX

enum entry_state { ENTRY_NEW, ENTRY_OK, ENTRY_WANTED, ENTRY_BAD };
struct catalog_record {
    uint64_t size, held;
    int64_t mtime_s;
    uint32_t mtime_ns;
    uint32_t parent;  /* index, or CATALOG_NO_PARENT: in the root */
    uint32_t name_at; /* in names: the last part of the path, a NUL, of a link its target and a NUL */
    uint16_t path_len, mode;
    uint8_t name_len, type, racy, state;
};
struct catalog_above {
    uint32_t index;
    size_t len; /* of its path, which `last` begins with */
};
struct catalog {
    VEC_OF(struct catalog_record) all;
    struct tree_buf names;
    char last[TREE_PATH_MAX + 1];      /* the path of the entry that was added last */
    VEC_OF(struct catalog_above) near; /* that entry and those above it */
    uint64_t files, bytes;             /* regular files, their sizes */
    struct tree_entry shown;           /* of catalog_at; its path is path */
    char path[TREE_PATH_MAX + 1];
};
void catalog_clear(struct catalog *c);
/* Appends an entry of entry_get. -GP_EPROTO: not in order, twice, without the folder that it is in, or too much. */
int catalog_add(struct catalog *c, const struct tree_entry *e, struct gp_error *err);
/* Entry i; borrowed, until the next call of this function or of catalog_find. */
const struct tree_entry *catalog_at(struct catalog *c, size_t i);
bool catalog_find(struct catalog *c, const char *path);
size_t catalog_bytes(const struct catalog *c); /* what it holds, in memory */

#endif

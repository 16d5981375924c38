/* SPDX-License-Identifier: Apache-2.0 */
/* A folder in which files are named by relative paths, and no link below it is followed. Private to core/tree. */
#ifndef GP_TREE_PLACE_H
#define GP_TREE_PLACE_H

#include "base/error.h"
#include "base/str.h"
#include "tree/sha256.h"

#include <sys/stat.h>

#define TREE_PART ".gpuprov-part." /* names of a transfer's own files; never copied */
#define TREE_BLOCK ((size_t)1 << 20)
#define TREE_HASH 32
#define TREE_HOLE_MAX ((uint64_t)1 << 30) /* read, hashed or sent at a time: 0.3 ms of hashing */

struct tree_place {
    int root;        /* -1: not open */
    char *near_path; /* the folder that was used last, and its descriptor; NULL: none */
    int near;
};
/* Takes over the descriptor of a folder. */
void place_init(struct tree_place *p, int root);
void place_clear(struct tree_place *p);
/* The folder that holds path: its descriptor (borrowed until the next call), and *ret_name, which points into path.
 * Negative: -errno; -ELOOP or -ENOTDIR: a part of path is a link or no folder. */
int place_parent(struct tree_place *p, const char *path, const char **ret_name);
/* The folder was replaced or removed: the next call looks again. */
void place_forget(struct tree_place *p);

/* The hash of a file's content: SHA-256 over the SHA-256 of each block of 1 MiB and the size, so that holes cost
 * nothing, and the hash of a beginning can be compared. */
struct tree_hash {
    struct sha256 blocks, block;
    size_t in_block;
    uint64_t total;
};
void tree_hash_init(struct tree_hash *h);
void tree_hash_add(struct tree_hash *h, const void *p, size_t n);
void tree_hash_zeros(struct tree_hash *h, uint64_t n);
void tree_hash_end(const struct tree_hash *h, unsigned char ret[TREE_HASH]); /* h can go on */

/* Reads a file in slices, skipping holes. */
struct tree_reader {
    int fd;
    bool sparse;         /* it has holes */
    uint64_t at;         /* the next byte */
    uint64_t end;        /* where reading stops */
    uint64_t data_until; /* up to here there is no hole */
};
void reader_init(struct tree_reader *r, int fd, const struct stat *st, uint64_t at, uint64_t end);
/* The next piece: *ret_n bytes in buf (at most n), or, with *ret_hole, that many zeros (at most TREE_HOLE_MAX), which
 * are not in buf.
 * *ret_n 0: the end, or the file is shorter. 0 or -errno. */
int reader_next(struct tree_reader *r, unsigned char *buf, size_t n, uint64_t *ret_n, bool *ret_hole);

#endif

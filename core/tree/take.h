/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the taker. Private to core/tree. */
#ifndef GP_TREE_TAKE_H
#define GP_TREE_TAKE_H

#include "tree/catalog.h"
#include "tree/side.h"

/* The file that arrives now, under its own name beside its place. */
struct incoming {
    int fd; /* -1: none */
    uint32_t index;
    uint64_t at, size; /* the next byte; the most that may come */
    struct tree_hash hash;
};
/* A beginning that was found and offered to the giver. */
struct beginning {
    bool offered;
    uint32_t index;
    uint64_t offset;
    struct tree_hash hash;
};
struct taker {
    struct tree_take_opts opts;
    struct tree_expect expect; /* its path is `requested` */
    char *root, *requested;
    char *name;    /* the last part of the requested path; NULL: it has none */
    unsigned mask; /* mode bits that no entry gets */
    struct tree_place place;
    bool begun, single, listed, partial, wanted, done;
    char *single_name; /* of the one file, in the folder root */
    char *lock_name;   /* NULL: not locked */
    int lock;
    struct catalog list;
    struct sha256 sum; /* of the list's frames so far */
    /* The file system of the root: what was free before anything came, its size, and what the wanted files need more
     * than those that they replace. */
    bool measured;
    dev_t device;
    uint64_t room, disk, grows;
    size_t rules_bytes;
    size_t looked;  /* entries that were examined */
    size_t want_at; /* of the frame that is being filled; 0: none */
    uint64_t asked, answered;
    VEC_OF(size_t) folders; /* whose mode is set at the end */
    struct ignore_rules rules;
    struct incoming in;
    struct beginning beginning;
    int old_fd; /* the file that is being hashed; -1: none */
    bool old_is_part;
    struct tree_reader reader;
    struct tree_hash hash;
    unsigned char *buf;
};

/* --- take_expect.c --- */
/* What it may be: a file (else a folder). */
int expect_kind(const struct taker *t, bool single, struct gp_error *err);
/* The name of the single file. */
int expect_name(const struct taker *t, const char *name, struct gp_error *err);
int expect_rules(struct taker *t, size_t more, struct gp_error *err);
/* At the end of the list: it is the one that was requested. */
int expect_list_end(const struct taker *t, struct gp_error *err);
bool expect_may_look(const struct taker *t); /* entries may be made before the list has ended, or it has */
/* The content of e fits into the folder `dir`, where `there` is replaced (NULL: nothing) and offset bytes are already;
 * else -GP_EIO, detail DISK_FULL. *ret_never: with its holes it is larger than the whole file system. */
int expect_fits(struct taker *t, const struct tree_entry *e, int dir, const struct stat *there, uint64_t offset,
                bool *ret_never, struct gp_error *err);

/* --- take_root.c --- */
/* Makes and opens the root, or, of a single file named `name`, the folder that it goes to; locks it. */
int take_root(struct taker *t, const char *name, struct gp_error *err);
void take_unlock(struct taker *t);
/* The last name under which the transfer of `name` keeps its file until that is complete. dst: 40 bytes. */
void take_part_name(const char *name, char dst[40]);
/* Opens that file below `dir` and locks it: its descriptor, or -errno; -EWOULDBLOCK: another transfer has it. Only a
 * file of this user with one name; with `make`, another one is replaced. */
int take_part_open(int dir, const char *name, bool make, struct stat *ret);

/* --- take_end.c --- */
/* Modes of folders, removals, sync: after all files. */
int take_end(struct tree_side *s, struct gp_error *err);
/* Removes what is at path, whatever it is, without following links; counts. */
int take_remove(struct tree_side *s, const char *path, struct gp_error *err);

/* --- take_file.c --- */
int take_file_begin(struct tree_side *s, struct tree_cursor *c, struct gp_error *err);
int take_file_data(struct tree_side *s, const unsigned char *p, size_t n, struct gp_error *err);
int take_file_hole(struct tree_side *s, uint64_t n, struct gp_error *err);
int take_file_end(struct tree_side *s, struct tree_cursor *c, struct gp_error *err);
void take_file_close(struct taker *t); /* what arrived stays, for a continuation */
/* Time and mode of a file that is there already. fd: open for reading, or -1: by name. 0 or -errno. */
int take_file_meta(int dir, const char *name, int fd, const struct tree_entry *e);

#endif

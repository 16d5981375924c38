/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of object stores: a prefix of one bucket, in which the files of a job are kept. One implementation per
 * scheme, in the folder of the provider whose credentials it takes; bucket.c has the table. Every slot but close blocks
 * on the network, within the deadlines of its requests, and ends soon after cancellation with -GP_ECANCELLED. Requests
 * are repeated as http.h does. A bucket belongs to one thread at a time. Sizes are bytes.
 *
 * Errors of all slots: -GP_EAUTH (no credentials, or no right), -GP_ENOTFOUND (no such bucket or object),
 * -GP_EENDPOINT, -GP_ELOST, -GP_ETIMEOUT, -GP_ETHROTTLED, -GP_EPROTO (the reply is not sound), -GP_EIO (a file here),
 * -GP_ECANCELLED. The text names the bucket and the next step. */
#ifndef GP_PROVIDERS_BUCKET_H
#define GP_PROVIDERS_BUCKET_H

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"
#include "providers/common/page_mark.h"
#include "providers/http.h"
#include "spec/spec_job.h"

#define BUCKET_WHOLE_MAX ((uint64_t)64 << 20) /* larger files go up in parts */
#define BUCKET_PART ((uint64_t)16 << 20)      /* the least part; also what one request fetches */
#define BUCKET_META_SHA256 "gpuprov-sha256"   /* the name of the metadata that has a file's hash */
#define BUCKET_LIST_MAX ((size_t)256 << 20)   /* bytes of a list in memory: about 2,000,000 objects */
#define BUCKET_PROBE ".gpuprov-check"         /* the object that `check` begins to write and never completes */

struct bucket_object {
    char *path; /* below the prefix: relative, and safe to create in an empty folder (bucket_path_valid) */
    uint64_t size;
    char sha256[65]; /* the hash that gpuprov stored with it, lower case; "": none, or not read yet (stat) */
};
struct bucket_objects {
    VEC_OF(struct bucket_object) list; /* sorted by path, each once */
    size_t bytes;                      /* in memory */
    uint64_t left_out;                 /* keys that are no such path */
    struct strv notes;                 /* the first of them, clean text: "'x': not a path that can be created here" */
};
void bucket_objects_clear(struct bucket_objects *o);
#define GP_AUTO_BUCKET_OBJECTS GP_CLEANUP(bucket_objects_clear)
const struct bucket_object *bucket_objects_find(const struct bucket_objects *o, const char *path); /* NULL: none */

struct bucket_put {
    const char *path; /* below the prefix */
    int fd;           /* a regular file, read with pread; borrowed */
    uint64_t size;
    const char *sha256; /* of its content */
    uint32_t crc32c;    /* likewise */
    /* A file of this machine that notes an upload in parts from its begin until the store has completed it or given it
     * up, so that `abandon` ends one whose gpuprov was killed. */
    const char *note;
};
struct bucket_get {
    const char *path; /* below the prefix */
    int fd;           /* written with pwrite from 0 on; borrowed */
    uint64_t size;    /* as listed */
};
/* How far the transfer in progress is, for who limits it (http_watch). */
struct bucket_progress {
    uint64_t keys;     /* new ones that were listed */
    uint64_t at, more; /* content of the object that is in its place, and what the request in progress can add */
};
struct bucket_ops;
/* Begins the struct of each implementation. */
struct bucket {
    const struct bucket_ops *ops;
    char *name, *prefix, *text; /* text: "s3://BUCKET/PREFIX", for messages */
    struct bucket_progress so_far;
    const struct gp_cancel *cancel; /* of bucket_open; may be NULL */
    const struct http_watch *watch; /* likewise */
};
struct bucket_ops {
    const char *scheme; /* of bucket_url_schemes */
    /* Reads the configuration and the credentials of this machine; sends nothing to the store. cancel and watch outlive
     * it, may be NULL. watch limits all slots, which then fail with -GP_ETIMEOUT. */
    int (*open)(const struct bucket_url *where, const struct gp_cancel *cancel, const struct http_watch *watch,
                struct bucket **ret, struct gp_error *err);
    void (*close)(struct bucket *b);
    /* The bucket exists, and the prefix can be listed, and written: an upload of BUCKET_PROBE is begun and given up, so
     * that no object is made. The error names the rights that are needed. */
    int (*check)(struct bucket *b, struct gp_error *err);
    /* All objects below the prefix. ret: zeroed, cleared by the caller in every case. */
    int (*list)(struct bucket *b, struct bucket_objects *ret, struct gp_error *err);
    /* Reads o->sha256; it stays "" where none is stored. */
    int (*stat)(struct bucket *b, struct bucket_object *o, struct gp_error *err);
    /* Writes an object with its hash as metadata; the store verifies what arrives. Idempotent. Memory: one part. A file
     * whose content is not sha256 any more is -GP_EBUSY, and no object is made of it; an upload in parts that fails is
     * given up in the store too. */
    int (*put)(struct bucket *b, const struct bucket_put *req, struct gp_error *err);
    /* Reads an object in pieces of BUCKET_PART, all of one version. -GP_EPROTO: it has another size. */
    int (*get)(struct bucket *b, const struct bucket_get *req, struct gp_error *err);
    /* Gives up the upload of a note, and removes its parts. Success where the store does not have it any more. NULL:
     * the store does it by itself, and nothing is billed. -GP_EPROTO: not a note. */
    int (*abandon)(struct bucket *b, const char *note, struct gp_error *err);
};
extern const struct bucket_ops *const bucket_registry[]; /* NULL ends */
extern const struct bucket_ops bucket_s3, bucket_gs;

/* Opens what `to` names (spec_job.h). -GP_EUSAGE: it is no such URL. Close with bucket_close. */
int bucket_open(const char *to, const struct gp_cancel *cancel, const struct http_watch *watch, struct bucket **ret,
                struct gp_error *err);
void bucket_close(struct bucket *b); /* accepts NULL */
void bucket_cleanup(struct bucket **b);
#define GP_AUTO_BUCKET GP_CLEANUP(bucket_cleanup)

/* --- for implementations --- */
void bucket_init(struct bucket *b, const struct bucket_ops *ops, const struct bucket_url *where);
void bucket_clear(struct bucket *b);
char *bucket_key(const struct bucket *b, const char *path); /* PREFIX/PATH; caller frees */
/* A relative path without ".", ".." and empty parts, UTF-8, no control characters, parts of at most 255 bytes, and no
 * name of gpuprov's own. n: its bytes, because a key may have a NUL. */
bool bucket_path_valid(const char *path, size_t n);
/* Appends a listed key of n bytes: below the prefix, and valid; else it is noted and left out. Keys that end in '/' are
 * folders of a console and are ignored. sha256: NULL, or what is stored. -GP_EPROTO: more than BUCKET_LIST_MAX. */
int bucket_objects_add(const struct bucket *b, struct bucket_objects *o, const char *key, size_t n, uint64_t size,
                       const char *sha256, struct gp_error *err);
void bucket_objects_sort(struct bucket_objects *o);
/* The list of one call. A page that brings none but known keys, or has the token of an earlier one, is an error. */
struct bucket_pages {
    char *token; /* of the page to ask for; NULL: there is none, or it is the first */
    struct page_mark mark;
    int empty;
    size_t at; /* objects of the pages before */
    uint64_t left_out;
    struct hash_key key; /* of the hashes: who writes to the bucket chooses the keys */
    uint64_t *keys;      /* hashes of all keys; 0: free */
    size_t len, room;
    uint64_t looks; /* at places of `keys`, in all */
};
void bucket_pages_clear(struct bucket_pages *p);
#define GP_AUTO_BUCKET_PAGES GP_CLEANUP(bucket_pages_clear)
/* After the objects of a page were added. next: the token of the next one; NULL: this was the last, and o is sorted.
 * Looks at the bucket's cancel and watch meanwhile. */
int bucket_pages_next(struct bucket *b, struct bucket_pages *p, struct bucket_objects *o, const char *next,
                      struct gp_error *err);
/* The next request moves n bytes of content from `at` on; bucket_moved: they are in their place. */
static inline void bucket_moves(struct bucket *b, uint64_t at, uint64_t n) {
    b->so_far.at = at;
    b->so_far.more = n;
}
static inline void bucket_moved(struct bucket *b, uint64_t at) { bucket_moves(b, at, 0); }
/* Reads exactly n bytes. -GP_EBUSY: the file has become shorter. */
int bucket_read(int fd, uint64_t at, void *ret, size_t n, struct gp_error *err);
int bucket_write(int fd, uint64_t at, const void *p, size_t n, struct gp_error *err);
bool bucket_sha256_valid(const char *s); /* 64 of 0-9a-f */
/* The size of a part of an upload: BUCKET_PART, more where that were too many parts. */
uint64_t bucket_part_size(uint64_t size);
/* CRC-32C of more bytes; begins with 0. */
uint32_t bucket_crc32c(uint32_t crc, const void *p, size_t n);

#endif

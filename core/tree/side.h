/* SPDX-License-Identifier: Apache-2.0 */
/* What giver and taker share. Private to core/tree. */
#ifndef GP_TREE_SIDE_H
#define GP_TREE_SIDE_H

#include "tree/frame.h"
#include "tree/place.h"
#include "tree/tree.h"
#include "tree/walk.h"

#define TREE_OUT_HIGH ((size_t)256 << 10) /* of bytes that wait to be sent: produce no more */
#define TREE_SLICE ((size_t)128 << 10)    /* read, hashed or sent at a time */

struct giver;
struct taker;
struct tree_side {
    struct giver *giver; /* one of them */
    struct taker *taker;
    bool greeted; /* frames follow */
    bool ended, remote;
    struct tree_buf in, out;
    struct tree_stats stats;
    uint64_t moved;               /* bytes: sent, and of whole frames that are progress */
    struct tree_work own, theirs; /* entries and hashed: of this side; as the other side's last ping has it */
};

struct giver *giver_new(const struct tree_give_opts *opts);
void giver_free(struct giver *g);
/* Decodes a list (frames BEGIN to LISTED) into g, as if it had been walked. */
int giver_preset(struct giver *g, const void *list, size_t n, struct gp_error *err);
bool giver_lists(const struct giver *g); /* not all of the list is in the stream yet */
bool giver_single(const struct giver *g);
int giver_frame(struct tree_side *s, enum tree_frame type, struct tree_cursor *c, struct gp_error *err);
int giver_work(struct tree_side *s, enum tree_state *ret, struct gp_error *err);
const struct gp_cancel *giver_cancel(const struct giver *g);

struct taker *taker_new(const struct tree_take_opts *opts, const struct tree_expect *expect);
void taker_free(struct taker *t);
int taker_frame(struct tree_side *s, enum tree_frame type, struct tree_cursor *c, struct gp_error *err);
int taker_work(struct tree_side *s, enum tree_state *ret, struct gp_error *err);
const struct gp_cancel *taker_cancel(const struct taker *t);
void taker_list_frame(struct taker *t, const struct tree_cursor *c); /* one that may be of the list, as it came */

/* Counts and notes that path is not copied, and reports it to the other side. */
void side_left_out(struct tree_side *s, const char *path, const char *why);
/* --- request.c --- */
void request_put(struct tree_buf *b, const struct tree_request *r);
/* --- sums.c --- */
bool sums_find(struct tree_sums *s, size_t index, const struct tree_entry *e, unsigned char ret[TREE_HASH]);
void sums_keep(struct tree_sums *s, size_t index, const struct tree_entry *e, const unsigned char hash[TREE_HASH]);

int side_fail(struct tree_cursor *c, struct gp_error *err); /* a FAIL frame as an error */
int side_nonsense(struct gp_error *err, const char *what);  /* -GP_EPROTO */
/* -GP_EIO "could not WHAT 'path': ..." with detail and next step of a full disk. */
int side_io(struct gp_error *err, int errnum, const char *what, const char *path);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* How long the transfers of buckets wait for a store, by pace.h: content in its place, objects that are done and keys
 * that are listed count. One thread at a time. */
#ifndef GP_ENGINE_BUCKET_PACE_H
#define GP_ENGINE_BUCKET_PACE_H

#include "engine/transfer/pace.h"
#include "providers/bucket/bucket.h"

struct bucket_pace {
    struct http_watch watch; /* for bucket_open; it leads here, so the struct must not move */
    struct bucket *b;        /* in transfer; NULL: none yet */
    struct pace pace;
    int64_t limit_ms, end_ms; /* end_ms: monotonic; 0: no limit was given */
    struct tree_work done;    /* of all buckets; base: before the attempt */
    struct tree_work base;
    uint64_t keys, top; /* of b: what is counted of its keys; the furthest byte of this object */
    int silent;         /* attempts in a row without progress */
    enum pace_fate fate;
};
/* limit_ms: for all that follows, from now on; 0: that of pace.h. */
void bucket_pace_init(struct bucket_pace *p, int64_t limit_ms);
/* bucket_open with this limit. A place has new chances to make progress, not new time. */
int bucket_pace_open(struct bucket_pace *p, const char *to, const struct gp_cancel *cancel, struct bucket **ret,
                     struct gp_error *err);
/* An object was looked at or moved: the next one begins. p may be NULL. */
void bucket_pace_object(struct bucket_pace *p);
/* What became of the transfer with the place `to`: r and err, but the limit if that has ended it. The bucket may be
 * closed afterwards. */
int bucket_pace_end(struct bucket_pace *p, const char *to, int r, struct gp_error *err);

#endif

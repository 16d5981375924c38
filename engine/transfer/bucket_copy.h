/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between a folder of this machine and a prefix of a bucket: only what differs, compared by size and by the
 * SHA-256 that gpuprov stored with each object. Blocks on the network. One thread.
 *
 * Regular files are copied; a link to a file inside the folder is sent as that file. Links that lead elsewhere, files
 * that cannot be read and names that no key can have are left out with a note. Empty folders, modes and times are not
 * kept: objects have none. Nothing is removed from the bucket.
 *
 * pace: with which b was opened; NULL: without. ret: zeroed; filled as far as known also after an error. Errors: those
 * of bucket.h. Both may be repeated and go on with what is left. */
#ifndef GP_ENGINE_BUCKET_COPY_H
#define GP_ENGINE_BUCKET_COPY_H

#include "engine/transfer/bucket_pace.h"
#include "providers/bucket/bucket.h"
#include "tree/tree.h"

/* An absent folder has no files. *ret_links: how many of ret->left_out are links to folders of it, whose files are sent
 * under their own names. note: a file beside the folder (struct bucket_put), which also ends the upload of a
 * killed gpuprov. */
int bucket_up(struct bucket *b, struct bucket_pace *pace, const char *folder, const char *note, struct tree_stats *ret,
              uint64_t *ret_links, struct gp_error *err);
/* Into a folder of this process alone, made where absent. What is there and is not in the bucket is removed
 * first: an earlier call that was killed may have left it. A file whose hash differs from the stored one is removed:
 * -GP_EPROTO. */
int bucket_down(struct bucket *b, struct bucket_pace *pace, const char *folder, struct tree_stats *ret,
                struct gp_error *err);

#endif

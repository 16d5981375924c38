/* SPDX-License-Identifier: Apache-2.0 */
/* The images of local nodes:
 *   BASE/.images/UID/image.json   owner, name, uid, spec_hash, times, what the image has
 *   BASE/.images/UID/u/           uppers of the node: lower layers of the nodes made from it
 *   BASE/.images/UID/root/        its own root beside the overlays, copied into each node
 *   BASE/.images/.new-UID         being saved by the holder of that stack, or cut
 * Internal to providers/local. */
#ifndef GP_LOCAL_IMAGES_H
#define GP_LOCAL_IMAGES_H

#include "providers/provider.h"

#define LOCAL_IMAGE_RECORD "image.json"
#define LOCAL_IMAGE_PREFIX "local-image-" /* and the uid: the image's id */

/* What an open provider has for it; borrowed. */
struct local_images {
    const char *base;
    struct journal *journal;
    struct gp_cancel *cancel;
};
/* image_ops.make of the local provider (image_make.c). */
int local_image_make(const struct local_images *l, const struct image_req *q, struct resource *ret,
                     struct gp_error *err);

char *local_image_dir(const char *base, const char *uid); /* caller frees */
char *local_image_new(const char *base, const char *uid); /* caller frees */

/* Those of the owner (NULL: any). One that cannot be read fails it at the end: ret has all others then. */
int local_images_list(const char *base, const char *owner, struct resource_list *ret, struct gp_error *err);
/* -GP_EBUSY: nodes use it. Absent: success. */
int local_image_remove(const char *base, const struct resource *image, const struct gp_cancel *cancel,
                       struct gp_error *err);
/* Removes what cut saves left. */
void local_images_tidy(const char *base);
/* The image for a spec's nodes: id as an offer has it ("local-image-UID"), or "" where the spec wants none. Caller
 * frees. -GP_EUSAGE: the spec requires one, and none fits. ret_name: for people; caller frees. */
int local_image_choose(const char *base, const char *owner, const struct spec *spec, size_t index, char **ret_id,
                       char **ret_name, struct gp_error *err);
/* The record of an image, as `save` gets it. NULL: a text is not UTF-8. Caller frees. */
char *local_image_record(const struct image_req *req, int64_t node_created_s);

#endif

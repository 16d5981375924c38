/* SPDX-License-Identifier: Apache-2.0 */
/* Baked images as a table and as JSON. */
#ifndef GP_CMD_IMAGE_SHOW_H
#define GP_CMD_IMAGE_SHOW_H

#include "cmd/app.h"

json_t *image_json(const struct resource *r); /* new reference */
json_t *images_json(const struct resource_list *l);
void show_images(const struct resource_list *l, FILE *to);

#endif

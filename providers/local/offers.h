/* SPDX-License-Identifier: Apache-2.0 */
/* The slot `offers` of the local provider (providers/provider.h). */
#ifndef GP_LOCAL_OFFERS_H
#define GP_LOCAL_OFFERS_H

#include "providers/provider.h"

#define LOCAL_REGION "here" /* its only region */

int local_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                 struct gp_error *err);

/* local.c: the image that the provider's own folder has for it; see local_image_choose. */
int local_offered_image(struct provider *p, const struct spec *spec, size_t index, char **ret_id, char **ret_name,
                        struct gp_error *err);
const char *local_folder(struct provider *p); /* local.c: the folder that has the nodes' files */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine/: baked images at one provider. */
#ifndef GP_ENGINE_IMAGES_H
#define GP_ENGINE_IMAGES_H

#include "engine/run/run.h"

/* The images and snapshots of the provider's owner, in every region that --in allows. */
int images_at(struct run *run, struct provider *p, struct resource_list *ret, struct gp_error *err);
/* Writes the proofs that images and snapshots of the list lack although they are ours: bake was cut before it did, or
 * somebody edited their tags. Needs the signing key. A cloud that refuses is a warning, because this machine knows them
 * by its journal. */
void images_prove(struct run *run, struct provider *p, const struct resource_list *listed);
/* Removes them and waits until no list has them. */
int images_destroy(struct run *run, struct provider *p, const struct resource_list *what, struct gp_error *err);

#endif

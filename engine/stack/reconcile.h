/* SPDX-License-Identifier: Apache-2.0 */
/* The cloud is the truth, the journal a memory of intentions: this makes them agree. */
#ifndef GP_ENGINE_RECONCILE_H
#define GP_ENGINE_RECONCILE_H

#include "engine/run/run.h"

/* Reads the cloud and makes journal and run agree: resources, nodes by slot, duplicates. */
int reconcile(struct run *run, struct gp_error *err);
/* Merges one listing into run->nodes / run->others and the journal. */
int reconcile_listing(struct run *run, const struct resource_list *seen, struct gp_error *err);

#endif

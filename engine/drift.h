/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody changed by hand on a running stack, field by field, as far as a list of its resources shows it. */
#ifndef GP_ENGINE_DRIFT_H
#define GP_ENGINE_DRIFT_H

#include "engine/run/run.h"

/* Appends a change for each field of a resource that is not as gpuprov made it: rules of a group that access.ssh_from
 * does not list or that are missing, the tags `expires` and `hostkey` of a node, the type and the market that it was
 * launched with, and tags that do not decode any more. CHANGE_REPAIR where `up` restores it, else
 * CHANGE_REFUSE. Compares rules only if the spec's access is that of the stack. Reads the journal; queries nothing, and
 * connects to no node. */
int drift_find(const struct run *run, struct plan_changes *ret, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The first half of the verb up, for verbs that work on the machines of a spec. */
#ifndef GP_ENGINE_UP_H
#define GP_ENGINE_UP_H

#include "engine/run/run.h"

/* From the spec to launched machines; reads the secrets. */
int up_get_machines(struct run *run, struct up_result *ret, struct gp_error *err);

#endif

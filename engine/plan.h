/* SPDX-License-Identifier: Apache-2.0 */
/* What plan and up share: the offers of a spec. */
#ifndef GP_ENGINE_PLAN_H
#define GP_ENGINE_PLAN_H

#include "engine/run/run.h"

/* Every offer of the spec, ranked. An entry that has none is reported; the call fails only if all have none. */
int plan_offers(struct run *run, struct offer_list *ret, struct gp_error *err);

#endif

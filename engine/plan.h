/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the offers of a spec, for plan and up. */
#ifndef GP_ENGINE_PLAN_H
#define GP_ENGINE_PLAN_H

#include "engine/run/run.h"

/* Finds every offer of the spec, ranked. An entry without one is reported; the call fails only if no entry has one. */
int plan_offers(struct run *run, struct offer_list *ret, struct gp_error *err);

#endif

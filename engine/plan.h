/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the offers of a spec, and what `up` would do: for plan and up. */
#ifndef GP_ENGINE_PLAN_H
#define GP_ENGINE_PLAN_H

#include "engine/stack/reconcile.h"

/* Finds every offer of the spec, ranked. An entry without one is reported; the call fails only if no entry has one. */
int plan_offers(struct run *run, struct offer_list *ret, struct gp_error *err);
/* What `up` would do after reconcile() and claim_may_go_on(). Changes nothing. If nodes are missing, the offers are
 * queried into run->offers. The caller clears ret, after success only. */
int plan_make(struct run *run, const struct finding *found, struct plan *ret, struct gp_error *err);
/* Of plan_make: adds the typed changes and the state. Reads the journal. */
int plan_describe(const struct run *run, const struct finding *found, struct plan *p, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a stack, its cost until its deadline, and the limits of the spec on both. */
#ifndef GP_ENGINE_COST_H
#define GP_ENGINE_COST_H

#include "engine/run/run.h"

/* A price of 0, or one that is no number, is not known where nodes cost money: else an offer without a figure would be
 * the cheapest, and below every limit. */
void cost_drop_zero(const struct provider_ops *ops, struct offer_list *l);

struct cost {
    double usd_per_h; /* of all nodes; negative: not known */
    double usd;       /* of the whole stack from its launch until its deadline; negative: not known */
};
/* With `missing` more nodes at `price` (USD/h of one). Call it after claim_may_go_on. */
struct cost cost_of(const struct run *run, int missing, double price);
/* What the machines of the stack cost so far, those that are no longer there included: by the journal. -1: a price is
 * not known. */
double cost_so_far(const struct run *run);
/* Drops and reports the offers from `first` on that limits.max_price or limits.max_cost forbids for `missing` nodes;
 * -GP_EMONEY if none remains. */
int cost_check(const struct run *run, size_t first, int missing, struct offer_list *l, struct gp_error *err);
/* Adds a note for nodes that run and exceed the limits: limits forbid only launches. */
void cost_notes(const struct run *run, struct strv *notes);

/* How long `missing` nodes at this price may live by limits.max_cost: whole minutes, 10 at least. 0: limits.ttl
 * decides, because the spec has one or nodes exist. */
int64_t cost_ttl_ms(const struct run *run, int missing, double price);
/* A warning once 80 % of limits.max_cost are spent, else NULL. Caller frees. */
char *cost_near_limit(const struct run *run);

#endif

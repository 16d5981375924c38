/* SPDX-License-Identifier: Apache-2.0 */
/* The providers that a run has open. */
#ifndef GP_ENGINE_RUN_PROVIDER_H
#define GP_ENGINE_RUN_PROVIDER_H

#include "engine/run/run.h"

/* Opens one for an owner (NULL: its own) and leaves the run as it is. Any thread. */
int run_provider_open(const struct run *run, const struct provider_ops *ops, const char *owner, struct provider **ret,
                      struct gp_error *err);
/* The open one of that name; NULL: it is not open. */
struct provider *run_provider_opened(const struct run *run, const char *name);
/* Opens a provider once per run; the first decides an owner that is not known yet. Borrowed: run_close closes it. */
int run_provider(struct run *run, const char *name, struct provider **ret, struct gp_error *err);
/* The same for buying nodes there: -GP_EAUTH where the stack must not (owner_check_new_place), and it is closed. */
int run_offer_provider(struct run *run, const char *name, struct provider **ret, struct gp_error *err);
/* Decides the owner (owner.h) and opens every provider of the spec's offers: nodes may be at any of them. One that does
 * not open is reported and noted in run->look.covered, wherever the spec names it; the call fails when none opens, or
 * when it is the home that the journal knows. run->home: that home, else the first provider of the spec that opened. */
int run_open_offers(struct run *run, struct gp_error *err);
/* The longest time that a list of the open providers may lag, and the pause between two lists. */
int64_t run_settle_ms(const struct run *run);
int64_t run_pause_ms(const struct run *run);
int64_t run_cloud_s(const struct run *run, const char *provider); /* that provider's clock, wall seconds */

#endif

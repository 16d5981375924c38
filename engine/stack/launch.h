/* SPDX-License-Identifier: Apache-2.0 */
/* Launches machines. */
#ifndef GP_ENGINE_LAUNCH_H
#define GP_ENGINE_LAUNCH_H

#include "engine/run/run.h"

/* Launches the missing nodes of the spec, gang-wise, offer after offer. If no offer has the rest, it destroys the
 * nodes that it launched. */
int launch_missing(struct run *run, const struct offer_list *offers, struct gp_error *err);
/* Repeats a launch whose outcome is unknown, with its own token and body. */
int launch_replay(struct run *run, const struct intent *intent, struct gp_error *err);
/* The same; a refusal that closed the intent is success, because nothing was launched. */
int launch_settle(struct run *run, const struct intent *in, struct gp_error *err);

#endif

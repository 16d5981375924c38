/* SPDX-License-Identifier: Apache-2.0 */
/* Creating machines. */
#ifndef GP_ENGINE_LAUNCH_H
#define GP_ENGINE_LAUNCH_H

#include "engine/run/run.h"

/* Creates what is missing of slots [0, n), gang-wise, offer after offer. When it fails because no offer has the rest,
 * nothing that it made is left. */
int launch_missing(struct run *run, const struct offer_list *offers, struct gp_error *err);
/* Asks again for a launch whose outcome is unknown, with its own token and body. */
int launch_replay(struct run *run, const struct intent *intent, struct gp_error *err);
/* The same; a refusal that ended the intent is success: it made nothing. */
int launch_settle(struct run *run, const struct intent *in, struct gp_error *err);

#endif

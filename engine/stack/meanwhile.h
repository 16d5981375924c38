/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to a stack by another gpuprov while this one waited for the stack's lock. */
#ifndef GP_ENGINE_MEANWHILE_H
#define GP_ENGINE_MEANWHILE_H

#include "engine/run/run.h"

/* run_lock, then a comparison of the journal's stack with that before the wait. -GP_EBUSY: it was destroyed, or it
 * got another spec than the run's; nothing was launched. opts.even_if_changed skips the comparison. Needs run->spec. */
int meanwhile_lock(struct run *run, struct gp_error *err);

#endif

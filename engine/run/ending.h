/* SPDX-License-Identifier: Apache-2.0 */
/* How down and gc continue when a provider cannot be queried or the journal cannot be written. */
#ifndef GP_ENGINE_ENDING_H
#define GP_ENGINE_ENDING_H

#include "engine/run/run.h"

/* Opens a provider that may have resources. When ending, a provider that does not open is recorded as not looked at,
 * and 0 is returned. */
int ending_provider(struct run *run, const char *name, struct gp_error *err);
/* Returns r. When ending, a failed write is reported and kept in the run, and 0 is returned, because destroying
 * billed resources comes first. So it is in a run without the stack's lock, because it only reads. err must not be
 * NULL. */
int ending_wrote(struct run *run, int r, struct gp_error *err);
/* Call it when everything visible is gone. -GP_EBILLED: a place where something may be billed was not looked at;
 * -GP_EIO: a record could not be written; else 0. */
int ending_verdict(struct run *run, const struct down_result *done, struct gp_error *err);

#endif

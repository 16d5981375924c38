/* SPDX-License-Identifier: Apache-2.0 */
/* What down and gc owe when a cloud cannot be asked or the journal cannot be written. */
#ifndef GP_ENGINE_ENDING_H
#define GP_ENGINE_ENDING_H

#include "engine/run/run.h"

/* Opens a provider that may hold something; when ending, one that does not open is noted as not looked at
 * instead. */
int ending_provider(struct run *run, const char *name, struct gp_error *err);
/* Passes r on; when ending, a record that could not be written is remembered and reported, and 0 returned:
 * ending what is billed comes before writing it down. err must not be NULL. */
int ending_wrote(struct run *run, int r, struct gp_error *err);
/* After everything that could be seen is gone: -GP_EBILLED for what could not be looked at, -GP_EIO for what
 * could not be written down, else 0. */
int ending_verdict(struct run *run, const struct down_result *done, struct gp_error *err);

#endif

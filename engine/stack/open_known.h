/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a run over an existing stack. Spec and owner come from the journal if they are not given. */
#ifndef GP_ENGINE_OPEN_KNOWN_H
#define GP_ENGINE_OPEN_KNOWN_H

#include "engine/run/run.h"

/* Every provider that may hold it is opened: the spec's, the journal's, else all that open. */
int run_open_known(struct engine *e, const struct spec *spec, const char *name, struct run **ret, struct gp_error *err);
/* The same for down and gc: a provider that does not open is recorded in run->look.covered. */
int run_open_ending(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                    struct gp_error *err);
/* The same for status: likewise recorded. */
int run_open_looking(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                     struct gp_error *err);
/* From the journal alone: opens no provider. */
int run_open_remembered(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                        struct gp_error *err);
/* As run_open_known, with the spec of the journal, which an edited file does not replace. `spec`, or NULL: used if the
 * journal has none, so that its access.key logs in from another machine. */
int run_open_journaled(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                       struct gp_error *err);

#endif

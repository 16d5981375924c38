/* SPDX-License-Identifier: Apache-2.0 */
/* Runs over a stack that should exist: spec and owner come from the journal where they are not given. */
#ifndef GP_ENGINE_OPEN_KNOWN_H
#define GP_ENGINE_OPEN_KNOWN_H

#include "engine/run/run.h"

/* Every provider that may hold it is opened: the spec's, the journal's, else all that open. */
int run_open_known(struct engine *e, const struct spec *spec, const char *name, struct run **ret, struct gp_error *err);
/* The same to end it: a provider that does not open is noted in run->look.covered. */
int run_open_ending(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                    struct gp_error *err);
/* The same to show it: likewise noted. */
int run_open_looking(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                     struct gp_error *err);
/* The journal's memory of it alone: no provider is opened. */
int run_open_remembered(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                        struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one stack below the state folder: login key, ssh config, certificate key. */
#ifndef GP_ENGINE_STACK_DIR_H
#define GP_ENGINE_STACK_DIR_H

#include "engine/engine.h"

/* STATE/stacks/UID; caller frees. A uid without its form is refused (-GP_EENV): this is the one place that makes
 * a path of it. */
int stack_dir_path(const struct engine *e, const char *uid, char **ret, struct gp_error *err);
/* Removes it. A uid without its form (somebody edited the journal) has no folder: success. */
int stack_dir_remove(const struct engine *e, const char *uid, struct gp_error *err);

#endif

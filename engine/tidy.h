/* SPDX-License-Identifier: Apache-2.0 */
/* Removes old files from the state folder. */
#ifndef GP_ENGINE_TIDY_H
#define GP_ENGINE_TIDY_H

#include "engine/engine.h"

/* Removes locks that nobody holds. For stacks that are gone, removes event logs a month after the last line, and
 * histories half a year after the last run. Never fails. */
void engine_tidy(struct engine *e);

#endif

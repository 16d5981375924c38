/* SPDX-License-Identifier: Apache-2.0 */
/* House-keeping in the state folder. */
#ifndef GP_ENGINE_TIDY_H
#define GP_ENGINE_TIDY_H

#include "engine/engine.h"

/* Removes what the state folder need not keep: locks that nobody holds, event logs of stacks that are
 * gone, a month after their last line, and their histories. Never fails. */
void engine_tidy(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The consoles of nodes that were unreachable. */
#ifndef GP_ENGINE_CONSOLE_H
#define GP_ENGINE_CONSOLE_H

#include "engine/run/run.h"

/* How long a node may take until it accepts a login: the spec's, else that of its type. */
int64_t console_access_ms(const struct run *run, const struct resource *res);
/* Reports the last lines of the console of each node with `unreached`; of many nodes, of the first ones. The watcher
 * must be stopped, because the providers belong to it. */
void console_report(struct run *run);

#endif

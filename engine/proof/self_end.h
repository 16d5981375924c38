/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that end themselves with a credential of the cloud (provider_ops.self_end): it is made before the work on the
 * nodes, handed over at its end, and confirmed afterwards. Both run in the verb's thread. */
#ifndef GP_ENGINE_SELF_END_H
#define GP_ENGINE_SELF_END_H

#include "engine/run/run.h"

/* Makes the credentials of all nodes that are worked on. */
int self_end_prepare(struct run *run, struct gp_error *err);
/* Lets the cloud show which nodes have used theirs. The credentials leave this process's memory. */
int self_end_confirm(struct run *run, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Notices of a cloud, in its metadata service, that it is about to take a spot node back. */
#ifndef GP_AGENT_PREEMPT_H
#define GP_AGENT_PREEMPT_H

#include "base/error.h"

struct preempt_source;
/* The source of a cloud, by its name in a spec: "aws"; NULL: its nodes get no notice. */
const struct preempt_source *preempt_source_find(const char *cloud);

enum preempt_state { PREEMPT_NONE, PREEMPT_NOTICED };
/* Asks the metadata service once. *ret_when_s: when the node is taken, wall seconds; 0: not stated. -GP_EREACH: no
 * answer, or one that is not understood. Blocks until deadline_ms (monotonic) at most. */
int preempt_look(const struct preempt_source *s, int64_t deadline_ms, enum preempt_state *ret, int64_t *ret_when_s,
                 struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A job has ended, and some of its nodes still have files that are not here: they alone stay. The verb's thread. */
#ifndef GP_ENGINE_JOB_OWED_H
#define GP_ENGINE_JOB_OWED_H

#include "engine/job/job_end.h"
#include "engine/job/job_session.h"

/* Destroys the nodes that owe no files (struct job_node), while others do; those that gpuprov does not launch stay.
 * First the job's own result (its: GP_OK, or why it failed) and the nodes that stay are kept for the `run` that fetches
 * the rest, so that the loss of the others is no failure of the job. What fails is reported by an event: then more
 * nodes stay. Blocks until the machines terminate. */
void job_owed_end_others(struct job_session *s, const struct gp_error *its);
/* A clause about the nodes that stay: "node 1 stays until its deadline, because it has"; caller frees. */
char *job_owed_text(const struct job_session *s);
/* For a stack with such a result, whose machines are listed: s->ret becomes the job's, the nodes are connected, and
 * only those that owe files are asked for them. *ret_lost: the first of them whose machine is gone, and with it the
 * files; GP_OK: none. -GP_EBUSY: a node has another job by now, so the stack is in use again. */
int job_owed_open(struct job_session *s, struct job_end *end, struct gp_error *ret_lost, struct gp_error *err);

#endif

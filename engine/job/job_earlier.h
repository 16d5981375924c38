/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier job left on the nodes. The verb's thread. */
#ifndef GP_ENGINE_JOB_EARLIER_H
#define GP_ENGINE_JOB_EARLIER_H

#include "engine/job/job_session.h"

/* Before another job begins: if one has ended whose outputs nobody fetched (a detached one, a cancelled one), they are
 * fetched, by the paths of the spec. *ret_left: they could not be, and are still on a node; the error names the job. */
int job_earlier_fetch(struct job_session *s, bool *ret_left, struct gp_error *err);

#endif

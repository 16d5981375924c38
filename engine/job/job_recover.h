/* SPDX-License-Identifier: Apache-2.0 */
/* What `run` does about a job that failed because of a node, not by itself: nodes that the cloud took back, machines
 * that are gone, and by job.on_unhealthy nodes with a fault. The verb's thread. */
#ifndef GP_ENGINE_JOB_RECOVER_H
#define GP_ENGINE_JOB_RECOVER_H

#include "engine/job/job_session.h"

/* For a failed job whose files were fetched. Queries the providers under the stack's lock. If nodes have to be launched
 * again, and may be (job.recover, deadline), it gives back those of them that still exist, marks the job as collected
 * on the others, and copies the stack's uid to ret_uid. ret_uid "": the job's failure is final; an event has the reason
 * unless the job failed by itself. Blocks until the machines terminate. -GP_EBILLED: one of them does not;
 * -GP_ECANCELLED. */
int job_recover_give_back(struct job_session *s, char ret_uid[17], struct gp_error *err);
/* Whether the next `run` may still launch nodes again for this job, which failed: a node is gone or has reported a
 * fault, and the spec allows one more. */
bool job_recover_may_follow(const struct job_session *s);
/* A node that exists has reported a fault during the job, and by job.on_unhealthy must not be used again. */
bool job_recover_is_needed(const struct job_session *s);
/* The text of struct job_replaced that equals this one, static; NULL: there is none. */
const char *job_recover_why(const char *text);
/* For verbs that launch nothing: an event, if the job failed because of nodes that `run` would launch again. */
void job_recover_note(const struct job_session *s);

#endif

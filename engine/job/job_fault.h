/* SPDX-License-Identifier: Apache-2.0 */
/* What a job that leaves its nodes means for them: a node with a fault is not ready any more. The verb's thread. */
#ifndef GP_ENGINE_JOB_FAULT_H
#define GP_ENGINE_JOB_FAULT_H

#include "engine/job/job_session.h"

/* Records each node of which this call has a finding of severity "fail" as failed, with the finding as its note:
 * `status` shows it, no job starts on it, and `up` validates it again. Takes the stack's lock and drops it. A record
 * that cannot be written is an event. */
void job_fault_record(struct job_session *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A notice that the cloud takes the node back: the job's text `preempt` gets its time, then the job is ended. One
 * thread; nothing here blocks. */
#ifndef GP_AGENT_JOB_PREEMPT_H
#define GP_AGENT_JOB_PREEMPT_H

#include "validate/agent/job/job_request.h"

#include <sys/types.h>

struct job_preempt {
    bool noticed;
    pid_t pid;      /* of the text's shell; 0: it does not run */
    bool killed;    /* it took too long */
    int64_t end_at; /* monotonic: when it has taken too long; GP_NEVER: it does not run */
    int64_t limit_s;
    char text[280]; /* why the job ends, for people */
};
#define JOB_PREEMPT_NONE \
    { .end_at = GP_NEVER }

/* How long the text may run: 90 s, and until 30 s before the time stated, or half of the time that is left if that is
 * less than a minute: Azure announces 30 s ahead. when_s 0, or a time that is over by this node's clock, which may be
 * wrong: not stated. Pure. */
int64_t job_preempt_limit_s(int64_t when_s, int64_t now_s);
/* Takes the notice and starts the text, if there is one and if there is time for it. out: the pipe of the job's log. */
void job_preempt_begin(struct job_preempt *p, const struct job_request *q, const char *dir, int64_t when_s, int out);
/* Ends a text that took too long. Call it at end_at. */
void job_preempt_tick(struct job_preempt *p);
/* Lets the text end now. */
void job_preempt_hurry(struct job_preempt *p);
/* waitpid returned its pid. */
void job_preempt_reaped(struct job_preempt *p, int status);
bool job_preempt_runs(const struct job_preempt *p);
/* The job has to end. */
bool job_preempt_due(const struct job_preempt *p);

#endif

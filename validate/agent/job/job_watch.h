/* SPDX-License-Identifier: Apache-2.0 */
/* The health watch beside a job: a child of the supervisor that runs the verb `watch`. It is none of the job's
 * processes, ends with the supervisor however that ends, and never ends the job: a watch that does not start, ends, is
 * silent or prints rubbish is a finding "blind". One thread; nothing here blocks. */
#ifndef GP_AGENT_JOB_WATCH_H
#define GP_AGENT_JOB_WATCH_H

#include "validate/agent/job/job_health.h"
#include "validate/agent/job/job_procs.h"

#include <sys/types.h>

struct job_watch {
    pid_t pid; /* 0: it does not run (any more) */
    int out;   /* its output, not blocking; -1: none */
    struct job_spared procs;
    char line[HEALTH_LINE_MAX]; /* its bytes without a newline so far */
    size_t n;
    bool cut;        /* the rest of a line that was too long is skipped */
    int64_t rubbish; /* bytes of lines that are not understood */
    bool told;       /* of them */
    char blind[160]; /* a finding that job_watch_next has not returned yet; "": none */
    bool late;       /* it has been silent for too long */
    bool asked;      /* its end was requested */
    bool given_up;   /* SIGKILL was sent */
    bool stuck;      /* that did not end it: a driver holds it */
    int64_t due_at;  /* monotonic: when it must have printed something, or ended; GP_NEVER: nothing is awaited */
};
#define JOB_WATCH_NONE \
    { .out = -1, .due_at = GP_NEVER }

/* Starts it: gpuprov-agent-cuda of the folder of this program where it can be executed, else this program. notices: of
 * the request. */
void job_watch_start(struct job_watch *w, const char *notices);
/* The next finding, if there is one now. Call it at due_at too. */
bool job_watch_next(struct job_watch *w, struct finding *ret);
/* The main process of the job has ended: the watch looks a last time and ends, within 5 s. May be called again. */
void job_watch_finish(struct job_watch *w);
/* waitpid returned its pid. ending: the job is being ended, perhaps with the whole node; else that is a finding.
 * job_watch_next still returns what it printed before. */
void job_watch_reaped(struct job_watch *w, int status, bool ending);
/* It has ended, or cannot be ended. */
bool job_watch_over(const struct job_watch *w);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a job: found by their ancestor, or by the mark in their environment after the supervisor is gone.
 * Linux; one thread. */
#ifndef GP_AGENT_JOB_PROCS_H
#define GP_AGENT_JOB_PROCS_H

#include "base/gp_base.h"

#include <sys/types.h>

/* Processes below this one that are not the job's: a session, of processes that started until then (/proc's starttime).
 * A later session may have its number again. */
struct job_spared {
    int session; /* 0: none */
    int64_t until_ticks;
};
/* Sends the signal to every descendant of this process, which is a subreaper, but not to the process group `except`
 * and not to spared ones. Returns how many descendants there are; those that have ended or are spared do not count.
 * Processes that this user may not signal get SIGTERM or SIGKILL through `sudo -n`, which takes 5 s at most. */
int job_procs_signal(int sig, pid_t except, const struct job_spared *spared);
/* Whether this process has descendants that have not ended, and all of them are spared. */
bool job_procs_only(const struct job_spared *spared);
/* As job_procs_signal, for processes with the mark of this job, whoever is their parent; not for this process. */
int job_marked_signal(const char *id, int sig);

#endif

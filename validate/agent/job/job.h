/* SPDX-License-Identifier: Apache-2.0 */
/* Private to validate/agent/job/. Jobs of this node: one folder each, of which at most one has a live supervisor.
 *
 * JOBS/ID/state   the state (slots); written by the supervisor while it lives, else under the lock
 * JOBS/ID/stop    "-", or a request to stop and its reason (slots)
 * JOBS/ID/pid     the supervisor: pid, start, boot; removed when the job has ended
 * JOBS/ID/run, setup, preempt, request   the texts; the request without secrets, only where the node starts the job
 *                 again
 * JOBS/ID/log.*   the log
 * JOBS/ID/health  findings of the health watch, one line each; only of a job that has one
 * JOBS/lock       held by verbs that start, settle or remove a job; the supervisor does not hold it */
#ifndef GP_AGENT_JOB_H
#define GP_AGENT_JOB_H

#include "validate/agent/job/job_log.h"
#include "validate/agent/job/job_request.h"
#include "validate/agent/job/job_state.h"

#include <sys/types.h>

/* ~/.gpuprov/nodes/NODE/jobs: nodes may share a home folder. */
struct job_home {
    char *root;
    int lock; /* -1: not held */
};
/* make: the folder is made. Blocks no time. job_home_close in any case. */
int job_home_open(struct job_home *ret, bool make, struct gp_error *err);
/* Waits 30 s at most. A file system without locks goes without. */
int job_home_lock(struct job_home *h, struct gp_error *err);
void job_home_close(struct job_home *h);
char *job_path(const struct job_home *h, const char *id, const char *file); /* file NULL: the folder. Caller frees */
/* IDs of all folders, in no order. */
void job_ids(const struct job_home *h, struct strv *ret);

struct job {
    struct job_state st;
    bool alive; /* its supervisor runs, and it has not ended */
    pid_t pid;  /* of that */
};
/* Reads it as it is. -GP_ENOTFOUND: no such job; -GP_EPROTO: its state is damaged (ret->alive is valid). */
int job_look(const struct job_home *h, const char *id, struct job *ret, struct gp_error *err);
/* The same; a job that lost its supervisor is ended first: its processes are killed and its state becomes lost. Takes
 * the lock for that if it is not held. Blocks up to 10 s then. */
int job_settle(struct job_home *h, const char *id, struct job *ret, struct gp_error *err);
/* The job that started last, which is the one that runs if one does. -GP_ENOTFOUND: there is none. */
int job_newest(struct job_home *h, struct job *ret, struct gp_error *err);
/* All jobs, settled, newest first; damaged ones are left out. Caller frees *ret. */
int job_all(struct job_home *h, struct job **ret, size_t *ret_n, struct gp_error *err);
/* The reason in the folder's stop file, caller frees. NULL: nobody requested a stop. */
char *job_stop_reason(const char *dir);
/* Bytes of its log. */
int64_t job_log_bytes(const struct job_home *h, const char *id);

/* Becomes the supervisor of the job in dir: returns when the job has ended and its state is written. Sends a NUL to
 * `ready` when the job runs, or a line about why it does not run and a NUL; then it closes `ready` and the lock. Call
 * it in a new process with one thread. */
void job_supervise(const char *dir, const struct job_request *q, const struct job_state *st, bool rebooted, int ready,
                   int lock);
/* Starts `sh FILE` in q->cwd, in a session of its own, with out as its output. what: "setup", "run", "preempt"; more:
 * "NAME=VALUE", one more variable, or NULL. -1: err is set. */
pid_t job_spawn(const struct job_request *q, const char *what, const char *file, const char *more, int out,
                struct gp_error *err);
/* q->cwd as an absolute path; caller frees. */
char *job_cwd(const struct job_request *q);

/* The systemd unit that starts jobs again after a reboot. False: this node has none (no systemd, no right). Blocks up
 * to 30 s. */
bool job_unit_install(void);
void job_unit_remove(void);
/* Whether systemd is shutting this machine down. */
bool job_node_stops(void);

/* Subverbs; they return the exit code. */
int job_start(const char *id, int argc, char **argv);
int job_again(int argc, char **argv);
int job_follow(const char *id, int argc, char **argv);
/* err on stderr as one line. Returns the exit code. */
int job_failed(const char *verb, const struct gp_error *err);
/* The state as a line on stdout; `job` ("started") or NULL. */
void job_print(const struct job_home *h, const struct job *j, const char *job);

#endif

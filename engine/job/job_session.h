/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a verb on the job of a stack: its run, its nodes, the job. Private to this room. The verb's thread. */
#ifndef GP_ENGINE_JOB_SESSION_H
#define GP_ENGINE_JOB_SESSION_H

#include "engine/job/jobs.h"

struct job_session {
    struct engine *e;
    const struct job_opts *opts;
    struct job_result *ret;
    struct run *run; /* NULL: not open */
    struct job_nodes all;
    struct job_def def; /* spec NULL: this verb starts none */
    struct run *guard;  /* holds the lock of the stack's job on this machine; NULL: another gpuprov has it */
    struct job_found found;
    bool brought; /* the checkpoint was fetched from its bucket, or there is none */
    bool unsent;  /* the last fetch brought files here that could not be sent to their bucket */
    bool unkept;  /* or outputs that a bucket cannot keep */
    bool ends;    /* of `run`: a job is stopped before the deadline, because the nodes are its own */
};
void job_session_close(struct job_session *s); /* what job_session_open opened; the guard stays */
void job_session_clear(struct job_session *s);
/* Whether this process is the one that drives the stack's job on this machine: takes s->guard, or leaves it NULL. */
int job_session_guard(struct job_session *s, const char *stack, struct gp_error *err);
/* Opens the stack, lists its machines, connects, and reads the states. locked: holds the stack's lock, and the spec
 * must be known; else nothing is recorded. -GP_EBUSY: a job of another definition than s->def runs on one of them,
 * whatever number of nodes the spec has. */
int job_session_open(struct job_session *s, const char *name, const struct spec *spec, bool locked,
                     struct gp_error *err);
/* Its two parts: the stack and the list of its machines; the connections and the states. */
int job_session_open_stack(struct job_session *s, const char *name, const struct spec *spec, bool locked,
                           struct gp_error *err);
int job_session_open_nodes(struct job_session *s, struct gp_error *err);
/* job_find over its nodes: s->found and ret->id. key NULL: the newest job of any definition. */
int job_session_find(struct job_session *s, const char *key, struct gp_error *err);
/* Sends the files and starts the job, or continues the one that was found. */
int job_session_begin(struct job_session *s, struct gp_error *err);
/* Follows the job to its end. drive: this process started it, so the failure of a rank stops the others, outputs are
 * fetched meanwhile, and a job whose node was rebooted is started again. */
int job_session_follow(struct job_session *s, bool drive, struct gp_error *err);
/* After cancellation: ends the job and reads how it ended. */
void job_session_stop(struct job_session *s, const char *reason);
/* After job_session_stop. -GP_EREACH: on a node it may still run, or the node does not answer. */
int job_session_check_stopped(const struct job_session *s, struct gp_error *err);
/* Fetches outputs and the checkpoint from every node that can be reached, as job_files_fetch, and sends what belongs in
 * a bucket (s->unsent, s->unkept), each within opts->fetch_ms. If all of it is in its place, the caller marks the job
 * as collected. */
int job_session_fetch(struct job_session *s, bool *ret_left, struct gp_error *err);
/* Whether ret->fetched has everything, from this index on: 0, or -GP_EIO with the count and the first of what was left
 * out. */
int job_session_whole(const struct job_session *s, size_t from, struct gp_error *err);
/* The outcome as an error: 0, -GP_EJOB. Sets ret->deadline. */
int job_session_verdict(const struct job_session *s, struct gp_error *err);

/* Keeps what is known of the job now, for `status` and `plan`. fetched: its files are here, or it has none. */
void job_session_seen(const struct job_session *s, bool fetched);
/* An event about the end of a job without failure. */
void job_session_say_success(const struct job_session *s);
/* Sets err to what Ctrl-C has ended, for a verb that leaves the job running; for exec, which has stopped it. */
void job_session_left(const struct job_session *s, struct gp_error *err);
void job_session_stopped(const struct job_session *s, bool nodes_stay, struct gp_error *err);

#endif

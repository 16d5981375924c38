/* SPDX-License-Identifier: Apache-2.0 */
/* A job of `run` from its start to its files: follows it, fetches, launches nodes again, says what stays. Private to
 * this room. The verb's thread. */
#ifndef GP_ENGINE_JOB_DRIVE_H
#define GP_ENGINE_JOB_DRIVE_H

#include "engine/job/job_end.h"
#include "engine/job/job_session.h"

/* What `run` knows beyond a session. */
struct job_whole {
    struct job_session s;
    const struct spec *spec;
    int (*approve)(void *ctx, const struct plan *plan, struct gp_error *err); /* the verb's own */
    void *approve_ctx;
    char uid[17];           /* of the stack that `up` continues; "": any */
    struct gp_error unseen; /* why the last look_first could not see whether the job is there; GP_OK: it could */
    bool seen;              /* the log of the job that was found was printed already */
    bool none;              /* look_first found no stack, or no node of it */
    bool ours;              /* the stack is this run's to destroy: its plan was approved, or its job was found */
    bool ended;             /* the job has ended, and is not started again: s.ret is about its end */
    bool judged;            /* `its` is the job's own result, whatever becomes of its files */
    bool resumed;           /* an earlier `run` was killed while it destroyed the nodes, and this one finishes that */
    struct gp_error its;    /* resumed: the error of that one; GP_OK: its job succeeded */
    struct job_end end;     /* owed: of an earlier `run` that left nodes with files */
    struct gp_error lost;   /* files of such a node that are gone with it; GP_OK: none */
};

void job_say(const struct job_session *s, enum event_status status, const char *text);
/* `up` for it: w->uid "" asks for approval of the plan, and sets w->ours. */
int job_get_nodes(struct job_whole *w, struct gp_error *err);
/* Destroying the nodes would destroy the results. Their deadline still holds. never: the error names which of them
 * cannot be copied, and what to do. */
void job_say_left(struct job_whole *w, bool never);
/* Another gpuprov was faster: it has destroyed the stack, or runs a job on it. What is there is that one's, or a node
 * lies. An event says that it stays. */
void job_leave_busy(struct job_whole *w);
/* Before the nodes are destroyed, or lose their mark of a job that was not fetched: so that a `run` which follows after
 * kill -9 reports this result instead of running the job a second time. */
void job_keep_result(const struct job_whole *w, const struct gp_error *why);
/* How long the nodes stay after a failure; 0: they do not. */
int64_t job_keep_ms(const struct job_whole *w);
/* The result of an earlier `run` was found: w->resumed, or w->end has nodes with files. */
bool job_is_over(const struct job_whole *w);

/* From a started job to its outcome. After cancellation it is stopped, and the rest is done nevertheless.
 * *ret_left: outputs could not be fetched, which the nodes still have. w: of `run`, whose w->uid is set if nodes were
 * given back after a failure; NULL: nothing is launched again. */
int job_drive(struct job_session *s, struct job_whole *w, bool *ret_left, struct gp_error *err);
/* The same, and the job is started anew on other nodes as often as the spec allows. Where files are left, the other
 * nodes are destroyed, an event says what stays, and w->ours is false. */
int job_drive_all(struct job_whole *w, struct gp_error *err);
/* Fetches what an earlier `run` left on nodes (w->end). The result of the job is that one's. */
int job_finish(struct job_whole *w, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on the nodes of a stack, for the verbs run, exec, attach, wait, cancel and logs --job. The rules of engine.h
 * hold here too: each function blocks for the whole work, emits events, and returns 0 or -GP_E* with one line in err;
 * results are initialised with {0} and freed by job_result_clear, also after an error.
 *
 * The job itself runs under the agent on each node and does not need this process: a run that was killed is continued
 * by the next one of the same definition, also on another machine. */
#ifndef GP_ENGINE_JOBS_H
#define GP_ENGINE_JOBS_H

#include "engine/engine.h"
#include "engine/job/job_follow.h"

enum job_stage {
    JOB_STAGE_NODES, /* launch, bootstrap, validation, start: events only */
    JOB_STAGE_LOG,   /* the job's log comes now */
    JOB_STAGE_END    /* outputs, termination: events only */
};
struct job_opts {
    char *const *cmd; /* replaces job.run; n_cmd 0: none */
    int n_cmd;
    bool detach;      /* ends when the job has started */
    bool no_down;     /* run: the nodes stay */
    int64_t keep_ms;  /* run: after a failure the nodes stay that long; 0: job.keep */
    int64_t fetch_ms; /* run, exec: how long the files of a node, or of a kind of store, may take; 0: transfer/pace.h */
    int slot;         /* job_log: one node only; -1: all */
    bool follow;      /* job_log: until the job ends */
    /* A cleaned line of a rank's log, without its newline; NULL: the log is not read. */
    void (*text)(void *ctx, int rank, const char *line, size_t n);
    void (*pause)(void *ctx); /* flush what was printed; may be NULL */
    void (*stage)(void *ctx, enum job_stage stage);
    void *ctx;
};
/* A transfer that was done. */
struct job_fetched {
    int rank;
    char *path, *to; /* on the node, here */
    uint64_t files, bytes, files_sent, bytes_sent;
    uint64_t left_out; /* files and links that the node has and that were not copied */
    struct strv notes; /* the first of them, with the reason */
    char *error;       /* NULL: none */
};
/* What was sent to a bucket. */
struct job_stored {
    char *to; /* "s3://BUCKET/PREFIX" */
    uint64_t files, bytes, files_sent, bytes_sent;
    uint64_t left_out; /* files that a bucket cannot keep */
    struct strv notes; /* the first of them, with the reason */
    char *error;       /* NULL: none */
};
/* A node that was given back, or was gone, and was launched again. */
struct job_replaced {
    char id[17]; /* of the job that it ended */
    int rank;
    const char *why; /* static: "was preempted" */
};
struct job_result {
    char id[17], key[65]; /* "": there was no job */
    bool attached;        /* it had been started before */
    bool running;         /* detached, or cancelled while it goes on */
    bool stopped;         /* by Ctrl-C or `cancel` */
    bool deadline;        /* the deadline of the stack ended it */
    struct job_outcome outcome;
    VEC_OF(struct job_fetched) fetched;
    VEC_OF(struct job_stored) stored;
    VEC_OF(struct job_rank_health) health; /* of all jobs of this call; by job, rank and number */
    int recovered;                         /* run: how often nodes were launched again */
    VEC_OF(struct job_replaced) replaced;  /* by then */
    struct up_result up;                   /* of run; view.stack.name NULL: the nodes were not looked at */
    bool destroyed;                        /* run: `down` has the result */
    struct down_result down;
};
void job_fetched_clear(struct job_fetched *f);
void job_result_clear(struct job_result *r);

/* From a spec to a job that has ended: up, start, log, outputs, down. With e->approve as engine_up. If nodes were
 * preempted, or have a fault and job.on_unhealthy is replace, they are launched again and the job starts anew from its
 * checkpoint, job.recover times at most. -GP_EJOB: the job failed. After engine_cancel it stops the job,
 * fetches the outputs and destroys the nodes: -GP_ECANCELLED. A stack that this run could not take (-GP_EBUSY, no
 * approval) is left alone. */
int engine_run(struct engine *e, const struct spec *spec, const struct job_opts *opts, struct job_result *ret,
               struct gp_error *err);
/* A job on the ready nodes of a stack, which stay. spec NULL: that of the journal. */
int engine_exec(struct engine *e, const char *name, const struct spec *spec, const struct job_opts *opts,
                struct job_result *ret, struct gp_error *err);
/* Follows the stack's newest job until it has ended. Does not change anything: cancelling it leaves the job running.
 * -GP_ENOTFOUND: there is no job; -GP_EJOB: it failed. */
int engine_attach(struct engine *e, const char *name, const struct spec *spec, const struct job_opts *opts,
                  struct job_result *ret, struct gp_error *err);
/* Ends the stack's running job. ret->id "": none runs. */
int engine_cancel_job(struct engine *e, const char *name, const struct spec *spec, struct job_result *ret,
                      struct gp_error *err);
/* The log of the stack's newest job, of opts->slot or of each rank in turn; opts->follow: merged, until it ends. */
int engine_job_log(struct engine *e, const char *name, const struct spec *spec, const struct job_opts *opts,
                   struct job_result *ret, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Follows a job on all its nodes until it has ended everywhere: one loop, whose memory does not depend on how much the
 * job prints. A lost connection is opened again in the background, and the log goes on where it was. The verb's
 * thread. */
#ifndef GP_ENGINE_JOB_FOLLOW_H
#define GP_ENGINE_JOB_FOLLOW_H

#include "engine/job/job_begin.h"
#include "engine/job/job_deadline.h"

struct job_follow {
    struct job_nodes *all;
    const char *id;
    const struct job_def *def;     /* for starting it again after a reboot; NULL: this gpuprov does not */
    bool keep_others;              /* the failure of one rank does not stop the others: of verbs that only look */
    bool silent;                   /* no log, only how it ends */
    bool stopped;                  /* it was asked to end: a rank that has not within a minute counts as lost */
    bool until_now;                /* ends at what the log has now, whether the job has ended or not */
    struct job_deadline *deadline; /* NULL: it is not read */
    int64_t away_ms;               /* how long a node may stay away; 0: JOB_AWAY_MS */
    /* A cleaned line of the log of a rank, without its newline. May be NULL. */
    void (*text)(void *ctx, int rank, const char *line, size_t n);
    void (*pause)(void *ctx); /* the lines so far were all that there is now: flush. May be NULL */
    void *ctx;
};
#define JOB_AWAY_MS ((int64_t)15 * 60000)

struct job_rank_end {
    bool ended; /* `state` is its end */
    bool lost;  /* its node stayed away, or has no such job any more: `why` */
    bool gone;  /* lost, because its provider has ended the machine */
    struct job_state state;
    char why[300];
};
/* A finding about the node of a rank during the job `id`. */
struct job_rank_health {
    char id[17];
    int rank;
    struct job_health found;
};
struct job_outcome {
    int failed;                 /* the rank that failed first; -1: none */
    bool deadline;              /* the job was stopped, because the deadline of the stack was near */
    struct job_rank_end *ranks; /* by rank; those that are not used: neither ended nor lost */
    size_t len;
    VEC_OF(struct job_rank_health) health; /* as they came; each was an event too */
};
void job_outcome_clear(struct job_outcome *o);
/* 0: it has ended on all used nodes or they are lost; whether it failed is in ret. -GP_ECANCELLED: the job goes on. */
int job_follow(const struct job_follow *req, struct job_outcome *ret, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between this machine and the nodes of a job. Nodes side by side, the transfers of one
 * node one after another: each node has its own end. */
#ifndef GP_ENGINE_JOB_BATCH_H
#define GP_ENGINE_JOB_BATCH_H

#include "engine/run/run.h"
#include "engine/transfer/pace.h"
#include "engine/transfer/transfer.h"

/* One transfer of one node. Owns its paths. */
struct job_copy {
    struct node_link *link;
    const struct run *run;
    int rank;
    size_t path; /* which one of the caller's */
    bool up, ignore;
    const struct strv *omit;
    bool checkpoint; /* sent to a node that has none, and only if it is here */
    bool kept;       /* the node has one of its own */
    bool skip;       /* of a batch that is repeated: this one is done */
    char *there, *here;
    char *shown; /* where it goes, as the spec has it */
    struct tree_stats stats;
    int64_t away_by_ms, busy_by_ms; /* monotonic: it is tried again until then; 0: no such trouble */
    int rc;
    struct gp_error err;
};
/* What the transfers of one node share. */
struct job_batch_node {
    int rank;
    bool begun;
    int64_t end_ms; /* monotonic; 0: none but that of the pace */
    struct pace pace;
};
struct job_batch {
    VEC_OF(struct job_copy) list;
    VEC_OF(struct job_batch_node) nodes; /* of job_batch_run */
    int64_t limit_ms;                    /* for all transfers of a node, from its first; 0: that of pace.h */
};
void job_batch_clear(struct job_batch *b);
void job_copy_clear(struct job_copy *o);
/* Does one: o->rc, o->err. node: NULL, or what it shares with others. */
void job_copy_run(struct job_copy *o, struct job_batch_node *node);
void job_copy_say_notes(const struct job_copy *o); /* warnings about files that were not copied */
void job_copy_say_done(const struct job_copy *o, const char *what);
bool job_copy_away(const struct job_copy *o); /* the node did not answer, or no more */
/* Does all that have no `skip`. After one that was cancelled, or whose node is away, the rest of that node is not
 * tried and has the same result. */
void job_batch_run(struct job_batch *b);
bool job_batch_over(const struct job_batch *b, const struct job_copy *o); /* its node has had its time */

#endif

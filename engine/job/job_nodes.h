/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of one run as a job sees them: their connections, and questions to the agents on all of them at once. The
 * verb's thread. */
#ifndef GP_ENGINE_JOB_NODES_H
#define GP_ENGINE_JOB_NODES_H

#include "engine/job/def/job_def.h"
#include "engine/job/job_state.h"
#include "engine/run/run_node.h"

struct job_node {
    struct run_node *n; /* its slot is the rank; n->link is the connection */
    bool used;          /* it runs the job */
    bool away;          /* a follower opens its connection again: leave n->link alone */
    bool gone;          /* its provider has ended the machine: nothing is fetched from it */
    bool owes;          /* it has files of the job that are not here, as far as the last fetch knows */
    struct job_look look;
    struct job_state state; /* as last reported; phase JOB_NONE: no such job */
};
struct job_nodes {
    struct run *run;
    struct job_node *items; /* by rank */
    size_t len;
    size_t known; /* items behind len: nodes that exist and that the spec has no place for; only asked for their jobs */
};
/* Connects to the nodes of the stack at once, each within ms. Nodes that cannot be reached are not an error: their
 * n->rc and n->err have the reason. -GP_ENOTFOUND: the stack has no node; -GP_ECANCELLED. */
int job_nodes_open(struct run *run, int64_t ms, struct job_nodes *ret, struct gp_error *err);
bool job_nodes_several(const struct job_nodes *all); /* more than one is used */
void job_nodes_clear(struct job_nodes *all);         /* the run closes the connections */
/* The first node that is used and cannot be reached, as an error; 0: there is none. */
int job_nodes_missing(const struct job_nodes *all, struct gp_error *err);
/* Appends a command for ssh: the agent with these words after "job", its output behind JOB_MARK. */
#define JOB_MARK "::gpuprov-job"
void job_command(struct str *cmd, const char *words);

/* One question to the agent of one node. */
struct job_ask {
    struct job_node *node;
    const void *in; /* for its stdin; borrowed */
    size_t in_len;
    struct job_state state; /* the reply; rc 0 */
    int rc;                 /* -GP_EJOB: the agent refused; -GP_EREACH, -GP_ELOST, -GP_ETIMEOUT: no reply */
    struct gp_error err;
};
struct job_asks {
    VEC_OF(struct job_ask) list;
};
/* Asks the nodes of the list at once: `gpuprov-agent job WORDS`, which is idempotent, so that a question whose
 * connection is lost is repeated. Blocks up to ms. -GP_ECANCELLED only; the list has all other results. cancel may be
 * NULL. */
int job_ask_all(struct job_asks *asks, const char *words, int64_t ms, const struct gp_cancel *cancel,
                struct gp_error *err);
/* Reads each reached node's `look` and newest job. */
int job_nodes_look(struct job_nodes *all, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the job of a definition on the nodes, starts it where it does not run, and stops it. The verb's thread. */
#ifndef GP_ENGINE_JOB_BEGIN_H
#define GP_ENGINE_JOB_BEGIN_H

#include "engine/job/job_nodes.h"

struct job_found {
    char id[17];  /* "": none */
    bool running; /* on a node */
    bool ended;   /* on every node that is used and whose machine is not gone */
    int64_t started_s;
};
/* The job of this key that runs, or has ended and was not collected (key NULL: the newest of any key, also a collected
 * one). From the states that job_nodes_look has read. -GP_EBUSY: another job runs, also on a node that the spec has no
 * place for. */

int job_find(const struct job_nodes *all, const char *key, struct job_found *ret, struct gp_error *err);
/* Whether a job may start on the used nodes, before files are sent to them: -GP_EREACH, -GP_EVALIDATE, -GP_EUSAGE. */
int job_begin_check(const struct job_nodes *all, struct gp_error *err);
/* Starts the job `id` on the used nodes that do not have it, on node 0 first. Another gpuprov may have started the same
 * definition meanwhile: id is that one's then. Every node must be READY and not have been rebooted since.
 * -GP_EBUSY, -GP_EREACH, -GP_EJOB: it was stopped again where it had been started. */
int job_begin(struct job_nodes *all, const struct job_def *def, char id[17], struct gp_error *err);
/* Starts it again on one node, after a reboot. */
int job_begin_again(struct job_nodes *all, const struct job_def *def, const char *id, struct job_node *node,
                    struct gp_error *err);
/* Ends it on the used nodes where it has not ended, and blocks until it has, at most a minute. Nodes that do not answer
 * are reported as warnings. -GP_ECANCELLED only. cancel may be NULL. */
int job_stop(struct job_nodes *all, const char *id, const char *reason, const struct gp_cancel *cancel,
             struct gp_error *err);
/* Marks its outputs as fetched on every node that can be reached. */
void job_mark_collected(struct job_nodes *all, const char *id);

#endif

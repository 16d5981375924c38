/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a job: its working folder, its outputs, its checkpoint. Blocks on the network; nodes side by side. */
#ifndef GP_ENGINE_JOB_FILES_H
#define GP_ENGINE_JOB_FILES_H

#include "engine/job/job_nodes.h"
#include "engine/job/jobs.h"

/* Where the files of a rank are here: below `to` each has a folder if several nodes run the job. Caller frees. */
char *job_files_place(const char *to, int rank, bool more);
/* A transfer from the node of o->link: `path` and `to` as the spec has them. more: several nodes run the job. */
struct job_copy;
void job_files_from(struct job_copy *o, const char *path, const char *to, bool more);
/* Sends job.workdir, without the folders that results come to, to the nodes that run the job, and the checkpoint of an
 * earlier run to those that have none. The first failure is err. */
int job_files_send(struct job_nodes *all, const struct spec_job *job, struct gp_error *err);
/* Fetches the outputs and the checkpoint from the nodes that can be reached, and appends what was done to `ret`. A path
 * that a node does not have is no error. A node that is away is tried again for JOB_AWAY_MS, unless its provider has
 * ended its machine, and a folder that another copy uses for minutes; e->cancel ends all of it (-GP_ECANCELLED).
 * limit_ms: for all files of a node, repetitions included; 0: that of transfer/pace.h. A node that has used up its time
 * (-GP_ETIMEOUT) keeps no other waiting.
 * *ret_left: files that could not be fetched are still on a node; job_node.owes: on which ones, and where files were
 * left out. */
int job_files_fetch(struct job_nodes *all, const struct spec_job *job, int64_t limit_ms, struct job_result *ret,
                    bool *ret_left, struct gp_error *err);

#endif

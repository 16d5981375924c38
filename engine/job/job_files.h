/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a job: its working folder, its outputs, its checkpoint. Blocks on the network; nodes side by side. */
#ifndef GP_ENGINE_JOB_FILES_H
#define GP_ENGINE_JOB_FILES_H

#include "engine/job/job_nodes.h"
#include "engine/job/jobs.h"

/* Where the files of a rank are here: below `to` each has a folder if several nodes run the job. Caller frees. */
char *job_files_place(const char *to, int rank, bool more);
/* Sends job.workdir, without the folders that results come to, to the nodes that run the job, and the checkpoint of an
 * earlier run to those that have none. The first failure is err. */
int job_files_send(struct job_nodes *all, const struct spec_job *job, struct gp_error *err);
/* Fetches the outputs and the checkpoint from the nodes that can be reached, and appends what was done to `ret`. A path
 * that a node does not have is no error. A node that is away is tried again for JOB_AWAY_MS, unless its provider has
 * ended its machine, and a folder that another copy uses for minutes; e->cancel ends all of it (-GP_ECANCELLED).
 * *ret_left: files that could not be fetched are still on a node. */
int job_files_fetch(struct job_nodes *all, const struct spec_job *job, struct job_result *ret, bool *ret_left,
                    struct gp_error *err);

/* Fetches the checkpoint every job.checkpoint.every, and the outputs that have an `every`, and sends what belongs in a
 * bucket, in a thread with connections of its own, until it is stopped. *ret: NULL where there is nothing to fetch. */
struct job_backup;
int job_backup_start(struct job_nodes *all, const struct spec_job *job, struct job_backup **ret, struct gp_error *err);
void job_backup_stop(struct job_backup *b); /* accepts NULL */

#endif

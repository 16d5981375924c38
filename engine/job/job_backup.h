/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches the checkpoint every job.checkpoint.every, and the outputs that have an `every`, and sends what belongs in a
 * bucket, until it is stopped. Each node has a thread and a connection of its own, so that none waits for another
 * one. */
#ifndef GP_ENGINE_JOB_BACKUP_H
#define GP_ENGINE_JOB_BACKUP_H

#include "engine/job/job_nodes.h"

struct job_backup;
/* *ret: NULL where there is nothing to fetch. */
int job_backup_start(struct job_nodes *all, const struct spec_job *job, struct job_backup **ret, struct gp_error *err);
void job_backup_stop(struct job_backup *b); /* accepts NULL */

#endif

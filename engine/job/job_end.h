/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a job while its nodes are destroyed: STATE/stacks/UID/job_end.json. A `run` that is killed meanwhile is
 * finished by the next one, which reports this result instead of running the job again. The file goes with the stack's
 * folder, so it never outlives the stack. The verb's thread. */
#ifndef GP_ENGINE_JOB_END_H
#define GP_ENGINE_JOB_END_H

#include "engine/job/jobs.h"

struct job_end {
    struct job_result job; /* up and down are empty */
    struct gp_error why;   /* of `run`; GP_OK: the job succeeded */
};
void job_end_clear(struct job_end *end);
/* As the file has it; new reference. Pure. */
json_t *job_end_json(const struct stack *stack, const struct job_result *job, const struct gp_error *why);
/* Decodes it strictly: -GP_EPROTO names the member that is wrong, or of another version, stack or uid. Pure. */
int job_end_decode(const char *text, size_t n, const struct stack *stack, struct job_end *ret, struct gp_error *err);
/* Writes it durably. why: what `run` returns. */
int job_end_write(const struct engine *e, const struct stack *stack, const struct job_result *job,
                  const struct gp_error *why, struct gp_error *err);
/* *ret_there false: there is none, or the stack has no uid. -GP_EENV: it cannot be used. */
int job_end_read(const struct engine *e, const struct stack *stack, struct job_end *ret, bool *ret_there,
                 struct gp_error *err);

#endif

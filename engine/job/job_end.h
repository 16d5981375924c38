/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a job while its nodes are destroyed: STATE/stacks/UID/job_end.json. A `run` that is killed meanwhile,
 * or that left nodes whose files did not come, is finished by the next one, which reports this result and runs nothing.
 * The file goes with the stack's folder, so it never outlives the stack. The verb's thread. */
#ifndef GP_ENGINE_JOB_END_H
#define GP_ENGINE_JOB_END_H

#include "engine/job/jobs.h"

/* A node that has files of the job which are not here. */
struct job_owed {
    int rank;
    char *machine; /* the cloud's id */
};
struct job_owed_list {
    VEC_OF(struct job_owed) list;
};
void job_owed_add(struct job_owed_list *to, int rank, const char *machine);
void job_owed_clear(struct job_owed_list *owed);
struct job_end {
    struct job_result job;     /* up and down are empty */
    struct gp_error why;       /* of the job, or of `run`; GP_OK: success */
    struct job_owed_list owed; /* empty: all files are here, and only the destruction is left */
    struct strv machines;      /* the cloud's ids of the stack's machines when the job had ended */
};
void job_end_clear(struct job_end *end);
/* As the file has it; new reference. Pure. */
json_t *job_end_json(const struct stack *stack, const struct job_result *job, const struct gp_error *why,
                     const struct job_owed_list *owed, const struct strv *machines);
/* Decodes it strictly: -GP_EPROTO names the member that is wrong, or of another version, stack or uid. Pure. */
int job_end_decode(const char *text, size_t n, const struct stack *stack, struct job_end *ret, struct gp_error *err);
/* Writes it durably. run: on whose machines the job was; why: what `run` returns. */
int job_end_write(const struct run *run, const struct job_result *job, const struct gp_error *why,
                  const struct job_owed_list *owed, struct gp_error *err);
/* *ret_there false: there is none, or the stack has no uid. -GP_EENV: it cannot be used. */
int job_end_read(const struct engine *e, const struct stack *stack, struct job_end *ret, bool *ret_there,
                 struct gp_error *err);
/* -GP_EBUSY: the stack has machines that were launched since. Another gpuprov has taken it into use again, and does not
 * know this result. */
int job_end_check_same(const struct job_end *end, const struct run *run, struct gp_error *err);

#endif

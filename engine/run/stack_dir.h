/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one stack below the state folder: login key, ssh config, certificate key. */
#ifndef GP_ENGINE_STACK_DIR_H
#define GP_ENGINE_STACK_DIR_H

#include "engine/engine.h"

/* STATE/stacks/UID; caller frees. An invalid uid is refused (-GP_EENV), because a path is made of it only
 * here. */
int stack_dir_path(const struct engine *e, const char *uid, char **ret, struct gp_error *err);
/* The same below a state folder. */
int stack_dir_in(const char *state_dir, const char *uid, char **ret, struct gp_error *err);
/* Before it is removed: the outputs of failed steps go to STATE/outputs/NAME@OWNER and replace those of an earlier
 * stack of that name and owner. Never fails: outputs that cannot be kept must not stop `down`. */
void stack_dir_keep_outputs(const struct engine *e, const struct stack *s);
/* The newest such folder of a name (owner NULL: of any owner); caller frees. NULL: there is none. */
char *stack_dir_kept_outputs(const struct engine *e, const char *name, const char *owner);
/* Removes those that are older than 30 days. Never fails. */
void stack_dir_tidy_outputs(const char *state_dir, int64_t now_s);
/* Removes it. An invalid uid (from an edited journal) has no folder: success. */
int stack_dir_remove(const struct engine *e, const char *uid, struct gp_error *err);
/* The file in it that keeps the result of a job while its nodes are destroyed (engine/job/job_end.h). */
#define STACK_DIR_JOB_END "job_end.json"
/* Removes that file, when the stack is in use again. Absent, or no uid (NULL): success. */
int stack_dir_forget_job_end(const struct engine *e, const char *uid, struct gp_error *err);

#endif

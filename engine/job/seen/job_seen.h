/* SPDX-License-Identifier: Apache-2.0 */
/* The newest job of a stack as this machine last saw it: STATE/stacks/UID/job_seen.json, so that `status` and `plan`
 * can name it without a login. The nodes have the truth, and another machine may have seen more since. Any thread. */
#ifndef GP_ENGINE_JOB_SEEN_H
#define GP_ENGINE_JOB_SEEN_H

#include "engine/run/run.h"

/* Writes it durably, with the present time. */
int job_seen_write(const struct engine *e, const char *uid, const struct job_seen *seen, struct gp_error *err);
/* ret->id "": this machine saw none. -GP_EPROTO: the file is damaged. Blocks on local files. */
int job_seen_read(const struct engine *e, const char *uid, struct job_seen *ret, struct gp_error *err);
/* Decodes the file strictly. Pure. */
int job_seen_decode(const char *text, size_t n, struct job_seen *ret, struct gp_error *err);
/* "job 45c4.. runs on 2 nodes since TIME, as this machine saw it at TIME: 'gpuprov attach llm' follows it". */
void job_seen_text(const struct job_seen *seen, const char *stack, struct str *out);

#endif

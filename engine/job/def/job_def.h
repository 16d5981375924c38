/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of a job: what runs, under which key, and the request that starts it on a node. Pure; any thread. */
#ifndef GP_ENGINE_JOB_DEF_H
#define GP_ENGINE_JOB_DEF_H

#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include "engine/job/def/job_env.h"

#define JOB_GRACE_S 10          /* between SIGTERM and SIGKILL */
#define JOB_CWD ".gpuprov/work" /* the working folder, in the login user's home */

struct job_def {
    const struct spec *spec;
    char *run;    /* sh text */
    bool rank0;   /* only node 0 runs it */
    int ranks;    /* nodes of the stack */
    char key[65]; /* of everything that decides what runs: two runs with one key are the same job */
};
/* Of the spec's job, with the command of the verb if there is one: one word is sh text, several are a command and its
 * arguments. -GP_EUSAGE: neither names a command. */
int job_def_make(const struct spec *spec, char *const *cmd, int n_cmd, struct job_def *ret, struct gp_error *err);
/* -GP_EUSAGE: the value of a secret cannot be sent. */
int job_def_check_secrets(const struct bootstrap_secret *secrets, size_t n, struct gp_error *err);
void job_def_clear(struct job_def *d);
/* Appends the request for `gpuprov-agent job start`, as one JSON object. It has the values of the secrets: wipe it. */
void job_def_request(const struct job_def *d, const char *id, const struct job_place *place,
                     const struct bootstrap_secret *secrets, size_t n_secrets, struct str *ret);

#endif

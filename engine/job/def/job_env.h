/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a job on one node, and the texts that run there. Pure; any thread. */
#ifndef GP_ENGINE_JOB_ENV_H
#define GP_ENGINE_JOB_ENV_H

#include "base/str.h"
#include "spec/spec.h"

#define JOB_MASTER_PORT 29500

/* What one node printed about itself (job_look_script). */
struct job_look {
    char home[256];     /* absolute path */
    char boot[40];      /* its boot id */
    char address[64];   /* its first address that other machines may reach; "": none was printed */
    char interface[16]; /* of the address that the others use; "": not found */
    bool efa;           /* it has a device of AWS's EFA */
};
/* Prints what job_look_line reads. */
extern const char job_look_script[];
struct job_look_in {
    struct job_look *ret;
    const char *wanted; /* the address whose interface is wanted; "": the first one's */
};
/* Takes one line. Lines that are none of the script's are ignored. */
void job_look_line(const struct job_look_in *in, const char *line);

/* Where one rank is among the others. */
struct job_place {
    int rank, ranks;        /* nodes of the stack, whether they all run the job or not */
    const struct strv *ips; /* of all nodes, by rank */
    const struct job_look *look;
    const char *notices; /* the cloud whose notices of preemption the node reads; NULL: none */
};
/* Appends "NAME=VALUE": first gpuprov's own, then job.env, which replaces those of gpuprov's that are not reserved. */
void job_env_make(const struct spec *spec, const struct job_place *place, struct strv *ret);
/* The text that `sh` runs for `text`: it writes the hostfile, puts the virtual environment of bootstrap.python first in
 * PATH, and where job.image is set runs `text` in a container, which gets the variables of env and the secrets. Caller
 * frees. */
char *job_text_make(const struct spec *spec, const struct job_place *place, const struct strv *env, const char *id,
                    const char *text);

#endif

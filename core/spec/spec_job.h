/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's block `job`, decoded: the command that `gpuprov run` runs on the nodes. Plain data, owned by the spec. */
#ifndef GP_SPEC_SPEC_JOB_H
#define GP_SPEC_SPEC_JOB_H

#include "base/str.h"
#include "base/vec.h"

#define SPEC_JOB_EVERY_MS ((int64_t)10 * 60000) /* where `checkpoint.every` is absent */

struct spec_job_output {
    char *path; /* on the node: absolute, or relative to the working folder */
    char *to;   /* absolute: a folder of this machine */
};
struct spec_job_checkpoint {
    char *path, *to;  /* as of an output; NULL: none */
    int64_t every_ms; /* 0: SPEC_JOB_EVERY_MS */
};
struct spec_job {
    char *workdir;   /* absolute: a folder of this machine; NULL: nothing is sent */
    char *setup;     /* sh text that runs before `run`; NULL: none */
    struct strv env; /* "NAME=VALUE", each name once */
    char *run;       /* sh text; NULL: the verb names the command */
    char *on;        /* "all" or "rank0"; NULL: all */
    char *image;     /* of the container that `setup` and `run` run in; NULL: the node itself */
    VEC_OF(struct spec_job_output) outputs;
    struct spec_job_checkpoint checkpoint;
    int64_t max_duration_ms; /* of setup and run together; 0: no limit */
    int restart;             /* times that it runs again after a reboot of its node */
    int64_t keep_ms;         /* nodes stay that long after a failure; 0: they do not */
    char *on_unhealthy;      /* "warn", "stop" or "replace"; NULL: warn */
    char *on_preempt;        /* sh text that runs on a node when its cloud takes it back; NULL: none */
    int recover;             /* times that `run` launches nodes again */
};

bool spec_job_on_rank0(const struct spec_job *j);  /* only node 0 runs it */
bool spec_job_ends_sick(const struct spec_job *j); /* a fault of a node ends the job */
bool spec_job_replaces(const struct spec_job *j);  /* and `run` launches another node */
/* Names that gpuprov sets itself, and so neither job.env nor a secret of a job has. */
bool spec_job_reserved(const char *name);

#endif

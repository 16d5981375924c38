/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's block `job`, decoded: the command that `gpuprov run` runs on the nodes. Plain data, owned by the spec. */
#ifndef GP_SPEC_SPEC_JOB_H
#define GP_SPEC_SPEC_JOB_H

#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

#define SPEC_JOB_EVERY_MS ((int64_t)10 * 60000) /* where `checkpoint.every` is absent */

/* The place of a job's files in an object store: s3://BUCKET/PREFIX. Owns its texts. */
struct bucket_url {
    const char *scheme; /* one of bucket_url_schemes; static */
    char *name;         /* of the bucket: becomes a part of host names and paths */
    char *prefix;       /* without slashes at its ends; "": the whole bucket */
};
/* Schemes that a job's files may go to; NULL ends. providers/bucket has a row for each. */
extern const char *const bucket_url_schemes[];
bool bucket_url_is(const char *to); /* a URL, of whatever scheme, and no folder of this machine; NULL: false */
/* -GP_EUSAGE: the scheme is unknown (the error lists those that are known), or the bucket or the prefix has not its
 * form. ret: cleared by the caller. */
int bucket_url_decode(const char *to, struct bucket_url *ret, struct gp_error *err);
void bucket_url_clear(struct bucket_url *b);
#define GP_AUTO_BUCKET_URL GP_CLEANUP(bucket_url_clear)

struct spec_job_output {
    char *path;       /* on the node: absolute, or relative to the working folder */
    char *to;         /* absolute: a folder of this machine; or a bucket (bucket_url_is) */
    int64_t every_ms; /* it is fetched while the job runs too; 0: only at its end */
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
/* A note, if the job may not run as long as it is allowed to before the deadline; NULL: none. Caller frees. */
char *spec_job_too_long(const struct spec_job *j, int64_t ttl_ms);
/* Names that gpuprov sets itself, and so neither job.env nor a secret of a job has. */
bool spec_job_reserved(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What a job is: the request that `job start` reads from stdin, decoded strictly. No I/O; any thread. */
#ifndef GP_AGENT_JOB_REQUEST_H
#define GP_AGENT_JOB_REQUEST_H

#include "base/error.h"
#include "base/str.h"

#define JOB_SCHEMA "gpuprov-job/v1"
#define JOB_REQUEST_MAX ((size_t)8 << 20) /* bytes of a request */
#define JOB_SCRIPT_MAX ((size_t)1 << 20)  /* of setup, of run, of preempt */
#define JOB_VALUE_MAX ((size_t)120 << 10) /* of one variable: the kernel takes 128 KiB with its name */
#define JOB_VALUES_MAX ((size_t)1 << 20)  /* of all variables: the kernel takes 2 MiB with the arguments */
#define JOB_RESTART_MAX 16
#define JOB_MARK "GPUPROV_JOB_ID" /* in the environment of every process of a job: its ID */

struct job_request {
    char id[17], key[65]; /* 16 and 64 lower hexadecimal digits */
    int64_t rank, ranks;
    int64_t max_s; /* 0: no limit */
    int64_t grace_s, restart;
    char *cwd;   /* absolute, or begins with "~/" */
    char *setup; /* NULL: none */
    char *run;
    char *preempt;            /* runs when the cloud is about to take the node back; NULL: none */
    bool watch;               /* a health watch runs beside the job */
    bool stop_unhealthy;      /* a fault of severity fail ends the job */
    char *notices;            /* the cloud whose notices the watch reads: "aws"; NULL: it reads none */
    struct strv env, secrets; /* name, value, name, value ...; no name is in both */
};
bool job_id_ok(const char *id);
/* -GP_EPROTO: err names the member. ret: zeroed; job_request_clear it in any case. */
int job_request_parse(const char *text, size_t n, struct job_request *ret, struct gp_error *err);
/* The request without secrets, as job_request_parse takes it. */
void job_request_json(const struct job_request *q, struct str *ret);
/* Overwrites what may be secret. */
void job_request_clear(struct job_request *q);

#endif

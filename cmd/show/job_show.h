/* SPDX-License-Identifier: Apache-2.0 */
/* The log and the result of a job, for the verbs that run or follow one. */
#ifndef GP_CMD_JOB_SHOW_H
#define GP_CMD_JOB_SHOW_H

#include "cmd/app.h"

#include "engine/job/jobs.h"

/* Where the log goes: stdout, each line behind "[RANK] "; with --json stderr, as lines of JSON. */
struct job_printer {
    struct invocation *inv;
    struct app_work *work;        /* its progress changes to plain lines while the log is printed */
    bool one;                     /* a log of one node: without the rank */
    bool broken;                  /* the reader has left */
    const struct job_result *res; /* the end of it is sent to the receivers of `notify`; NULL: it is not */
    bool logging;                 /* the log comes now */
};
/* Fills the callbacks of `opts` for this printer. */
void job_print_to(struct job_printer *p, struct job_opts *opts);
/* With --json the result as one value on stdout; r: what the verb returns. */
void job_show_result(struct invocation *inv, const char *stack, const struct job_result *res, json_t *plan, int r,
                     const struct gp_error *err);

#endif

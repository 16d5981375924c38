/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of `run`: suite_run.c runs the suite, run_plan.c selects checks, run_places.c keeps the
 * workers and sends requests, run_work.c is the worker, run_merge.c merges the GPUs' results. One thread; the parent
 * never calls a driver. */
#ifndef GP_AGENT_RUN_H
#define GP_AGENT_RUN_H

#include "validate/agent/base/emit.h"
#include "validate/agent/base/worker.h"
#include "validate/agent/verbs.h"
#include "validate/suite/pick.h"

#define RUN_MAX_GPUS 64
#define RUN_LOAD_MS 120000 /* loading the driver and making a context; --load-limit */

/* A verdict on a worker's GPU that is not about one check. VERDICT_PASS: no fault. */
struct run_said {
    enum verdict verdict;
    char code[48], message[400], suggestion[400];
    struct gpu_identity id;        /* of a load */
    const struct gpu_model *model; /* the same program: static addresses are equal */
    int64_t load_ms;
};

struct run_request {
    int32_t check; /* index into check_table; REQUEST_LOAD */
    int64_t deadline_ms, budget_ms;
};
enum { REQUEST_LOAD = -1 };

/* One worker and the state of its GPU. */
struct run_place {
    struct worker worker;
    int gpu; /* -1: the host's */
    bool loaded;
    bool lost; /* the reason is in said; it gets no more requests */
    struct run_said said;
    pid_t stuck; /* a worker that SIGKILL did not end; 0: none */
    char stuck_in[64];
};

struct suite_run {
    struct check_ctx ctx; /* copied by every worker */
    char host[65];
    struct pick picks[GP_ARRAY_LEN(((struct check_list *)0)->items)]; /* in the order of the run */
    size_t n_picks;
    bool all;                     /* --all: a failure does not end the run */
    bool named;                   /* --checks: these and no others */
    bool unjudged;                /* --unjudged: the caller judges the limits */
    bool failed;                  /* a check failed for certain */
    struct check_list gang;       /* gang checks of these */
    struct check_list own_floors; /* --floors: the caller judges the limits of these by its own */
    int64_t time_ms, load_limit_ms;
    int64_t hard_ms; /* monotonic: every check has ended by then; set when loading is done */
    int gpus;        /* places of GPUs */
    int place;       /* index of the child's place */
    struct emit emit;
    struct run_place places[RUN_MAX_GPUS + 1]; /* 0: the host's; 1 + i: GPU i's */
};

/* run_plan.c: options and the choice. 0 or -GP_EUSAGE. */
int run_setup(struct suite_run *run, int argc, char **argv, struct gp_error *err);

/* run_work.c: a worker's life. arg: struct suite_run. */
void run_worker(void *arg, int in, int out);

/* run_places.c */
/* Starts workers where there is none and has them load, all at once. */
void places_load(struct suite_run *run, bool host, bool gpus);
/* Runs one check in the host's place, or on all GPUs (side by side or in turns as its row says) with
 * one result. r: to be cleared by the caller. Returns when every worker has answered and rests. */
void place_ask_host(struct suite_run *run, const struct pick *p, struct agent_result *r);
void place_ask_gpus(struct suite_run *run, const struct pick *p, struct agent_result *r);
/* Ends all workers. Describes in *ret_left the processes that did not end; "" when all ended. */
void places_end(struct suite_run *run, struct str *ret_left);

/* run_merge.c: the worst verdict and figures of all GPUs, each GPU's own in data.gpus. */
void run_merge(struct agent_result *all, const struct agent_result *each, size_t n);

#endif

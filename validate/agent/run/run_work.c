/* SPDX-License-Identifier: Apache-2.0 */
/* A worker of `run`: loads once, then runs each requested check, and reports after each whether its GPU is idle. One
 * thread; the parent watches and kills. */
#include "base/gp_base.h"

#include "suite_run.h"

#include "base/clock.h"

#include <unistd.h>

#define REST_MS 2000 /* a check's queued work ends earlier */

static void said_from_error(struct run_said *said, const struct gp_error *err) {
    struct agent_result r;
    agent_result_init(&r, &check_table[0]); /* only for its message */
    if (agent_kind.device_failed) agent_kind.device_failed(&r, err);
    else agent_set_error(&r, VERDICT_FAIL, "no_device", err);
    said->verdict = r.verdict;
    str_put(said->code, sizeof said->code, r.code);
    str_put(said->message, sizeof said->message, r.message);
    str_put(said->suggestion, sizeof said->suggestion, r.suggestion);
    agent_result_clear(&r);
}

/* Names the process that holds an unusable GPU. */
static void add_holders(const struct check_ctx *c, struct run_said *said) {
    GP_AUTO_STR struct str who = {.max = 200};
    if (!agent_kind.holders || (!str_eq(said->code, "cuda_46") && !str_eq(said->code, "cuda_2"))) return;
    agent_kind.holders(c->gpu, &who);
    size_t n = strlen(said->message);
    if (who.len) snprintf(said->message + n, sizeof said->message - n, "; process %s is on it", who.s);
}

static void load(struct check_ctx *c, struct run_said *said) {
    struct gp_error err = {0};
    int64_t began = clock_ms();
    if (c->gpu < 0) {
        if (agent_kind.start) agent_kind.start(&err); /* gpu.presence reports its fault */
    } else if (agent_kind.device->open(c->gpu, &c->dev, &err)) {
        c->dev = NULL;
        said_from_error(said, &err);
        add_holders(c, said);
    } else if (agent_kind.identify) {
        agent_kind.identify(c->gpu, &said->id);
        said->model = gpu_model_find(said->id.device, said->id.subsystem);
    }
    c->model = said->model;
    said->load_ms = clock_ms() - began;
}

/* Loads the libraries of the checks to come, so that loading does not count as their time. */
static void load_checks(const struct suite_run *run, struct check_ctx *c, struct run_said *said) {
    int64_t began = clock_ms();
    for (size_t i = 0; c->dev && i < run->n_picks; i++) {
        const struct check_ops *ops = run->picks[i].taken ? agent_check_ops(run->picks[i].info->id) : NULL;
        if (ops && ops->load) ops->load(c);
    }
    said->load_ms += clock_ms() - began;
}

static void run_check(struct check_ctx *c, const struct check_info *info, struct agent_result *r) {
    const struct check_ops *ops = agent_check_ops(info->id);
    if (!ops) {
        agent_set(r, VERDICT_SKIPPED, "no_code", "gpuprov-agent (%s) has no code for %s", agent_kind.name, info->id);
        return;
    }
    if (ops->needs && !ops->needs(c, r)) return;
    while (agent_fault(info->id, 0, 0)) pause(); /* a check that never ends */
    if (agent_fault(info->id, 1, 0)) abort();
    if (c->dev && agent_kind.before) agent_kind.before(c);
    agent_about(r, c);
    ops->run(c, r);
    if (ops->conclude && r->verdict != VERDICT_SKIPPED && r->verdict != VERDICT_ERROR) ops->conclude(c, r);
    if (c->dev && agent_kind.after) agent_kind.after(c, r);
}

/* Waits for a check's queued work, so that it does not change the next one's figures. */
static void rest(struct check_ctx *c, struct run_said *said) {
    struct gp_error err = {0};
    if (c->dev && agent_kind.device->sync(c->dev, clock_deadline(REST_MS), &err)) said_from_error(said, &err);
}

void run_worker(void *arg, int in, int out) {
    struct suite_run *run = arg;
    struct check_ctx c = run->ctx;
    c.gpu = run->place - 1;
    struct run_request q;
    while (read(in, &q, sizeof q) == (ssize_t)sizeof q) {
        struct run_said said;
        memset(&said, 0, sizeof said); /* sent through a pipe with its padding */
        if (q.check == REQUEST_LOAD) {
            load(&c, &said);
            load_checks(run, &c, &said);
        } else {
            struct agent_result r;
            agent_result_init(&r, &check_table[q.check]);
            r.gpu = c.gpu;
            c.deadline_ms = q.deadline_ms;
            c.budget_ms = q.budget_ms;
            run_check(&c, r.check, &r);
            bool sent = worker_put_result(out, &r);
            agent_result_clear(&r);
            if (!sent) return;
            rest(&c, &said);
        }
        if (!worker_put(out, MSG_DONE, &said, sizeof said)) return;
    }
}

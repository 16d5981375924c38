/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of `run`, one for the host and one per GPU: started once, given requests one by one or all at once,
 * watched by one poll loop with each one's deadline. One that does not answer is killed, and its result reports
 * that. A GPU that was lost gets no more requests. Calls no driver. One thread. */
#include "base/gp_base.h"

#include "suite_run.h"

#include "base/clock.h"

#include <poll.h>
#include <unistd.h>

#ifdef GPUPROV_FAULTS
#define LIMIT_SLACK_MS 500
#else
#define LIMIT_SLACK_MS 10000 /* tolerance beyond a check's share of the time */
#endif
#define LOOK_MS 500     /* one wait for the workers */
#define REST_MS 4000    /* between a check's result and its GPU at rest */
#define DISMISS_MS 5000 /* a driver takes down eight contexts in less */

/* One request to one place, and its answer. */
struct ask {
    struct run_place *p;
    int32_t check; /* REQUEST_LOAD: a load */
    int64_t limit_ms, budget_ms;
    int64_t began_ms, deadline_ms; /* monotonic */
    bool waiting, has_result;
    struct agent_result r; /* of a check: always filled in the end */
    struct run_said said;  /* the GPU's state afterwards */
};

static const struct check_info *ask_info(const struct ask *a) {
    return a->check == REQUEST_LOAD ? NULL : &check_table[a->check];
}

static void said_put(struct run_said *said, enum verdict v, const char *code, const char *message,
                     const char *suggestion) {
    said->verdict = v;
    str_put(said->code, sizeof said->code, code);
    str_put(said->message, sizeof said->message, message);
    str_put(said->suggestion, sizeof said->suggestion, suggestion);
}

static void fresh_result(struct ask *a) {
    agent_result_init(&a->r, a->check == REQUEST_LOAD ? &check_table[0] : ask_info(a));
    a->r.gpu = a->p->gpu;
}

static const char *place_name(const struct run_place *p, char *dst, size_t n) {
    if (p->gpu < 0) snprintf(dst, n, "the host");
    else snprintf(dst, n, "gpu %d", p->gpu);
    return dst;
}

/* The host's place is never lost: its next check has a worker of its own. */
static void place_lose(struct run_place *p, const struct run_said *said, const char *where) {
    char name[32];
    if (p->gpu < 0) return;
    GP_AUTO_FREE char *text =
        xasprintf("not run: %s was lost in %s: %s", place_name(p, name, sizeof name), where, said->message);
    p->lost = true;
    said_put(&p->said, said->verdict, said->code, text, said->suggestion);
}

/* Kills the worker of an unanswered request. False: SIGKILL did not end it. */
static bool place_kill(struct suite_run *run, struct run_place *p, const char *what, int *ret_status) {
    pid_t pid = p->worker.pid;
    bool reaped = worker_kill(&p->worker, ret_status) && !agent_fault("stuck", (int)(p - run->places), 0);
    p->loaded = p->gpu < 0 && p->loaded;
    if (!reaped) {
        p->stuck = pid;
        str_put(p->stuck_in, sizeof p->stuck_in, what);
    }
    return reaped;
}

/* --- one request --- */

/* The worker did not answer: kills it; the reason becomes the result. */
static void ask_failed(struct suite_run *run, struct ask *a, const struct gp_error *err) {
    char text[64], took[32], name[32];
    int status = 0;
    const struct check_info *info = ask_info(a);
    const char *what = info ? info->id : "loading";
    bool reaped = place_kill(run, a->p, what, &status);
    struct run_said said = {.verdict = VERDICT_PASS};
    worker_status_text(text, sizeof text, status);
    duration_format(took, sizeof took, clock_ms() - a->began_ms);
    place_name(a->p, name, sizeof name);
    GP_AUTO_STR struct str s = {0};
    if (!reaped) {
        str_addf(&s, "driver hang: the worker of %s did not end within two seconds after SIGKILL", what);
        said_put(&said, VERDICT_FAIL, "driver_hang", s.s,
                 "replace the node: a driver holds a process that SIGKILL does not end");
    } else if (err->code == GP_ETIMEOUT && !info) {
        str_addf(&s, "the driver did not load for %s within %s", name, took);
        said_put(&said, VERDICT_FAIL, "load_timeout", s.s,
                 "look for 'NVRM' in the kernel log, and check how long nvidia-smi takes; reboot, and replace the "
                 "node if the fault returns");
    } else if (err->code == GP_ETIMEOUT && a->has_result) {
        str_addf(&s, "%s still had work %s after %s began", name, took, what);
        if (a->p->gpu < 0) said_put(&said, VERDICT_ERROR, "overrun", s.s, ""); /* no GPU can hang: a busy machine */
        else
            said_put(&said, VERDICT_FAIL, "gpu_hang", s.s,
                     "look for 'NVRM: Xid' in the kernel log; reset the GPU or replace the node");
    } else if (err->code == GP_ETIMEOUT) {
        str_addf(&s, "%s did not end within %s and was killed", what, took);
        said_put(&said, VERDICT_FAIL, "overrun", s.s, "");
    } else {
        str_addf(&s, "the worker of %s %s%s", what, text, info ? "" : " while it loaded the driver");
        said_put(&said, VERDICT_ERROR, "crashed", s.s, "");
    }
    bool restless = a->has_result && err->code == GP_ETIMEOUT;
    if (!a->has_result) fresh_result(a);
    a->has_result = true;
    if (said.verdict > a->r.verdict) agent_suggest(&a->r, "%s", said.suggestion);
    agent_set(&a->r, said.verdict, said.code, "%s", said.message);
    if (!info) {
        a->p->said = said;
        a->p->lost = true;
    } else if (!reaped || restless) {
        place_lose(a->p, &said, what);
    }
    a->waiting = false;
}

static void ask_send(struct suite_run *run, struct ask *a) {
    struct run_place *p = a->p;
    struct gp_error err = {0};
    a->began_ms = clock_ms();
    a->deadline_ms = clock_deadline(a->limit_ms);
    run->place = (int)(p - run->places);
    if (!p->worker.pid && worker_start(&p->worker, run_worker, run, &err)) {
        fresh_result(a);
        a->has_result = true;
        agent_set_error(&a->r, VERDICT_ERROR, "no_worker", &err);
        return;
    }
    struct run_request q;
    memset(&q, 0, sizeof q);
    q.check = a->check;
    q.deadline_ms = a->deadline_ms - 1000;
    q.budget_ms = a->budget_ms;
    a->waiting = true;
    if (write(p->worker.to, &q, sizeof q) != (ssize_t)sizeof q) {
        gp_fail(&err, GP_ELOST, "the worker ended");
        ask_failed(run, a, &err);
    }
}

/* The GPU still had work, or its driver returned an error: its later checks are lost. */
static void ask_rested(struct ask *a) {
    const struct check_info *info = ask_info(a);
    a->waiting = false;
    if (a->said.verdict == VERDICT_PASS || !info) return;
    if (a->said.verdict > a->r.verdict) agent_suggest(&a->r, "%s", a->said.suggestion);
    agent_set(&a->r, a->said.verdict, a->said.code, "%s ended, but then: %s", info->id, a->said.message);
    place_lose(a->p, &a->said, info->id);
}

static void ask_message(struct suite_run *run, struct ask *a, const struct worker_msg *m) {
    struct gp_error err = {0};
    if (m->kind == MSG_RESULT && !a->has_result && a->check != REQUEST_LOAD) {
        if (worker_get_result(m, &a->r, &err)) {
            ask_failed(run, a, &err);
            return;
        }
        a->has_result = true;
        a->r.took_ms = clock_ms() - a->began_ms;
        a->deadline_ms = GP_MAX(a->deadline_ms, clock_deadline(REST_MS));
    } else if (m->kind == MSG_DONE && m->body.len == sizeof a->said && (a->has_result || a->check == REQUEST_LOAD)) {
        memcpy(&a->said, m->body.s, sizeof a->said);
        ask_rested(a);
    } else {
        gp_fail(&err, GP_EPROTO, "the worker sent an unexpected message");
        ask_failed(run, a, &err);
    }
}

static void ask_read(struct suite_run *run, struct ask *a) {
    struct gp_error err = {0};
    while (a->waiting) {
        struct worker_msg m = {0};
        bool got = false;
        int rc = worker_take(&a->p->worker, &m, &got, &err);
        if (rc == 0 && got) ask_message(run, a, &m);
        worker_msg_clear(&m);
        if (rc) {
            ask_failed(run, a, &err);
            return;
        }
        if (!got) return;
    }
}

/* --- many requests at once --- */

/* Sends all and waits for all: the barrier between checks. */
static void ask_all(struct suite_run *run, struct ask *asks, size_t n) {
    int64_t last_ms = clock_ms(); /* the time limits begin here */
    for (size_t i = 0; i < n; i++) ask_send(run, &asks[i]);
    for (;;) {
        int64_t stood_ms = clock_stood_ms(&last_ms, LOOK_MS); /* nobody's time */
        struct pollfd fds[RUN_MAX_GPUS + 1];
        struct ask *who[RUN_MAX_GPUS + 1];
        nfds_t k = 0;
        int64_t next = GP_NEVER;
        for (size_t i = 0; i < n; i++) {
            if (asks[i].deadline_ms != GP_NEVER) asks[i].deadline_ms += stood_ms;
            if (asks[i].waiting && clock_left_ms(asks[i].deadline_ms) == 0) {
                struct gp_error err = {0};
                gp_fail(&err, GP_ETIMEOUT, "timed out");
                ask_failed(run, &asks[i], &err);
            }
            if (!asks[i].waiting) continue;
            next = GP_MIN(next, asks[i].deadline_ms);
            who[k] = &asks[i];
            fds[k++] = (struct pollfd){.fd = asks[i].p->worker.from, .events = POLLIN};
        }
        if (!k) return;
        poll(fds, k, (int)GP_MIN(clock_left_ms(next) + 1, LOOK_MS));
        for (nfds_t i = 0; i < k; i++)
            if (fds[i].revents) ask_read(run, who[i]);
    }
}

/* --- loading --- */

static void load_done(struct run_place *p, const struct ask *a) {
    char was[32];
    str_put(was, sizeof was, p->said.id.pci);
    if (p->lost) { /* a failed load keeps its reason; the host's other checks need no driver */
        p->lost = p->gpu >= 0;
        p->loaded = true;
        return;
    }
    if (a->has_result) { /* the worker did not start */
        p->lost = true;
        said_put(&p->said, a->r.verdict, a->r.code, a->r.message, a->r.suggestion);
        return;
    }
    p->said = a->said;
    p->loaded = true;
    p->lost = a->said.verdict != VERDICT_PASS;
    if (!p->lost && was[0] && !str_eq(was, a->said.id.pci)) {
        GP_AUTO_FREE char *text =
            xasprintf("gpu %d was %s and is %s for a new process: a GPU fell off the bus", p->gpu, was, a->said.id.pci);
        p->lost = true;
        said_put(&p->said, VERDICT_FAIL, "gpu_lost", text,
                 "look for 'NVRM: Xid' 79 in the kernel log; reboot, then replace the node");
    }
}

static void load_places(struct suite_run *run, int first, int last) {
    struct ask asks[RUN_MAX_GPUS + 1];
    size_t n = 0;
    memset(asks, 0, sizeof asks);
    for (int i = first; i <= last; i++) {
        struct run_place *p = &run->places[i];
        if (!p->loaded && !p->lost)
            asks[n++] = (struct ask){.p = p, .check = REQUEST_LOAD, .limit_ms = run->load_limit_ms};
    }
    ask_all(run, asks, n);
    for (size_t i = 0; i < n; i++) {
        load_done(asks[i].p, &asks[i]);
        if (asks[i].has_result) agent_result_clear(&asks[i].r);
    }
}

void places_load(struct suite_run *run, bool host, bool gpus) { load_places(run, host ? 0 : 1, gpus ? run->gpus : 0); }

/* --- checks --- */

static void ask_prepare(struct suite_run *run, const struct pick *pick, struct run_place *p, int64_t budget_ms,
                        struct ask *a) {
    *a = (struct ask){.p = p, .check = (int32_t)(pick->info - check_table), .budget_ms = budget_ms};
    a->limit_ms = GP_MIN(budget_ms + LIMIT_SLACK_MS, clock_left_ms(run->hard_ms));
}

/* A lost place answers with its reason at once; so does the host's for a check that needs the driver. */
static bool place_answers(struct ask *a) {
    bool driver = check_table[a->check].level == CHECK_GPU && a->p->said.verdict != VERDICT_PASS;
    if (!a->p->lost && !driver) return true;
    fresh_result(a);
    a->has_result = true;
    agent_set(&a->r, a->p->said.verdict, a->p->said.code, "%s", a->p->said.message);
    agent_suggest(&a->r, "%s", a->p->said.suggestion);
    return false;
}

/* A check that opens all GPUs in one process: a GPU in exclusive-process mode must not have another one, so the
 * workers of such GPUs end, and are started again for the next check. */
static void leave_exclusive(struct suite_run *run) {
    for (int g = 1; g <= run->gpus; g++) {
        struct run_place *p = &run->places[g];
        if (!p->said.id.exclusive || !p->worker.pid) continue;
        worker_dismiss(&p->worker, 1, clock_deadline(DISMISS_MS));
        place_kill(run, p, "its end", NULL);
    }
}

void place_ask_host(struct suite_run *run, const struct pick *pick, struct agent_result *r) {
    struct ask a;
    if (pick->info->needs & NEED_GPUS) leave_exclusive(run);
    ask_prepare(run, pick, &run->places[0], pick->budget_ms, &a);
    if (place_answers(&a)) ask_all(run, &a, 1);
    *r = a.r;
    r->gpu = -1;
    agent_judge(r, 1, !run->unjudged);
}

static void ask_together(struct suite_run *run, const struct pick *pick, struct ask *asks) {
    struct ask ready[RUN_MAX_GPUS];
    int who[RUN_MAX_GPUS];
    size_t n = 0;
    for (int g = 0; g < run->gpus; g++) {
        ask_prepare(run, pick, &run->places[g + 1], pick->budget_ms, &asks[g]);
        if (!place_answers(&asks[g])) continue;
        who[n] = g;
        ready[n++] = asks[g];
    }
    ask_all(run, ready, n);
    for (size_t i = 0; i < n; i++) asks[who[i]] = ready[i];
}

static void ask_in_turn(struct suite_run *run, const struct pick *pick, struct ask *asks) {
    for (int g = 0; g < run->gpus; g++) {
        ask_prepare(run, pick, &run->places[g + 1], pick->budget_ms / run->gpus, &asks[g]);
        if (place_answers(&asks[g])) ask_all(run, &asks[g], 1);
    }
}

void place_ask_gpus(struct suite_run *run, const struct pick *pick, struct agent_result *r) {
    const struct check_info *info = pick->info;
    struct ask asks[RUN_MAX_GPUS];
    struct agent_result each[RUN_MAX_GPUS];
    int64_t began = clock_ms();
    int ran = 0;
    agent_result_init(r, info);
    if (!run->gpus) {
        agent_set(r, VERDICT_SKIPPED, "no_gpu", "this node has no GPU to check");
        return;
    }
    load_places(run, 1, run->gpus); /* replaces killed workers and identifies their GPUs again */
    for (int g = 0; g < run->gpus; g++) ran += !run->places[g + 1].lost;
    if (info->together) ask_together(run, pick, asks);
    else ask_in_turn(run, pick, asks);
    for (int g = 0; g < run->gpus; g++) each[g] = asks[g].r;
    const struct check_ops *ops = agent_check_ops(info->id);
    if (ops && ops->compare) ops->compare(each, (size_t)run->gpus);
    agent_judge(each, (size_t)run->gpus, !run->unjudged);
    run_merge(r, each, (size_t)run->gpus);
    r->took_ms = clock_ms() - began;
    agent_metric(r, "gpus", ran);
    if (run->gpus < run->ctx.gpus_expected)
        agent_set(r, VERDICT_FAIL, "gpu_missing", "found only %d of %d GPUs to check", run->gpus,
                  run->ctx.gpus_expected);
    for (int g = 0; g < run->gpus; g++) agent_result_clear(&each[g]);
}

/* --- the end --- */

/* A driver holds a worker that SIGKILL does not end; such a node fails, whatever its checks reported. */
void places_end(struct suite_run *run, struct str *ret_left) {
    struct worker workers[RUN_MAX_GPUS + 1];
    for (size_t i = 0; i < GP_ARRAY_LEN(workers); i++) workers[i] = run->places[i].worker;
    worker_dismiss(workers, GP_ARRAY_LEN(workers), clock_deadline(DISMISS_MS));
    for (size_t i = 0; i < GP_ARRAY_LEN(workers); i++) {
        struct run_place *p = &run->places[i];
        pid_t pid = workers[i].pid;
        p->worker = workers[i];
        if (pid && (!worker_kill(&p->worker, NULL) || agent_fault("unreaped", (int)i, 0))) {
            p->stuck = pid;
            str_put(p->stuck_in, sizeof p->stuck_in, "its end");
        }
        char name[32];
        if (p->stuck)
            str_addf(ret_left, "%sprocess %d of %s, in %s", ret_left->len ? "; " : "", (int)p->stuck,
                     place_name(p, name, sizeof name), p->stuck_in);
    }
}

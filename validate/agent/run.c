/* SPDX-License-Identifier: Apache-2.0 */
/* `run`: the node checks, each in a worker process (one for the host, one per GPU so that a driver
 * starts once), watched: a worker that overruns its check is killed, and that is the result. */
#include "base/gp_base.h"

#include "verbs.h"

#include "base/clock.h"
#include "emit.h"
#include "worker.h"

#include <poll.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define RUN_MAX_GPUS 64
#define DISMISS_MS 5000 /* a driver takes down eight contexts in less */

struct run_request {
    int32_t check; /* index into check_table */
    int64_t deadline_ms;
};

struct run {
    struct check_ctx ctx; /* what every worker starts from */
    char host[65];
    int64_t deadline_ms;
    int gpus;          /* workers for GPU checks */
    struct check_list checks;
    struct emit emit;
    struct worker workers[RUN_MAX_GPUS + 1]; /* 0: the host's; 1 + i: GPU i's */
    bool stuck[RUN_MAX_GPUS + 1]; /* could not be reaped: that place is not used again */
    int place;                    /* which one a child is */
};

/* --- in the worker --- */

static void run_one(struct check_ctx *c, const struct check_info *info, struct agent_result *r) {
    const struct check_ops *ops = agent_check_ops(info->id);
    struct gp_error err = {0};
    if (ops == NULL) {
        agent_set(r, AGENT_SKIPPED, "no_code", "gpuprov-agent (%s) has no code for %s", agent_kind.name,
                  info->id);
        return;
    }
    if (ops->needs != NULL && !ops->needs(c, r)) return;
    while (agent_fault(info->id, 0, 0)) pause(); /* a check that never ends */
    if (agent_fault(info->id, 1, 0)) abort();
    if ((info->needs & NEED_GPU) && c->dev == NULL && c->gpu >= 0 &&
        agent_kind.device->open(c->gpu, &c->dev, &err) != 0) {
        if (agent_kind.device_failed != NULL) agent_kind.device_failed(r, &err);
        else agent_set_error(r, AGENT_FAIL, "no_device", &err);
        return;
    }
    ops->run(c, r);
    if (r->verdict == AGENT_SKIPPED || r->verdict == AGENT_ERROR) return;
    agent_about(r, c);
    if (ops->judge != NULL) ops->judge(c, r);
    else agent_judge_limits(r);
}

static void run_worker(void *arg, int in, int out) {
    struct run *run = arg;
    struct check_ctx c = run->ctx;
    c.gpu = run->place - 1;
    struct run_request q;
    while (read(in, &q, sizeof q) == (ssize_t)sizeof q) {
        const struct check_info *info = &check_table[q.check];
        struct agent_result r;
        agent_result_init(&r, info);
        r.gpu = c.gpu;
        c.deadline_ms = q.deadline_ms;
        int64_t began = clock_ms();
        run_one(&c, info, &r);
        r.took_ms = clock_ms() - began;
        bool sent = worker_put_result(out, &r);
        agent_result_clear(&r);
        if (!sent) return;
    }
}

/* --- in the parent --- */

#ifdef GPUPROV_FAULTS
#define LIMIT_SLACK_MS 500
#else
#define LIMIT_SLACK_MS 10000
#endif
static int64_t limit_ms(const struct check_info *c) {
    return (int64_t)c->seconds * 1000 + LIMIT_SLACK_MS;
}

/* The worker did not answer: it is killed, and why becomes the result. */
static void overrun(struct run *run, int place, const struct check_info *info, struct gp_error *err,
                    int64_t waited_ms, struct agent_result *r) {
    char text[64], took[32];
    int status = 0;
    bool reaped = worker_kill(&run->workers[place], &status);
    worker_status_text(text, sizeof text, status);
    duration_format(took, sizeof took, waited_ms);
    agent_result_init(r, info);
    r->gpu = place - 1;
    r->took_ms = waited_ms;
    if (!reaped) {
        run->stuck[place] = true;
        agent_set(r, AGENT_FAIL, "driver_hang",
                  "driver hang: the worker of %s could not be ended two seconds after SIGKILL",
                  info->id);
        agent_suggest(r, "replace the node: a process that SIGKILL does not end is held by a driver");
    } else if (err->code == GP_ETIMEOUT) {
        agent_set(r, AGENT_FAIL, "overrun", "%s had not ended after %s and was killed", info->id, took);
    } else {
        agent_set(r, AGENT_ERROR, "crashed", "the worker of %s %s", info->id, text);
    }
}

/* Asks the worker of that place; starts it when there is none. */
static void ask(struct run *run, int place, int index, struct agent_result *r) {
    const struct check_info *info = &check_table[index];
    struct worker *w = &run->workers[place];
    struct gp_error err = {0};
    int64_t began = clock_ms();
    int64_t deadline = GP_MIN(clock_deadline(limit_ms(info)), run->deadline_ms);
    if (run->stuck[place]) {
        agent_result_init(r, info);
        r->gpu = place - 1;
        agent_set(r, AGENT_FAIL, "driver_hang", "not run: an earlier worker could not be ended");
        return;
    }
    run->place = place;
    if (w->pid == 0 && worker_start(w, run_worker, run, &err) != 0) {
        agent_result_init(r, info);
        agent_set_error(r, AGENT_ERROR, "no_worker", &err);
        return;
    }
    struct run_request q = {.check = index, .deadline_ms = deadline - 1000};
    struct worker_msg m = {0};
    ssize_t sent = write(w->to, &q, sizeof q);
    int rc = sent == (ssize_t)sizeof q ? worker_next(w, deadline, &m, &err)
                                       : gp_fail(&err, GP_ELOST, "the worker ended");
    if (rc == 0) rc = worker_get_result(&m, r, &err);
    worker_msg_clear(&m);
    if (rc != 0) overrun(run, place, info, &err, clock_ms() - began, r);
}

static void worse_metric(struct agent_result *all, const struct agent_metric *m) {
    for (size_t i = 0; i < all->n_metrics; i++) {
        if (all->metrics[i].info != m->info) continue;
        bool worse = m->info->ceiling ? m->value > all->metrics[i].value : m->value < all->metrics[i].value;
        if (worse) all->metrics[i].value = m->value;
        return;
    }
    all->metrics[all->n_metrics++] = *m;
}

/* One result per check: of all GPUs the worst verdict and the worst figures, each GPU's in data. */
static void merge_gpu(struct agent_result *all, const struct agent_result *one, bool first) {
    GP_AUTO_FREE char *prefix = xasprintf("gpu %d: ", one->gpu);
    GP_AUTO_FREE char *text =
        xasprintf("%s%s", str_starts(one->message, prefix) ? "" : prefix, one->message);
    agent_set(all, one->verdict, one->code, "%s", text);
    if (first && one->verdict == AGENT_PASS) agent_say(all, "%s", one->message);
    if (one->verdict == all->verdict && all->suggestion[0] == '\0')
        str_put(all->suggestion, sizeof all->suggestion, one->suggestion);
    for (size_t i = 0; i < one->n_metrics; i++) worse_metric(all, &one->metrics[i]);
    all->took_ms += one->took_ms;
    str_addf(&all->data, "%s{\"gpu\":%d,\"verdict\":\"%s\"%s%s}", first ? "\"gpus\":[" : ",", one->gpu,
             agent_verdict_name(one->verdict), one->data.len > 0 ? "," : "", one->data.s);
}

static void ask_gpus(struct run *run, int index, struct agent_result *r) {
    agent_result_init(r, &check_table[index]);
    for (int g = 0; g < run->gpus; g++) {
        struct agent_result one;
        ask(run, g + 1, index, &one);
        merge_gpu(r, &one, g == 0);
        agent_result_clear(&one);
    }
    if (run->gpus > 0) str_addc(&r->data, ']');
    if (run->gpus > 0) agent_metric(r, "gpus", run->gpus);
    if (run->gpus > 0 && run->gpus < run->ctx.gpus_expected)
        agent_set(r, AGENT_FAIL, "gpu_missing", "only %d of %d GPUs are here to be checked", run->gpus,
                  run->ctx.gpus_expected);
    if (run->gpus == 0) agent_set(r, AGENT_SKIPPED, "no_gpu", "there is no GPU to check");
}

static void run_checks(struct run *run) {
    for (size_t i = 0; i < run->checks.n && !run->emit.broken; i++) {
        int index = run->checks.items[i];
        const struct check_info *info = &check_table[index];
        struct agent_result r;
        emit_start(&run->emit, info);
        if (clock_left_ms(run->deadline_ms) <= 1000) {
            agent_result_init(&r, info);
            agent_set(&r, AGENT_SKIPPED, "no_time", "not run: --time had passed");
        } else if ((info->needs & NEED_GPU) && agent_check_ops(info->id) != NULL) {
            ask_gpus(run, index, &r); /* a check of GPUs that needs none runs once, in the host's place */
        } else {
            ask(run, 0, index, &r);
        }
        emit_result(&run->emit, &r);
        agent_result_clear(&r);
    }
}

/* Workers end after the last result. One that SIGKILL does not end is held by a driver, and a node that
 * holds one is not good, whatever its checks said. Returns why, or "". */
static const char *end_workers(struct run *run) {
    bool held = false;
    size_t n = GP_ARRAY_LEN(run->workers);
    worker_dismiss(run->workers, n, clock_deadline(DISMISS_MS));
    for (size_t i = 0; i < n; i++) {
        bool reaped = worker_kill(&run->workers[i], NULL) && !agent_fault("unreaped", (int)i, 0);
        held = held || !reaped;
    }
    if (!held) return "";
    run->emit.worst = AGENT_FAIL;
    return "driver hang: a worker could not be ended two seconds after SIGKILL: replace the node";
}

/* Without --checks: what this program can do and what fits, required ones first. */
static void choose(struct check_list *list, int64_t time_ms, bool gpus) {
    int64_t left = time_ms;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; check_table[i].id != NULL; i++) {
            const struct check_info *c = &check_table[i];
            if (c->level == CHECK_GANG || c->required != (pass == 0)) continue;
            if (c->level == CHECK_GPU && !gpus) continue;
            if (agent_check_ops(c->id) == NULL || (pass == 1 && c->seconds * 1000 > left)) continue;
            left -= c->seconds * 1000;
            list->items[list->n++] = i;
        }
    }
}

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int run_setup(struct run *run, int argc, char **argv, struct gp_error *err) {
    const char *ids = NULL;
    int64_t time_ms = 60000, gpus = -1, now_ms = -1;
    bool json = false;
    const struct arg args[] = {
        {"--time", ARG_MS, false, &time_ms},       {"--checks", ARG_TEXT, false, &ids},
        {"--gpus", ARG_INT, false, &gpus},         {"--now-ms", ARG_INT, false, &now_ms},
        {"--json", ARG_FLAG, false, &json},        {"--text", ARG_FLAG, false, &run->emit.text},
        {.name = NULL}};
    int64_t now = wall_ms();
    int r = args_parse(argc, argv, args, err);
    if (r != 0) return r;
    if (json && run->emit.text)
        return gp_fail(err, GP_EUSAGE, "--json and --text exclude each other");
    run->deadline_ms = clock_deadline(time_ms);
    run->ctx.gpu = -1;
    run->ctx.gpus_expected = (int)GP_MAX(-1, GP_MIN(gpus, RUN_MAX_GPUS));
    run->ctx.has_controller_now = now_ms >= 0;
    run->ctx.clock_offset_ms = now_ms >= 0 ? now - now_ms : 0;
    run->gpus = agent_kind.gpu_count != NULL ? agent_kind.gpu_count() : 0;
    run->gpus = GP_MIN(run->gpus, RUN_MAX_GPUS);
    struct utsname u;
    if (uname(&u) == 0) str_put(run->host, sizeof run->host, u.nodename);
    run->ctx.host = run->host;
    if (ids != NULL) return check_list_parse(ids, false, &run->checks, err);
    choose(&run->checks, time_ms, run->ctx.gpus_expected > 0 || agent_dev_nvidia_count() > 0);
    return 0;
}

int verb_run(int argc, char **argv) {
    struct gp_error err = {0};
    struct run *run = xcalloc(1, sizeof *run);
    run->emit.fd = STDOUT_FILENO;
    for (size_t i = 0; i < GP_ARRAY_LEN(run->workers); i++)
        run->workers[i] = (struct worker)WORKER_NONE;
    int code = AGENT_EXIT_UNKNOWN;
    if (run_setup(run, argc, argv, &err) == 0) {
        emit_hello(&run->emit, -1, 0);
        run_checks(run);
        code = emit_end(&run->emit, end_workers(run));
        if (run->emit.broken) code = AGENT_EXIT_UNKNOWN;
    } else {
        fprintf(stderr, "gpuprov-agent run: %s\n", err.msg);
    }
    free(run);
    return code;
}

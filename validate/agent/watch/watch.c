/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `watch`. Prints JSON lines: "begin", each new fault once ("unhealthy"), the notice that the cloud takes the
 * node back ("preempted"), a GPU or a notice that cannot be watched ("blind"), and "alive" once a period. Ends when
 * its output is closed, --time is over or SIGTERM arrives; then it looks once more. One thread. */
#include "base/gp_base.h"

#include "validate/agent/watch/watch.h"

#include "base/clock.h"
#include "base/vec.h"
#include "validate/agent/base/kernlog.h"
#include "validate/agent/base/worker.h"
#include "validate/agent/verbs.h"
#include "validate/agent/watch/preempt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define EVERY_MS 10000
#define STALLED_MS 300000
#define EVERY_LEAST_MS 100
#define STEP_MS 100     /* how often messages of the workers are taken */
#define SILENT_MS 30000 /* a worker that is silent for so long beyond its period hangs in the driver */
#define LAST_MS 3000    /* for the last look of all workers */
#define LAST_STEP_MS 10
#define NOTICE_TRIES 3    /* requests without an answer in a row until notices are reported as not watched */
#define REPORTED_MAX 256U /* different faults; a node with more is reported already */

struct watched {
    struct worker worker;
    bool blind;       /* it is not watched any more */
    bool begun;       /* its first message came */
    int64_t heard_ms; /* monotonic: its last message */
    char pci[24];     /* "": not known yet */
};
struct reported {
    int gpu; /* -1: the node */
    char code[48];
};
struct watch {
    struct watched *gpus; /* and after them the one that reads the cloud's notices */
    int n;                /* GPUs */
    int workers;
    const struct preempt_source *notices; /* NULL: none are read */
    struct watch_opts opts;
    struct kern_log log;
    bool log_open;
    VEC_OF(struct reported) reported;
    bool closed; /* nobody reads the output any more */
    bool last;   /* the workers look once more and end */
};

static void put_line(struct watch *w, struct str *s) {
    str_add(s, "}\n");
    for (size_t at = 0; at < s->len && !w->closed;) {
        ssize_t n = write(STDOUT_FILENO, s->s + at, s->len - at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) w->closed = true;
        else at += (size_t)n;
    }
}

static void add_text(struct str *s, const char *key, const char *value) {
    str_addf(s, ",\"%s\":\"", key);
    str_add_json(s, value, strlen(value));
    str_addc(s, '"');
}

static void add_gpu(struct str *s, int gpu) {
    if (gpu >= 0) str_addf(s, ",\"gpu\":%d", gpu);
}

static bool is_new(struct watch *w, int gpu, const char *code) {
    for (size_t i = 0; i < w->reported.len; i++)
        if (w->reported.items[i].gpu == gpu && str_eq(w->reported.items[i].code, code)) return false;
    if (w->reported.len >= REPORTED_MAX) return false;
    struct reported r = {.gpu = gpu};
    str_put(r.code, sizeof r.code, code);
    vec_push(&w->reported, r);
    return true;
}

static void report(struct watch *w, int gpu, const struct watch_finding *f) {
    static const char *const names[] = {"note", "degraded", "fail"};
    if (!is_new(w, gpu, f->code)) return;
    GP_AUTO_STR struct str s = {0};
    str_add(&s, "{\"watch\":\"unhealthy\"");
    add_gpu(&s, gpu);
    add_text(&s, "severity", names[f->severity]);
    add_text(&s, "code", f->code);
    add_text(&s, "text", f->text);
    if (f->advice[0] != '\0') add_text(&s, "advice", f->advice);
    put_line(w, &s);
}

static void blind(struct watch *w, int gpu, const char *why) {
    GP_AUTO_STR struct str s = {0};
    str_add(&s, "{\"watch\":\"blind\"");
    add_gpu(&s, gpu);
    add_text(&s, "reason", why);
    put_line(w, &s);
}

static void put_state(struct watch *w, const char *state) {
    GP_AUTO_STR struct str s = {0};
    str_addf(&s, "{\"watch\":\"%s\",\"gpus\":%d,\"kernlog\":%s", state, w->n, w->log_open ? "true" : "false");
    put_line(w, &s);
}

/* --- the workers --- */

struct worker_arg {
    int gpu; /* -1: the notices */
    const struct watch *watch;
};

/* Reports the first notice, and once that there is no answer. */
static void read_notices(const struct watch *w, int out) {
    struct watch_msg m = {.kind = WATCH_ALIVE};
    int failed = 0;
    bool told = false, told_blind = false;
    while (worker_put(out, MSG_LINE, &m, sizeof m)) {
        enum preempt_state state = PREEMPT_NONE;
        struct gp_error err = {0};
        int r = preempt_look(w->notices, clock_deadline(SILENT_MS), &state, &m.when_s, &err);
        failed = r != 0 ? failed + 1 : 0;
        bool noticed = state == PREEMPT_NOTICED && !told, is_blind = failed == NOTICE_TRIES && !told_blind;
        told = told || noticed;
        told_blind = told_blind || is_blind;
        m.kind = noticed ? WATCH_PREEMPTED : is_blind ? WATCH_BLIND : WATCH_ALIVE;
        if (m.kind == WATCH_BLIND) snprintf(m.f.text, sizeof m.f.text, "notices of the cloud: %.200s", err.msg);
        gp_sleep(m.kind == WATCH_ALIVE ? w->opts.every_ms : 0, NULL, NULL);
    }
}

static void worker_main(void *arg, int in, int out) {
    const struct worker_arg *a = arg;
    if (a->gpu >= 0) agent_kind.watch(a->gpu, &a->watch->opts, in, out);
    else read_notices(a->watch, out);
}

static int gpu_of(const struct watch *w, int i) { return i < w->n ? i : -1; }

static void start_workers(struct watch *w) {
    for (int i = 0; i < w->workers; i++) {
        struct watched *g = &w->gpus[i];
        struct worker_arg arg = {.gpu = gpu_of(w, i), .watch = w};
        struct gp_error err = {0};
        g->worker = (struct worker)WORKER_NONE;
        g->heard_ms = clock_ms();
        if (worker_start(&g->worker, worker_main, &arg, &err) == 0) continue;
        g->blind = true;
        blind(w, gpu_of(w, i), err.msg);
    }
}

/* Once: the notice stays until the node is gone. */
static void preempted(struct watch *w, int64_t when_s) {
    char when[32];
    GP_AUTO_STR struct str s = {0};
    if (!is_new(w, -1, "preempted")) return;
    time_format_utc(when, sizeof when, when_s);
    str_add(&s, "{\"watch\":\"preempted\"");
    if (when_s > 0) add_text(&s, "when", when);
    put_line(w, &s);
}

static void on_msg(struct watch *w, int i, const struct worker_msg *m) {
    struct watched *g = &w->gpus[i];
    int gpu = gpu_of(w, i);
    struct watch_msg in;
    if (m->kind != MSG_LINE || m->body.len != sizeof in) return;
    memcpy(&in, m->body.s, sizeof in);
    g->heard_ms = clock_ms();
    g->begun = true;
    if (in.kind == WATCH_IS_AT) str_put(g->pci, sizeof g->pci, in.pci);
    if (in.kind == WATCH_FOUND) report(w, gpu, &in.f);
    if (in.kind == WATCH_PREEMPTED) preempted(w, in.when_s);
    if (in.kind == WATCH_BLIND) {
        g->blind = gpu >= 0; /* notices may be readable again later */
        blind(w, gpu, in.f.text);
    }
}

/* A worker that ended without a reason, or hangs, is not started again: the driver is likely to do it again. */
static void lose(struct watch *w, int i, bool hangs) {
    struct watched *g = &w->gpus[i];
    int gpu = gpu_of(w, i);
    int status = 0;
    char how[96] = "";
    bool reaped = worker_kill(&g->worker, &status);
    bool told = g->blind;
    g->blind = true;
    if (told || (w->last && status == 0)) return;
    if (hangs && gpu >= 0) {
        struct watch_finding f = {.severity = WATCH_FAIL, .code = "driver_hang"};
        snprintf(f.text, sizeof f.text, "the driver does not answer%s",
                 reaped ? "" : "; the process that waits for it cannot be ended");
        str_put(f.advice, sizeof f.advice, "reboot the node, then validate it again; replace it if the fault returns");
        report(w, gpu, &f);
        return;
    }
    worker_status_text(how, sizeof how, status);
    GP_AUTO_FREE char *why = xasprintf("its worker %s", how);
    blind(w, gpu, why);
}

/* False: the worker has ended. */
static bool take_from(struct watch *w, int i) {
    struct worker_msg m = {0};
    bool got = true;
    int r = 0;
    while (r == 0 && got) {
        r = worker_take(&w->gpus[i].worker, &m, &got, NULL);
        if (r == 0 && got) on_msg(w, i, &m);
    }
    worker_msg_clear(&m);
    return r == 0;
}

static void take_messages(struct watch *w) {
    for (int i = 0; i < w->workers; i++) {
        struct watched *g = &w->gpus[i];
        if (g->worker.pid == 0) continue;
        if (!take_from(w, i)) lose(w, i, false);
        else if (!g->blind && clock_ms() - g->heard_ms > w->opts.every_ms + SILENT_MS) lose(w, i, true);
    }
}

/* --- the kernel log --- */

enum watch_severity watch_severity(const struct kern_finding *k) {
    if (k->xid == XID_APPLICATION) return WATCH_NOTE;     /* the job's own */
    if (str_eq(k->code, "xid_63")) return WATCH_DEGRADED; /* a row is remapped at the next reset */
    return k->action == KERN_FAIL ? WATCH_FAIL : k->action == KERN_DEGRADED ? WATCH_DEGRADED : WATCH_NOTE;
}

static int gpu_at(const struct watch *w, const char *pci) {
    for (int i = 0; i < w->n; i++)
        if (pci[0] != '\0' && str_eq(w->gpus[i].pci, pci)) return i;
    return -1;
}

static void read_log(struct watch *w) {
    const char *text = NULL;
    while (w->log_open && kernlog_next(&w->log, &text) == 1) {
        struct kern_finding k = kernlog_judge(text);
        if (k.action == KERN_NONE) continue;
        struct watch_finding f = {.severity = watch_severity(&k)};
        str_put(f.code, sizeof f.code, k.code);
        str_put(f.advice, sizeof f.advice, k.advice);
        snprintf(f.text, sizeof f.text, "kernel log: %.220s", text);
        report(w, gpu_at(w, k.pci), &f);
    }
}

/* --- the verb --- */

/* The workers of GPUs look once more and end: a fault that ended the job is often newer than the last period. */
static void last_look(struct watch *w) {
    int64_t end = clock_deadline(LAST_MS);
    take_messages(w); /* also of the one that reads notices, which is not waited for */
    w->last = true;
    for (int i = 0; i < w->n; i++)
        if (w->gpus[i].worker.pid != 0) (void)worker_put(w->gpus[i].worker.to, MSG_DONE, "", 0);
    for (bool waits = true; waits && clock_left_ms(end) > 0;) {
        waits = false;
        for (int i = 0; i < w->n; i++) {
            if (w->gpus[i].worker.pid == 0) continue;
            if (!take_from(w, i)) lose(w, i, false);
            else waits = true;
        }
        if (waits) gp_sleep(LAST_STEP_MS, NULL, NULL);
    }
    for (int i = 0; i < w->n; i++)
        if (w->gpus[i].worker.pid != 0 && w->gpus[i].begun && !w->gpus[i].blind)
            blind(w, i, "it did not answer at the end");
    read_log(w);
}

static void go_on(struct watch *w, int signals, int64_t end_ms) {
    int64_t last_ms = 0, next_ms = clock_ms();
    bool asked = false;
    put_state(w, "begin");
    if (agent_kind.watch == NULL)
        for (int i = 0; i < agent_dev_nvidia_count(); i++) blind(w, i, "this program has no code for GPUs");
    start_workers(w);
    while (!w->closed && !asked && clock_left_ms(end_ms) > 0) {
        int64_t stood = clock_stood_ms(&last_ms, STEP_MS);
        for (int i = 0; i < w->workers; i++) w->gpus[i].heard_ms += stood; /* the workers did not run either */
        take_messages(w);
        read_log(w);
        if (clock_ms() >= next_ms) {
            put_state(w, "alive");
            next_ms = clock_deadline(w->opts.every_ms);
        }
        asked = gp_wait_fd(signals, POLLIN, clock_deadline(STEP_MS), NULL, NULL, NULL) == 0;
    }
    if (asked && !w->closed) last_look(w);
    put_state(w, "end");
}

/* Also of the workers: at a shutdown everybody gets SIGTERM, and a worker that it ended would be called blind. */
static int open_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int verb_watch(int argc, char **argv) {
    struct gp_error err = {0};
    struct watch w = {.opts = {.every_ms = EVERY_MS, .stalled_ms = STALLED_MS}, .log = KERN_LOG_NONE};
    int64_t time_ms = 0;
    const char *cloud = NULL;
    const struct arg args[] = {{.name = "--every", .type = ARG_MS, .ret = &w.opts.every_ms},
                               {.name = "--stalled", .type = ARG_MS, .ret = &w.opts.stalled_ms},
                               {.name = "--time", .type = ARG_MS, .ret = &time_ms},
                               {.name = "--notices", .type = ARG_TEXT, .ret = &cloud},
                               {.name = NULL}};
    if (args_parse(argc, argv, args, &err) == 0 && w.opts.every_ms < EVERY_LEAST_MS)
        gp_fail(&err, GP_EUSAGE, "--every: at least %d ms", EVERY_LEAST_MS);
    if (err.code == 0 && cloud != NULL && (w.notices = preempt_source_find(cloud)) == NULL)
        gp_fail(&err, GP_EUSAGE, "--notices: nodes of '%s' get no notice; those of aws, google, azure and alibaba do",
                cloud);
    if (err.code != 0) {
        fprintf(stderr, "gpuprov-agent watch: %s\n", err.msg);
        return NODE_CHECK_UNKNOWN;
    }
    w.n = agent_kind.watch != NULL && agent_kind.gpu_count != NULL ? agent_kind.gpu_count() : 0;
    w.workers = w.n + (w.notices != NULL);
    w.gpus = xcalloc((size_t)w.workers + 1, sizeof *w.gpus);
    w.log_open = kernlog_open(&w.log, true) >= 0;
    GP_AUTO_FD int signals = open_signals();
    go_on(&w, signals, time_ms > 0 ? clock_deadline(time_ms) : GP_NEVER);
    for (int i = 0; i < w.workers; i++) worker_kill(&w.gpus[i].worker, NULL);
    kernlog_close(&w.log);
    vec_free(&w.reported);
    free(w.gpus);
    return 0;
}

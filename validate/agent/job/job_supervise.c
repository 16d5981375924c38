/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of one job: runs setup and run, keeps their output, ends every process that is left, and writes the
 * state. It is detached from the connection that started it, and a subreaper: whatever the job forks stays below it. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/proc.h"
#include "validate/agent/base/rank_dir.h"
#include "validate/agent/job/job.h"
#include "validate/agent/job/job_preempt.h"
#include "validate/agent/job/job_procs.h"
#include "validate/agent/job/job_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_BYTES (1 << 20)
#define BATCH ((size_t)1 << 20) /* read from the job before anything else gets its turn */
#define KILL_MS 10000           /* after SIGKILL; a driver may hold a process for ever */
#define TICK_MS 50              /* while processes are being ended */
#define WRITE_MS 60000          /* to write the end on a full disk */
#define FINDINGS 32             /* taken before anything else gets its turn */
#define RUN_FILE "/run/gpuprov/job"

struct supervisor {
    const char *dir;
    const struct job_request *q;
    struct job_state st;
    struct slots slot;
    struct job_log log;
    int sigs;        /* signalfd */
    int out, out_in; /* the pipe of the job's output: our end, the job's end (-1: closed) */
    pid_t main;      /* 0: it has ended */
    pid_t group;     /* that got SIGTERM; 0: none */
    int status;      /* of that */
    int64_t max_at;  /* when max_duration is over */
    bool ending;     /* the processes are being ended */
    bool asked;      /* what the main process left behind has got SIGTERM */
    int64_t look_at, kill_at, give_up_at;
    struct job_watch watch;
    struct health health;
    struct job_preempt preempt;
    char fault[240]; /* the first fault that ends the job; "": none */
};

/* --- the state --- */

static int put_state(struct supervisor *s) {
    GP_AUTO_STR struct str text = {0};
    job_state_json(&s->st, -1, &text);
    int r = slots_put(&s->slot, text.s, true);
    while ((r == -ENOSPC || r == -EDQUOT) && job_log_release(&s->log)) r = slots_put(&s->slot, text.s, true);
    return r;
}

/* An end that cannot be written is not invented later: the job is then lost. */
static void put_end(struct supervisor *s) {
    for (int64_t end = clock_deadline(WRITE_MS); put_state(s) != 0 && clock_left_ms(end) > 0;)
        gp_sleep(1000, NULL, NULL);
}

/* Visible to the deadline of the node. */
static void put_run_file(const struct supervisor *s, bool there) {
    struct rank_owner o;
    if (geteuid() != 0) return;
    if (!there) {
        GP_AUTO_STR struct str now = {0}; /* not that of another home folder's job */
        if (fs_read(RUN_FILE, 512, &now, NULL) == 0 && strstr(now.s, s->st.id) != NULL) unlink(RUN_FILE);
        return;
    }
    if (mkdir("/run/gpuprov", 0755) != 0 && errno != EEXIST) return;
    if (rank_owner_read(s->dir, &o, NULL) != 0) return;
    GP_AUTO_FREE char *text = xasprintf("%d %lld %s %s\n", (int)o.pid, (long long)o.start_ticks, o.boot_id, s->st.id);
    (void)fs_write_atomic(RUN_FILE, text, strlen(text), 0644, NULL);
}

/* --- output --- */

/* At most a batch, so that signals get their turn. False: there is nothing more now. */
static bool take_output(struct supervisor *s) {
    char buf[65536];
    size_t got = 0;
    ssize_t n = 0;
    while (got < BATCH && (n = read(s->out, buf, sizeof buf)) > 0) {
        job_log_put(&s->log, buf, (size_t)n);
        got += (size_t)n;
    }
    if (got > 0) job_log_show(&s->log);
    return got >= BATCH;
}

/* --- the processes --- */

static int start(struct supervisor *s, const char *what, struct gp_error *err) {
    GP_AUTO_FREE char *file = fs_join(s->dir, what);
    str_put(s->st.in, sizeof s->st.in, what);
    s->main = job_spawn(s->q, what, file, NULL, s->out_in, err);
    if (s->main > 0) return 0;
    s->main = 0;
    return -(int)GP_EENV;
}

/* True: this process has no children any more. */
static bool reap(struct supervisor *s) {
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == s->watch.pid) job_watch_reaped(&s->watch, status, s->ending);
        else if (pid == s->preempt.pid) job_preempt_reaped(&s->preempt, status);
        if (pid != s->main) continue;
        s->main = 0;
        s->status = status;
    }
    return pid < 0 && errno == ECHILD;
}

static void begin_end(struct supervisor *s) {
    if (s->ending) return;
    s->ending = true;
    s->kill_at = clock_deadline(s->q->grace_s * 1000);
    s->give_up_at = GP_NEVER;
}

/* The first reason stays, and that of a job that ended by itself. */
static void end_job(struct supervisor *s, const char *reason, const char *text) {
    if (s->main == 0) job_preempt_hurry(&s->preempt);
    if (s->main == 0 || s->st.reason[0] != '\0') return;
    str_put(s->st.reason, sizeof s->st.reason, reason);
    str_put(s->st.text, sizeof s->st.text, text);
    begin_end(s);
    s->group = s->main;
    kill(-s->group, SIGTERM);
    kill(-s->group, SIGCONT); /* a stopped process cannot end by itself */
}

static void take_signals(struct supervisor *s) {
    struct signalfd_siginfo info;
    while (read(s->sigs, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTERM && s->st.preempted) end_job(s, "preempted", s->preempt.text);
        if (info.ssi_signo == SIGTERM)
            end_job(s, "lost", "the job's supervisor was ended by SIGTERM, as at a shutdown of the node");
        if (info.ssi_signo != SIGUSR1) continue;
        GP_AUTO_FREE char *why = job_stop_reason(s->dir);
        if (why != NULL) end_job(s, "stopped", why[0] != '\0' ? why : "stopped by 'gpuprov-agent job stop'");
    }
    (void)reap(s);
}

/* --- the node's health --- */

static void take_finding(struct supervisor *s, struct finding *f) {
    int r = health_add(&s->health, f);
    while ((r == -ENOSPC || r == -EDQUOT) && job_log_release(&s->log)) r = health_add(&s->health, f);
    if (f->kind == FINDING_UNHEALTHY && f->severity == SEVERITY_FAIL) {
        if (s->q->stop_unhealthy && s->fault[0] == '\0') {
            char where[32] = "";
            if (f->gpu >= 0) snprintf(where, sizeof where, "GPU %lld: ", (long long)f->gpu);
            snprintf(s->fault, sizeof s->fault, "the node became unhealthy: %s%s: %.120s", where, f->code, f->text);
            str_one_line(s->fault);
        }
        if (r == 0 && f->n == 0) return; /* one of too many */
        s->st.unhealthy++;
        (void)put_state(s);
    }
    if (f->kind == FINDING_PREEMPTED && !s->st.preempted) {
        if (!s->ending) job_preempt_begin(&s->preempt, s->q, s->dir, f->when_s, s->out_in);
        s->st.preempted = true;
        (void)put_state(s);
    }
}

/* True: there may be more. */
static bool take_findings(struct supervisor *s) {
    struct finding f;
    int n = 0;
    while (n < FINDINGS && job_watch_next(&s->watch, &f)) {
        take_finding(s, &f);
        n++;
    }
    return n == FINDINGS;
}

/* --- the end --- */

/* The main process has ended, or the job is being ended. True: nothing is left that could be ended. */
static bool end_rest(struct supervisor *s) {
    begin_end(s);
    if (s->main == 0) job_watch_finish(&s->watch);
    bool over = s->main == 0 && job_watch_over(&s->watch);
    if (reap(s) && over) return true;
    if (clock_left_ms(s->look_at) > 0) return false; /* each look reads all of /proc */
    if (over && job_procs_only(&s->watch.procs)) {   /* of the watch, and a driver holds them */
        s->st.left = 0;
        return true;
    }
    bool late = clock_left_ms(s->kill_at) == 0;
    if (late && s->give_up_at == GP_NEVER) s->give_up_at = clock_deadline(KILL_MS);
    if (late) s->st.left = job_procs_signal(SIGKILL, 0, &s->watch.procs);
    else if (s->main == 0 && !s->asked) {
        s->asked = true; /* sent once: to some programs a second SIGTERM means to end at once */
        (void)job_procs_signal(SIGTERM, s->group, &s->watch.procs);
    }
    (void)reap(s);
    s->look_at = clock_deadline(TICK_MS);
    return late && clock_left_ms(s->give_up_at) == 0;
}

/* setup ended well: run begins. */
static void begin_run(struct supervisor *s) {
    struct gp_error err = {0};
    if (s->main > 0 || s->ending || s->st.phase != JOB_SETUP) return;
    if (!WIFEXITED(s->status) || WEXITSTATUS(s->status) != 0) return;
    s->st.phase = JOB_RUNNING;
    if (start(s, "run", &err) == 0) {
        (void)put_state(s);
        return;
    }
    str_put(s->st.reason, sizeof s->st.reason, "lost");
    str_put(s->st.text, sizeof s->st.text, err.msg);
}

/* True once everything is ended. */
static bool step(struct supervisor *s) {
    begin_run(s);
    job_preempt_tick(&s->preempt);
    if (!s->ending && s->max_at != GP_NEVER && clock_left_ms(s->max_at) == 0) {
        GP_AUTO_FREE char *text = xasprintf("ended after max_duration, %lld s", (long long)s->q->max_s);
        end_job(s, "max_duration", text);
    }
    if (s->fault[0] != '\0') end_job(s, "unhealthy", s->fault);
    if (job_preempt_due(&s->preempt)) end_job(s, "preempted", s->preempt.text);
    if (!s->ending && (s->main > 0 || job_preempt_runs(&s->preempt))) return false;
    return end_rest(s);
}

static void finish(struct supervisor *s) {
    for (int64_t end = clock_deadline(KILL_MS); take_output(s) && clock_left_ms(end) > 0;) continue;
    take_signals(s);
    for (int n = 0; n < HEALTH_MAX && take_findings(s); n++) continue;
    s->st.phase = JOB_ENDED;
    s->st.ended_s = clock_wall_s();
    bool stops = s->st.reason[0] == '\0' && job_node_stops();
    if (stops && s->st.preempted) {
        str_put(s->st.reason, sizeof s->st.reason, "preempted");
        str_put(s->st.text, sizeof s->st.text, s->preempt.text);
    }
    if (str_eq(s->st.reason, "lost") || (stops && !s->st.preempted))
        job_state_lost(&s->st, s->st.ended_s, s->st.text[0] != '\0' ? s->st.text : "the node was shut down");
    else if (s->main == 0) job_state_status(&s->st, s->status);
    if (reap(s) && s->main == 0) s->st.left = 0;
    if (s->st.left > 0)
        snprintf(s->st.text + strlen(s->st.text), sizeof s->st.text - strlen(s->st.text),
                 "; %lld processes cannot be ended: a driver holds them", (long long)s->st.left);
    if (s->st.unit && !job_state_again(&s->st)) job_unit_remove();
    put_end(s);
    put_run_file(s, false);
    GP_AUTO_FREE char *pid = fs_join(s->dir, "pid");
    unlink(pid);
    job_log_close(&s->log);
    health_close(&s->health);
}

static void supervise(struct supervisor *s) {
    for (bool more = false;;) {
        struct pollfd p[] = {{.fd = s->sigs, .events = POLLIN},
                             {.fd = s->out, .events = POLLIN},
                             {.fd = s->watch.out, .events = POLLIN}};
        int64_t next = GP_MIN(GP_MIN(s->max_at, s->watch.due_at), s->preempt.end_at);
        int64_t wait = more ? 0 : s->ending ? TICK_MS : next == GP_NEVER ? -1 : GP_MIN(clock_left_ms(next), 60000);
        (void)poll(p, GP_ARRAY_LEN(p), (int)wait);
        (void)take_output(s);
        take_signals(s);
        more = take_findings(s);
        if (step(s)) break;
    }
    finish(s);
}

/* --- becoming it --- */

static void close_others(const int keep[2]) {
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL) return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        int64_t fd = 0;
        if (str_to_i64(e->d_name, 3, INT32_MAX, &fd) && fd != keep[0] && fd != keep[1] && fd != dirfd(d))
            close((int)fd);
    }
    closedir(d);
}

/* No terminal, no descriptor of the connection, no core file with secrets. */
static int detach(const int keep[2]) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return -errno;
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    close_others(keep);
    setsid();
    if (chdir("/") != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return -errno;
    int score = geteuid() == 0 ? open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC) : -1;
    if (score >= 0) (void)!write(score, "-900\n", 5);
    if (score >= 0) close(score);
    prctl(PR_SET_DUMPABLE, 0);
    return 0;
}

static int open_signals(int *ret) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_SETMASK, &set, NULL) != 0) return -errno;
    *ret = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *ret >= 0 ? 0 : -errno;
}

static int open_all(struct supervisor *s, bool rebooted, struct gp_error *err) {
    GP_AUTO_FREE char *state = fs_join(s->dir, "state");
    int fds[2];
    int r = open_signals(&s->sigs);
    if (r != 0) return gp_fail_errno(err, GP_EENV, -r, "job %s: cannot receive signals", s->st.id);
    if (pipe2(fds, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "job %s: cannot create a pipe", s->st.id);
    s->out = fds[0];
    s->out_in = fds[1];
    fcntl(s->out, F_SETFL, O_NONBLOCK);
    fcntl(s->out, F_SETPIPE_SZ, PIPE_BYTES);
    r = slots_open(state, &s->slot, err);
    if (r == 0) r = rank_owner_write(s->dir, getpid(), err);
    if (r == 0) r = job_log_open(&s->log, s->dir, s->st.attempt > 1, rebooted, err);
    if (r == 0 && s->q->watch) r = health_open(&s->health, s->dir, err);
    return r;
}

void job_supervise(const char *dir, const struct job_request *q, const struct job_state *st, bool rebooted, int ready,
                   int lock) {
    struct supervisor s = {.dir = dir, .q = q, .st = *st, .sigs = -1, .out = -1, .out_in = -1, .max_at = GP_NEVER};
    s.watch = (struct job_watch)JOB_WATCH_NONE;
    s.health = (struct health)HEALTH_NONE;
    s.preempt = (struct job_preempt)JOB_PREEMPT_NONE;
    struct gp_error err = {0};
    int r = detach((int[]){ready, lock});
    if (r != 0) r = gp_fail_errno(&err, GP_EENV, -r, "job %s: cannot start its supervisor", st->id);
    if (r == 0) r = open_all(&s, rebooted, &err);
    put_run_file(&s, r == 0);
    if (r == 0 && q->max_s > 0) s.max_at = clock_deadline(q->max_s * 1000);
    if (r == 0 && q->watch) job_watch_start(&s.watch, q->notices);
    if (r == 0) r = start(&s, s.st.phase == JOB_SETUP ? "setup" : "run", &err);
    (void)fs_write_all(ready, err.msg, strlen(err.msg) + 1);
    close(ready);
    close(lock);
    if (r != 0) {
        put_run_file(&s, false);
        return; /* the caller, which holds the lock, removes what is there */
    }
    supervise(&s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the watch, reads its lines, ends it. */
#include "base/gp_base.h"

#include "validate/agent/job/job_watch.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/worker.h"
#include "validate/agent/job/job_request.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SILENT_MS 60000 /* it prints a line every 10 s */
#define LAST_MS 5000    /* for its last look */
#define KILL_MS 2000    /* after SIGKILL; a driver may hold it for ever */
#define TURNS 16        /* reads until anything else gets its turn */
#define RUBBISH_MAX ((int64_t)64 << 10)

extern char **environ;

static int64_t silent_ms(void) {
    int64_t v = SILENT_MS;
#ifdef GPUPROV_FAULTS /* tests: a watch that is silent is not waited for so long */
    if (getenv("GPUPROV_WATCH_SILENT") != NULL) (void)str_to_i64(getenv("GPUPROV_WATCH_SILENT"), 1, 600000, &v);
#endif
    return v;
}

/* --- the process --- */

/* The folder of this program, also when the program was replaced meanwhile. Caller frees. */
static char *cuda_agent(void) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return NULL;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL) return NULL;
    slash[0] = '\0';
    return fs_join(path, "gpuprov-agent-cuda");
}

/* In the child. */
static void become(const char *cuda, char **argv, char **env, int out) {
    sigset_t none;
    sigemptyset(&none);
    setsid();
    if (dup2(out, STDOUT_FILENO) < 0) _exit(126);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (cuda != NULL && access(cuda, X_OK) == 0) execve(cuda, argv, env);
    execve("/proc/self/exe", argv, env); /* it reports the GPUs that it cannot watch */
    _exit(127);
}

/* The environment of this program, which has no secrets. The mark is that of a job's processes. */
static void environment(struct strv *to) {
    for (char **e = environ; *e != NULL; e++)
        if (!str_starts(*e, JOB_MARK "=")) strv_add(to, *e);
}

static void fail(struct job_watch *w, const char *what, int e) {
    snprintf(w->blind, sizeof w->blind, "the health watch cannot be started: %s: %s", what, strerror(e));
}

void job_watch_start(struct job_watch *w, const char *notices) {
    GP_AUTO_FREE char *cuda = cuda_agent();
    GP_AUTO_STRV struct strv argv = {0}, env = {0};
    pid_t parent = getpid();
    int fds[2];
    *w = (struct job_watch)JOB_WATCH_NONE;
    strv_add(&argv, "gpuprov-agent");
    strv_add(&argv, "watch");
    if (notices != NULL) strv_add(&argv, "--notices");
    if (notices != NULL) strv_add(&argv, notices);
    environment(&env);
    if (pipe2(fds, O_CLOEXEC) != 0) {
        fail(w, "no pipe", errno);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(126);
        become(cuda, argv.v, env.v, fds[1]);
    }
    int e = errno;
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        fail(w, "no process", e);
        return;
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    w->pid = pid;
    w->out = fds[0];
    w->procs = (struct job_spared){.session = pid, .until_ticks = INT64_MAX};
    w->due_at = clock_deadline(silent_ms());
}

static void give_up(struct job_watch *w, const char *why) {
    snprintf(w->blind, sizeof w->blind, "the health watch was ended: %s", why);
    kill(-w->pid, SIGKILL); /* its workers end with it */
    w->given_up = true;
    w->due_at = clock_deadline(KILL_MS);
}

void job_watch_finish(struct job_watch *w) {
    if (w->pid == 0 || w->asked || w->given_up) return;
    w->asked = true;
    w->due_at = clock_deadline(LAST_MS);
    kill(w->pid, SIGTERM);
    kill(w->pid, SIGCONT);
}

void job_watch_reaped(struct job_watch *w, int status, bool ending) {
    struct timespec now;
    char how[96];
    clock_gettime(CLOCK_BOOTTIME, &now);
    int64_t hz = sysconf(_SC_CLK_TCK);
    w->procs.until_ticks = (int64_t)now.tv_sec * hz + now.tv_nsec / (1000000000 / hz) + 1;
    kill(-w->pid, SIGKILL);
    w->pid = 0;
    w->due_at = GP_NEVER;
    if (w->asked || w->given_up || ending) return;
    worker_status_text(how, sizeof how, status);
    snprintf(w->blind, sizeof w->blind, "the health watch %s: the node's health is not known from here on", how);
}

bool job_watch_over(const struct job_watch *w) { return w->pid == 0 || w->stuck; }

/* --- its lines --- */

/* At due_at. A watch that is silent gets a second chance: the whole node may have stood still. */
static void overdue(struct job_watch *w) {
    if (w->given_up) {
        w->stuck = true;
        w->due_at = GP_NEVER;
    } else if (!w->asked && !w->late) {
        w->late = true;
        w->due_at = clock_deadline(GP_MIN(silent_ms(), LAST_MS));
    } else {
        give_up(w, w->asked ? "it did not end with the job" : "it printed nothing for a minute");
    }
}

static bool rubbish(struct job_watch *w, size_t n, struct finding *ret) {
    w->rubbish += (int64_t)n + 1;
    if (w->rubbish > RUBBISH_MAX && !w->given_up && w->pid > 0) give_up(w, "it printed 64 KiB that are not understood");
    if (w->told) return false;
    w->told = true;
    finding_blind(ret, "the health watch prints lines that are not understood: findings may be missing");
    return true;
}

/* The first n bytes, or a part of a line that is too long; they are used up. */
static bool take_line(struct job_watch *w, size_t n, bool whole, struct finding *ret) {
    bool found = false, cut = w->cut;
    w->cut = !whole;
    if (cut || !whole || finding_parse(w->line, n, false, ret, NULL) != 0) found = rubbish(w, n, ret);
    else found = ret->kind != FINDING_NONE;
    size_t used = GP_MIN(n + 1, w->n);
    memmove(w->line, w->line + used, w->n - used);
    w->n -= used;
    return found;
}

bool job_watch_next(struct job_watch *w, struct finding *ret) {
    for (int turns = 0;;) {
        const char *end = memchr(w->line, '\n', w->n);
        if (end != NULL || w->n == sizeof w->line) {
            if (take_line(w, end != NULL ? (size_t)(end - w->line) : w->n, end != NULL, ret)) return true;
            continue;
        }
        if (turns++ == TURNS) break;
        ssize_t n = w->out >= 0 ? read(w->out, w->line + w->n, sizeof w->line - w->n) : -1;
        if (n < 0 && w->out >= 0 && errno == EINTR) continue;
        if (n == 0) {
            close(w->out);
            w->out = -1;
        }
        if (n <= 0) break;
        w->n += (size_t)n;
        w->late = false;
        if (!w->asked && !w->given_up) w->due_at = clock_deadline(silent_ms());
    }
    if (w->due_at != GP_NEVER && clock_left_ms(w->due_at) == 0) overdue(w);
    if (w->blind[0] == '\0') return false;
    finding_blind(ret, w->blind);
    w->blind[0] = '\0';
    return true;
}

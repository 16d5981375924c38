/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the shell of a job: environment, folder, session. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "validate/agent/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;

char *job_cwd(const struct job_request *q) {
    const char *home = getenv("HOME");
    return q->cwd[0] == '/' ? xstrdup(q->cwd) : fs_join(home != NULL ? home : "/", q->cwd + 2);
}

/* Whether both begin with the same "NAME=". */
static bool same_name(const char *entry, const char *other) {
    size_t n = other != NULL ? strcspn(other, "=") + 1 : 0;
    return n > 0 && strncmp(entry, other, n) == 0;
}

static bool sets(const struct strv *vars, const char *entry) {
    size_t n = strcspn(entry, "=");
    for (size_t i = 0; i < vars->n; i += 2)
        if (strncmp(vars->v[i], entry, n) == 0 && vars->v[i][n] == '\0') return true;
    return false;
}

static void add_vars(struct strv *to, const struct strv *vars, const char *more) {
    for (size_t i = 0; i < vars->n; i += 2) {
        GP_AUTO_FREE char *entry = xasprintf("%s=%s", vars->v[i], vars->v[i + 1]);
        if (!same_name(entry, more)) strv_take(to, GP_STEAL(entry));
        else explicit_bzero(entry, strlen(entry));
    }
}

/* That of the login, without the connection; then env and secrets; then `more`. */
static void environment(const struct job_request *q, const char *more, struct strv *to) {
    for (char **e = environ; *e != NULL; e++)
        if (!str_starts(*e, "SSH_") && !str_starts(*e, JOB_MARK "=") && !sets(&q->env, *e) && !sets(&q->secrets, *e) &&
            !same_name(*e, more))
            strv_add(to, *e);
    add_vars(to, &q->env, more);
    add_vars(to, &q->secrets, more);
    strv_take(to, xasprintf(JOB_MARK "=%s", q->id));
    if (more != NULL) strv_add(to, more);
}

/* In the child. Its output is the job's log. */
static void become(const char *cwd, const char *file, char **env, int out) {
    char *argv[] = {(char[]){"sh"}, xstrdup(file), NULL};
    sigset_t none;
    int in = open("/dev/null", O_RDONLY);
    sigemptyset(&none);
    setsid();
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
    if (in > 2) close(in);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(cwd) != 0) {
        dprintf(2, "gpuprov: cannot change to the folder '%s': %s\n", cwd, strerror(errno));
        _exit(126);
    }
    execve("/bin/sh", argv, env);
    dprintf(2, "gpuprov: cannot run /bin/sh: %s\n", strerror(errno));
    _exit(127);
}

static void write_score(const char *text) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!write(fd, text, strlen(text));
    close(fd);
}

pid_t job_spawn(const struct job_request *q, const char *what, const char *file, const char *more, int out,
                struct gp_error *err) {
    struct strv env = {0};
    GP_AUTO_FREE char *cwd = job_cwd(q);
    pid_t parent = getpid();
    environment(q, more, &env);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(126);
        write_score("0\n"); /* the supervisor's may be lower */
        become(cwd, file, env.v, out);
    }
    int e = errno;
    for (size_t i = 0; i < env.n; i++) explicit_bzero(env.v[i], strlen(env.v[i]));
    strv_clear(&env);
    if (pid < 0) gp_fail_errno(err, GP_EENV, e, "job %s: cannot start %s", q->id, what);
    return pid;
}

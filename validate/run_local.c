/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the node checks on this machine: the embedded agent as a child process, from memory if the kernel permits it,
 * else from a private folder that is removed. Reads its lines as run_node.c does over SSH. The calling thread;
 * blocks until the agent ended or its deadline. */
#include "base/gp_base.h"

#include "validate/validate.h"

#include "base/fs.h"
#include "bootstrap/bootstrap.h"
#include "validate/judge.h"
#include "validate/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_MS = 3000 };

/* An agent's program at a path that can be executed. */
struct program {
    char path[64];
    int fd;    /* -1: on disk */
    char *dir; /* private folder to remove, or NULL */
};

/* One of the child's outputs, cut into lines. */
struct lines {
    int fd;
    bool is_stderr, over;
    struct str part;
};

struct local_run {
    const struct validate_env *env;
    struct agent_stream stream;
    pid_t pid;
    struct lines out[2];
};

static void program_clear(struct program *p) {
    if (p->fd >= 0) close(p->fd);
    if (p->dir != NULL) fs_remove_tree(p->dir, NULL);
    free(p->dir);
}

/* Some kernels forbid to execute from memory (vm.memfd_noexec): found out by trying. */
static int to_memory(struct program *p, const void *data, size_t n) {
    p->fd = memfd_create("gpuprov-agent", MFD_CLOEXEC);
    if (p->fd < 0) return -1;
    snprintf(p->path, sizeof p->path, "/proc/self/fd/%d", p->fd);
    if (fs_write_all(p->fd, data, n) == 0 && fchmod(p->fd, 0700) == 0 && access(p->path, X_OK) == 0) return 0;
    close(p->fd);
    p->fd = -1;
    return -1;
}

static int to_folder(struct program *p, const void *data, size_t n, struct gp_error *err) {
    static const char *const places[] = {"/run", "/var/tmp", "/tmp"};
    struct gp_error why = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(places); i++) {
        char *dir = xasprintf("%s/gpuprov.XXXXXX", places[i]);
        if (mkdtemp(dir) == NULL) {
            free(dir);
            continue;
        }
        p->dir = dir;
        snprintf(p->path, sizeof p->path, "%s/agent", dir);
        gp_error_clear(&why);
        if (fs_write_atomic(p->path, data, n, 0700, &why) == 0 && access(p->path, X_OK) == 0) return 0;
        fs_remove_tree(dir, NULL);
        free(dir);
        p->dir = NULL;
    }
    return gp_fail(err, GP_EENV, "no folder of /run, /var/tmp and /tmp can hold the agent's program: %s",
                   why.msg[0] != '\0' ? why.msg : "cannot create a folder there");
}

static int unpack(const char *name, struct program *p, struct gp_error *err) {
    void *data = NULL;
    size_t n = 0;
    int r = bootstrap_agent(name, &data, &n, err);
    if (r == 0 && to_memory(p, data, n) != 0) r = to_folder(p, data, n, err);
    free(data);
    return r;
}

/* In the child, after fork: only async-signal-safe calls. */
static void become_agent(const char *path, char **argv, int out, int err_fd, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int in = open("/dev/null", O_RDONLY);
    bool ok = getppid() == parent && in >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
              dup2(err_fd, STDERR_FILENO) >= 0;
    if (ok) execv(path, argv);
    dprintf(STDERR_FILENO, "cannot run the program: %s\n", strerror(errno));
    _exit(127);
}

static int start(struct local_run *run, const struct program *p, const char *args, struct gp_error *err) {
    GP_AUTO_STRV struct strv argv = {0};
    GP_AUTO_FREE char *words = xasprintf("gpuprov-agent %s", args);
    int out[2], errs[2];
    strv_split(&argv, words, " ");
    if (pipe2(out, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "cannot start the agent");
    if (pipe2(errs, O_CLOEXEC) != 0) {
        close(out[0]);
        close(out[1]);
        return gp_fail_errno(err, GP_EENV, errno, "cannot start the agent");
    }
    pid_t parent = getpid();
    run->pid = fork();
    if (run->pid == 0) become_agent(p->path, argv.v, out[1], errs[1], parent);
    int why = errno;
    close(out[1]);
    close(errs[1]);
    run->out[0] = (struct lines){.fd = out[0]};
    run->out[1] = (struct lines){.fd = errs[0], .is_stderr = true};
    if (run->pid > 0) return 0;
    run->pid = 0;
    return gp_fail_errno(err, GP_EENV, why, "cannot start the agent");
}

/* False: the stream must not be read any further. */
static bool take(struct local_run *run, struct lines *l, const char *data, size_t n) {
    l->part.max = AGENT_LINE_MAX + 4096;
    for (size_t i = 0; i < n; i++) {
        if (data[i] != '\n') {
            str_addc(&l->part, data[i] != '\0' ? data[i] : '?');
            continue;
        }
        bool good = agent_stream_line(&run->stream, l->is_stderr, l->part.s != NULL ? l->part.s : "", l->part.len);
        str_reset(&l->part);
        if (!good) return false;
    }
    return true;
}

static bool read_some(struct local_run *run, struct lines *l) {
    char buf[16384];
    ssize_t n = read(l->fd, buf, sizeof buf);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    l->over = n <= 0;
    return n <= 0 || take(run, l, buf, (size_t)n);
}

enum ending { ENDED, TOO_LATE, UNREADABLE, CANCELLED };

static enum ending read_all(struct local_run *run, int64_t deadline_ms) {
    while (!run->out[0].over || !run->out[1].over) {
        struct pollfd p[3] = {{.fd = run->out[0].over ? -1 : run->out[0].fd, .events = POLLIN},
                              {.fd = run->out[1].over ? -1 : run->out[1].fd, .events = POLLIN},
                              {.fd = run->env->cancel != NULL ? run->env->cancel->efd : -1, .events = POLLIN}};
        int64_t left = clock_left_ms(deadline_ms);
        if (left == 0) return TOO_LATE;
        if (poll(p, GP_ARRAY_LEN(p), (int)GP_MIN(left, 60000)) < 0 && errno != EINTR) return TOO_LATE;
        if (gp_cancelled(run->env->cancel)) return CANCELLED;
        for (int i = 0; i < 2; i++)
            if (p[i].revents != 0 && !read_some(run, &run->out[i])) return UNREADABLE;
    }
    return ENDED;
}

/* The agent and its workers, which share its group. *ret_status: wait's. False: it is still running. */
static bool end_child(struct local_run *run, bool kill_it, int *ret_status) {
    int64_t deadline = clock_deadline(KILL_MS);
    for (;;) {
        if (kill_it) kill(-run->pid, SIGKILL);
        pid_t got = waitpid(run->pid, ret_status, WNOHANG);
        if (got == run->pid || (got < 0 && errno != EINTR)) return true;
        if (clock_left_ms(deadline) == 0) {
            if (kill_it) return false;
            kill_it = true; /* it closed its outputs but still runs */
            deadline = clock_deadline(KILL_MS);
        }
        gp_sleep(10, NULL, NULL);
    }
}

static char *why_it_ended(const struct local_run *run, enum ending how, int status, int64_t waited_ms) {
    char took[32];
    const char *last = run->stream.last_err;
    if (run->stream.bad.code != 0) return xstrdup(run->stream.bad.msg);
    if (how == TOO_LATE) {
        duration_format(took, sizeof took, waited_ms);
        return xasprintf("the agent had not ended after %s", took);
    }
    if (WIFSIGNALED(status)) return xasprintf("the agent was killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
    return xasprintf("the agent ended early with exit status %d%s%s", WEXITSTATUS(status), last[0] != '\0' ? ": " : "",
                     last);
}

static int run_agent(struct local_run *run, const struct program *p, struct gp_error *err) {
    GP_AUTO_FREE char *args = agent_run_args(run->env, true);
    int64_t wait_ms = agent_run_wait_ms(run->env);
    int r = start(run, p, args, err);
    if (r != 0) return r;
    enum ending how = read_all(run, clock_deadline(wait_ms));
    int status = 0;
    bool reaped = end_child(run, how != ENDED, &status);
    for (int i = 0; i < 2; i++) {
        close(run->out[i].fd);
        str_clear(&run->out[i].part);
    }
    if (how == CANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled");
    bool whole = how == ENDED && agent_stream_complete(&run->stream) && run->stream.ended && reaped;
    if (whole && run->stream.bad.code == 0) return 0;
    GP_AUTO_FREE char *why = reaped ? why_it_ended(run, how, status, wait_ms)
                                    : xasprintf("cannot end process %d of the agent", (int)run->pid);
    if (!agent_stream_began(&run->stream)) return gp_fail(err, GP_EVALIDATE, "cannot run the agent: %s", why);
    agent_stream_finish(&run->stream, why);
    if (how != ENDED || !reaped) agent_stream_doubt(&run->stream, why);
    return 0;
}

static void told(void *ctx, const struct check_info *info, struct check_result *r) {
    struct local_run *run = ctx;
    if (r != NULL) validate_apply_floors(run->env->spec, r);
    check_event(run->env->sink, 0, NODE_CHECKING, info, r);
}

int validate_local(const struct validate_env *env, struct report_node *rn, struct gp_error *err) {
    struct local_run run = {.env = env, .out = {{.fd = -1}, {.fd = -1}}};
    GP_CLEANUP(program_clear) struct program p = {.fd = -1};
    struct gp_error own = {0};
    agent_stream_init(&run.stream, env->plan->node_checks.items, env->plan->node_checks.len);
    run.stream.told = told;
    run.stream.ctx = &run;
    int r = unpack(env->nvidia_expected ? "gpuprov-agent-cuda" : "gpuprov-agent", &p, &own);
    if (r == 0) r = run_agent(&run, &p, &own);
    if (r == -GP_ECANCELLED) run.stream.told = NULL; /* the verb reports it, once */
    if (r != 0) agent_stream_fail(&run.stream, own.msg);
    for (size_t i = 0; i < run.stream.checks.len; i++) {
        vec_push(&rn->checks, run.stream.checks.items[i].result);
        run.stream.checks.items[i].result = (struct check_result){0};
    }
    struct check_result left;
    for (size_t i = 0; check_left_out(env, false, &i, &left);) vec_push(&rn->checks, left);
    for (size_t i = 0; check_left_out(env, true, &i, &left);) vec_push(&rn->checks, left);
    rn->host = xstrdup(run.stream.host);
    str_put(rn->boot_id, sizeof rn->boot_id, run.stream.boot_id);
    agent_stream_clear(&run.stream);
    if (r != 0 && err != NULL) *err = own;
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes and their watchdog. Does not judge. The parent has one thread. */
#include "base/gp_base.h"

#include "worker.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct msg_head {
    uint32_t kind, len;
};
#define MSG_MAX ((size_t)1 << 20)

void worker_msg_clear(struct worker_msg *m) { str_clear(&m->body); }

static void child_main(worker_fn *fn, void *arg, int in, int out, pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    signal(SIGPIPE, SIG_IGN);
    fn(arg, in, out);
    _exit(0);
}

int worker_start(struct worker *w, worker_fn *fn, void *arg, struct gp_error *err) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "cannot create a pipe for a worker");
    if (pipe2(from, O_CLOEXEC) != 0) {
        int e = errno;
        close(to[0]), close(to[1]);
        return gp_fail_errno(err, GP_EENV, e, "cannot create a pipe for a worker");
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        child_main(fn, arg, to[0], from[1], parent);
    }
    int e = errno;
    close(to[0]);
    close(from[1]);
    if (pid < 0) {
        close(to[1]), close(from[0]);
        return gp_fail_errno(err, GP_EENV, e, "cannot start a worker");
    }
    setpgid(pid, pid); /* the child does it too: either may be first */
    *w = (struct worker){.pid = pid, .to = to[1], .from = from[0]};
    str_init(&w->buf, MSG_MAX + sizeof(struct msg_head));
    return 0;
}

static bool take_msg(struct worker *w, struct worker_msg *ret) {
    struct msg_head h;
    if (w->buf.len < sizeof h) return false;
    memcpy(&h, w->buf.s, sizeof h);
    size_t all = sizeof h + h.len;
    if (w->buf.len < all) return false;
    ret->kind = (enum worker_msg_kind)h.kind;
    str_clear(&ret->body);
    str_init(&ret->body, MSG_MAX);
    str_add_mem(&ret->body, w->buf.s + sizeof h, h.len);
    memmove(w->buf.s, w->buf.s + all, w->buf.len - all);
    w->buf.len -= all;
    return true;
}

int worker_take(struct worker *w, struct worker_msg *ret, bool *ret_got, struct gp_error *err) {
    *ret_got = take_msg(w, ret);
    while (!*ret_got) {
        struct pollfd p = {.fd = w->from, .events = POLLIN};
        if (poll(&p, 1, 0) <= 0) return 0;
        char buf[16384];
        ssize_t n = read(w->from, buf, sizeof buf);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return gp_fail(err, GP_ELOST, "the worker ended");
        if (!str_add_mem(&w->buf, buf, (size_t)n)) return gp_fail(err, GP_EPROTO, "the worker sent too much");
        *ret_got = take_msg(w, ret);
    }
    return 0;
}

int worker_next(struct worker *w, int64_t deadline_ms, struct worker_msg *ret, struct gp_error *err) {
    for (bool got = false;;) {
        int r = worker_take(w, ret, &got, err);
        if (r != 0 || got) return r;
        r = gp_wait_fd(w->from, POLLIN, deadline_ms, NULL, NULL, err);
        if (r != 0) return r;
    }
}

void worker_dismiss(struct worker *w, size_t n, int64_t deadline_ms) {
    for (size_t i = 0; i < n; i++) {
        if (w[i].to >= 0) close(w[i].to);
        w[i].to = -1;
    }
    for (size_t i = 0; i < n; i++) {
        siginfo_t info = {0};
        while (w[i].pid > 0 && clock_left_ms(deadline_ms) > 0 && info.si_pid == 0) {
            /* left waitable: worker_kill takes its status */
            if (waitid(P_PID, (id_t)w[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) break;
            if (info.si_pid == 0) gp_sleep(10, NULL, NULL);
        }
    }
}

bool worker_kill(struct worker *w, int *ret_status) {
    bool reaped = true;
    if (ret_status != NULL) *ret_status = 0;
    if (w->to >= 0) close(w->to);
    if (w->from >= 0) close(w->from);
    if (w->pid > 0) {
        int64_t end = clock_deadline(2000);
        int status = 0;
        /* before the kill: a worker that ended by itself keeps its own status */
        pid_t got = waitpid(w->pid, &status, WNOHANG);
        kill(-w->pid, SIGKILL);
        if (got == 0) kill(w->pid, SIGKILL);
        while (got == 0 || (got < 0 && errno == EINTR)) {
            if (clock_left_ms(end) == 0) break;
            gp_sleep(10, NULL, NULL);
            got = waitpid(w->pid, &status, WNOHANG);
        }
        reaped = got != 0;
        if (ret_status != NULL) *ret_status = status;
    }
    str_clear(&w->buf);
    *w = (struct worker)WORKER_NONE;
    return reaped;
}

bool worker_put(int out, enum worker_msg_kind kind, const void *p, size_t n) {
    GP_AUTO_STR struct str s = {0};
    struct msg_head h = {.kind = (uint32_t)kind, .len = (uint32_t)n};
    if (n > MSG_MAX) return false;
    str_add_mem(&s, &h, sizeof h);
    str_add_mem(&s, p, n);
    return fs_write_all(out, s.s, s.len) == 0;
}

bool worker_put_result(int out, const struct agent_result *r) {
    GP_AUTO_STR struct str s = {0};
    uint32_t lens[2] = {(uint32_t)r->culprits.len, (uint32_t)r->data.len};
    str_add_mem(&s, r, sizeof *r);
    str_add_mem(&s, lens, sizeof lens);
    str_add_mem(&s, r->culprits.s, r->culprits.len);
    str_add_mem(&s, r->data.s, r->data.len);
    return worker_put(out, MSG_RESULT, s.s, s.len);
}

int worker_get_result(const struct worker_msg *m, struct agent_result *ret, struct gp_error *err) {
    uint32_t lens[2];
    size_t fixed = sizeof *ret + sizeof lens;
    if (m->body.len < fixed) return gp_fail(err, GP_EPROTO, "the worker sent half a result");
    struct agent_result r;
    memcpy(&r, m->body.s, sizeof r);
    memcpy(lens, m->body.s + sizeof r, sizeof lens);
    if (m->body.len != fixed + lens[0] + lens[1]) return gp_fail(err, GP_EPROTO, "the worker sent half a result");
    bool truncated = r.data.truncated;
    r.culprits = (struct str){0}; /* the worker's pointers are invalid here */
    r.data = (struct str){0};
    str_init(&r.culprits, 4096);
    str_init(&r.data, AGENT_LINE_MAX);
    str_add_mem(&r.culprits, m->body.s + fixed, lens[0]);
    str_add_mem(&r.data, m->body.s + fixed + lens[0], lens[1]);
    r.data.truncated = truncated;
    *ret = r;
    return 0;
}

void worker_status_text(char *dst, size_t n, int status) {
    static const struct {
        int sig;
        const char *name;
    } names[] = {{SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},  {SIGILL, "SIGILL"},
                 {SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"}, {SIGTERM, "SIGTERM"}};
    if (!WIFSIGNALED(status)) {
        snprintf(dst, n, "ended with status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        return;
    }
    snprintf(dst, n, "was killed by signal %d", WTERMSIG(status));
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++)
        if (names[i].sig == WTERMSIG(status)) snprintf(dst, n, "was killed by %s", names[i].name);
}

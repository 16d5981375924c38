// SPDX-License-Identifier: Apache-2.0
/* Start a program and read its output until it has ended. */
#include "base/gp_base.h"

#include "providers/common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_MS 50 /* between two looks whether it has ended */
#define END_READ_MS 10
#define MESSAGES_MAX 4096

extern char **environ;

/* messages: its stderr; -1: the terminal. */
static int start(char *const argv[], int out, int messages, bool own_group, pid_t *ret, struct gp_error *err) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (messages >= 0) posix_spawn_file_actions_adddup2(&actions, messages, 2);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none); /* gpuprov's threads block all signals */
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0);
    int group = own_group ? POSIX_SPAWN_SETPGROUP : 0;
    posix_spawnattr_setflags(&attr, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
    int e = posix_spawnp(ret, argv[0], &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (e == 0) return 0;
    return gp_fail_errno(err, e == ENOENT ? GP_ENOTFOUND : GP_EENV, e, "could not start '%s'", argv[0]);
}

/* Not reaped: its id stays that of its group. */
static bool has_ended(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* *ret_open false: its end. */
static int read_some(int fd, struct str *ret, bool *ret_open, struct gp_error *err) {
    char buf[4096];
    ssize_t n = read(fd, buf, sizeof buf);
    if (n < 0 && errno == EINTR) return 0;
    if (n < 0) return gp_fail_errno(err, GP_EIO, errno, "could not read its output");
    *ret_open = n > 0;
    bool fits = str_add_mem(ret, buf, (size_t)n);
    explicit_bzero(buf, sizeof buf);
    return fits ? 0 : gp_fail(err, GP_EPROTO, "it wrote more than %zu KiB", ret->max >> 10);
}

/* Until the program has ended. It may close its output and stay; a process that it leaves behind may keep the output
 * open, and is not waited for. */
static int read_output(pid_t pid, int fd, int64_t deadline, const struct gp_cancel *cancel, struct str *ret,
                       struct gp_error *err) {
    for (bool open = true;;) {
        bool ended = has_ended(pid); /* before the read, so that everything it wrote is read */
        if (ended && !open) return 0;
        int64_t look_at = clock_deadline(open ? READ_MS : END_READ_MS);
        struct gp_error waited = {0};
        int r = gp_wait_fd(open ? fd : -1, POLLIN, ended ? 0 : GP_MIN(deadline, look_at), cancel, NULL, &waited);
        if (r == 0) r = read_some(fd, ret, &open, &waited);
        else if (r == -GP_ETIMEOUT && ended) return 0;
        else if (r == -GP_ETIMEOUT && clock_left_ms(deadline) > 0) continue;
        if (r != 0) return gp_fail(err, waited.code, "%s", waited.msg);
    }
}

/* own_group: it and its children are killed when it does not end in time. */
static int run(char *const argv[], int messages, bool own_group, int64_t timeout_ms, const struct gp_cancel *cancel,
               struct str *ret, struct gp_error *err) {
    int64_t deadline = clock_deadline(timeout_ms);
    int pipes[2], status = 0;
    pid_t pid = -1;
    if (pipe2(pipes, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe");
    GP_AUTO_FD int in = pipes[0];
    int r = start(argv, pipes[1], messages, own_group, &pid, err);
    close(pipes[1]);
    if (r != 0) return r;
    r = read_output(pid, in, deadline, cancel, ret, err);
    if (r != 0) kill(own_group ? -pid : pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (r != 0) return r;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    return gp_fail(err, GP_EAUTH, "'%s' failed with status %d%s", argv[0],
                   WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                   messages < 0 ? " (its message is above)" : "");
}

int program_run(char *const argv[], int64_t timeout_ms, const struct gp_cancel *cancel, struct str *ret,
                struct gp_error *err) {
    str_init(ret, PROGRAM_MAX);
    return run(argv, -1, false, timeout_ms, cancel, ret, err);
}

int program_run_quiet(char *const argv[], size_t max, int64_t timeout_ms, const struct gp_cancel *cancel,
                      struct str *ret, struct str *ret_messages, struct gp_error *err) {
    char end[MESSAGES_MAX];
    str_init(ret, max);
    GP_AUTO_FD int messages = memfd_create("messages", MFD_CLOEXEC);
    if (messages < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a file in memory");
    int r = run(argv, messages, true, timeout_ms, cancel, ret, err);
    off_t size = lseek(messages, 0, SEEK_END);
    ssize_t n = pread(messages, end, sizeof end, GP_MAX(size - (off_t)sizeof end, 0));
    str_add_mem(ret_messages, end, n > 0 ? (size_t)n : 0);
    return r;
}

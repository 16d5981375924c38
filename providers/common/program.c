// SPDX-License-Identifier: Apache-2.0
/* Start a program, read its output until it closes it, and wait for its end. */
#include "base/gp_base.h"

#include "providers/common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_READ_MS 10

extern char **environ;

static int start(char *const argv[], int out, pid_t *ret, struct gp_error *err) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none); /* gpuprov's threads block all signals */
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int e = posix_spawnp(ret, argv[0], &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (e == 0) return 0;
    return gp_fail_errno(err, e == ENOENT ? GP_ENOTFOUND : GP_EENV, e, "could not start '%s'", argv[0]);
}

static int read_output(int fd, int64_t deadline, const struct gp_cancel *cancel, struct str *ret,
                       struct gp_error *err) {
    for (;;) {
        char buf[4096];
        int r = gp_wait_fd(fd, POLLIN, deadline, cancel, NULL, err);
        if (r != 0) return r;
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gp_fail_errno(err, GP_EIO, errno, "could not read its output");
        if (n == 0) return 0;
        bool fits = str_add_mem(ret, buf, (size_t)n);
        explicit_bzero(buf, sizeof buf);
        if (!fits) return gp_fail(err, GP_EPROTO, "it wrote more than 64 KiB");
    }
}

/* A program may close its output and stay. */
static int wait_end(pid_t pid, int64_t deadline, const struct gp_cancel *cancel, int *ret_status,
                    struct gp_error *err) {
    for (;;) {
        pid_t ended = waitpid(pid, ret_status, WNOHANG);
        if (ended == pid) return 0;
        if (ended < 0 && errno != EINTR) return gp_fail_errno(err, GP_EIO, errno, "could not wait for its end");
        if (clock_left_ms(deadline) == 0) return gp_fail(err, GP_ETIMEOUT, "timed out");
        int r = gp_sleep(END_READ_MS, cancel, err);
        if (r != 0) return r;
    }
}

int program_run(char *const argv[], int64_t timeout_ms, const struct gp_cancel *cancel, struct str *ret,
                struct gp_error *err) {
    int64_t deadline = clock_deadline(timeout_ms);
    int pipes[2], status = 0;
    pid_t pid = -1;
    str_init(ret, PROGRAM_MAX);
    if (pipe2(pipes, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe");
    GP_AUTO_FD int in = pipes[0];
    int r = start(argv, pipes[1], &pid, err);
    close(pipes[1]);
    if (r != 0) return r;
    r = read_output(in, deadline, cancel, ret, err);
    if (r == 0) r = wait_end(pid, deadline, cancel, &status, err);
    if (r != 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        return r;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    return gp_fail(err, GP_EAUTH, "'%s' failed with status %d (its message is above)", argv[0],
                   WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a program with a pipe, reads until it ends or the deadline passes, and leaves no child behind: its process
 * group is killed. Does not judge. Any thread. */
#include "base/gp_base.h"

#include "command.h"

#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUT_MAX ((size_t)16 << 10)

extern char **environ;

char *command_find(const char *name) {
    static const char *const usual[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};
    GP_AUTO_STRV struct strv folders = {0};
    const char *path = getenv("PATH");
    if (name[0] == '/') return access(name, X_OK) == 0 ? xstrdup(name) : NULL;
    strv_split(&folders, path != NULL ? path : "", ":");
    for (size_t i = 0; i < folders.n + GP_ARRAY_LEN(usual); i++) {
        const char *folder = i < folders.n ? folders.v[i] : usual[i - folders.n];
        if (folder[0] != '/') continue;
        char *full = fs_join(folder, name);
        if (access(full, X_OK) == 0) return full;
        free(full);
    }
    return NULL;
}

static int spawn(const char *file, const char *const *argv, int out, pid_t *ret) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, out, 2);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    /* posix_spawn takes argv as char *const[] but does not change it */
    int rc = posix_spawn(ret, file, &files, &attr, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

/* Until it closes its output or the time is over. */
static int take_output(int fd, int64_t deadline_ms, struct str *out) {
    for (;;) {
        char some[4096];
        int rc = gp_wait_fd(fd, POLLIN, deadline_ms, NULL, NULL, NULL);
        if (rc < 0) return rc;
        ssize_t n = read(fd, some, sizeof some);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return 0;
        str_add_mem(out, some, GP_MIN((size_t)n, OUT_MAX - GP_MIN(out->len, OUT_MAX)));
    }
}

/* Its output is closed: waits for its end until the deadline, then kills it. */
static bool reap(pid_t pid, int64_t deadline_ms, int *ret_status) {
    int status = 0;
    pid_t got = 0;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && clock_left_ms(deadline_ms) > 0) gp_sleep(5, NULL, NULL);
    if (got == 0) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        int64_t end = clock_deadline(2000);
        while (waitpid(pid, &status, WNOHANG) == 0 && clock_left_ms(end) > 0) gp_sleep(5, NULL, NULL);
        return false;
    }
    kill(-pid, SIGKILL); /* its remaining children */
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return got == pid;
}

int command_run(const char *const *argv, int64_t deadline_ms, struct str *ret_out, int *ret_status,
                struct gp_error *err) {
    int fds[2];
    pid_t pid = 0;
    GP_AUTO_FREE char *file = command_find(argv[0]);
    if (file == NULL) return gp_fail(err, GP_ENOTFOUND, "cannot find the program '%s'", argv[0]);
    if (pipe2(fds, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "cannot create a pipe for '%s'", argv[0]);
    int rc = spawn(file, argv, fds[1], &pid);
    close(fds[1]);
    if (rc != 0) {
        close(fds[0]);
        return gp_fail_errno(err, GP_EENV, rc, "cannot start '%s'", argv[0]);
    }
    rc = take_output(fds[0], deadline_ms, ret_out);
    close(fds[0]);
    if (!reap(pid, rc < 0 ? clock_ms() : deadline_ms, ret_status))
        return gp_fail(err, GP_ETIMEOUT, "'%s' did not end in time", argv[0]);
    return 0;
}

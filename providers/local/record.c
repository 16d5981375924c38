/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a holder process, and what is done to it through a pidfd: the pid is pinned first and
 * compared afterwards, so a number that was used again is never hit. Also the spawning of this
 * executable's sealed copy. Any thread. */
#include "base/gp_base.h"

#include "providers/local/local_claim.h"

#include "base/fs.h"
#include "base/json.h"
#include "providers/local/decode.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

static int boot_id(char dst[40], struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int r = fs_read("/proc/sys/kernel/random/boot_id", 64, &text, err);
    if (r == 0) str_put(dst, 40, str_trim(text.s));
    return r;
}

/* False: no such process, or it is a zombie. */
static bool start_time(pid_t pid, uint64_t *ret) {
    GP_AUTO_FREE char *path = xasprintf("/proc/%d/stat", (int)pid);
    GP_AUTO_STR struct str text = {0};
    if (fs_read(path, 4096, &text, NULL) != 0 || text.s == NULL) return false;
    char *p = strrchr(text.s, ')'); /* the name may hold anything, also ')' */
    if (p == NULL || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X') return false;
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (p == NULL) return false;
        p++;
    }
    *ret = strtoull(p, NULL, 10);
    return true;
}

int local_record_of(pid_t pid, struct local_record *ret, struct gp_error *err) {
    struct local_record r = {.pid = pid};
    if (!start_time(pid, &r.start))
        return gp_fail(err, GP_EENV, "process %d of the local stack ended at once", (int)pid);
    GP_AUTO_FREE char *ns = xasprintf("/proc/%d/ns/pid", (int)pid);
    struct stat st;
    if (stat(ns, &st) == 0) r.pidns = st.st_ino;
    int rc = boot_id(r.boot_id, err);
    if (rc == 0) *ret = r;
    return rc;
}

int local_record_write(const char *dir, const struct local_record *r, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, "holder.json");
    GP_AUTO_FREE char *text =
        xasprintf("{\"pid\": %d, \"start\": %llu, \"pidns\": %llu, \"boot_id\": \"%s\"}\n", (int)r->pid,
                  (unsigned long long)r->start, (unsigned long long)r->pidns, r->boot_id);
    return fs_write_atomic(path, text, strlen(text), 0600, err);
}

int local_holder_pidfd(const char *dir) {
    GP_AUTO_FREE char *path = fs_join(dir, "holder.json");
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *j = NULL;
    char mine[40] = "";
    if (fs_read(path, 4096, &text, NULL) != 0 || text.s == NULL) return -1;
    if (json_parse(text.s, text.len, path, &j, NULL) != 0 || boot_id(mine, NULL) != 0) return -1;
    struct local_record rec = {0};
    if (!local_decode_record(j, &rec) || strcmp(rec.boot_id, mine) != 0) return -1;
    GP_AUTO_FD int fd = (int)syscall(SYS_pidfd_open, rec.pid, 0);
    uint64_t start = 0;
    if (fd < 0 || !start_time(rec.pid, &start) || start != rec.start) return -1;
    int ret = fd;
    fd = -1;
    return ret;
}

int local_holder_kill(const char *dir, int64_t deadline_ms, struct gp_error *err) {
    GP_AUTO_FD int fd = local_holder_pidfd(dir);
    if (fd < 0) return 0;
    if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) != 0 && errno != ESRCH)
        return gp_fail_errno(err, GP_EAUTH, errno, "could not kill the holder of '%s'", dir);
    struct gp_error late = {0};
    if (gp_wait_fd(fd, POLLIN, deadline_ms, NULL, NULL, &late) == 0) return 0;
    return gp_fail(err, GP_EBILLED,
                   "the holder of '%s' does not end (a process in it hangs in the "
                   "kernel): look at 'dmesg', then run down again",
                   dir);
}

/* This executable as a sealed, unnamed file: what a node's root can reach through /proc/1/exe is
 * this copy and never the user's own file, which also stays free to be replaced. */
static int sealed_copy(int *ret, struct gp_error *err) {
    GP_AUTO_FD int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (self < 0 || fstat(self, &st) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not open this program's own file");
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    GP_AUTO_FD int fd = memfd_create("gpuprov", flags | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("gpuprov", flags); /* before Linux 6.3 */
    if (fd < 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not create an executable copy in memory (vm.memfd_noexec=2?)");
    for (off_t left = st.st_size; left > 0;) {
        ssize_t n = sendfile(fd, self, NULL, (size_t)left);
        if (n <= 0) return gp_fail_errno(err, GP_EENV, errno, "could not copy this program");
        left -= n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not seal a file in memory");
    *ret = fd;
    fd = -1;
    return 0;
}

static int spawn_copy(const char *what, const char *arg, int in, int out, pid_t *ret, struct gp_error *err) {
    GP_AUTO_FD int exe = -1;
    int r = sealed_copy(&exe, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *path = xasprintf("/proc/self/fd/%d", exe);
    char name[] = "gpuprov-stack", verb[] = "__holder";
    GP_AUTO_FREE char *w = xstrdup(what);
    GP_AUTO_FREE char *a = xstrdup(arg);
    char *argv[] = {name, verb, w, a, NULL};
    char *envp[] = {NULL};
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, dfl;
    sigemptyset(&none);
    sigemptyset(&dfl);
    sigaddset(&dfl, SIGPIPE);
    sigaddset(&dfl, SIGCHLD);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&fa, in, 0);
    posix_spawn_file_actions_adddup2(&fa, out, 1);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &dfl);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    int e = posix_spawn(ret, path, &fa, &attr, argv, envp);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    return e == 0 ? 0 : gp_fail_errno(err, GP_EENV, e, "could not start the holder of a local stack");
}

static int read_all(int fd, int64_t deadline_ms, const struct gp_cancel *cancel, struct str *out,
                    struct gp_error *err) {
    for (;;) {
        char buf[4096];
        int r = gp_wait_fd(fd, POLLIN, deadline_ms, cancel, NULL, err);
        if (r != 0) return r;
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gp_fail_errno(err, GP_EIO, errno, "could not read from the holder");
        if (n == 0) return 0;
        str_add_mem(out, buf, (size_t)n);
    }
}

/* What it said last tells success, not its exit status: a program that was started with SIGCHLD
 * ignored cannot wait for its children. */
static bool take_ok(struct str *out) {
    static const char ok[] = "ok\n";
    size_t n = sizeof ok - 1;
    if (out->len < n || strcmp(out->s + out->len - n, ok) != 0) return false;
    if (out->len > n && out->s[out->len - n - 1] != '\n') return false;
    out->len -= n;
    out->s[out->len] = '\0';
    return true;
}

int local_spawn(const char *what, const char *arg, const char *input, int64_t deadline_ms,
                const struct gp_cancel *cancel, struct str *out, bool *ret_ok, struct gp_error *err) {
    int up[2] = {-1, -1};
    GP_AUTO_FD int in = memfd_create("input", MFD_CLOEXEC);
    if (in < 0 || fs_write_all(in, input, strlen(input)) != 0 || lseek(in, 0, SEEK_SET) != 0 ||
        pipe2(up, O_CLOEXEC) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe");
    GP_AUTO_FD int from = up[0];
    pid_t pid = -1;
    int r = spawn_copy(what, arg, in, up[1], &pid, err);
    close(up[1]);
    if (r != 0) return r;
    r = read_all(from, deadline_ms, cancel, out, err);
    if (r != 0) kill(pid, SIGKILL); /* our own child, not reaped yet: the number is still its */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    if (r == 0) *ret_ok = take_ok(out);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces and id maps. Legacy clone(2) on purpose: container runtimes answer clone3 with ENOSYS.
 * Single-threaded callers except ns_way. */
#include "base/gp_base.h"

#include "providers/local/ns/userns.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUBIDS_MIN 1000 /* sshd's own user must be in the map */
#define SUBIDS_MAX 65535
#define CHROOT_DEPTH 256 /* folders above a chroot */

/* Capabilities for namespaces with mounts and a network; a container usually lacks one. NULL: both are there. */
static const char *missing_capability(void) {
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {{0}};
    if (syscall(SYS_capget, &h, d) != 0 || (d[0].effective >> CAP_SYS_ADMIN & 1) == 0) return "CAP_SYS_ADMIN";
    return (d[0].effective >> CAP_NET_ADMIN & 1) == 0 ? "CAP_NET_ADMIN" : NULL;
}

/* The first range of this user in /etc/subuid or subgid that is large enough. */
static bool sub_ids(const char *file, int64_t *ret_start, int64_t *ret_count) {
    GP_AUTO_STR struct str text = {0};
    if (fs_read(file, (size_t)1 << 20, &text, NULL) != 0 || text.s == NULL) return false;
    struct passwd pw, *me = NULL;
    char buf[4096], number[24];
    snprintf(number, sizeof number, "%u", (unsigned)getuid());
    getpwuid_r(getuid(), &pw, buf, sizeof buf, &me);
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, text.s, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        GP_AUTO_STRV struct strv f = {0};
        strv_split(&f, lines.v[i], ":");
        if (f.n != 3 || (strcmp(f.v[0], number) != 0 && (me == NULL || strcmp(f.v[0], me->pw_name) != 0))) continue;
        if (str_to_i64(f.v[1], 1, UINT32_MAX, ret_start) && str_to_i64(f.v[2], SUBIDS_MIN, UINT32_MAX, ret_count)) {
            *ret_count = GP_MIN(*ret_count, (int64_t)SUBIDS_MAX);
            return true;
        }
    }
    return false;
}

static const char *find_program(const char *name, char *dst, size_t n) {
    static const char *const dirs[] = {"/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"};
    for (size_t i = 0; i < GP_ARRAY_LEN(dirs); i++) {
        snprintf(dst, n, "%s/%s", dirs[i], name);
        if (access(dst, X_OK) == 0) return dst;
    }
    return NULL;
}

int ns_way(enum ns_way *ret, struct gp_error *err) {
    char path[64];
    int64_t start = 0, count = 0;
    const char *missing = missing_capability();
    if (geteuid() == 0 && missing == NULL) {
        *ret = NS_ROOT;
        return 0;
    }
    bool maps = find_program("newuidmap", path, sizeof path) != NULL && sub_ids("/etc/subuid", &start, &count);
    if (geteuid() == 0 && !maps)
        return gp_fail(err, GP_EENV,
                       "local nodes need %s, which root does not have here: start the container with 'docker run "
                       "--privileged' (or podman), or use another provider",
                       missing);
    if (find_program("newuidmap", path, sizeof path) == NULL || find_program("newgidmap", path, sizeof path) == NULL)
        return gp_fail(err, GP_EENV,
                       "local nodes need root, or newuidmap and newgidmap for an ordinary user: run "
                       "as root, or install them (Debian and Ubuntu: uidmap, Fedora: shadow-utils)");
    if (!sub_ids("/etc/subuid", &start, &count) || !sub_ids("/etc/subgid", &start, &count))
        return gp_fail(err, GP_EENV,
                       "local nodes need root, or id ranges for this user: run as root, or "
                       "'usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %u'",
                       (unsigned)getuid());
    *ret = NS_USER;
    return 0;
}

pid_t ns_clone(unsigned long flags) {
    long r = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    return r < 0 ? (pid_t)-errno : (pid_t)r;
}

/* The propagation of a mount can be set only at its root, which a chroot hides. So: leave the chroot by the folder
 * above it (the root is set deeper for that moment), set it there, and come back. */
static int private_from_chroot(void) {
    struct stat here = {0}, above = {0};
    GP_AUTO_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || chroot("/proc") != 0 || fchdir(root) != 0) return -errno;
    for (int i = 0; i < CHROOT_DEPTH; i++) {
        if (stat(".", &here) != 0 || chdir("..") != 0 || stat(".", &above) != 0) return -errno;
        if (here.st_dev == above.st_dev && here.st_ino == above.st_ino) break;
    }
    int r = mount("none", ".", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : -errno;
    return fchdir(root) == 0 && chroot(".") == 0 ? r : -errno;
}

int ns_private_mounts(const char **ret_step) {
    *ret_step = "make the mounts private";
    if (chdir("/") != 0) return -errno;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) return 0;
    if (errno != EINVAL) return -errno;
    int r = private_from_chroot();
    if (r != 0) return r;
    *ret_step = "make a mount point of the chroot's root";
    if (mount("/", "/", NULL, MS_BIND | MS_REC, NULL) != 0) return -errno;
    /* ".." of the root is the root itself, with what is mounted there */
    return chdir("/..") == 0 && chroot(".") == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0
                                                                                                             : -errno;
}

int ns_run(char *const argv[], struct str *out, int *ret_status, struct gp_error *err) {
    int p[2];
    if (pipe2(p, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe");
    char *envp[] = {(char[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, (char[]){"LC_ALL=C"},
                    NULL};
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, p[1], 1);
    posix_spawn_file_actions_adddup2(&fa, p[1], 2);
    pid_t pid = -1;
    int e = posix_spawn(&pid, argv[0], &fa, NULL, argv, envp);
    posix_spawn_file_actions_destroy(&fa);
    close(p[1]);
    GP_AUTO_FD int from = p[0];
    if (e != 0) return gp_fail_errno(err, GP_EENV, e, "could not start '%s'", argv[0]);
    char buf[4096];
    for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR);) {
        n = read(from, buf, sizeof buf);
        if (n > 0) str_add_mem(out, buf, (size_t)n);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return gp_fail_errno(err, GP_EENV, errno, "lost '%s'", argv[0]);
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

static int map_one(const char *program, const char *file, pid_t pid, unsigned self, struct gp_error *err) {
    char path[64];
    int64_t start = 0, count = 0;
    if (find_program(program, path, sizeof path) == NULL || !sub_ids(file, &start, &count))
        return gp_fail(err, GP_EENV, "no %s, or no range in %s", program, file);
    char p[16], s[16], first[16], n[16], zero[] = "0", one[] = "1", from[] = "1";
    snprintf(p, sizeof p, "%d", (int)pid);
    snprintf(s, sizeof s, "%u", self);
    snprintf(first, sizeof first, "%lld", (long long)start);
    snprintf(n, sizeof n, "%lld", (long long)count);
    char *argv[] = {path, p, zero, s, one, from, first, n, NULL};
    GP_AUTO_STR struct str out = {.max = 512};
    int status = 0;
    int r = ns_run(argv, &out, &status, err);
    if (r == 0 && status != 0)
        r = gp_fail(err, GP_EENV, "%s refused the range %s+%s of %s: %s", program, first, n, file,
                    out.s ? str_trim(out.s) : "");
    return r;
}

int ns_map_ids(pid_t pid, struct gp_error *err) {
    int r = map_one("newuidmap", "/etc/subuid", pid, getuid(), err);
    return r != 0 ? r : map_one("newgidmap", "/etc/subgid", pid, getgid(), err);
}

int ns_become_root(struct gp_error *err) {
    if (setresgid(0, 0, 0) != 0 || setgroups(0, NULL) != 0 || setresuid(0, 0, 0) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not become root of the user namespace");
    return 0;
}

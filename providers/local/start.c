/* SPDX-License-Identifier: Apache-2.0 */
/* The hidden verb `__holder`: starting a stack's holder, and removing what other ids left. One
 * thread, empty environment. The starter takes the lock, clones the holder, has its record on disk
 * before it lets it begin, and ends; a holder that hears nothing ends without having done anything. */
#include "base/gp_base.h"

#include "providers/local/local.h"

#include "base/fs.h"
#include "base/json.h"
#include "providers/local/decode.h"
#include "providers/local/doctor.h"
#include "providers/local/holder.h"
#include "providers/local/local_claim.h"
#include "providers/local/ns/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS 25000

/* The next line of text as a copy; "" at the end. */
static char *take_line(const char **text) {
    size_t n = strcspn(*text, "\n");
    char *line = xstrndup(*text, n);
    *text += n + ((*text)[n] == '\n');
    return line;
}

/* stdin is a file: one line of JSON, then one line each for the proxies of the controller's
 * environment. Those may hold a password, and nodes are forks of the holder: they are kept out of
 * the JSON, whose parser leaves copies behind, and wiped once the proxy process has them. */
static int read_config(const char *dir, struct holder_config *c, struct gp_error *err) {
    struct stat st;
    GP_AUTO_JSON json_t *j = NULL;
    if (fstat(0, &st) != 0 || st.st_size < 2 || st.st_size > 1 << 20)
        return gp_fail(err, GP_EUSAGE, "__holder is started by gpuprov itself");
    size_t size = (size_t)st.st_size;
    GP_AUTO_FREE char *text = xcalloc(1, size + 1);
    if (pread(0, text, size, 0) != (ssize_t)size)
        return gp_fail_errno(err, GP_EIO, errno, "could not read the holder's input");
    const char *rest = text + strcspn(text, "\n");
    int r = json_parse(text, (size_t)(rest - text), "the holder's input", &j, err);
    if (*rest == '\n') rest++;
    c->dir = xstrdup(dir);
    if (r == 0) r = local_decode_start(j, c, err);
    c->http_proxy = take_line(&rest);
    c->https_proxy = take_line(&rest);
    c->no_proxy = take_line(&rest);
    explicit_bzero(text, size);
    return r;
}

/* Under the lock: is the claim still ours, what is left of an earlier holder. */
static int clear_ground(const struct holder_config *c, bool *ret_alive, struct gp_error *err) {
    GP_AUTO_CLAIM struct local_claim claim = {0};
    int r = local_claim_read(c->dir, &claim, err);
    if (r != 0 || strcmp(claim.uid, c->uid) != 0) {
        if (err != NULL) gp_error_clear(err);
        return gp_fail(err, GP_ENOTFOUND, "local stack '%s' was destroyed meanwhile", c->name);
    }
    GP_AUTO_FD int alive = local_holder_pidfd(c->dir);
    *ret_alive = alive >= 0;
    if (*ret_alive) return 0;
    static const char *const left[] = {"ctl", "holder.json", NULL};
    for (size_t i = 0; left[i] != NULL; i++) {
        GP_AUTO_FREE char *p = fs_join(c->dir, left[i]);
        unlink(p);
    }
    static const char *const trees[] = {"nodes", "mask", "probe", NULL};
    for (size_t i = 0; trees[i] != NULL; i++) {
        GP_AUTO_FREE char *from = fs_join(c->dir, trees[i]);
        GP_AUTO_FREE char *to = xasprintf("%s/.dead-%s-%s", c->base, c->uid, trees[i]);
        if (rename(from, to) != 0 && errno != ENOENT)
            return gp_fail_errno(err, GP_EIO, errno, "could not clear '%s'", from);
    }
    return 0; /* whoever takes the lock next sweeps them */
}

/* A systemd unit or CI job that ends kills its cgroup: root moves the holder into one of its own.
 * Best effort: without it everything works until somebody kills the caller's cgroup. */
static void own_cgroup(const char *uid, pid_t pid) {
    GP_AUTO_FREE char *dir = local_cgroup(uid);
    if (dir == NULL || (mkdir(dir, 0755) != 0 && errno != EEXIST)) return;
    GP_AUTO_FREE char *procs = fs_join(dir, "cgroup.procs");
    GP_AUTO_FD int fd = open(procs, O_WRONLY | O_CLOEXEC);
    char text[16];
    int n = snprintf(text, sizeof text, "%d", (int)pid);
    if (fd < 0 || write(fd, text, (size_t)n) != n) rmdir(dir);
}

/* The cloned child: nothing happens before "go"; end of file means that nobody recorded us. */
static _Noreturn void holder_child(struct holder_config *c, int sock) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(sock, 3) != 3 || dup2(null, 0) != 0 || dup2(null, 1) != 1) _exit(1);
    syscall(SYS_close_range, 4U, ~0U, 0U);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    char go = 0;
    if (read(3, &go, 1) != 1 || go != 'g') _exit(0);
    holder_run(c, 3);
}

static int wait_ready(int sock, struct gp_error *err) {
    GP_AUTO_STR struct str said = {.max = 1024};
    int64_t deadline = clock_deadline(READY_MS);
    while (said.s == NULL || strchr(said.s, '\n') == NULL) {
        char buf[512];
        int r = gp_wait_fd(sock, POLLIN, deadline, NULL, NULL, NULL);
        ssize_t n = r == 0 ? read(sock, buf, sizeof buf) : -1;
        if (n <= 0)
            return gp_fail(err, GP_EENV,
                           "the holder of the local stack %s during its start: run "
                           "'gpuprov doctor'",
                           r == 0 ? "died" : "did not answer");
        str_add_mem(&said, buf, (size_t)n);
    }
    if (str_starts(said.s, "ok")) return 0;
    int code = GP_EENV, used = 0;
    char *text = str_trim(said.s);
    if (sscanf(text, "error %d %n", &code, &used) != 1 || used == 0) used = 0;
    return gp_fail(err, code > 0 && code <= GP_CODE_MAX ? (enum gp_code)code : GP_EENV, "%s", text + used);
}

/* sock: our end of the pair whose other end the child has. */
static int let_begin(const struct holder_config *c, pid_t pid, int sock, struct gp_error *err) {
    struct local_record rec = {0};
    int r = c->userns ? ns_map_ids(pid, err) : 0;
    if (r == 0) r = local_record_of(pid, &rec, err);
    if (r == 0) r = local_record_write(c->dir, &rec, err);
    if (r != 0) return r;
    if (!c->userns) own_cgroup(c->uid, pid);
    if (send(sock, "g", 1, MSG_NOSIGNAL) != 1)
        return gp_fail_errno(err, GP_EENV, errno, "the holder of the local stack died at once");
    return wait_ready(sock, err);
}

static int start_locked(struct holder_config *c, struct gp_error *err) {
    enum ns_way way = NS_ROOT;
    int pair[2];
    int r = ns_way(&way, err);
    if (r != 0) return r;
    c->userns = way == NS_USER;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not create a socket pair");
    pid_t pid = ns_clone((unsigned long)(c->userns ? CLONE_NEWUSER : 0) | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC |
                         CLONE_NEWUTS);
    if (pid == 0) {
        close(pair[0]);
        holder_child(c, pair[1]);
    }
    close(pair[1]);
    GP_AUTO_FD int sock = pair[0];
    if (pid < 0)
        return gp_fail_errno(err, GP_EENV, -pid,
                             "could not create namespaces for the local stack ('gpuprov doctor' tries "
                             "each step)");
    r = let_begin(c, pid, sock, err);
    if (r != 0) {
        GP_AUTO_FREE char *record = fs_join(c->dir, "holder.json");
        kill(pid, SIGKILL); /* our own child, not reaped yet */
        waitpid(pid, NULL, 0);
        unlink(record);
    }
    return r;
}

/* stdout: "ok\n" or "error CODE TEXT\n". */
static int start_main(const char *dir, char *args, size_t args_size) {
    struct holder_config c = {.args = args, .args_size = args_size};
    struct gp_error err = {0};
    GP_AUTO_FD int lock = -1;
    bool alive = false;
    int r = read_config(dir, &c, &err);
    if (r == 0) r = local_lock(c.base, clock_deadline(READY_MS), NULL, &lock, &err);
    if (r == 0) r = clear_ground(&c, &alive, &err);
    if (r == 0 && !alive) r = start_locked(&c, &err);
    GP_AUTO_FREE char *text = r == 0 ? xstrdup("ok\n") : xasprintf("error %d %s\n", (int)err.code, err.msg);
    (void)fs_write_all(1, text, strlen(text));
    return r == 0 ? 0 : 1;
}

/* Removes a tree of a dead stack whose files belong to several ids: as root of the same map. */
static int remove_main(const char *path) {
    struct gp_error err = {0};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return 1;
    pid_t pid = ns_clone(CLONE_NEWUSER);
    if (pid == 0) {
        char go = 0;
        close(pair[0]);
        int r = read(pair[1], &go, 1) == 1 ? ns_become_root(&err) : -1;
        if (r == 0) r = fs_remove_tree(path, &err);
        if (r != 0) dprintf(1, "%s\n", err.msg);
        _exit(r == 0 ? 0 : 1);
    }
    close(pair[1]);
    int status = 1;
    if (pid < 0 || ns_map_ids(pid, &err) != 0) dprintf(1, "%s\n", pid < 0 ? strerror(-pid) : err.msg);
    else (void)send(pair[0], "g", 1, MSG_NOSIGNAL);
    close(pair[0]);
    if (pid > 0) waitpid(pid, &status, 0);
    if (status == 0) dprintf(1, "ok\n");
    return status == 0 ? 0 : 1;
}

int local_holder_main(int argc, char **argv) {
    if (argc < 3) return 2;
    syscall(SYS_close_range, 3U, ~0U, 0U);
    umask(022);
    signal(SIGCHLD, SIG_DFL);
    if (chdir("/") != 0) return 1;
    if (strcmp(argv[1], "start") == 0) {
        size_t size = (size_t)(argv[2] + strlen(argv[2]) - argv[0]);
        GP_AUTO_FREE char *dir = xstrdup(argv[2]);
        return start_main(dir, argv[0], size);
    }
    if (strcmp(argv[1], "remove") == 0) return remove_main(argv[2]);
    if (strcmp(argv[1], "doctor") == 0) return doctor_main(argv[2]);
    return 2;
}

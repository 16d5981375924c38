/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `cache`: packages for the nodes of one bootstrap, fetched once. It listens on one address, answers the
 * addresses in DIR/peers, and ends with its folder when DIR/lease is removed or is not renewed in time. One process
 * for each connection and each fetch. */
#include "base/gp_base.h"

#include "validate/agent/cache/cache.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/tcp.h"
#include "validate/agent/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONNECTIONS_MAX 512
#define TICK_MS 500

/* Made by the caller; nobody else may have a part in it. */
static int check_dir(const char *dir, struct gp_error *err) {
    struct stat st;
    if (lstat(dir, &st) != 0) return gp_fail_errno(err, GP_EIO, errno, "cannot read %s", dir);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return gp_fail(err, GP_EIO, "%s is not a folder that only this user can enter", dir);
    return 0;
}

static bool is_peer(const struct cache *c, const union tcp_address *a) {
    char text[INET6_ADDRSTRLEN] = "";
    const void *ip = a->any.sa_family == AF_INET ? (const void *)&a->v4.sin_addr : (const void *)&a->v6.sin6_addr;
    if (inet_ntop(a->any.sa_family, ip, text, sizeof text) == NULL) return false;
    GP_AUTO_FREE char *path = fs_join(c->dir, "peers");
    GP_AUTO_STR struct str peers = {0};
    return fs_read(path, (size_t)1 << 20, &peers, NULL) == 0 && peers.s != NULL && cache_peer_known(peers.s, text);
}

static void accept_one(const struct cache *c, int listener, int *children) {
    union tcp_address from = {0};
    socklen_t n = sizeof from;
    int fd = accept4(listener, &from.any, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    pid_t pid = is_peer(c, &from) ? fork() : -1; /* others see their connection closed */
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(listener);
        close(c->lock); /* a fetch may outlive this program; it must not keep the next one from starting */
        cache_serve(c, fd);
        _exit(0);
    }
    if (pid > 0) ++*children;
    close(fd);
}

/* Ends when the lease was not renewed for `lease_ms`, by this process's own clock. */
static void serve(const struct cache *c, int listener, int64_t lease_ms) {
    GP_AUTO_FREE char *lease = fs_join(c->dir, "lease");
    struct timespec seen = {0};
    int children = 0;
    for (int64_t end = clock_deadline(lease_ms); clock_left_ms(end) > 0;) {
        struct stat st;
        if (stat(lease, &st) != 0) return;
        if (st.st_mtim.tv_sec != seen.tv_sec || st.st_mtim.tv_nsec != seen.tv_nsec) end = clock_deadline(lease_ms);
        seen = st.st_mtim;
        while (children > 0 && waitpid(-1, NULL, WNOHANG) > 0) children--;
        bool room = children < CONNECTIONS_MAX;
        if (gp_wait_fd(room ? listener : -1, POLLIN, clock_deadline(TICK_MS), NULL, NULL, NULL) == 0 && room)
            accept_one(c, listener, &children);
    }
}

static int run(struct cache *c, int port, int64_t lease_ms, struct gp_error *err) {
    int r = check_dir(c->dir, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *lock = fs_join(c->dir, "lock"), *store = fs_join(c->dir, "store"), *at = fs_join(c->dir, "at");
    GP_AUTO_FD int held = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (held < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot open %s", lock);
    if (flock(held, LOCK_EX | LOCK_NB) != 0) return 0; /* a second start: the first one serves */
    c->lock = held;
    r = fs_mkdirs(store, 0700, err);
    struct gp_error busy = {0};
    GP_AUTO_FD int listener = -1;
    if (r == 0 && port > 0) listener = tcp_listen(c->bind, port, &port, &busy); /* the port of before a reboot */
    if (r == 0 && listener < 0) listener = tcp_listen(c->bind, 0, &port, err);
    if (r != 0 || listener < 0) return r != 0 ? r : -GP_EIO;
    GP_AUTO_FREE char *text = xasprintf("%d %d\n", (int)getpid(), port);
    r = fs_write_atomic(at, text, strlen(text), 0600, err);
    if (r != 0) return r;
    serve(c, listener, lease_ms);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM); /* this process leads its group: connections and fetches */
    gp_sleep(200, NULL, NULL);
    return fs_remove_tree(c->dir, err);
}

int verb_cache(int argc, char **argv) {
    struct cache c = {0};
    const char *allow = "";
    int64_t port = 0, lease_ms = 60 * 1000;
    struct gp_error err = {0};
    const struct arg args[] = {{"--dir", ARG_TEXT, true, &c.dir},
                               {"--bind", ARG_TEXT, true, &c.bind},
                               {"--fetch", ARG_TEXT, true, &c.fetch},
                               {"--allow", ARG_TEXT, false, &allow},
                               {"--port", ARG_INT, false, &port},
                               {"--lease", ARG_MS, false, &lease_ms},
                               {.name = NULL}};
    int r = args_parse(argc, argv, args, &err);
    if (r == 0 && (port < 0 || port > 65535)) r = gp_fail(&err, GP_EUSAGE, "--port is not a port");
    strv_split(&c.always, allow, ",");
    setpgid(0, 0); /* the processes that it starts end with it */
    if (r == 0) r = run(&c, (int)port, lease_ms, &err);
    strv_clear(&c.always);
    if (r == 0) return 0;
    fprintf(stderr, "gpuprov-agent cache: %s\n", err.msg);
    return NODE_CHECK_UNKNOWN;
}

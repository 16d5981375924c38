/* SPDX-License-Identifier: Apache-2.0 */
/* The holder's set-up and poll loop. One thread; pid 1 of the stack's pid namespace, so everything in
 * the stack ends with it. Ends itself at the deadline and when its claim is gone. Does not talk to
 * the journal or to any controller except through its control socket. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/clock.h"
#include "base/fs.h"
#include "providers/local/local_claim.h"
#include "providers/local/ns/netns.h"
#include "providers/local/ns/userns.h"
#include "providers/local/proxy/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 1000 /* how late the deadline or a removed claim may be noticed */

static int64_t boot_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Only an empty cgroup can be removed: out of it first. */
static void leave_cgroup(const struct holder *h) {
    GP_AUTO_FREE char *cgroup = local_cgroup(h->cfg.uid);
    if (cgroup == NULL) return;
    GP_AUTO_FREE char *up = fs_join(cgroup, "../cgroup.procs");
    GP_AUTO_FD int fd = open(up, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "0", 1) == 1) rmdir(cgroup);
}

/* Kills all that lives in the stack, then removes the folder unless somebody else is at it. */
static _Noreturn void end_here(struct holder *h, bool remove) {
    struct gp_error err = {0};
    int lock = -1;
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) continue;
    leave_cgroup(h);
    if (remove && local_lock(h->cfg.base, clock_deadline(5000), NULL, &lock, &err) == 0) {
        GP_AUTO_FREE char *mask = fs_join(h->cfg.dir, "mask");
        GP_AUTO_FREE char *nodes = fs_join(h->cfg.dir, "nodes");
        umount2(mask, MNT_DETACH);
        if (h->upper_in_memory) umount2(nodes, MNT_DETACH);
        if (chdir("/") == 0) local_remove(h->cfg.base, h->cfg.dir, h->cfg.uid, &err);
    }
    _exit(0);
}

/* Removed, or moved: what is not where its name says cannot be found by anybody who would end it. */
static bool claim_is_gone(const struct holder *h) {
    GP_AUTO_FREE char *path = fs_join(h->cfg.dir, "claim.json");
    struct stat here, there; /* the folder is our cwd */
    if (stat("claim.json", &here) != 0) return errno == ENOENT;
    if (stat(path, &there) != 0) return errno == ENOENT || errno == ENOTDIR;
    return here.st_dev != there.st_dev || here.st_ino != there.st_ino;
}

static int step(int r, const char *what, struct gp_error *err) {
    return r >= 0 ? 0 : gp_fail_errno(err, GP_EENV, -r, "could not %s (run 'gpuprov doctor')", what);
}

static int set_up_net(struct holder *h, struct gp_error *err) {
    int r = step(unshare(CLONE_NEWNET) == 0 ? 0 : -errno, "make a network namespace", err);
    if (r == 0) r = step(net_link_up("lo"), "bring up the loopback link", err);
    if (r == 0) r = step(net_bridge_add(), "make a bridge", err);
    if (r == 0) r = step(net_addr_add(LOCAL_BRIDGE, LOCAL_GATEWAY), "give the bridge an address", err);
    if (r == 0) r = step(net_link_up(LOCAL_BRIDGE), "bring up the bridge", err);
    if (r == 0) r = step(net_route_quickack(LOCAL_BRIDGE, LOCAL_GATEWAY), "set the route's quickack", err);
    if (r != 0) return r;
    h->home_net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    return step(h->home_net >= 0 ? 0 : -errno, "open the network namespace", err);
}

static int make_tmpfs(const char *path, const char *options, struct gp_error *err) {
    int r = fs_mkdirs(path, 0755, err);
    if (r != 0) return r;
    if (mount("gpuprov", path, "tmpfs", MS_NODEV, options) == 0) return 0;
    return gp_fail_errno(err, GP_EENV, errno, "could not mount a tmpfs at '%s'", path);
}

/* Whether the state folder's file system can hold an overlay's upper: it is tried. An overlay itself
 * (a container's root) cannot; network ones say yes and then lose attributes. */
static bool upper_fits_here(const struct holder *h) {
    struct statfs fs;
    if (statfs(".", &fs) != 0 || fs.f_type == 0x6969 /* nfs */ || fs.f_type == 0x65735546 /* fuse */) return false;
    if (mkdir("probe", 0755) != 0 || mkdir("probe/u", 0755) != 0 || mkdir("probe/w", 0755) != 0 ||
        mkdir("probe/m", 0755) != 0)
        return false;
    GP_AUTO_FREE char *o =
        xasprintf("lowerdir=/etc,upperdir=probe/u,workdir=probe/w%s", h->cfg.userns ? ",userxattr" : "");
    bool fits = mount("gpuprov", "probe/m", "overlay", 0, o) == 0;
    if (fits) umount2("probe/m", MNT_DETACH);
    fs_remove_tree("probe", NULL);
    return fits;
}

static int set_up_files(struct holder *h, struct gp_error *err) {
    GP_AUTO_FREE char *mask = fs_join(h->cfg.dir, "mask");
    GP_AUTO_FREE char *nodes = fs_join(h->cfg.dir, "nodes");
    int r = fs_mkdirs(nodes, 0755, err);
    h->upper_in_memory = !upper_fits_here(h);
    if (r == 0 && h->upper_in_memory) r = make_tmpfs(nodes, "mode=755", err);
    /* a lower layer must not lie inside another one (ELOOP): the mask has a file system of its own */
    if (r == 0) r = make_tmpfs(mask, "mode=755,size=64m", err);
    if (r == 0) r = mask_build(h, err);
    return r;
}

static int set_up(struct holder *h, struct gp_error *err) {
    int proxy_sock = -1;
    const char *what = "";
    int r = h->cfg.userns ? ns_become_root(err) : 0;
    if (r == 0) {
        int e = ns_private_mounts(&what);
        r = step(e, what, err);
    }
    if (r != 0) return r;
    setsid();
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    if (chdir(h->cfg.dir) != 0) return gp_fail_errno(err, GP_EIO, errno, "could not enter '%s'", h->cfg.dir);
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log < 0 || dup2(log, 2) != 2) return gp_fail_errno(err, GP_EIO, errno, "could not write '%s/log'", h->cfg.dir);
    struct proxy_setup proxy = {.http_proxy = h->cfg.http_proxy,
                                .https_proxy = h->cfg.https_proxy,
                                .no_proxy = h->cfg.no_proxy,
                                .indexes = &h->cfg.indexes,
                                .userns = h->cfg.userns};
    if (r == 0) r = proxy_fork(&proxy, &h->proxy_pid, &proxy_sock, err);
    explicit_bzero(h->cfg.http_proxy, strlen(h->cfg.http_proxy));
    explicit_bzero(h->cfg.https_proxy, strlen(h->cfg.https_proxy));
    if (r == 0) r = set_up_net(h, err);
    if (r == 0) r = proxy_give_listener(proxy_sock, err);
    if (proxy_sock >= 0) close(proxy_sock);
    if (r == 0) r = set_up_files(h, err);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGCHLD);
    sigprocmask(SIG_BLOCK, &s, NULL);
    h->signal_fd = signalfd(-1, &s, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r == 0 && h->signal_fd < 0) r = gp_fail_errno(err, GP_EENV, errno, "could not create a signalfd");
    if (r == 0) r = ctl_listen(h, err);
    return r;
}

/* One wait for everything; returns what is ready through the nodes' and clients' own calls. */
static void round_once(struct holder *h) {
    VEC_OF(struct pollfd) p = {0};
    struct pollfd sig = {.fd = h->signal_fd, .events = POLLIN};
    struct pollfd lis = {.fd = h->listen_fd, .events = POLLIN};
    vec_push(&p, sig);
    vec_push(&p, lis);
    size_t first_node = p.len, n_nodes = h->nodes.len;
    for (size_t i = 0; i < n_nodes; i++) {
        struct pollfd q = {.fd = h->nodes.items[i]->ready_fd, .events = POLLIN};
        vec_push(&p, q);
    }
    for (size_t i = 0; i < h->clients.len; i++) {
        struct pollfd q = {.fd = -1};
        ctl_wait(h->clients.items[i], &q.fd, &q.events);
        vec_push(&p, q);
    }
    poll(p.items, p.len, TICK_MS);
    for (size_t i = 0; i < n_nodes; i++)
        if (p.items[first_node + i].revents != 0) nodes_heard(h, h->nodes.items[i]);
    struct signalfd_siginfo si;
    while (read(h->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) continue;
    nodes_reap(h);
    if (p.items[1].revents != 0) ctl_accept(h);
    ctl_step(h);
    vec_free(&p);
}

void holder_end_at(struct holder *h, int64_t expires_s) {
    h->cfg.expires_s = expires_s;
    h->end_mono_ms = boot_ms() + (expires_s - clock_wall_s()) * 1000;
}

_Noreturn void holder_run(struct holder_config *cfg, int go_fd) {
    struct holder h = {.cfg = *cfg, .home_net = -1, .listen_fd = -1, .signal_fd = -1};
    struct gp_error err = {0};
    prctl(PR_SET_NAME, "gpuprov-stack");
    prctl(PR_SET_DUMPABLE, 0);
    if (getrlimit(RLIMIT_NOFILE, &h.cfg.files) == 0) { /* each node takes two descriptors here */
        struct rlimit all = {.rlim_cur = h.cfg.files.rlim_max, .rlim_max = h.cfg.files.rlim_max};
        setrlimit(RLIMIT_NOFILE, &all);
    }
    holder_end_at(&h, cfg->expires_s);
    int r = set_up(&h, &err);
    if (r != 0) dprintf(go_fd, "error %d %s\n", (int)err.code, err.msg);
    else dprintf(go_fd, "ok\n");
    if (r != 0) _exit(1);
    close(go_fd);
    for (;;) {
        round_once(&h);
        if (boot_ms() >= h.end_mono_ms || clock_wall_s() >= h.cfg.expires_s) end_here(&h, true);
        if (claim_is_gone(&h)) end_here(&h, false);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A node: its folders on the machine, then, in a process of its own, its root made of overlays of
 * the machine's folders, and its start. What a node's root can write is never followed from outside:
 * folders in it are opened without following links, its own files are written once, before it first
 * starts. Runs in the holder (node_prepare) and in the node's single-threaded first process. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/fs.h"
#include "providers/local/layers.h"
#include "providers/local/ns/filter.h"
#include "providers/local/ns/netns.h"
#include "providers/local/ns/userns.h"
#include "providers/local/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define HOST_KEY "/etc/ssh/gpuprov_host_key"

/* glibc before 2.36 (Ubuntu 22.04) has neither, and the kernel's own header clashes with later ones. */
#ifndef MOUNT_ATTR_RDONLY
#define MOUNT_ATTR_RDONLY 0x00000001
#define MOUNT_ATTR_NODEV 0x00000004
struct mount_attr {
    unsigned long long attr_set, attr_clr, propagation, userns_fd;
};
#endif

static char *node_path(const struct holder *h, const struct local_node *n, const char *rest) {
    return xasprintf("%s/nodes/%s/%s", h->cfg.dir, n->dir, rest);
}

static int put(const char *dir, const char *name, mode_t mode, const char *text, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, name);
    GP_AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) != 0 || fchmod(fd, mode) != 0)
        return gp_fail_errno(err, GP_EIO, errno, "could not write '%s'", path);
    return 0;
}

static int make_dir(const char *dir, const char *name, mode_t mode, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, name);
    int r = fs_mkdirs(path, mode, err);
    if (r == 0 && chmod(path, mode) != 0) r = gp_fail_errno(err, GP_EIO, errno, "could not create '%s'", path);
    return r;
}

/* The folder "/" of the node: a plain folder beside the uppers, so that /root, /home and what a step
 * makes survive a reboot and have the disk's room. */
static int make_root(const char *root, const char *login_pubkey, struct gp_error *err) {
    static const struct {
        const char *name;
        mode_t mode;
    } dirs[] = {{"root", 0700}, {"root/.ssh", 0700}, {"home", 0755}, {"srv", 0755}, {"mnt", 0755}, {"media", 0755},
                {"tmp", 01777}, {"proc", 0555},      {"sys", 0555},  {"dev", 0755}, {"run", 0755}};
    int r = make_dir(root, ".", 0755, err);
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(dirs); i++) r = make_dir(root, dirs[i].name, dirs[i].mode, err);
    GP_AUTO_FREE char *key = xasprintf("%s\n", login_pubkey);
    if (r == 0) r = put(root, "root/.ssh/authorized_keys", 0600, key, err);
    DIR *d = r == 0 ? opendir("/") : NULL;
    if (r == 0 && d == NULL) return gp_fail_errno(err, GP_EIO, errno, "could not read '/'");
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL && r == 0; e = readdir(d)) {
        char to[256];
        GP_AUTO_FREE char *from = xasprintf("/%s", e->d_name);
        GP_AUTO_FREE char *at = fs_join(root, e->d_name);
        if (!rootfs_takes(e->d_name)) continue;
        ssize_t n = readlink(from, to, sizeof to - 1);
        if (n < 0) {
            r = make_dir(root, e->d_name, 0755, err);
            continue;
        }
        to[n] = '\0';
        if (symlink(to, at) != 0) r = gp_fail_errno(err, GP_EIO, errno, "could not create '%s'", at);
    }
    if (d != NULL) closedir(d);
    return r;
}

static void add_hosts(const struct holder *h, int first, struct str *out) {
    char ip[20];
    for (int s = first; s < h->cfg.nodes && s < LOCAL_SLOTS_MAX; s++) {
        net_node_ip(s, ip);
        str_addf(out, "%s %s-%d\n", ip, h->cfg.name, s);
    }
}

/* Straight to the upper's file, which the overlay reads through. The node may have put anything in
 * its place: only a regular file is written, no link followed. */
void node_learn_hosts(const struct holder *h, const struct local_node *n, int first) {
    GP_AUTO_FREE char *path = node_path(h, n, "u/%etc/hosts");
    GP_AUTO_STR struct str lines = {0};
    struct stat st;
    GP_AUTO_FD int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    add_hosts(h, first, &lines);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && lines.len > 0)
        (void)fs_write_all(fd, lines.s, lines.len);
}

/* What in /etc is this node's alone. */
static int make_etc(const struct holder *h, const struct local_node *n, struct gp_error *err) {
    GP_AUTO_FREE char *etc = node_path(h, n, "u/%etc");
    GP_AUTO_FREE char *name = xasprintf("%s\n", n->name);
    GP_AUTO_STR struct str hosts = {0};
    char id[34];
    int r = fs_mkdirs(etc, 0755, err);
    if (r == 0) r = fs_random_hex(id, 16, err);
    if (r != 0) return r;
    id[32] = '\n';
    id[33] = '\0';
    str_add(&hosts, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n\n");
    add_hosts(h, 0, &hosts);
    r = put(etc, "hostname", 0644, name, err);
    if (r == 0) r = put(etc, "hosts", 0644, hosts.s, err);
    if (r == 0) r = put(etc, "machine-id", 0444, id, err);
    return r;
}

int node_prepare(const struct holder *h, const struct local_node *n, const char *login_pubkey, struct gp_error *err) {
    GP_AUTO_FREE char *dir = node_path(h, n, "");
    GP_AUTO_FREE char *root = node_path(h, n, "root");
    int r = make_dir(dir, ".", 0755, err);
    if (r == 0) r = make_root(root, login_pubkey, err);
    if (r == 0) r = make_etc(h, n, err);
    return r;
}

/* r < 0: errno says why what fmt names could not be done. */
static int check(int r, struct gp_error *err, const char *fmt, ...) GP_PRINTF(3, 4);
static int check(int r, struct gp_error *err, const char *fmt, ...) {
    int e = errno;
    if (r >= 0) return 0;
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return gp_fail_errno(err, GP_EENV, e, "could not %s", text);
}

/* The lower layer that shows a folder of the machine (layers.h); NULL: this one nodes do not get. */
static char *lower_of(const struct rootfs_mount *m) {
    GP_AUTO_FREE char *name = layer_flat(m->path);
    if (m->kind == ROOTFS_COPIED) return xasprintf("mask/copy%s", m->path);
    if (m->kind == ROOTFS_WITHIN) return NULL;
    enum guard_state guard = m->kind == ROOTFS_GUARDED ? guard_state("mask", m->path) : GUARD_IMPOSSIBLE;
    if (guard == GUARD_NONE) return NULL;
    return guard == GUARD_ON ? xasprintf("mask/guard/%s", name) : xstrdup(m->path);
}

/* One overlay of the machine's folder at the descriptor `at`; our own paths relative to the stack's
 * folder, so that no name in it can break the option string. */
static int overlay(const struct holder *h, const struct local_node *n, const struct rootfs_mount *m, const char *lower,
                   const char *at) {
    GP_AUTO_FREE char *name = layer_flat(m->path);
    GP_AUTO_FREE char *up = xasprintf("nodes/%s/u/%s", n->dir, name);
    GP_AUTO_FREE char *work = xasprintf("nodes/%s/w/%s", n->dir, name);
    GP_AUTO_FREE char *hide = xasprintf("mask/hide%s", m->path);
    struct stat st;
    bool hides = lstat(hide, &st) == 0 && S_ISDIR(st.st_mode);
    if (stat(lower, &st) != 0) return -1;
    if (fs_mkdirs(up, 0755, NULL) != 0 || fs_mkdirs(work, 0755, NULL) != 0) return -1;
    if (n->boots == 0 && chmod(up, st.st_mode & 07777) != 0) return -1;
    if (n->boots == 0 && chown(up, st.st_uid, st.st_gid) != 0 && !h->cfg.userns) return -1;
    GP_AUTO_FREE char *image = n->image[0] != '\0' ? xasprintf("../.images/%s/u/%s", n->image, name) : NULL;
    bool baked = image != NULL && lstat(image, &st) == 0 && S_ISDIR(st.st_mode);
    if (strpbrk(m->path, ":,\\") != NULL) {
        errno = EINVAL;
        return -1;
    }
    GP_AUTO_FREE char *o = xasprintf("lowerdir=%s%s%s%s%s,upperdir=%s,workdir=%s,index=off,metacopy=off%s",
                                     baked ? image : "", baked ? ":" : "", hides ? hide : "", hides ? ":" : "", lower,
                                     up, work, h->cfg.userns ? ",userxattr" : ",redirect_dir=off");
    return mount("gpuprov", at, "overlay", MS_NODEV, o);
}

/* A path of the node as a descriptor; links in it cannot lead out of it. */
static int inside(int root, const char *path) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* from, and what is mounted in it, read-only at a folder of the node. */
static int bind_readonly(const char *from, int root, const char *path) {
    struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV};
    GP_AUTO_FD int under = inside(root, path);
    GP_AUTO_FREE char *at = xasprintf("/proc/self/fd/%d", under);
    if (under < 0 || mount(from, at, NULL, MS_BIND | MS_REC, NULL) != 0) return -1;
    GP_AUTO_FD int fd = inside(root, path); /* again: the first one is what is covered now */
    return fd < 0 ? -1 : (int)syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &a, sizeof a);
}

/* What hide/ lays over a folder, one bind mount each, where it cannot be a layer of an overlay. */
static void cover(const char *hide, int root, const char *path) {
    DIR *d = opendir(hide);
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        struct stat st;
        char v[4];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        GP_AUTO_FREE char *from = fs_join(hide, e->d_name);
        GP_AUTO_FREE char *to = fs_join(path, e->d_name);
        if (lstat(from, &st) != 0) continue;
        bool shut = S_ISDIR(st.st_mode) && lgetxattr(from, "user.overlay.opaque", v, sizeof v) > 0;
        if (S_ISDIR(st.st_mode) && !shut) cover(from, root, to);
        else if (bind_readonly(S_ISREG(st.st_mode) ? from : shut ? "mask/none" : "mask/blank", root, to) != 0)
            (void)bind_readonly("mask/none", root, to); /* a folder by now */
    }
    if (d != NULL) closedir(d);
}

static int mount_one(const struct holder *h, const struct local_node *n, int root, const struct rootfs_mount *m,
                     struct gp_error *err) {
    bool top = strchr(m->path + 1, '/') == NULL;
    bool programs = strcmp(m->path, "/usr") == 0 || strcmp(m->path, "/opt") == 0;
    GP_AUTO_FREE char *lower = lower_of(m);
    GP_AUTO_FREE char *hide = xasprintf("mask/hide%s", m->path);
    GP_AUTO_FD int fd = inside(root, m->path);
    if (fd < 0 && !top) return 0; /* hidden, or the node removed it */
    GP_AUTO_FREE char *at = xasprintf("/proc/self/fd/%d", fd);
    bool local = strcmp(m->path, "/usr/local") == 0 && (lower == NULL || strcmp(lower, m->path) != 0);
    if (lower == NULL && !local && !(programs && h->cfg.userns)) return 0;
    int done = -1;
    errno = EINVAL;
    if (fd >= 0 && m->kind == ROOTFS_FILE) done = mount(m->path, at, NULL, MS_BIND, NULL);
    else if (fd >= 0 && lower != NULL) done = overlay(h, n, m, lower, at);
    if (done != 0 && h->cfg.userns && errno == EINVAL && programs) {
        /* Without root an overlay of a folder that has mounts of its own is refused (they are locked);
         * there it is as good read-only, since nothing in it could be written anyway. */
        done = bind_readonly(m->path, root, m->path);
        if (done == 0) cover(hide, root, m->path);
    } else if (done != 0 && local) {
        done = bind_readonly("mask/none", root, m->path); /* the overlay of /usr shows it unguarded */
    } else if (done != 0 && !top) {
        return 0; /* a file system that cannot be a lower one: its folder stays as it is below */
    }
    return check(done, err, "mount an overlay of '%s'", m->path);
}

static int mount_files(const struct holder *h, const struct local_node *n, int root, struct gp_error *err) {
    GP_AUTO_ROOTFS struct rootfs_mounts m = {0};
    int r = rootfs_mounts(&m, err);
    for (size_t i = 0; r == 0 && i < m.list.len; i++) r = mount_one(h, n, root, &m.list.items[i], err);
    return r;
}

static int kernel_views(const char *at, struct gp_error *err) {
    static const char *const readonly[] = {"proc/sys", "proc/sysrq-trigger", "proc/irq", "proc/bus", "proc/fs"};
    static const char *const hidden[] = {"proc/kcore", "proc/keys", "proc/timer_list"};
    const unsigned long no = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    GP_AUTO_FREE char *proc = fs_join(at, "proc");
    GP_AUTO_FREE char *sys = fs_join(at, "sys");
    GP_AUTO_FREE char *bid = fs_join(at, "proc/sys/kernel/random/boot_id");
    GP_AUTO_FREE char *own = fs_join(at, "run/gpuprov/boot_id");
    GP_AUTO_FREE char *null = fs_join(at, "dev/null");
    int r = check(mount("proc", proc, "proc", no, NULL), err, "mount %s", "proc");
    if (r == 0) r = check(mount("sysfs", sys, "sysfs", no | MS_RDONLY, NULL), err, "mount %s", "sysfs");
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(readonly); i++) {
        GP_AUTO_FREE char *p = fs_join(at, readonly[i]);
        if (!fs_exists(p)) continue;
        r = check(mount(p, p, NULL, MS_BIND, NULL), err, "bind '/%s'", readonly[i]);
        if (r == 0)
            r = check(mount(NULL, p, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | no, NULL), err, "make '/%s' read-only",
                      readonly[i]);
    }
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(hidden); i++) {
        GP_AUTO_FREE char *p = fs_join(at, hidden[i]);
        if (fs_exists(p)) r = check(mount(null, p, NULL, MS_BIND, NULL), err, "hide '/%s'", hidden[i]);
    }
    if (r == 0) r = check(mount(own, bid, NULL, MS_BIND, NULL), err, "bind %s", "the boot id");
    return r;
}

static int mount_run(const char *at, struct gp_error *err) {
    GP_AUTO_FREE char *run = fs_join(at, "run");
    GP_AUTO_STR struct str uuid = {0};
    int r = check(mount("tmpfs", run, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=10%"), err, "mount %s", "/run");
    if (r == 0) r = make_dir(run, "sshd", 0755, err);
    if (r == 0) r = make_dir(run, "lock", 01777, err);
    if (r == 0) r = make_dir(run, "gpuprov", 0755, err);
    if (r == 0) r = fs_read("/proc/sys/kernel/random/uuid", 64, &uuid, err);
    if (r == 0) r = put(run, "gpuprov/boot_id", 0444, uuid.s, err);
    if (r == 0)
        r = put(run, "gpuprov/sshd_config", 0644,
                "Port 22\nHostKey " HOST_KEY "\nPermitRootLogin prohibit-password\n"
                "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nUseDNS no\n"
                "PidFile none\nMaxStartups 200:30:400\nMaxSessions 100\nAcceptEnv LANG LC_*\n"
                "Subsystem sftp internal-sftp\nLogLevel ERROR\n",
                err);
    return r;
}

/* The files of the image outside the overlays: /root, /home and what its steps made beside them. They are copied, so
 * that the node can write them. */
static int copy_image(const struct holder *h, const struct local_node *n, struct gp_error *err) {
    GP_AUTO_FREE char *from = xasprintf("%s/.images/%s/root", h->cfg.base, n->image);
    GP_AUTO_FREE char *to = node_path(h, n, "root");
    GP_AUTO_STR struct str out = {.max = 400};
    int status = 0;
    char *argv[] = {
        (char[]){"/bin/cp"}, (char[]){"-a"}, (char[]){"--remove-destination"}, (char[]){"-T"}, from, to, NULL};
    int r = ns_run(argv, &out, &status, err);
    if (r != 0 || status == 0) return r;
    str_one_line(out.s);
    return gp_fail(err, GP_EIO, "could not copy the image local-image-%s: %s", n->image,
                   out.len > 0 ? out.s : "no reason given");
}

/* The mounts that cover a node's root; afterwards it is "/" and nothing else is left. */
static int enter_root(const struct holder *h, const struct local_node *n, struct gp_error *err) {
    GP_AUTO_FREE char *path = node_path(h, n, "root");
    int r = check(mount(path, path, NULL, MS_BIND, NULL), err, "bind '%s'", path);
    if (r == 0 && !h->cfg.userns)
        r = check(mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_NODEV, NULL), err, "remount '%s'", path);
    GP_AUTO_FD int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r == 0) r = check(root, err, "open '%s'", path);
    if (r != 0) return r;
    GP_AUTO_FREE char *at = xasprintf("/proc/self/fd/%d", root);
    static const char *const own[] = {"dev", "run", "proc", "sys"};
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(own); i++) {
        struct stat st; /* the node's root may have put anything there since */
        if (fstatat(root, own[i], &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
            r = gp_fail(err, GP_EENV, "its folder '/%s' is gone: destroy this node", own[i]);
    }
    if (r == 0) r = mount_files(h, n, root, err);
    GP_AUTO_FREE char *dev = fs_join(at, "dev");
    if (r == 0) r = check(mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755,size=1m"), err, "mount %s", "/dev");
    if (r == 0) r = node_devices(h, n, dev, err);
    if (r == 0) r = mount_run(at, err);
    if (r == 0) r = kernel_views(at, err);
    if (r == 0) r = check(fchdir(root), err, "enter '%s'", path);
    if (r == 0) r = check((int)syscall(SYS_pivot_root, ".", "."), err, "pivot into '%s'", path);
    if (r == 0) r = check(umount2(".", MNT_DETACH), err, "leave %s", "the machine's root");
    if (r == 0) r = check(chdir("/"), err, "enter %s", "/");
    return r;
}

/* Docker's set without MKNOD (there is no device cgroup here: it would open the machine's disks),
 * and what a GPU node's software needs: its own network, reboot, debuggers, pinned memory, priority. */
static int drop_capabilities(struct gp_error *err) {
    static const unsigned keep[] = {
        CAP_CHOWN,       CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,     CAP_KILL,       CAP_SETGID,
        CAP_SETUID,      CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_NET_RAW,    CAP_SYS_CHROOT, CAP_SETFCAP,
        CAP_AUDIT_WRITE, CAP_NET_ADMIN,    CAP_SYS_BOOT,         CAP_SYS_PTRACE, CAP_IPC_LOCK,   CAP_SYS_NICE};
    uint64_t mask = 0;
    for (size_t i = 0; i < GP_ARRAY_LEN(keep); i++) mask |= (uint64_t)1 << keep[i];
    for (unsigned c = 0; c < 64; c++)
        if ((mask >> c & 1) == 0 && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) != 0 && errno != EINVAL)
            return gp_fail_errno(err, GP_EENV, errno, "could not drop capability %u", c);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2];
    if (syscall(SYS_capget, &head, d) != 0) return check(-1, err, "read %s", "capabilities");
    for (int i = 0; i < 2; i++) {
        d[i].permitted &= (uint32_t)(mask >> 32 * i);
        d[i].effective = d[i].permitted;
        d[i].inheritable = 0;
    }
    return check((int)syscall(SYS_capset, &head, d), err, "drop %s", "capabilities");
}

/* /tmp is empty after a boot. In the node's own view already: no link leads out. */
static void clear_tmp(void) {
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        GP_AUTO_FREE char *path = xasprintf("/tmp/%s", e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) fs_remove_tree(path, NULL);
    }
    if (d != NULL) closedir(d);
    if (d == NULL && unlink("/tmp") == 0 && mkdir("/tmp", 01777) == 0) (void)chmod("/tmp", 01777);
}

/* The node's host key is made in the node, by OpenSSH; its private part never leaves it. */
static int host_key(struct str *ret_public, struct gp_error *err) {
    if (!fs_exists(HOST_KEY)) {
        char *argv[] = {(char[]){"/usr/bin/ssh-keygen"},
                        (char[]){"-q"},
                        (char[]){"-t"},
                        (char[]){"ed25519"},
                        (char[]){"-N"},
                        (char[]){""},
                        (char[]){"-C"},
                        (char[]){""},
                        (char[]){"-f"},
                        (char[]){HOST_KEY},
                        NULL};
        GP_AUTO_STR struct str out = {.max = 400};
        int status = 0;
        int r = ns_run(argv, &out, &status, err);
        if (r == 0 && status != 0)
            r = gp_fail(err, GP_EENV, "ssh-keygen made no host key: %s", out.s ? str_trim(out.s) : "no reason given");
        if (r != 0) return r;
    }
    int r = fs_read(HOST_KEY ".pub", 1000, ret_public, err);
    if (r == 0) str_trim(ret_public->s);
    return r;
}

_Noreturn void node_main(const struct holder *h, struct local_node *n, int say, bool first_boot) {
    struct gp_error err = {0};
    GP_AUTO_STR struct str key = {0};
    GP_AUTO_FREE char *log = node_path(h, n, "console");
    int console = open(log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (console >= 0) dup2(console, 2);
    int r = check(setns(n->net_fd, CLONE_NEWNET), &err, "enter %s", "its network namespace");
    if (dup2(say, 3) != 3) _exit(1);
    syscall(SYS_close_range, 4U, ~0U, 0U);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    setrlimit(RLIMIT_NOFILE, &h->cfg.files);
    if (r == 0) r = check(sethostname(n->name, strlen(n->name)), &err, "set %s", "its name");
    if (r == 0) r = check(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), &err, "make %s private", "the mounts");
    if (r == 0 && first_boot && n->image[0] != '\0') r = copy_image(h, n, &err);
    if (r == 0) r = enter_root(h, n, &err);
    if (r == 0 && !first_boot) clear_tmp();
    if (r == 0) r = filter_enter(&err); /* while it still may, so that setuid programs keep working */
    if (r == 0) r = drop_capabilities(&err);
    if (r == 0) r = host_key(&key, &err);
    if (r != 0) {
        dprintf(3, "error %s\n", err.msg);
        _exit(1);
    }
    memset(h->cfg.args, 0, h->cfg.args_size);
    str_put(h->cfg.args, h->cfg.args_size, "init");
    init_run(3, key.s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The mask: one lower layer above the machine's own folders, shared by all nodes of a stack. What the
 * world may not read in /etc and /var the node does not get; files that must be the node's own are
 * replaced. Lives on a tmpfs in the holder's mount namespace. The holder's one thread only. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/fs.h"
#include "providers/local/netns.h"
#include "providers/local/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

struct mask {
    const struct holder *h;
    const char *dir; /* DIR/mask */
};

/* Shown empty whatever their mode: mail, logs, other people's containers and jobs. */
static const char *const emptied[] = {
    "/var/log", "/var/mail", "/var/spool/mail", "/var/spool/cron", "/var/spool/at", "/var/backups",
    "/var/tmp", "/var/crash", "/var/lib/gpuprov", "/var/lib/docker", "/var/lib/containers",
    "/var/lib/containerd", "/var/lib/lxd", "/var/lib/lxc", "/var/lib/libvirt", "/var/lib/kubelet",
    "/var/lib/machines", "/etc/apt/auth.conf.d", "/etc/sudoers.d", "/etc/cron.d",
    "/etc/NetworkManager/system-connections", "/etc/wireguard", "/etc/netplan", NULL};

/* Not looked into: package data that root's tools need as it is. */
static const char *const exempt[] = {"/var/lib/dpkg", "/var/lib/apt", "/var/lib/rpm", "/var/lib/dnf",
                                     "/var/lib/polkit-1", "/var/lib/private", "/var/cache", NULL};

static bool in_list(const char *const *list, const char *path) {
    for (; *list != NULL; list++)
        if (strcmp(*list, path) == 0) return true;
    return false;
}

/* The folder in the mask with the real one's mode and owner: an overlay shows the upper one's. */
static void like_real(const struct mask *m, const char *path) {
    struct stat st;
    GP_AUTO_FREE char *at = xasprintf("%s%s", m->dir, path);
    if (stat(path, &st) != 0) return;
    /* an id that is not in a user namespace's map cannot be given: then root's, as for a new folder */
    if (chown(at, st.st_uid, st.st_gid) == 0 || errno == EINVAL || errno == EPERM)
        (void)chmod(at, st.st_mode & 07777);
}

/* Makes path's folders in the mask, each like the machine's own. False: not possible. */
static bool parents(const struct mask *m, const char *path) {
    GP_AUTO_FREE char *p = xstrdup(path);
    for (char *s = strchr(p + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        GP_AUTO_FREE char *at = xasprintf("%s%s", m->dir, p);
        if (mkdir(at, 0755) == 0) like_real(m, p);
        else if (errno != EEXIST) return false;
        *s = '/';
    }
    return true;
}

static int masked(int r, const char *path, struct gp_error *err) {
    return r == 0 ? 0 : gp_fail_errno(err, GP_EENV, errno, "could not hide '%s' from nodes", path);
}

static int whiteout(const struct mask *m, const char *path, struct gp_error *err) {
    GP_AUTO_FREE char *at = xasprintf("%s%s", m->dir, path);
    if (!parents(m, path)) return masked(-1, path, err);
    return masked(mknod(at, S_IFCHR, 0) == 0 || errno == EEXIST ? 0 : -1, path, err);
}

/* Without user.* attributes on a tmpfs (before Linux 6.6) each entry is hidden for itself. A folder
 * that cannot be read here cannot be read in the node either: it has the same ids. */
static int empty_by_entry(const struct mask *m, const char *path, struct gp_error *err) {
    DIR *d = opendir(path);
    int r = 0;
    if (d == NULL) return 0;
    for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        GP_AUTO_FREE char *child = fs_join(path, e->d_name);
        r = whiteout(m, child, err);
    }
    closedir(d);
    return r;
}

static int empty(const struct mask *m, const char *path, struct gp_error *err) {
    GP_AUTO_FREE char *at = xasprintf("%s%s", m->dir, path);
    const char *name = m->h->cfg.userns ? "user.overlay.opaque" : "trusted.overlay.opaque";
    if (!parents(m, path) || (mkdir(at, 0755) != 0 && errno != EEXIST)) return masked(-1, path, err);
    like_real(m, path);
    if (lsetxattr(at, name, "y", 1, 0) == 0) return 0;
    if (m->h->cfg.userns && errno == EOPNOTSUPP) return empty_by_entry(m, path, err);
    return masked(-1, path, err);
}

/* Programs expect their own folder below /var/log: empty ones stay. */
static int keep_subfolders(const struct mask *m, const char *path, struct gp_error *err) {
    DIR *d = opendir(path);
    if (d == NULL) return 0;
    int r = 0;
    for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
        struct stat st;
        GP_AUTO_FREE char *child = fs_join(path, e->d_name);
        if (e->d_name[0] == '.' || lstat(child, &st) != 0 || !S_ISDIR(st.st_mode)) continue;
        r = empty(m, child, err);
    }
    closedir(d);
    return r;
}

/* The rule: what the world may not read, the node does not get. */
static int walk(const struct mask *m, const char *path, int depth, struct gp_error *err) {
    DIR *d = opendir(path);
    int r = 0;
    if (d == NULL) return 0; /* not readable without root: not readable in the node either */
    for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d)) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISLNK(st.st_mode)) continue;
        GP_AUTO_FREE char *child = fs_join(path, e->d_name);
        if (in_list(exempt, child) || in_list(emptied, child)) continue;
        bool world = (st.st_mode & S_IROTH) != 0 && (!S_ISDIR(st.st_mode) || (st.st_mode & S_IXOTH));
        if (!world && S_ISDIR(st.st_mode)) r = empty(m, child, err);
        else if (!world || S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode)) r = whiteout(m, child, err);
        else if (S_ISDIR(st.st_mode) && depth < 24) r = walk(m, child, depth + 1, err);
    }
    closedir(d);
    return r;
}

static int put(const struct mask *m, const char *path, mode_t mode, const char *text,
               struct gp_error *err) {
    GP_AUTO_FREE char *at = xasprintf("%s%s", m->dir, path);
    if (!parents(m, path)) return masked(-1, path, err);
    unlink(at); /* a whiteout, perhaps */
    GP_AUTO_FD int fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) != 0 || fchmod(fd, mode) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not make the nodes' '%s'", path);
    return 0;
}

/* Accounts and groups as the machine has them, none with a password. */
static int put_shadow(const struct mask *m, const char *from, const char *to, const char *rest,
                      struct gp_error *err) {
    GP_AUTO_STR struct str text = {0}, out = {0};
    GP_AUTO_STRV struct strv lines = {0};
    if (fs_read(from, (size_t)4 << 20, &text, NULL) != 0 || text.s == NULL) return 0;
    strv_split(&lines, text.s, "\n");
    for (size_t i = 0; i < lines.n; i++)
        if (lines.v[i][0] != '#' && lines.v[i][0] != '+')
            str_addf(&out, "%.*s%s\n", (int)strcspn(lines.v[i], ":"), lines.v[i], rest);
    return put(m, to, 0640, out.s ? out.s : "", err);
}

/* systemd's tools refuse without systemd as pid 1; these ask the node's own init. */
static const char power_script[] =
    "#!/bin/sh\n"
    "# Power for a node whose pid 1 is gpuprov's init: TERM reboots, USR2 powers off.\n"
    "what=USR2 wait=0\n"
    "case ${0##*/} in reboot) what=TERM ;; esac\n"
    "for a in \"$@\"; do\n"
    "    case $a in\n"
    "    -r | --reboot) what=TERM ;;\n"
    "    -h | -P | -H | -p | --poweroff | --halt) what=USR2 ;;\n"
    "    -c) kill \"$(cat /run/shutdown.pid)\" 2>/dev/null; exit ;;\n"
    "    now | +0 | -*) ;;\n"
    "    +[0-9]*) wait=$((${a#+} * 60)) ;;\n"
    "    esac\n"
    "done\n"
    "case ${0##*/} in shutdown) [ $# -gt 0 ] || wait=60 ;; esac\n"
    "[ $wait -gt 0 ] || exec kill -$what 1\n"
    "(trap '' HUP; sleep $wait; kill -$what 1) </dev/null >/dev/null 2>&1 &\n"
    "echo $! >/run/shutdown.pid\n";

static int put_power(const struct mask *m, struct gp_error *err) {
    static const char *const names[] = {"reboot", "poweroff", "halt", "shutdown", NULL};
    struct stat st;
    bool split = lstat("/sbin", &st) == 0 && S_ISDIR(st.st_mode);
    int r = 0;
    for (size_t i = 0; r == 0 && names[i] != NULL; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/%s", split ? "/sbin" : "/usr/sbin", names[i]);
        r = put(m, path, 0755, power_script, err);
    }
    return r;
}

/* Packages come through the holder's proxy; whatever the machine said about proxies is the proxy's
 * own business. */
static int put_packages(const struct mask *m, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    struct stat st;
    int r = 0;
    if (stat("/etc/apt/apt.conf.d", &st) == 0) {
        GP_AUTO_FREE char *apt = xasprintf(
            "#clear Acquire::http::Proxy;\n#clear Acquire::https::Proxy;\n"
            "#clear Acquire::http::Proxy-Auto-Detect;\n#clear Acquire::https::Proxy-Auto-Detect;\n"
            "Acquire::http::Proxy \"http://%s:%d\";\nAcquire::https::Proxy \"http://%s:%d\";\n",
            LOCAL_GATEWAY, LOCAL_PROXY_PORT, LOCAL_GATEWAY, LOCAL_PROXY_PORT);
        r = put(m, "/etc/apt/apt.conf.d/zz-gpuprov", 0644, apt, err);
    }
    if (r == 0 && fs_read("/etc/dnf/dnf.conf", (size_t)1 << 20, &text, NULL) == 0) {
        GP_AUTO_STRV struct strv lines = {0};
        GP_AUTO_STR struct str out = {0};
        strv_split(&lines, text.s ? text.s : "", "\n");
        for (size_t i = 0; i < lines.n; i++)
            if (!str_starts(lines.v[i], "proxy")) str_addf(&out, "%s\n", lines.v[i]);
        str_addf(&out, "proxy=http://%s:%d\n", LOCAL_GATEWAY, LOCAL_PROXY_PORT);
        r = put(m, "/etc/dnf/dnf.conf", 0644, out.s, err);
    }
    return r;
}

static int put_files(const struct mask *m, struct gp_error *err) {
    /* no name server: look-ups fail at once instead of after seconds */
    int r = put(m, "/etc/resolv.conf", 0644, "options timeout:1 attempts:1\n", err);
    if (r == 0) r = put_shadow(m, "/etc/passwd", "/etc/shadow", ":*:19000:0:99999:7:::", err);
    if (r == 0) r = put_shadow(m, "/etc/group", "/etc/gshadow", ":*::", err);
    if (r == 0 && fs_exists("/etc/sudoers"))
        r = put(m, "/etc/sudoers", 0440,
                "Defaults env_reset\n"
                "Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
                "root ALL=(ALL:ALL) NOPASSWD: ALL\n%sudo ALL=(ALL:ALL) ALL\n"
                "@includedir /etc/sudoers.d\n", err);
    if (r == 0) r = put_power(m, err);
    if (r == 0) r = put_packages(m, err);
    return r;
}

int mask_build(const struct holder *h, struct gp_error *err) {
    GP_AUTO_FREE char *dir = fs_join(h->cfg.dir, "mask");
    struct mask m = {.h = h, .dir = dir};
    struct stat st;
    int r = 0;
    for (size_t i = 0; r == 0 && emptied[i] != NULL; i++)
        if (lstat(emptied[i], &st) == 0 && S_ISDIR(st.st_mode)) r = empty(&m, emptied[i], err);
    if (r == 0) r = keep_subfolders(&m, "/var/log", err);
    if (r == 0) r = walk(&m, "/etc", 0, err);
    if (r == 0) r = walk(&m, "/var", 0, err);
    /* our own state, wherever it is: a node that saw its own upper would also loop (ELOOP) */
    const char *slash = strchr(h->cfg.base + 1, '/');
    GP_AUTO_FREE char *top = xstrndup(h->cfg.base + 1, slash ? (size_t)(slash - h->cfg.base - 1) : 0);
    GP_AUTO_FREE char *seen = fs_join(dir, h->cfg.base + 1);
    if (r == 0 && rootfs_takes(top) && lstat(seen, &st) != 0) r = whiteout(&m, h->cfg.base, err);
    if (r == 0) r = put_files(&m, err);
    return r;
}

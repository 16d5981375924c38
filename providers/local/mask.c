/* SPDX-License-Identifier: Apache-2.0 */
/* What all nodes of a stack see instead of, or over, the machine's own folders: the order in which the
 * layers are made (snapshot.c, guard.c, hide.c), and the files that must be the nodes' own. Lives on a
 * tmpfs in the holder's mount namespace. The holder's one thread only. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/fs.h"
#include "providers/local/layers.h"
#include "providers/local/ns/netns.h"

#include <sys/stat.h>

/* Shown empty whatever their mode: mail, logs, other people's containers and jobs. */
static const char *const emptied[] = {
    "/var/log",         "/var/mail",           "/var/spool/mail",
    "/var/spool/cron",  "/var/spool/at",       "/var/backups",
    "/var/tmp",         "/var/crash",          "/var/lib/gpuprov",
    "/var/lib/docker",  "/var/lib/containers", "/var/lib/containerd",
    "/var/lib/lxd",     "/var/lib/lxc",        "/var/lib/libvirt",
    "/var/lib/kubelet", "/var/lib/machines",   "/etc/apt/auth.conf.d",
    "/etc/sudoers.d",   "/etc/cron.d",         "/etc/NetworkManager/system-connections",
    "/etc/wireguard",   "/etc/netplan",        NULL};

bool layer_emptied(const char *path) {
    for (const char *const *e = emptied; *e != NULL; e++)
        if (strcmp(*e, path) == 0) return true;
    return false;
}

/* '%' itself is escaped, so that no two paths meet in one name. */
char *layer_flat(const char *path) {
    GP_AUTO_STR struct str s = {0};
    str_add(&s, "");
    for (; *path != '\0'; path++) {
        if (*path == '/') str_add(&s, "%");
        else if (*path == '%' || *path == '=') str_addf(&s, "=%02x", (unsigned)*path);
        else str_add_mem(&s, path, 1);
    }
    return xstrdup(s.s);
}

/* Accounts and groups as the machine has them, none with a password. */
static int put_shadow(const struct layers *l, const char *from, const char *to, const char *rest,
                      struct gp_error *err) {
    GP_AUTO_STR struct str text = {0}, out = {0};
    GP_AUTO_STRV struct strv lines = {0};
    if (fs_read(from, (size_t)4 << 20, &text, NULL) != 0 || text.s == NULL) return 0;
    strv_split(&lines, text.s, "\n");
    for (size_t i = 0; i < lines.n; i++)
        if (lines.v[i][0] != '#' && lines.v[i][0] != '+')
            str_addf(&out, "%.*s%s\n", (int)strcspn(lines.v[i], ":"), lines.v[i], rest);
    return layer_put(l, to, 0640, out.s ? out.s : "", err);
}

/* systemd's tools refuse without systemd as pid 1; these ask the node's own init. */
static const char power_script[] = "#!/bin/sh\n"
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

static int put_power(const struct layers *l, struct gp_error *err) {
    static const char *const names[] = {"reboot", "poweroff", "halt", "shutdown", NULL};
    struct stat st;
    bool split = lstat("/sbin", &st) == 0 && S_ISDIR(st.st_mode);
    int r = 0;
    for (size_t i = 0; r == 0 && names[i] != NULL; i++) {
        GP_AUTO_FREE char *path = xasprintf("%s/%s", split ? "/sbin" : "/usr/sbin", names[i]);
        r = layer_put(l, path, 0755, power_script, err);
    }
    return r;
}

/* The text of a file of settings without its lines "proxy...", "" where it cannot be read. Caller frees. */
static char *without_proxy(const char *path) {
    GP_AUTO_STR struct str text = {0}, out = {0};
    GP_AUTO_STRV struct strv lines = {0};
    if (fs_read(path, (size_t)1 << 20, &text, NULL) != 0 || text.s == NULL) return xstrdup("");
    strv_split(&lines, text.s, "\n");
    for (size_t i = 0; i < lines.n; i++)
        if (!str_starts(str_trim(lines.v[i]), "proxy")) str_addf(&out, "%s\n", lines.v[i]);
    return str_steal(&out);
}

/* pip's settings of the machine, if everybody may read them. A section may be there once only. */
static int put_pip(const struct layers *l, struct gp_error *err) {
    struct stat st;
    bool readable = stat("/etc/pip.conf", &st) == 0 && (st.st_mode & S_IROTH) != 0, global = false;
    GP_AUTO_FREE char *old = readable ? without_proxy("/etc/pip.conf") : xstrdup("");
    GP_AUTO_FREE char *proxy = xasprintf("proxy = http://%s:%d\n", LOCAL_GATEWAY, LOCAL_PROXY_PORT);
    GP_AUTO_STRV struct strv lines = {0};
    GP_AUTO_STR struct str text = {0};
    strv_split(&lines, old, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        str_addf(&text, "%s\n", lines.v[i]);
        if (global || !str_starts(lines.v[i], "[global]")) continue;
        str_add(&text, proxy);
        global = true;
    }
    if (!global) str_addf(&text, "[global]\n%s", proxy);
    return layer_put(l, "/etc/pip.conf", 0644, text.s, err);
}

/* Packages come through the holder's proxy; whatever the machine said about proxies is the proxy's
 * own business. */
static int put_packages(const struct layers *l, struct gp_error *err) {
    struct stat st;
    int r = 0;
    if (stat("/etc/apt/apt.conf.d", &st) == 0) {
        GP_AUTO_FREE char *apt =
            xasprintf("#clear Acquire::http::Proxy;\n#clear Acquire::https::Proxy;\n"
                      "#clear Acquire::http::Proxy-Auto-Detect;\n#clear Acquire::https::Proxy-Auto-Detect;\n"
                      "Acquire::http::Proxy \"http://%s:%d\";\nAcquire::https::Proxy \"http://%s:%d\";\n",
                      LOCAL_GATEWAY, LOCAL_PROXY_PORT, LOCAL_GATEWAY, LOCAL_PROXY_PORT);
        r = layer_put(l, "/etc/apt/apt.conf.d/zz-gpuprov", 0644, apt, err);
    }
    bool dnf = stat("/etc/dnf/dnf.conf", &st) == 0 && (st.st_mode & S_IROTH) != 0;
    if (r == 0 && dnf) {
        GP_AUTO_FREE char *old = without_proxy("/etc/dnf/dnf.conf");
        GP_AUTO_FREE char *out = xasprintf("%sproxy=http://%s:%d\n", old, LOCAL_GATEWAY, LOCAL_PROXY_PORT);
        r = layer_put(l, "/etc/dnf/dnf.conf", 0644, out, err);
    }
    return r == 0 ? put_pip(l, err) : r;
}

static int put_files(const struct layers *l, struct gp_error *err) {
    /* no name server: look-ups fail at once instead of after seconds */
    int r = layer_put(l, "/etc/resolv.conf", 0644, "options timeout:1 attempts:1\n", err);
    if (r == 0) r = put_shadow(l, "/etc/passwd", "/etc/shadow", ":*:19000:0:99999:7:::", err);
    if (r == 0) r = put_shadow(l, "/etc/group", "/etc/gshadow", ":*::", err);
    if (r == 0 && fs_exists("/etc/sudoers"))
        r = layer_put(l, "/etc/sudoers", 0440,
                      "Defaults env_reset\n"
                      "Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
                      "root ALL=(ALL:ALL) NOPASSWD: ALL\n%sudo ALL=(ALL:ALL) ALL\n"
                      "@includedir /etc/sudoers.d\n",
                      err);
    if (r == 0 && fs_exists("/var/cache/debconf/passwords.dat"))
        r = layer_put(l, "/var/cache/debconf/passwords.dat", 0600, "", err);
    if (r == 0) r = put_power(l, err);
    if (r == 0) r = put_packages(l, err);
    return r;
}

/* Our own state, wherever it is: a node that saw its own upper would also loop (ELOOP). A copy leaves it
 * out by itself. */
static int hide_state(const struct layers *l, struct gp_error *err) {
    const char *base = l->h->cfg.base, *slash = strchr(base + 1, '/');
    GP_AUTO_FREE char *top = xstrndup(base + 1, slash ? (size_t)(slash - base - 1) : 0);
    GP_AUTO_FREE char *seen = xasprintf("%s/hide%s", l->dir, base);
    struct stat st;
    bool copied = strcmp(top, "etc") == 0 || strcmp(top, "var") == 0;
    if (copied || !rootfs_takes(top) || lstat(seen, &st) == 0) return 0;
    return layer_whiteout(l, base, err);
}

static int make_folders(const struct layers *l, struct gp_error *err) {
    static const char *const folders[] = {"none", "hide", "copy", "guard", NULL};
    int r = 0;
    for (size_t i = 0; r == 0 && folders[i] != NULL; i++) {
        GP_AUTO_FREE char *at = fs_join(l->dir, folders[i]);
        r = fs_mkdirs(at, 0755, err);
    }
    GP_AUTO_FREE char *blank = fs_join(l->dir, "blank");
    return r == 0 ? fs_write_atomic(blank, "", 0, 0, err) : r;
}

static int build(struct layers *l, struct gp_error *err) {
    int r = make_folders(l, err);
    if (r == 0) r = rootfs_mounts(&l->mounts, err);
    if (r == 0) r = layer_copy(l, "/etc", err);
    if (r == 0) r = layer_copy(l, "/var", err);
    if (r == 0) r = layer_guard(l, err);
    for (size_t i = 0; r == 0 && i < l->mounts.list.len; i++) {
        const struct rootfs_mount *m = &l->mounts.list.items[i];
        /* whole stores of packages: readable for the world by design, and too large to walk */
        bool store = strcmp(m->path, "/nix") == 0 || str_starts(m->path, "/nix/") || strcmp(m->path, "/snap") == 0 ||
                     str_starts(m->path, "/snap/");
        if (m->kind == ROOTFS_GUARDED && !store) r = layer_hide(l, m->path, err);
    }
    if (r == 0) r = hide_state(l, err);
    return r == 0 ? put_files(l, err) : r;
}

int mask_build(const struct holder *h, struct gp_error *err) {
    GP_AUTO_FREE char *dir = fs_join(h->cfg.dir, "mask");
    struct layers l = {.h = h, .dir = dir};
    int r = build(&l, err);
    rootfs_mounts_clear(&l.mounts);
    return r;
}

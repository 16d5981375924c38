/* SPDX-License-Identifier: Apache-2.0 */
/* Reads which parts of the machine a node is a clone of. An allow list: what is not named here
 * (/home, /root, /srv, /boot, unknown folders) does not exist in a node. Makes nothing. Any thread. */
#include "base/gp_base.h"

#include "providers/local/rootfs.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

bool rootfs_takes(const char *name) {
    static const char *const take[] = {"usr", "etc", "var", "opt", "nix", "snap", "bin", "sbin", NULL};
    for (size_t i = 0; take[i] != NULL; i++)
        if (strcmp(take[i], name) == 0) return true;
    return str_starts(name, "lib"); /* lib lib32 lib64 libx32 */
}

/* Kinds that hold a machine's own files. Kernel views, memory, network and user file systems are
 * left out: their content is not the machine's software. */
static bool is_real(const char *fstype) {
    static const char *const real[] = {"ext2", "ext3",     "ext4",    "xfs",      "btrfs", "zfs",
                                       "f2fs", "bcachefs", "overlay", "squashfs", "erofs", NULL};
    for (size_t i = 0; real[i] != NULL; i++)
        if (strcmp(real[i], fstype) == 0) return true;
    return false;
}

/* Octal escapes of mountinfo, in place. */
static void unescape(char *s) {
    char *to = s;
    for (; *s != '\0'; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

static bool is_at_or_below(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Package data: too large to copy, and root's tools need it as it is. Everything else of /var that a
 * node sees is a copy. The last two are where systems with an immutable /usr keep /opt and /usr/local. */
static const char *const packages[] = {"/var/lib/dpkg",      "/var/lib/apt",
                                       "/var/lib/rpm",       "/var/lib/dnf",
                                       "/var/lib/yum",       "/var/cache/apt",
                                       "/var/cache/debconf", "/var/cache/dnf",
                                       "/var/cache/libdnf5", "/var/cache/yum",
                                       "/var/cache/man",     "/var/opt",
                                       "/var/usrlocal",      NULL};

static enum rootfs_kind kind_of(const char *path) {
    static const char *const guarded[] = {"/opt", "/usr/local", "/nix", "/snap", NULL};
    for (size_t i = 0; guarded[i] != NULL; i++)
        if (is_at_or_below(path, guarded[i])) return ROOTFS_GUARDED;
    for (size_t i = 0; packages[i] != NULL; i++)
        if (is_at_or_below(path, packages[i])) return ROOTFS_GUARDED;
    if (strcmp(path, "/etc") == 0 || strcmp(path, "/var") == 0) return ROOTFS_COPIED;
    return is_at_or_below(path, "/etc") || is_at_or_below(path, "/var") ? ROOTFS_WITHIN : ROOTFS_LIVE;
}

/* A folder that everybody may enter and list, reached without links. */
static bool is_open_to_all(const char *path) {
    GP_AUTO_FREE char *p = xstrdup(path);
    struct stat st;
    for (char *s = strchr(p + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        if (lstat(p, &st) != 0 || !S_ISDIR(st.st_mode) || (st.st_mode & S_IXOTH) == 0) return false;
        *s = '/';
    }
    return lstat(p, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 05) == 05;
}

static bool below_taken(const char *path) {
    const char *slash = strchr(path + 1, '/');
    if (path[0] != '/' || slash == NULL) return false;
    GP_AUTO_FREE char *top = xstrndup(path + 1, (size_t)(slash - path - 1));
    return rootfs_takes(top);
}

static void push(struct rootfs_mounts *m, const char *path, enum rootfs_kind kind) {
    for (size_t i = 0; i < m->list.len; i++)
        if (strcmp(m->list.items[i].path, path) == 0) return; /* mounted over: the last one shows */
    struct rootfs_mount r = {xstrdup(path), kind};
    vec_push(&m->list, r);
}

static void push_folder(struct rootfs_mounts *m, const char *path) {
    enum rootfs_kind kind = kind_of(path);
    if (kind != ROOTFS_GUARDED || is_open_to_all(path)) push(m, path, kind);
}

static int add_nested(struct rootfs_mounts *m, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int r = fs_read("/proc/self/mountinfo", (size_t)8 << 20, &text, err);
    if (r != 0) return r;
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, text.s, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        char *dash = strstr(lines.v[i], " - ");
        GP_AUTO_STRV struct strv f = {0}, after = {0};
        if (dash == NULL) continue;
        strv_split(&f, lines.v[i], " ");
        strv_split(&after, dash + 3, " ");
        if (f.n < 5 || after.n < 1) continue;
        unescape(f.v[4]);
        struct stat st;
        if (!below_taken(f.v[4]) || lstat(f.v[4], &st) != 0) continue;
        bool programs = str_starts(f.v[4], "/usr/") || str_starts(f.v[4], "/opt/");
        if (S_ISREG(st.st_mode) && programs && (st.st_mode & S_IROTH)) push(m, f.v[4], ROOTFS_FILE);
        else if (S_ISDIR(st.st_mode) && is_real(after.v[0])) push_folder(m, f.v[4]);
    }
    return 0;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct rootfs_mount *)a)->path, ((const struct rootfs_mount *)b)->path);
}

int rootfs_mounts(struct rootfs_mounts *ret, struct gp_error *err) {
    DIR *d = opendir("/");
    if (d == NULL) return gp_fail_errno(err, GP_EIO, errno, "could not read '/'");
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        struct stat st;
        GP_AUTO_FREE char *path = xasprintf("/%s", e->d_name);
        if (!rootfs_takes(e->d_name) || lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)) continue;
        push_folder(ret, path);
    }
    closedir(d);
    push_folder(ret, "/usr/local");
    for (size_t i = 0; packages[i] != NULL; i++) push_folder(ret, packages[i]);
    int r = add_nested(ret, err);
    qsort(ret->list.items, ret->list.len, sizeof *ret->list.items, by_path);
    return r;
}

const struct rootfs_mount *rootfs_find(const struct rootfs_mounts *m, const char *path) {
    for (size_t i = 0; i < m->list.len; i++)
        if (m->list.items[i].kind != ROOTFS_FILE && strcmp(m->list.items[i].path, path) == 0) return &m->list.items[i];
    return NULL;
}

void rootfs_mounts_clear(struct rootfs_mounts *m) {
    for (size_t i = 0; i < m->list.len; i++) free(m->list.items[i].path);
    vec_free(&m->list);
}

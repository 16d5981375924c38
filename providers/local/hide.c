/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that lies over live folders: whiteouts and empty folders where the world may not read, and
 * the nodes' own files. What a walk misses, or what changes after it, the guards refuse (guard.c); the
 * walk makes it invisible, and lets programs make a file of that name (dpkg's lock). */
#include "base/gp_base.h"

#include "providers/local/layers.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DEPTH_MAX 24
#define PATH_LEN_MAX 2000
#define LOOKED_AT_MAX 20000 /* entries, where a guard sees to the rest */

struct walk {
    const struct layers *l;
    struct stat base;
    bool guarded;
    long left;
};

/* Where a node's view of path comes from. */
static char *layer_path(const struct layers *l, const char *path) {
    bool copied = (str_starts(path, "/etc/") || str_starts(path, "/var/")) && !str_starts(path, "/var/cache/debconf/");
    return xasprintf("%s/%s%s", l->dir, copied ? "copy" : "hide", path);
}

/* The folder in hide/ with the real one's mode and owner: an overlay shows the upper one's. */
static void like_real(const char *at, const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return;
    /* an id that is not in a user namespace's map cannot be given: then root's, as for a new folder */
    if (chown(at, st.st_uid, st.st_gid) == 0 || errno == EINVAL || errno == EPERM) (void)chmod(at, st.st_mode & 07777);
}

/* Makes the folders above `at`, each like the machine's own. False: not possible. */
static bool parents(const char *at, const char *path) {
    GP_AUTO_FREE char *p = xstrdup(at);
    size_t skip = strlen(at) - strlen(path); /* the layer's own folder */
    for (char *s = strchr(p + skip + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        if (mkdir(p, 0755) == 0) like_real(p, p + skip);
        else if (errno != EEXIST) return false;
        *s = '/';
    }
    return true;
}

static int masked(int r, const char *path, struct gp_error *err) {
    return r == 0 ? 0 : gp_fail_errno(err, GP_EENV, errno, "could not hide '%s' from nodes", path);
}

int layer_whiteout(const struct layers *l, const char *path, struct gp_error *err) {
    GP_AUTO_FREE char *at = xasprintf("%s/hide%s", l->dir, path);
    if (!parents(at, path)) return masked(-1, path, err);
    return masked(mknod(at, S_IFCHR, 0) == 0 || errno == EEXIST ? 0 : -1, path, err);
}

/* Without user.* attributes on a tmpfs (before Linux 6.6) each entry is hidden for itself. A folder
 * that cannot be read here cannot be read in the node either: it has the same ids. */
static int empty_by_entry(const struct layers *l, const char *path, struct gp_error *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    int r = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL && r == 0; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        GP_AUTO_FREE char *child = fs_join(path, e->d_name);
        r = layer_whiteout(l, child, err);
    }
    if (d != NULL) closedir(d);
    return r;
}

static int empty(const struct layers *l, const char *path, struct gp_error *err) {
    GP_AUTO_FREE char *at = xasprintf("%s/hide%s", l->dir, path);
    const char *name = l->h->cfg.userns ? "user.overlay.opaque" : "trusted.overlay.opaque";
    if (!parents(at, path) || (mkdir(at, 0755) != 0 && errno != EEXIST)) return masked(-1, path, err);
    like_real(at, path);
    if (lsetxattr(at, name, "y", 1, 0) == 0) return 0;
    if (l->h->cfg.userns && errno == EOPNOTSUPP) return empty_by_entry(l, path, err);
    return masked(-1, path, err);
}

/* A folder that is not looked into is shown empty. */
static bool goes_into(const struct walk *w, const char *path, const struct stat *st, dev_t dev, int depth) {
    const struct rootfs_mount *m = rootfs_find(&w->l->mounts, path);
    if ((st->st_mode & 05) != 05 || depth >= DEPTH_MAX || strlen(path) > PATH_LEN_MAX) return false;
    if (st->st_dev == w->base.st_dev && st->st_ino == w->base.st_ino) return false;
    return st->st_dev == dev || m != NULL;
}

/* The rule: what the world may not read, the node does not get. */
static int walk(struct walk *w, int fd, const char *path, dev_t dev, int depth, struct gp_error *err) {
    DIR *d = fdopendir(fd);
    int r = 0;
    if (d == NULL) close(fd);
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL && r == 0; e = readdir(d)) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (w->guarded && w->left-- <= 0) break;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) continue;
        bool plain = S_ISREG(st.st_mode) && (st.st_mode & S_IROTH);
        if (S_ISLNK(st.st_mode) || plain) continue;
        GP_AUTO_FREE char *child = fs_join(path, e->d_name);
        if (!S_ISDIR(st.st_mode)) {
            r = layer_whiteout(w->l, child, err);
        } else if (!goes_into(w, child, &st, dev, depth)) {
            r = empty(w->l, child, err);
        } else {
            int in = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (in >= 0) r = walk(w, in, child, st.st_dev, depth + 1, err);
            else if (errno != ENOENT) r = empty(w->l, child, err);
        }
    }
    if (d != NULL) closedir(d);
    return r;
}

int layer_hide(const struct layers *l, const char *folder, struct gp_error *err) {
    struct walk w = {.l = l, .guarded = guard_state(l->dir, folder) == GUARD_ON, .left = LOOKED_AT_MAX};
    struct stat st;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return 0; /* gone, or no folder any more */
    if (fstat(fd, &st) != 0 || stat(l->h->cfg.base, &w.base) != 0) {
        close(fd);
        return masked(-1, folder, err);
    }
    return walk(&w, fd, folder, st.st_dev, 0, err);
}

int layer_put(const struct layers *l, const char *path, mode_t mode, const char *text, struct gp_error *err) {
    GP_AUTO_FREE char *at = layer_path(l, path);
    if (!parents(at, path)) return masked(-1, path, err);
    unlink(at); /* a whiteout or a copy, perhaps */
    GP_AUTO_FD int fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) != 0 || fchmod(fd, mode) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not create the nodes' '%s'", path);
    return 0;
}

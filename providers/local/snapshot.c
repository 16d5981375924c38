/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of /etc and /var that nodes see instead of the live folders: what the world may read when the
 * stack starts, and nothing that is made later. Every entry is opened once, without following links,
 * and judged by its descriptor, so a tree that changes meanwhile cannot smuggle anything in. Folders
 * that are not copied into stay as empty ones with their mode and owner, since programs expect them. */
#include "base/gp_base.h"

#include "providers/local/layers.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 24
#define FILE_BYTES_MAX ((int64_t)2 << 20)
#define ALL_BYTES_MAX ((int64_t)24 << 20) /* of /etc and of /var, each */
#define ALL_ENTRIES_MAX 20000
#define PART_BYTES_MAX ((int64_t)4 << 20) /* of one folder two below: /var/lib/NAME, /etc/NAME/NAME */
#define PART_ENTRIES_MAX 2000
#define PAGE 4096
#define OVERFLOW_ID 65534 /* an id that the user namespace does not have */

struct budget {
    int64_t bytes, entries;
};
struct copy {
    const struct layers *l;
    struct stat base; /* our own state folder */
    struct budget all, part;
    int64_t left_out;
};
/* One folder on both sides. */
struct level {
    int from, to;
    const char *path;
    dev_t dev;
    int depth;
    bool bare; /* only its folders, empty */
};

static bool world_file(const struct stat *st) { return S_ISREG(st->st_mode) && (st->st_mode & S_IROTH); }
static bool world_dir(const struct stat *st) { return S_ISDIR(st->st_mode) && (st->st_mode & 05) == 05; }

/* False: no room left for it. Small files take a page of the tmpfs. */
static bool take(struct copy *c, int64_t bytes) {
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    bool fits = c->all.entries > 0 && c->part.entries > 0 && c->all.bytes >= bytes && c->part.bytes >= bytes;
    if (!fits) c->left_out++;
    else c->all.entries--, c->part.entries--, c->all.bytes -= bytes, c->part.bytes -= bytes;
    return fits;
}

/* Owner, mode and time as on the machine. Without root its root's files become the node's root's. */
static int like(const struct copy *c, int fd, const struct stat *st) {
    bool user = c->l->h->cfg.userns;
    uid_t uid = user && st->st_uid == OVERFLOW_ID ? 0 : st->st_uid;
    gid_t gid = user && st->st_gid == OVERFLOW_ID ? 0 : st->st_gid;
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (fchown(fd, uid, gid) != 0 && !user) return -1;
    return fchmod(fd, st->st_mode & 07777) == 0 && futimens(fd, times) == 0 ? 0 : -1;
}

static int failed(const struct level *v, const char *name, struct gp_error *err) {
    return gp_fail_errno(err, GP_EENV, errno, "could not copy '%s/%s' for the nodes", v->path, name);
}

/* -1: errno says why the copy could not be written. A file that shrinks while it is read is short. */
static int copy_bytes(int from, int to, int64_t size) {
    static char buf[65536];
    for (int64_t done = 0; done < size;) {
        size_t want = (size_t)GP_MIN(size - done, (int64_t)sizeof buf);
        ssize_t n = read(from, buf, want);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        int r = fs_write_all(to, buf, (size_t)n);
        if (r != 0) {
            errno = -r;
            return -1;
        }
        done += n;
    }
    return 0;
}

static int copy_file(struct copy *c, const struct level *v, const char *name, struct gp_error *err) {
    struct stat st;
    /* O_NONBLOCK: it may have become a fifo meanwhile */
    GP_AUTO_FD int from = openat(v->from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) != 0 || !world_file(&st)) return 0;
    if (st.st_size > FILE_BYTES_MAX) c->left_out++;
    if (st.st_size > FILE_BYTES_MAX || !take(c, st.st_size)) return 0;
    GP_AUTO_FD int to = openat(v->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0 || copy_bytes(from, to, st.st_size) != 0 || like(c, to, &st) != 0) return failed(v, name, err);
    return 0;
}

static int copy_link(struct copy *c, const struct level *v, const char *name, struct gp_error *err) {
    char to[PATH_MAX];
    ssize_t n = readlinkat(v->from, name, to, sizeof to - 1);
    if (n <= 0 || !take(c, n)) return 0;
    to[n] = '\0';
    return symlinkat(to, v->to, name) == 0 ? 0 : failed(v, name, err);
}

/* Whether what is in this folder is copied too. */
static bool goes_into(const struct copy *c, const struct level *v, const char *path, const struct stat *st) {
    const struct rootfs_mount *m = rootfs_find(&c->l->mounts, path);
    if (v->bare || v->depth >= DEPTH_MAX || !world_dir(st)) return false;
    if (layer_emptied(path) && strcmp(path, "/var/log") != 0) return false;
    if (st->st_dev == c->base.st_dev && st->st_ino == c->base.st_ino) return false;
    if (m != NULL && m->kind == ROOTFS_GUARDED) return false; /* an overlay of its own goes there */
    return st->st_dev == v->dev || m != NULL;                 /* not into network, kernel and user file systems */
}

static int copy_level(struct copy *c, const struct level *v, struct gp_error *err);

static int copy_folder(struct copy *c, const struct level *v, const char *name, const struct stat *seen,
                       struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(v->path, name);
    struct stat st = *seen;
    if (v->depth == 1) c->part = (struct budget){PART_BYTES_MAX, PART_ENTRIES_MAX};
    if (!take(c, 0)) return 0;
    GP_AUTO_FD int from = -1;
    if (goes_into(c, v, path, seen)) { /* else it is not even opened */
        from = openat(v->from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (from < 0 && errno != EACCES) return 0; /* gone, or no folder any more */
        if (from >= 0 && fstat(from, &st) != 0) return 0;
    }
    if (mkdirat(v->to, name, 0700) != 0) return failed(v, name, err);
    GP_AUTO_FD int to = openat(v->to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0) return failed(v, name, err);
    struct level in = {.from = from,
                       .to = to,
                       .path = path,
                       .dev = st.st_dev,
                       .depth = v->depth + 1,
                       .bare = strcmp(path, "/var/log") == 0};
    int r = from >= 0 && goes_into(c, v, path, &st) ? copy_level(c, &in, err) : 0;
    return r == 0 && like(c, to, &st) != 0 ? failed(v, name, err) : r;
}

static int copy_level(struct copy *c, const struct level *v, struct gp_error *err) {
    int own = fcntl(v->from, F_DUPFD_CLOEXEC, 0);
    DIR *d = own >= 0 ? fdopendir(own) : NULL;
    int r = d != NULL ? 0 : gp_fail_errno(err, GP_EENV, errno, "could not read '%s'", v->path);
    if (d == NULL && own >= 0) close(own);
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL && r == 0; e = readdir(d)) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (fstatat(v->from, e->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0) continue;
        if (S_ISDIR(st.st_mode)) r = copy_folder(c, v, e->d_name, &st, err);
        else if (v->bare) continue;
        else if (S_ISLNK(st.st_mode)) r = copy_link(c, v, e->d_name, err);
        else if (world_file(&st)) r = copy_file(c, v, e->d_name, err);
    }
    if (d != NULL) closedir(d);
    return r;
}

int layer_copy(const struct layers *l, const char *folder, struct gp_error *err) {
    struct copy c = {.l = l, .all = {ALL_BYTES_MAX, ALL_ENTRIES_MAX}, .part = {ALL_BYTES_MAX, ALL_ENTRIES_MAX}};
    struct stat st;
    GP_AUTO_FREE char *at = xasprintf("%s/copy%s", l->dir, folder);
    int r = fs_mkdirs(at, 0755, err);
    if (r != 0) return r;
    GP_AUTO_FD int to = open(at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    GP_AUTO_FD int from = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0 && errno == ENOENT) return 0;
    if (from < 0 || to < 0 || fstat(from, &st) != 0 || stat(l->h->cfg.base, &c.base) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not copy '%s' for the nodes", folder);
    struct level v = {.from = from, .to = to, .path = folder, .dev = st.st_dev};
    if (world_dir(&st)) r = copy_level(&c, &v, err);
    if (r == 0 && like(&c, to, &st) != 0) r = failed(&v, ".", err);
    if (c.left_out > 0)
        fprintf(stderr,
                "%s: %lld files or folders are not in the nodes' copy: too large, or too many "
                "(at most 2 MiB each, 4 MiB and 2000 entries per folder, 24 MiB in all)\n",
                folder, (long long)c.left_out);
    return r;
}

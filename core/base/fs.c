/* SPDX-License-Identifier: Apache-2.0 */
/* File helpers around libc. Any thread. Functions that depend on the user are in home.c, because they need the name
 * service, which a static program must not link. */
#include "base/gp_base.h"

#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PIPE_WAIT_MS = 30000, LINKS_MAX = 40 };

/* With the next step, because most callers have none of their own. */
static int read_failed(const char *path, int errnum, struct gp_error *err) {
    static const struct {
        int errnum;
        const char *step;
    } steps[] = {{ENOENT, "correct its name"},
                 {ENOTDIR, "correct its name"},
                 {EISDIR, "give a file"},
                 {EACCES, "check its permissions"},
                 {EPERM, "check its permissions"}};
    int r = gp_fail_errno(err, errnum == ENOENT ? GP_ENOTFOUND : GP_EIO, errnum, "could not read '%s'", path);
    const char *step = "give another file";
    for (size_t i = 0; i < GP_ARRAY_LEN(steps); i++)
        if (steps[i].errnum == errnum) step = steps[i].step;
    size_t n = err != NULL ? strlen(err->msg) : 0;
    if (err != NULL) snprintf(err->msg + n, sizeof err->msg - n, ": %s", step);
    return r;
}

/* A named pipe that nobody has opened for writing yet reads like an empty file. The pipe of a shell has had its writer:
 * if that is gone, it is empty. */
static bool has_writer(int fd) {
    struct statfs fs;
    if (fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC) return true;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, PIPE_WAIT_MS) > 0;
}

int fs_read(const char *path, size_t max, struct str *ret, struct gp_error *err) {
    str_add_mem(ret, "", 0); /* whatever happens, it is a string */
    GP_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return read_failed(path, errno, err);
    if (S_ISDIR(st.st_mode)) return read_failed(path, EISDIR, err);
    if (S_ISFIFO(st.st_mode) && !has_writer(fd)) return read_failed(path, ETIMEDOUT, err);
    char buf[16384];
    size_t total = 0;
    for (;;) {
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) { /* a pipe whose writer is slow */
            struct pollfd p = {.fd = fd, .events = POLLIN};
            if (poll(&p, 1, PIPE_WAIT_MS) != 0) continue;
            errno = ETIMEDOUT;
        }
        if (n < 0) return read_failed(path, errno, err);
        if (n == 0) return 0;
        total += (size_t)n;
        if (total > max || !str_add_mem(ret, buf, (size_t)n))
            return gp_fail(err, GP_EIO, "'%s' is larger than %zu bytes: give a smaller file", path, max);
    }
}

int fs_read_text(const char *path, size_t max, struct str *ret, struct gp_error *err) {
    size_t before = ret->len;
    int r = fs_read(path, max, ret, err);
    if (r != 0 || memchr(ret->s + before, '\0', ret->len - before) == NULL) return r;
    explicit_bzero(ret->s + before, ret->len - before);
    ret->len = before;
    return gp_fail(err, GP_EIO, "'%s' is not a text file: it has a NUL byte: give another file", path);
}

int fs_read_end(const char *path, size_t max, struct str *ret, struct gp_error *err) {
    str_add_mem(ret, "", 0);
    GP_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    struct stat st = {0};
    if (fd < 0 || fstat(fd, &st) != 0) return gp_fail_errno(err, GP_EIO, errno, "could not read '%s'", path);
    if (!S_ISREG(st.st_mode)) return gp_fail(err, GP_EIO, "'%s' is not a regular file", path);
    off_t at = st.st_size > (off_t)max ? st.st_size - (off_t)max : 0;
    char buf[16384];
    for (ssize_t n = 0; (n = pread(fd, buf, sizeof buf, at)) > 0 && at < st.st_size; at += n)
        for (ssize_t i = 0; i < n; i++) str_addc(ret, buf[i] != '\0' ? buf[i] : '?');
    return 0;
}

int fs_write_all(int fd, const void *p, size_t n) {
    const char *b = p;
    while (n > 0) {
        ssize_t w = write(fd, b, n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return -errno;
        b += w;
        n -= (size_t)w;
    }
    return 0;
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* With the slash; ".": the folder of the process. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
}

/* fs_write_atomic below an open folder. */
static int write_below(int dir, const char *path, const void *data, size_t n, unsigned mode, struct gp_error *err) {
    char end[7];
    int r = fs_random_hex(end, 3, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *tmp = xasprintf("%s.%s", name_of(path), end);
    GP_AUTO_FD int fd = openat(dir, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "could not write '%s'", path);
    r = fs_write_all(fd, data, n);
    if (r == 0 && fchmod(fd, mode) != 0) r = -errno;
    if (r == 0 && fsync(fd) != 0) r = -errno;
    if (r == 0 && renameat(dir, tmp, dir, name_of(path)) != 0) r = -errno;
    if (r != 0) {
        unlinkat(dir, tmp, 0);
        return gp_fail_errno(err, GP_EIO, -r, "could not write '%s'", path);
    }
    if (fsync(dir) != 0 && errno != EINVAL)
        return gp_fail_errno(err, GP_EIO, errno, "could not sync the folder of '%s'", path);
    return 0;
}

int fs_write_atomic(const char *path, const void *data, size_t n, unsigned mode, struct gp_error *err) {
    GP_AUTO_FREE char *folder = folder_of(path);
    GP_AUTO_FD int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return gp_fail_errno(err, GP_EIO, errno, "could not write '%s'", path);
    return write_below(dir, path, data, n, mode, err);
}

static bool is_own(const struct stat *what) { return what->st_uid == geteuid(); }

/* Others than root and this user put names into this folder: everybody, as in /tmp, or the user whose folder it is. */
static bool takes_names(const struct stat *folder) {
    return (folder->st_mode & S_IWOTH) != 0 || (!is_own(folder) && folder->st_uid != 0);
}

/* Another user made it where everybody can make one. */
static bool is_planted(const char *folder, const struct stat *what) {
    struct stat st;
    if (is_own(what) || what->st_uid == 0) return false;
    return stat(folder, &st) != 0 || (st.st_mode & S_IWOTH) != 0;
}

/* Likewise, or in his own folder, from where a link leads this user's rights elsewhere. The kernel refuses such links,
 * too, but only with fs.protected_symlinks, and only in sticky folders that everybody can write. */
static bool is_planted_link(const char *folder, const struct stat *link) {
    struct stat st;
    if (is_own(link) || link->st_uid == 0) return false;
    return stat(folder, &st) != 0 || takes_names(&st);
}

static int not_written(const char *path, const char *what, const char *is, struct gp_error *err) {
    return gp_fail(err, GP_EIO, "could not write '%s': '%s' is %s of another user: give another path", path, what, is);
}

/* A path whose links are followed by hand. fs_open_folder finds a link that somebody puts there afterwards. */
struct way {
    const char *path;
    struct str at; /* reached, without links */
    char *left;    /* still to go */
    char *others;  /* the last part is this link, of another user; NULL: none */
    char *own;     /* the last part is this link of procfs, which may lead to what has no name; NULL: none */
    int links;
};

/* at ends with a link, which begins at `from`, behind `slashes` slashes; rest: of the way behind it. */
static int way_follow(struct way *w, const struct stat *link, size_t from, size_t slashes, const char *rest,
                      struct gp_error *err) {
    GP_AUTO_FREE char *named = xcalloc(1, PATH_MAX);
    GP_AUTO_FREE char *folder = from > 0 ? xstrndup(w->at.s, from) : xstrdup(slashes > 0 ? "/" : ".");
    if (readlink(w->at.s, named, PATH_MAX - 1) < 0 || ++w->links > LINKS_MAX)
        return gp_fail_errno(err, GP_EIO, w->links > LINKS_MAX ? ELOOP : errno, "could not write '%s'", w->path);
    if (is_planted_link(folder, link)) return not_written(w->path, w->at.s, "a link", err);
    if (!is_own(link) && rest[0] == '\0' && w->others == NULL) w->others = xstrdup(w->at.s);
    struct statfs fs;
    if (rest[0] == '\0' && w->own == NULL && statfs(folder, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
        w->own = xstrdup(w->at.s);
    char *left = xasprintf("%s%s%s", slashes > 0 && named[0] != '/' ? "/" : "", named, rest);
    free(w->left);
    w->left = left;
    w->at.len = named[0] != '/' ? from : 0;
    w->at.s[w->at.len] = '\0';
    return 0;
}

static int way_go(struct way *w, struct gp_error *err) {
    const char *p = w->left;
    for (;;) {
        struct stat st;
        size_t from = w->at.len, slashes = strspn(p, "/"), n = strcspn(p + slashes, "/");
        str_add_mem(&w->at, p, slashes + n);
        p += slashes + n;
        if (n == 0) return 0;
        if (lstat(w->at.s, &st) != 0) {
            str_add(&w->at, p);
            return 0;
        }
        if (!S_ISLNK(st.st_mode)) continue;
        int r = way_follow(w, &st, from, slashes, p, err);
        if (r != 0) return r;
        p = w->left;
    }
}

/* ret_own: of struct way. */
static int follow(const char *path, char **ret, char **ret_own, struct gp_error *err) {
    struct way w = {.path = path, .left = xstrdup(path)};
    struct stat st;
    str_add(&w.at, "");
    int r = way_go(&w, err);
    if (r == 0 && w.others != NULL && stat(path, &st) != 0) r = not_written(path, w.others, "a link", err);
    if (r == 0) {
        *ret = xstrdup(w.at.s);
        *ret_own = GP_STEAL(w.own);
    }
    str_clear(&w.at);
    free(w.left);
    free(w.others);
    free(w.own);
    return r;
}

int fs_follow(const char *path, char **ret, struct gp_error *err) {
    GP_AUTO_FREE char *own = NULL;
    return follow(path, ret, &own, err);
}

int fs_open_folder(const char *path) {
    GP_AUTO_FREE char *left = xstrdup(path);
    int dir = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *at = NULL;
    for (char *part = strtok_r(left, "/", &at); dir >= 0 && part != NULL; part = strtok_r(NULL, "/", &at)) {
        int next = openat(dir, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int e = errno;
        close(dir);
        errno = e;
        dir = next;
    }
    if (dir < 0) return -errno;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), e = errno;
    close(dir);
    return fd >= 0 ? fd : -e;
}

/* Where a path leads. All that is done there goes through the open folder: what somebody puts into the way meanwhile is
 * not followed. */
struct place {
    char *target, *own; /* of follow */
    int dir;            /* of target; -errno: there is none */
    bool there;         /* st is what the target is */
    struct stat st;
};

static void place_clear(struct place *p) {
    if (p->dir >= 0) close(p->dir);
    free(p->target);
    free(p->own);
}

static int place_find(const char *path, struct place *ret, struct gp_error *err) {
    *ret = (struct place){.dir = -ENOENT};
    int r = follow(path, &ret->target, &ret->own, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *folder = folder_of(ret->target);
    ret->dir = fs_open_folder(folder);
    ret->there = ret->dir >= 0 && fstatat(ret->dir, name_of(ret->target), &ret->st, AT_SYMLINK_NOFOLLOW) == 0;
    return 0;
}

/* Where others can make a file, this may be theirs, or one of this user's that has a name elsewhere too. */
static int place_check(const struct place *p, const char *path, const struct stat *st, struct gp_error *err) {
    GP_AUTO_FREE char *folder = folder_of(p->target);
    struct stat dir;
    if (is_planted(folder, st)) return not_written(path, p->target, "a file, pipe or device", err);
    if (!S_ISREG(st->st_mode) || st->st_nlink < 2) return 0;
    if (fstat(p->dir, &dir) == 0 && !takes_names(&dir)) return 0;
    return gp_fail(err, GP_EIO,
                   "could not write '%s': it is a file with a second name, in a folder that others can write: give "
                   "another path",
                   path);
}

/* As a file, pipe or device; flags: of open(2). */
static int place_open(const struct place *p, const char *path, int flags, unsigned mode, int *ret,
                      struct gp_error *err) {
    struct stat st;
    flags |= O_NOCTTY | O_CLOEXEC | ((flags & O_ACCMODE) == O_RDWR ? 0 : O_WRONLY);
    bool nameless = !p->there && p->own != NULL; /* of this process, or of one that the user may write to */
    if (nameless) {
        flags &= ~O_CREAT;
        *ret = open(p->own, flags);
    } else if (p->dir < 0) {
        errno = -p->dir;
    } else {
        /* never waits for a reader before it is known whose pipe it is */
        int r = p->there ? place_check(p, path, &p->st, err) : 0;
        if (r != 0) return r;
        *ret = openat(p->dir, name_of(p->target), (p->there ? flags & ~O_CREAT : flags) | O_NOFOLLOW, mode);
    }
    if (*ret < 0 || fstat(*ret, &st) != 0) return gp_fail_errno(err, GP_EIO, errno, "could not write '%s'", path);
    return nameless ? 0 : place_check(p, path, &st, err);
}

int fs_open_output(const char *path, int flags, unsigned mode, int *ret_fd, struct gp_error *err) {
    struct place p;
    int fd = -1, r = place_find(path, &p, err);
    if (r == 0) r = place_open(&p, path, flags, mode, &fd, err);
    if (r == 0) *ret_fd = fd;
    else if (fd >= 0) close(fd);
    place_clear(&p);
    return r;
}

static int write_there(const struct place *p, const char *path, const void *data, size_t n, unsigned mode,
                       struct gp_error *err) {
    bool stream = p->there ? !S_ISREG(p->st.st_mode) && !S_ISLNK(p->st.st_mode) : p->own != NULL;
    if (stream) { /* a device, a pipe, or what has no name */
        GP_AUTO_FD int fd = -1;
        int r = place_open(p, path, 0, 0, &fd, err);
        int w = r == 0 ? fs_write_all(fd, data, n) : 0;
        return w == 0 ? r : gp_fail_errno(err, GP_EIO, -w, "could not write '%s'", path);
    }
    if (p->dir < 0) return gp_fail_errno(err, GP_EIO, -p->dir, "could not write '%s'", path);
    return write_below(p->dir, p->target, data, n, mode, err);
}

int fs_write_output(const char *path, const void *data, size_t n, unsigned mode, struct gp_error *err) {
    struct place p;
    int r = place_find(path, &p, err);
    if (r == 0) r = write_there(&p, path, data, n, mode, err);
    place_clear(&p);
    return r;
}

int fs_remove_output(const char *path, struct gp_error *err) {
    struct place p;
    int r = place_find(path, &p, err);
    if (r == 0 && p.there && S_ISREG(p.st.st_mode) && unlinkat(p.dir, name_of(p.target), 0) != 0 && errno != ENOENT)
        r = gp_fail_errno(err, GP_EIO, errno, "could not remove '%s'", path);
    place_clear(&p);
    return r;
}

int fs_write_changed(const char *path, const void *data, size_t n, unsigned mode, struct gp_error *err) {
    GP_AUTO_STR struct str old = {0};
    struct stat st;
    bool alike = lstat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 07777) == mode &&
                 (size_t)st.st_size == n && fs_read(path, n, &old, NULL) == 0 && old.len == n;
    if (alike && (n == 0 || memcmp(old.s, data, n) == 0)) return 0;
    return fs_write_atomic(path, data, n, mode, err);
}

int fs_mkdirs(const char *path, unsigned mode, struct gp_error *err) {
    GP_AUTO_FREE char *p = xstrdup(path);
    if (p[0] == '\0') return gp_fail(err, GP_EIO, "could not create a folder: its name is empty");
    for (char *s = p + 1;; s++) {
        if (*s != '/' && *s != '\0') continue;
        char c = *s;
        *s = '\0';
        if (mkdir(p, c == '\0' ? mode : 0755) != 0 && errno != EEXIST)
            return gp_fail_errno(err, GP_EIO, errno, "could not create the folder '%s'", path);
        *s = c;
        if (c == '\0') return 0;
    }
}

unsigned fs_umask(void) {
    GP_AUTO_STR struct str text = {0};
    unsigned long mask = 0;
    if (fs_read("/proc/self/status", 65536, &text, NULL) != 0) return 077;
    const char *line = text.s != NULL ? strstr(text.s, "\nUmask:") : NULL;
    if (line == NULL) return 077;
    mask = strtoul(line + strlen("\nUmask:"), NULL, 8);
    return (unsigned)mask & 0777;
}

bool fs_room(int fd, uint64_t *ret_free, uint64_t *ret_size) {
    struct statvfs v;
    if (fstatvfs(fd, &v) != 0 || v.f_blocks == 0 || v.f_frsize == 0) return false;
    *ret_free = (uint64_t)(geteuid() == 0 ? v.f_bfree : v.f_bavail) * v.f_frsize;
    *ret_size = (uint64_t)v.f_blocks * v.f_frsize;
    return true;
}

static int remove_at(int dirfd, const char *name, dev_t dev) {
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : -errno;
    if (!S_ISDIR(st.st_mode)) return unlinkat(dirfd, name, 0) == 0 || errno == ENOENT ? 0 : -errno;
    if (st.st_dev != dev) return -EXDEV;
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -errno;
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        int e = errno;
        close(fd);
        return -e;
    }
    int r = 0;
    for (struct dirent *e = readdir(d); e != NULL && r == 0; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) r = remove_at(fd, e->d_name, dev);
    closedir(d);
    if (r == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) r = -errno;
    return r;
}

int fs_remove_tree(const char *path, struct gp_error *err) {
    struct stat st;
    if (lstat(path, &st) != 0) {
        if (errno == ENOENT) return 0;
        return gp_fail_errno(err, GP_EIO, errno, "could not remove '%s'", path);
    }
    int r = remove_at(AT_FDCWD, path, st.st_dev);
    return r == 0 ? 0 : gp_fail_errno(err, GP_EIO, -r, "could not remove '%s'", path);
}

bool fs_exists(const char *path) { return access(path, F_OK) == 0; }

char *fs_join(const char *a, const char *b) {
    if (b[0] == '/') return xstrdup(b);
    return xasprintf("%s%s%s", a, str_ends(a, "/") ? "" : "/", b);
}

int fs_random(void *p, size_t n, struct gp_error *err) {
    char *b = p;
    while (n > 0) {
        ssize_t r = getrandom(b, n, 0);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return gp_fail_errno(err, GP_EENV, errno, "could not read random bytes");
        b += r;
        n -= (size_t)r;
    }
    return 0;
}

int fs_random_hex(char *dst, size_t n, struct gp_error *err) {
    unsigned char buf[64];
    if (n > sizeof buf) return gp_fail(err, GP_EINTERNAL, "too many random bytes requested");
    int r = fs_random(buf, n, err);
    if (r == 0) str_hex(dst, buf, n);
    return r;
}

union fd_room {
    char room[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

ssize_t fs_send_fd(int sock, const void *text, size_t n, int fd) {
    union fd_room u = {{0}};
    char bytes[64];
    struct iovec v = {.iov_base = bytes, .iov_len = GP_MIN(n, sizeof bytes)};
    memcpy(bytes, text, v.iov_len);
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof u.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(sock, &m, MSG_NOSIGNAL);
}

ssize_t fs_recv_fd(int sock, void *text, size_t n, int *ret_fd) {
    union fd_room u = {{0}};
    struct iovec v = {.iov_base = text, .iov_len = n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof u.room};
    ssize_t got = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    for (struct cmsghdr *c = got >= 0 ? CMSG_FIRSTHDR(&m) : NULL; c != NULL; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        if (*ret_fd >= 0) close(*ret_fd);
        memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
    }
    return got;
}

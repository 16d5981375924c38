/* SPDX-License-Identifier: Apache-2.0 */
/* The taker's root: made, opened and locked against a second transfer; names of files that are not complete. */
#include "base/gp_base.h"

#include "tree/take.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#define KILLED_MS 5000

void take_part_name(const char *name, char dst[40]) {
    unsigned char sum[32];
    char hex[65];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, name, strlen(name));
    sha256_end(&s, sum);
    str_hex(hex, sum, sizeof sum);
    snprintf(dst, 40, TREE_PART "%.16s", hex);
}

/* Of another user, or with a second name, under which it is read and written too. */
static bool is_foreign(const struct stat *st) { return st->st_uid != geteuid() || st->st_nlink != 1; }

/* A file system without locks has none. */
static bool lock_taken(int fd) { return flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

/* Opens or, with `make`, makes it. One that this user did not make is removed then: somebody may read or write it. */
static int open_part(int dir, const char *part, bool make, struct stat *ret) {
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = openat(dir, part, flags);
    bool was = fd >= 0;
    if (!was && (errno != ENOENT || !make)) return -errno;
    if (!was) fd = openat(dir, part, flags | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return errno == EEXIST ? -EAGAIN : -errno;
    int e = fstat(fd, ret) != 0 ? errno : S_ISREG(ret->st_mode) && !(was && is_foreign(ret)) ? 0 : EEXIST;
    if (e == EEXIST && make && S_ISREG(ret->st_mode)) e = unlinkat(dir, part, 0) == 0 ? EAGAIN : errno;
    if (e == 0) return fd;
    close(fd);
    return -e;
}

int take_part_open(int dir, const char *name, bool make, struct stat *ret) {
    char part[40];
    take_part_name(name, part);
    for (int tries = 0;; tries++) {
        struct stat now;
        int fd = open_part(dir, part, make, ret);
        if (fd == -EAGAIN && tries < 9) continue;
        if (fd < 0) return fd;
        int e = lock_taken(fd) ? EWOULDBLOCK : fstat(fd, ret) != 0 ? errno : 0;
        /* between open and lock another transfer may have renamed it into place */
        bool same = e == 0 && fstatat(dir, part, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == ret->st_ino &&
                    now.st_dev == ret->st_dev;
        if (same) return fd;
        close(fd);
        if (e != 0 || tries == 9) return e != 0 ? -e : -EWOULDBLOCK;
    }
}

/* --- the lock --- */

/* Whoever holds the lock wrote its id and pid into it. Of the same transfer it is one whose connection hangs. */
static bool kill_holder(int fd, uint64_t id) {
    char text[64] = "";
    uint64_t other = 0;
    int pid = 0;
    if (id == 0 || pread(fd, text, sizeof text - 1, 0) <= 0) return false;
    if (sscanf(text, "%" SCNx64 " %d", &other, &pid) != 2 || other != id || pid <= 1) return false;
    return kill(pid, SIGKILL) == 0;
}

static int lock_file(struct taker *t, int fd, const char *name, struct gp_error *err) {
    struct stat mine, now;
    bool killed = false;
    for (int64_t end = clock_deadline(KILLED_MS);;) {
        if (!lock_taken(fd)) break;
        killed = killed || kill_holder(fd, t->opts.id);
        if (!killed || clock_left_ms(end) == 0)
            return gp_fail(err, GP_EBUSY, "another gpuprov copies to '%.300s' now; repeat this command when it is done",
                           t->root);
        gp_sleep(20, t->opts.cancel, NULL);
    }
    if (fstat(fd, &mine) != 0 || fstatat(t->place.root, name, &now, AT_SYMLINK_NOFOLLOW) != 0 ||
        mine.st_ino != now.st_ino)
        return 1; /* its holder removed it: again */
    char text[64];
    int n = snprintf(text, sizeof text, "%016" PRIx64 " %d\n", t->opts.id, (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) { /* a full disk: it is only not taken over */
    }
    return 0;
}

static int lock_root(struct taker *t, struct gp_error *err) {
    GP_AUTO_FREE char *name = NULL;
    if (t->single) {
        char part[40];
        take_part_name(t->single_name, part);
        name = xasprintf("%s.lock", part);
    } else name = xstrdup(TREE_PART "lock");
    for (int tries = 0; tries < 100; tries++) {
        int fd = openat(t->place.root, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (fd < 0) return side_io(err, errno, "write to", t->root);
        struct stat st;
        if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1) { /* maybe the user's, by another name */
            close(fd);
            if (unlinkat(t->place.root, name, 0) != 0) return side_io(err, errno, "write to", t->root);
            continue;
        }
        int r = lock_file(t, fd, name, err);
        if (r == 0) {
            t->lock = fd;
            t->lock_name = GP_STEAL(name);
            return 0;
        }
        close(fd);
        if (r < 0) return r;
    }
    return gp_fail(err, GP_EBUSY, "other transfers to '%.300s' do not end; repeat this command later", t->root);
}

void take_unlock(struct taker *t) {
    if (t->lock_name == NULL) return;
    unlinkat(t->place.root, t->lock_name, 0);
    close(t->lock);
    free(t->lock_name);
    t->lock_name = NULL;
    t->lock = -1;
}

/* --- the folder --- */

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Splits the path of a single file: the folder becomes root. */
static void split_single(struct taker *t, const char *name) {
    t->single = true;
    if (str_ends(t->root, "/") || is_folder(t->root)) {
        t->single_name = xstrdup(name);
        return;
    }
    char *slash = strrchr(t->root, '/');
    t->single_name = xstrdup(slash != NULL ? slash + 1 : t->root);
    if (slash == NULL) {
        free(t->root);
        t->root = xstrdup(".");
    } else slash[slash == t->root] = '\0';
}

int take_root(struct taker *t, const char *name, struct gp_error *err) {
    if (name != NULL) split_single(t, name);
    else if (t->opts.keep_name && t->name != NULL) {
        char *root = fs_join(t->root, t->name);
        free(t->root);
        t->root = root;
    }
    if (t->single && !tree_path_ok(t->single_name))
        return gp_fail(err, GP_EUSAGE, "'%.300s' is not the name of a file", t->single_name);
    GP_AUTO_FREE char *folder = NULL;
    int r = fs_follow(t->root, &folder, err);
    if (r == 0) r = fs_mkdirs(folder, 0755, err);
    if (r != 0) return r;
    int fd = fs_open_folder(folder);
    if (fd < 0) return side_io(err, -fd, "write to", t->root);
    place_init(&t->place, fd);
    return lock_root(t, err);
}

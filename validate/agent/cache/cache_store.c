/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the package cache: fetched once, by one process that holds the file's lock, verified, then renamed to
 * their SHA-256. Every process of the cache may call. */
#include "base/gp_base.h"

#include "validate/agent/cache/cache.h"

#include "base/clock.h"
#include "base/fs.h"
#include "tree/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 8                          /* fetches at once */
#define SLOTS_WAIT_MS (10 * 60 * 1000)   /* for one of them */
#define STALL_MS (60 * 1000)             /* a fetch whose file does not grow */
#define ROOM_LEFT ((uint64_t)1024 << 20) /* bytes of the disk that stay free */
#define SOURCES_MAX ((size_t)4 << 20)

static char *store_path(const struct cache *c, const struct cache_request *q, const char *end) {
    return xasprintf("%s/store/%s%s", c->dir, q->sha256, end);
}

static int take_lock(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* One of the slots; waits for it. -1: none became free. */
static int take_slot(const struct cache *c) {
    for (int64_t end = clock_deadline(SLOTS_WAIT_MS); clock_left_ms(end) > 0; gp_sleep(50, NULL, NULL)) {
        for (int i = 0; i < SLOTS; i++) {
            GP_AUTO_FREE char *path = xasprintf("%s/slot.%d", c->dir, i);
            int fd = take_lock(path);
            if (fd >= 0) return fd;
        }
    }
    return -1;
}

static bool is_content(const char *path, const struct cache_request *q) {
    static unsigned char buf[65536];
    unsigned char sum[32];
    char hex[65];
    struct sha256 s;
    GP_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int64_t size = 0;
    if (fd < 0) return false;
    sha256_init(&s);
    for (ssize_t n = 0; (n = read(fd, buf, sizeof buf)) != 0; size += n) {
        if (n < 0) return false;
        sha256_add(&s, buf, (size_t)n);
    }
    sha256_end(&s, sum);
    str_hex(hex, sum, sizeof sum);
    return size == q->size && strcmp(hex, q->sha256) == 0;
}

static int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

/* Runs the script; ends it when the file grows beyond its size or not at all. */
static void run_fetch(const struct cache *c, const struct cache_request *q, const char *part) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char *argv[] = {(char[]){"sh"}, (char *)(uintptr_t)c->fetch, (char *)(uintptr_t)q->url, (char *)(uintptr_t)part,
                        NULL};
        execv("/bin/sh", argv);
        _exit(127);
    }
    int64_t end = clock_deadline(STALL_MS), last = -1;
    while (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0) {
        int64_t size = size_of(part);
        if (size != last) end = clock_deadline(STALL_MS);
        last = size;
        if (size > q->size || clock_left_ms(end) == 0) kill(pid, SIGKILL);
        gp_sleep(20, NULL, NULL);
    }
}

static void fetch(const struct cache *c, const struct cache_request *q) {
    GP_AUTO_FREE char *part = store_path(c, q, ".part"), *whole = store_path(c, q, "");
    (void)unlink(part);
    GP_AUTO_FD int slot = take_slot(c);
    if (slot < 0) return;
    run_fetch(c, q, part);
    bool good = is_content(part, q) && rename(part, whole) == 0;
    if (!good) (void)unlink(part);
    printf("%s %s\n", good ? "fetched" : "failed", q->url);
    fflush(stdout);
}

static bool has_room(const struct cache *c, int64_t size) {
    struct statvfs v;
    if (statvfs(c->dir, &v) != 0) return false;
    return (uint64_t)v.f_bavail * v.f_frsize > (uint64_t)size + ROOM_LEFT;
}

int cache_fetch(const struct cache *c, const struct cache_request *q, struct gp_error *err) {
    GP_AUTO_FREE char *whole = store_path(c, q, ""), *path = store_path(c, q, ".lock");
    if (fs_exists(whole)) return 0;
    GP_AUTO_FD int lock = take_lock(path);
    if (lock < 0 || fs_exists(whole)) return 0; /* another process fetches it, or has just done so */
    if (!has_room(c, q->size)) return gp_fail(err, GP_EIO, "the disk is nearly full");
    pid_t pid = fork();
    if (pid < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot start a fetch");
    if (pid == 0) { /* it goes on when the one that asked leaves; the lock is its own */
        fetch(c, q);
        _exit(0);
    }
    return 0;
}

bool cache_look(const struct cache *c, const struct cache_request *q, struct cache_file *f) {
    GP_AUTO_FREE char *whole = store_path(c, q, ""), *part = store_path(c, q, ".part"),
                      *path = store_path(c, q, ".lock");
    struct stat mine, at;
    bool done = stat(whole, &at) == 0;
    if (f->fd < 0) f->fd = open(done ? whole : part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (f->fd >= 0 && fstat(f->fd, &mine) == 0) {
        if (done && mine.st_ino != at.st_ino) return false; /* what was sent is of a fetch that failed */
        f->complete = done;
        f->there = done ? q->size : GP_MIN((int64_t)mine.st_size, q->size - 1);
    }
    if (done) return f->fd >= 0;
    GP_AUTO_FD int lock = take_lock(path);
    return lock < 0 || fs_exists(whole); /* the lock is held while a process fetches the file */
}

static bool named_by(const char *pattern, const char *origin) {
    glob_t g = {0};
    bool found = false;
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc && !found; i++) {
            GP_AUTO_STR struct str text = {0};
            GP_AUTO_STRV struct strv origins = {0};
            if (fs_read(g.gl_pathv[i], SOURCES_MAX, &text, NULL) == 0 && text.s != NULL)
                cache_origins_add(&origins, text.s);
            found = strv_has(&origins, origin);
        }
    }
    globfree(&g);
    return found;
}

bool cache_origin_allowed(const struct cache *c, const char *origin) {
    static const char *const sources[] = {"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list",
                                          "/etc/apt/sources.list.d/*.sources", "/etc/apt/mirrors/*",
                                          "/etc/yum.repos.d/*.repo"};
    if (cache_origin_refused(origin)) return false;
    if (strv_has(&c->always, origin)) return true;
    for (size_t i = 0; i < GP_ARRAY_LEN(sources); i++)
        if (named_by(sources[i], origin)) return true;
    return false;
}

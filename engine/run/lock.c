/* SPDX-License-Identifier: Apache-2.0 */
/* One gpuprov at a time per stack and owner on one machine: a file that exists only while its lock is held. Only the
 * holder of the lock of the file that has the name may remove it. */
#include "base/gp_base.h"

#include "engine/run/lock.h"

#include "base/clock.h"
#include "base/fs.h"
#include "engine/run/ending.h"
#include "engine/run/run_event.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum lock_try { LOCK_HELD, LOCK_BUSY, LOCK_REMOVED };

/* *ret_errno: 0, or the error that left the state unknown. LOCK_REMOVED: its holder removed the file. */
static enum lock_try try_lock(int fd, const char *path, int *ret_errno) {
    *ret_errno = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) *ret_errno = errno;
        return LOCK_BUSY;
    }
    struct stat mine, named;
    bool same =
        fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
    return same ? LOCK_HELD : LOCK_REMOVED;
}

/* A lock file has the holder's pid as a decimal number; with a 0 before it once the holder destroys the stack, so that
 * every reader gets the number. */
#define DESTROYS "0"
#define SAY_MS 10000

/* Notes who holds the lock. The holder writes its line just after it locked the file, so it is read at every try. */
static void read_holder(struct run *run, int fd) {
    char line[64] = "";
    ssize_t n = pread(fd, line, sizeof line - 1, 0);
    line[GP_MAX(n, (ssize_t)0)] = '\0';
    if (str_starts(line, DESTROYS)) run->lock.behind_end = true;
    int64_t pid = 0;
    if (str_to_i64(line, 1, INT32_MAX, &pid)) run->lock.holder = pid;
}

static void say_waiting(struct run *run, int64_t since_ms) {
    char waited[32], limit[32], pid[32] = "";
    duration_format(waited, sizeof waited, (clock_ms() - since_ms) / 1000 * 1000);
    duration_format(limit, sizeof limit, run->e->opts.lock_timeout_ms);
    if (run->lock.holder > 0) snprintf(pid, sizeof pid, " (pid %lld)", (long long)run->lock.holder);
    run_event(run, -1, NODE_PLANNED, EVENT_PROGRESS, "lock", "another gpuprov%s %s '%s': waiting for it (%s of %s)",
              pid, run->lock.behind_end ? "destroys" : "works on", run->stack.name, waited, limit);
}

static int timed_out(const struct run *run, struct gp_error *err) {
    char limit[32], waited[64] = "", pid[32] = "";
    duration_format(limit, sizeof limit, run->e->opts.lock_timeout_ms);
    if (run->e->opts.lock_timeout_ms > 0) snprintf(waited, sizeof waited, " (waited for %s)", limit);
    if (run->lock.holder > 0) snprintf(pid, sizeof pid, " (pid %lld)", (long long)run->lock.holder);
    int r = gp_fail(err, GP_EBUSY,
                    "'%s': another gpuprov%s works on it%s: repeat this later, or wait longer with "
                    "--lock-timeout",
                    run->stack.name, pid, waited);
    if (err != NULL) err->retryable = true;
    return r;
}

/* *ret: the descriptor that holds the lock. */
static int take_lock(struct run *run, const char *path, int *ret, struct gp_error *err) {
    GP_AUTO_FD int fd = -1;
    int64_t since_ms = clock_ms(), said_ms = 0;
    int64_t deadline_ms = clock_deadline(run->e->opts.lock_timeout_ms);
    for (;;) {
        int r = fd < 0 ? fs_open_kept(path, O_RDWR | O_CREAT, &fd, err) : 0;
        if (r != 0) return r;
        int e = 0;
        enum lock_try got = try_lock(fd, path, &e);
        if (e != 0) return gp_fail_errno(err, GP_EIO, e, "could not lock '%s'", path);
        if (got == LOCK_HELD) break;
        if (got == LOCK_REMOVED) {
            close(fd);
            fd = -1;
            said_ms = 0; /* the new file may have another holder */
            continue;
        }
        read_holder(run, fd);
        if (clock_left_ms(deadline_ms) == 0) return timed_out(run, err);
        if (said_ms == 0 || clock_ms() - said_ms >= SAY_MS) {
            say_waiting(run, since_ms);
            said_ms = clock_ms();
        }
        r = gp_sleep(100, &run->e->cancel, err);
        if (r != 0) return r;
    }
    *ret = fd;
    fd = -1;
    return 0;
}

/* For waiting processes; on a full disk the lock works without it. */
static void write_holder(const struct run *run, const char *mark) {
    char line[64];
    int n = snprintf(line, sizeof line, "%s%ld", mark, (long)getpid());
    if (ftruncate(run->lock.fd, 0) == 0) (void)!pwrite(run->lock.fd, line, (size_t)n, 0);
}

static int hold(struct run *run, struct gp_error *err) {
    GP_AUTO_FREE char *dir = fs_join(run->e->state_dir, "locks");
    int r = fs_mkdirs(dir, 0700, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *path = xasprintf("%s/%s@%s", dir, run->stack.name, run->owner ? run->owner : "");
    for (char *c = path + strlen(dir) + 1; *c; c++)
        if (*c == '/') *c = '_';
    if ((r = take_lock(run, path, &run->lock.fd, err)) != 0) return r;
    run->lock.path = GP_STEAL(path);
    write_holder(run, "");
    return 0;
}

int run_lock(struct run *run, struct gp_error *err) {
    struct gp_error why = {0};
    int r = ending_wrote(run, hold(run, &why), &why);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

void run_lock_destroys(const struct run *run) { write_holder(run, DESTROYS); }

void run_unlock(struct run *run) {
    if (run->lock.fd >= 0 && run->lock.path != NULL) (void)unlink(run->lock.path);
    if (run->lock.fd >= 0) close(run->lock.fd);
    run->lock.fd = -1;
    free(run->lock.path);
    run->lock.path = NULL;
}

/* The holder writes its pid into the file, and the file goes with the lock unless its holder was killed. */
static bool holder_lives(const char *path) {
    GP_AUTO_STR struct str text = {0};
    int64_t pid = 0;
    if (fs_read(path, 64, &text, NULL) != 0) return false;
    if (text.len == 0) return true; /* it is about to be written */
    return str_to_i64(text.s, 1, INT32_MAX, &pid) && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

bool lock_is_held(const char *state_dir, const char *stack) {
    GP_AUTO_FREE char *dir = fs_join(state_dir, "locks");
    GP_AUTO_FREE char *prefix = xasprintf("%s@", stack);
    DIR *d = opendir(dir);
    if (d == NULL) return false;
    bool held = false;
    for (struct dirent *f = readdir(d); f != NULL && !held; f = readdir(d)) {
        GP_AUTO_FREE char *path = fs_join(dir, f->d_name);
        held = str_starts(f->d_name, prefix) && holder_lives(path);
    }
    closedir(d);
    return held;
}

bool run_is_locked(const struct run *run) { return run->lock.fd >= 0; }

void locks_tidy(const char *state_dir) {
    GP_AUTO_FREE char *dir = fs_join(state_dir, "locks");
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        GP_AUTO_FREE char *path = fs_join(dir, f->d_name);
        if (strchr(f->d_name, '@') == NULL) continue;
        GP_AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        int e = 0;
        if (fd >= 0 && try_lock(fd, path, &e) == LOCK_HELD && e == 0) (void)unlink(path);
    }
    closedir(d);
}

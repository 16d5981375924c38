/* SPDX-License-Identifier: Apache-2.0 */
/* One gpuprov at a time per stack and owner on one machine: a file that exists only while its lock is held. Only the
 * holder of the lock of the file that has the name may remove it. */
#include "base/gp_base.h"

#include "engine/run/lock.h"

#include "base/fs.h"
#include "engine/run/ending.h"
#include "engine/run/run_event.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

static void say_waiting(struct run *run, int fd) {
    char pid[32] = "?";
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
    if (n > 0) pid[n] = '\0';
    run_event(run, -1, NODE_PLANNED, EVENT_PROGRESS, "lock", "another gpuprov (pid %s) works on '%s': waiting for it",
              pid, run->stack.name);
}

/* *ret: the descriptor that holds the lock. */
static int take_lock(struct run *run, const char *path, int *ret, struct gp_error *err) {
    GP_AUTO_FD int fd = -1;
    for (bool said = false;;) {
        if (fd < 0) fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "could not open '%s'", path);
        int e = 0;
        enum lock_try got = try_lock(fd, path, &e);
        if (e != 0) return gp_fail_errno(err, GP_EIO, e, "could not lock '%s'", path);
        if (got == LOCK_HELD) break;
        if (got == LOCK_REMOVED) {
            close(fd);
            fd = -1;
            said = false; /* the new file may have another holder */
            continue;
        }
        if (!said) say_waiting(run, fd);
        said = true;
        int r = gp_sleep(100, &run->e->cancel, err);
        if (r != 0) return r;
    }
    *ret = fd;
    fd = -1;
    return 0;
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
    char pid[32]; /* for waiting processes; on a full disk the lock works without it */
    int n = snprintf(pid, sizeof pid, "%ld", (long)getpid());
    if (ftruncate(run->lock.fd, 0) == 0) (void)!pwrite(run->lock.fd, pid, (size_t)n, 0);
    return 0;
}

int run_lock(struct run *run, struct gp_error *err) {
    struct gp_error why = {0};
    int r = ending_wrote(run, hold(run, &why), &why);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

void run_unlock(struct run *run) {
    if (run->lock.fd >= 0 && run->lock.path != NULL) (void)unlink(run->lock.path);
    if (run->lock.fd >= 0) close(run->lock.fd);
    run->lock.fd = -1;
    free(run->lock.path);
    run->lock.path = NULL;
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

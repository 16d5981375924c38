/* SPDX-License-Identifier: Apache-2.0 */
/* host.disk: free space and speed of the disk that jobs use. Writes one bounded file without a name (nothing remains
 * if the worker is killed), syncs it, and reads it back from the disk. One thread. */
#include "base/gp_base.h"

#include "host.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define DISK_BYTES ((size_t)128 << 20)
#define DISK_BLOCK ((size_t)1 << 20)
#define DISK_MS 3000 /* for writing, and again for reading */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool in_memory(const char *dir) {
    struct statfs s;
    return statfs(dir, &s) == 0 && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

/* A writable folder on a disk, else any writable folder, else NULL. */
static const char *choose_dir(void) {
    const char *home = getenv("HOME");
    const char *dirs[] = {home != NULL && home[0] == '/' ? home : "/var/tmp", "/var/tmp", "/tmp"};
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < GP_ARRAY_LEN(dirs); i++)
            if (access(dirs[i], W_OK) == 0 && (pass == 1 || !in_memory(dirs[i]))) return dirs[i];
    return NULL;
}

/* A file without a name, or one whose name is removed at once where the file system lacks O_TMPFILE. */
static int open_scratch(const char *dir) {
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || errno == EACCES || errno == EROFS || errno == ENOSPC || errno == EDQUOT) return fd;
    GP_AUTO_FREE char *name = xasprintf("%s/.gpuprov-disk.XXXXXX", dir);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) unlink(name);
    return fd;
}

static void block_fill(uint64_t *b, size_t index) {
    for (size_t i = 0; i < DISK_BLOCK / 8; i++) b[i] = ((uint64_t)index << 32 | i) * 0x9e3779b97f4a7c15u;
}

static ssize_t full_pread(int fd, char *p, size_t n, off_t at) {
    size_t got = 0;
    while (got < n) {
        ssize_t k = pread(fd, p + got, n - got, at + (off_t)got);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        if (k == 0) break;
        got += (size_t)k;
    }
    return (ssize_t)got;
}

/* Blocks written and synced; 0 with errno when none. */
static size_t write_blocks(int fd, uint64_t *buf, int64_t deadline_ms, double *ret_s) {
    double began = now_s();
    size_t n = 0;
    int64_t end = GP_MIN(deadline_ms, clock_deadline(DISK_MS));
    for (; n < DISK_BYTES / DISK_BLOCK && (n == 0 || clock_left_ms(end) > 0); n++) {
        block_fill(buf, n);
        ssize_t w = pwrite(fd, buf, DISK_BLOCK, (off_t)(n * DISK_BLOCK));
        if (w != (ssize_t)DISK_BLOCK) {
            if (w >= 0) errno = ENOSPC;
            return 0;
        }
        /* often, so that the time limit also holds on a slow disk */
        if (n % 16 == 15 && fdatasync(fd) != 0) return 0;
    }
    if (fdatasync(fd) != 0) return 0;
    *ret_s = now_s() - began;
    return n;
}

/* Reads and compares blocks until the time is over; *ret_bad: errno of a failed read (EIO for a file that ends
 * early), else 0. */
static size_t read_blocks(int fd, size_t n, uint64_t *buf, uint64_t *want, double *ret_s, size_t *ret_wrong,
                          int *ret_bad) {
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* so that the disk, not the cache, answers */
    double spent = 0;
    size_t k = 0;
    for (; k < n && spent < DISK_MS / 1000.0; k++) {
        double began = now_s();
        ssize_t got = full_pread(fd, (char *)buf, DISK_BLOCK, (off_t)(k * DISK_BLOCK));
        if (agent_fault("disk_read", 0, 0) && k == 2) got = DISK_BLOCK / 2;
        if (got != (ssize_t)DISK_BLOCK) {
            *ret_bad = got < 0 ? errno : EIO;
            break;
        }
        spent += now_s() - began;
        block_fill(want, k);
        *ret_wrong += memcmp(buf, want, DISK_BLOCK) != 0;
    }
    *ret_s = spent;
    return k;
}

static void measure(struct check_ctx *c, const char *dir, struct agent_result *r) {
    GP_AUTO_FD int fd = open_scratch(dir);
    if (fd < 0) {
        agent_set(r, VERDICT_FAIL, errno == ENOSPC || errno == EDQUOT ? "disk_full" : "not_writable",
                  "cannot create a file in '%s': %s", dir, strerror(errno));
        return;
    }
    GP_AUTO_FREE void *buf = NULL;
    GP_AUTO_FREE void *want = NULL;
    if (posix_memalign(&buf, 4096, DISK_BLOCK) != 0 || posix_memalign(&want, 4096, DISK_BLOCK) != 0) {
        agent_set(r, VERDICT_ERROR, "no_memory", "out of memory");
        return;
    }
    double w_s = 0, r_s = 0;
    size_t wrong = 0, n = write_blocks(fd, buf, c->deadline_ms, &w_s);
    if (n == 0) {
        bool full = errno == ENOSPC || errno == EDQUOT;
        agent_set(r, VERDICT_FAIL, full ? "disk_full" : "disk_write", "cannot write in '%s': %s", dir, strerror(errno));
        return;
    }
    int bad = 0;
    size_t got = read_blocks(fd, n, buf, want, &r_s, &wrong, &bad);
    if (bad != 0) {
        agent_set(r, VERDICT_FAIL, "disk_read", "cannot read back from '%s' after %zu of %zu MiB: %s", dir, got, n,
                  strerror(bad));
        return;
    }
    agent_metric(r, "write", (double)(n * DISK_BLOCK) / 1e6 / GP_MAX(w_s, 1e-6));
    agent_metric(r, "read", (double)(got * DISK_BLOCK) / 1e6 / GP_MAX(r_s, 1e-6));
    agent_data_int(r, "written_mib", (int64_t)n);
    if (wrong > 0)
        agent_set(r, VERDICT_FAIL, "wrong_data", "%zu of %zu MiB read back wrong from '%s'", wrong, got, dir);
}

void disk_run(struct check_ctx *c, struct agent_result *r) {
    const char *dir = choose_dir();
    if (dir == NULL) {
        agent_set(r, VERDICT_FAIL, "not_writable", "HOME, /var/tmp and /tmp are not writable");
        return;
    }
    struct statvfs v;
    agent_data_str(r, "folder", dir);
    agent_data_bool(r, "in_memory", in_memory(dir));
    if (statvfs(dir, &v) == 0) {
        double free_gib = (double)v.f_bavail * (double)v.f_frsize / (1 << 30);
        agent_metric(r, "free", free_gib);
        if (v.f_files > 0) agent_metric(r, "free_files", (double)v.f_favail);
        if (v.f_bavail == 0) agent_set(r, VERDICT_FAIL, "disk_full", "the disk of '%s' is full", dir);
    }
    if (r->verdict == VERDICT_PASS) measure(c, dir, r);
    agent_say(r, "'%s'%s: written, synced and read back", dir, in_memory(dir) ? " (in memory, not a disk)" : "");
}

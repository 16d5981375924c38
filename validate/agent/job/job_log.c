/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a job's log. The head is moved before a file is used again, so that a reader knows that it read too late. */
#include "base/gp_base.h"

#include "validate/agent/job/job_log.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int64_t setting(const char *name, int64_t usual) {
#ifdef GPUPROV_FAULTS /* tests: small files, so that a test need not write a gigabyte */
    int64_t v = 0;
    if (getenv(name) != NULL && str_to_i64(getenv(name), 0, INT64_MAX, &v)) return v;
#else
    (void)name;
#endif
    return usual;
}

/* --- the head --- */

void log_head_render(const struct log_head *h, struct str *ret) {
    str_addf(ret, "gpuprov-job-log/v1 %lld %lld %lld %lld %lld %lld", (long long)h->segment, (long long)h->base,
             (long long)h->total, (long long)h->lost, (long long)h->lost_at, (long long)h->n_marks);
    for (int64_t i = 0; i < h->n_marks; i++)
        str_addf(ret, " %lld %lld", (long long)h->marks[i].end, (long long)h->marks[i].start);
}

static bool head_ok(const struct log_head *h) {
    int64_t at = 0;
    if (h->segment < 1 || h->base > h->total || h->lost_at > h->total) return false;
    for (int64_t i = 0; i < h->n_marks; i++) {
        if (h->marks[i].end < at || h->marks[i].start < h->marks[i].end || h->marks[i].start > h->total) return false;
        at = h->marks[i].start;
    }
    return true;
}

bool log_head_parse(const char *text, struct log_head *ret) {
    GP_AUTO_STRV struct strv words = {0};
    struct log_head h = {0};
    int64_t *const numbers[] = {&h.segment, &h.base, &h.total, &h.lost, &h.lost_at, &h.n_marks};
    strv_split(&words, text, " ");
    if (words.n < 1 + GP_ARRAY_LEN(numbers) || !str_eq(words.v[0], "gpuprov-job-log/v1")) return false;
    for (size_t i = 0; i < GP_ARRAY_LEN(numbers); i++)
        if (!str_to_i64(words.v[1 + i], 0, INT64_MAX / 4, numbers[i])) return false;
    if (h.n_marks > JOB_ATTEMPTS || words.n != 1 + GP_ARRAY_LEN(numbers) + 2 * (size_t)h.n_marks) return false;
    for (int64_t i = 0; i < h.n_marks; i++) {
        char *const *two = &words.v[1 + GP_ARRAY_LEN(numbers) + 2 * (size_t)i];
        if (!str_to_i64(two[0], 0, INT64_MAX / 4, &h.marks[i].end)) return false;
        if (!str_to_i64(two[1], 0, INT64_MAX / 4, &h.marks[i].start)) return false;
    }
    if (!head_ok(&h)) return false;
    *ret = h;
    return true;
}

static void show(struct job_log *l, bool sync) {
    GP_AUTO_STR struct str s = {0};
    log_head_render(&l->head, &s);
    (void)slots_put(&l->slot, s.s, sync); /* a file system that takes nothing keeps the last head: readers stay there */
}

void job_log_show(struct job_log *l) { show(l, false); }

/* --- files --- */

struct name {
    char s[32];
};

static struct name name_of(int64_t index) {
    struct name n;
    snprintf(n.s, sizeof n.s, "log.%lld", (long long)index);
    return n;
}

static bool roomy(int dir, int64_t segment) {
    struct statvfs fs;
    if (fstatvfs(dir, &fs) != 0) return true;
    return (int64_t)(fs.f_bavail * fs.f_frsize) >= segment + setting("GPUPROV_JOB_SPARE", JOB_LOG_SPARE);
}

/* A file with its space. A file system that cannot allocate ahead gets an empty file. 0 or -errno. */
static int make_file(int dir, int64_t index, int64_t segment) {
    int fd = openat(dir, name_of(index).s, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return -errno;
    int r = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)segment) == 0 ? 0 : -errno;
    close(fd);
    if (r == -ENOSPC || r == -EDQUOT || r == -EFBIG) {
        unlinkat(dir, name_of(index).s, 0);
        return r;
    }
    return 0;
}

/* The number of the oldest file. */
static int64_t oldest(const struct job_log *l) {
    for (int64_t i = l->head.base / l->head.segment; i < l->index; i++)
        if (faccessat(l->dir, name_of(i).s, F_OK, 0) == 0) return i;
    return l->index;
}

static int use_file(struct job_log *l, int64_t index) {
    if (l->fd >= 0) close(l->fd);
    l->fd = openat(l->dir, name_of(index).s, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->fd < 0) return -errno; /* what comes is counted as lost, and the next call tries again */
    l->index = index;
    return 0;
}

/* The log goes on in the next file: the spare one, a new one, or the oldest one again. */
static void next_file(struct job_log *l) {
    int64_t next = l->index + 1, first = oldest(l), keep = setting("GPUPROV_JOB_SEGMENTS", JOB_SEGMENTS);
    bool more = next - first < keep, made = l->spare == next;
    if (!made && more && (roomy(l->dir, l->head.segment) || next - first < 2))
        made = make_file(l->dir, next, l->head.segment) == 0;
    if (!made) {
        l->head.base = (first + 1) * l->head.segment;
        l->head.total = GP_MAX(l->head.total, l->head.base);
        job_log_show(l);
        (void)renameat(l->dir, name_of(first).s, l->dir, name_of(next).s);
    }
    show(l, true); /* after a power cut, the head is at most one file too old */
    l->spare = -1;
    (void)use_file(l, next);
}

bool job_log_release(struct job_log *l) {
    int64_t first = oldest(l);
    if (first >= l->index) return false;
    l->head.base = GP_MAX(l->head.base, (first + 1) * l->head.segment);
    job_log_show(l);
    return unlinkat(l->dir, name_of(first).s, 0) == 0;
}

void job_log_put(struct job_log *l, const char *p, size_t n) {
    while (n > 0) {
        if (l->head.total / l->head.segment != l->index) next_file(l);
        int64_t at = l->head.total % l->head.segment;
        ssize_t w = pwrite(l->fd, p, (size_t)GP_MIN((int64_t)n, l->head.segment - at), (off_t)at);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0 && (errno == ENOSPC || errno == EDQUOT) && job_log_release(l)) continue;
        if (w <= 0) {
            l->head.lost += (int64_t)n;
            l->head.lost_at = l->head.total;
            return;
        }
        p += w;
        n -= (size_t)w;
        l->head.total += w;
    }
}

/* --- making and opening --- */

int job_log_create(const char *dir, struct gp_error *err) {
    GP_AUTO_STR struct str s = {0};
    GP_AUTO_FREE char *path = fs_join(dir, "log.head");
    struct log_head h = {.segment = setting("GPUPROV_JOB_SEGMENT", JOB_SEGMENT_BYTES)};
    GP_AUTO_FD int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot read '%s'", dir);
    int r = make_file(d, 0, h.segment);
    if (r == 0) r = make_file(d, 1, h.segment);
    if (r != 0)
        return gp_fail_errno(err, GP_EIO, -r, "cannot allocate %lld MiB in '%s' for the job's log",
                             (long long)(2 * h.segment >> 20), dir);
    log_head_render(&h, &s);
    return slots_create(path, s.s, err);
}

int job_log_open(struct job_log *l, const char *dir, bool again, bool rebooted, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, "log.head");
    *l = (struct job_log){.dir = -1, .slot.fd = -1, .fd = -1, .spare = -1};
    int r = slots_open(path, &l->slot, err);
    if (r == 0) r = job_log_head(dir, &l->head, err);
    if (r != 0) return r;
    l->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->dir < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot read '%s'", dir);
    struct log_head *h = &l->head;
    int64_t end = h->total;
    if (again && rebooted) h->total = (h->total / h->segment + 1) * h->segment;
    if (again && h->n_marks < JOB_ATTEMPTS) h->marks[h->n_marks++] = (struct log_mark){end, h->total};
    l->index = h->total / h->segment;
    if (faccessat(l->dir, name_of(l->index + 1).s, F_OK, 0) == 0) l->spare = l->index + 1;
    if (faccessat(l->dir, name_of(l->index).s, F_OK, 0) != 0) (void)make_file(l->dir, l->index, h->segment);
    r = use_file(l, l->index);
    if (r != 0) return gp_fail_errno(err, GP_EIO, -r, "cannot write the log in '%s'", dir);
    job_log_show(l);
    return 0;
}

void job_log_close(struct job_log *l) {
    if (l->spare >= 0 && l->spare != l->index) unlinkat(l->dir, name_of(l->spare).s, 0);
    if (l->fd >= 0) {
        /* a file that was used again may be longer than its part of the log */
        if (l->head.total / l->head.segment == l->index)
            (void)!ftruncate(l->fd, (off_t)(l->head.total % l->head.segment));
        close(l->fd);
    }
    if (l->dir >= 0) close(l->dir);
    if (l->slot.fd >= 0) close(l->slot.fd);
    *l = (struct job_log){.dir = -1, .slot.fd = -1, .fd = -1, .spare = -1};
}

/* --- readers --- */

int job_log_head(const char *dir, struct log_head *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, "log.head");
    GP_AUTO_STR struct str s = {0};
    int r = slots_get(path, &s, err);
    if (r != 0 || log_head_parse(s.s, ret)) return r;
    (void)gp_fail(err, GP_EPROTO, "'%s' is damaged", path);
    return -(int)GP_EPROTO; /* not 0, which the analyzer cannot see otherwise */
}

size_t job_log_read(const char *dir, const struct log_head *h, int64_t at, char *p, size_t n, int64_t *ret_next) {
    int64_t index = at / h->segment, in = at % h->segment, most = GP_MIN(h->segment - in, h->total - at);
    GP_AUTO_FREE char *path = xasprintf("%s/%s", dir, name_of(index).s);
    GP_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct log_head now = {0};
    *ret_next = GP_MIN((index + 1) * h->segment, h->total);
    if (fd < 0) return 0;
    ssize_t got = -1;
    do got = pread(fd, p, (size_t)GP_MIN((int64_t)n, most), (off_t)in);
    while (got < 0 && errno == EINTR);
    if (got <= 0) return 0;
    /* The writer may have used the file again while it was read. */
    if (job_log_head(dir, &now, NULL) != 0 || now.base > at) return 0;
    return (size_t)got;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A text in two places of a file: "NUMBER CHECKSUM TEXT", filled up with blanks, a newline at the end. */
#include "base/gp_base.h"

#include "validate/agent/job/job_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define HEAD 34 /* two times 16 hexadecimal digits and a blank */

/* FNV-1a over the number and the text. It finds half-written places, not forgeries. */
static uint64_t checksum(uint64_t seq, const char *p, size_t n) {
    uint64_t h = 0xcbf29ce484222325u ^ seq;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    return h;
}

static void render(char place[SLOT_SIZE], uint64_t seq, const char *text, size_t n) {
    char head[HEAD + 1];
    memset(place, ' ', SLOT_SIZE);
    memcpy(place + HEAD, text, n);
    place[SLOT_SIZE - 1] = '\n';
    snprintf(head, sizeof head, "%016llx %016llx ", (unsigned long long)seq,
             (unsigned long long)checksum(seq, place + HEAD, SLOT_SIZE - HEAD));
    memcpy(place, head, HEAD);
}

static bool hex16(const char *p, uint64_t *ret) {
    *ret = 0;
    for (int i = 0; i < 16; i++) {
        char c = p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        *ret = *ret << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

static int write_at(int fd, const char *p, size_t n, off_t at) {
    while (n > 0) {
        ssize_t w = pwrite(fd, p, n, at);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return -errno;
        p += w, at += w, n -= (size_t)w;
    }
    return 0;
}

int slots_create(const char *path, const char *text, struct gp_error *err) {
    char places[2 * SLOT_SIZE];
    size_t n = strlen(text);
    if (n > SLOT_TEXT_MAX) return gp_fail(err, GP_EINTERNAL, "the text for '%s' is too long", path);
    render(places, 1, text, n);
    render(places + SLOT_SIZE, 2, text, n);
    GP_AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? -errno : write_at(fd, places, sizeof places, 0);
    if (r == 0 && fsync(fd) != 0) r = -errno;
    return r == 0 ? 0 : gp_fail_errno(err, GP_EIO, -r, "cannot write '%s'", path);
}

bool slots_get_fd(int fd, struct str *ret, uint64_t *ret_seq) {
    char places[2 * SLOT_SIZE];
    const char *best = NULL;
    ssize_t got = pread(fd, places, sizeof places, 0);
    *ret_seq = 0;
    for (size_t k = 0; got > 0 && (size_t)got >= (k + 1) * SLOT_SIZE; k++) {
        const char *p = places + k * SLOT_SIZE;
        uint64_t seq = 0, sum = 0;
        if (!hex16(p, &seq) || !hex16(p + 17, &sum) || checksum(seq, p + HEAD, SLOT_SIZE - HEAD) != sum) continue;
        if (best != NULL && seq < *ret_seq) continue;
        best = p;
        *ret_seq = seq;
    }
    if (best == NULL) return false;
    size_t n = SLOT_SIZE - HEAD - 1;
    while (n > 0 && best[HEAD + n - 1] == ' ') n--;
    str_add_mem(ret, best + HEAD, n);
    return true;
}

static int open_valid(const char *path, int flags, struct slots *s, struct str *ret, struct gp_error *err) {
    s->fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (s->fd < 0) return gp_fail_errno(err, errno == ENOENT ? GP_ENOTFOUND : GP_EIO, errno, "cannot read '%s'", path);
    /* A writer may overtake one read of both places; not each time. */
    for (int tries = 0; tries < 100; tries++)
        if (slots_get_fd(s->fd, ret, &s->seq)) return 0;
    close(s->fd);
    s->fd = -1;
    return gp_fail(err, GP_EPROTO, "'%s' is damaged", path);
}

int slots_open(const char *path, struct slots *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    return open_valid(path, O_RDWR, ret, &text, err);
}

int slots_put(struct slots *s, const char *text, bool sync) {
    char place[SLOT_SIZE];
    size_t n = strlen(text);
    if (n > SLOT_TEXT_MAX) return -E2BIG;
    render(place, s->seq + 1, text, n);
    int r = write_at(s->fd, place, sizeof place, (off_t)((s->seq + 1) % 2 * SLOT_SIZE));
    if (r == 0) s->seq++;
    if (r == 0 && sync && fdatasync(s->fd) != 0) r = -errno;
    return r;
}

int slots_get(const char *path, struct str *ret, struct gp_error *err) {
    struct slots s = {.fd = -1};
    int r = open_valid(path, O_RDONLY, &s, ret, err);
    if (s.fd >= 0) close(s.fd);
    return r;
}

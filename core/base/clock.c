/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, durations, and waits that end on cancellation. Any thread. */
#include "base/gp_base.h"

#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define STOOD_MS 1000

int64_t clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_wall_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

int64_t clock_deadline(int64_t timeout_ms) {
    int64_t now = clock_ms();
    return timeout_ms >= GP_NEVER - now ? GP_NEVER : now + timeout_ms;
}

int64_t clock_left_ms(int64_t deadline_ms) {
    if (deadline_ms == GP_NEVER) return GP_NEVER;
    int64_t left = deadline_ms - clock_ms();
    return left > 0 ? left : 0;
}

int64_t clock_stood_ms(int64_t *last_ms, int64_t most_ms) {
    int64_t now = clock_ms(), over = *last_ms > 0 ? now - *last_ms - most_ms : 0;
    *last_ms = now;
    return over > STOOD_MS ? over : 0;
}

int gp_cancel_init(struct gp_cancel *c, struct gp_error *err) {
    c->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&c->state, 0);
    if (c->efd < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create an eventfd");
    return 0;
}

void gp_cancel_clear(struct gp_cancel *c) {
    if (c->efd >= 0) close(c->efd);
    c->efd = -1;
}

void gp_cancel_set(struct gp_cancel *c) {
    atomic_store(&c->state, 1);
    uint64_t one = 1;
    ssize_t n = write(c->efd, &one, sizeof one);
    (void)n;
}

void gp_cancel_reset(struct gp_cancel *c) {
    uint64_t count = 0;
    ssize_t n = c->efd >= 0 && atomic_load(&c->state) != 0 ? read(c->efd, &count, sizeof count) : 0;
    (void)n;
    atomic_store(&c->state, 0);
}

bool gp_cancelled(const struct gp_cancel *c) { return c != NULL && atomic_load(&c->state) != 0; }

int gp_wait_fd(int fd, short events, int64_t deadline_ms, const struct gp_cancel *cancel, short *ret_revents,
               struct gp_error *err) {
    for (;;) {
        if (gp_cancelled(cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
        struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = cancel ? cancel->efd : -1, .events = POLLIN}};
        int64_t left = clock_left_ms(deadline_ms);
        int n = poll(p, 2, left > 3600000 ? 3600000 : (int)left);
        if (n < 0 && errno != EINTR) return gp_fail_errno(err, GP_EIO, errno, "could not wait on a descriptor");
        if (n > 0 && p[1].revents != 0) continue;
        if (n > 0 && p[0].revents != 0) {
            if (ret_revents != NULL) *ret_revents = p[0].revents;
            return 0;
        }
        if (clock_left_ms(deadline_ms) == 0) return gp_fail(err, GP_ETIMEOUT, "timed out");
    }
}

int gp_sleep(int64_t ms, const struct gp_cancel *cancel, struct gp_error *err) {
    struct gp_error waited = {0};
    int r = gp_wait_fd(-1, 0, clock_deadline(ms), cancel, NULL, &waited);
    if (r == -GP_ETIMEOUT) return 0;
    return gp_fail(err, waited.code, "%s", waited.msg);
}

bool duration_parse(const char *text, int64_t *ret_ms) {
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    int64_t total = 0;
    if (*text == '\0') return false;
    while (*text != '\0') {
        int64_t v = 0;
        size_t digits = 0;
        while (isdigit((unsigned char)*text) && digits < 10) {
            v = v * 10 + (*text++ - '0');
            digits++;
        }
        if (digits == 0) return false;
        size_t n = 0;
        while (isalpha((unsigned char)text[n])) n++;
        size_t u = 0;
        while (u < GP_ARRAY_LEN(units) && (strlen(units[u].name) != n || memcmp(units[u].name, text, n) != 0)) u++;
        if (n == 0 || u == GP_ARRAY_LEN(units)) return false;
        /* ten digits of days fit; only a sum can be too long (GP_NEVER is not a duration) */
        if (total > INT64_MAX / 2 - v * units[u].ms) return false;
        total += v * units[u].ms;
        text += n;
    }
    *ret_ms = total;
    return true;
}

void duration_format(char *dst, size_t n, int64_t ms) {
    if (ms < 0) ms = 0;
    long long s = ms / 1000;
    if (ms < 10000) snprintf(dst, n, "%lld.%llds", s, (long long)(ms % 1000) / 100);
    else if (s < 60) snprintf(dst, n, "%llds", s);
    else if (s < 3600) snprintf(dst, n, s % 60 ? "%lldm%02llds" : "%lldm", s / 60, s % 60);
    else if (s < 86400 * 2) snprintf(dst, n, s % 3600 / 60 ? "%lldh%02lldm" : "%lldh", s / 3600, s % 3600 / 60);
    else snprintf(dst, n, s % 86400 / 3600 ? "%lldd%lldh" : "%lldd", s / 86400, s % 86400 / 3600);
}

void time_format_utc(char *dst, size_t n, int64_t wall_s) {
    time_t t = (time_t)wall_s;
    struct tm tm;
    gmtime_r(&t, &tm);
    if (strftime(dst, n, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0 && n > 0) dst[0] = '\0';
}

bool time_parse_utc(const char *text, int64_t *ret_wall_s) {
    struct tm tm = {0};
    const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (p == NULL) return false;
    if (*p == '.') {
        p++;
        if (!isdigit((unsigned char)*p)) return false;
        while (isdigit((unsigned char)*p)) p++;
    }
    int64_t offset = 0;
    if (*p == '+' || *p == '-') {
        int h = 0, m = 0, used = 0;
        if (sscanf(p + 1, "%2d:%2d%n", &h, &m, &used) != 2 || used != 5) return false;
        offset = (h * 3600 + m * 60) * (*p == '-' ? -1 : 1);
        p += 6;
    } else if (*p == 'Z') {
        p++;
    }
    if (*p != '\0') return false;
    *ret_wall_s = (int64_t)timegm(&tm) - offset;
    return true;
}

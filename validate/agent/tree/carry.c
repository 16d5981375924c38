/* SPDX-License-Identifier: Apache-2.0 */
/* Carries the bytes of one side of a transfer over descriptors. One thread. */
#include "base/gp_base.h"

#include "validate/agent/tree/carry.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define SILENT_MS (60 * 1000) /* the other side pings every 10 s: it is gone */
#define LAST_MS (10 * 1000)   /* for a last message */

void carry_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

char *carry_home_path(const char *path) {
    const char *home = getenv("HOME");
    const char *rest = str_eq(path, "~") ? "" : str_starts(path, "~/") ? path + 2 : path;
    while (rest != path && *rest == '/') rest++;
    if (rest[0] == '/' || home == NULL || home[0] != '/') return xstrdup(rest[0] != '\0' ? rest : ".");
    return rest[0] != '\0' ? fs_join(home, rest) : xstrdup(home);
}

static int take_in(struct carry *c, struct gp_error *err) {
    ssize_t n = read(c->in, c->buf, CARRY_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) return gp_fail(err, GP_ELOST, "the other side closed the connection");
    c->heard_ms = clock_ms();
    return tree_feed(c->side, c->buf, (size_t)n, err);
}

static int send_out(struct carry *c, struct gp_error *err) {
    size_t n = 0;
    const void *p = tree_out(c->side, &n);
    ssize_t w = n > 0 ? write(c->out, p, n) : 0;
    if (w < 0 && errno != EAGAIN && errno != EINTR) return gp_fail_errno(err, GP_ELOST, errno, "could not answer");
    if (w > 0) tree_sent(c->side, (size_t)w);
    return 0;
}

static int drop_control(struct carry *c, struct gp_error *err) {
    ssize_t n = read(c->control, c->buf, CARRY_BYTES);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) ? 0 : gp_fail(err, GP_ELOST, "gpuprov is gone");
}

void carry_say_alive(int fd) {
    ssize_t n = fd >= 0 ? write(fd, "\n", 1) : 0;
    (void)n; /* gpuprov that is gone is noticed elsewhere */
}

static void ping(struct carry *c) {
    tree_ping(c->side);
    carry_say_alive(c->beat);
    c->ping_at_ms = clock_deadline(c->ping_ms);
}

void carry_beat(void *ctx) {
    struct carry *c = ctx;
    struct gp_error ignored = {0};
    if (c->side == NULL) return;
    tree_looked(c->side);
    if (clock_left_ms(c->ping_at_ms) > 0) return;
    ping(c);
    (void)send_out(c, &ignored); /* a failure comes again in carry_all */
}

int carry_all(struct carry *c, struct gp_error *err) {
    c->heard_ms = clock_ms();
    c->ping_at_ms = clock_deadline(c->ping_ms);
    for (;;) {
        enum tree_state state = TREE_WAITS;
        size_t n = 0;
        int r = tree_work(c->side, &state, err);
        if (r != 0) return r;
        if (clock_left_ms(c->ping_at_ms) == 0 && state != TREE_ENDED) ping(c);
        tree_out(c->side, &n);
        if (state == TREE_ENDED && n == 0) return 0;
        bool busy = state == TREE_BUSY && n < CARRY_BYTES;
        struct pollfd p[3] = {{.fd = c->in, .events = POLLIN},
                              {.fd = n > 0 ? c->out : -1, .events = POLLOUT},
                              {.fd = c->control, .events = POLLIN}};
        int64_t silent = clock_left_ms(c->heard_ms + SILENT_MS), left = clock_left_ms(c->ping_at_ms);
        if (poll(p, 3, busy ? 0 : (int)GP_MIN(silent, left)) < 0 && errno != EINTR)
            return gp_fail_errno(err, GP_EIO, errno, "poll");
        if (p[0].revents != 0 && state != TREE_ENDED) r = take_in(c, err);
        else if (silent == 0) return gp_fail(err, GP_ELOST, "the other side was not heard for a minute");
        if (r == 0 && p[1].revents != 0) r = send_out(c, err);
        if (r == 0 && p[2].revents != 0) r = drop_control(c, err);
        if (r != 0) return r;
    }
}

void carry_last_message(struct carry *c, const struct gp_error *why) {
    struct gp_error ignored = {0};
    size_t n = 1;
    if (c->side == NULL || why->code == GP_ELOST || tree_side_remote(c->side)) return;
    tree_fail(c->side, why);
    for (int64_t end = clock_deadline(LAST_MS); n > 0 && clock_left_ms(end) > 0; tree_out(c->side, &n))
        if (gp_wait_fd(c->out, POLLOUT, end, NULL, NULL, NULL) != 0 || send_out(c, &ignored) != 0) return;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a holder. Does not start or judge it. Any thread. */
#include "base/gp_base.h"

#include "providers/local/ask.h"

#include "providers/local/local_claim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define READY_STEP_MS 20

/* Through a descriptor of the folder, since its path may be longer than a socket's name. */
static int reach(const char *dir, int *ret_fd, struct gp_error *err) {
    GP_AUTO_FD int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) return gp_fail_errno(err, GP_ENOTFOUND, errno, "could not open '%s'", dir);
    GP_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a socket");
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof sa.sun_path, "/proc/self/fd/%d/ctl", at);
    if (connect(fd, (const struct sockaddr *)&sa, sizeof sa) != 0)
        return gp_fail_errno(err, errno == ENOENT || errno == ECONNREFUSED ? GP_ENOTFOUND : GP_EIO, errno,
                             "could not reach the holder at '%s/ctl'", dir);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int local_await(const char *dir, int64_t deadline_ms, const struct gp_cancel *cancel, struct gp_error *err) {
    for (;;) {
        GP_AUTO_FD int fd = -1;
        struct gp_error why = {0};
        int r = reach(dir, &fd, &why);
        if (r == 0) return 0;
        GP_AUTO_FD int alive = r == -GP_ENOTFOUND ? local_holder_pidfd(dir) : -1;
        if (alive < 0 || clock_left_ms(deadline_ms) == 0) {
            if (err != NULL) *err = why;
            return r;
        }
        r = gp_sleep(READY_STEP_MS, cancel, err);
        if (r != 0) return r;
    }
}

static int lost(struct gp_error *err, const char *dir, const char *why) {
    return gp_fail(err, GP_EUNKNOWN, "the holder of '%s' did not answer: %s", dir, why);
}

int local_ask(const char *dir, const char *request, int64_t deadline_ms, const struct gp_cancel *cancel,
              struct str *ret, struct gp_error *err) {
    GP_AUTO_FD int fd = -1;
    int r = reach(dir, &fd, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *line = xasprintf("%s\n", request);
    for (size_t sent = 0, n = strlen(line); sent < n;) {
        struct gp_error why = {0};
        if (gp_wait_fd(fd, POLLOUT, deadline_ms, cancel, NULL, &why) != 0)
            return why.code == GP_ECANCELLED ? gp_fail(err, why.code, "%s", why.msg) : lost(err, dir, why.msg);
        ssize_t w = send(fd, line + sent, n - sent, MSG_NOSIGNAL);
        if (w < 0 && errno != EAGAIN && errno != EINTR) return lost(err, dir, strerror(errno));
        if (w > 0) sent += (size_t)w;
    }
    for (;;) {
        char buf[8192];
        struct gp_error why = {0};
        if (gp_wait_fd(fd, POLLIN, deadline_ms, cancel, NULL, &why) != 0)
            return lost(err, dir, why.msg); /* also when cancelled: it was asked already */
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return lost(err, dir, strerror(errno));
        if (n == 0) break;
        str_add_mem(ret, buf, (size_t)n);
    }
    if (ret->len == 0 || ret->s[ret->len - 1] != '\n') return lost(err, dir, "it was ended");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Dial sockets: a unix socket that answers "dial HOST PORT" with a connected descriptor
 * (SCM_RIGHTS), so that nodes in a namespace are reached without privilege. Also
 * passes such a descriptor to OpenSSH (ProxyUseFdpass). Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DIAL_MS 10000

/* A path too long for sun_path is reached through a descriptor of its folder. */
static int unix_address(const char *path, struct sockaddr_un *sa, int *ret_dir) {
    sa->sun_family = AF_UNIX;
    if (str_put(sa->sun_path, sizeof sa->sun_path, path)) return 0;
    GP_AUTO_FREE char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    if (slash == NULL) return -ENAMETOOLONG;
    *slash = '\0';
    *ret_dir = open(slash == dir ? "/" : dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*ret_dir < 0) return -errno;
    int n = snprintf(sa->sun_path, sizeof sa->sun_path, "/proc/self/fd/%d/%s", *ret_dir, slash + 1);
    return n > 0 && (size_t)n < sizeof sa->sun_path ? 0 : -ENAMETOOLONG;
}

int ssh_unix_connect(const char *path, const char *what, int *ret_fd, struct gp_error *err) {
    struct sockaddr_un sa = {0};
    GP_AUTO_FD int dir = -1;
    int r = unix_address(path, &sa, &dir);
    if (r != 0) return gp_fail_errno(err, GP_EREACH, -r, "could not reach %s '%s'", what, path);
    GP_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a socket");
    if (connect(fd, (const struct sockaddr *)&sa, sizeof sa) != 0) {
        r = gp_fail_errno(err, GP_EREACH, errno, "could not reach %s '%s'", what, path);
        if (err != NULL) err->retryable = true;
        return r;
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int dial_error(struct gp_error *err, bool retryable, const char *text) {
    int r = gp_fail(err, GP_EREACH, "%s", text);
    if (err != NULL) err->retryable = retryable;
    return r;
}

/* Reads one line and the descriptor that came with it. */
static int dial_answer(int sock, int64_t deadline_ms, const struct gp_cancel *cancel, char *line, size_t line_n,
                       int *ret_fd, struct gp_error *err) {
    size_t have = 0;
    while (have == 0 || line[have - 1] != '\n') {
        struct gp_error waited = {0};
        int r = gp_wait_fd(sock, POLLIN, deadline_ms, cancel, NULL, &waited);
        if (r == -GP_ETIMEOUT) return dial_error(err, true, "the dial socket did not answer");
        if (r != 0) return gp_fail(err, waited.code, "%s", waited.msg);
        ssize_t n = fs_recv_fd(sock, line + have, line_n - 1 - have, ret_fd);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return gp_fail_errno(err, GP_EREACH, errno, "could not read from the dial socket");
        have += (size_t)n;
        if (n == 0 || have == line_n - 1) break;
    }
    line[have] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return 0;
}

int ssh_dial(const char *socket_path, const char *host, uint16_t port, int64_t deadline_ms,
             const struct gp_cancel *cancel, int *ret_fd, struct gp_error *err) {
    GP_AUTO_FD int sock = -1;
    GP_AUTO_FD int fd = -1;
    int r = ssh_unix_connect(socket_path, "the dial socket", &sock, err);
    if (r != 0) return r;
    int64_t limit = GP_MIN(deadline_ms, clock_deadline(DIAL_MS));
    GP_AUTO_FREE char *ask = xasprintf("dial %s %u\n", host, (unsigned)port);
    /* A short write to a new socket: it fits unless the other side is gone. */
    if (send(sock, ask, strlen(ask), MSG_NOSIGNAL) != (ssize_t)strlen(ask))
        return gp_fail_errno(err, GP_EREACH, errno, "could not write to the dial socket '%s'", socket_path);
    char line[256] = "";
    r = dial_answer(sock, limit, cancel, line, sizeof line, &fd, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *where = ssh_where(host, port);
    if (str_starts(line, "error ")) {
        GP_AUTO_FREE char *text = xasprintf("could not connect to %s: %.180s", where, line + 6);
        return dial_error(err, true, text);
    }
    if (strcmp(line, "ok") != 0 || fd < 0) {
        GP_AUTO_FREE char *text =
            xasprintf("the dial socket '%.200s' returned no descriptor for %s", socket_path, where);
        return dial_error(err, true, text);
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return gp_fail_errno(err, GP_EIO, errno, "could not use the dialled descriptor");
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int ssh_dial_pass(const char *socket_path, const char *host, uint16_t port, struct gp_error *err) {
    GP_AUTO_FD int fd = -1;
    int r = ssh_dial(socket_path, host, port, clock_deadline(DIAL_MS), NULL, &fd, err);
    if (r != 0) return r;
    /* OpenSSH keeps the mode of the descriptor that it is given, and expects a blocking one. */
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return gp_fail_errno(err, GP_EIO, errno, "could not use the dialled descriptor");
    if (fs_send_fd(STDOUT_FILENO, "", 1, fd) != 1)
        return gp_fail_errno(err, GP_EIO, errno,
                             "could not pass the connection on stdout (this verb is for "
                             "ProxyCommand with ProxyUseFdpass=yes)");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Listens and connects at numeric addresses. */
#include "base/gp_base.h"

#include "tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

bool tcp_address_parse(const char *text, int port, union tcp_address *a, socklen_t *n) {
    *a = (union tcp_address){0};
    if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)port);
        *n = sizeof a->v4;
        return a->v4.sin_addr.s_addr != htonl(INADDR_ANY);
    }
    if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) != 1) return false;
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons((uint16_t)port);
    *n = sizeof a->v6;
    return !IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr);
}

int tcp_listen(const char *bind_to, int port, int *ret_port, struct gp_error *err) {
    union tcp_address a;
    socklen_t n = 0;
    int on = 1;
    if (!tcp_address_parse(bind_to, port, &a, &n)) {
        gp_fail(err, GP_EUSAGE, "'%.60s' is not an address of one interface", bind_to);
        return -1;
    }
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, &a.any, n) != 0 || listen(fd, 512) != 0 || getsockname(fd, &a.any, &n) != 0) {
        gp_fail_errno(err, GP_EIO, errno, "cannot listen on %s", bind_to);
        if (fd >= 0) close(fd);
        return -1;
    }
    *ret_port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return fd;
}

int tcp_connect(const char *to, int port, int64_t deadline_ms, struct gp_error *err) {
    union tcp_address a;
    socklen_t n = 0, len = sizeof(int);
    int on = 1, e = 0;
    if (!tcp_address_parse(to, port, &a, &n)) {
        gp_fail(err, GP_EUSAGE, "'%.60s' is not an address", to);
        return -1;
    }
    int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        gp_fail_errno(err, GP_EIO, errno, "cannot connect to %s", to);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, &a.any, n) != 0) {
        e = errno;
        if (e == EINPROGRESS) {
            int r = gp_wait_fd(fd, POLLOUT, deadline_ms, NULL, NULL, NULL);
            e = r == -GP_ETIMEOUT ? ETIMEDOUT : r != 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0 ? EIO : e;
        }
    }
    if (e == 0) return fd;
    gp_fail_errno(err, GP_EIO, e, "cannot connect to %s port %d", to, port);
    close(fd);
    return -1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of the package cache: one request, one answer. In a process of its own. */
#include "base/gp_base.h"

#include "validate/agent/cache/cache.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MS (20 * 1000) /* for the whole head */
#define SEND_MS (60 * 1000) /* without a byte taken */
#define LOOK_MS 20
#define LINGER_MS 2000

static bool send_all(int fd, const char *p, size_t n) {
    while (n > 0) {
        if (gp_wait_fd(fd, POLLOUT, clock_deadline(SEND_MS), NULL, NULL, NULL) != 0) return false;
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (k <= 0) continue;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static void reply(int fd, const char *status, const char *text) {
    GP_AUTO_FREE char *s = xasprintf("HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
                                     "Connection: close\r\n\r\n%s\n",
                                     status, strlen(text) + 1, text);
    (void)send_all(fd, s, strlen(s));
}

/* 0: the client left, was too slow or sent too much. */
static size_t read_head(int fd, char *buf) {
    int64_t end = clock_deadline(HEAD_MS);
    for (size_t have = 0; have < CACHE_HEAD_MAX;) {
        if (gp_wait_fd(fd, POLLIN, end, NULL, NULL, NULL) != 0) return 0;
        ssize_t n = recv(fd, buf + have, CACHE_HEAD_MAX - have, 0);
        if (n < 0 && errno == EAGAIN) continue;
        if (n <= 0) return 0;
        have += (size_t)n;
        size_t size = cache_head_size(buf, have);
        if (size > 0) return size;
    }
    reply(fd, "431 Request Header Fields Too Large", "at most 8 KiB");
    return 0;
}

/* Sends the file as it grows. Ends early, with bytes missing, when the fetch fails. */
static void send_file(const struct cache *c, const struct cache_request *q, int fd) {
    struct cache_file f = {.fd = -1};
    bool begun = false, alive = true;
    off_t at = 0;
    while (alive && at < q->size) {
        alive = cache_look(c, q, &f);
        if (f.fd >= 0 && f.there > at && !begun) {
            GP_AUTO_FREE char *head = xasprintf("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                                                "Content-Length: %lld\r\nConnection: close\r\n\r\n",
                                                (long long)q->size);
            alive = begun = send_all(fd, head, strlen(head));
        }
        while (alive && begun && at < f.there) {
            alive = gp_wait_fd(fd, POLLOUT, clock_deadline(SEND_MS), NULL, NULL, NULL) == 0 &&
                    (sendfile(fd, f.fd, &at, (size_t)GP_MIN(f.there - at, (int64_t)1 << 20)) > 0 || errno == EAGAIN);
        }
        /* also the end of a client that waits */
        if (alive && !f.complete && gp_wait_fd(fd, POLLRDHUP, clock_deadline(LOOK_MS), NULL, NULL, NULL) == 0) break;
    }
    if (f.fd >= 0) close(f.fd);
    if (!begun && !alive) reply(fd, "502 Bad Gateway", "the file could not be fetched, or is not what its hash names");
}

void cache_serve(const struct cache *c, int fd) {
    static char head[CACHE_HEAD_MAX];
    struct cache_request q;
    struct gp_error err = {0};
    const char *status = NULL, *why = NULL;
    size_t n = read_head(fd, head);
    if (n > 0 && !cache_request_parse(head, n, &q, &status, &why)) reply(fd, status, why);
    else if (n > 0 && !cache_origin_allowed(c, q.origin))
        reply(fd, "403 Forbidden", "no package source of this node names that host and port");
    else if (n > 0 && cache_fetch(c, &q, &err) != 0) reply(fd, "507 Insufficient Storage", err.msg);
    else if (n > 0) send_file(c, &q, fd);
    /* the answer would be lost with a reset if bytes of the request were left unread */
    shutdown(fd, SHUT_WR);
    for (int64_t end = clock_deadline(LINGER_MS); gp_wait_fd(fd, POLLIN, end, NULL, NULL, NULL) == 0;)
        if (recv(fd, head, sizeof head, 0) <= 0) break;
}

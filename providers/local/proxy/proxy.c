/* SPDX-License-Identifier: Apache-2.0 */
/* The forward proxy of a stack: HTTP to the hosts that the machine's own package sources and the spec's Python
 * indexes name (proxy_hosts.c), CONNECT also to port 443 of others, directly or through the machine's own proxy. Its
 * listening socket is made in the stack's network namespace, everything else happens in the machine's. Forked by the
 * holder before that leaves the machine's network; one process per connection, no privileges. */
#include "base/gp_base.h"

#include "providers/local/proxy/proxy.h"

#include "base/clock.h"
#include "base/fs.h"
#include "providers/local/ns/netns.h"
#include "providers/local/proxy/proxy_place.h"
#include "providers/local/proxy/proxy_request.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <poll.h>
#include <resolv.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD_MAX 16384
#define CONNECTIONS_MAX 256
#define CONNECT_MS 20000
#define IDLE_MS 120000
#define REFUSAL_MS 2000
#define REFUSAL_MAX 65536
#define NOBODY 65534

static void reply(int fd, const char *status, const char *text) {
    GP_AUTO_FREE char *s = xasprintf("HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
                                     "Connection: close\r\n\r\n%s\n",
                                     status, strlen(text) + 1, text);
    (void)send(fd, s, strlen(s), MSG_NOSIGNAL);
}

/* One try, at exactly the address that was looked at. -1: it may not be reached (*ret_place > most), or cannot be. */
static int connect_at(const struct addrinfo *a, enum proxy_place most, enum proxy_place *ret_place) {
    int e = 0;
    socklen_t n = sizeof e;
    *ret_place = proxy_place(a->ai_addr);
    if (*ret_place > most) return -1;
    GP_AUTO_FD int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS)) return -1;
    if (gp_wait_fd(fd, POLLOUT, clock_deadline(CONNECT_MS), NULL, NULL, NULL) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) != 0 || e != 0)
        return -1;
    *ret_place = proxy_place(a->ai_addr); /* it may have become one of this machine's since */
    if (*ret_place > most) return -1;
    fcntl(fd, F_SETFL, 0);
    int connected = fd;
    fd = -1;
    return connected;
}

/* Connects to the first address of the host that may be reached and answers. *ret_near: the highest place that an
 * address was refused for, else PLACE_FAR. */
static int connect_to(const char *host, const char *port, enum proxy_place most, enum proxy_place *ret_near) {
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int fd = -1;
    *ret_near = PLACE_FAR;
    if (getaddrinfo(host, port, &hint, &list) != 0) return -1;
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        enum proxy_place place = PLACE_FAR;
        fd = connect_at(a, most, &place);
        if (place > most) *ret_near = GP_MAX(*ret_near, place);
    }
    freeaddrinfo(list);
    return fd;
}

/* For a host that the machine's own proxy will look up: the highest place of its name and of the addresses that it has
 * here. A name that only that proxy can look up is far; a machine without a name server does not wait long for that. */
static enum proxy_place place_of_host(const char *host, const char *port) {
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    enum proxy_place place = proxy_name_is_near(host) ? PLACE_HERE : PLACE_FAR;
    if (res_init() == 0) _res.retrans = _res.retry = 1;
    if (getaddrinfo(host, port, &hint, &list) != 0) return place;
    for (struct addrinfo *a = list; a != NULL; a = a->ai_next) place = GP_MAX(place, proxy_place(a->ai_addr));
    freeaddrinfo(list);
    return place;
}

/* Copies from a to b, up to 64 KiB; 0: a has ended or b is gone. */
static size_t copy_some(int a, int b) {
    static char buf[65536];
    ssize_t n = read(a, buf, sizeof buf);
    return n > 0 && fs_write_all(b, buf, (size_t)n) == 0 ? (size_t)n : 0;
}

/* both: also from the client to the server (a tunnel); else the client is only watched for its end. */
static void pump(int client, int server, bool both) {
    for (;;) {
        struct pollfd p[2] = {{.fd = server, .events = POLLIN}, {.fd = client, .events = both ? POLLIN : POLLRDHUP}};
        if (poll(p, 2, IDLE_MS) <= 0) return;
        if (p[0].revents != 0 && copy_some(server, client) == 0) return;
        if (p[1].revents != 0 && (!both || copy_some(client, server) == 0)) return;
    }
}

/* Reads until the head is whole; what follows it in buf is *ret_more bytes. 0: the client left or sent too
 * much; then, or when the head is refused, there is nothing more to do. */
static size_t read_head(int client, char *buf, size_t *ret_more) {
    for (size_t have = 0; have < HEAD_MAX;) {
        bool bad = false;
        if (gp_wait_fd(client, POLLIN, clock_deadline(IDLE_MS), NULL, NULL, NULL) != 0) return 0;
        ssize_t n = read(client, buf + have, HEAD_MAX - have);
        if (n <= 0) return 0;
        have += (size_t)n;
        size_t size = proxy_head_size(buf, have, &bad);
        *ret_more = size > 0 ? have - size : 0;
        if (size > 0) return size;
        if (bad) return have; /* parsing says why */
    }
    reply(client, "431 Request Header Fields Too Large", "at most 16 KiB");
    return 0;
}

static void refuse_near(int client, enum proxy_place near) {
    reply(client, "502 Bad Gateway",
          near == PLACE_FAR ? "the machine could not reach that host"
          : near == PLACE_UNKNOWN
              ? "the machine could not find out where that host's address leads"
              : "that host is the machine itself, its link or a cloud's metadata: local nodes reach "
                "only other machines by https");
}

/* Until the server has sent something; false: the deadline has passed, or the client has left. */
static bool wait_for_server(int server, int client, int64_t deadline_ms) {
    struct pollfd p[2] = {{.fd = server, .events = POLLIN}, {.fd = client, .events = POLLRDHUP}};
    int64_t left = clock_left_ms(deadline_ms);
    return left > 0 && poll(p, 2, (int)GP_MIN(left, IDLE_MS)) > 0 && p[0].revents != 0;
}

/* A CONNECT was sent to a proxy of the machine. What the client sends is its own only in a tunnel: after a refusal that
 * proxy would take it as a request, which nothing here has looked at. So nothing of it, also not `held`, goes on before
 * the reply. */
static void serve_tunnel(int client, int server, const char *held, size_t n_held, int64_t reply_ms) {
    char buf[HEAD_MAX];
    size_t have = 0;
    int status = 0;
    for (int64_t deadline = clock_deadline(reply_ms); status == 0;) {
        bool bad = false;
        ssize_t n = 0;
        if (have < sizeof buf && wait_for_server(server, client, deadline))
            n = read(server, buf + have, sizeof buf - have);
        if (n > 0) status = proxy_reply_status(buf, have += (size_t)n, &bad);
        if (n <= 0 || bad) {
            reply(client, "502 Bad Gateway", "the machine's own proxy sent no whole HTTP reply");
            return;
        }
    }
    if (fs_write_all(client, buf, have) != 0) return;
    if (status >= 200 && status <= 299) {
        if (fs_write_all(server, held, n_held) == 0) pump(client, server, true);
        return;
    }
    int64_t deadline = clock_deadline(REFUSAL_MS);
    for (size_t sent = 0, n = 0; sent < REFUSAL_MAX && wait_for_server(server, client, deadline); sent += n)
        if ((n = copy_some(server, client)) == 0) return;
}

void proxy_serve(const struct proxy_config *cfg, int client) {
    char head[HEAD_MAX];
    size_t more = 0, size = read_head(client, head, &more);
    const char *status = NULL, *why = NULL;
    GP_AUTO_PROXY_REQUEST struct proxy_request q = {0};
    if (size == 0) return;
    if (!proxy_request_parse(head, size, &q, &status, &why)) {
        reply(client, status, why);
        return;
    }
    if (!proxy_allows(cfg, q.host, q.port, q.connect)) {
        reply(
            client, "403 Forbidden by gpuprov",
            "local nodes reach only https, and the hosts that the machine's package sources and bootstrap.python name");
        return;
    }
    struct proxy_upstream up = {0};
    proxy_upstream_for(cfg, q.host, q.connect, &up);
    /* a source may be on this machine (a mirror, a cache); nothing that answers with a cloud's metadata is one */
    enum proxy_place most = proxy_allows(cfg, q.host, q.port, false) ? PLACE_HERE : PLACE_FAR, near = PLACE_FAR;
    if (up.host[0] != '\0' && most == PLACE_FAR && place_of_host(q.host, q.port) != PLACE_FAR) {
        refuse_near(client, PLACE_HERE);
        return;
    }
    GP_AUTO_FD int server =
        up.host[0] ? connect_to(up.host, up.port, PLACE_UNKNOWN, &near) : connect_to(q.host, q.port, most, &near);
    if (server < 0) {
        refuse_near(client, near);
        return;
    }
    GP_AUTO_STR struct str out = {0};
    if (q.connect && up.host[0] == '\0') {
        static const char ok[] = "HTTP/1.1 200 Connected\r\n\r\n";
        (void)send(client, ok, sizeof ok - 1, MSG_NOSIGNAL);
    } else {
        proxy_request_build(&q, &up, &out);
    }
    bool asked = q.connect && up.host[0] != '\0';
    if (q.connect && !asked) str_add_mem(&out, head + size, more); /* after GET and HEAD nothing may follow */
    if (out.len > 0 && fs_write_all(server, out.s, out.len) != 0) return;
    if (asked) serve_tunnel(client, server, head + size, more, cfg->reply_ms);
    else pump(client, server, q.connect);
}

static int take_listener(int sock) {
    char c = 0;
    int fd = -1;
    return fs_recv_fd(sock, &c, 1, &fd) == 1 ? fd : -1;
}

/* In a user namespace with a short map nobody may not exist; what could be dropped there is little. */
static void drop_privileges(bool userns) {
    if ((setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0) &&
        !userns)
        _exit(1);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static _Noreturn void proxy_run(const struct proxy_setup *setup, int sock) {
    struct proxy_config cfg = {0};
    prctl(PR_SET_NAME, "gpuprov-proxy");
    signal(SIGPIPE, SIG_IGN);
    if (dup2(sock, 3) != 3) _exit(1);
    syscall(SYS_close_range, 4U, ~0U, 0U);
    proxy_configure(&cfg, setup);
    int listener = take_listener(3);
    close(3);
    if (listener < 0) _exit(1);
    drop_privileges(setup->userns);
    for (int children = 0;;) {
        while (children > 0 && waitpid(-1, NULL, children < CONNECTIONS_MAX ? WNOHANG : 0) > 0) children--;
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) {
            gp_sleep(20, NULL, NULL); /* out of descriptors, or the peer left already */
            continue;
        }
        pid_t pid = fork();
        if (pid == 0) {
            close(listener);
            proxy_serve(&cfg, client);
            _exit(0);
        }
        if (pid > 0) children++;
        close(client);
    }
}

int proxy_fork(const struct proxy_setup *setup, pid_t *ret_pid, int *ret_sock, struct gp_error *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not create a socket pair");
    pid_t pid = fork();
    if (pid == 0) proxy_run(setup, pair[1]);
    close(pair[1]);
    if (pid < 0) {
        int e = errno;
        close(pair[0]);
        return gp_fail_errno(err, GP_EENV, e, "could not start the package proxy");
    }
    *ret_pid = pid;
    *ret_sock = pair[0];
    return 0;
}

int proxy_give_listener(int sock, struct gp_error *err) {
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(LOCAL_PROXY_PORT)};
    inet_aton(LOCAL_GATEWAY, &sa.sin_addr);
    GP_AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&sa, sizeof sa) != 0 || listen(fd, 128) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not listen for the nodes' package requests");
    if (fs_send_fd(sock, "l", 1, fd) != 1) return gp_fail_errno(err, GP_EENV, errno, "the package proxy died at once");
    return 0;
}

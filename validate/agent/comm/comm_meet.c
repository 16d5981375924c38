/* SPDX-License-Identifier: Apache-2.0 */
/* Meeting and authentication of the ranks of the tcp communicator. Every rank listens; the controller distributes
 * rank 0's address; the higher rank opens each link, and both sides prove that they know the run's token
 * (HMAC-SHA256 over both nonces) before any data is accepted. Later data is neither secret nor signed: it is test
 * data on a private network. One thread. */
#include "base/gp_base.h"

#include "comm_tcp.h"

#include "base/clock.h"
#include "base/fs.h"
#include "tree/sha256.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PENDING_SPARE 32   /* for unknown connections, beside all ranks at once */
#define HANDSHAKE_MS 20000 /* a busy machine runs 64 of them at once */
#define RETRY_MS 50

struct hello { /* connector to listener */
    char magic[8];
    uint32_t rank, size, port, to;
    char ip[48];
    unsigned char nonce[16];
};
struct place { /* a rank's listening address */
    uint32_t port;
    char ip[48];
};
struct pending { /* a connection that is not authenticated yet */
    int fd;
    int64_t deadline_ms;
    size_t have; /* of hello, then of mac */
    bool challenged;
    struct hello hello;
    unsigned char nonce[16], mac[32];
};
struct meeting {
    struct comm *c;
    const struct comm_setup *s;
    int listener;
    uint32_t port;
    int64_t deadline_ms;
    struct place *places;
    struct pending *pending;
    struct pollfd *polled; /* the listener, then each pending */
    size_t n_pending, max_pending;
    int refused;
};

/* --- addresses --- */

bool comm_address_private(const char *ip) {
    static const struct {
        uint32_t net, mask;
    } v4[] = {{0x0a000000, 0xff000000}, {0xac100000, 0xfff00000}, {0xc0a80000, 0xffff0000},
              {0x64400000, 0xffc00000}, {0x7f000000, 0xff000000}, {0xa9fe0000, 0xffff0000}};
    struct in_addr a;
    struct in6_addr b;
    if (inet_pton(AF_INET, ip, &a) == 1) {
        uint32_t n = ntohl(a.s_addr);
        for (size_t i = 0; i < GP_ARRAY_LEN(v4); i++)
            if ((n & v4[i].mask) == v4[i].net) return true;
        return false;
    }
    if (inet_pton(AF_INET6, ip, &b) != 1) return false;
    return (b.s6_addr[0] & 0xfe) == 0xfc || IN6_IS_ADDR_LOOPBACK(&b);
}

static bool make_address(const char *ip, uint32_t port, struct sockaddr_storage *ret, socklen_t *ret_n) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    *ret = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, ip, &v4.sin_addr) == 1) {
        memcpy(ret, &v4, sizeof v4);
        *ret_n = sizeof v4;
        return true;
    }
    if (inet_pton(AF_INET6, ip, &v6.sin6_addr) != 1) return false;
    memcpy(ret, &v6, sizeof v6);
    *ret_n = sizeof v6;
    return true;
}

static void place_text(char *dst, size_t n, const char *ip, uint32_t port) {
    snprintf(dst, n, strchr(ip, ':') != NULL ? "[%s]:%u" : "%s:%u", ip, (unsigned)port);
}

static int parse_place(const char *text, struct place *ret, struct gp_error *err) {
    *ret = (struct place){0};
    const char *colon = strrchr(text, ':');
    int64_t port = 0;
    bool bracket = text[0] == '[';
    if (colon == NULL || !str_to_i64(colon + 1, 1, 65535, &port) || (bracket && colon[-1] != ']'))
        return gp_fail(err, GP_EUSAGE, "'%s' is not IP:PORT", text);
    GP_AUTO_FREE char *ip = xstrndup(text + bracket, (size_t)(colon - text) - (bracket ? 2 : 0));
    if (!str_put(ret->ip, sizeof ret->ip, ip) || !comm_address_private(ip))
        return gp_fail(err, GP_EUSAGE, "rank 0's address '%s' is not a private address", text);
    ret->port = (uint32_t)port;
    return 0;
}

static void tune(int fd) {
    int one = 1, timeout_ms = 60000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

static int listen_on(struct meeting *m, struct gp_error *err) {
    struct sockaddr_storage a;
    socklen_t n = 0;
    const char *ip = m->s->bind_ip;
    if (!comm_address_private(ip) || !make_address(ip, 0, &a, &n))
        return gp_fail(err, GP_EUSAGE, "'%s' is not a private address of this node", ip);
    m->listener = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&a, n) != 0 || listen(m->listener, 512) != 0)
        return gp_fail_errno(err, GP_EIO, errno, "cannot listen on %s", ip);
    n = sizeof a;
    if (getsockname(m->listener, (struct sockaddr *)&a, &n) != 0)
        return gp_fail_errno(err, GP_EIO, errno, "cannot listen on %s", ip);
    in_port_t port = 0;
    if (a.ss_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, &a, sizeof v4);
        port = v4.sin_port;
    } else {
        struct sockaddr_in6 v6;
        memcpy(&v6, &a, sizeof v6);
        port = v6.sin6_port;
    }
    m->port = ntohs(port);
    return 0;
}

/* --- proof --- */

static void proof(const struct meeting *m, char who, const struct hello *h, const unsigned char nonce[16],
                  unsigned char out[32]) {
    unsigned char msg[1 + sizeof *h + 16];
    msg[0] = (unsigned char)who;
    memcpy(msg + 1, h, sizeof *h);
    memcpy(msg + 1 + sizeof *h, nonce, 16);
    hmac_sha256(m->s->token, m->s->token_len, msg, sizeof msg, out);
}

static int move_all(int fd, bool out, void *p, size_t n, int64_t deadline_ms, struct gp_error *err) {
    char *b = p;
    while (n > 0) {
        int r = gp_wait_fd(fd, out ? POLLOUT : POLLIN, deadline_ms, NULL, NULL, err);
        if (r != 0) return r;
        ssize_t k = out ? send(fd, b, n, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, b, n, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (k <= 0) return gp_fail(err, GP_ELOST, "the connection ended");
        b += k;
        n -= (size_t)k;
    }
    return 0;
}

/* One attempt. -GP_EREACH: not listening yet. */
static int dial_once(struct meeting *m, const struct place *to, int *ret_fd, struct gp_error *err) {
    struct sockaddr_storage a;
    socklen_t n = 0;
    if (!make_address(to->ip, to->port, &a, &n)) return gp_fail(err, GP_EPROTO, "'%s' is not an address", to->ip);
    GP_AUTO_FD int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot create a socket");
    int e = connect(fd, (struct sockaddr *)&a, n) == 0 ? 0 : errno;
    if (e == EINPROGRESS) {
        int r = gp_wait_fd(fd, POLLOUT, m->deadline_ms, NULL, NULL, err);
        if (r != 0) return r;
        socklen_t en = sizeof e;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &en);
    }
    if (e != 0) return gp_fail_errno(err, GP_EREACH, e, "%s:%u", to->ip, (unsigned)to->port);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int dial(struct meeting *m, int rank, const struct place *to, struct gp_error *err) {
    int fd = -1, r = 0;
    for (;;) {
        struct gp_error once = {0};
        r = dial_once(m, to, &fd, &once);
        if (r == 0) break;
        if (r != -GP_EREACH || clock_left_ms(m->deadline_ms) == 0) {
            gp_fail(err, GP_ELOST, "cannot connect to rank %d (%s:%u): %s", rank, to->ip, (unsigned)to->port, once.msg);
            comm_blame(err, rank);
            return -GP_ELOST;
        }
        gp_sleep(RETRY_MS, NULL, NULL);
    }
    tune(fd);
    struct hello h = {.magic = {'G', 'P', 'U', 'P', 'R', 'O', 'V', '1'},
                      .rank = (uint32_t)m->c->rank,
                      .size = (uint32_t)m->c->size,
                      .port = m->port,
                      .to = (uint32_t)rank};
    unsigned char nonce[16], mine[32], theirs[32], want[32];
    struct gp_error own = {0};
    str_put(h.ip, sizeof h.ip, m->s->bind_ip);
    r = fs_random(h.nonce, sizeof h.nonce, &own);
    if (r == 0) r = move_all(fd, true, &h, sizeof h, m->deadline_ms, &own);
    if (r == 0) r = move_all(fd, false, nonce, sizeof nonce, m->deadline_ms, &own);
    proof(m, 'C', &h, nonce, mine);
    if (r == 0) r = move_all(fd, true, mine, sizeof mine, m->deadline_ms, &own);
    if (r == 0) r = move_all(fd, false, theirs, sizeof theirs, m->deadline_ms, &own);
    proof(m, 'L', &h, nonce, want);
    if (r == -GP_ETIMEOUT) { /* the kernel takes connections for a process that is stopped */
        close(fd);
        gp_fail(err, GP_ELOST, "rank %d (%s:%u) was connected to, but did not answer", rank, to->ip,
                (unsigned)to->port);
        comm_blame(err, rank);
        return -GP_ELOST;
    }
    if (r != 0 || !mem_equal_ct(theirs, want, sizeof want)) {
        close(fd);
        return gp_fail(err, GP_EAUTH, "rank %d (%s:%u) refused this rank's token%s%s", rank, to->ip, (unsigned)to->port,
                       r != 0 ? ": " : "", own.msg);
    }
    m->c->links[rank].fd = fd;
    place_text(m->c->links[rank].addr, sizeof m->c->links[rank].addr, to->ip, to->port);
    return 0;
}

/* --- the listening side: many connections at once, some of them foreign --- */

static void drop(struct meeting *m, size_t i, bool refused) {
    close(m->pending[i].fd);
    m->pending[i] = m->pending[--m->n_pending];
    m->refused += refused;
}

static bool hello_good(const struct meeting *m, const struct hello *h) {
    return memcmp(h->magic, "GPUPROV1", 8) == 0 && h->size == (uint32_t)m->c->size && h->to == (uint32_t)m->c->rank &&
           h->rank > (uint32_t)m->c->rank && h->rank < h->size && m->c->links[h->rank].fd < 0 &&
           memchr(h->ip, 0, sizeof h->ip) != NULL && comm_address_private(h->ip) && h->port > 0 && h->port < 65536;
}

static void welcome(struct meeting *m, size_t i) {
    struct pending *p = &m->pending[i];
    unsigned char want[32], mine[32];
    proof(m, 'C', &p->hello, p->nonce, want);
    proof(m, 'L', &p->hello, p->nonce, mine);
    bool ok = mem_equal_ct(want, p->mac, sizeof want) && m->c->links[p->hello.rank].fd < 0 &&
              send(p->fd, mine, sizeof mine, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof mine;
    if (!ok) {
        drop(m, i, true);
        return;
    }
    struct link *l = &m->c->links[p->hello.rank];
    l->fd = p->fd;
    place_text(l->addr, sizeof l->addr, p->hello.ip, p->hello.port);
    m->places[p->hello.rank].port = p->hello.port;
    str_put(m->places[p->hello.rank].ip, sizeof m->places[0].ip, p->hello.ip);
    m->pending[i] = m->pending[--m->n_pending];
}

/* Reads from a connection that is not authenticated yet. */
static void hear(struct meeting *m, size_t i) {
    struct pending *p = &m->pending[i];
    char *base = p->challenged ? (char *)p->mac : (char *)&p->hello;
    size_t want = p->challenged ? sizeof p->mac : sizeof p->hello;
    ssize_t n = recv(p->fd, base + p->have, want - p->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        drop(m, i, true);
        return;
    }
    p->have += (size_t)n;
    if (p->have < want) return;
    p->have = 0;
    if (p->challenged) {
        welcome(m, i);
        return;
    }
    p->challenged = true;
    if (!hello_good(m, &p->hello) || fs_random(p->nonce, sizeof p->nonce, NULL) != 0 ||
        send(p->fd, p->nonce, sizeof p->nonce, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof p->nonce)
        drop(m, i, true);
}

static void let_in(struct meeting *m) {
    int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    tune(fd);
    if (m->n_pending == m->max_pending) drop(m, 0, true);
    m->pending[m->n_pending++] = (struct pending){.fd = fd, .deadline_ms = clock_deadline(HANDSHAKE_MS)};
}

static int missing_rank(const struct meeting *m) {
    for (int r = m->c->rank + 1; r < m->c->size; r++)
        if (m->c->links[r].fd < 0) return r;
    return -1;
}

static int accept_higher(struct meeting *m, struct gp_error *err) {
    while (missing_rank(m) >= 0) {
        struct pollfd *p = m->polled;
        size_t n = m->n_pending;
        p[0] = (struct pollfd){.fd = m->listener, .events = POLLIN};
        for (size_t i = 0; i < n; i++) p[i + 1] = (struct pollfd){.fd = m->pending[i].fd, .events = POLLIN};
        poll(p, (nfds_t)n + 1, (int)GP_MIN(200, clock_left_ms(m->deadline_ms)));
        for (size_t i = n; i-- > 0;) { /* from the end: drop moves the last one into the gap */
            if (p[i + 1].revents != 0) hear(m, i);
            else if (clock_left_ms(m->pending[i].deadline_ms) == 0) drop(m, i, true);
        }
        if (p[0].revents != 0) let_in(m);
        if (missing_rank(m) < 0 || clock_left_ms(m->deadline_ms) > 0) continue;
        GP_AUTO_FREE char *note =
            m->refused > 0 ? xasprintf("; %d connections without the token were refused", m->refused) : xstrdup("");
        int rank = missing_rank(m);
        gp_fail(err, GP_ELOST, "rank %d did not connect to %s in time%s", rank, m->s->bind_ip, note);
        comm_blame(err, rank);
        return -GP_ELOST;
    }
    return 0;
}

/* --- the order of the meeting --- */

static int rank_zero(struct meeting *m, struct gp_error *err) {
    char addr[80];
    place_text(addr, sizeof addr, m->s->bind_ip, m->port);
    if (m->s->on_listen != NULL) m->s->on_listen(m->s->ctx, addr);
    int r = accept_higher(m, err);
    size_t n = (size_t)m->c->size * sizeof *m->places;
    for (int k = 1; k < m->c->size && r == 0; k++) r = comm_exchange(m->c, k, m->places, n, -1, NULL, 0, err);
    return r;
}

static int other_rank(struct meeting *m, struct gp_error *err) {
    struct place zero;
    int r = parse_place(m->s->rendezvous, &zero, err);
    if (r == 0) r = dial(m, 0, &zero, err);
    size_t n = (size_t)m->c->size * sizeof *m->places;
    if (r == 0) r = comm_exchange(m->c, -1, NULL, 0, 0, m->places, n, err);
    for (int k = 1; k < m->c->rank && r == 0; k++) {
        m->places[k].ip[sizeof m->places[k].ip - 1] = '\0';
        if (!comm_address_private(m->places[k].ip))
            return gp_fail(err, GP_EPROTO, "rank 0 sent an address of rank %d that is not private", k);
        r = dial(m, k, &m->places[k], err);
    }
    return r == 0 ? accept_higher(m, err) : r;
}

int comm_meet(struct comm *c, const struct comm_setup *s, struct gp_error *err) {
    struct meeting m = {
        .c = c, .s = s, .listener = -1, .deadline_ms = GP_MIN(c->deadline_ms, clock_deadline(s->meet_ms))};
    m.places = xcalloc((size_t)c->size, sizeof *m.places);
    m.max_pending = (size_t)c->size + PENDING_SPARE;
    m.pending = xcalloc(m.max_pending, sizeof *m.pending);
    m.polled = xcalloc(m.max_pending + 1, sizeof *m.polled);
    c->meeting = true;
    int r = listen_on(&m, err);
    if (r == 0) r = c->rank == 0 ? rank_zero(&m, err) : other_rank(&m, err);
    while (m.n_pending > 0) drop(&m, 0, false);
    if (m.listener >= 0) close(m.listener);
    free(m.places);
    free(m.pending);
    free(m.polled);
    c->meeting = false;
    return r;
}

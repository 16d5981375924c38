/* SPDX-License-Identifier: Apache-2.0 */
/* Folders from node to node: `share` gives a listed folder to whoever knows the token, one process per connection,
 * until gpuprov closes its stdin; `fetch` takes it. Both prove that they know the token, which is never sent. The
 * content is not encrypted here; gpuprov compares its hashes over SSH afterwards. */
#include "base/gp_base.h"

#include "validate/agent/tree/carry.h"

#include "base/fs.h"
#include "tree/sha256.h"
#include "validate/agent/base/tcp.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIST_MAX ((size_t)1 << 30)
#define MEET_MS (10 * 1000)
#define CONNECTIONS_MAX 16 /* gpuprov sends few at a time to one node */
#define NONCE 32

/* --- the token --- */

static bool send_all(int fd, const void *p, size_t n, int64_t end) {
    const char *b = p;
    while (n > 0) {
        if (gp_wait_fd(fd, POLLOUT, end, NULL, NULL, NULL) != 0) return false;
        ssize_t w = send(fd, b, n, MSG_NOSIGNAL);
        if (w < 0 && errno != EAGAIN && errno != EINTR) return false;
        b += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
    return true;
}

static bool recv_all(int fd, void *p, size_t n, int64_t end) {
    char *b = p;
    while (n > 0) {
        if (gp_wait_fd(fd, POLLIN, end, NULL, NULL, NULL) != 0) return false;
        ssize_t got = recv(fd, b, n, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
        b += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

static void proof(const struct tree_request *q, char role, const unsigned char mine[NONCE],
                  const unsigned char yours[NONCE], unsigned char ret[32]) {
    unsigned char text[1 + 2 * NONCE];
    text[0] = (unsigned char)role;
    memcpy(text + 1, mine, NONCE);
    memcpy(text + 1 + NONCE, yours, NONCE);
    hmac_sha256(q->token, sizeof q->token, text, sizeof text, ret);
}

/* Both sides send a nonce, then a proof over both; the caller of the connection proves first. */
static bool meet(const struct tree_request *q, int fd, bool caller) {
    unsigned char mine[NONCE], yours[NONCE], sent[32], want[32], got[32];
    int64_t end = clock_deadline(MEET_MS);
    if (fs_random(mine, sizeof mine, NULL) != 0 || !send_all(fd, mine, sizeof mine, end) ||
        !recv_all(fd, yours, sizeof yours, end))
        return false;
    proof(q, caller ? 'c' : 's', mine, yours, sent);
    proof(q, caller ? 's' : 'c', yours, mine, want);
    if (caller && !send_all(fd, sent, sizeof sent, end)) return false;
    if (!recv_all(fd, got, sizeof got, end) || !mem_equal_ct(got, want, sizeof got)) return false;
    return caller || send_all(fd, sent, sizeof sent, end);
}

/* --- share --- */

struct share {
    const struct tree_request *q;
    char *root;
    unsigned char *list;
    size_t n;
};

/* In a process of its own. */
static void give(const struct share *s, int fd, unsigned char *buf) {
    struct carry c = {.in = fd, .out = fd, .control = -1, .ping_ms = CARRY_PING_MS, .beat = -1, .buf = buf};
    struct gp_error err = {0};
    if (!meet(s->q, fd, false) || tree_giver_listed(s->root, s->list, s->n, &c.side, &err) != 0) return;
    if (carry_all(&c, &err) != 0) carry_last_message(&c, &err);
    tree_side_free(c.side);
}

static void say_alive(int64_t *at) {
    if (clock_left_ms(*at) > 0) return;
    carry_say_alive(STDOUT_FILENO);
    *at = clock_deadline(CARRY_PING_MS);
}

static int read_list(struct share *s, unsigned char *buf, size_t have, struct gp_error *err) {
    size_t cap = GP_MAX(2 * have, CARRY_BYTES), at = 0;
    bool whole = false;
    s->list = xmalloc(cap);
    memcpy(s->list, buf, have);
    s->n = have;
    for (int64_t alive_at = clock_deadline(CARRY_PING_MS);;) {
        say_alive(&alive_at);
        int r = tree_list_scan(s->list, s->n, &at, &whole, err);
        if (r != 0) return r;
        if (whole) {
            s->n = at;
            return 0;
        }
        if (s->n == cap) {
            if (cap > LIST_MAX) return gp_fail(err, GP_EPROTO, "the list is too long");
            cap *= 2;
            s->list = xrealloc(s->list, cap);
        }
        if (gp_wait_fd(STDIN_FILENO, POLLIN, clock_deadline(60 * 1000), NULL, NULL, NULL) != 0)
            return gp_fail(err, GP_ELOST, "the list did not come");
        ssize_t n = read(STDIN_FILENO, s->list + s->n, cap - s->n);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return gp_fail(err, GP_ELOST, "gpuprov is gone");
        s->n += n > 0 ? (size_t)n : 0;
    }
}

static void accept_one(const struct share *s, int listener, unsigned char *buf, int *children) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(listener);
        give(s, fd, buf);
        _exit(0);
    }
    if (pid > 0) ++*children;
    close(fd);
}

int tree_share(const struct tree_request *q, unsigned char *buf, size_t have, struct gp_error *err) {
    GP_AUTO_FREE char *root = carry_home_path(q->path);
    struct share s = {.q = q, .root = root};
    int port = 0, children = 0;
    int r = read_list(&s, buf, have, err);
    GP_AUTO_FREE unsigned char *list = s.list;
    GP_AUTO_FD int listener = r == 0 ? tcp_listen(q->peer, 0, &port, err) : -1;
    if (r != 0 || listener < 0) return r != 0 ? r : -(int)err->code;
    size_t n = 0;
    GP_AUTO_FREE void *answer = tree_answer_bytes((uint64_t)port, NULL, &n);
    if (fs_write_all(STDOUT_FILENO, answer, n) != 0) return gp_fail(err, GP_ELOST, "gpuprov is gone");
    for (int64_t alive_at = clock_deadline(CARRY_PING_MS);;) {
        say_alive(&alive_at);
        while (children > 0 && waitpid(-1, NULL, WNOHANG) > 0) children--;
        bool room = children < CONNECTIONS_MAX;
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = room ? listener : -1, .events = POLLIN}};
        if (poll(p, 2, 200) < 0 && errno != EINTR) return gp_fail_errno(err, GP_EIO, errno, "poll");
        if (p[0].revents != 0) {
            ssize_t got = read(STDIN_FILENO, buf, CARRY_BYTES);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return 0; /* the children end with this */
        }
        if (p[1].revents != 0) accept_one(&s, listener, buf, &children);
    }
}

/* --- fetch --- */

int tree_fetch(const struct tree_request *q, unsigned char *buf, uint64_t *ret_bytes, struct gp_error *err) {
    GP_AUTO_FREE char *root = carry_home_path(q->path);
    GP_AUTO_FD int fd = tcp_connect(q->peer, q->port, clock_deadline(MEET_MS), err);
    if (fd < 0) return -(int)err->code;
    if (!meet(q, fd, true)) return gp_fail(err, GP_EIO, "the node at %s does not know the token", q->peer);
    struct carry c = {
        .in = fd, .out = fd, .control = STDIN_FILENO, .ping_ms = CARRY_PING_MS, .beat = STDOUT_FILENO, .buf = buf};
    const struct tree_take_opts take = {
        .root = root, .mirror = q->mirror, .by_hash = q->by_hash, .id = q->id, .beat = {carry_beat, &c}};
    const struct tree_expect expect = tree_expect_list(q->list);
    c.side = tree_taker(&take, &expect);
    tree_side_greet(c.side);
    tree_side_expect(c.side);
    int r = carry_all(&c, err);
    if (r != 0) carry_last_message(&c, err);
    *ret_bytes = tree_side_stats(c.side)->bytes_sent;
    tree_side_free(c.side);
    return r;
}

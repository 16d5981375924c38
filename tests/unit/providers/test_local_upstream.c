// SPDX-License-Identifier: Apache-2.0
/* A node's CONNECT through a proxy of the machine: that proxy gets what the node sends only once it made the tunnel. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/str.h"
#include "providers/local/proxy/proxy.h"
#include "providers/local/proxy/proxy_request.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CONNECT "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\r\n"
#define SECOND "GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n"
#define WAIT_MS 20000
#define QUIET_MS 200

/* One connection: the test is the node (client) and the proxy of the machine (server). */
struct world {
    int client, server;
    pid_t pid;
};

/* The proxy of the machine is asked for far.example; the node sends `behind` together with its CONNECT. */
static struct world begin(const char *behind, int64_t reply_ms) {
    struct world w = {-1, -1, -1};
    int pair[2];
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    inet_aton("127.0.0.1", &a.sin_addr);
    GP_AUTO_FD int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    w.pid = fork();
    assert_true(w.pid >= 0);
    if (w.pid == 0) {
        struct proxy_config cfg = {.reply_ms = reply_ms};
        struct proxy_rule rule = {true, xstrdup(""), xasprintf("http://127.0.0.1:%d", ntohs(a.sin_port))};
        signal(SIGPIPE, SIG_IGN);
        alarm(60);
        vec_push(&cfg.rules, rule);
        strv_add(&cfg.allowed, "far.example:443"); /* wherever that leads: no name server is needed */
        close(pair[0]);
        close(listener);
        proxy_serve(&cfg, pair[1]);
        proxy_config_clear(&cfg);
        _exit(0);
    }
    close(pair[1]);
    w.client = pair[0];
    GP_AUTO_FREE char *first = xasprintf(CONNECT "%s", behind);
    assert_int_equal(fs_write_all(w.client, first, strlen(first)), 0);
    struct pollfd p = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    w.server = accept(listener, NULL, NULL);
    assert_true(w.server >= 0);
    return w;
}

static void put(int fd, const char *text) { assert_int_equal(fs_write_all(fd, text, strlen(text)), 0); }

/* Exactly this comes next. */
static void expect(int fd, const char *text) {
    char got[1024] = "";
    size_t n = 0, want = strlen(text);
    assert_true(want < sizeof got);
    while (n < want) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, WAIT_MS) != 1) fail_msg("no more than '%s'", got);
        ssize_t r = read(fd, got + n, want - n);
        if (r <= 0) fail_msg("the end behind '%s'", got);
        n += (size_t)r;
    }
    assert_string_equal(got, text);
}

static void expect_quiet(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, QUIET_MS), 0);
}

/* The end, with nothing before it. */
static void expect_end(int fd) {
    char got[200] = "";
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    if (read(fd, got, sizeof got - 1) > 0) fail_msg("'%s' instead of the end", got);
}

/* The process has ended by itself, and each side sees that. */
static void finish(struct world *w) {
    int status = 0;
    expect_end(w->server);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(w->client);
    close(w->server);
}

/* The node has got a 502 of gpuprov's own and the end. */
static void expect_502(struct world *w) {
    char got[1000] = "";
    size_t n = 0;
    ssize_t r = 0;
    struct pollfd p = {.fd = w->client, .events = POLLIN};
    while (poll(&p, 1, WAIT_MS) == 1 && (r = read(w->client, got + n, sizeof got - 1 - n)) > 0) n += (size_t)r;
    if (!str_starts(got, "HTTP/1.1 502 Bad Gateway\r\n")) fail_msg("'%s'", got);
    finish(w);
}

static void test_after_a_refusal_nothing_goes_on(void **state) {
    (void)state;
    static const char *const refusals[] = {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\n",
                                           "HTTP/1.0 407 Proxy Authentication Required\n\n",
                                           "HTTP/1.1 302\r\nLocation:\thttp://login/\r\n\r\n",
                                           "HTTP/1.1 101 Switching Protocols\r\n\r\n",
                                           "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n"};
    for (size_t i = 0; i < GP_ARRAY_LEN(refusals) * 2; i++) {
        bool together = i % 2 == 0; /* the second request comes with the CONNECT, or after the refusal */
        struct world w = begin(together ? SECOND : "", WAIT_MS);
        expect(w.server, CONNECT);
        expect_quiet(w.server);
        put(w.server, refusals[i / 2]);
        expect(w.client, refusals[i / 2]);
        put(w.server, "no route\n");
        expect(w.client, "no route\n");
        if (!together) put(w.client, SECOND);
        if (i >= 2) { /* the first two wait for the end of what may be a long body */
            expect_quiet(w.server);
            close(w.client);
            w.client = -1;
        }
        finish(&w); /* the proxy of the machine sees the end, and no second request before it */
    }
}

static void test_a_refusal_has_a_bounded_body(void **state) {
    (void)state;
    static char block[65536];
    struct world w = begin("", WAIT_MS);
    size_t sent = 0, got = 0;
    ssize_t n = 0;
    expect(w.server, CONNECT);
    put(w.server, "HTTP/1.1 403 Forbidden\r\n\r\n");
    signal(SIGPIPE, SIG_IGN);
    for (bool open = true; open && sent < (size_t)64 << 20;) {
        struct pollfd p[2] = {{.fd = w.server, .events = POLLOUT}, {.fd = w.client, .events = POLLIN}};
        assert_true(poll(p, 2, WAIT_MS) > 0);
        if (p[1].revents != 0) {
            n = read(w.client, block, sizeof block);
            open = n > 0;
            got += open ? (size_t)n : 0;
        }
        if (open && p[0].revents != 0 && (n = send(w.server, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
            sent += (size_t)n;
    }
    assert_true(got > 0 && got < 1 << 20);
    finish(&w);
}

static void test_a_tunnel_loses_no_byte(void **state) {
    (void)state;
    static const char *const made[] = {"HTTP/1.1 200 Connected\r\n\r\n",
                                       "HTTP/1.0 200 Connection established\r\nA: \tb\n\n", "HTTP/1.1 204\r\n\r\n",
                                       "HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"};
    for (size_t i = 0; i < GP_ARRAY_LEN(made); i++) {
        struct world w = begin("early", WAIT_MS);
        expect(w.server, CONNECT);
        put(w.client, " and later");
        expect_quiet(w.server);
        GP_AUTO_FREE char *reply = xasprintf("%shello\n\n", made[i]); /* the other side speaks first */
        put(w.server, reply);
        expect(w.client, reply);
        expect(w.server, "early and later");
        put(w.server, "down");
        expect(w.client, "down");
        put(w.client, SECOND); /* a tunnel is the node's own */
        expect(w.server, SECOND);
        close(w.client);
        w.client = -1;
        finish(&w);
    }
    /* a head in pieces of one byte */
    struct world w = begin("early", WAIT_MS);
    expect(w.server, CONNECT);
    for (const char *p = made[3]; *p != '\0'; p++) {
        const char one[] = {*p, '\0'};
        if (p[1] == '\0') expect_quiet(w.server);
        if (p[1] == '\0') expect_quiet(w.client);
        put(w.server, one);
    }
    expect(w.client, made[3]);
    expect(w.server, "early");
    close(w.server);
    close(w.client);
    waitpid(w.pid, NULL, 0);
}

static void test_no_whole_reply_ends_the_connection(void **state) {
    (void)state;
    static const char *const cut[] = {
        "",           "HTTP/1.1 200 Connected\r\n",    "HTTP/1.1 200 Connected\r\n\r",
        "HTTP/1.1 2", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"};
    for (size_t i = 0; i < GP_ARRAY_LEN(cut) * 2; i++) {
        bool closes = i % 2 == 0; /* else it stays open and sends nothing more */
        struct world w = begin(SECOND, closes ? WAIT_MS : 300);
        expect(w.server, CONNECT);
        put(w.server, cut[i / 2]);
        if (closes) shutdown(w.server, SHUT_WR);
        expect_502(&w);
    }
    static const char *const other[] = {"SSH-2.0-x\r\n\r\n",
                                        "HTTP/1.1 20\r\n\r\n",
                                        "HTTP/1.1 2000\r\n\r\n",
                                        "\r\n\r\n",
                                        "HTTP/1.1 -20 x\r\n\r\n",
                                        "HTTP/1.1 099 x\r\n\r\n",
                                        "HTTP/2 200 OK\r\n\r\n",
                                        "HTTP/1.1\r\nA: 200 OK\r\n\r\n",
                                        "HTTP/1.1 100 C\r\n\r\nx 200 OK\r\n\r\n"};
    for (size_t i = 0; i < GP_ARRAY_LEN(other); i++) {
        struct world w = begin(SECOND, WAIT_MS);
        expect(w.server, CONNECT);
        put(w.server, other[i]);
        expect_502(&w);
    }
}

static void test_a_head_without_end(void **state) {
    (void)state;
    struct world w = begin(SECOND, WAIT_MS);
    expect(w.server, CONNECT);
    put(w.server, "HTTP/1.1 200 Connected\r\nA: ");
    GP_AUTO_FREE char *much = xcalloc(1, 16384);
    memset(much, 'a', 16383);
    put(w.server, much);
    /* bytes that nobody reads: the end comes as a reset, so the node's side is looked at alone */
    char got[200] = "";
    struct pollfd p = {.fd = w.client, .events = POLLIN};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
    assert_true(read(w.client, got, sizeof got - 1) > 0);
    assert_true(str_starts(got, "HTTP/1.1 502 "));
    finish(&w);
    /* a byte now and then does not put the end off */
    w = begin(SECOND, 600);
    expect(w.server, CONNECT);
    put(w.server, "HTTP/1.1 200 Connected\r\nA: ");
    p.fd = w.client;
    int turns = 0;
    while (poll(&p, 1, 100) == 0 && turns++ < 100) (void)send(w.server, "a", 1, MSG_NOSIGNAL);
    assert_true(turns < 100);
    expect_502(&w);
}

static void test_a_node_that_leaves_ends_the_wait(void **state) {
    (void)state;
    struct world w = begin("", (int64_t)3600 * 1000);
    expect(w.server, CONNECT);
    close(w.client);
    w.client = -1;
    finish(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_after_a_refusal_nothing_goes_on),
                                       cmocka_unit_test(test_a_refusal_has_a_bounded_body),
                                       cmocka_unit_test(test_a_tunnel_loses_no_byte),
                                       cmocka_unit_test(test_no_whole_reply_ends_the_connection),
                                       cmocka_unit_test(test_a_head_without_end),
                                       cmocka_unit_test(test_a_node_that_leaves_ends_the_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Opening sessions against a real sshd: keys, agents, host keys, and everything that can go wrong on
 * the way in. */
#include "ssh_fixture.h"

#include <pthread.h>
#include <sys/un.h>

static void ok_command(struct ssh_session *s) {
    struct gp_error err = {0};
    GP_AUTO_STR struct str out = {0};
    if (ssh_run(s, "a test", "echo hello", NULL, &out, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(out.s, "hello\n");
}

static void expect_open(const struct ssh_target *t) {
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    if (fx_open(t, 30000, &s, &err) != 0) fail_msg("%s", err.msg);
    ok_command(s);
}

static void expect_refused(const struct ssh_target *t, enum gp_code code, const char *detail, const char *part) {
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    assert_int_equal(fx_open(t, 30000, &s, &err), -(int)code);
    assert_null(s);
    assert_int_equal(err.code, code);
    assert_string_equal(err.detail, detail);
    assert_contains(err.msg, part);
    assert_int_equal(strncmp(err.msg, "llm/1: ", 7), 0);
}

static void test_login_keys(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    expect_open(&t);
    static const char *const types[][3] = {{"k_ecdsa", "-b", "256"}, {"k_ecdsa521", "-b", "521"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(types); i++) {
        GP_AUTO_FREE char *path = fx_path(types[i][0]);
        GP_AUTO_FREE char *pub = xasprintf("%s.pub", path);
        GP_AUTO_FREE char *keys = fx_path("authorized_keys");
        assert_int_equal(RUN("ssh-keygen", "-q", "-t", "ecdsa", "-b", types[i][2], "-N", "", "-f", path), 0);
        GP_AUTO_FREE char *line = fx_read(pub);
        GP_AUTO_FREE char *before = fx_read(keys);
        GP_AUTO_FREE char *all = xasprintf("%s\n%s\n", before, line);
        fx_write(keys, all, 0600);
        fx_set(&t.key_path, path);
        expect_open(&t);
    }
    /* The same ECDSA key in the old PEM form. */
    GP_AUTO_FREE char *path = fx_path("k_ecdsa");
    assert_int_equal(RUN("ssh-keygen", "-q", "-p", "-m", "PEM", "-N", "", "-P", "", "-f", path), 0);
    fx_set(&t.key_path, path);
    expect_open(&t);
}

static void test_key_in_memory_wins(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    GP_AUTO_STR struct str pem = {0};
    assert_int_equal(fs_read(t.key_path, 65536, &pem, NULL), 0);
    secret_set(&t.key_pem, pem.s, pem.len);
    fx_set(&t.key_path, "/nonexistent/key");
    expect_open(&t);
    GP_AUTO_SSH_TARGET struct ssh_target copy = {0};
    ssh_target_copy(&copy, &t);
    expect_open(&copy);
    /* A key that gpuprov made itself. */
    GP_AUTO_FREE char *pub = NULL;
    GP_AUTO_FREE char *keys = fx_path("authorized_keys");
    assert_int_equal(ssh_key_make("made here", &t.key_pem, &pub, NULL), 0);
    expect_refused(&t, GP_EAUTH, "LOGIN", "was refused; tried gpuprov's own key (SHA256:");
    GP_AUTO_FREE char *before = fx_read(keys);
    GP_AUTO_FREE char *all = xasprintf("%s\n%s\n", before, pub);
    fx_write(keys, all, 0600);
    expect_open(&t);
}

static void test_bad_keys(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    fx_user_key("stranger", "ed25519", "", false);
    GP_AUTO_FREE char *stranger = fx_path("stranger");
    fx_set(&t.key_path, stranger);
    expect_refused(&t, GP_EAUTH, "LOGIN", "authorized_keys");
    assert_int_equal(chmod(stranger, 0644), 0);
    expect_refused(&t, GP_EAUTH, "KEY", "chmod 600");
    fx_set(&t.key_path, "/nonexistent/key");
    expect_refused(&t, GP_EAUTH, "KEY", "could not read '/nonexistent/key'");
    GP_AUTO_FREE char *junk = fx_path("junk");
    fx_write(junk, "not a key\n", 0600);
    fx_set(&t.key_path, junk);
    expect_refused(&t, GP_EAUTH, "KEY", "is not a private key");
    fx_write(junk, "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n", 0600);
    expect_refused(&t, GP_EAUTH, "KEY", "cut short");
    GP_AUTO_FREE char *pub = fx_path("id_ed25519.pub");
    assert_int_equal(chmod(pub, 0600), 0);
    fx_set(&t.key_path, pub);
    expect_refused(&t, GP_EAUTH, "KEY", "is a public key");
    free(t.key_path);
    t.key_path = NULL;
    expect_refused(&t, GP_EAUTH, "KEY", "access.key");
    t.use_agent = true;
    expect_refused(&t, GP_EAUTH, "KEY", "SSH_AUTH_SOCK");
}

static void test_rsa_key(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    fx_user_key("id_rsa", "rsa", "", true);
    GP_AUTO_FREE char *path = fx_path("id_rsa");
    fx_set(&t.key_path, path);
    if (ssh_rsa_ok()) {
        expect_open(&t);
        return;
    }
    expect_refused(&t, GP_EAUTH, "KEY", "use an ed25519 key");
    assert_int_equal(RUN("ssh-keygen", "-q", "-p", "-m", "PEM", "-N", "", "-P", "", "-f", path), 0);
    expect_refused(&t, GP_EAUTH, "KEY", "libssh2 1.11");
    /* The server's own key is RSA only. */
    struct sshd rsa = {0};
    fx_sshd_start(&rsa, "rsa", "rsa", "");
    GP_AUTO_SSH_TARGET struct ssh_target h = {0};
    fx_target(&h, &rsa);
    expect_refused(&h, GP_EREACH, "KEX", "RSA host key");
    fx_sshd_clear(&rsa);
}

/* Starts an ssh-agent and points the environment at it. */
static pid_t agent_start(char **ret_socket) {
    GP_AUTO_FREE char *sock = fx_path("agent.sock");
    unlink(sock);
    char prog[] = "ssh-agent", d[] = "-D", a[] = "-a";
    char *argv[] = {prog, d, a, sock, NULL};
    posix_spawn_file_actions_t fa;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    pid_t pid = 0;
    assert_int_equal(posix_spawnp(&pid, prog, &fa, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&fa);
    while (!fs_exists(sock)) usleep(2000);
    assert_int_equal(setenv("SSH_AUTH_SOCK", sock, 1), 0);
    *ret_socket = GP_STEAL(sock);
    return pid;
}

static void test_agent(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *sock = NULL;
    pid_t pid = agent_start(&sock);
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    GP_AUTO_FREE char *good = xstrdup(t.key_path);
    free(t.key_path);
    t.key_path = NULL;
    t.use_agent = true;
    GP_AUTO_FREE char *line = NULL;
    assert_int_equal(ssh_agent_public(&line, NULL), -GP_ENOTFOUND);
    expect_refused(&t, GP_EAUTH, "KEY", "no key to log in with");
    GP_AUTO_FREE char *stranger = fx_path("agent_stranger");
    fx_user_key("agent_stranger", "ed25519", "", false);
    assert_int_equal(RUN("ssh-add", "-q", stranger), 0);
    expect_refused(&t, GP_EAUTH, "LOGIN", "ssh-agent's 'agent_stranger' (SHA256:");
    assert_int_equal(RUN("ssh-add", "-q", good), 0); /* the second one is tried too */
    expect_open(&t);
    assert_int_equal(ssh_agent_public(&line, NULL), 0);
    assert_int_equal(strncmp(line, "ssh-ed25519 ", 12), 0);
    /* A key file with a passphrase: by the agent, when that holds it. */
    fx_user_key("id_locked", "ed25519", "open sesame", true);
    GP_AUTO_FREE char *locked = fx_path("id_locked");
    fx_set(&t.key_path, locked);
    t.use_agent = false;
    expect_refused(&t, GP_EAUTH, "KEY", "ssh-add");
    t.use_agent = true; /* its other keys may do */
    expect_open(&t);
    t.use_agent = false;
    GP_AUTO_FREE char *twin = fx_path("id_twin");
    assert_int_equal(RUN("cp", locked, twin), 0);
    assert_int_equal(RUN("ssh-keygen", "-q", "-p", "-P", "open sesame", "-N", "", "-f", twin), 0);
    assert_int_equal(RUN("ssh-add", "-q", twin), 0);
    expect_open(&t);
    /* A key that is refused is followed by the agent's. */
    t.use_agent = true;
    fx_set(&t.key_path, stranger);
    expect_open(&t);
    GP_AUTO_STR struct str pem = {0};
    assert_int_equal(fs_read(stranger, 65536, &pem, NULL), 0);
    secret_set(&t.key_pem, pem.s, pem.len);
    expect_open(&t);
    secret_clear(&t.key_pem);
    fx_set(&t.key_path, locked);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    expect_refused(&t, GP_EAUTH, "KEY", "has a passphrase");
    unsetenv("SSH_AUTH_SOCK");
}

static void test_host_key_pinned(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    char print[80];
    assert_int_equal(ssh_key_fingerprint(fx.a.host_line, print, sizeof print, NULL), 0);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, print);
    expect_open(&t);
    GP_AUTO_FREE char *other = fx_path("id_ed25519.pub");
    GP_AUTO_FREE char *line = fx_read(other);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, line);
    t.accept_new = true; /* makes no difference: the key is known, and another */
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "is pinned");
    strv_add(&t.host_keys, print); /* any one is enough */
    expect_open(&t);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "is pinned");
}

static void test_known_hosts(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    strv_clear(&t.host_keys);
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "no trusted key is configured");
    GP_AUTO_FREE char *path = fx_path("known");
    fx_set(&t.known_hosts, path);
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "--accept-new-host-key");
    assert_false(fs_exists(path));
    t.accept_new = true;
    expect_open(&t);
    t.accept_new = false;
    expect_open(&t); /* it was added */
    GP_AUTO_FREE char *text = fx_read(path);
    GP_AUTO_FREE char *want = xasprintf("[127.0.0.1]:%u %s", (unsigned)t.port, fx.a.host_line);
    assert_string_equal(text, want);
    assert_int_equal(RUN("ssh-keygen", "-q", "-H", "-f", path), 0);
    expect_open(&t); /* hashed */
    GP_AUTO_FREE char *pub = fx_path("id_ed25519.pub");
    GP_AUTO_FREE char *stranger = fx_read(pub);
    GP_AUTO_FREE char *changed = xasprintf("[127.0.0.1]:%u %s\n", (unsigned)t.port, stranger);
    fx_write(path, changed, 0600);
    t.accept_new = true;
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "changed");
    GP_AUTO_FREE char *after = fx_read(path);
    assert_string_equal(after, str_trim(changed));
    assert_int_equal(RUN("ssh-keygen", "-q", "-H", "-f", path), 0);
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "changed");
    /* An entry for the address alone vouches, but does not condemn. */
    GP_AUTO_FREE char *plain = xasprintf("127.0.0.1 %s\n", fx.a.host_line);
    t.accept_new = false;
    fx_write(path, plain, 0600);
    expect_open(&t);
    GP_AUTO_FREE char *wild = xasprintf("# a comment\n\n*.example.com,127.0.0.* %s x\n", fx.a.host_line);
    fx_write(path, wild, 0600);
    expect_open(&t);
    GP_AUTO_FREE char *negated = xasprintf("127.0.0.*,!127.0.0.1,![127.0.0.1]:* %s\n", fx.a.host_line);
    fx_write(path, negated, 0600);
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "has no key of");
    GP_AUTO_FREE char *revoked = xasprintf("127.0.0.1 %s\n@revoked * %s\n", fx.a.host_line, fx.a.host_line);
    fx_write(path, revoked, 0600);
    expect_refused(&t, GP_EAUTH, "HOST_KEY", "revokes");
}

/* The server has two host keys and only the second kind is known. */
static void test_known_type_is_asked_for(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct sshd two = {0};
    GP_AUTO_FREE char *ed = fx_path("two_ed25519");
    assert_int_equal(RUN("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ed), 0);
    GP_AUTO_FREE char *extra = xasprintf("HostKey %s\n", ed);
    fx_sshd_start(&two, "two", "ecdsa", extra);
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &two);
    expect_open(&t); /* pinned ecdsa line */
    strv_clear(&t.host_keys);
    GP_AUTO_FREE char *path = fx_path("known_two");
    GP_AUTO_FREE char *line = xasprintf("[127.0.0.1]:%u %s\n", (unsigned)two.port, two.host_line);
    fx_write(path, line, 0600);
    fx_set(&t.known_hosts, path);
    expect_open(&t);
    assert_int_equal(RUN("ssh-keygen", "-q", "-H", "-f", path), 0);
    expect_open(&t);
    fx_sshd_clear(&two);
}

struct counter {
    int n;
    char last[256];
    int64_t deadline_ms, left_ms; /* left_ms: of the deadline, at the last call */
};

static void count_waits(void *ctx, const char *why) {
    struct counter *c = ctx;
    c->n++;
    str_put(c->last, sizeof c->last, why);
    c->left_ms = clock_left_ms(c->deadline_ms);
}

/* The pauses grow, yet none takes all that is left: a node that answers late in access.timeout is in time. */
static void test_refused_port(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    struct counter c = {.deadline_ms = clock_deadline(3000)};
    fx_target(&t, &fx.a);
    GP_AUTO_FD int fd = fx_bind(&t.port);
    struct ssh_open_opts o = {.deadline_ms = c.deadline_ms, .waiting = count_waits, .ctx = &c};
    assert_int_equal(ssh_open(&t, &o, &s, &err), -GP_EREACH);
    assert_contains(err.msg, "llm/1: could not log in at 127.0.0.1:");
    assert_contains(err.msg, "Connection refused");
    assert_contains(err.msg, "check that sshd is running");
    assert_true(c.n >= 1);
    assert_true(c.left_ms < 1000);
    assert_string_equal(c.last, "connection refused");
}

/* A server that comes up while we knock. */
static void start_late(void *ctx, const char *why) {
    struct sshd *s = ctx;
    assert_string_equal(why, "connection refused"); /* without the address: equal for all nodes */
    if (s->pid == 0) s->pid = fx_spawn_sshd(s->dir, s->port);
}

static void test_waits_for_sshd(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct sshd late = {0};
    fx_sshd_start(&late, "late", "ed25519", "");
    fx_sshd_stop(&late);
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    fx_target(&t, &late);
    struct ssh_open_opts o = {.deadline_ms = clock_deadline(30000), .waiting = start_late, .ctx = &late};
    if (ssh_open(&t, &o, &s, &err) != 0) fail_msg("%s", err.msg);
    ok_command(s);
    fx_sshd_clear(&late);
}

/* The deadline cuts the second attempt, against a port that is silent now: the first one's reason is told. */
static void start_silent(void *ctx, const char *why) {
    (void)why;
    listen(*(int *)ctx, 16);
}

static void test_cut_attempt_is_not_the_reason(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    fx_target(&t, &fx.a);
    GP_AUTO_FD int fd = fx_bind(&t.port);
    struct ssh_open_opts o = {.deadline_ms = clock_deadline(600), .waiting = start_silent, .ctx = &fd};
    assert_int_equal(ssh_open(&t, &o, &s, &err), -GP_EREACH);
    assert_contains(err.msg, "(1 attempt), last: ");
    assert_contains(err.msg, "Connection refused");
}

static void test_hanging_port(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    fx_target(&t, &fx.a);
    GP_AUTO_FD int fd = fx_listen(&t.port);
    assert_int_equal(fx_open(&t, 300, &s, &err), -GP_EREACH);
    assert_contains(err.msg, "sent no SSH banner");
}

/* Accepts and hangs up, or talks without end, n times. */
struct rude {
    int fd;
    bool talks;
};

static void *rude_server(void *arg) {
    const struct rude *r = arg;
    for (;;) {
        int c = accept(r->fd, NULL, NULL);
        if (c < 0) return NULL;
        char line[4096];
        memset(line, 'x', sizeof line);
        line[sizeof line - 1] = '\n';
        while (r->talks && send(c, line, sizeof line, MSG_NOSIGNAL) > 0) {
        }
        close(c);
    }
}

static void test_rude_ports(void **state) {
    (void)state;
    NEEDS_SSHD();
    for (int talks = 0; talks < 2; talks++) {
        GP_AUTO_SSH_TARGET struct ssh_target t = {0};
        GP_AUTO_SSH struct ssh_session *s = NULL;
        struct gp_error err = {0};
        fx_target(&t, &fx.a);
        struct rude r = {.talks = talks == 1};
        r.fd = fx_listen(&t.port);
        pthread_t thread = 0;
        assert_int_equal(pthread_create(&thread, NULL, rude_server, &r), 0);
        assert_int_equal(fx_open(&t, 500, &s, &err), -GP_EREACH);
        assert_contains(err.msg, "sent no SSH banner");
        shutdown(r.fd, SHUT_RDWR);
        pthread_join(thread, NULL);
        close(r.fd);
    }
}

static void *cancel_soon(void *arg) {
    usleep(50000);
    gp_cancel_set(arg);
    return NULL;
}

static void cancel_open(const struct ssh_target *t) {
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    struct gp_cancel c;
    pthread_t thread = 0;
    assert_int_equal(gp_cancel_init(&c, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    struct ssh_open_opts o = {.deadline_ms = clock_deadline(600000), .cancel = &c};
    assert_int_equal(ssh_open(t, &o, &s, &err), -GP_ECANCELLED);
    assert_string_equal(err.msg, "llm/1: cancelled while connecting");
    pthread_join(thread, NULL);
    gp_cancel_clear(&c);
}

static void test_cancel(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    GP_AUTO_FD int fd = fx_bind(&t.port);
    cancel_open(&t); /* between attempts */
    assert_int_equal(listen(fd, 16), 0);
    cancel_open(&t); /* waiting for a banner */
}

static void test_name_that_is_not(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    fx_target(&t, &fx.a);
    fx_set(&t.host, "no-such-host.invalid");
    assert_int_equal(fx_open(&t, 2000, &s, &err), -GP_EREACH);
    assert_contains(err.msg, "no-such-host.invalid");
    fx_set(&t.host, "localhost");
    expect_open(&t);
}

/* authorized_keys comes while the login is refused: cloud-init makes the user late. */
static void allow_now(void *ctx, const char *why) {
    assert_string_equal(why, "authentication refused");
    assert_int_equal(rename(((char **)ctx)[0], ((char **)ctx)[1]), 0);
}

static void test_login_grace(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *keys = fx_path("authorized_keys");
    GP_AUTO_FREE char *away = fx_path("away_keys");
    assert_int_equal(rename(keys, away), 0);
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    fx_target(&t, &fx.a);
    char *names[] = {away, keys};
    struct ssh_open_opts o = {
        .deadline_ms = clock_deadline(30000), .login_grace_ms = 20000, .waiting = allow_now, .ctx = names};
    if (ssh_open(&t, &o, &s, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(ssh_host_key(s), fx.a.host_line);
}

/* A dial socket of the form that local nodes have. */
struct dialer {
    int fd;
    uint16_t port;
    char asked[2][128];
};

static void *dial_server(void *arg) {
    struct dialer *d = arg;
    for (int i = 0; i < 2; i++) {
        GP_AUTO_FD int c = accept(d->fd, NULL, NULL);
        if (c < 0) return NULL;
        ssize_t n = recv(c, d->asked[i], sizeof d->asked[i] - 1, 0);
        if (n < 0) return NULL;
        if (i == 0) {
            assert_int_equal(send(c, "error Connection refused\n", 25, MSG_NOSIGNAL), 25);
            continue;
        }
        GP_AUTO_FD int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in sa = {
            .sin_family = AF_INET, .sin_port = htons(d->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        assert_int_equal(connect(to, (struct sockaddr *)&sa, sizeof sa), 0);
        char control[CMSG_SPACE(sizeof(int))] = {0};
        char ok[] = "ok\n";
        struct iovec iov = {.iov_base = ok, .iov_len = 3};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof to);
        memcpy(CMSG_DATA(h), &to, sizeof to);
        assert_int_equal(sendmsg(c, &m, 0), 3);
    }
    return NULL;
}

static void test_dial_socket(void **state) {
    (void)state;
    NEEDS_SSHD();
    /* A path longer than sockaddr_un holds. */
    GP_AUTO_FREE char *deep = fx_path("a-folder-with-a-name-so-long-that-no-socket-below-it-can-be-"
                                      "named-in-full-by-a-unix-address-of-108-bytes");
    assert_int_equal(fs_mkdirs(deep, 0700, NULL), 0);
    GP_AUTO_FREE char *path = fs_join(deep, "ctl");
    GP_AUTO_FD int dir = open(deep, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct dialer d = {.port = fx.a.port};
    d.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof sa.sun_path, "/proc/self/fd/%d/ctl", dir);
    assert_int_equal(bind(d.fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(d.fd, 4), 0);
    pthread_t thread = 0;
    assert_int_equal(pthread_create(&thread, NULL, dial_server, &d), 0);
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    fx_set(&t.host, "10.91.0.2");
    t.port = 0;
    t.dial_socket = xstrdup(path);
    expect_open(&t); /* the first answer was an error: asked again */
    pthread_join(thread, NULL);
    assert_string_equal(d.asked[0], "dial 10.91.0.2 22\n");
    assert_string_equal(d.asked[1], "dial 10.91.0.2 22\n");
    close(d.fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_login_keys),
        cmocka_unit_test(test_key_in_memory_wins),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_rsa_key),
        cmocka_unit_test(test_agent),
        cmocka_unit_test(test_host_key_pinned),
        cmocka_unit_test(test_known_hosts),
        cmocka_unit_test(test_known_type_is_asked_for),
        cmocka_unit_test(test_refused_port),
        cmocka_unit_test(test_waits_for_sshd),
        cmocka_unit_test(test_cut_attempt_is_not_the_reason),
        cmocka_unit_test(test_hanging_port),
        cmocka_unit_test(test_rude_ports),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_name_that_is_not),
        cmocka_unit_test(test_login_grace),
        cmocka_unit_test(test_dial_socket),
    };
    return cmocka_run_group_tests_name("ssh open", tests, fx_setup, fx_teardown);
}

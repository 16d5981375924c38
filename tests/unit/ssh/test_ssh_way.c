/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to a host: through a bastion, and by the user's own OpenSSH with the configuration that is
 * generated for it. The program is its own `__dial` and `__known_host`, as gpuprov is. */
#include "ssh_fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/un.h>

static char self[4096];

static void via(struct ssh_target *t, const struct sshd *to, const struct sshd *through) {
    fx_target(t, to);
    t->bastion = xcalloc(1, sizeof *t->bastion);
    fx_target(t->bastion, through);
}

static void test_bastion(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct sshd b = {0};
    fx_sshd_start(&b, "b", "ed25519", "");
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    via(&t, &b, &fx.a);
    if (fx_open(&t, 30000, &s, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(ssh_host_key(s), b.host_line);
    /* Both ways at once, a lot of it. */
    size_t n = (size_t)6 << 20;
    GP_AUTO_FREE char *big = xmalloc(n);
    for (size_t i = 0; i < n; i++) big[i] = (char)(i * 2654435761u >> 24);
    struct ssh_exec_opts o = {.in = big, .in_len = n, .max_output = n};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    assert_int_equal(ssh_exec(s, "cat; exit 7", &o, &r, &err), 0);
    assert_int_equal(r.end, SSH_EXITED);
    assert_int_equal(r.status, 7);
    assert_int_equal(r.out.len, n);
    assert_memory_equal(r.out.s, big, n);
    bool sent = false;
    GP_AUTO_FREE char *path = fx_path("through");
    assert_int_equal(ssh_put(s, path, 0600, big, n, GP_NEVER, NULL, &sent, &err), 0);
    assert_true(sent);
    ssh_close(GP_STEAL(s));
    /* The host key of each is checked. */
    strv_clear(&t.bastion->host_keys);
    strv_add(&t.bastion->host_keys, b.host_line);
    assert_int_equal(fx_open(&t, 30000, &s, &err), -GP_EAUTH);
    assert_string_equal(err.detail, "HOST_KEY");
    assert_contains(err.msg, "llm/1: bastion: 127.0.0.1:");
    gp_error_clear(&err);
    ssh_target_clear(&t);
    via(&t, &b, &fx.a);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, fx.a.host_line);
    assert_int_equal(fx_open(&t, 30000, &s, &err), -GP_EAUTH);
    assert_string_equal(err.detail, "HOST_KEY");
    fx_sshd_clear(&b);
}

/* Waits until a host behind the bastion comes up, over one connection to the bastion. */
static void start_late(void *ctx, const char *why) {
    struct sshd *s = ctx;
    assert_string_equal(why, "the bastion cannot connect to the node");
    if (s->pid == 0) s->pid = fx_spawn_sshd(s->dir, s->port);
}

/* Kills every process below pid, the deepest first. */
static void kill_children(pid_t pid) {
    DIR *d = opendir("/proc");
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        int64_t child = 0;
        int parent = 0;
        GP_AUTO_FREE char *path = xasprintf("/proc/%s/stat", e->d_name);
        GP_AUTO_STR struct str text = {0};
        if (!str_to_i64(e->d_name, 2, INT32_MAX, &child) || fs_read(path, 4096, &text, NULL) != 0) continue;
        const char *after = strrchr(text.s, ')');
        if (after == NULL || sscanf(after, ") %*c %d", &parent) != 1 || parent != (int)pid) continue;
        kill_children((pid_t)child);
        kill((pid_t)child, SIGKILL);
    }
    closedir(d);
}

static bool cut_bastion(void *ctx, bool is_stderr, const char *line, size_t len) {
    (void)ctx;
    (void)is_stderr;
    (void)line;
    (void)len;
    kill_children(fx.a.pid);
    return true;
}

static void test_bastion_troubles(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct sshd b = {0}, strict = {0};
    fx_sshd_start(&b, "late_b", "ed25519", "");
    fx_sshd_stop(&b);
    fx_sshd_start(&strict, "strict", "ed25519", "AllowTcpForwarding no\n");
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    via(&t, &b, &strict);
    assert_int_equal(fx_open(&t, 30000, &s, &err), -GP_EREACH);
    assert_contains(err.msg, "does not allow connections to 127.0.0.1:");
    gp_error_clear(&err);
    ssh_target_clear(&t);
    via(&t, &b, &fx.a);
    struct ssh_open_opts o = {.deadline_ms = clock_deadline(30000), .waiting = start_late, .ctx = &b};
    if (ssh_open(&t, &o, &s, &err) != 0) fail_msg("%s", err.msg);
    /* The bastion's side of the connection dies in the middle. */
    GP_AUTO_FREE char *endless = fx_endless("exec sleep 600");
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    struct ssh_exec_opts cut = {.on_line = cut_bastion};
    assert_int_equal(ssh_exec(s, endless, &cut, &r, &err), 0);
    assert_int_equal(r.end, SSH_LOST);
    fx_sshd_clear(&b);
    fx_sshd_clear(&strict);
}

struct opener {
    const struct ssh_target *t;
    pthread_t thread;
    int rc;
    struct gp_error err;
};

static void *open_and_run(void *arg) {
    struct opener *o = arg;
    GP_AUTO_SSH struct ssh_session *s = NULL;
    o->rc = fx_open(o->t, 60000, &s, &o->err);
    if (o->rc == 0) o->rc = ssh_run(s, "a test", "true", NULL, NULL, &o->err);
    return NULL;
}

/* More at once than the bastion takes unauthenticated: all get through. */
static void test_bastion_many(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct sshd narrow = {0};
    fx_sshd_start(&narrow, "narrow", "ed25519", "MaxStartups 9:100:9\n");
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    via(&t, &fx.a, &narrow);
    struct opener o[16] = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(o); i++) {
        o[i].t = &t;
        assert_int_equal(pthread_create(&o[i].thread, NULL, open_and_run, &o[i]), 0);
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(o); i++) pthread_join(o[i].thread, NULL);
    for (size_t i = 0; i < GP_ARRAY_LEN(o); i++)
        if (o[i].rc != 0) fail_msg("%s", o[i].err.msg);
    fx_sshd_clear(&narrow);
}

/* --- the user's own ssh --- */

static void own_ssh(const struct ssh_target *t, const char *want) {
    GP_AUTO_FREE char *dir = fx_path("client");
    GP_AUTO_FREE char *conf = fs_join(dir, "config");
    GP_AUTO_FREE char *out = fx_path("own_ssh_out");
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    if (ssh_client_config(t, "llm-1", dir, self, &text, &err) != 0) fail_msg("%s", err.msg);
    fx_write(conf, text.s, 0600);
    int rc = RUN_TO(out, "ssh", "-F", conf, "-o", "BatchMode=yes", "llm-1", "echo", "reached");
    GP_AUTO_FREE char *said = fx_read(out);
    if (want == NULL) {
        if (rc != 0) fail_msg("ssh: %d: %s\nwith:\n%s", rc, said, text.s);
        assert_contains(said, "reached");
    } else {
        assert_int_equal(rc, 255);
        assert_contains(said, want);
    }
}

static void test_client_config(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    own_ssh(&t, NULL);
    char print[80];
    assert_int_equal(ssh_key_fingerprint(fx.a.host_line, print, sizeof print, NULL), 0);
    GP_AUTO_FREE char *line = xstrdup(fx.a.host_line);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, print);
    own_ssh(&t, NULL);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    own_ssh(&t, "Host key verification failed");
    strv_clear(&t.host_keys);
    GP_AUTO_FREE char *known = fx_path("known hosts 100%"); /* a path with what needs care */
    GP_AUTO_FREE char *entry = xasprintf("[127.0.0.1]:%u %s\n", (unsigned)t.port, line);
    fx_write(known, entry, 0600);
    fx_set(&t.known_hosts, known);
    own_ssh(&t, NULL);
    fx_write(known, "", 0600);
    own_ssh(&t, "Host key verification failed");
    t.accept_new = true;
    own_ssh(&t, NULL);
    /* A key that is only in memory. */
    GP_AUTO_STR struct str pem = {0};
    assert_int_equal(fs_read(t.key_path, 65536, &pem, NULL), 0);
    secret_set(&t.key_pem, pem.s, pem.len);
    fx_set(&t.key_path, "/nonexistent");
    own_ssh(&t, NULL);
}

static void test_client_config_bastion(void **state) {
    (void)state;
    NEEDS_SSHD();
    struct sshd b = {0};
    fx_sshd_start(&b, "b2", "ed25519", "");
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    via(&t, &b, &fx.a);
    own_ssh(&t, NULL);
    fx_sshd_clear(&b);
}

/* ssh splits KnownHostsCommand itself: whatever this program's path has in it stays one word. */
static void test_client_config_odd_program(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    char print[80], real[sizeof self];
    assert_int_equal(ssh_key_fingerprint(fx.a.host_line, print, sizeof print, NULL), 0);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    strv_add(&t.host_keys, print);
    str_put(real, sizeof real, self);
    static const char *const names[] = {"a b", "it's", "50%h", "a\"b", "a\\b", "a\\", "$(touch canary)", "#x"};
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        GP_AUTO_FREE char *odd = fx_path(names[i]);
        assert_int_equal(symlink(real, odd), 0);
        str_put(self, sizeof self, odd);
        own_ssh(&t, NULL);
        assert_int_equal(unlink(odd), 0);
    }
    str_put(self, sizeof self, real);
}

/* What the user's own ssh makes of a target: refused by us, or neither a command run nor an option added. */
static void own_ssh_harmless(const struct ssh_target *t, const char *canary, const char *what) {
    GP_AUTO_FREE char *dir = fx_path("hostile");
    GP_AUTO_FREE char *conf = fs_join(dir, "config");
    GP_AUTO_FREE char *out = fx_path("hostile_out");
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    int r = ssh_client_config(t, "llm-1", dir, self, &text, &err);
    if (r != 0) {
        assert_int_equal(r, -GP_EUSAGE);
        assert_int_equal(text.len, 0);
        return;
    }
    fx_write(conf, text.s, 0600);
    (void)RUN_TO(out, "ssh", "-F", conf, "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", "llm-1", "true");
    if (fs_exists(canary)) fail_msg("%s ran a command:\n%s", what, text.s);
    if (RUN_TO(out, "ssh", "-F", conf, "-G", "llm-1") != 0) fail_msg("%s: ssh cannot read:\n%s", what, text.s);
    GP_AUTO_FREE char *options = fx_read(out);
    if (strstr(options, "\nlocalcommand") != NULL || strstr(options, "permitlocalcommand yes") != NULL ||
        strstr(options, "forwardagent yes") != NULL)
        fail_msg("%s added an option:\n%s", what, text.s);
}

static void test_client_config_hostile(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *canary = fx_path("canary");
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    /* @ is the canary's path; each stands in every field of a target and of its bastion. */
    static const char *const words[] = {"SHA256:x)>@;;y",
                                        "SHA256:$(>@)AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                                        "SHA256:`>@`",
                                        "SHA256:\">@\"",
                                        "$(touch${IFS}@)",
                                        "`touch${IFS}@`",
                                        ";touch${IFS}@;",
                                        "a'$(touch @)'b",
                                        "\";touch @;\"",
                                        "h\n  PermitLocalCommand yes\n  LocalCommand touch @",
                                        "h\r\n  ForwardAgent yes",
                                        "-oProxyCommand=touch @",
                                        "x\"\n  ForwardAgent yes\n  User \"y",
                                        "%n;touch @",
                                        "/\n  ForwardAgent yes",
                                        "",
                                        "ssh-ed25519 AAAA\n* ssh-ed25519 AAAA",
                                        "\x1b[2Jx",
                                        "\xe2\x80\xaex"};
    for (size_t i = 0; i < GP_ARRAY_LEN(words); i++) {
        GP_AUTO_STR struct str word = {0};
        for (const char *p = words[i]; *p != '\0'; p++)
            if (*p == '@') str_add(&word, canary);
            else str_addc(&word, *p);
        str_add(&word, "");
        for (int outer = 0; outer < 2; outer++) {
            for (int field = 0; field < 6; field++) {
                GP_AUTO_SSH_TARGET struct ssh_target bad = {0};
                via(&bad, &fx.a, &fx.a);
                struct ssh_target *at = outer ? bad.bastion : &bad;
                char **const fields[] = {&at->host, &at->user, &at->key_path, &at->known_hosts, &at->dial_socket};
                strv_clear(&at->host_keys);
                if (field < 5) fx_set(fields[field], word.s);
                else strv_add(&at->host_keys, word.s);
                if (field == 4 && !outer) {
                    ssh_target_clear(bad.bastion);
                    free(bad.bastion);
                    bad.bastion = NULL;
                }
                own_ssh_harmless(&bad, canary, words[i]);
            }
        }
    }
}

/* Keys are written anew from what they hold; what is not one of a known type is refused. */
static void test_host_key_lines(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *commented = xasprintf("%s me@home $(x)", fx.a.host_line), *line = NULL;
    assert_int_equal(ssh_host_key_line(commented, &line, NULL), 0);
    assert_string_equal(line, fx.a.host_line);
    static const char *const bad[] = {"", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-dss AAAAB3NzaC1kc3MAAAAA", "x y"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) assert_int_equal(ssh_host_key_line(bad[i], &line, NULL), -GP_EUSAGE);
    GP_AUTO_FREE char *two = xasprintf("%s\n%s", fx.a.host_line, fx.a.host_line);
    assert_int_equal(ssh_host_key_line(two, &line, NULL), -GP_EUSAGE);
    GP_AUTO_FREE char *other = xasprintf("ssh-rsa%s", fx.a.host_line + strlen("ssh-ed25519"));
    assert_int_equal(ssh_host_key_line(other, &line, NULL), -GP_EUSAGE);
}

static void test_known_host(void **state) {
    (void)state;
    NEEDS_SSHD();
    const char *base64 = fx.a.host_line + strlen("ssh-ed25519 ");
    char print[80];
    assert_int_equal(ssh_key_fingerprint(fx.a.host_line, print, sizeof print, NULL), 0);
    const char *prints[] = {"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", print};
    GP_AUTO_STR struct str out = {0};
    assert_int_equal(ssh_known_host(prints, 1, "h", "ssh-ed25519", base64, &out, NULL), 0);
    assert_int_equal(ssh_known_host(prints, 2, "h", "NONE", "NONE", &out, NULL), 0);
    assert_int_equal(ssh_known_host(prints, 2, "h", "ssh-rsa", base64, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(ssh_known_host(prints, 2, "[h]:2", "ssh-ed25519", base64, &out, NULL), 0);
    GP_AUTO_FREE char *want = xasprintf("[h]:2 %s\n", fx.a.host_line);
    assert_string_equal(out.s, want);
    assert_int_equal(ssh_known_host(prints, 2, "*", "ssh-ed25519", base64, &out, NULL), -GP_EUSAGE);
    assert_int_equal(ssh_known_host(prints, 2, "a\nb", "ssh-ed25519", base64, &out, NULL), -GP_EUSAGE);
    prints[0] = "SHA256:";
    assert_int_equal(ssh_known_host(prints, 2, "h", "ssh-ed25519", base64, &out, NULL), -GP_EUSAGE);
}

struct dialer {
    int fd;
    uint16_t port;
};

static void *dial_server(void *arg) {
    const struct dialer *d = arg;
    GP_AUTO_FD int c = accept(d->fd, NULL, NULL);
    char asked[128] = "";
    if (c < 0 || recv(c, asked, sizeof asked - 1, 0) <= 0) return NULL;
    GP_AUTO_FD int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(d->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(to, (struct sockaddr *)&sa, sizeof sa) != 0) return NULL;
    char control[CMSG_SPACE(sizeof(int))] = {0}, ok[] = "ok\n";
    struct iovec iov = {.iov_base = ok, .iov_len = 3};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof to);
    memcpy(CMSG_DATA(h), &to, sizeof to);
    ssize_t n = sendmsg(c, &m, 0);
    (void)n;
    return NULL;
}

static void test_client_config_dial(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *path = fx_path("it's a 50% socket");
    struct dialer d = {.port = fx.a.port, .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    assert_true(str_put(sa.sun_path, sizeof sa.sun_path, path));
    assert_int_equal(bind(d.fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(d.fd, 4), 0);
    pthread_t thread = 0;
    assert_int_equal(pthread_create(&thread, NULL, dial_server, &d), 0);
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    fx_set(&t.host, "10.91.0.7");
    t.port = 0;
    fx_set(&t.dial_socket, path);
    own_ssh(&t, NULL);
    pthread_join(thread, NULL);
    close(d.fd);
}

static int known_host(int n, char **argv) {
    GP_AUTO_STR struct str line = {0};
    struct gp_error err = {0};
    if (n < 5 || strcmp(argv[n - 4], "--") != 0) return 2;
    int r =
        ssh_known_host((const char *const *)argv, (size_t)n - 4, argv[n - 3], argv[n - 2], argv[n - 1], &line, &err);
    if (line.len > 0) fputs(line.s, stdout);
    return r == 0 ? 0 : 1;
}

/* The node shows another key first. Its sshd cannot change its key here, so that the expectation changes. */
static void replace_now(void *ctx, const char *why) {
    struct ssh_target *t = ctx;
    assert_string_equal(why, "the host key is not the expected one yet");
    strv_clear(&t->host_keys);
    strv_add(&t->host_keys, fx.a.host_line);
}

static void test_late_host_key(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const char other[] = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    fx_target(&t, &fx.a);
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, other);
    struct ssh_open_opts o = {
        .deadline_ms = clock_deadline(30000), .late_host_key = true, .waiting = replace_now, .ctx = &t};
    if (ssh_open(&t, &o, &s, &err) != 0) fail_msg("%s", err.msg);
    ssh_close(GP_STEAL(s));
    /* it never comes: the error of another host key */
    strv_clear(&t.host_keys);
    strv_add(&t.host_keys, other);
    int r = 0;
    for (int64_t ms = 500; ms <= 32000 && r != -GP_EAUTH; ms *= 2) { /* enough to see the host's key */
        gp_error_clear(&err);
        o = (struct ssh_open_opts){.deadline_ms = clock_deadline(ms), .late_host_key = true};
        r = ssh_open(&t, &o, &s, &err);
    }
    assert_int_equal(r, -GP_EAUTH);
    assert_string_equal(err.detail, "HOST_KEY");
    assert_contains(err.msg, "is pinned");
}

static void *unlock_soon(void *fd) {
    gp_sleep(200, NULL, NULL);
    assert_int_equal(flock(*(int *)fd, LOCK_UN), 0);
    return NULL;
}

static void opens(const struct ssh_target *t) {
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    if (fx_open(t, 30000, &s, &err) != 0) fail_msg("%s", err.msg);
}

static void is_refused(const struct ssh_target *t, const char *part) {
    GP_AUTO_SSH struct ssh_session *s = NULL;
    struct gp_error err = {0};
    assert_int_equal(fx_open(t, 30000, &s, &err), -GP_EIO);
    assert_contains(err.msg, "could not add the host key");
    assert_contains(err.msg, part);
}

/* Whoever can read the file can lock it. A lock is waited for, but not without end. */
static void test_known_hosts_locked(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    strv_clear(&t.host_keys);
    GP_AUTO_FREE char *known = fx_path("known_locked");
    fx_write(known, "# no line end", 0644);
    fx_set(&t.known_hosts, known);
    t.accept_new = true;
    GP_AUTO_FD int held = open(known, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX), 0);
    is_refused(&t, "another process keeps it locked");
    GP_AUTO_FREE char *text = fx_read(known);
    assert_string_equal(text, "# no line end");
    pthread_t other = 0;
    assert_int_equal(pthread_create(&other, NULL, unlock_soon, &held), 0);
    opens(&t);
    pthread_join(other, NULL);
    GP_AUTO_FREE char *after = fx_read(known);
    GP_AUTO_FREE char *want = xasprintf("# no line end\n[127.0.0.1]:%u %s", (unsigned)t.port, fx.a.host_line);
    assert_string_equal(after, want);
    GP_AUTO_FD int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int locked = flock(null, LOCK_EX | LOCK_NB); /* by this test, or by somebody else */
    assert_true(locked == 0 || errno == EWOULDBLOCK);
    fx_set(&t.known_hosts, "/dev/null");
    opens(&t);
}

/* The user's own link is followed, one that another user put there is not. */
static void test_known_hosts_link(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_SSH_TARGET struct ssh_target t = {0};
    fx_target(&t, &fx.a);
    strv_clear(&t.host_keys);
    t.accept_new = true;
    GP_AUTO_FREE char *folder = fx_path("shared"), *file = fx_path("shared_target"), *link = fs_join(folder, "known");
    fx_write(file, "", 0600);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(chmod(folder, 0777), 0); /* not sticky: the kernel does not refuse it itself */
    assert_int_equal(symlink(file, link), 0);
    fx_set(&t.known_hosts, link);
    if (geteuid() == 0) { /* only root can make a link of another user */
        assert_int_equal(lchown(link, 65534, 65534), 0);
        is_refused(&t, "a link of another user");
        GP_AUTO_FREE char *text = fx_read(file);
        assert_string_equal(text, "");
        assert_int_equal(lchown(link, 0, 0), 0);
    }
    opens(&t);
    GP_AUTO_FREE char *text = fx_read(file);
    assert_contains(text, fx.a.host_line);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "__known_host") == 0) return known_host(argc - 2, argv + 2);
    if (argc == 5 && strcmp(argv[1], "__dial") == 0) {
        int64_t port = 0;
        struct gp_error err = {0};
        if (!str_to_i64(argv[4], 1, 65535, &port)) return 2;
        if (ssh_dial_pass(argv[2], argv[3], (uint16_t)port, &err) == 0) return 0;
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bastion),
        cmocka_unit_test(test_bastion_troubles),
        cmocka_unit_test(test_bastion_many),
        cmocka_unit_test(test_client_config),
        cmocka_unit_test(test_client_config_bastion),
        cmocka_unit_test(test_client_config_odd_program),
        cmocka_unit_test(test_client_config_hostile),
        cmocka_unit_test(test_host_key_lines),
        cmocka_unit_test(test_known_host),
        cmocka_unit_test(test_client_config_dial),
        cmocka_unit_test(test_late_host_key),
        cmocka_unit_test(test_known_hosts_link),
        cmocka_unit_test(test_known_hosts_locked),
    };
    return cmocka_run_group_tests_name("ssh way", tests, fx_setup, fx_teardown);
}

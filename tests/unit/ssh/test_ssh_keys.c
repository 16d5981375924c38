/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: what is made is what ssh-keygen reads, and what ssh-keygen makes is read. */
#include "base/hash.h"
#include "folder.h"
#include "ssh/ssh_private.h"
#include "ssh_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/un.h>

static int keys_setup(void **state) {
    (void)state;
    if (access("/usr/bin/ssh-keygen", X_OK) != 0) {
        fx.skip = xstrdup("no ssh-keygen here (apt package openssh-client)");
        return 0;
    }
    char dir[200];
    assert_non_null(make_folder(dir, sizeof dir, "ssh-keys"));
    fx.dir = xstrdup(dir);
    unsetenv("SSH_AUTH_SOCK");
    return ssh_global_init(NULL);
}

/* The first two words of a key line. */
static char *bare(const char *line) {
    GP_AUTO_STRV struct strv w = {0};
    strv_split(&w, line, " \n");
    assert_true(w.n >= 2);
    return xasprintf("%s %s", w.v[0], w.v[1]);
}

static void test_make(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *path = fx_path("made");
    GP_AUTO_FREE char *out = fx_path("out");
    /* Comments of every length modulo the padding. */
    static const char *const comments[] = {"", "a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "a b\nc d"};
    for (size_t i = 0; i < GP_ARRAY_LEN(comments); i++) {
        GP_AUTO_SECRET struct secret pem = {0};
        GP_AUTO_FREE char *pub = NULL;
        assert_int_equal(ssh_key_make(comments[i], &pem, &pub, NULL), 0);
        fx_write(path, secret_reveal(&pem), 0600);
        assert_int_equal(RUN_TO(out, "ssh-keygen", "-y", "-P", "", "-f", path), 0);
        GP_AUTO_FREE char *said = fx_read(out);
        assert_string_equal(said, pub);
        assert_null(strchr(pub, '\n'));
        GP_AUTO_FREE char *derived = NULL;
        assert_int_equal(ssh_key_public(path, &derived, NULL), 0);
        GP_AUTO_FREE char *want = bare(pub);
        assert_string_equal(derived, want);
        /* The fingerprint is ssh-keygen's. */
        char print[80];
        assert_int_equal(ssh_key_fingerprint(pub, print, sizeof print, NULL), 0);
        assert_int_equal(RUN_TO(out, "ssh-keygen", "-l", "-f", path), 0);
        GP_AUTO_FREE char *listed = fx_read(out);
        assert_contains(listed, print);
        assert_int_equal(strlen(print), 7 + 43);
    }
}

static void test_public(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const struct {
        const char *type, *bits, *form;
    } kinds[] = {{"ed25519", "256", "RFC4716"}, {"ecdsa", "256", "RFC4716"}, {"ecdsa", "384", "PEM"},
                 {"ecdsa", "521", "PKCS8"},     {"rsa", "2048", "PEM"},      {"rsa", "2048", "RFC4716"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(kinds); i++) {
        GP_AUTO_FREE char *name = xasprintf("k%zu", i);
        GP_AUTO_FREE char *path = fx_path(name);
        GP_AUTO_FREE char *pub = xasprintf("%s.pub", path);
        assert_int_equal(RUN("ssh-keygen", "-q", "-t", kinds[i].type, "-b", kinds[i].bits, "-m", kinds[i].form, "-N",
                             "", "-C", "me@here", "-f", path),
                         0);
        GP_AUTO_FREE char *want = fx_read(pub);
        GP_AUTO_FREE char *line = NULL;
        struct gp_error err = {0};
        int r = ssh_key_public(path, &line, &err);
        if (strcmp(kinds[i].type, "rsa") == 0 && !ssh_rsa_ok()) {
            assert_int_equal(r, -GP_EAUTH);
            assert_contains(err.msg, "use an ed25519 key");
            continue;
        }
        if (r != 0) fail_msg("%s", err.msg);
        assert_string_equal(line, want); /* with the comment of the .pub file */
        assert_int_equal(unlink(pub), 0);
        GP_AUTO_FREE char *derived = NULL;
        GP_AUTO_FREE char *short_want = bare(want);
        assert_int_equal(ssh_key_public(path, &derived, NULL), 0);
        assert_string_equal(derived, short_want);
        fx_write(pub, "ssh-ed25519 AAAA of another key\n", 0600); /* a .pub that does not belong */
        GP_AUTO_FREE char *again = NULL;
        assert_int_equal(ssh_key_public(path, &again, NULL), 0);
        assert_string_equal(again, short_want);
    }
}

static void test_public_refused(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const char *const forms[] = {"RFC4716", "PEM", "PKCS8"};
    for (size_t i = 0; i < GP_ARRAY_LEN(forms); i++) {
        GP_AUTO_FREE char *path = fx_path(forms[i]);
        assert_int_equal(RUN("ssh-keygen", "-q", "-t", "ecdsa", "-m", forms[i], "-N", "open sesame", "-f", path), 0);
        GP_AUTO_FREE char *line = NULL;
        struct gp_error err = {0};
        assert_int_equal(ssh_key_public(path, &line, &err), -GP_EAUTH);
        assert_string_equal(err.detail, "KEY");
        assert_contains(err.msg, "has a passphrase");
        assert_contains(err.msg, "ssh-add");
    }
    GP_AUTO_FREE char *path = fx_path("RFC4716");
    struct gp_error err = {0};
    GP_AUTO_FREE char *line = NULL;
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(ssh_key_public(path, &line, &err), -GP_EAUTH);
    assert_contains(err.msg, "mode 0640");
    gp_error_clear(&err);
    char print[80];
    assert_int_equal(ssh_key_fingerprint("ssh-ed25519 no-base64", print, sizeof print, &err), -GP_EUSAGE);
}

/* The bare signature in the file that 'ssh-keygen -Y sign' wrote: the last string of its last string. */
static void keygens_signature(const char *path, struct str *ret) {
    GP_AUTO_FREE char *armor = fx_read(path);
    GP_AUTO_STR struct str raw = {0};
    char *from = strchr(armor, '\n'), *end = strstr(armor, "-----END");
    assert_non_null(from);
    assert_non_null(end);
    *end = '\0';
    GP_AUTO_STR struct str text = {0};
    for (char *p = from; *p != '\0'; p++)
        if (*p != '\n') str_addc(&text, *p);
    assert_true(base64_bytes(text.s, text.len, &raw));
    const unsigned char *p = (const unsigned char *)raw.s + 6 + 4; /* the magic, the version */
    size_t n = 0;
    for (int i = 0; i < 7; i++) { /* key, namespace, reserved, hash, the whole of: algorithm, signature */
        n = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        p += i == 4 ? 4 : 4 + n;
    }
    str_add_mem(ret, p - n, n);
}

/* The secret of a key is the signature that OpenSSH makes, from the file as from the agent, each time. */
static void test_secret(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const char *const types[] = {"ed25519", "rsa"};
    for (size_t i = 0; i < GP_ARRAY_LEN(types); i++) {
        GP_AUTO_FREE char *name = xasprintf("secret-%s", types[i]);
        GP_AUTO_FREE char *path = fx_path(name), *message = xasprintf("%s.txt", path);
        GP_AUTO_FREE char *signature = xasprintf("%s.sig", message);
        GP_AUTO_SECRET struct secret a = {0}, b = {0}, other = {0};
        GP_AUTO_STR struct str theirs = {0};
        struct gp_error err = {0};
        assert_int_equal(RUN("ssh-keygen", "-q", "-t", types[i], "-N", "", "-f", path), 0);
        fx_write(message, "a text", 0600);
        assert_int_equal(RUN("ssh-keygen", "-q", "-Y", "sign", "-f", path, "-n", "a@b", message), 0);
        keygens_signature(signature, &theirs);
        struct ssh_key_ref key = {.path = path};
        if (ssh_key_secret(&key, "a@b", "a text", NULL, &a, &err) != 0) fail_msg("%s", err.msg);
        if (ssh_key_secret(&key, "a@b", "a text", NULL, &b, &err) != 0) fail_msg("%s", err.msg);
        assert_int_equal(a.len, theirs.len);
        assert_memory_equal(secret_reveal(&a), theirs.s, a.len);
        assert_true(secret_equal(&b, secret_reveal(&a), a.len));
        if (ssh_key_secret(&key, "a@c", "a text", NULL, &other, &err) != 0) fail_msg("%s", err.msg);
        assert_false(secret_equal(&other, secret_reveal(&a), a.len));
    }
}

static void test_secret_by_the_agent(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const char *const types[] = {"ed25519", "rsa"};
    GP_AUTO_FREE char *socket = fx_path("agent.sock"), *log = fx_path("agent.out");
    if (access("/usr/bin/ssh-agent", X_OK) != 0) skip();
    assert_int_equal(RUN_TO(log, "ssh-agent", "-s", "-a", socket), 0);
    GP_AUTO_FREE char *said = fx_read(log);
    const char *pid = strstr(said, "SSH_AGENT_PID=");
    assert_non_null(pid);
    setenv("SSH_AUTH_SOCK", socket, 1);
    for (size_t i = 0; i < GP_ARRAY_LEN(types); i++) {
        GP_AUTO_FREE char *name = xasprintf("agents-%s", types[i]);
        GP_AUTO_FREE char *path = fx_path(name), *pub = xasprintf("%s.pub", path);
        GP_AUTO_SECRET struct secret file = {0}, agent = {0}, locked = {0};
        struct gp_error err = {0};
        assert_int_equal(RUN("ssh-keygen", "-q", "-t", types[i], "-N", "", "-f", path), 0);
        GP_AUTO_FREE char *line = fx_read(pub);
        struct ssh_key_ref by_file = {.path = path}, by_line = {.public_line = line};
        assert_int_equal(ssh_key_secret(&by_line, "a@b", "x", NULL, &agent, &err), -GP_ENOTFOUND);
        assert_contains(err.msg, "ssh-add");
        gp_error_clear(&err);
        assert_int_equal(RUN("ssh-add", "-q", path), 0);
        if (ssh_key_secret(&by_file, "a@b", "x", NULL, &file, &err) != 0) fail_msg("%s", err.msg);
        if (ssh_key_secret(&by_line, "a@b", "x", NULL, &agent, &err) != 0) fail_msg("%s", err.msg);
        assert_true(secret_equal(&agent, secret_reveal(&file), file.len));
        assert_int_equal(RUN("ssh-keygen", "-q", "-p", "-N", "open sesame", "-f", path), 0);
        if (ssh_key_secret(&by_file, "a@b", "x", NULL, &locked, &err) != 0) fail_msg("%s", err.msg);
        assert_true(secret_equal(&locked, secret_reveal(&file), file.len));
    }
    unsetenv("SSH_AUTH_SOCK");
    kill((pid_t)strtol(pid + strlen("SSH_AGENT_PID="), NULL, 10), SIGTERM);
}

/* An agent of somebody else: it lists a key of which it has the public half only, and signs with 64 equal bytes, or with
 * those of another text. */
struct liar {
    int listener;
    struct str blob, sig;
    const char *algorithm;
};

static void put_message(int fd, const struct str *body) {
    GP_AUTO_STR struct str m = {0};
    ssh_put_string(&m, body->s, body->len);
    assert_int_equal(write(fd, m.s, m.len), (ssize_t)m.len);
}

static void *lie(void *arg) {
    struct liar *l = arg;
    unsigned char head[4], body[4096];
    int fd = accept(l->listener, NULL, NULL);
    while (fd >= 0 && recv(fd, head, sizeof head, MSG_WAITALL) == 4) {
        size_t n = (size_t)head[2] << 8 | head[3];
        if (n > sizeof body || recv(fd, body, n, MSG_WAITALL) != (ssize_t)n) break;
        GP_AUTO_STR struct str reply = {0}, inner = {0};
        bool lists = body[0] == 11; /* SSH_AGENTC_REQUEST_IDENTITIES; else 13, SSH_AGENTC_SIGN_REQUEST */
        str_add_mem(&reply, lists ? "\x0c\x00\x00\x00\x01" : "\x0e", lists ? 5 : 1);
        if (!lists) ssh_put_string(&inner, l->algorithm, strlen(l->algorithm));
        if (!lists) ssh_put_string(&inner, l->sig.s, l->sig.len);
        ssh_put_string(&reply, lists ? l->blob.s : inner.s, lists ? l->blob.len : inner.len);
        if (lists) ssh_put_string(&reply, "victim", 6);
        put_message(fd, &reply);
    }
    if (fd >= 0) close(fd);
    return NULL;
}

static int secret_of_liar(struct liar *l, const char *line, struct secret *ret, struct gp_error *err) {
    GP_AUTO_FREE char *socket_path = fx_path("liar.sock");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct ssh_key_ref key = {.public_line = line};
    pthread_t thread = 0;
    unlink(socket_path);
    assert_true(str_put(at.sun_path, sizeof at.sun_path, socket_path));
    l->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(l->listener, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(l->listener, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, lie, l), 0);
    setenv("SSH_AUTH_SOCK", socket_path, 1);
    gp_error_clear(err);
    int r = ssh_key_secret(&key, "a@b", "x", NULL, ret, err);
    unsetenv("SSH_AUTH_SOCK");
    pthread_join(thread, NULL);
    close(l->listener);
    return r;
}

/* What it signs would be a secret that it knows: with the public key alone it could prove any machine. */
static void test_no_secret_of_a_lying_agent(void **state) {
    (void)state;
    NEEDS_SSHD();
    static const struct {
        const char *type, *algorithm;
    } rows[] = {{"ed25519", "ssh-ed25519"}, {"rsa", "rsa-sha2-512"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *name = xasprintf("liars-%s", rows[i].type);
        GP_AUTO_FREE char *path = fx_path(name), *pub = xasprintf("%s.pub", path);
        GP_AUTO_SECRET struct secret got = {0}, other = {0}, right = {0};
        struct gp_error err = {0};
        assert_int_equal(RUN("ssh-keygen", "-q", "-t", rows[i].type, "-N", "", "-f", path), 0);
        GP_AUTO_FREE char *line = fx_read(pub);
        struct ssh_key_ref by_file = {.path = path};
        struct liar l = {.algorithm = rows[i].algorithm};
        assert_true(ssh_line_blob(line, &l.blob));
        for (int k = 0; k < 64; k++) str_add_mem(&l.sig, "\xaa", 1);
        assert_int_equal(secret_of_liar(&l, line, &got, &err), -GP_EAUTH);
        assert_contains(err.msg, "not of this key");
        assert_int_equal(ssh_key_secret(&by_file, "a@b", "another", NULL, &other, &err), 0);
        l.sig.len = 0;
        str_add_mem(&l.sig, secret_reveal(&other), other.len);
        assert_int_equal(secret_of_liar(&l, line, &got, &err), -GP_EAUTH);
        assert_int_equal(got.len, 0);
        gp_error_clear(&err);
        assert_int_equal(ssh_key_secret(&by_file, "a@b", "x", NULL, &right, &err), 0);
        l.sig.len = 0;
        str_add_mem(&l.sig, secret_reveal(&right), right.len);
        assert_int_equal(secret_of_liar(&l, line, &got, &err), 0);
        str_clear(&l.blob);
        str_clear(&l.sig);
    }
}

static void test_no_secret(void **state) {
    (void)state;
    NEEDS_SSHD();
    GP_AUTO_FREE char *path = fx_path("secret-ecdsa");
    GP_AUTO_SECRET struct secret got = {0};
    struct gp_error err = {0};
    struct ssh_key_ref key = {.path = path};
    assert_int_equal(ssh_key_secret(&key, "a@b", "x", NULL, &got, &err), -GP_EAUTH);
    gp_error_clear(&err);
    assert_int_equal(RUN("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", path), 0);
    assert_int_equal(ssh_key_secret(&key, "a@b", "x", NULL, &got, &err), -GP_EUSAGE);
    assert_contains(err.msg, "signatures differ each time");
    gp_error_clear(&err);
    struct ssh_key_ref none = {0};
    assert_int_equal(ssh_key_secret(&none, "a@b", "x", NULL, &got, &err), -GP_ENOTFOUND);
    assert_int_equal(got.len, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_make),
        cmocka_unit_test(test_public),
        cmocka_unit_test(test_public_refused),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_secret_by_the_agent),
        cmocka_unit_test(test_no_secret_of_a_lying_agent),
        cmocka_unit_test(test_no_secret),
    };
    return cmocka_run_group_tests_name("ssh keys", tests, keys_setup, fx_teardown);
}

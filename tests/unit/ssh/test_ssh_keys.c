/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: what is made is what ssh-keygen reads, and what ssh-keygen makes is read. */
#include "folder.h"
#include "ssh_fixture.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_make),
        cmocka_unit_test(test_public),
        cmocka_unit_test(test_public_refused),
    };
    return cmocka_run_group_tests_name("ssh keys", tests, keys_setup, fx_teardown);
}

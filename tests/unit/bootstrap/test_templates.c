/* SPDX-License-Identifier: Apache-2.0 */
/* The renderer, the embedded table and the user-data. */
#include "base/gp_base.h"

#include "templates/templates.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct template_var VARS[] = {{"A", "one"}, {"Q", "it's"}, {"EMPTY", ""}, {"EVIL", "@@A@@"}, {NULL, NULL}};

static int render(const char *text, struct str *out, struct gp_error *err) {
    return template_render_text("t", text, strlen(text), VARS, out, err);
}

static void renders_each_form(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"plain @ text", "plain @ text"},
        {"@@A@@", "one"},
        {"<@@A@@@@A@@>", "<oneone>"},
        {"@@q:Q@@", "'it'\\''s'"},
        {"@@q:EMPTY@@", "''"},
        {"@@b64:A@@", "b25l"},
        {"@@b64:Q@@", "aXQncw=="},
        {"@@b64:EMPTY@@", ""},
        {"@@EVIL@@", "@@A@@"}, /* a value is never scanned again */
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_STR struct str out = {0};
        struct gp_error err = {0};
        str_add(&out, "");
        assert_int_equal(render(cases[i].in, &out, &err), 0);
        assert_string_equal(out.s, cases[i].out);
    }
}

static void refuses_what_it_does_not_know(void **state) {
    (void)state;
    static const struct {
        const char *in, *says;
    } cases[] = {
        {"x @@B@@", "unknown name 'B'"},
        {"@@A", "without its end"},
        {"@@", "without its end"},
        {"@@@@", "malformed name"},
        {"@@q:@@", "malformed name"},
        {"@@A B@@", "malformed name"},
        {"@@b64:NOPE@@", "unknown name 'NOPE'"},
        {"@@hex:A@@", "malformed name"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_STR struct str out = {0};
        struct gp_error err = {0};
        assert_int_equal(render(cases[i].in, &out, &err), -GP_EINTERNAL);
        assert_non_null(strstr(err.msg, cases[i].says));
    }
}

static void refuses_to_grow_past_its_maximum(void **state) {
    (void)state;
    GP_AUTO_STR struct str out = {.max = 4};
    struct gp_error err = {0};
    assert_int_equal(render("@@A@@@@A@@", &out, &err), -GP_EINTERNAL);
    assert_non_null(strstr(err.msg, "longer than 4 bytes"));
}

static void finds_what_is_embedded(void **state) {
    (void)state;
    const struct template_file *f = template_find("cloud-init/deadline.sh");
    assert_non_null(f);
    assert_true(f->size > 100);
    assert_memory_equal(f->data, "#!/bin/sh\n", 10);
    assert_null(template_find("cloud-init/nothing"));
    assert_null(template_find(""));
}

static const struct deadline_req good_end = {.uid = "0123456789abcdef", .expires_s = 1900000000, .ttl_s = 14400};

static struct cloud_init_req good_req(void) {
    return (struct cloud_init_req){.login_pubkey = "ssh-ed25519 AAAAC3Nza login \"quoted\"",
                                   .host_key_private = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\nBBBB\n"
                                                       "-----END OPENSSH PRIVATE KEY-----\n",
                                   .host_key_public = "ssh-ed25519 AAAAC3Host first",
                                   .stack = "llm",
                                   .uid = "0123456789abcdef",
                                   .deadline = &good_end,
                                   .max = 16384};
}

static void user_data_has_what_a_node_needs(void **state) {
    (void)state;
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    struct cloud_init_req req = good_req();
    assert_int_equal(template_cloud_init(&req, &out, &err), 0);
    assert_true(out.len < 16384);
    assert_true(str_starts(out.s, "#cloud-config\n"));
    assert_non_null(strstr(out.s, "name: gpuprov\n"));
    assert_non_null(strstr(out.s, "NOPASSWD:ALL"));
    assert_non_null(strstr(out.s, "- \"ssh-ed25519 AAAAC3Nza login \\\"quoted\\\"\"\n"));
    assert_non_null(strstr(out.s, "\n    -----BEGIN OPENSSH PRIVATE KEY-----\n    AAAA\n    BBBB\n"));
    assert_null(strstr(out.s, "@@"));
    assert_non_null(strstr(out.s, "  - [\"sh\", \"-c\", \"UID_=0123456789abcdef CONF="));
    assert_non_null(strstr(out.s, "apt-daily.timer"));
}

/* Without a deadline request, user-data installs no deadline unit. */
static void user_data_without_an_end(void **state) {
    (void)state;
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    struct cloud_init_req req = good_req();
    req.deadline = NULL;
    assert_int_equal(template_cloud_init(&req, &out, &err), 0);
    assert_null(strstr(out.s, "UID_="));
    assert_null(strstr(out.s, "@@"));
    assert_non_null(strstr(out.s, "bootcmd:\n  # packages"));
}

static void the_end_of_a_node_is_one_line(void **state) {
    (void)state;
    GP_AUTO_STR struct str out = {0}, none = {0};
    struct gp_error err = {0};
    assert_int_equal(template_deadline(&good_end, &out, &err), 0);
    assert_null(strchr(out.s, '\n'));
    struct deadline_req bad = good_end;
    bad.uid = "x; reboot";
    assert_int_equal(template_deadline(&bad, &none, &err), -GP_EUSAGE);
}

/* A comment cannot end the string, break the line (YAML has three more of those) or make the YAML invalid. */
static void user_data_with_any_comment(void **state) {
    (void)state;
    static const char *const comments[] = {
        "\"\\\"]\"",        "\xc2\x85runcmd: [id]", "\xe2\x80\xa8x: y", "\xc2\x9b", "\xff",
        "\xf3\xa0\x80\x81", "gr\xc3\xbc\xc3\x9f",   "@@UID@@",          "#x",       ": - {}"};
    for (size_t i = 0; i < GP_ARRAY_LEN(comments); i++) {
        GP_AUTO_FREE char *key = xasprintf("ssh-ed25519 AAAAC3Nza %s", comments[i]);
        GP_AUTO_STR struct str out = {0};
        struct gp_error err = {0};
        struct cloud_init_req req = good_req();
        req.login_pubkey = key;
        if (template_cloud_init(&req, &out, &err) != 0) fail_msg("%s", err.msg);
        const char *at = strstr(out.s, "- \"ssh-ed25519 AAAAC3Nza ");
        assert_non_null(at);
        size_t n = strcspn(at, "\n");
        assert_int_equal(at[n - 1], '"');
        for (size_t k = 3; k < n - 1; k++) {
            assert_true(at[k] >= ' ' && at[k] <= '~');
            assert_true(at[k] != '"' || at[k - 1] == '\\');
        }
    }
}

static void user_data_refuses_bad_requests(void **state) {
    (void)state;
    struct cloud_init_req bad[6];
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) bad[i] = good_req();
    bad[0].login_pubkey = "ssh-ed25519 AAAA\nroot: yes";
    bad[1].stack = "a\"b";
    bad[2].uid = "$(reboot)";
    bad[3].host_key_private = NULL;
    struct deadline_req never = good_end;
    never.ttl_s = 0;
    bad[4].deadline = &never;
    bad[5].host_key_public = "ssh-rsa AAAA";
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_STR struct str out = {0};
        struct gp_error err = {0};
        assert_int_equal(template_cloud_init(&bad[i], &out, &err), -GP_EUSAGE);
        assert_int_equal(out.len, 0);
    }
}

static void user_data_has_a_limit(void **state) {
    (void)state;
    GP_AUTO_STR struct str out = {0}, key = {0};
    struct gp_error err = {0};
    struct cloud_init_req req = good_req();
    str_add(&key, "ssh-rsa ");
    for (int i = 0; i < 16384; i++) str_addc(&key, 'A');
    req.login_pubkey = key.s;
    assert_int_equal(template_cloud_init(&req, &out, &err), -GP_EINTERNAL);
    assert_non_null(strstr(err.msg, "longer than 16384 bytes"));
}

static void a_container_starts_with_its_keys(void **state) {
    (void)state;
    GP_AUTO_STR struct str out = {0}, small = {0};
    struct gp_error err = {0};
    struct cloud_init_req good = good_req();
    struct container_start_req req = {.login_pubkey = "ssh-ed25519 AAAA it's mine",
                                      .host_key_private = good.host_key_private,
                                      .host_key_public = good.host_key_public,
                                      .max = 16384};
    assert_int_equal(template_container_start(&req, &out, &err), 0);
    assert_non_null(strstr(out.s, "printf '%s\\n' 'ssh-ed25519 AAAA it'\\''s mine' >\"$home/.ssh/authorized_keys\""));
    assert_null(strstr(out.s, "-----BEGIN")); /* the private key is base64, so that the script has no other quotes */
    assert_null(strstr(out.s, "@@"));
    req.max = 200;
    assert_int_equal(template_container_start(&req, &small, &err), -GP_EINTERNAL);
    gp_error_clear(&err);
    req.login_pubkey = "ssh-ed25519 AAAA\nssh-ed25519 BBBB";
    assert_int_equal(template_container_start(&req, &small, &err), -GP_EUSAGE);
    gp_error_clear(&err);
    req.login_pubkey = "ssh-ed25519 AAAA";
    req.host_key_private = "";
    assert_int_equal(template_container_start(&req, &small, &err), -GP_EUSAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_each_form),
        cmocka_unit_test(refuses_what_it_does_not_know),
        cmocka_unit_test(refuses_to_grow_past_its_maximum),
        cmocka_unit_test(finds_what_is_embedded),
        cmocka_unit_test(user_data_has_what_a_node_needs),
        cmocka_unit_test(user_data_without_an_end),
        cmocka_unit_test(the_end_of_a_node_is_one_line),
        cmocka_unit_test(user_data_with_any_comment),
        cmocka_unit_test(user_data_refuses_bad_requests),
        cmocka_unit_test(user_data_has_a_limit),
        cmocka_unit_test(a_container_starts_with_its_keys),
    };
    return cmocka_run_group_tests_name("templates", tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/* The AWS CLI's files and variables: profiles, regions, endpoints, command lines, and the parts of
 * the credential chain that need no network (those that do are tests/e2e/aws/test_aws_credentials.py). */
#include "base/gp_base.h"

#include "base/fs.h"
#include "folder.h"
#include "providers/aws/aws_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[200];

static void put(const char *name, const char *text) {
    GP_AUTO_FREE char *path = fs_join(folder, name);
    assert_int_equal(fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
}

static void clean_env(void) {
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_EC2",
                                        "AWS_ENDPOINT_URL_STS",
                                        "AWS_ENDPOINT_URL_SERVICE_QUOTAS",
                                        "AWS_ROLE_ARN",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CA_BUNDLE",
                                        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CREDENTIAL_EXPIRATION"};
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) unsetenv(names[i]);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    GP_AUTO_FREE char *config = fs_join(folder, "config");
    GP_AUTO_FREE char *credentials = fs_join(folder, "credentials");
    setenv("AWS_CONFIG_FILE", config, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", credentials, 1);
    put("config", "");
    put("credentials", "");
}

static int setup(void **state) {
    (void)state;
    if (make_folder(folder, sizeof folder, "creds") == NULL) return -1;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return fs_remove_tree(folder, NULL);
}

static int each(void **state) {
    (void)state;
    clean_env();
    return 0;
}

static void test_split(void **state) {
    (void)state;
    static const struct {
        const char *line, *joined;
    } good[] = {{"a b", "a|b"},
                {"  a   b ", "a|b"},
                {"'a b' c", "a b|c"},
                {"\"a b\"", "a b"},
                {"a\\ b", "a b"},
                {"\"a\\\"b\"", "a\"b"},
                {"'a\\b'", "a\\b"},
                {"x'y'z", "xyz"},
                {"'' a", "|a"},
                {"a \"\"", "a|"},
                {"", ""}};
    for (size_t i = 0; i < GP_ARRAY_LEN(good); i++) {
        GP_AUTO_STRV struct strv words = {0};
        assert_true(aws_split_command(good[i].line, &words));
        GP_AUTO_FREE char *joined = strv_join(&words, "|");
        assert_string_equal(joined != NULL ? joined : "", good[i].joined);
    }
    GP_AUTO_STRV struct strv words = {0};
    assert_false(aws_split_command("a 'b", &words));
}

static void test_region_order(void **state) {
    (void)state;
    put("config", "[default]\nregion = eu-west-1\n[profile p]\nregion=eu-west-2\n");
    struct aws_config c = {0};
    assert_int_equal(aws_config_load(&c, NULL), 0);
    assert_string_equal(c.region, "eu-west-1");
    aws_config_clear(&c);
    setenv("AWS_PROFILE", "p", 1);
    assert_int_equal(aws_config_load(&c, NULL), 0);
    assert_string_equal(c.region, "eu-west-2");
    aws_config_clear(&c);
    setenv("AWS_DEFAULT_REGION", "us-west-1", 1);
    assert_int_equal(aws_config_load(&c, NULL), 0);
    assert_string_equal(c.region, "us-west-1");
    aws_config_clear(&c);
    setenv("AWS_REGION", "us-west-2", 1);
    assert_int_equal(aws_config_load(&c, NULL), 0);
    assert_string_equal(c.region, "us-west-2");
    aws_config_clear(&c);
}

static void test_region_is_no_host(void **state) {
    (void)state;
    static const char *const bad[] = {"evil.example/", "us-east-1@x", "US-EAST-1", "x",        "",
                                      "-us-east-1",    "us-east-1-",  "1us-east",  "us\neast", NULL};
    struct aws_config c = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        assert_false(aws_region_valid(bad[i]));
        assert_null(aws_endpoint(&c, "ec2", bad[i]));
    }
    assert_true(aws_region_valid("us-gov-west-1") && aws_region_valid("ap-southeast-5"));
    setenv("AWS_REGION", "evil.example/", 1);
    assert_int_equal(aws_config_load(&c, NULL), -GP_EUSAGE);
    aws_config_clear(&c);
}

/* Whatever a region came from (a journal, a reply, metadata): no call goes out with one that is none. */
static void test_call_refuses_a_region(void **state) {
    (void)state;
    struct aws a = {0};
    static const char *const bad[] = {"evil.example/", "us-east-1.evil.example", "us-east-1@x", ""};
    setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1", 1); /* neither with an endpoint of one's own */
    assert_int_equal(aws_config_load(&a.cfg, NULL), 0);
    assert_int_equal(aws_http_open(&a, &a.http, NULL), 0);
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_REPLY struct aws_reply reply = {0};
        struct gp_error e = {0};
        struct aws_call call = {
            .service = i % 2 ? "sts" : "ec2", .region = bad[i], .action = "X", .body = "", .flags = AWS_UNSIGNED};
        assert_int_equal(aws_call(&a, &call, &reply, &e), -GP_EUSAGE);
        assert_non_null(strstr(e.msg, "is not a region"));
        assert_false(reply.sent);
    }
    http_close(a.http);
    aws_config_clear(&a.cfg);
}

static void test_unknown_profile(void **state) {
    (void)state;
    struct aws_config c = {0};
    struct gp_error e = {0};
    setenv("AWS_PROFILE", "nope", 1);
    assert_int_equal(aws_config_load(&c, &e), -GP_EAUTH);
    assert_non_null(strstr(e.msg, "'nope'"));
    aws_config_clear(&c);
}

static void check_endpoint(const char *service, const char *region, const char *want) {
    struct aws_config c = {0};
    assert_int_equal(aws_config_load(&c, NULL), 0);
    GP_AUTO_FREE char *got = aws_endpoint(&c, service, region);
    assert_string_equal(got, want);
    aws_config_clear(&c);
}

static void test_endpoints(void **state) {
    (void)state;
    check_endpoint("ec2", "us-east-1", "https://ec2.us-east-1.amazonaws.com");
    check_endpoint("sts", "cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn");
    check_endpoint("ec2", "eusc-de-east-1", "https://ec2.eusc-de-east-1.amazonaws.eu");
    put("config", "[default]\nservices = test\nendpoint_url = http://127.0.0.1:1\n"
                  "[services test]\nec2 =\n  endpoint_url = http://127.0.0.1:2/\nsts =\n"
                  "  endpoint_url = http://127.0.0.1:3\n");
    check_endpoint("ec2", "us-east-1", "http://127.0.0.1:2");
    check_endpoint("sts", "us-east-1", "http://127.0.0.1:3");
    check_endpoint("ssm", "us-east-1", "http://127.0.0.1:1");
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4", 1);
    check_endpoint("ec2", "us-east-1", "http://127.0.0.1:4");
    setenv("AWS_ENDPOINT_URL_EC2", "http://127.0.0.1:5", 1);
    check_endpoint("ec2", "us-east-1", "http://127.0.0.1:5");
    setenv("AWS_ENDPOINT_URL_SERVICE_QUOTAS", "http://127.0.0.1:6", 1);
    check_endpoint("servicequotas", "us-east-1", "http://127.0.0.1:6");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    check_endpoint("ec2", "us-east-1", "https://ec2.us-east-1.amazonaws.com");
}

/* Runs the chain; returns its result with the key id in id. */
static int chain(char id[64], struct gp_error *err) {
    struct aws a = {0};
    id[0] = '\0';
    int r = aws_config_load(&a.cfg, err);
    if (r == 0) r = aws_http_open(&a, &a.http, err);
    if (r == 0) r = aws_creds_ensure(&a, false, err);
    if (r == 0) str_put(id, 64, a.cred.id);
    http_close(a.http);
    aws_cred_clear(&a.cred);
    aws_config_clear(&a.cfg);
    return r;
}

static void test_chain_order(void **state) {
    (void)state;
    char id[64];
    put("config", "[default]\naws_access_key_id = CONFIG\naws_secret_access_key = abcdefgh\n");
    assert_int_equal(chain(id, NULL), 0);
    assert_string_equal(id, "CONFIG");
    put("config", "[default]\naws_access_key_id = CONFIG\naws_secret_access_key = abcdefgh\n"
                  "credential_process = echo '{\"Version\":1,\"AccessKeyId\":\"PROCESS\","
                  "\"SecretAccessKey\":\"abcdefgh\"}'\n");
    assert_int_equal(chain(id, NULL), 0);
    assert_string_equal(id, "PROCESS");
    put("credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = abcdefgh\n");
    assert_int_equal(chain(id, NULL), 0);
    assert_string_equal(id, "FILE");
    setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "abcdefgh", 1);
    assert_int_equal(chain(id, NULL), 0);
    assert_string_equal(id, "ENV");
}

static void expect_refused(const char *config, const char *profile, const char *words) {
    struct gp_error e = {0};
    char id[64];
    put("config", config);
    if (profile != NULL) setenv("AWS_PROFILE", profile, 1);
    assert_int_equal(chain(id, &e), -GP_EAUTH);
    if (strstr(e.msg, words) == NULL) fail_msg("'%s' is not in: %s", words, e.msg);
    assert_null(strstr(e.msg, "abcdefgh"));
}

static void test_refusals(void **state) {
    (void)state;
    expect_refused("", NULL, "none found");
    expect_refused("[profile a]\nrole_arn = r\nsource_profile = gone\n", "a", "'gone' does not exist");
    expect_refused("[profile a]\nrole_arn = r\nsource_profile = b\n[profile b]\nrole_arn = r\n"
                   "source_profile = a\n",
                   "a", "refers back to itself");
    expect_refused("[profile a]\nrole_arn = r\nsource_profile = a\nmfa_serial = x\n", "a", "MFA");
    expect_refused("[profile a]\nsso_session = s\n", "a", "export-credentials");
    expect_refused("[profile a]\nrole_arn = r\ncredential_source = Mars\n", "a", "Mars");
    expect_refused("[profile a]\ncredential_process = /nonexistent/x\n", "a", "could not start");
    expect_refused("[profile a]\ncredential_process = 'x\n", "a", "unclosed quote");
    unsetenv("AWS_PROFILE");
    setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
    expect_refused("", NULL, "AWS_SECRET_ACCESS_KEY");
}

static void test_expiry(void **state) {
    (void)state;
    struct aws_cred c = {0};
    struct gp_error e = {0};
    GP_AUTO_JSON json_t *good = json_pack("{s:s,s:s,s:s,s:s}", "AccessKeyId", "A", "SecretAccessKey", "B", "Token", "T",
                                          "Expiration", "2026-11-21T10:00:00Z");
    assert_int_equal(aws_cred_from_json(good, "Token", "x", &c, NULL), 0);
    assert_int_equal(c.expires_s, 1795255200);
    assert_string_equal(secret_reveal(&c.token), "T");
    aws_cred_clear(&c);
    GP_AUTO_JSON json_t *bad =
        json_pack("{s:s,s:s,s:s}", "AccessKeyId", "A", "SecretAccessKey", "B", "Expiration", "tomorrow");
    assert_int_equal(aws_cred_from_json(bad, "Token", "x", &c, &e), -GP_EAUTH);
    aws_cred_clear(&c);
}

/* Good for more than five minutes: kept. Less: asked again. Asking fails but minutes are left: kept. */
static void test_refresh(void **state) {
    (void)state;
    struct aws a = {0};
    char until[32];
    put("config", "[default]\ncredential_process = sh -c 'cat \"$AWS_TEST_REPLY\"'\n");
    GP_AUTO_FREE char *path = fs_join(folder, "reply");
    setenv("AWS_TEST_REPLY", path, 1);
    assert_int_equal(aws_config_load(&a.cfg, NULL), 0);
    assert_int_equal(aws_http_open(&a, &a.http, NULL), 0);
    static const struct {
        int left_s;
        const char *want;
    } rounds[] = {{200, "FIRST"}, {3600, "SECOND"}, {0, "SECOND"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rounds); i++) {
        time_format_utc(until, sizeof until, clock_wall_s() + rounds[i].left_s);
        GP_AUTO_FREE char *text = xasprintf("{\"Version\":1,\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"abcdefgh\","
                                            "\"Expiration\":\"%s\"}",
                                            i == 0   ? "FIRST"
                                            : i == 1 ? "SECOND"
                                                     : "THIRD",
                                            until);
        put("reply", text);
        assert_int_equal(aws_creds_ensure(&a, false, NULL), 0);
        assert_string_equal(a.cred.id, rounds[i].want);
    }
    a.cred.expires_s = clock_wall_s() + 120;
    unlink(path);
    assert_int_equal(aws_creds_ensure(&a, false, NULL), 0);
    assert_string_equal(a.cred.id, "SECOND");
    a.cred.expires_s = clock_wall_s() - 1;
    assert_int_equal(aws_creds_ensure(&a, false, NULL), -GP_EAUTH);
    http_close(a.http);
    aws_cred_clear(&a.cred);
    aws_config_clear(&a.cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_split, each),
        cmocka_unit_test_setup(test_region_order, each),
        cmocka_unit_test_setup(test_region_is_no_host, each),
        cmocka_unit_test_setup(test_call_refuses_a_region, each),
        cmocka_unit_test_setup(test_unknown_profile, each),
        cmocka_unit_test_setup(test_endpoints, each),
        cmocka_unit_test_setup(test_chain_order, each),
        cmocka_unit_test_setup(test_refusals, each),
        cmocka_unit_test_setup(test_expiry, each),
        cmocka_unit_test_setup(test_refresh, each),
    };
    return cmocka_run_group_tests_name("aws credentials", tests, setup, teardown);
}

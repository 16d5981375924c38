/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the package cache: the one form that is taken, every trick that is refused, and the origins that it
 * fetches from. */
#include "base/gp_base.h"

#include "validate/agent/cache/cache_request.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define SUM "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *status, *why;

static bool parse_head(const char *head, struct cache_request *q) {
    return cache_request_parse(head, strlen(head), q, &status, &why);
}

static bool parse(const char *target, struct cache_request *q) {
    GP_AUTO_FREE char *head = xasprintf("GET %s HTTP/1.1\r\nHost: 10.0.0.5:40123\r\nUser-Agent: apt\r\n\r\n", target);
    return parse_head(head, q);
}

static void takes_one_form(void **state) {
    (void)state;
    struct cache_request q = {0};
    assert_true(parse("/" SUM "/1234/http/deb.example.org/pool/main/g/gcc/libstdc%2b%2b6_12-1~a_amd64.deb", &q));
    assert_string_equal(q.sha256, SUM);
    assert_int_equal(q.size, 1234);
    assert_string_equal(q.origin, "deb.example.org:80");
    assert_string_equal(q.url, "http://deb.example.org:80/pool/main/g/gcc/libstdc%2b%2b6_12-1~a_amd64.deb");
    assert_true(parse("/" SUM "/1/https/DEB.Example.org:8443/./a..b/x", &q));
    assert_string_equal(q.url, "https://deb.example.org:8443/./a..b/x");
}

static void refuses_targets(void **state) {
    (void)state;
    static const char *const targets[] = {"http://169.254.169.254/latest/meta-data/",
                                          "http://10.0.0.9/x",
                                          "10.0.0.9:22",
                                          "*",
                                          "/",
                                          "//",
                                          "/x",
                                          "/" SUM,
                                          "/" SUM "/",
                                          "/" SUM "/12",
                                          "/" SUM "/12/http/",
                                          "/" SUM "/12/http/h",
                                          "/" SUM "/12/http/h/",
                                          "/0123/12/http/h/x",
                                          "/" SUM "0/12/http/h/x",
                                          "/" SUM "/0/http/h/x",
                                          "/" SUM "/-1/http/h/x",
                                          "/" SUM "/012/http/h/x",
                                          "/" SUM "/99999999999999/http/h/x",
                                          "/" SUM "/99999999999999999999/http/h/x",
                                          "/" SUM "/12/file/h/x",
                                          "/" SUM "/12/ftp/h/x",
                                          "/" SUM "/12/HTTP/h/x",
                                          "/" SUM "/12/http/u@h/x",
                                          "/" SUM "/12/http/h:0/x",
                                          "/" SUM "/12/http/h:/x",
                                          "/" SUM "/12/http/h:65536/x",
                                          "/" SUM "/12/http/h:080/x",
                                          "/" SUM "/12/http/h:+80/x",
                                          "/" SUM "/12/http/h:80:80/x",
                                          "/" SUM "/12/http/-h/x",
                                          "/" SUM "/12/http/[::1]/x",
                                          "/" SUM "/12/http/h/../x",
                                          "/" SUM "/12/http/h/a/..",
                                          "/" SUM "/12/http/h/%2e%2e/x",
                                          "/" SUM "/12/http/h/a%2f..%2fx",
                                          "/" SUM "/12/http/h/.%2E",
                                          "/" SUM "/12/http/h/%",
                                          "/" SUM "/12/http/h/%0a",
                                          "/" SUM "/12/http/h/%zz",
                                          "/" SUM "/12/http/h/%252e",
                                          "/" SUM "/12/http/h/a?b",
                                          "/" SUM "/12/http/h/a#b",
                                          "/" SUM "/12/http/h/$(id)",
                                          "/" SUM "/12/http/h/a;b",
                                          "/" SUM "/12/http/h/a'b",
                                          "/" SUM "/12/http/h/a`b",
                                          "/" SUM "/12/http/h/a\\b",
                                          "/" SUM "/12/http/h/\xc3\xa9",
                                          "/" SUM "/12/http/h/a b"};
    for (size_t i = 0; i < GP_ARRAY_LEN(targets); i++) {
        struct cache_request q = {0};
        if (parse(targets[i], &q)) fail_msg("taken: %s", targets[i]);
        assert_string_equal(status, "400 Bad Request");
        assert_true(q.url[0] == '\0');
    }
    char deep[4000] = "/" SUM "/12/http/h/";
    size_t n = strlen(deep);
    memset(deep + n, 'a', sizeof deep - n - 1);
    deep[sizeof deep - 1] = '\0';
    struct cache_request q = {0};
    assert_false(parse(deep, &q));
}

static void refuses_heads(void **state) {
    (void)state;
    static const char *const heads[] = {"",
                                        "\r\n\r\n",
                                        "GET\r\n\r\n",
                                        "GET /x\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\n\n",
                                        "GET /" SUM "/1/http/h/x HTTP/2\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\n folded\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\nno colon\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\nHost : a\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\nA: \x01\r\n\r\n",
                                        "GET  /" SUM "/1/http/h/x HTTP/1.1\r\n\r\n",
                                        "GET /" SUM "/1/http/h/x HTTP/1.1\r\n\r\nmore"};
    struct cache_request q = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(heads); i++)
        if (parse_head(heads[i], &q)) fail_msg("taken: %s", heads[i]);
    static const char *const methods[] = {"CONNECT h:443", "POST /" SUM "/1/http/h/x", "HEAD /" SUM "/1/http/h/x"};
    for (size_t i = 0; i < GP_ARRAY_LEN(methods); i++) {
        GP_AUTO_FREE char *head = xasprintf("%s HTTP/1.1\r\n\r\n", methods[i]);
        assert_false(parse_head(head, &q));
        assert_string_equal(status, "405 Method Not Allowed");
    }
    assert_int_equal(cache_head_size("GET / HTTP/1.1\r\n\r", 17), 0);
    assert_int_equal(cache_head_size("a\r\n\r\nb", 6), 5);
}

static void knows_origins_that_are_no_source(void **state) {
    (void)state;
    static const char *const refused[] = {"127.0.0.1:80",
                                          "127.9.9.9:80",
                                          "0.0.0.0:80",
                                          "169.254.169.254:80",
                                          "169.254.170.2:80",
                                          "100.100.100.200:80",
                                          "192.0.0.192:80",
                                          "168.63.129.16:80",
                                          "224.0.0.1:80",
                                          "255.255.255.255:80",
                                          "2852039166:80",
                                          "0x7f.1:80",
                                          "127.1:80",
                                          "0177.0.0.1:80",
                                          "localhost:80",
                                          "localhost.:80",
                                          "a.localhost:80",
                                          "metadata.google.internal:80",
                                          "metadata.google.internal.:80",
                                          "10.0.0.256:80"};
    static const char *const taken[] = {"10.0.0.9:80", "192.168.1.1:3142",        "deb.example.org:443",
                                        "8.8.8.8:80",  "mirror.corp.internal:80", "126.255.255.255:80"};
    for (size_t i = 0; i < GP_ARRAY_LEN(refused); i++)
        if (!cache_origin_refused(refused[i])) fail_msg("taken: %s", refused[i]);
    for (size_t i = 0; i < GP_ARRAY_LEN(taken); i++)
        if (cache_origin_refused(taken[i])) fail_msg("refused: %s", taken[i]);
}

static void reads_package_sources(void **state) {
    (void)state;
    GP_AUTO_STRV struct strv o = {0};
    cache_origins_add(&o, "# deb http://comment.example/\n"
                          "deb [signed-by=/x arch=amd64] http://Deb.example.org/debian bookworm main\n"
                          "URIs: https://a.example:8443/x  http://user:secret@b.example/y\n"
                          "baseurl=https://c.example/rhel9/$basearch\n"
                          "deb cdrom:[x]/ y\ndeb file:///srv/x ./\ndeb http://[::1]/ x\ndeb http://h:99999/ x\n");
    GP_AUTO_FREE char *all = strv_join(&o, " ");
    assert_string_equal(all, "deb.example.org:80 a.example:8443 b.example:80 c.example:443");
}

static void knows_its_peers(void **state) {
    (void)state;
    assert_true(cache_peer_known("10.0.0.1\n10.0.0.2\n", "10.0.0.2"));
    assert_true(cache_peer_known("10.0.0.1\n10.0.0.2\n", "::ffff:10.0.0.1"));
    assert_false(cache_peer_known("10.0.0.1\n10.0.0.2\n", "10.0.0.22"));
    assert_false(cache_peer_known("10.0.0.22\n", "10.0.0.2"));
    assert_false(cache_peer_known("", ""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_one_form),        cmocka_unit_test(refuses_targets),
        cmocka_unit_test(refuses_heads),         cmocka_unit_test(knows_origins_that_are_no_source),
        cmocka_unit_test(reads_package_sources), cmocka_unit_test(knows_its_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

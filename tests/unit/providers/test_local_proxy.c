// SPDX-License-Identifier: Apache-2.0
/* The package proxy's parser: what it takes, what it refuses and with which status, what goes on. */
#include "base/gp_base.h"

#include "providers/local/proxy/proxy.h"
#include "providers/local/proxy/proxy_request.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define END "\r\n\r\n"
#define HOST "Host: deb.example.org\r\n"

/* The status of a head, "" when it is taken. */
static const char *refused(const char *head, size_t n) {
    GP_AUTO_PROXY_REQUEST struct proxy_request q = {0};
    const char *status = NULL, *why = NULL;
    if (proxy_request_parse(head, n, &q, &status, &why)) return "";
    assert_non_null(status);
    assert_non_null(why);
    assert_null(q.path); /* untouched */
    return status;
}

static void test_what_is_taken(void **state) {
    (void)state;
    static const struct {
        const char *head, *method, *host, *port, *path;
    } good[] = {
        {"GET http://deb.example.org/debian/x.deb HTTP/1.1\r\n" HOST "\r\n", "GET", "deb.example.org", "80",
         "/debian/x.deb"},
        {"HEAD HTTP://10.0.0.7:8080 HTTP/1.0" END, "HEAD", "10.0.0.7", "8080", "/"},
        {"GET http://h/a?b=c%20d~e HTTP/1.1\r\nAccept:\r\nX-Y: a: b\xc3\xa9\r\n\r\n", "GET", "h", "80", "/a?b=c%20d~e"},
        {"CONNECT secure.example:443 HTTP/1.1\r\nProxy-Connection: x" END, "CONNECT", "secure.example", "443", ""},
        {"CONNECT h:65535 HTTP/1.1" END, "CONNECT", "h", "65535", ""}};
    for (size_t i = 0; i < GP_ARRAY_LEN(good); i++) {
        GP_AUTO_PROXY_REQUEST struct proxy_request q = {0};
        const char *status = "", *why = "";
        if (!proxy_request_parse(good[i].head, strlen(good[i].head), &q, &status, &why))
            fail_msg("%s: %s", good[i].head, why);
        assert_string_equal(q.method, good[i].method);
        assert_string_equal(q.host, good[i].host);
        assert_string_equal(q.port, good[i].port);
        assert_string_equal(q.path, good[i].path);
        assert_int_equal(q.connect, strcmp(good[i].method, "CONNECT") == 0);
    }
}

static void test_what_is_refused(void **state) {
    (void)state;
#define GET "GET http://h/ HTTP/1.1\r\n"
    static const char *const bad[] = {
        /* lines */
        "GET http://h/ HTTP/1.1\n\n", "GET http://h/ HTTP/1.1\nHost: h" END, GET "A: b\nC: d" END, GET "A: b\rC: d" END,
        GET "A: b\r\r\n\r\n", "GET http://h/ HTTP/1.1\r\n\n", GET "A: b\tc" END, GET "A: \x01" END, GET "A: \x7f" END,
        GET "A: b\n\r\n\r\n", "\r\n" GET "\r\n", "\r\n\r\n", "", "GET http://h/ HTTP/1.1\r\n", GET "A: b\r\n",
        /* header lines */
        GET " A: b" END, GET "A: b\r\n C: d" END, GET "A: b\r\n\tC: d" END, GET "A : b" END, GET "A" END, GET ": b" END,
        GET "A b: c" END, GET "A(: c" END, GET "\xc3\xa9: c" END,
        /* one Host, no body */
        GET "Host: h\r\nHost: h" END, GET "Host: h\r\nhOST: i" END, GET "Content-Length: 0" END,
        GET "content-length: 5" END, GET "Transfer-Encoding: chunked" END, GET "TRANSFER-ENCODING:" END,
        "CONNECT h:1 HTTP/1.1\r\nContent-Length: 1" END, "HEAD http://h/ HTTP/1.1\r\nContent-Length: 1" END,
        /* request line */
        "GET http://h/" END, "GET  http://h/ HTTP/1.1" END, "GET http://h/  HTTP/1.1" END,
        "GET http://h/ HTTP/1.1 " END, " GET http://h/ HTTP/1.1" END, "GET http://h/ HTTP/2.0" END,
        "GET http://h/ HTTP/1.10" END, "GET http://h/ http/1.1" END, "GET http://h/ HTTP/1.1 x" END,
        "G(T http://h/ HTTP/1.1" END, "GET" END, "GET " END,
        /* target */
        "GET /path HTTP/1.1" END, "GET https://h/ HTTP/1.1" END, "GET ftp://h/ HTTP/1.1" END,
        "GET http:///x HTTP/1.1" END, "GET http://u@h/ HTTP/1.1" END, "GET http://u:p@h/ HTTP/1.1" END,
        "GET http://h:/ HTTP/1.1" END, "GET http://h:0/ HTTP/1.1" END, "GET http://h:65536/ HTTP/1.1" END,
        "GET http://h:080/ HTTP/1.1" END, "GET http://h:+80/ HTTP/1.1" END, "GET http://h:8o/ HTTP/1.1" END,
        "GET http://h:1:2/ HTTP/1.1" END, "GET http://[::1]/ HTTP/1.1" END, "GET http://[::1]:80/ HTTP/1.1" END,
        "GET http://::1/ HTTP/1.1" END, "GET http://-h/ HTTP/1.1" END, "GET http://h%00/ HTTP/1.1" END,
        "GET http://h;x/ HTTP/1.1" END, "GET http://h\\@x/ HTTP/1.1" END, "GET http://h?q HTTP/1.1" END,
        "GET http://h#f HTTP/1.1" END, "GET http://h/#f HTTP/1.1" END, "GET http://h/\xc3\xa9 HTTP/1.1" END,
        "CONNECT h HTTP/1.1" END, "CONNECT h: HTTP/1.1" END, "CONNECT h:443/ HTTP/1.1" END,
        "CONNECT http://h:443 HTTP/1.1" END, "CONNECT [::1]:443 HTTP/1.1" END, "CONNECT :443 HTTP/1.1" END};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        const char *status = refused(bad[i], strlen(bad[i]));
        if (strcmp(status, "400 Bad Request") != 0) fail_msg("%zu: '%s' gives '%s'", i, bad[i], status);
    }
    static const char nul[] = GET "A: b\0c" END;
    assert_string_equal(refused(nul, sizeof nul - 1), "400 Bad Request");
    GP_AUTO_FREE char *host = xcalloc(1, 300);
    memset(host, 'a', 256);
    GP_AUTO_FREE char *longest = xasprintf("GET http://%s/ HTTP/1.1" END, host);
    assert_string_equal(refused(longest, strlen(longest)), "400 Bad Request");
    static const char *const other[] = {"POST http://h/ HTTP/1.1" END, "get http://h/ HTTP/1.1" END,
                                        "OPTIONS * HTTP/1.1" END, "PUT http://h/ HTTP/1.1\r\nContent-Length: 1" END};
    for (size_t i = 0; i < GP_ARRAY_LEN(other); i++)
        assert_string_equal(refused(other[i], strlen(other[i])), "405 Method Not Allowed");
}

static void test_the_head_ends_where_it_ends(void **state) {
    (void)state;
    static const char whole[] = GET "A: b" END "rest\n\0";
    size_t head = sizeof whole - 1 - 6;
    bool bad = true;
    assert_int_equal(proxy_head_size(whole, sizeof whole - 1, &bad), head);
    assert_false(bad);
    for (size_t n = 0; n < head; n++) { /* in pieces: more is awaited, nothing is wrong */
        assert_int_equal(proxy_head_size(whole, n, &bad), 0);
        assert_false(bad);
    }
    static const char *const never[] = {"GET x\n", "GET x\rA", "\n", "A\x01"};
    for (size_t i = 0; i < GP_ARRAY_LEN(never); i++) {
        assert_int_equal(proxy_head_size(never[i], strlen(never[i]), &bad), 0);
        assert_true(bad);
    }
    /* the parser takes exactly the head: one byte more is another request's */
    assert_string_equal(refused(whole, head), "");
    assert_string_equal(refused(whole, head + 1), "400 Bad Request");
}

static void test_what_goes_on(void **state) {
    (void)state;
    static const char head[] = "GET http://deb.example.org/x HTTP/1.1\r\nHost: other.example\r\n"
                               "User-Agent:  apt \r\nProxy-Authorization: Basic c2VjcmV0\r\n"
                               "Connection: keep-alive\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\n\r\n";
    GP_AUTO_PROXY_REQUEST struct proxy_request q = {0};
    const char *status = NULL, *why = NULL;
    assert_true(proxy_request_parse(head, sizeof head - 1, &q, &status, &why));
    GP_AUTO_STR struct str out = {0};
    struct proxy_upstream up = {.host = ""};
    proxy_request_build(&q, &up, &out);
    /* the Host that was asked for and allowed, not the one that the node named */
    assert_string_equal(out.s, "GET /x HTTP/1.1\r\nHost: deb.example.org\r\nConnection: close\r\n"
                               "User-Agent: apt\r\n\r\n");
    str_reset(&out);
    up = (struct proxy_upstream){.host = "cache", .port = "3142", .authorization = "bWU="};
    proxy_request_build(&q, &up, &out);
    assert_string_equal(out.s, "GET http://deb.example.org:80/x HTTP/1.1\r\nHost: deb.example.org\r\n"
                               "Connection: close\r\nProxy-Authorization: Basic bWU=\r\n"
                               "User-Agent: apt\r\n\r\n");
    proxy_request_clear(&q);
    static const char tunnel[] = "CONNECT h:443 HTTP/1.1\r\nA: b" END;
    assert_true(proxy_request_parse(tunnel, sizeof tunnel - 1, &q, &status, &why));
    str_reset(&out);
    proxy_request_build(&q, &up, &out);
    assert_string_equal(out.s, "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nProxy-Authorization: Basic bWU=\r\n\r\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_taken), cmocka_unit_test(test_what_is_refused),
                                       cmocka_unit_test(test_the_head_ends_where_it_ends),
                                       cmocka_unit_test(test_what_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

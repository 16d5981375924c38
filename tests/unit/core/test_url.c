/* SPDX-License-Identifier: Apache-2.0 */
/* The place that a URL names: by it is decided what may be sent there. */
#include "base/gp_base.h"

#include "base/form.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void no_place(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "http",
                                      "http://",
                                      "http:///x",
                                      "https://",
                                      "https:///x",
                                      "HTTP://h/",
                                      "HTTPS://h/",
                                      "ftp://127.0.0.1/",
                                      "file:///etc/passwd",
                                      "//127.0.0.1/",
                                      "127.0.0.1:80",
                                      " http://127.0.0.1",
                                      "http:/127.0.0.1",
                                      "http://127.0.0.1 /",
                                      "http://127.0.0.1\n",
                                      "http://127.0.0.1/\r\nX: y",
                                      "http://127.0.0.1\\@evil.example/",
                                      "http:\\\\127.0.0.1",
                                      "http://127.0.0.1@evil.example/",
                                      "http://localhost:80@evil.example/",
                                      "http://me:pw@127.0.0.1/",
                                      "http://@127.0.0.1/",
                                      "http://127.0.0.1:80x/",
                                      "http://127.0.0.1:/",
                                      "http://127.0.0.1:123456/",
                                      "http://127.0.0.1:80:80/",
                                      "http://[::1",
                                      "http://[]/",
                                      "http://[127.0.0.1]/",
                                      "http://[::1]evil.example/",
                                      "http://[::1%25lo]/",
                                      "http://::1/",
                                      "http://a%2eb/",
                                      "http://loc\xc3\xa4lhost/",
                                      "http://127.0.0.1,evil.example/",
                                      "http://h;x/",
                                      "http://h\x7f/"};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        struct url_place p = {.host = "as it was"};
        if (form_url(bad[i], &p)) fail_msg("%s -> %s", bad[i], p.host);
        assert_string_equal(p.host, "as it was");
    }
    char longest[300] = "http://";
    memset(longest + 7, 'h', 256);
    struct url_place p;
    assert_false(form_url(longest, &p));
    longest[7 + 255] = '\0';
    assert_true(form_url(longest, &p));
}

static void places(void **state) {
    (void)state;
    static const struct {
        const char *url, *host, *port;
        bool https, loopback;
    } rows[] = {
        {"http://127.0.0.1", "127.0.0.1", "", false, true},
        {"http://127.0.0.1:8080/a@b?c#d", "127.0.0.1", "8080", false, true},
        {"http://127.255.0.9?x", "127.255.0.9", "", false, true},
        {"http://localhost#x", "localhost", "", false, true},
        {"http://LocalHost:1/", "LocalHost", "1", false, true},
        {"http://[::1]:80/", "::1", "80", false, true},
        {"http://[0:0:0:0:0:0:0:1]/", "0:0:0:0:0:0:0:1", "", false, true},
        {"https://example.com/x", "example.com", "", true, false},
        {"http://127.0.0.1.evil.example/", "127.0.0.1.evil.example", "", false, false},
        {"http://localhost.evil.example/", "localhost.evil.example", "", false, false},
        {"http://localhost./", "localhost.", "", false, false},
        {"http://x.localhost/", "x.localhost", "", false, false},
        {"http://ip6-localhost/", "ip6-localhost", "", false, false},
        {"http://127.1/", "127.1", "", false, false},
        {"http://2130706433/", "2130706433", "", false, false},
        {"http://0x7f.0.0.1/", "0x7f.0.0.1", "", false, false},
        {"http://0177.0.0.1/", "0177.0.0.1", "", false, false},
        {"http://0.0.0.0/", "0.0.0.0", "", false, false},
        {"http://128.0.0.1/", "128.0.0.1", "", false, false},
        {"http://[::]/", "::", "", false, false},
        {"http://[::2]/", "::2", "", false, false},
        {"http://[::ffff:10.0.0.1]/", "::ffff:10.0.0.1", "", false, false},
        {"http://169.254.169.254/", "169.254.169.254", "", false, false},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct url_place p;
        if (!form_url(rows[i].url, &p)) fail_msg("%s", rows[i].url);
        assert_string_equal(p.host, rows[i].host);
        assert_string_equal(p.port, rows[i].port);
        if (p.https != rows[i].https || form_url_is_loopback(&p) != rows[i].loopback) fail_msg("%s", rows[i].url);
    }
}

static void named(void **state) {
    (void)state;
    static const struct {
        const char *url, *word;
        bool is;
    } rows[] = {
        {"http://cloud.example/x", "cloud.example", true},
        {"http://Cloud.example/x", "cloud.EXAMPLE", true},
        {"http://cloud.example:80/x", "cloud.example", true},
        {"http://cloud.example/x", "cloud.example:80", true},
        {"http://cloud.example:81/x", "cloud.example:80", false},
        {"http://a.cloud.example/", "cloud.example", false},
        {"http://cloud.example.evil/", "cloud.example", false},
        {"http://10.0.0.1:9000/", "10.0.0.1:9000", true},
        {"http://10.0.0.1:9000/", "10.0.0.1:900", false},
        {"http://10.0.0.1/", "*", false},
        {"http://10.0.0.1/", "", false},
        {"http://10.0.0.1/", "http://10.0.0.1", false},
        {"http://[fd00::5]:5000/", "[fd00::5]:5000", true},
        {"http://[fd00::5]:5000/", "fd00::5", true},
        {"http://[fd00::5]:5000/", "[fd00::5]", true},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        struct url_place p;
        assert_true(form_url(rows[i].url, &p));
        if (form_url_is(&p, rows[i].word) != rows[i].is) fail_msg("%s, %s", rows[i].url, rows[i].word);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_place), cmocka_unit_test(places), cmocka_unit_test(named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

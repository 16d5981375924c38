// SPDX-License-Identifier: Apache-2.0
/* ACS3-HMAC-SHA256 against the documented example and the values of the official SDKs' own tests, at every stage. */
#include "base/gp_base.h"

#include "providers/alibaba/acs3.h"

#include <setjmp.h>
#include <stdarg.h>

#include <jansson.h>
#include <cmocka.h>

static json_t *vectors;

static int load(void **state) {
    json_error_t e;
    (void)state;
    vectors = json_load_file("tests/unit/providers/acs3/vectors.json", 0, &e);
    if (vectors == NULL) fail_msg("%s", e.text);
    return 0;
}

static int unload(void **state) {
    (void)state;
    json_decref(vectors);
    return 0;
}

static const char *text(const json_t *v, const char *key) {
    const char *s = json_string_value(json_object_get(v, key));
    assert_non_null(s);
    return s;
}

static void request(const json_t *v, struct http_fields *headers, struct acs3_req *ret) {
    json_t *all = json_object_get(v, "headers"), *pair = NULL;
    size_t i = 0;
    json_array_foreach(all, i, pair) http_fields_add(headers, json_string_value(json_array_get(pair, 0)),
                                                     json_string_value(json_array_get(pair, 1)));
    *ret = (struct acs3_req){.method = text(v, "method"),
                             .path = text(v, "path"),
                             .query = text(v, "query"),
                             .headers = headers,
                             .payload_hash = text(v, "payload_hash")};
}

static void test_vectors(void **state) {
    json_t *v = NULL;
    size_t i = 0;
    (void)state;
    assert_true(json_array_size(vectors) == 5);
    json_array_foreach(vectors, i, v) {
        GP_AUTO_FIELDS struct http_fields headers = {0};
        GP_AUTO_SECRET struct secret key = {0};
        GP_AUTO_STR struct str canonical = {0}, to_sign = {0}, authorization = {0};
        struct acs3_req r;
        char hex[65];
        request(v, &headers, &r);
        secret_set(&key, text(v, "secret"), strlen(text(v, "secret")));
        acs3_canonical(&r, &canonical);
        assert_string_equal(canonical.s, text(v, "canonical"));
        acs3_string_to_sign(&r, &to_sign);
        assert_string_equal(to_sign.s, text(v, "to_sign"));
        acs3_signature(&r, &key, hex);
        assert_string_equal(hex, text(v, "signature"));
        acs3_authorization(&r, text(v, "id"), &key, &authorization);
        if (text(v, "authorization")[0] != '\0') assert_string_equal(authorization.s, text(v, "authorization"));
    }
}

/* The order of the query, and of names of which one begins with the other, does not matter. */
static void test_order(void **state) {
    static const char *const queries[] = {"Tag.1.Key=a&Tag.10.Key=c&Tag.1.Value=b&A=1&AB=2",
                                          "AB=2&Tag.1.Value=b&Tag.10.Key=c&A=1&Tag.1.Key=a"};
    struct http_fields none = {0};
    char hex[2][65];
    GP_AUTO_SECRET struct secret key = {0};
    (void)state;
    secret_set(&key, "k", 1);
    for (size_t i = 0; i < 2; i++) {
        struct acs3_req r = {"POST", "/", queries[i], &none, "00"};
        GP_AUTO_STR struct str canonical = {0};
        acs3_canonical(&r, &canonical);
        assert_non_null(strstr(canonical.s, "A=1&AB=2&Tag.1.Key=a&Tag.1.Value=b&Tag.10.Key=c"));
        acs3_signature(&r, &key, hex[i]);
    }
    assert_string_equal(hex[0], hex[1]);
}

/* HMAC hashes a key that is longer than a block of SHA-256 (RFC 4231, case 6, has such a key). */
static void test_long_key(void **state) {
    struct http_fields none = {0};
    struct acs3_req r = {"GET", "", NULL, &none, "00"};
    char a[65], b[65], bytes[131];
    GP_AUTO_SECRET struct secret key = {0}, shorter = {0};
    (void)state;
    memset(bytes, 0xaa, sizeof bytes);
    secret_set(&key, bytes, sizeof bytes);
    secret_set(&shorter, bytes, 64);
    acs3_signature(&r, &key, a);
    acs3_signature(&r, &shorter, b);
    assert_string_not_equal(a, b);
    /* by python's hmac of the same request */
    assert_string_equal(a, "c671f867fa6801202fb2a52ce89ee212868cfb65a9cdacd6b0b64b7a99f9271e");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_long_key),
    };
    return cmocka_run_group_tests_name("acs3", tests, load, unload);
}

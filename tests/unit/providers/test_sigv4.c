// SPDX-License-Identifier: Apache-2.0
/* SigV4 against the official suite (38 cases, every stage) and botocore's signer for EC2's form. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/vec.h"
#include "providers/aws/sigv4.h"

#include <setjmp.h>
#include <stdarg.h>

#include <jansson.h>
#include <cmocka.h>

static json_t *load(const char *path) {
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (j == NULL) fail_msg("%s: %s", path, e.text);
    return j;
}

static const char *text(json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    assert_non_null(s);
    return s;
}

struct parsed {
    char *method, *path, *query, *body;
    struct http_fields headers;
};

/* "POST /p?q HTTP/1.1\nName:value\n  folded\n\nbody" */
static void parse_request(const char *raw, struct parsed *p) {
    const char *end = strchr(raw, '\n');
    if (end == NULL) end = raw + strlen(raw);
    const char *sp = memchr(raw, ' ', (size_t)(end - raw));
    assert_non_null(sp);
    const char *last = end;
    while (*last != ' ') last--; /* a path may have spaces */
    p->method = xstrndup(raw, (size_t)(sp - raw));
    char *target = xstrndup(sp + 1, (size_t)(last - sp - 1));
    char *mark = strchr(target, '?');
    p->query = xstrdup(mark != NULL ? mark + 1 : "");
    if (mark != NULL) *mark = '\0';
    p->path = target;
    const char *at = *end != '\0' ? end + 1 : end;
    while (*at != '\0' && *at != '\n') {
        const char *stop = strchr(at, '\n');
        if (stop == NULL) stop = at + strlen(at);
        while (stop[0] == '\n' && (stop[1] == ' ' || stop[1] == '\t')) {
            const char *next = strchr(stop + 1, '\n');
            stop = next != NULL ? next : stop + strlen(stop);
        }
        GP_AUTO_FREE char *line = xstrndup(at, (size_t)(stop - at));
        char *colon = strchr(line, ':');
        assert_non_null(colon);
        *colon = '\0';
        http_fields_add(&p->headers, line, colon + 1);
        at = *stop != '\0' ? stop + 1 : stop;
    }
    p->body = xstrdup(*at == '\n' ? at + 1 : "");
}

static void parsed_clear(struct parsed *p) {
    free(p->method);
    free(p->path);
    free(p->query);
    free(p->body);
    http_fields_clear(&p->headers);
}

/* "2015-08-30T12:36:00Z" to "20150830T123600Z" */
static void compact_date(const char *iso, char out[17]) {
    size_t n = 0;
    for (; *iso != '\0' && n < 16; iso++)
        if (*iso != '-' && *iso != ':') out[n++] = *iso;
    out[n] = '\0';
}

static void run_case(const char *name, json_t *c) {
    json_t *ctx = json_object_get(c, "context");
    json_t *cred = json_object_get(ctx, "credentials");
    struct parsed p = {0};
    char date[17];
    parse_request(text(c, "request"), &p);
    compact_date(text(ctx, "timestamp"), date);
    http_fields_add(&p.headers, "X-Amz-Date", date);
    json_t *token = json_object_get(cred, "token");
    bool omit = json_is_true(json_object_get(ctx, "omit_session_token"));
    if (json_is_string(token) && !omit) http_fields_add(&p.headers, "X-Amz-Security-Token", json_string_value(token));
    if (json_is_true(json_object_get(ctx, "sign_body"))) {
        char hash[65];
        sha256_hex(p.body, strlen(p.body), hash);
        http_fields_add(&p.headers, "x-amz-content-sha256", hash);
    }
    struct sigv4_req r = {.method = p.method,
                          .path = p.path,
                          .query = p.query,
                          .headers = &p.headers,
                          .body = p.body,
                          .body_len = strlen(p.body),
                          .region = text(ctx, "region"),
                          .service = text(ctx, "service"),
                          .date = date,
                          .raw_path = !json_is_true(json_object_get(ctx, "normalize"))};
    GP_AUTO_SECRET struct secret key = {0};
    const char *secret = text(cred, "secret_access_key");
    secret_set(&key, secret, strlen(secret));
    GP_AUTO_STR struct str canonical = {0};
    GP_AUTO_STR struct str to_sign = {0};
    GP_AUTO_STR struct str auth = {0};
    char hex[65];
    sigv4_canonical(&r, &canonical);
    if (strcmp(canonical.s, text(c, "canonical_request")) != 0) print_message("case %s\n", name);
    assert_string_equal(canonical.s, text(c, "canonical_request"));
    sigv4_string_to_sign(&r, canonical.s, &to_sign);
    assert_string_equal(to_sign.s, text(c, "string_to_sign"));
    assert_int_equal(sigv4_signature(&r, to_sign.s, &key, hex, NULL), 0);
    assert_string_equal(hex, text(c, "signature"));
    assert_int_equal(sigv4_authorization(&r, text(cred, "access_key_id"), &key, &auth, NULL), 0);
    assert_non_null(strstr(text(c, "signed_request"), auth.s));
    parsed_clear(&p);
}

static void test_official_suite(void **state) {
    (void)state;
    json_t *j = load("tests/unit/providers/sigv4/suite.json");
    const char *name = NULL;
    json_t *c = NULL;
    size_t n = 0;
    json_object_foreach(json_object_get(j, "cases"), name, c) {
        run_case(name, c);
        n++;
    }
    assert_int_equal(n, 38);
    json_decref(j);
}

static void test_botocore_ec2(void **state) {
    (void)state;
    json_t *j = load("tests/unit/providers/sigv4/botocore.json");
    GP_AUTO_SECRET struct secret key = {0};
    const char *secret = text(j, "secret_access_key");
    secret_set(&key, secret, strlen(secret));
    size_t i = 0;
    json_t *v = NULL, *all = json_object_get(j, "vectors");
    assert_true(json_array_size(all) >= 4);
    json_array_foreach(all, i, v) {
        GP_AUTO_FIELDS struct http_fields h = {0};
        GP_AUTO_STR struct str auth = {0};
        http_fields_add(&h, "Content-Type", "application/x-www-form-urlencoded; charset=utf-8");
        http_fields_add(&h, "Host", text(v, "host"));
        http_fields_add(&h, "X-Amz-Date", text(v, "x_amz_date"));
        json_t *token = json_object_get(v, "session_token");
        if (json_is_string(token)) http_fields_add(&h, "X-Amz-Security-Token", json_string_value(token));
        const char *body = text(v, "body");
        struct sigv4_req r = {.method = "POST",
                              .path = "/",
                              .headers = &h,
                              .body = body,
                              .body_len = strlen(body),
                              .region = text(v, "region"),
                              .service = text(v, "service"),
                              .date = text(v, "x_amz_date")};
        assert_int_equal(sigv4_authorization(&r, text(j, "access_key_id"), &key, &auth, NULL), 0);
        assert_string_equal(auth.s, text(v, "authorization"));
    }
    json_decref(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_official_suite),
        cmocka_unit_test(test_botocore_ec2),
    };
    return cmocka_run_group_tests_name("sigv4", tests, NULL, NULL);
}

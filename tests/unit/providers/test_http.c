/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP client against a real server that misbehaves by path (http_server.py): one request, many side by side,
 * over HTTP/1.1 and HTTP/2. The server's own count shows what was sent. */
#include "base/gp_base.h"

#include "providers/http_int.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "http_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct http *open_client(const struct http_options *opt) {
    struct http *h = NULL;
    struct gp_error err = {0};
    struct http_options o = *opt;
    o.ca_bundle = ca;
    if (http_open(&o, &h, &err) != 0) fail_msg("%s", err.msg);
    return h;
}

/* What the server saw: a number of its reply to /seen. Paths have no '.'. */
static json_t *server_state(void) {
    struct http *h = open_client(&(struct http_options){0});
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FREE char *url = xasprintf("%s/seen", plain);
    json_t *j = NULL;
    assert_int_equal(
        http_call(h, &(struct http_req){.what = "seen", .method = "GET", .url = url, .repeatable = true}, &resp, NULL),
        0);
    assert_int_equal(json_parse(resp.body.s, resp.body.len, "seen", &j, NULL), 0);
    http_close(h);
    return j;
}

static int64_t seen(const char *target) {
    GP_AUTO_JSON json_t *j = server_state();
    return json_integer_value(json_object_get(json_object_get(j, "seen"), target));
}

static int64_t number(const char *key) {
    GP_AUTO_JSON json_t *j = server_state();
    return json_integer_value(json_object_get(j, key));
}

/* --- one request --- */

struct one {
    struct http_resp resp;
    struct gp_error err;
    int rc;
};
#define GP_AUTO_ONE GP_CLEANUP(one_clear)
static void one_clear(struct one *o) { http_resp_clear(&o->resp); }

static struct one call(struct http *h, const char *target, bool repeatable, struct http_req req) {
    struct one o = {0};
    GP_AUTO_FREE char *url = xasprintf("%s%s", plain, target);
    req.what = "test";
    req.method = "POST";
    req.url = url;
    req.body = "hello";
    req.body_len = 5;
    req.repeatable = repeatable;
    o.rc = http_call(h, &req, &o.resp, &o.err);
    return o;
}

static void test_one(void **state) {
    (void)state;
    struct http *h = open_client(&(struct http_options){0});
    GP_AUTO_ONE struct one ok = call(h, "/ok?one", false, (struct http_req){0});
    assert_int_equal(ok.rc, 0);
    assert_int_equal(ok.resp.status, 200);
    assert_string_equal(ok.resp.body.s, "hello");
    assert_true(ok.resp.sent && ok.resp.attempts == 1);
    /* refused: sent again though it must not be repeated, and not before the server allows */
    int64_t start = clock_ms();
    GP_AUTO_ONE struct one busy = call(h, "/busy?one", false, (struct http_req){0});
    assert_true(busy.rc == 0 && busy.resp.status == 200 && busy.resp.attempts == 2);
    assert_true(clock_ms() - start >= 1000);
    /* the server's trouble: only what is repeatable goes again */
    GP_AUTO_ONE struct one once = call(h, "/trouble?once", false, (struct http_req){0});
    assert_true(once.rc == 0 && once.resp.status == 503 && once.resp.attempts == 1);
    GP_AUTO_ONE struct one again = call(h, "/trouble?again", true, (struct http_req){0});
    assert_true(again.rc == 0 && again.resp.status == 200 && again.resp.attempts == 2);
    http_close(h);
}

static int refused(const char *url, bool metadata, const char *setting, char msg[GP_ERROR_MSG_MAX]) {
    GP_AUTO_RESP struct http_resp resp = {0};
    struct gp_error err = {0};
    struct http *h = open_client(&(struct http_options){0});
    if (setting != NULL) setenv(FORM_URL_CLEAR_ENV, setting, 1);
    struct http_req req = {.what = "test",
                           .method = "GET",
                           .url = url,
                           .metadata = metadata,
                           .tries = 1,
                           .connect_ms = 50,
                           .timeout_ms = 100};
    int r = http_call(h, &req, &resp, &err);
    int same = http_url_check("test", url, NULL);
    unsetenv(FORM_URL_CLEAR_ENV);
    http_close(h);
    assert_true(metadata || (same == -GP_EUSAGE) == (r == -GP_EUSAGE));
    assert_true(r != -GP_EUSAGE || (!resp.sent && resp.attempts == 1));
    str_put(msg, GP_ERROR_MSG_MAX, err.msg);
    return r;
}

/* Without TLS requests go to this machine only, or to where the user names. */
static void test_clear_text(void **state) {
    (void)state;
    char msg[GP_ERROR_MSG_MAX];
    static const char *const far[] = {"http://192.0.2.1/",
                                      "http://127.0.0.1.nowhere.invalid/",
                                      "http://localhost@192.0.2.1/",
                                      "http://192.0.2.1:8080/a?b=127.0.0.1",
                                      "http://169.254.169.254/",
                                      "http://metadata.google.internal/",
                                      "192.0.2.1:80/",
                                      "HTTP://192.0.2.1/",
                                      "ftp://127.0.0.1/",
                                      "http://[2001:db8::1]/"};
    for (size_t i = 0; i < GP_ARRAY_LEN(far); i++)
        if (refused(far[i], false, NULL, msg) != -GP_EUSAGE) fail_msg("%s: %s", far[i], msg);
    assert_int_equal(refused("http://192.0.2.1:8080/a?b", false, NULL, msg), -GP_EUSAGE);
    assert_string_equal(msg, "test: 'http://192.0.2.1:8080' is not https: use https, or "
                             "GPUPROV_CLEAR_TEXT=192.0.2.1:8080 where nobody on the way can read along");
    assert_int_not_equal(refused("http://192.0.2.1:1/", false, "a.example, 192.0.2.1:1", msg), -GP_EUSAGE);
    assert_int_equal(refused("http://192.0.2.1:2/", false, "a.example,192.0.2.1:1", msg), -GP_EUSAGE);
    assert_int_not_equal(refused("http://169.254.170.2:1/", true, NULL, msg), -GP_EUSAGE);
    assert_int_equal(refused("http://169.254.170.2.nowhere.invalid/", true, NULL, msg), -GP_EUSAGE);
    assert_int_equal(refused("http://192.0.2.1/", true, NULL, msg), -GP_EUSAGE);
    /* to this machine means not through a proxy, which is elsewhere */
    struct http *h = open_client(&(struct http_options){0});
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    GP_AUTO_ONE struct one ok = call(h, "/ok?direct", false, (struct http_req){0});
    unsetenv("http_proxy");
    assert_int_equal(ok.rc, 0);
    http_close(h);
}

/* What would end a header and begin another one is not sent, whoever gave it. */
static void test_headers(void **state) {
    (void)state;
    static const struct {
        const char *name, *value;
        bool good;
    } rows[] = {{"Authorization", "Bearer a\r\nX-Other: b", false},
                {"X-Auth-Token", "a\nb", false},
                {"X-Auth-Token", "a\rb", false},
                {"X-Auth-Token", "a\tb", false},
                {"X-Auth-Token", "a\x7f", false},
                {"X-Auth-Token", "\xc3\xa4", false},
                {"X-Auth Token", "a", false},
                {"X:Y", "a", false},
                {"", "a", false},
                {"X-Auth-Token", "a b~", true},
                {"X-Auth-Token", "", true}};
    struct http *h = open_client(&(struct http_options){0});
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FIELDS struct http_fields f = {0};
        http_fields_add(&f, rows[i].name, rows[i].value);
        GP_AUTO_ONE struct one o = call(h, "/ok?headers", true, (struct http_req){.headers = &f});
        if (o.rc != (rows[i].good ? 0 : -GP_EAUTH) || o.resp.sent != rows[i].good) fail_msg("%zu: %s", i, o.err.msg);
    }
    http_close(h);
}

/* A secret of a header is in no error from then on. */
static void test_headers_hidden(void **state) {
    (void)state;
    static const struct {
        const char *name, *value, *shown;
    } rows[] = {{"Authorization", "Bearer tok-123456", "***"},
                {"Authorization", "Basic dXNlcjpwYXNz", "***"},
                {"X-API-KEY", "key-123456", "***"},
                {"X-Auth-Token", "auth-123456", "***"},
                {"Authorization", "AWS4-HMAC-SHA256 Credential=A, Signature=abcdef", "Signature=abcdef"},
                {"Accept", "application/json", "application/json"}};
    struct http *h = open_client(&(struct http_options){0});
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FIELDS struct http_fields f = {0};
        struct gp_error err = {0};
        http_fields_add(&f, rows[i].name, rows[i].value);
        GP_AUTO_ONE struct one o = call(h, "/ok?hidden", true, (struct http_req){.headers = &f});
        assert_int_equal(o.rc, 0);
        const char *last = strrchr(rows[i].value, ' ');
        gp_fail(&err, GP_EAUTH, "%s", last != NULL ? last + 1 : rows[i].value);
        assert_string_equal(err.msg, rows[i].shown);
    }
    log_close();
    http_close(h);
}

static void test_one_lost(void **state) {
    (void)state;
    struct http *h = open_client(&(struct http_options){0});
    GP_AUTO_ONE struct one lost = call(h, "/lose?one", false, (struct http_req){0});
    assert_int_equal(lost.rc, -GP_ELOST);
    assert_true(lost.resp.sent);
    assert_int_equal(seen("/lose?one"), 1);
    GP_AUTO_ONE struct one twice = call(h, "/lose?two", true, (struct http_req){.tries = 2});
    assert_int_equal(twice.rc, -GP_EENDPOINT);
    assert_int_equal(seen("/lose?two"), 2);
    GP_AUTO_ONE struct one slow = call(h, "/slow", false, (struct http_req){.timeout_ms = 300});
    assert_int_equal(slow.rc, -GP_ELOST);
    GP_AUTO_ONE struct one late = call(h, "/ok?late", true, (struct http_req){.deadline_ms = clock_ms() - 1});
    assert_int_equal(late.rc, -GP_EENDPOINT);
    assert_false(late.resp.sent);
    assert_int_equal(seen("/ok?late"), 0);
    http_close(h);
}

static void test_pauses(void **state) {
    (void)state;
    struct http *h = open_client(&(struct http_options){.min_interval_ms = 150, .backoff_min_ms = 1500});
    int64_t start = clock_ms();
    for (int i = 0; i < 3; i++) {
        GP_AUTO_ONE struct one ok = call(h, "/ok?paced", true, (struct http_req){0});
        assert_int_equal(ok.rc, 0);
    }
    assert_true(clock_ms() - start >= 300);
    start = clock_ms(); /* longer than the second that the server wants */
    GP_AUTO_ONE struct one busy = call(h, "/busy?paced", true, (struct http_req){0});
    assert_true(busy.rc == 0 && busy.resp.attempts == 2);
    assert_true(clock_ms() - start >= 1500);
    http_close(h);
}

/* --- many --- */

#define MANY 64
struct many {
    char *urls[MANY];
    struct http_req reqs[MANY];
    struct http_result res[MANY];
    size_t n;
};

static struct many *many_new(size_t n, const char *base, const char *path, bool repeatable) {
    struct many *m = xcalloc(1, sizeof *m);
    m->n = n;
    for (size_t i = 0; i < n; i++) {
        m->urls[i] = xasprintf("%s%s?%zu", base, path, i);
        m->reqs[i] = (struct http_req){.what = "create",
                                       .method = "POST",
                                       .url = m->urls[i],
                                       .body = "node",
                                       .body_len = 4,
                                       .repeatable = repeatable};
    }
    return m;
}

static void many_url(struct many *m, size_t i, char *url) {
    free(m->urls[i]);
    m->reqs[i].url = m->urls[i] = url;
}

static void many_free(struct many *m) {
    for (size_t i = 0; i < m->n; i++) {
        free(m->urls[i]);
        http_resp_clear(&m->res[i].resp);
    }
    free(m);
}

/* 64 creates of which one is lost, one refused at first and one cut off: each has its own outcome, and none was
 * sent twice. */
static void many_creates(const char *base, const char *tag) {
    struct http *h = open_client(&(struct http_options){0});
    struct many *m = many_new(MANY, base, "/wait", false);
    for (size_t i = 0; i < MANY; i++) many_url(m, i, xasprintf("%s/wait?%s-%zu", base, tag, i));
    many_url(m, 7, xasprintf("%s/hang?%s", base, tag));
    m->reqs[7].timeout_ms = 2000;
    many_url(m, 9, xasprintf("%s/busy?%s", base, tag));
    http_call_many(h, m->reqs, MANY, 16, m->res);
    for (size_t i = 0; i < MANY; i++) {
        const struct http_result *r = &m->res[i];
        if (i == 7) {
            assert_int_equal(r->rc, -GP_ELOST);
            assert_true(r->resp.sent);
            assert_string_equal(r->err.detail, "LostReply");
            continue;
        }
        if (r->rc != 0) fail_msg("%zu: %s", i, r->err.msg);
        assert_true(r->resp.status == 200 && r->resp.sent);
        assert_string_equal(r->resp.body.s, "node");
        assert_int_equal(r->resp.attempts, i == 9 ? 2 : 1);
        GP_AUTO_FREE char *target = xasprintf("/wait?%s-%zu", tag, i);
        if (i != 9) assert_int_equal(seen(target), 1);
    }
    many_free(m);
    http_close(h);
}

static void test_many(void **state) {
    (void)state;
    many_creates(plain, "h1");
    int64_t most = number("most");
    assert_in_range(most, 2, 16); /* side by side, at_once at most */
}

static void test_many_http2(void **state) {
    (void)state;
    int64_t before = number("connections"); /* each question is one too */
    many_creates(tls, "h2");
    int64_t asked = MANY - 2 + 1; /* by many_creates and by this */
    assert_int_equal(number("connections") - before - asked, 1);
}

/* libcurl repeats a request by itself when a reused connection ends without an answer; a create must not be. */
static void test_never_twice(void **state) {
    (void)state;
    struct http *h = open_client(&(struct http_options){0});
    struct many *m = many_new(2, plain, "/keep", false);
    http_call_many(h, m->reqs, 2, 1, m->res);
    assert_int_equal(m->res[0].rc, 0);
    assert_int_equal(m->res[1].rc, -GP_ELOST);
    assert_true(m->res[1].resp.sent);
    assert_int_equal(seen("/keep?0"), 1);
    assert_int_equal(seen("/keep?1"), 1);
    many_free(m);
    m = many_new(8, tls, "/lose", false); /* all of one connection */
    http_call_many(h, m->reqs, 8, 0, m->res);
    for (size_t i = 0; i < 8; i++) {
        GP_AUTO_FREE char *target = xasprintf("/lose?%zu", i);
        assert_int_equal(m->res[i].rc, -GP_ELOST);
        assert_true(m->res[i].resp.sent);
        assert_int_equal(seen(target), 1);
    }
    many_free(m);
    http_close(h);
}

/* Once the three that fit at a time have arrived, or after a minute. */
static void *cancel_soon(void *cancel) {
    int64_t end = clock_deadline(60000);
    while (clock_left_ms(end) > 0 && (!seen("/hang?1") || !seen("/hang?2") || !seen("/hang?3")))
        gp_sleep(20, NULL, NULL);
    gp_cancel_set(cancel);
    return NULL;
}

static void test_many_cancelled(void **state) {
    (void)state;
    struct gp_cancel cancel;
    pthread_t thread = 0;
    assert_int_equal(gp_cancel_init(&cancel, NULL), 0);
    struct http *h = open_client(&(struct http_options){.cancel = &cancel});
    struct many *m = many_new(6, plain, "/hang", false);
    many_url(m, 0, xasprintf("%s/ok?first", plain));
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
    http_call_many(h, m->reqs, 6, 3, m->res);
    pthread_join(thread, NULL);
    assert_int_equal(m->res[0].rc, 0);
    for (size_t i = 1; i < 6; i++) {
        assert_int_equal(m->res[i].rc, -GP_ECANCELLED);
        assert_int_equal(m->res[i].resp.sent, i < 4); /* the last two had not begun */
    }
    many_free(m);
    http_close(h);
    gp_cancel_clear(&cancel);
}

/* A watch that does `next` once 300 ms were waited for without a byte. */
struct watch {
    struct http_watch base;
    enum http_wait next;
    int64_t waited_ms;
    uint64_t moved;
};
static enum http_wait watched(void *ctx, int64_t waited_ms, uint64_t moved) {
    struct watch *w = ctx;
    w->waited_ms += waited_ms;
    w->moved = GP_MAX(w->moved, moved);
    if (w->waited_ms < 300) return HTTP_WAIT_ON;
    if (w->next == HTTP_WAIT_AGAIN) w->waited_ms = 0;
    return w->next;
}

static void test_watched(void **state) {
    (void)state;
    struct watch w = {.base = {.waited = watched, .ctx = &w}, .next = HTTP_WAIT_OVER};
    struct http *h = open_client(&(struct http_options){.watch = &w.base});
    int64_t start = clock_ms();
    GP_AUTO_ONE struct one over = call(h, "/hang?over", true, (struct http_req){0});
    assert_true(over.rc == -GP_ETIMEOUT && over.resp.sent && http_over(h));
    assert_string_equal(over.err.msg, "test: not finished in time");
    assert_true(clock_ms() - start < 3000 && w.moved == 5);
    w.next = HTTP_WAIT_AGAIN; /* as after a lost reply */
    w.waited_ms = 0;
    GP_AUTO_ONE struct one again = call(h, "/hang?again", true, (struct http_req){.tries = 2});
    assert_true(again.rc == -GP_EENDPOINT && again.resp.attempts == 2 && !http_over(h));
    GP_AUTO_ONE struct one once = call(h, "/hang?once", false, (struct http_req){0});
    assert_true(once.rc == -GP_ELOST && once.resp.attempts == 1);
    w.waited_ms = 0; /* also the time of a reply that comes at once counts */
    GP_AUTO_ONE struct one ok = call(h, "/wait?watched", true, (struct http_req){0});
    assert_true(ok.rc == 0 && w.waited_ms >= 190);
    http_close(h);
}

static void test_many_paced(void **state) {
    (void)state;
    struct http *h = open_client(&(struct http_options){.min_interval_ms = 200});
    struct many *m = many_new(4, plain, "/ok/paced", true);
    m->reqs[3].deadline_ms = clock_deadline(300); /* its turn comes after 600 ms */
    int64_t start = clock_ms();
    http_call_many(h, m->reqs, 4, 0, m->res);
    assert_true(clock_ms() - start >= 400);
    for (size_t i = 0; i < 3; i++) assert_int_equal(m->res[i].rc, 0);
    assert_int_equal(m->res[3].rc, -GP_EENDPOINT);
    assert_false(m->res[3].resp.sent);
    GP_AUTO_JSON json_t *j = server_state();
    const json_t *times = json_object_get(json_object_get(j, "times"), "/ok/paced");
    assert_int_equal(json_array_size(times), 3);
    for (size_t i = 1; i < 3;
         i++) /* by the same clock; a busy server may note one arrival late, and the next in time */
        assert_true(json_integer_value(json_array_get(times, i)) >= start + (int64_t)i * 200 - 50);
    many_free(m);
    http_close(h);
}

/* --- texts --- */

static void test_shown(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        {"https://a.example/v1/x?key=SECRET#SECRET", "https://a.example/v1/x?...", "a.example"},
        {"https://user:SECRET@a.example:8443/x", "https://a.example:8443/x", "a.example:8443"},
        {"https://u:SECRET@SECRET@a.example?t=SECRET", "https://a.example?...", "a.example"},
        {"https://a.example/x@y", "https://a.example/x@y", "a.example"},
        {"a.example/?SECRET", "a.example/?...", "a.example"},
        {"", "", ""}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *shown = http_url_shown(rows[i][0]);
        GP_AUTO_FREE char *place = http_url_place(rows[i][0]);
        assert_string_equal(shown, rows[i][1]);
        assert_string_equal(place, rows[i][2]);
    }
    struct http *h = open_client(&(struct http_options){0});
    struct gp_error err = {0};
    GP_AUTO_RESP struct http_resp resp = {0};
    struct http_req req = {.what = "x", .method = "GET", .url = "ftp://u:SECRET@a.example/?k=SECRET"};
    assert_int_equal(http_call(h, &req, &resp, &err), -GP_EUSAGE);
    assert_null(strstr(err.msg, "SECRET"));
    http_close(h);
}

/* What --trace=http prints, read back. */
static void test_trace(void **state) {
    (void)state;
    GP_AUTO_FREE char *path = fs_join(folder, "trace");
    struct http *h = open_client(&(struct http_options){0});
    int saved = dup(2), file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(saved >= 0 && file >= 0);
    assert_int_equal(log_enable("http", NULL), 0);
    fflush(stderr);
    dup2(file, 2);
    GP_AUTO_ONE struct one ok = call(h, "/ok?key=SECRET", true, (struct http_req){0});
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(file);
    log_close();
    GP_AUTO_STR struct str text = {0};
    assert_int_equal(fs_read(path, 1 << 16, &text, NULL), 0);
    assert_non_null(strstr(text.s, "/ok?... -> 200"));
    assert_null(strstr(text.s, "SECRET"));
    http_close(h);
}

/* No cloud's words where no cloud is. */
static void test_neutral(void **state) {
    (void)state;
    struct http *h = NULL;
    struct gp_error a = {0}, b = {0};
    assert_int_equal(http_open(&(struct http_options){.ca_bundle = "/nonexistent", .ca_setting = "X_CA"}, &h, &a),
                     -GP_EENV);
    assert_non_null(strstr(a.msg, "correct X_CA"));
    assert_int_equal(http_open(&(struct http_options){.ca_bundle = "/nonexistent"}, &h, &b), -GP_EENV);
    assert_null(strstr(b.msg, "AWS"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_one_lost),
        cmocka_unit_test(test_clear_text),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_headers_hidden),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_many_http2),
        cmocka_unit_test(test_never_twice),
        cmocka_unit_test(test_many_cancelled),
        cmocka_unit_test(test_watched),
        cmocka_unit_test(test_many_paced),
        cmocka_unit_test(test_shown),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_neutral),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}

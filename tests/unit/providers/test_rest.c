/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to a cloud with JSON replies (rest.h) against a real server (http_server.py): errors by row and by status, new
 * credentials once, unknown outcomes, pages, URLs. The server echoes bodies. */
#include "base/gp_base.h"

#include "providers/common/rest.h"

#include "http_server.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct cloud_error rows[] = {
    {"NoStock", GP_ECAPACITY, GP_SCOPE_ZONE, CLOUD_NO, ""},
    {"TokenExpired", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, "log in again"},
    {"Broken", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE, ""},
    {"Skewed", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_CLOCK, ""},
};

struct cloud {
    struct provider base;
    struct rest rest;
    const char *token;    /* sent as it is */
    const char *renewed;  /* what a forced renewal gives; NULL: it fails */
    int renewals, looked; /* forced, others */
    char *url;
};

static int on_ensure(void *ctx, bool force, struct gp_error *err) {
    struct cloud *c = ctx;
    if (!force) c->looked++;
    if (!force) return 0;
    c->renewals++;
    if (c->renewed == NULL) return gp_fail(err, GP_EAUTH, "no new token");
    c->token = c->renewed;
    return 0;
}

static int on_authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    struct cloud *c = ctx;
    (void)call, (void)err;
    http_fields_add(add, "Authorization", c->token);
    return 0;
}

static void on_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    (void)resp;
    ret->code = json_str(json, "code", "");
    ret->message = json_str(json, "message", "");
}

static const char *const hidden[] = {"user_data", NULL};

static void cloud_open(struct cloud *c) {
    struct gp_error err = {0};
    *c = (struct cloud){.token = "old"};
    c->rest = (struct rest){.provider = &c->base,
                            .ctx = c,
                            .ensure = on_ensure,
                            .authorize = on_authorize,
                            .said = on_said,
                            .rows = rows,
                            .row_count = GP_ARRAY_LEN(rows),
                            .hidden = hidden};
    if (http_open(&(struct http_options){.ca_bundle = ca}, &c->rest.http, &err) != 0) fail_msg("%s", err.msg);
}

static void cloud_close(struct cloud *c) {
    http_close(c->rest.http);
    free(c->url);
}

static struct rest_call call_of(struct cloud *c, const char *target, const char *body, unsigned flags) {
    free(c->url);
    c->url = xasprintf("%s%s", plain, target);
    return (struct rest_call){
        .what = "cloud test", .method = body != NULL ? "POST" : "GET", .url = c->url, .body = body, .flags = flags};
}

static struct gp_error *clear(struct gp_error *e) {
    gp_error_clear(e);
    return e;
}

static void test_success(void **state) {
    (void)state;
    struct cloud c;
    GP_AUTO_REST struct rest_reply reply = {0};
    cloud_open(&c);
    struct rest_call call = call_of(&c, "/ok", "{\"id\": 7}", 0);
    assert_int_equal(rest_call(&c.rest, &call, &reply, NULL), 0);
    assert_int_equal(json_int(reply.json, "id", 0), 7);
    assert_true(reply.status == 200 && reply.sent && c.looked == 1 && c.renewals == 0);
    call = call_of(&c, "/ok", NULL, 0); /* an empty body is a success without JSON */
    assert_int_equal(rest_call(&c.rest, &call, &reply, NULL), 0);
    assert_null(reply.json);
    cloud_close(&c);
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *target, *body;
        unsigned flags;
        int rc;
        const char *code;
    } cases[] = {
        {"/status?403", "{\"code\": \"NoStock\"}", REST_ONCE, -GP_ECAPACITY, "NoStock"},
        {"/status?200", "{\"code\": \"NoStock\"}", REST_ONCE, -GP_ECAPACITY, "NoStock"}, /* an error as a success */
        {"/status?400", "{\"code\": \"Unheard\"}", REST_ONCE, -GP_EPROTO, "Unheard"},
        /* trouble of a create: it may have acted, also by a code that no row has, and by a reply that is not JSON */
        {"/status?500", "{\"code\": \"Broken\"}", REST_ONCE, -GP_EUNKNOWN, "Broken"},
        {"/status?500", "{\"code\": \"Unheard\"}", REST_ONCE, -GP_EUNKNOWN, "Unheard"},
        {"/status?500", "<html>", REST_ONCE, -GP_EUNKNOWN, "HTTP 500"},
        {"/status?200", "{\"id\": 1", REST_ONCE, -GP_EUNKNOWN, "HTTP 200"},
        {"/status?200", "<html>", REST_OPTIONAL, -GP_EPROTO, "HTTP 200"},
        {"/lose?create", "{}", REST_ONCE, -GP_EUNKNOWN, ""},
        {"/status?404", "{\"code\": \"NoStock\"}", 0, -GP_ECAPACITY, "NoStock"},
        {"/status?404", "{\"code\": \"NoStock\"}", REST_MISSING, 0, ""},
        {"/status?404", "<html>", REST_MISSING, 0, ""},
        {"/status?302", "", 0, -GP_EPROTO, "HTTP 302"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        struct cloud c;
        GP_AUTO_REST struct rest_reply reply = {0};
        struct gp_error err = {0};
        cloud_open(&c);
        struct rest_call call = call_of(&c, cases[i].target, cases[i].body, cases[i].flags);
        int r = rest_call(&c.rest, &call, &reply, &err);
        if (r != cases[i].rc || strcmp(reply.code, cases[i].code) != 0)
            fail_msg("case %zu: %d, '%s': %s", i, r, reply.code, err.msg);
        assert_int_equal(c.renewals, 0);
        cloud_close(&c);
    }
}

static void test_credentials(void **state) {
    (void)state;
    struct cloud c;
    GP_AUTO_REST struct rest_reply reply = {0};
    struct gp_error err = {0};
    cloud_open(&c);
    c.renewed = "new";
    struct rest_call call = call_of(&c, "/stale", "{}", REST_ONCE);
    assert_int_equal(rest_call(&c.rest, &call, &reply, &err), 0);
    assert_int_equal(c.renewals, 1);
    cloud_close(&c);
    cloud_open(&c); /* the new ones are refused too: once, not for ever */
    c.renewed = "wrong";
    call = call_of(&c, "/stale", "{}", REST_ONCE);
    assert_int_equal(rest_call(&c.rest, &call, &reply, clear(&err)), -GP_EAUTH);
    assert_int_equal(c.renewals, 1);
    assert_non_null(strstr(err.msg, "TokenExpired: log in again"));
    cloud_close(&c);
    cloud_open(&c); /* there are no new ones: the cloud's error, not that of the renewal */
    call = call_of(&c, "/stale", "{}", 0);
    assert_int_equal(rest_call(&c.rest, &call, &reply, clear(&err)), -GP_EAUTH);
    assert_non_null(strstr(err.msg, "TokenExpired"));
    call = call_of(&c, "/status?401", "nothing", 0); /* a 401 without a code */
    c.renewals = 0;
    assert_int_equal(rest_call(&c.rest, &call, &reply, clear(&err)), -GP_EAUTH);
    assert_int_equal(c.renewals, 1);
    call = call_of(&c, "/stale?public", "{}", REST_PUBLIC); /* no credentials: none to renew */
    c.renewals = c.looked = 0;
    assert_int_equal(rest_call(&c.rest, &call, &reply, clear(&err)), -GP_EAUTH);
    assert_true(c.renewals == 0 && c.looked == 0);
    cloud_close(&c);
}

static void test_many(void **state) {
    (void)state;
    struct cloud c;
    struct rest_call calls[5];
    struct rest_result results[5] = {0};
    char *urls[5];
    cloud_open(&c);
    c.renewed = "new";
    static const char *const targets[] = {"/ok?a", "/stale?b", "/status?403", "/stale?c", "/lose?d"};
    for (size_t i = 0; i < 5; i++) {
        urls[i] = xasprintf("%s%s", plain, targets[i]);
        calls[i] = (struct rest_call){.what = "cloud test",
                                      .method = "POST",
                                      .url = urls[i],
                                      .body = "{\"code\": \"\"}",
                                      .flags = i == 4 ? REST_ONCE : 0};
    }
    rest_call_many(&c.rest, calls, 5, 0, results);
    assert_true(results[0].rc == 0 && results[1].rc == 0 && results[3].rc == 0);
    assert_true(results[2].rc == -GP_EPROTO && results[2].reply.status == 403);
    assert_int_equal(results[4].rc, -GP_EUNKNOWN);
    assert_int_equal(c.renewals, 1); /* for all */
    for (size_t i = 0; i < 5; i++) {
        rest_reply_clear(&results[i].reply);
        free(urls[i]);
    }
    rest_call_many(&c.rest, calls, 0, 0, results);
    cloud_close(&c);
}

/* --- pages --- */

static char *to_number(const char *url, const json_t *reply) {
    int64_t n = json_int(reply, "next", 0);
    return n > 0 ? xasprintf("%.*s?%lld", (int)strcspn(url, "?"), url, (long long)n) : NULL;
}
static char *to_itself(const char *url, const json_t *reply) { return json_is_object(reply) ? xstrdup(url) : NULL; }
/* 1, 2, 3, 2, 3, ... */
static char *round_and_round(const char *url, const json_t *reply) {
    int64_t n = json_int(reply, "next", 0);
    return xasprintf("%.*s?%lld", (int)strcspn(url, "?"), url, n > 0 ? (long long)n : 2LL);
}
static char *elsewhere;
static char *to_elsewhere(const char *url, const json_t *reply) {
    return json_is_object(reply) && url != NULL ? xstrdup(elsewhere) : NULL;
}

static int add_item(void *ctx, const json_t *item, struct gp_error *err) {
    int64_t *sum = ctx;
    *sum = *sum * 10 + json_integer_value(item);
    return *sum == 99 ? gp_fail(err, GP_EPROTO, "stop") : 0;
}

static int count_item(void *ctx, const json_t *item, struct gp_error *err) {
    (void)err;
    *(int64_t *)ctx += json_is_integer(item);
    return 0;
}

static void test_pages(void **state) {
    (void)state;
    struct cloud c;
    int64_t sum = 0;
    struct gp_error err = {0};
    cloud_open(&c);
    struct rest_list list = {.items = "items", .next = to_number, .each = add_item, .ctx = &sum};
    struct rest_call call = call_of(&c, "/page?1", NULL, 0);
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), 0);
    assert_int_equal(sum, 123);
    list.next = to_itself;
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "repeats a page"));
    list.next = round_and_round;
    sum = 0;
    list.each = count_item;
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "repeats a page"));
    assert_true(sum < 12);
    list.each = add_item;
    list.items = "others";
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "no list 'others'"));
    list = (struct rest_list){.items = "others", .may_lack = true, .next = to_number, .each = add_item, .ctx = &sum};
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), 0);
    list.items = "next"; /* not a list */
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
    cloud_close(&c);
}

static int count_page(void *ctx, const json_t *page, struct gp_error *err) {
    int64_t *n = ctx;
    *n += json_is_object(page);
    return *n == 100 ? gp_fail(err, GP_EPROTO, "stop") : 0;
}

static int64_t fresh;
/* 1, 1, 1, ..., each under another name */
static char *the_same_again(const char *url, const json_t *reply) {
    return json_is_object(reply) ? xasprintf("%.*s?1&%lld", (int)strcspn(url, "?"), url, (long long)++fresh) : NULL;
}
static char *new_entries(const char *url, const json_t *reply) {
    (void)reply;
    return xasprintf("%.*s?%lld", (int)strcspn(url, "?"), url, (long long)++fresh);
}
static int any_page(void *ctx, const json_t *page, struct gp_error *err) {
    (void)err;
    *(int64_t *)ctx += json_is_object(page);
    return 0;
}

/* A cloud that has always one more page, with another name each: nothing new, or something new for ever. The limit of
 * time ends a request in progress too. */
static void test_pages_without_end(void **state) {
    (void)state;
    struct cloud c;
    int64_t n = 0;
    struct gp_error err = {0};
    cloud_open(&c);
    struct rest_list by_item = {.items = "items", .next = the_same_again, .each = count_item, .ctx = &n};
    struct rest_list whole = {.next = the_same_again, .page = any_page, .ctx = &n};
    struct rest_call call = call_of(&c, "/page?1", NULL, 0);
    for (int i = 0; i < 2; i++) {
        n = 0;
        assert_int_equal(rest_pages(&c.rest, &call, i == 0 ? &by_item : &whole, clear(&err)), -GP_EPROTO);
        assert_non_null(strstr(err.msg, "pages in a row bring nothing new"));
        assert_int_equal(n, 102); /* the first one, and 101 that have what it had */
    }
    c.rest.list_ms = 300;
    by_item.next = whole.next = new_entries;
    call = call_of(&c, "/pageless?0", NULL, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rest_pages(&c.rest, &call, i == 0 ? &by_item : &whole, clear(&err)), -GP_EENDPOINT);
        if (strstr(err.msg, "cloud test: the list did not end within 0.3s") == NULL) fail_msg("%s", err.msg);
    }
    call = call_of(&c, "/hang", NULL, 0);
    assert_int_equal(rest_pages(&c.rest, &call, &by_item, clear(&err)), -GP_EENDPOINT);
    assert_non_null(strstr(err.msg, "cloud test: the list did not end within 0.3s (0 whole pages)"));
    cloud_close(&c);
}

/* Pages that are handed out as a whole: the same end, the same circles, and no reply without a body. */
static void test_whole_pages(void **state) {
    (void)state;
    struct cloud c;
    int64_t n = 0;
    struct gp_error err = {0};
    cloud_open(&c);
    struct rest_list list = {.next = to_number, .page = count_page, .ctx = &n};
    struct rest_call call = call_of(&c, "/page?1", NULL, 0);
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), 0);
    assert_int_equal(n, 3);
    list.next = NULL; /* one page */
    n = 0;
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), 0);
    assert_int_equal(n, 1);
    list.next = round_and_round;
    n = 0;
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "repeats a page"));
    assert_true(n < 12);
    n = 99; /* the first page is refused */
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
    assert_string_equal(err.msg, "stop");
    call = call_of(&c, "/ok", NULL, 0);
    assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "the reply is empty"));
    cloud_close(&c);
}

/* Lists of different lengths side by side; one that fails does not touch the others. */
static void test_pages_side_by_side(void **state) {
    (void)state;
    struct cloud c;
    int64_t sums[3] = {0};
    cloud_open(&c);
    struct rest_paged lists[3];
    const char *items[] = {"items", "nothing", "items"};
    GP_AUTO_FREE char *last = xasprintf("%s/page?3", plain);
    for (size_t i = 0; i < 3; i++)
        lists[i] =
            (struct rest_paged){.first = call_of(&c, "/page?1", NULL, 0),
                                .list = {.items = items[i], .next = to_number, .each = add_item, .ctx = &sums[i]}};
    lists[0].first.url = lists[1].first.url = c.url;
    lists[2].first.url = last;
    rest_pages_many(&c.rest, lists, 3);
    assert_int_equal(lists[0].rc, 0);
    assert_int_equal(sums[0], 123);
    assert_int_equal(lists[1].rc, -GP_EPROTO);
    assert_non_null(strstr(lists[1].err.msg, "no list 'nothing'"));
    assert_int_equal(lists[2].rc, 0);
    assert_int_equal(sums[2], 3);
    cloud_close(&c);
}

/* The credentials go to no other server. */
static void test_other_servers(void **state) {
    (void)state;
    struct cloud c;
    int64_t sum = 0;
    cloud_open(&c);
    struct rest_list list = {.items = "items", .next = to_elsewhere, .each = add_item, .ctx = &sum};
    struct rest_call call = call_of(&c, "/page?1", NULL, 0);
    const char *port = strrchr(plain, ':');
    char *urls[] = {xasprintf("https://127.0.0.1%s/page?2", port),
                    xasprintf("http://127.0.0.1%s0/page?2", port),
                    xasprintf("http://127.0.0.1%s@example.com/page?2", port),
                    xasprintf("http://localhost%s/page?2", port),
                    xstrdup("/page?2"),
                    xstrdup("")};
    for (size_t i = 0; i < GP_ARRAY_LEN(urls); i++) {
        struct gp_error err = {0};
        elsewhere = urls[i];
        assert_int_equal(rest_pages(&c.rest, &call, &list, clear(&err)), -GP_EPROTO);
        if (strstr(err.msg, "at another server") == NULL) fail_msg("%s: %s", urls[i], err.msg);
        free(urls[i]);
    }
    cloud_close(&c);
}

static void test_urls(void **state) {
    (void)state;
    GP_AUTO_STR struct str url = {0};
    GP_AUTO_STR struct str form = {0};
    str_add(&url, "http://h/p");
    rest_query(&url, "a", "x y&=");
    rest_query(&url, "b", "");
    assert_string_equal(url.s, "http://h/p?a=x%20y%26%3D&b=");
    rest_form(&form, "a", "1+1");
    rest_form(&form, "b", "2");
    assert_string_equal(form.s, "a=1%2B1&b=2");
    static const struct {
        const char *url, *want;
    } cases[] = {{"http://h/p", "http://h/p?t=n%2F1"},
                 {"http://h/p?t=old", "http://h/p?t=n%2F1"},
                 {"http://h/p?a=1&t=old&b=2", "http://h/p?a=1&b=2&t=n%2F1"},
                 {"http://h/p?tt=1&t&ta=2", "http://h/p?tt=1&ta=2&t=n%2F1"},
                 {"http://h/p?", "http://h/p?t=n%2F1"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *got = rest_with_param(cases[i].url, "t", "n/1");
        assert_string_equal(got, cases[i].want);
    }
}

/* A proxy or a captive portal on the way answers with its own clock: only the cloud's replies set the cloud's. */
static void test_the_clock_is_the_clouds(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *body;
        unsigned flags;
        bool counts;
    } cases[] = {
        {200, "{\"id\": 7}", 0, true},
        {403, "{\"code\": \"Skewed\"}", 0, true}, /* the request is signed again with the right time */
        {401, "{\"code\": \"TokenExpired\"}", 0, true},
        {502, "<html>Bad gateway</html>", 0, false},
        {502, "{\"message\": \"Bad gateway\"}", 0, false},
        {502, "{\"code\": \"Broken\"}", 0, false},
        {200, "<html>Log in to the network</html>", 0, false},
        {200, "", 0, false},
        {302, "", 0, false},
        {403, "<html>Forbidden</html>", 0, false},
        {403, "{\"code\": \"NoStock\"}", 0, false},
        {401, "{\"message\": \"Who are you?\"}", 0, false},
        {401, "", 0, false},
        {404, "<html>Not found</html>", REST_MISSING, false},
        {407, "<html>Log in to the proxy</html>", 0, false},
    };
    for (size_t k = 0; k < 2 * GP_ARRAY_LEN(cases); k++) {
        size_t i = k / 2;
        int year_s = (k % 2 == 0 ? -365 : 365) * 86400;
        int64_t want_s = cases[i].counts ? year_s : 300;
        struct cloud c;
        GP_AUTO_REST struct rest_reply reply = {0};
        cloud_open(&c);
        c.base.clock_skew_s = 300; /* as an earlier reply had it */
        GP_AUTO_FREE char *target = xasprintf("/date?%d,%d", cases[i].status, year_s);
        struct rest_call call = call_of(&c, target, cases[i].body, REST_OPTIONAL | cases[i].flags);
        rest_call(&c.rest, &call, &reply, NULL);
        if (llabs(c.base.clock_skew_s - want_s) > 60) fail_msg("%zu: %lld", i, (long long)c.base.clock_skew_s);
        cloud_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_success),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_credentials),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_pages_without_end),
        cmocka_unit_test(test_whole_pages),
        cmocka_unit_test(test_pages_side_by_side),
        cmocka_unit_test(test_other_servers),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_the_clock_is_the_clouds),
    };
    return cmocka_run_group_tests_name("rest", tests, start_server, stop_server);
}

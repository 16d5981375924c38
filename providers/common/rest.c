// SPDX-License-Identifier: Apache-2.0
/* One call to a cloud with JSON replies, many of them side by side, and the pages of a list. http.c retries. One
 * thread at a time. */
#include "base/gp_base.h"

#include "providers/common/rest.h"

#include "base/log.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/page_walk.h"

#define REPLY_MAX ((size_t)64 << 20)

void rest_reply_clear(struct rest_reply *r) {
    if (r->json != NULL) json_decref(r->json);
    http_fields_clear(&r->headers);
    *r = (struct rest_reply){0};
}

/* --- one attempt --- */

struct attempt {
    struct rest *r;
    const struct rest_call *call;
    struct rest_reply *reply;
    struct cloud_said said;
    const struct cloud_error *row; /* NULL: no error of the cloud */
    bool malformed;
};

/* What a status means where the cloud's code is in no row. */
static const struct cloud_error refused_key = {"", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE,
                                               "check the credentials ('gpuprov doctor' names where they are from)"};
static const struct cloud_error slow_down = {"", GP_ETHROTTLED, GP_SCOPE_REGION, CLOUD_SLOW, "try again later"};
static const struct cloud_error trouble = {"", GP_EPROTO, GP_SCOPE_REGION, CLOUD_TROUBLE,
                                           "the service failed: try again later"};

static const struct cloud_error *row_of(const struct rest *r, const struct http_resp *resp,
                                        const struct cloud_said *said) {
    const struct cloud_error *row = cloud_error_find(r->rows, r->row_count, said);
    for (size_t i = 0; i < r->row_count; i++)
        if (row == &r->rows[i]) return row;
    if (resp->status == 401) return &refused_key;
    if (resp->status == 429) return &slow_down;
    return resp->status >= 500 ? &trouble : row;
}

static bool is_success(const struct attempt *a, int status) {
    return status / 100 == 2 || (status == 404 && (a->call->flags & REST_MISSING));
}

static void read_reply(struct attempt *a, const struct http_resp *resp) {
    rest_reply_clear(a->reply);
    a->reply->status = resp->status;
    for (size_t i = 0; i < resp->headers.list.len; i++)
        http_fields_add(&a->reply->headers, resp->headers.list.items[i].name, resp->headers.list.items[i].value);
    a->malformed =
        resp->body.len > 0 && json_parse(resp->body.s, resp->body.len, "the reply", &a->reply->json, NULL) != 0;
    a->said = (struct cloud_said){"", "", ""};
    a->row = NULL;
    if (resp->status == 404 && (a->call->flags & REST_MISSING)) {
        a->malformed = false;
        return;
    }
    a->r->said(resp, a->reply->json, &a->said);
    if (a->said.code[0] == '\0' && resp->status == 401) a->said.code = "HTTP 401";
    if (a->said.code[0] != '\0') a->row = row_of(a->r, resp, &a->said);
}

static enum http_verdict on_judge(void *ctx, const struct http_resp *resp) {
    struct attempt *a = ctx;
    read_reply(a, resp);
    if (a->row == NULL && is_success(a, resp->status) && !a->malformed) return HTTP_DONE;
    return cloud_judge(resp, a->row, a->malformed);
}

static int on_sign(void *ctx, struct http_fields *add, struct gp_error *err) {
    struct attempt *a = ctx;
    const struct http_fields *more = a->call->headers;
    http_fields_add(add, "Accept", "application/json");
    if (a->call->body != NULL)
        http_fields_add(add, "Content-Type", a->call->type != NULL ? a->call->type : "application/json");
    for (size_t i = 0; more != NULL && i < more->list.len; i++)
        http_fields_add(add, more->list.items[i].name, more->list.items[i].value);
    return a->call->flags & REST_PUBLIC ? 0 : a->r->authorize(a->r->ctx, a->call, add, err);
}

static void hide(json_t *j, const char *const *hidden) {
    const char *key = NULL;
    json_t *value = NULL;
    size_t i = 0;
    json_array_foreach(j, i, value) hide(value, hidden);
    json_object_foreach(j, key, value) {
        bool secret = false;
        for (size_t k = 0; hidden[k] != NULL && !secret; k++) secret = strcmp(hidden[k], key) == 0;
        if (secret) json_object_set_new(j, key, json_string("***"));
        else hide(value, hidden);
    }
}

/* The body of a request, if it is JSON: forms are those of token services. */
static void trace_body(const struct rest *r, const struct rest_call *call) {
    GP_AUTO_JSON json_t *j = NULL;
    if (!log_on(LOG_HTTP) || call->body == NULL) return;
    if (call->type != NULL || json_parse(call->body, strlen(call->body), "the request", &j, NULL) != 0) return;
    if (r->hidden != NULL) hide(j, r->hidden);
    GP_AUTO_FREE char *text = json_text(j, 0);
    log_trace(LOG_HTTP, "%s: %s", call->what, text);
}

static void prepare(struct attempt *a, struct http_req *req) {
    const struct rest_call *call = a->call;
    bool optional = (call->flags & REST_OPTIONAL) != 0;
    *req = (struct http_req){.what = call->what,
                             .method = call->method,
                             .url = call->url,
                             .body = call->body,
                             .body_len = call->body != NULL ? strlen(call->body) : 0,
                             .sign = on_sign,
                             .judge = on_judge,
                             .ctx = a,
                             .repeatable = (call->flags & REST_ONCE) == 0,
                             .tries = optional ? 1 : 5,
                             .timeout_ms = optional ? 10000 : 60000,
                             .deadline_ms = call->deadline_ms,
                             .max_body = REPLY_MAX};
    trace_body(a->r, call);
}

/* Proxies and captive portals in between answer too, with their own clocks: only a success in the cloud's form counts,
 * and the cloud's own error for a request whose time or credentials are wrong. */
static bool is_cloud_time(const struct attempt *a, const struct http_resp *resp) {
    if (a->reply->json == NULL || a->malformed || resp->status >= 500) return false;
    if (a->row == NULL) return resp->status / 100 == 2;
    return a->row != &refused_key && (a->row->class == CLOUD_CLOCK || a->row->class == CLOUD_STALE);
}

/* http: the result of http_call, err its error. The result of the call. */
static int judge_whole(struct attempt *a, const struct http_resp *resp, int http, struct gp_error *err) {
    int r = http;
    if (http == 0 && is_cloud_time(a, resp)) cloud_clock_set(a->r->provider, resp);
    if (http == 0 && a->row != NULL) {
        str_put(a->reply->code, sizeof a->reply->code, a->said.code);
        r = cloud_fail(err, a->call->what, &a->said, a->row);
    } else if (http == 0 && (!is_success(a, resp->status) || a->malformed)) {
        snprintf(a->reply->code, sizeof a->reply->code, "HTTP %d", resp->status);
        r = cloud_fail_status(err, a->call->what, resp, "JSON");
    }
    a->reply->sent = resp->sent;
    if (r != 0 && (a->call->flags & REST_ONCE) && cloud_outcome_open(resp, resp->status == 0 ? http : 0, a->row))
        r = cloud_to_unknown(err);
    return r;
}

/* --- calls --- */

static int ensure(struct rest *r, const struct rest_call *call, bool force, struct gp_error *err) {
    return r->ensure == NULL || (call->flags & REST_PUBLIC) ? 0 : r->ensure(r->ctx, force, err);
}

/* Whether a call that failed so is worth one more try with new credentials or the corrected clock. */
static bool again(struct attempt *a, int64_t skew_s, bool *refreshed, bool *corrected) {
    enum cloud_class class = a->row != NULL ? a->row->class : CLOUD_NO;
    bool moved = cloud_clock_moved(a->r->provider, skew_s);
    if (moved && !*corrected && (class == CLOUD_CLOCK || class == CLOUD_STALE)) return *corrected = true;
    if (class != CLOUD_STALE || *refreshed || a->r->ensure == NULL || (a->call->flags & REST_PUBLIC)) return false;
    *refreshed = true;
    struct gp_error unused = {0};
    return a->r->ensure(a->r->ctx, true, &unused) == 0;
}

static int call_from(struct rest *r, const struct rest_call *call, bool refreshed, struct rest_reply *ret,
                     struct gp_error *err) {
    bool corrected = false;
    for (;;) {
        GP_AUTO_RESP struct http_resp resp = {0};
        struct attempt a = {.r = r, .call = call, .reply = ret};
        struct http_req req;
        struct gp_error e = {0};
        int64_t skew_s = r->provider->clock_skew_s;
        int result = ensure(r, call, false, err);
        if (result != 0) return result;
        prepare(&a, &req);
        rest_reply_clear(ret);
        int http = http_call(r->http, &req, &resp, &e);
        result = judge_whole(&a, &resp, http, &e);
        if (result == 0) return 0;
        if (http == 0 && again(&a, skew_s, &refreshed, &corrected)) continue;
        if (err != NULL) *err = e;
        return result;
    }
}

int rest_call(struct rest *r, const struct rest_call *call, struct rest_reply *ret, struct gp_error *err) {
    return call_from(r, call, false, ret, err);
}

void rest_call_many(struct rest *r, const struct rest_call *calls, size_t n, size_t at_once, struct rest_result *ret) {
    struct attempt *attempts = xcalloc(n + 1, sizeof *attempts);
    struct http_req *reqs = xcalloc(n + 1, sizeof *reqs);
    struct http_result *results = xcalloc(n + 1, sizeof *results);
    int64_t skew_s = r->provider->clock_skew_s;
    struct gp_error why = {0};
    int ready = 0;
    for (size_t i = 0; ready == 0 && i < n; i++) ready = ensure(r, &calls[i], false, &why);
    for (size_t i = 0; i < n; i++) {
        attempts[i] = (struct attempt){.r = r, .call = &calls[i], .reply = &ret[i].reply};
        if (ready == 0) prepare(&attempts[i], &reqs[i]);
    }
    if (ready == 0) http_call_many(r->http, reqs, n, at_once, results);
    bool refreshed = false, corrected = false, repeat = false;
    for (size_t i = 0; i < n; i++) {
        ret[i].err = ready == 0 ? results[i].err : why;
        ret[i].rc = ready == 0 ? judge_whole(&attempts[i], &results[i].resp, results[i].rc, &ret[i].err) : ready;
        http_resp_clear(&results[i].resp);
        if (ready != 0 || ret[i].rc == 0 || results[i].rc != 0) continue;
        enum cloud_class class = attempts[i].row != NULL ? attempts[i].row->class : CLOUD_NO;
        /* the first that is refused for its credentials renews them for all */
        repeat = repeat || again(&attempts[i], skew_s, &refreshed, &corrected);
        if (!repeat || (class != CLOUD_STALE && class != CLOUD_CLOCK)) continue;
        gp_error_clear(&ret[i].err);
        ret[i].rc = call_from(r, &calls[i], true, &ret[i].reply, &ret[i].err);
    }
    free(attempts);
    free(reqs);
    free(results);
}

/* --- pages --- */

/* Length of "https://host:port". */
static size_t origin_len(const char *url) {
    const char *host = strstr(url, "://");
    return host != NULL ? (size_t)(host - url) + 3 + strcspn(host + 3, "/?#") : 0;
}

static bool same_origin(const char *a, const char *b) {
    size_t n = origin_len(a);
    return n > 0 && n == origin_len(b) && strncasecmp(a, b, n) == 0 && memchr(a, '@', n) == NULL;
}

static int each_item(const struct rest_call *first, const struct rest_list *list, json_t *reply, struct gp_error *err) {
    json_t *items = json_at(reply, list->items), *item = NULL;
    size_t i = 0;
    if (items == NULL ? !list->may_lack || !json_is_object(reply) : !json_is_array(items))
        return gp_fail(err, GP_EPROTO, "%s: the reply has no list '%s'", first->what, list->items);
    json_array_foreach(items, i, item) {
        int result = list->each(list->ctx, item, err);
        if (result != 0) return result;
    }
    return 0;
}

static int whole_page(const struct rest_call *first, const struct rest_list *list, const json_t *reply,
                      struct gp_error *err) {
    if (reply != NULL) return list->page(list->ctx, reply, err);
    return gp_fail(err, GP_EPROTO, "%s: the reply is empty: check the endpoint", first->what);
}

/* Hands out a reply. *ret_next: the URL of the next page, NULL: this was the last; caller frees. */
static int take_page(const struct rest_call *first, const struct rest_list *list, struct page_walk *walk,
                     const char *url, json_t *reply, char **ret_next, struct gp_error *err) {
    int result = list->page != NULL ? whole_page(first, list, reply, err) : each_item(first, list, reply, err);
    GP_AUTO_FREE char *next = result == 0 && list->next != NULL ? list->next(url, reply) : NULL;
    if (next == NULL) return result;
    if (!same_origin(first->url, next))
        return gp_fail(err, GP_EPROTO, "%s: the next page is at another server, '%.80s': it is not asked for",
                       first->what, next);
    if (strcmp(next, url) == 0) return gp_fail(err, GP_EPROTO, "%s: the reply repeats a page", first->what);
    result = page_walk_next(walk, first->what, page_walk_json(reply), next, err);
    if (result == 0) *ret_next = GP_STEAL(next);
    return result;
}

void rest_pages_many(struct rest *r, struct rest_paged *lists, size_t n) {
    struct rest_call *calls = xcalloc(n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(n + 1, sizeof *results);
    size_t *which = xcalloc(n + 1, sizeof *which), left = 0;
    char **urls = xcalloc(n + 1, sizeof *urls);
    struct page_walk *walks = xcalloc(n + 1, sizeof *walks);
    for (size_t i = 0; i < n; i++) {
        lists[i].rc = 0;
        urls[i] = xstrdup(lists[i].first.url);
        page_walk_begin(&walks[i], r->list_ms);
    }
    for (;;) {
        left = 0;
        for (size_t i = 0; i < n; i++) {
            if (urls[i] == NULL) continue;
            calls[left] = lists[i].first;
            calls[left].url = urls[i];
            calls[left].deadline_ms = walks[i].deadline_ms;
            which[left++] = i;
        }
        if (left == 0) break;
        rest_call_many(r, calls, left, 0, results);
        for (size_t k = 0; k < left; k++) {
            struct rest_paged *p = &lists[which[k]];
            struct page_walk *walk = &walks[which[k]];
            char *next = NULL;
            p->rc = results[k].rc;
            if (p->rc != 0) p->err = results[k].err;
            else p->rc = take_page(&p->first, &p->list, walk, calls[k].url, results[k].reply.json, &next, &p->err);
            if (results[k].rc != 0) p->rc = page_walk_failed(walk, p->first.what, p->rc, &p->err);
            free(urls[which[k]]);
            urls[which[k]] = next;
            rest_reply_clear(&results[k].reply);
            results[k] = (struct rest_result){0};
        }
    }
    for (size_t i = 0; i < n; i++) {
        free(urls[i]);
        page_walk_clear(&walks[i]);
    }
    free(urls);
    free(walks);
    free(which);
    free(results);
    free(calls);
}

int rest_pages(struct rest *r, const struct rest_call *first, const struct rest_list *list, struct gp_error *err) {
    struct rest_paged one = {.first = *first, .list = *list};
    rest_pages_many(r, &one, 1);
    if (one.rc != 0 && err != NULL) *err = one.err;
    return one.rc;
}

/* --- URLs --- */

void rest_query(struct str *url, const char *name, const char *value) {
    str_addc(url, url->s != NULL && strchr(url->s, '?') != NULL ? '&' : '?');
    http_encode(url, name);
    str_addc(url, '=');
    http_encode(url, value);
}

void rest_form(struct str *body, const char *name, const char *value) {
    if (body->len > 0) str_addc(body, '&');
    http_encode(body, name);
    str_addc(body, '=');
    http_encode(body, value);
}

char *rest_with_param(const char *url, const char *name, const char *value) {
    GP_AUTO_STR struct str encoded = {0};
    struct str out = {0};
    size_t path = strcspn(url, "?");
    http_encode(&encoded, name);
    str_add_mem(&out, url, path);
    for (const char *p = url + path; *p != '\0';) { /* at '?' or '&' */
        size_t n = strcspn(p + 1, "&");
        bool same = strncmp(p + 1, encoded.s, encoded.len) == 0 && (p[1 + encoded.len] == '=' || encoded.len == n);
        if (!same && n > 0) {
            str_addc(&out, strchr(out.s, '?') != NULL ? '&' : '?');
            str_add_mem(&out, p + 1, n);
        }
        p += 1 + n;
    }
    rest_query(&out, name, value);
    return out.s;
}

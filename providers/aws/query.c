// SPDX-License-Identifier: Apache-2.0
/* One call to an AWS service: body, signature, reply, error. Query services (EC2, STS) reply in XML,
 * the others in JSON 1.1. http.c retries; new credentials and a corrected clock are tried once
 * here. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/log.h"
#include "providers/aws/sigv4.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/page_walk.h"

#include <stdarg.h>
#include <time.h>

#define EC2_VERSION "2016-11-15"
#define REPLY_MAX ((size_t)64 << 20)

int aws_http_open(const struct aws *a, struct http **ret, struct gp_error *err) {
    struct http_options opt = {
        .cancel = a->cancel, .watch = a->watch, .ca_bundle = a->cfg.ca_bundle, .ca_setting = "AWS_CA_BUNDLE"};
    return http_open(&opt, ret, err);
}

/* --- bodies --- */

void aws_begin(struct str *body, const char *action) { str_addf(body, "Action=%s&Version=" EC2_VERSION, action); }

/* A blank is '+', as in the AWS CLI's requests. */
static void add_value(struct str *body, const char *value) {
    for (size_t n = 0;; value += n + 1) {
        n = strcspn(value, " ");
        GP_AUTO_FREE char *part = xstrndup(value, n);
        http_encode(body, part);
        if (value[n] == '\0') return;
        str_addc(body, '+');
    }
}

void aws_param(struct str *body, const char *name, const char *value) {
    str_addf(body, "&%s=", name);
    add_value(body, value);
}

void aws_paramf(struct str *body, const char *value, const char *name_fmt, ...) {
    va_list ap;
    str_addc(body, '&');
    va_start(ap, name_fmt);
    str_vaddf(body, name_fmt, ap);
    va_end(ap);
    str_addc(body, '=');
    add_value(body, value);
}

void aws_param_int(struct str *body, const char *name, int64_t value) {
    str_addf(body, "&%s=%lld", name, (long long)value);
}

void aws_filter(struct str *body, int n, const char *name, const char *value) {
    aws_paramf(body, name, "Filter.%d.Name", n);
    aws_paramf(body, value, "Filter.%d.Value.1", n);
}

void aws_reply_clear(struct aws_reply *r) {
    xml_free(r->xml);
    if (r->json != NULL) json_decref(r->json);
    *r = (struct aws_reply){0};
}

const char *aws_home(const struct aws *a) {
    if (a->cfg.region != NULL) return a->cfg.region;
    if (a->fallback_region != NULL) return a->fallback_region;
    return "us-east-1";
}

int64_t aws_now_s(const struct aws *a) { return cloud_now_s(&a->base); }

/* --- one attempt --- */

struct call_ctx {
    struct aws *a;
    const struct aws_call *call;
    const struct aws_cred *cred; /* NULL: unsigned */
    struct http_fields base;     /* host, content-type, x-amz-target */
    char *path;
    bool is_json;
    struct aws_reply *reply;
    struct cloud_said said;
    bool malformed;
};

static bool is_json_service(const char *service) {
    return strcmp(service, "ssm") == 0 || strcmp(service, "servicequotas") == 0;
}

static const char *json_target(const char *service) {
    return strcmp(service, "ssm") == 0 ? "AmazonSSM" : "ServiceQuotasV20190624";
}

static int on_sign(void *ctx, struct http_fields *add, struct gp_error *err) {
    struct call_ctx *c = ctx;
    char date[32];
    time_t now = (time_t)aws_now_s(c->a);
    struct tm tm;
    for (size_t i = 0; i < c->base.list.len; i++)
        http_fields_add(add, c->base.list.items[i].name, c->base.list.items[i].value);
    if (c->cred == NULL) return 0;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &tm);
    http_fields_add(add, "X-Amz-Date", date);
    if (c->cred->token.len > 0) http_fields_add(add, "X-Amz-Security-Token", secret_reveal(&c->cred->token));
    struct sigv4_req r = {.method = "POST",
                          .path = c->path,
                          .headers = add,
                          .body = c->call->body,
                          .body_len = strlen(c->call->body),
                          .region = c->call->region,
                          .service = c->call->service,
                          .date = date};
    GP_AUTO_STR struct str auth = {0};
    int e = sigv4_authorization(&r, c->cred->id, &c->cred->key, &auth, err);
    if (e == 0) http_fields_add(add, "Authorization", auth.s);
    return e;
}

static void parse_reply(struct call_ctx *c, const struct http_resp *resp) {
    const char *text = resp->body.s != NULL ? resp->body.s : "";
    xml_free(c->reply->xml);
    if (c->reply->json != NULL) json_decref(c->reply->json);
    c->reply->xml = NULL;
    c->reply->json = NULL;
    c->said = (struct cloud_said){"", "", ""};
    int r = c->is_json ? json_parse(text, resp->body.len, "the reply", &c->reply->json, NULL)
                       : xml_parse(text, resp->body.len, "the reply", &c->reply->xml, NULL);
    c->malformed = r != 0;
    bool error = c->is_json ? c->reply->json != NULL && aws_said_json(c->reply->json, &c->said)
                            : aws_said_xml(c->reply->xml, &c->said);
    if (!error) c->said = (struct cloud_said){"", "", ""};
    const char *id = http_fields_get(&resp->headers, "x-amzn-requestid");
    if (id == NULL) id = http_fields_get(&resp->headers, "x-amz-request-id");
    if (id == NULL || id[0] == '\0')
        id = xml_str(c->reply->xml, "requestId",
                     xml_str(c->reply->xml, "ResponseMetadata/RequestId", c->said.request_id));
    str_put(c->reply->request_id, sizeof c->reply->request_id, id);
    c->said.request_id = c->reply->request_id;
}

/* The row of the error in the reply; NULL: none. */
static const struct cloud_error *said_row(const struct call_ctx *c) {
    return c->said.code[0] != '\0' ? aws_error_row(c->said.code) : NULL;
}

static enum http_verdict on_judge(void *ctx, const struct http_resp *resp) {
    struct call_ctx *c = ctx;
    parse_reply(c, resp);
    return cloud_judge(resp, said_row(c), c->malformed);
}

static void trace_call(const struct call_ctx *c, const char *what) {
    if (!log_on(LOG_HTTP)) return;
    GP_AUTO_FREE char *body = xstrdup(c->call->body);
    char *data = strstr(body, "&UserData="); /* long, and it contains the first-contact key */
    if (data != NULL) {
        data += strlen("&UserData=");
        size_t n = strcspn(data, "&");
        memmove(data, data + n, strlen(data + n) + 1);
    }
    char *token = strstr(body, "&WebIdentityToken=");
    if (token != NULL) token[strlen("&WebIdentityToken=")] = '\0';
    log_trace(LOG_HTTP, "%s: %s", what, body);
}

/* Sets err from a whole reply that is not a success. */
static int fail_reply(struct call_ctx *c, const char *what, const struct http_resp *resp, struct gp_error *err) {
    const struct cloud_error *row = said_row(c);
    if (row == NULL) return cloud_fail_status(err, what, resp, c->is_json ? "JSON" : "XML");
    str_put(c->reply->code, sizeof c->reply->code, c->said.code);
    return cloud_fail(err, what, &c->said, row);
}

/* Proxies and captive portals in between answer too, with their own clocks: only a success in the service's form
 * counts, and its own error for a request whose time or credentials are wrong. */
static bool is_cloud_time(const struct call_ctx *c, const struct http_resp *resp) {
    const struct cloud_error *row = said_row(c);
    if (c->malformed || resp->status >= 500) return false;
    if (row != NULL)
        return row->class == CLOUD_CLOCK || row->class == CLOUD_STALE || str_starts(c->said.code, "AuthFailure");
    if (resp->status != 200 || c->is_json) return resp->status == 200;
    GP_AUTO_FREE char *root = xasprintf("%sResponse", c->call->action);
    return str_eq(c->reply->xml->name, root);
}

static int attempt(struct aws *a, const struct aws_call *call, const struct aws_cred *cred, struct aws_reply *ret,
                   struct gp_error *err) {
    GP_AUTO_FREE char *endpoint = aws_endpoint(&a->cfg, call->service, call->region);
    if (endpoint == NULL)
        return gp_fail(err, GP_EUSAGE,
                       "%s %s: '%.40s' is not a region of aws: correct regions or "
                       "AWS_REGION",
                       call->service, call->action, call->region);
    GP_AUTO_FREE char *what = xasprintf("%s %s in %s", call->service, call->action, call->region);
    GP_AUTO_FREE char *url = xasprintf("%s/", endpoint);
    const char *host = strstr(url, "://");
    if (host == NULL) return gp_fail(err, GP_EUSAGE, "%s: the endpoint '%s' is not a URL", what, endpoint);
    host += 3;
    size_t host_len = strcspn(host, "/");
    GP_AUTO_FREE char *host_only = xstrndup(host, host_len);
    GP_AUTO_RESP struct http_resp resp = {0};
    struct call_ctx c = {.a = a,
                         .call = call,
                         .cred = cred,
                         .reply = ret,
                         .path = xstrdup(host + host_len),
                         .is_json = is_json_service(call->service),
                         .said = {"", "", ""}};
    http_fields_add(&c.base, "Host", host_only);
    if (c.is_json) {
        GP_AUTO_FREE char *target = xasprintf("%s.%s", json_target(call->service), call->action);
        http_fields_add(&c.base, "Content-Type", "application/x-amz-json-1.1");
        http_fields_add(&c.base, "X-Amz-Target", target);
    } else {
        http_fields_add(&c.base, "Content-Type", "application/x-www-form-urlencoded; charset=utf-8");
    }
    struct http_req req = {.what = what,
                           .method = "POST",
                           .url = url,
                           .body = call->body,
                           .body_len = strlen(call->body),
                           .sign = on_sign,
                           .judge = on_judge,
                           .ctx = &c,
                           .repeatable = (call->flags & AWS_ONCE) == 0,
                           .tries = call->flags & AWS_OPTIONAL ? 1 : 5,
                           .timeout_ms = call->flags & AWS_OPTIONAL ? 10000 : 60000,
                           .deadline_ms = call->deadline_ms,
                           .max_body = REPLY_MAX};
    trace_call(&c, what);
    int r = http_call(a->http, &req, &resp, err);
    ret->sent = resp.sent;
    if (r == 0 && is_cloud_time(&c, &resp)) cloud_clock_set(&a->base, &resp);
    if (r == 0 && (resp.status != 200 || c.malformed || c.said.code[0] != '\0')) r = fail_reply(&c, what, &resp, err);
    bool open = cloud_outcome_open(&resp, resp.status == 0 ? r : 0, said_row(&c));
    if (r != 0 && (call->flags & AWS_ONCE) && open) r = cloud_to_unknown(err);
    http_fields_clear(&c.base);
    free(c.path);
    return r;
}

int aws_call(struct aws *a, const struct aws_call *call, struct aws_reply *ret, struct gp_error *err) {
    bool refreshed = false, corrected = false;
    for (;;) {
        const struct aws_cred *cred = call->cred;
        if (call->flags & AWS_UNSIGNED) {
            cred = NULL;
        } else if (cred == NULL) {
            int r = a->borrowed ? 0 : aws_creds_ensure(a, false, err);
            if (r != 0) return r;
            cred = &a->cred;
        }
        struct gp_error e = {0};
        int64_t skew = a->base.clock_skew_s;
        aws_reply_clear(ret);
        int r = attempt(a, call, cred, ret, &e);
        if (r == 0) return 0;
        const struct cloud_error *row = aws_error_row(ret->code);
        bool clock = row->class == CLOUD_CLOCK || str_starts(ret->code, "AuthFailure");
        if (clock && !corrected && cloud_clock_moved(&a->base, skew)) {
            corrected = true;
            continue;
        }
        if (row->class == CLOUD_STALE && !refreshed && call->cred == NULL && !a->borrowed) {
            refreshed = true;
            struct gp_error again = {0};
            if (aws_creds_ensure(a, true, &again) == 0) continue;
        }
        if (err != NULL) *err = e;
        return r;
    }
}

int aws_ec2(struct aws *a, const char *region, const char *action, const struct str *body, unsigned flags,
            struct aws_reply *ret, struct gp_error *err) {
    if (body->truncated) return gp_fail(err, GP_EINTERNAL, "ec2 %s: the request is too large", action);
    struct aws_call c = {.service = "ec2", .region = region, .action = action, .body = body->s, .flags = flags};
    return aws_call(a, &c, ret, err);
}

/* One page. *ret_next: the token of the next one, NULL: this was the last; caller frees. */
static int describe_page(struct aws *a, const struct aws_call *call, const char *set, struct page_walk *walk,
                         aws_each_fn each, void *ctx, char **ret_next, struct gp_error *err) {
    GP_AUTO_REPLY struct aws_reply reply = {0};
    GP_AUTO_FREE char *what = xasprintf("ec2 %s in %s", call->action, call->region);
    struct gp_error why = {0};
    int r = aws_call(a, call, &reply, &why);
    if (r != 0) {
        r = page_walk_failed(walk, what, r, &why);
        if (err != NULL) *err = why;
        return r;
    }
    const struct xml_node *items = xml_find(reply.xml, set);
    if (items == NULL) /* EC2 also sends empty sets: without a set this is the reply of another call */
        return gp_fail(err, GP_EPROTO, "%s: the reply has no %s", what, set);
    for (size_t i = 0; i < items->children.len; i++) {
        r = each(ctx, items->children.items[i], err);
        if (r != 0) return r;
    }
    const char *token = xml_str(reply.xml, "nextToken", "");
    if (token[0] == '\0') return 0;
    r = page_walk_next(walk, what, page_walk_xml(items), token, err);
    if (r == 0) *ret_next = xstrdup(token);
    return r;
}

int aws_describe(struct aws *a, const char *region, const char *action, const struct str *body, int page,
                 const char *set, aws_each_fn each, void *ctx, struct gp_error *err) {
    GP_AUTO_FREE char *next = NULL;
    struct page_walk walk = {0};
    int r = 0;
    if (body->truncated) return gp_fail(err, GP_EINTERNAL, "ec2 %s: the request is too large", action);
    page_walk_begin(&walk, 0);
    do {
        GP_AUTO_STR struct str b = {0};
        str_add(&b, body->s);
        if (page > 0) aws_param_int(&b, "MaxResults", page);
        if (next != NULL) aws_param(&b, "NextToken", next);
        free(next);
        next = NULL;
        struct aws_call c = {
            .service = "ec2", .region = region, .action = action, .body = b.s, .deadline_ms = walk.deadline_ms};
        r = describe_page(a, &c, set, &walk, each, ctx, &next, err);
    } while (r == 0 && next != NULL);
    page_walk_clear(&walk);
    return r;
}

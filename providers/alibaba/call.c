// SPDX-License-Identifier: Apache-2.0
/* One call to ECS, VPC or STS in the RPC form: action and version as headers, parameters in the query; the user-data,
 * and everything for STS, in a form body, because logs of servers and proxies keep queries. A new signature for every
 * attempt. Lists with their pages side by side. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/fs.h"
#include "base/hash.h"
#include "providers/alibaba/acs3.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/page_walk.h"
#include "providers/common/places.h"

#define AT_ONCE 16
#define BODY_PARAM "&UserData="

static const struct {
    const char *name, *version;
} services[] = {
    [ALI_ECS] = {"ecs", "2014-05-26"}, [ALI_VPC] = {"vpc", "2016-04-28"}, [ALI_STS] = {"sts", "2015-04-01"}};

/* --- parameters --- */

void ali_param(struct str *query, const char *name, const char *value) { rest_form(query, name, value); }

void ali_begin(struct str *query, const char *region) { rest_form(query, "RegionId", region); }

void ali_paramf(struct str *query, const char *value, const char *name_fmt, ...) {
    char name[96];
    va_list ap;
    va_start(ap, name_fmt);
    vsnprintf(name, sizeof name, name_fmt, ap);
    va_end(ap);
    rest_form(query, name, value);
}

void ali_param_int(struct str *query, const char *name, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    rest_form(query, name, text);
}

/* --- forms of words from outside --- */

bool ali_region_valid(const char *s) {
    size_t n = s != NULL ? strlen(s) : 0;
    return n >= 2 && n <= 40 && s[0] >= 'a' && s[0] <= 'z' && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

bool ali_id(const char *id, const char *prefix) {
    size_t skip = strlen(prefix), n = id != NULL ? strlen(id) : 0;
    return n >= skip + 4 && n <= skip + 40 && str_starts(id, prefix) &&
           strspn(id + skip, "abcdefghijklmnopqrstuvwxyz0123456789") == n - skip;
}

int64_t ali_time(const char *text) {
    int64_t s = 0;
    size_t n = strlen(text);
    GP_AUTO_FREE char *whole =
        n == 17 && text[16] == 'Z' ? xasprintf("%.16s:00Z", text) : xstrdup(text); /* 2026-12-10T04:04Z */
    return time_parse_utc(whole, &s) ? s : 0;
}

/* --- endpoints --- */

/* "ecs-cn-hangzhou.aliyuncs.com": a name within Alibaba Cloud, because it gets signed requests. */
static bool endpoint_valid(const char *s) {
    size_t n = strlen(s);
    return n < 128 && s[0] != '.' && s[0] != '-' && str_ends(s, ".aliyuncs.com") &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") == n;
}

/* Regions whose ECS has another host than ecs.REGION, as the official SDK has them. */
static const struct {
    const char *region, *host;
} hosts[] = {{"cn-hangzhou", "ecs-cn-hangzhou.aliyuncs.com"},
             {"cn-shanghai-finance-1", "ecs-cn-hangzhou.aliyuncs.com"},
             {"cn-shenzhen-finance-1", "ecs-cn-hangzhou.aliyuncs.com"},
             {"cn-hangzhou-finance", "ecs.aliyuncs.com"},
             {"cn-north-2-gov-1", "ecs.aliyuncs.com"}};

/* DescribeRegions, where it was called, has the host of every region. */
static char *endpoint(const struct ali *a, enum ali_service service, const char *region) {
    const char *own = ali_env("GPUPROV_ALIBABA_ENDPOINT");
    if (own != NULL) return xstrdup(own);
    if (service == ALI_STS) return xstrdup("https://sts.aliyuncs.com");
    for (size_t i = 0; service == ALI_ECS && i < a->cache->regions.n; i++)
        if (strcmp(a->cache->regions.v[i], region) == 0) return xasprintf("https://%s", a->cache->endpoints.v[i]);
    for (size_t i = 0; service == ALI_ECS && i < GP_ARRAY_LEN(hosts); i++)
        if (strcmp(hosts[i].region, region) == 0) return xasprintf("https://%s", hosts[i].host);
    return xasprintf("https://%s.%s.aliyuncs.com", services[service].name, region);
}

/* --- signature --- */

struct signer {
    const struct ali *a;
    const struct ali_cred *cred;
};

static char *host_of(const char *url) {
    const char *host = strstr(url, "://");
    host = host != NULL ? host + 3 : url;
    return xstrndup(host, strcspn(host, "/?#"));
}

static int sign_as(const struct ali *a, const struct ali_cred *cred, const struct rest_call *call,
                   struct http_fields *add, struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields all = {0};
    GP_AUTO_STR struct str value = {0};
    GP_AUTO_FREE char *host = host_of(call->url);
    char nonce[33], hash[65], when[32];
    int r = fs_random_hex(nonce, 16, err);
    if (r != 0) return r;
    sha256_hex(call->body, call->body != NULL ? strlen(call->body) : 0, hash);
    time_format_utc(when, sizeof when, cloud_now_s(&a->base));
    http_fields_add(add, "x-acs-date", when);
    http_fields_add(add, "x-acs-signature-nonce", nonce);
    http_fields_add(add, "x-acs-content-sha256", hash);
    if (cred->token.len > 0) http_fields_add(add, "x-acs-security-token", secret_reveal(&cred->token));
    http_fields_add(&all, "host", host);
    if (call->body != NULL) http_fields_add(&all, "content-type", call->type);
    for (size_t i = 0; i < add->list.len; i++)
        if (strncasecmp(add->list.items[i].name, "x-acs-", 6) == 0)
            http_fields_add(&all, add->list.items[i].name, add->list.items[i].value);
    const char *query = strchr(call->url, '?');
    struct acs3_req req = {.method = call->method,
                           .path = "/",
                           .query = query != NULL ? query + 1 : NULL,
                           .headers = &all,
                           .payload_hash = hash};
    acs3_authorization(&req, cred->id, &cred->key, &value);
    http_fields_add(add, "Authorization", value.s);
    return 0;
}

static int authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    const struct ali *a = ctx;
    return sign_as(a, &a->cred, call, add, err);
}

static int authorize_as(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    const struct signer *s = ctx;
    return sign_as(s->a, s->cred, call, add, err);
}

static void said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    const char *code = json_str(json, "Code", "");
    /* Some services have a code in a success too. */
    if (resp->status / 100 == 2 && (strcmp(code, "200") == 0 || strcasecmp(code, "ok") == 0)) return;
    ret->code = code;
    ret->message = json_str(json, "Message", "");
    ret->request_id = json_str(json, "RequestId", "");
}

int ali_rest_open(struct ali *a, struct gp_error *err) {
    struct http_options opt = {.cancel = a->cancel};
    const char *own = ali_env("GPUPROV_ALIBABA_ENDPOINT");
    a->rest = (struct rest){.provider = &a->base,
                            .ctx = a,
                            .ensure = ali_creds_ensure,
                            .authorize = authorize,
                            .said = said,
                            .rows = ali_errors,
                            .row_count = ali_error_count};
    int r = own != NULL ? http_url_check("alibaba: GPUPROV_ALIBABA_ENDPOINT", own, err) : 0;
    if (r == 0) r = http_open(&opt, &a->http, err);
    a->rest.http = a->http;
    return r;
}

/* --- one call --- */

struct prepared {
    struct rest_call call;
    struct http_fields headers;
    char *what, *url;
    struct str body;
};

static void prepared_clear(struct prepared *p) {
    http_fields_clear(&p->headers);
    free(p->what);
    free(p->url);
    if (p->body.s != NULL) explicit_bzero(p->body.s, p->body.len);
    str_clear(&p->body);
}

static void prepare_call(const struct ali *a, enum ali_service service, const char *region, const char *action,
                         const char *query, unsigned flags, struct prepared *ret) {
    GP_AUTO_FREE char *base = endpoint(a, service, region);
    size_t slashes = strlen(base);
    while (slashes > 0 && base[slashes - 1] == '/') base[--slashes] = '\0';
    const char *body = query != NULL ? strstr(query, BODY_PARAM) : NULL, *form = body != NULL ? body + 1 : NULL;
    if (service == ALI_STS) body = form = query; /* the token of an identity provider */
    size_t n = query == NULL ? 0 : body != NULL ? (size_t)(body - query) : strlen(query);
    *ret = (struct prepared){
        .what = xasprintf("%s %s in %s", services[service].name, action, region),
        .url = xasprintf("%s/%s%.*s", base, n > 0 ? "?" : "", (int)n, n > 0 ? query : ""),
    };
    http_fields_add(&ret->headers, "x-acs-action", action);
    http_fields_add(&ret->headers, "x-acs-version", services[service].version);
    if (form != NULL) str_add(&ret->body, form);
    ret->call = (struct rest_call){.what = ret->what,
                                   .method = "POST",
                                   .url = ret->url,
                                   .body = ret->body.s,
                                   .type = body != NULL ? "application/x-www-form-urlencoded" : NULL,
                                   .headers = &ret->headers,
                                   .flags = flags};
}

int ali_call_as(struct ali *a, const struct ali_cred *cred, enum ali_service service, const char *region,
                const char *action, const struct str *query, unsigned flags, struct rest_reply *ret,
                struct gp_error *err) {
    struct prepared p;
    struct signer signer = {a, cred};
    struct rest other = a->rest;
    other.ctx = &signer;
    other.ensure = NULL;
    other.authorize = authorize_as;
    prepare_call(a, service, region, action, query != NULL ? query->s : NULL, flags, &p);
    int r = rest_call(cred != NULL ? &other : &a->rest, &p.call, ret, err);
    prepared_clear(&p);
    return r;
}

int ali_call(struct ali *a, enum ali_service service, const char *region, const char *action, const struct str *query,
             unsigned flags, struct rest_reply *ret, struct gp_error *err) {
    return ali_call_as(a, NULL, service, region, action, query, flags, ret, err);
}

/* --- lists --- */

void ali_list_clear(struct ali_list *l) {
    str_clear(&l->query);
    free(l->next);
    l->next = NULL;
}

static void page_query(const struct ali_list *l, struct str *out) {
    str_add(out, l->query.s != NULL ? l->query.s : "");
    if (l->page == 0) return;
    ali_param_int(out, l->numbered ? "PageSize" : "MaxResults", l->page);
    if (l->numbered) ali_param_int(out, "PageNumber", l->pages + 1);
    else if (l->next != NULL) ali_param(out, "NextToken", l->next);
}

/* The page's entries, and whether it was the last. */
static int take_page(struct ali_list *l, struct page_walk *walk, const char *what, const json_t *reply,
                     struct gp_error *err) {
    json_t *items = l->items != NULL ? json_at(reply, l->items) : NULL, *item = NULL;
    size_t i = 0;
    if (l->items == NULL) {
        l->done = true;
        return l->each(l->ctx, reply, err);
    }
    if (!json_is_array(items))
        return gp_fail(err, GP_EPROTO, "%s in %s: the reply has no list '%s'", l->action, l->region, l->items);
    json_array_foreach(items, i, item) {
        int r = l->each(l->ctx, item, err);
        if (r != 0) return r;
    }
    l->pages++;
    l->seen += (int64_t)json_array_size(items);
    const char *token = json_str(reply, "NextToken", "");
    if (l->page == 0) l->done = true;
    else if (l->numbered && !json_is_integer(json_at(reply, "TotalCount")))
        return gp_fail(err, GP_EPROTO, "%s in %s: the reply has no 'TotalCount'", l->action, l->region);
    else if (l->numbered) l->done = json_array_size(items) == 0 || l->seen >= json_int(reply, "TotalCount", 0);
    else if (token[0] == '\0') l->done = true;
    else {
        free(l->next);
        l->next = xstrdup(token);
    }
    GP_AUTO_FREE char *number = xasprintf("%lld", (long long)l->pages);
    return l->done ? 0 : page_walk_next(walk, what, page_walk_json(items), l->numbered ? number : token, err);
}

static void one_round(struct ali *a, struct ali_list *lists, struct page_walk *walks, const size_t *which, size_t n) {
    struct prepared *p = xcalloc(n, sizeof *p);
    struct rest_call *calls = xcalloc(n, sizeof *calls);
    struct rest_result *results = xcalloc(n, sizeof *results);
    for (size_t i = 0; i < n; i++) {
        const struct ali_list *l = &lists[which[i]];
        GP_AUTO_STR struct str query = {0};
        page_query(l, &query);
        prepare_call(a, l->service, l->region, l->action, query.s, 0, &p[i]);
        calls[i] = p[i].call;
        calls[i].deadline_ms = walks[which[i]].deadline_ms;
    }
    rest_call_many(&a->rest, calls, n, AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        struct ali_list *l = &lists[which[i]];
        struct page_walk *walk = &walks[which[i]];
        if (results[i].rc != 0) l->err = results[i].err;
        l->rc = results[i].rc != 0 ? page_walk_failed(walk, p[i].what, results[i].rc, &l->err)
                                   : take_page(l, walk, p[i].what, results[i].reply.json, &l->err);
        rest_reply_clear(&results[i].reply);
        prepared_clear(&p[i]);
    }
    free(p);
    free(calls);
    free(results);
}

int ali_lists(struct ali *a, struct ali_list *lists, size_t n, struct gp_error *err) {
    size_t *which = xcalloc(n + 1, sizeof *which);
    struct page_walk *walks = xcalloc(n + 1, sizeof *walks);
    int r = 0;
    for (size_t i = 0; i < n; i++) page_walk_begin(&walks[i], a->rest.list_ms);
    for (size_t left = n; left > 0;) {
        left = 0;
        for (size_t i = 0; i < n; i++)
            if (!lists[i].done && lists[i].rc == 0) which[left++] = i;
        if (left > 0) one_round(a, lists, walks, which, left);
    }
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (lists[i].rc == 0) continue;
        r = lists[i].rc;
        if (err != NULL) *err = lists[i].err;
    }
    for (size_t i = 0; i < n; i++) page_walk_clear(&walks[i]);
    free(walks);
    free(which);
    return r;
}

int ali_list_one(struct ali *a, struct ali_list *l, struct gp_error *err) {
    int r = ali_lists(a, l, 1, err);
    ali_list_clear(l);
    return r;
}

/* --- regions --- */

const char *ali_home(const struct ali *a) { return a->region != NULL ? a->region : "cn-hangzhou"; }

static int on_region(void *ctx, const json_t *item, struct gp_error *err) {
    struct ali_cache *c = ctx;
    const char *id = json_str(item, "RegionId", ""), *host = json_str(item, "RegionEndpoint", "");
    if (!ali_region_valid(id) || !endpoint_valid(host))
        return gp_fail(err, GP_EPROTO,
                       "ecs DescribeRegions: an entry without a region and an endpoint below aliyuncs.com: check "
                       "GPUPROV_ALIBABA_ENDPOINT");
    size_t had = c->regions.n;
    int r = places_add(&c->regions, id, "ecs DescribeRegions", err);
    if (r == 0 && c->regions.n > had) strv_add(&c->endpoints, host);
    return r;
}

int ali_regions(struct ali *a, struct strv *ret, struct gp_error *err) {
    if (a->cache->regions.n == 0) {
        struct ali_list l = {.service = ALI_ECS,
                             .region = ali_home(a),
                             .action = "DescribeRegions",
                             .items = "Regions.Region",
                             .each = on_region,
                             .ctx = a->cache};
        int r = ali_list_one(a, &l, err);
        if (r == 0 && a->cache->regions.n == 0)
            r = gp_fail(err, GP_EPROTO, "ecs DescribeRegions: the reply names no region");
        if (r != 0) {
            strv_clear(&a->cache->regions);
            strv_clear(&a->cache->endpoints);
            return r;
        }
    }
    strv_copy(ret, &a->cache->regions);
    return 0;
}

/* --- tags --- */

void ali_tags_decode(const json_t *item, struct tags *ret) {
    GP_AUTO_LABELS struct label_list labels = {0};
    json_t *set = json_at(item, "Tags.Tag"), *one = NULL;
    size_t i = 0;
    json_array_foreach(set, i, one) /* ECS and VPC name the members differently */
        labels_add(&labels, json_str(one, "TagKey", json_str(one, "Key", "")),
                   json_str(one, "TagValue", json_str(one, "Value", "")));
    labels_read(&labels_alibaba, &labels, ret);
}

void ali_tags_add(struct str *query, const struct tags *tags) {
    GP_AUTO_LABELS struct label_list labels = {0};
    labels_write(&labels_alibaba, tags, &labels);
    for (size_t i = 0; i < labels.list.len; i++) {
        ali_paramf(query, labels.list.items[i].key, "Tag.%zu.Key", i + 1);
        ali_paramf(query, labels.list.items[i].value, "Tag.%zu.Value", i + 1);
    }
}

void ali_tag_filter(struct str *query, const char *owner, const char *stack, const char *uid) {
    const struct {
        const char *key, *value;
    } all[] = {{ALI_TAG "owner", owner}, {ALI_TAG "stack", stack}, {ALI_TAG "uid", uid}};
    size_t n = 0;
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++) {
        if (all[i].value == NULL) continue;
        n++;
        ali_paramf(query, all[i].key, "Tag.%zu.Key", n);
        ali_paramf(query, all[i].value, "Tag.%zu.Value", n);
    }
}

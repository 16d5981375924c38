/* SPDX-License-Identifier: Apache-2.0 */
/* One call to S3 or a store that speaks its protocol: address, signature, reply, error. http.c repeats; the bucket's
 * region, new credentials and a corrected clock are tried once here. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/s3/s3_int.h"

#include "base/hash.h"
#include "providers/aws/sigv4.h"
#include "providers/common/cloud_clock.h"

#include <time.h>

#define REPLY_MAX ((size_t)16 << 20)
#define TIMEOUT_MS (10 * 60 * 1000) /* of one attempt: a part over a slow line */
#define QUICK_MS 10000
#define ADVICE_RIGHTS                                                                                               \
    "allow this principal s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:AbortMultipartUpload " \
    "on its objects (docs/jobs.md)"

static const struct cloud_error rows[] = {
    {"AccessDenied", GP_EAUTH, GP_SCOPE_NONE, CLOUD_NO, ADVICE_RIGHTS},
    {"AllAccessDisabled", GP_EAUTH, GP_SCOPE_NONE, CLOUD_NO, ADVICE_RIGHTS},
    {"NoSuchBucket", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, "create the bucket, or correct its name"},
    {"NoSuchKey", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"NoSuchUpload", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"PreconditionFailed", GP_EPROTO, GP_SCOPE_NONE, CLOUD_NO, "the object changed while it was read: try again"},
    {"InvalidRange", GP_EPROTO, GP_SCOPE_NONE, CLOUD_NO, "the object changed while it was read: try again"},
    {"BadDigest", GP_EPROTO, GP_SCOPE_NONE, CLOUD_TROUBLE, "what arrived was damaged on its way: try again"},
    {"XAmzContentSHA256Mismatch", GP_EPROTO, GP_SCOPE_NONE, CLOUD_TROUBLE,
     "what arrived was damaged on its way: try again"},
    {"IncompleteBody", GP_ELOST, GP_SCOPE_NONE, CLOUD_TROUBLE, "try again later"},
    {"RequestTimeout", GP_ELOST, GP_SCOPE_NONE, CLOUD_TROUBLE, "try again later"},
    {"OperationAborted", GP_ELOST, GP_SCOPE_NONE, CLOUD_TROUBLE, "try again later"},
    {"InvalidObjectState", GP_EUSAGE, GP_SCOPE_NONE, CLOUD_NO, "the object is archived: restore it first"},
    {"PermanentRedirect", GP_EUSAGE, GP_SCOPE_NONE, CLOUD_NO, "set AWS_REGION to the bucket's region"},
    {"AuthorizationHeaderMalformed", GP_EUSAGE, GP_SCOPE_NONE, CLOUD_NO, "set AWS_REGION to the bucket's region"},
    {"QuotaExceeded", GP_EQUOTA, GP_SCOPE_NONE, CLOUD_NO, "free some space in the store"},
    {"XMinioStorageFull", GP_EQUOTA, GP_SCOPE_NONE, CLOUD_NO, "free some space in the store"},
};

const struct cloud_error *s3_error_row(const char *code) {
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].code, code) == 0) return &rows[i];
    return aws_error_row(code);
}

void s3_said(int status, const struct xml_node *xml, struct cloud_said *ret) {
    *ret = (struct cloud_said){"", "", ""};
    if (xml != NULL && strcmp(xml->name, "Error") == 0) {
        ret->code = xml_str(xml, "Code", "");
        ret->message = xml_str(xml, "Message", "");
        ret->request_id = xml_str(xml, "RequestId", "");
    } else if (xml == NULL) { /* HEAD has no body */
        if (status == 301 || status == 307) ret->code = "PermanentRedirect";
        if (status == 403) ret->code = "AccessDenied";
        if (status == 404) ret->code = "NoSuchKey";
        if (status == 412) ret->code = "PreconditionFailed";
        if (status == 416) ret->code = "InvalidRange";
    }
}

/* --- address --- */

static void encode_path(struct str *out, const char *path) {
    for (const char *p = path; *p != '\0';) {
        size_t n = strcspn(p, "/");
        GP_AUTO_FREE char *part = xstrndup(p, n);
        http_encode(out, part);
        p += n;
        if (*p == '/') str_addc(out, *p++);
    }
}

int s3_address(const struct s3 *s, const char *key, char **ret_url, char **ret_host, char **ret_path,
               struct gp_error *err) {
    GP_AUTO_FREE char *aws = s->endpoint == NULL ? aws_endpoint(&s->a.cfg, "s3", s->region) : NULL;
    const char *endpoint = s->endpoint != NULL ? s->endpoint : aws;
    const char *host = endpoint != NULL ? strstr(endpoint, "://") : NULL;
    if (host == NULL)
        return gp_fail(err, GP_EUSAGE, "%s: the endpoint '%.100s' is not a URL: correct AWS_ENDPOINT_URL_S3",
                       s->base.text, endpoint != NULL ? endpoint : "");
    host += 3;
    size_t n = strcspn(host, "/");
    bool in_path = s->endpoint != NULL || strchr(s->base.name, '.') != NULL; /* a certificate has one part for '*' */
    GP_AUTO_STR struct str path = {0}, url = {0};
    str_add(&path, host + n);
    if (in_path) str_addf(&path, "/%s", s->base.name);
    str_addf(&path, "/%s", key != NULL ? key : "");
    GP_AUTO_FREE char *name = xstrndup(host, n);
    *ret_host = in_path ? xstrdup(name) : xasprintf("%s.%s", s->base.name, name);
    str_addf(&url, "%.*s%s", (int)(host - endpoint), endpoint, *ret_host);
    encode_path(&url, path.s);
    *ret_url = str_steal(&url);
    *ret_path = str_steal(&path);
    return 0;
}

/* --- one attempt --- */

struct attempt {
    struct s3 *s;
    const struct s3_call *call;
    const char *host, *path;
    char sha256[65]; /* of the body */
    struct xml_node *xml;
    struct cloud_said said;
};

static int on_sign(void *ctx, struct http_fields *add, struct gp_error *err) {
    const struct attempt *t = ctx;
    const struct aws_cred *cred = &t->s->a.cred;
    const struct http_fields *more = t->call->headers;
    char date[32];
    time_t now = (time_t)aws_now_s(&t->s->a);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &tm);
    http_fields_add(add, "Host", t->host);
    for (size_t i = 0; more != NULL && i < more->list.len; i++)
        http_fields_add(add, more->list.items[i].name, more->list.items[i].value);
    if (t->call->body != NULL) http_fields_add(add, "Content-Type", "application/octet-stream");
    if (t->call->range != NULL) http_fields_add(add, "Range", t->call->range);
    if (t->call->etag != NULL) http_fields_add(add, "If-Match", t->call->etag);
    http_fields_add(add, "X-Amz-Content-Sha256", t->sha256);
    http_fields_add(add, "X-Amz-Date", date);
    if (cred->token.len > 0) http_fields_add(add, "X-Amz-Security-Token", secret_reveal(&cred->token));
    struct sigv4_req r = {.method = t->call->method,
                          .path = t->path,
                          .query = t->call->query,
                          .headers = add,
                          .body_sha256 = t->sha256,
                          .region = t->s->region,
                          .service = "s3",
                          .date = date,
                          .raw_path = true};
    GP_AUTO_STR struct str auth = {0};
    int e = sigv4_authorization(&r, cred->id, &cred->key, &auth, err);
    if (e == 0) http_fields_add(add, "Authorization", auth.s);
    return e;
}

/* Only an error, or the end of an upload in parts, which may fail with status 200, is read as XML here. */
static void read_error(struct attempt *t, const struct http_resp *resp) {
    bool may = resp->status / 100 != 2 || strcmp(t->call->method, "POST") == 0;
    xml_free(t->xml);
    t->xml = NULL;
    if (may && resp->body.len > 0) (void)xml_parse(resp->body.s, resp->body.len, "the reply", &t->xml, NULL);
    s3_said(resp->status / 100 != 2 && resp->body.len == 0 ? resp->status : 0, t->xml, &t->said);
}

static enum http_verdict on_judge(void *ctx, const struct http_resp *resp) {
    struct attempt *t = ctx;
    read_error(t, resp);
    return cloud_judge(resp, t->said.code[0] != '\0' ? s3_error_row(t->said.code) : NULL, false);
}

/* The region that a refusal names; NULL: none. It becomes a part of a host name. */
static const char *region_named(const struct attempt *t, const struct http_resp *resp) {
    const char *region = http_fields_get(&resp->headers, "x-amz-bucket-region");
    if (region == NULL) region = xml_str(t->xml, "Region", NULL);
    return region != NULL && aws_region_valid(region) ? region : NULL;
}

struct tried {
    bool region, clock, keys;
};

/* Whether another attempt may succeed where this one was refused. */
static bool mended(struct attempt *t, const struct http_resp *resp, struct tried *tried) {
    struct s3 *s = t->s;
    const char *region = region_named(t, resp);
    int64_t skew = s->a.base.clock_skew_s;
    enum cloud_class class = s3_error_row(t->said.code)->class;
    if (region != NULL && strcmp(region, s->region) != 0 && !tried->region) {
        free(s->region);
        s->region = xstrdup(region);
        s->region_found = tried->region = true;
        return true;
    }
    if (class == CLOUD_CLOCK && !tried->clock) {
        cloud_clock_set(&s->a.base, resp);
        tried->clock = true;
        if (cloud_clock_moved(&s->a.base, skew)) return true;
    }
    if (class == CLOUD_STALE && !tried->keys) {
        tried->keys = true;
        return aws_creds_ensure(&s->a, true, NULL) == 0;
    }
    return false;
}

static int fail(const struct attempt *t, const char *what, const struct http_resp *resp, struct gp_error *err) {
    if (t->said.code[0] != '\0') return cloud_fail(err, what, &t->said, s3_error_row(t->said.code));
    return cloud_fail_status(err, what, resp, "S3's");
}

static int once(struct s3 *s, const struct s3_call *call, struct tried *tried, bool *ret_again, struct http_resp *resp,
                struct gp_error *err) {
    GP_AUTO_FREE char *url = NULL, *host = NULL, *path = NULL;
    int r = s3_address(s, call->key, &url, &host, &path, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *full = xasprintf("%s%s%s", url, call->query != NULL ? "?" : "", call->query ? call->query : "");
    GP_AUTO_FREE char *what = xasprintf("s3 %s of '%s'", call->action, s->base.text);
    struct attempt t = {.s = s, .call = call, .host = host, .path = path, .said = {"", "", ""}};
    sha256_hex(call->body != NULL ? call->body : "", call->body_len, t.sha256);
    struct http_req req = {.what = what,
                           .method = call->method,
                           .url = full,
                           .body = call->body,
                           .body_len = call->body_len,
                           .sign = on_sign,
                           .judge = on_judge,
                           .ctx = &t,
                           .repeatable = true,
                           .tries = call->quick ? 3 : 0,
                           .timeout_ms = call->quick ? QUICK_MS : TIMEOUT_MS,
                           .max_body = call->max_body > 0 ? call->max_body : REPLY_MAX};
    http_resp_clear(resp);
    r = http_call(s->a.http, &req, resp, err);
    if (r == 0 && (resp->status / 100 != 2 || t.said.code[0] != '\0')) {
        *ret_again = mended(&t, resp, tried);
        r = fail(&t, what, resp, err);
    }
    xml_free(t.xml);
    return r;
}

int s3_call(struct s3 *s, const struct s3_call *call, struct http_resp *resp, struct gp_error *err) {
    struct tried tried = {0};
    for (;;) {
        struct gp_error why = {0};
        bool again = false;
        int r = aws_creds_ensure(&s->a, false, err);
        if (r != 0) return r;
        r = once(s, call, &tried, &again, resp, &why);
        if (again) continue;
        if (r != 0 && err != NULL) *err = why;
        return r;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* S3 as a store for the files of jobs: opens a bucket, checks the rights, lists and reads. s3_put.c writes. Stores that
 * speak its protocol work too, by AWS_ENDPOINT_URL_S3. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/s3/s3_int.h"

#include "providers/aws/aws.h"

#include <inttypes.h>

#define META "x-amz-meta-" BUCKET_META_SHA256

static void s3_close(struct bucket *b) {
    struct s3 *s = s3_of(b);
    http_close(s->a.http);
    aws_cred_clear(&s->a.cred);
    aws_config_clear(&s->a.cfg);
    bucket_clear(b);
    free(s->region);
    free(s->endpoint);
    free(s);
}

/* The endpoint that the user names: not that of AWS. */
static char *own_endpoint(const struct aws_config *cfg) {
    GP_AUTO_FREE char *any = aws_endpoint(cfg, "s3", "us-east-1");
    bool is_aws = str_eq(any, "https://s3.us-east-1.amazonaws.com");
    return is_aws ? NULL : GP_STEAL(any);
}

static int s3_open(const struct bucket_url *where, const struct gp_cancel *cancel, const struct http_watch *watch,
                   struct bucket **ret, struct gp_error *err) {
    struct s3 *s = xcalloc(1, sizeof *s);
    bucket_init(&s->base, &bucket_s3, where);
    s->a.base.ops = &provider_aws;
    s->a.cancel = cancel;
    s->a.watch = watch;
    int r = aws_config_load(&s->a.cfg, err);
    if (r == 0) r = aws_http_open(&s->a, &s->a.http, err);
    if (r == 0) r = aws_creds_ensure(&s->a, false, err); /* on EC2 it also reads the region */
    if (r != 0) {
        s3_close(&s->base);
        return r;
    }
    s->region = xstrdup(aws_home(&s->a));
    s->endpoint = own_endpoint(&s->a.cfg);
    *ret = &s->base;
    return 0;
}

/* --- lists --- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* A key in a list of encoding-type=url. False: it is not encoded so. */
static bool decode_key(const char *s, struct str *ret) {
    str_add(ret, "");
    for (; *s != '\0'; s++) {
        if (*s != '%') {
            str_addc(ret, *s == '+' ? ' ' : *s);
            continue;
        }
        int high = hex_value(s[1]), low = high >= 0 ? hex_value(s[2]) : -1;
        if (low < 0) return false;
        char c = (char)(high * 16 + low);
        str_add_mem(ret, &c, 1);
        s += 2;
    }
    return !ret->truncated;
}

static int add_page(const struct s3 *s, const struct xml_node *page, struct bucket_objects *ret, struct gp_error *err) {
    bool encoded = strcmp(xml_str(page, "EncodingType", ""), "url") == 0;
    for (size_t i = 0; i < page->children.len; i++) {
        const struct xml_node *item = page->children.items[i];
        GP_AUTO_STR struct str key = {0};
        int64_t size = 0;
        if (strcmp(item->name, "Contents") != 0) continue;
        const char *text = xml_str(item, "Key", "");
        bool ok = str_to_i64(xml_str(item, "Size", ""), 0, INT64_MAX, &size);
        if (encoded) ok = ok && decode_key(text, &key);
        else str_add(&key, text);
        if (!ok) return gp_fail(err, GP_EPROTO, "s3 ListObjectsV2 of '%s': an entry is malformed", s->base.text);
        int r = bucket_objects_add(&s->base, ret, key.s, key.len, (uint64_t)size, NULL, err);
        if (r != 0) return r;
    }
    return 0;
}

/* One page. */
static int list_page(struct s3 *s, int most, struct bucket_pages *pages, struct bucket_objects *ret,
                     struct gp_error *err) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_XML struct xml_node *page = NULL;
    str_addf(&query, "list-type=2&encoding-type=url&max-keys=%d", most);
    if (pages->token != NULL) {
        str_add(&query, "&continuation-token=");
        http_encode(&query, pages->token);
    }
    if (s->base.prefix[0] != '\0') {
        GP_AUTO_FREE char *prefix = xasprintf("%s/", s->base.prefix);
        str_add(&query, "&prefix=");
        http_encode(&query, prefix);
    }
    struct s3_call call = {.action = "ListObjectsV2", .method = "GET", .query = query.s};
    int r = s3_call(s, &call, &resp, err);
    if (r != 0) return r;
    r = xml_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "the reply", &page, NULL);
    if (r != 0 || strcmp(page->name, "ListBucketResult") != 0)
        return gp_fail(err, GP_EPROTO, "s3 ListObjectsV2 of '%s': the reply is not a list: check AWS_ENDPOINT_URL_S3",
                       s->base.text);
    r = add_page(s, page, ret, err);
    bool more = strcmp(xml_str(page, "IsTruncated", "false"), "true") == 0;
    const char *next = xml_str(page, "NextContinuationToken", "");
    if (r == 0 && more && next[0] == '\0')
        r = gp_fail(err, GP_EPROTO, "s3 ListObjectsV2 of '%s': the reply names no next page", s->base.text);
    return r == 0 ? bucket_pages_next(&s->base, pages, ret, more ? next : NULL, err) : r;
}

static int s3_list(struct bucket *b, struct bucket_objects *ret, struct gp_error *err) {
    GP_AUTO_BUCKET_PAGES struct bucket_pages pages = {0};
    int r = 0;
    do r = list_page(s3_of(b), 1000, &pages, ret, err);
    while (r == 0 && pages.token != NULL);
    return r;
}

/* --- objects --- */

int s3_stat(struct bucket *b, struct bucket_object *o, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FREE char *key = bucket_key(b, o->path);
    struct s3_call call = {.action = "HeadObject", .method = "HEAD", .key = key};
    int r = s3_call(s3_of(b), &call, &resp, err);
    if (r != 0) return r;
    const char *sha256 = http_fields_get(&resp.headers, META);
    o->sha256[0] = '\0';
    if (sha256 != NULL && bucket_sha256_valid(sha256)) str_put(o->sha256, sizeof o->sha256, sha256);
    return 0;
}

/* The bytes of one object from `at` on; *etag: the version, read from the first reply. */
static int get_piece(struct s3 *s, const struct bucket_get *req, const char *key, uint64_t at, size_t n, char **etag,
                     struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    char range[64];
    snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, at, at + n - 1);
    struct s3_call call = {
        .action = "GetObject", .method = "GET", .key = key, .range = range, .etag = *etag, .max_body = n + 1};
    bucket_moves(&s->base, at, n);
    int r = s3_call(s, &call, &resp, err);
    if (r != 0) return gp_wrap(err, "'%s'", req->path);
    char want[100];
    snprintf(want, sizeof want, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, at, at + n - 1, req->size);
    const char *got = http_fields_get(&resp.headers, "content-range");
    bool whole = resp.status == 200 && at == 0 && n == req->size; /* stores may leave the range out then */
    if (resp.body.len != n || (!whole && (resp.status != 206 || !str_eq(got, want))))
        return gp_fail(err, GP_EPROTO,
                       "s3 GetObject of '%s': '%s' has another size than in the list, or not all of it came",
                       s->base.text, req->path);
    const char *version = http_fields_get(&resp.headers, "etag");
    if (*etag == NULL && version != NULL) *etag = xstrdup(version);
    bucket_moved(&s->base, at + n);
    r = bucket_write(req->fd, at, resp.body.s, n, err);
    return r != 0 ? gp_wrap(err, "'%s'", req->path) : 0;
}

static int s3_get(struct bucket *b, const struct bucket_get *req, struct gp_error *err) {
    GP_AUTO_FREE char *key = bucket_key(b, req->path), *etag = NULL;
    for (uint64_t at = 0; at < req->size; at += BUCKET_PART) {
        size_t n = (size_t)GP_MIN(BUCKET_PART, req->size - at);
        int r = get_piece(s3_of(b), req, key, at, n, &etag, err);
        if (r != 0) return r;
    }
    return 0;
}

static int s3_check(struct bucket *b, struct gp_error *err) {
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects few = {0};
    GP_AUTO_BUCKET_PAGES struct bucket_pages pages = {0};
    GP_AUTO_FREE char *id = NULL;
    GP_AUTO_FREE char *key = bucket_key(b, BUCKET_PROBE);
    char name[] = BUCKET_PROBE;
    struct bucket_object probe = {.path = name};
    struct gp_error why = {0};
    int r = list_page(s3_of(b), 1, &pages, &few, err);
    if (r != 0) return r;
    r = s3_stat(b, &probe, &why); /* 403 without the right to read objects, else 404 */
    if (r != 0 && r != -GP_ENOTFOUND) {
        if (err != NULL) *err = why;
        return r;
    }
    r = s3_upload_begin(s3_of(b), key, NULL, &id, err);
    return r == 0 ? s3_upload_abort(s3_of(b), key, id, err) : r;
}

const struct bucket_ops bucket_s3 = {
    .scheme = "s3",
    .open = s3_open,
    .close = s3_close,
    .check = s3_check,
    .list = s3_list,
    .stat = s3_stat,
    .put = s3_put,
    .get = s3_get,
    .abandon = s3_abandon,
};

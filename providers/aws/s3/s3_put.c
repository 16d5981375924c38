/* SPDX-License-Identifier: Apache-2.0 */
/* Writes objects to S3: whole, or in parts. S3 verifies the SHA-256 of each request, and keeps that of the file as
 * metadata. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/s3/s3_int.h"

#include "base/fs.h"
#include "base/hash.h"

#include <unistd.h>

#define META "x-amz-meta-" BUCKET_META_SHA256
#define CHECKSUM "x-amz-checksum-sha256"

struct part {
    char *etag, *checksum;
};
struct upload {
    struct s3 *s;
    const struct bucket_put *req;
    const char *key;
    char *id;
    VEC_OF(struct part) parts;
};

static void upload_clear(struct upload *u) {
    for (size_t i = 0; i < u->parts.len; i++) {
        free(u->parts.items[i].etag);
        free(u->parts.items[i].checksum);
    }
    vec_free(&u->parts);
    free(u->id);
}

static int changed(const struct bucket_put *req, struct gp_error *err) {
    return gp_fail(err, GP_EBUSY, "'%s' changed while it was sent", req->path);
}

static char *checksum_of(const void *p, size_t n, char hex[65]) {
    unsigned char bytes[SHA256_BYTES];
    sha256_bytes(p, n, bytes);
    if (hex != NULL) str_hex(hex, bytes, sizeof bytes);
    return base64_text(bytes, sizeof bytes);
}

static int put_whole(struct s3 *s, const struct bucket_put *req, const char *key, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    size_t n = (size_t)req->size;
    GP_AUTO_FREE char *body = xmalloc(n + 1);
    char hex[65];
    int r = bucket_read(req->fd, 0, body, n, err);
    if (r != 0) return gp_wrap(err, "'%s'", req->path);
    GP_AUTO_FREE char *checksum = checksum_of(body, n, hex);
    if (strcmp(hex, req->sha256) != 0) return changed(req, err);
    http_fields_add(&headers, CHECKSUM, checksum);
    http_fields_add(&headers, META, req->sha256);
    struct s3_call call = {
        .action = "PutObject", .method = "PUT", .key = key, .headers = &headers, .body = body, .body_len = n};
    bucket_moves(&s->base, 0, n);
    r = s3_call(s, &call, &resp, err);
    bucket_moved(&s->base, r == 0 ? n : 0);
    return r;
}

/* --- in parts --- */

int s3_upload_begin(struct s3 *s, const char *key, const char *sha256, char **ret_id, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    GP_AUTO_XML struct xml_node *xml = NULL;
    http_fields_add(&headers, "x-amz-checksum-algorithm", "SHA256");
    if (sha256 != NULL) http_fields_add(&headers, META, sha256);
    struct s3_call call = {.action = "CreateMultipartUpload",
                           .method = "POST",
                           .key = key,
                           .query = "uploads=",
                           .headers = &headers,
                           .body = ""};
    int r = s3_call(s, &call, &resp, err);
    if (r != 0) return r;
    r = xml_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "the reply", &xml, NULL);
    const char *id = r == 0 ? xml_str(xml, "UploadId", "") : "";
    if (id[0] == '\0' || strlen(id) > 1000)
        return gp_fail(err, GP_EPROTO,
                       "s3 CreateMultipartUpload of '%s': the reply has no UploadId: check "
                       "AWS_ENDPOINT_URL_S3",
                       s->base.text);
    *ret_id = xstrdup(id);
    return 0;
}

static int send_abort(struct s3 *s, const char *key, const char *id, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_STR struct str query = {0};
    struct gp_error why = {0};
    str_add(&query, "uploadId=");
    http_encode(&query, id);
    struct s3_call call = {
        .action = "AbortMultipartUpload", .method = "DELETE", .key = key, .query = query.s, .quick = true};
    int r = s3_call(s, &call, &resp, &why);
    if (r == -GP_ENOTFOUND && strcmp(why.detail, "NoSuchUpload") == 0) return 0;
    if (r != 0 && err != NULL) *err = why;
    return r;
}

int s3_upload_abort(struct s3 *s, const char *key, const char *id, struct gp_error *err) {
    struct http *usual = s->a.http;
    const struct gp_cancel *cancel = s->a.cancel;
    const struct http_watch *watch = s->a.watch;
    if (!gp_cancelled(cancel) && !http_over(usual)) return send_abort(s, key, id, err);
    s->a.cancel = NULL; /* the parts are billed until it is done */
    s->a.watch = NULL;
    int r = aws_http_open(&s->a, &s->a.http, err);
    if (r == 0) r = send_abort(s, key, id, err);
    if (s->a.http != usual) http_close(s->a.http);
    s->a.http = usual;
    s->a.cancel = cancel;
    s->a.watch = watch;
    return r;
}

/* {"key": KEY, "id": ID} */
static int write_note(const struct upload *u, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = json_pack("{s:s, s:s}", "key", u->key, "id", u->id);
    GP_AUTO_FREE char *text = j != NULL ? json_text_exact(j, 0) : NULL;
    if (text == NULL) return gp_fail(err, GP_EINTERNAL, "'%s' has no form in JSON", u->key);
    return fs_write_atomic(u->req->note, text, strlen(text), 0600, err);
}

int s3_abandon(struct bucket *b, const char *note, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    int r = json_parse(note, strlen(note), "the note of an upload", &j, err);
    const char *key = json_str(j, "key", ""), *id = json_str(j, "id", "");
    if (r == 0 && (key[0] == '\0' || id[0] == '\0')) r = gp_fail(err, GP_EPROTO, "the note of an upload has no id");
    return r == 0 ? s3_upload_abort(s3_of(b), key, id, err) : r;
}

static int put_part(struct upload *u, uint64_t at, const void *body, size_t n, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    GP_AUTO_STR struct str query = {0};
    struct part part = {.checksum = checksum_of(body, n, NULL)};
    str_addf(&query, "partNumber=%zu&uploadId=", u->parts.len + 1);
    http_encode(&query, u->id);
    http_fields_add(&headers, CHECKSUM, part.checksum);
    struct s3_call call = {.action = "UploadPart",
                           .method = "PUT",
                           .key = u->key,
                           .query = query.s,
                           .headers = &headers,
                           .body = body,
                           .body_len = n};
    bucket_moves(&u->s->base, at, n);
    int r = s3_call(u->s, &call, &resp, err);
    bucket_moved(&u->s->base, r == 0 ? at + n : at);
    const char *etag = http_fields_get(&resp.headers, "etag");
    if (r == 0 && (etag == NULL || strpbrk(etag, "<>&") != NULL))
        r = gp_fail(err, GP_EPROTO, "s3 UploadPart of '%s': the reply has no ETag", u->s->base.text);
    if (r != 0) {
        free(part.checksum);
        return r;
    }
    part.etag = xstrdup(etag);
    vec_push(&u->parts, part);
    return 0;
}

static int put_parts(struct upload *u, struct gp_error *err) {
    GP_AUTO_SHA256_SUM struct sha256_sum sum = {0};
    uint64_t size = u->req->size, step = bucket_part_size(size);
    GP_AUTO_FREE char *body = xmalloc((size_t)step);
    unsigned char bytes[SHA256_BYTES];
    char hex[65];
    sha256_sum_begin(&sum);
    for (uint64_t at = 0; at < size; at += step) {
        size_t n = (size_t)GP_MIN(step, size - at);
        int r = bucket_read(u->req->fd, at, body, n, err);
        if (r != 0) return gp_wrap(err, "'%s'", u->req->path);
        sha256_sum_add(&sum, body, n);
        r = put_part(u, at, body, n, err);
        if (r != 0) return r;
    }
    sha256_sum_end(&sum, bytes);
    str_hex(hex, bytes, sizeof bytes);
    return strcmp(hex, u->req->sha256) == 0 ? 0 : changed(u->req, err);
}

static int complete(struct upload *u, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_STR struct str body = {0}, query = {0};
    str_add(&body, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (size_t i = 0; i < u->parts.len; i++)
        str_addf(&body, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag><ChecksumSHA256>%s</ChecksumSHA256></Part>",
                 i + 1, u->parts.items[i].etag, u->parts.items[i].checksum);
    str_add(&body, "</CompleteMultipartUpload>");
    str_add(&query, "uploadId=");
    http_encode(&query, u->id);
    struct s3_call call = {.action = "CompleteMultipartUpload",
                           .method = "POST",
                           .key = u->key,
                           .query = query.s,
                           .body = body.s,
                           .body_len = body.len};
    return s3_call(u->s, &call, &resp, err);
}

/* The reply to a completion may be lost; then its repetition finds no upload, and the object is there. */
static bool is_there(struct upload *u) {
    struct bucket_object o = {.path = xstrdup(u->req->path)};
    bool there = s3_stat(&u->s->base, &o, NULL) == 0 && strcmp(o.sha256, u->req->sha256) == 0;
    free(o.path);
    return there;
}

static int put_large(struct s3 *s, const struct bucket_put *req, const char *key, struct gp_error *err) {
    GP_CLEANUP(upload_clear) struct upload u = {.s = s, .req = req, .key = key};
    struct gp_error why = {0}, ignored = {0};
    int r = s3_upload_begin(s, key, req->sha256, &u.id, err);
    if (r != 0) return r;
    r = write_note(&u, &why);
    if (r == 0) r = put_parts(&u, &why);
    if (r == 0) r = complete(&u, &why);
    if (r == -GP_ENOTFOUND && strcmp(why.detail, "NoSuchUpload") == 0 && is_there(&u)) r = 0;
    if (r == 0 || s3_upload_abort(s, key, u.id, &ignored) == 0) unlink(req->note);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

int s3_put(struct bucket *b, const struct bucket_put *req, struct gp_error *err) {
    struct s3 *s = s3_of(b);
    GP_AUTO_FREE char *key = bucket_key(b, req->path);
    return req->size > BUCKET_WHOLE_MAX ? put_large(s, req, key, err) : put_whole(s, req, key, err);
}

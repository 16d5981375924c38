/* SPDX-License-Identifier: Apache-2.0 */
/* Writes objects to Cloud Storage by resumable uploads, part by part. The store verifies the CRC-32C of the whole
 * before it makes the object. Sessions that are not completed cost nothing and expire after a week. One thread. */
#include "base/gp_base.h"

#include "providers/google/gcs_int.h"

#include "base/clock.h"
#include "base/hash.h"

#include <inttypes.h>

#define STALLS_MAX 5               /* times that one part is sent again */
#define STEP ((uint64_t)256 << 10) /* the store keeps multiples of it: less of a part is no progress */

/* Begins a session. *ret_url: where its parts go; caller frees. */
static int begin(struct gcs *s, const struct bucket_put *req, char **ret_url, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FREE char *key = bucket_key(&s->base, req->path);
    const unsigned char crc[] = {(unsigned char)(req->crc32c >> 24), (unsigned char)(req->crc32c >> 16),
                                 (unsigned char)(req->crc32c >> 8), (unsigned char)req->crc32c};
    GP_AUTO_FREE char *crc_text = base64_text(crc, sizeof crc);
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s, s:s, s:{s:s}}", "name", key, "crc32c", crc_text, "metadata", BUCKET_META_SHA256, req->sha256);
    GP_AUTO_FREE char *text = j != NULL ? json_text_exact(j, 0) : NULL;
    if (text == NULL) return gp_fail(err, GP_EINTERNAL, "'%s' has no form in JSON", req->path);
    GP_AUTO_FREE char *url = xasprintf("%s/upload/storage/v1/b/%s/o?uploadType=resumable", s->root, s->base.name);
    struct gcs_call call = {.action = "objects.insert",
                            .method = "POST",
                            .url = url,
                            .type = "application/json; charset=UTF-8",
                            .body = text,
                            .body_len = strlen(text)};
    int r = gcs_call(s, &call, &resp, err);
    if (r != 0) return r;
    const char *place = http_fields_get(&resp.headers, "location");
    size_t n = strlen(s->root);
    bool ours = place != NULL && strncmp(place, s->root, n) == 0 && place[n] == '/' && google_url_trusted(place);
    if (!ours) /* it gets the token */
        return gp_fail(err, GP_EPROTO, "gcs objects.insert of '%s': the reply names no session of this endpoint",
                       s->base.text);
    *ret_url = xstrdup(place);
    return 0;
}

/* How much has arrived, by the Range of a 308. False: it is malformed. */
static bool arrived(const struct http_resp *resp, uint64_t size, uint64_t *ret) {
    const char *range = http_fields_get(&resp->headers, "range");
    int64_t last = 0;
    *ret = 0;
    if (range == NULL) return true;
    if (!str_starts(range, "bytes=0-") || !str_to_i64(range + 8, 0, INT64_MAX - 1, &last)) return false;
    *ret = (uint64_t)last + 1;
    return *ret <= size;
}

struct session {
    struct gcs *s;
    const struct bucket_put *req;
    const char *url;
    uint64_t at; /* bytes that have arrived */
    bool done;   /* the object is there */
};

/* Sends n bytes from `at` on; n 0: asks how much has arrived. */
static int send_part(struct session *u, const char *body, size_t n, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    uint64_t size = u->req->size;
    char range[100];
    if (n > 0) snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, u->at, u->at + n - 1, size);
    else snprintf(range, sizeof range, "bytes */%" PRIu64, size);
    http_fields_add(&headers, "Content-Range", range);
    struct gcs_call call = {.action = "upload",
                            .method = "PUT",
                            .url = u->url,
                            .headers = &headers,
                            .body = body,
                            .body_len = n,
                            .once = n > 0};
    bucket_moves(&u->s->base, u->at, n);
    int r = gcs_call(u->s, &call, &resp, err);
    bucket_moved(&u->s->base, u->at);
    if (r != 0) return r;
    u->done = resp.status != 308;
    if (!u->done && !arrived(&resp, size, &u->at))
        return gp_fail(err, GP_EPROTO, "gcs upload of '%s': the reply has a malformed Range", u->s->base.text);
    return 0;
}

static bool may_pass(int r, const struct gp_error *why) {
    return r == -GP_ELOST || r == -GP_EENDPOINT || (r != 0 && why->retryable);
}

/* The store refuses the whole because of its checksum. The bucket and the prefix stand before the store's own words,
 * and may be named "hash" too. */
static bool is_checksum(const struct gcs *s, const struct gp_error *why) {
    const char *place = strstr(why->msg, s->base.text);
    const char *said = place != NULL ? place + strlen(s->base.text) : why->msg;
    return why->code == GP_EPROTO && (strcasestr(said, "crc32c") != NULL || strcasestr(said, "hash") != NULL);
}

/* The next part. A reply that is lost leaves open what has arrived: the store is asked. */
static int next_part(struct session *u, char *buf, struct gp_error *err) {
    size_t n = (size_t)GP_MIN(BUCKET_PART, u->req->size - u->at);
    struct gp_error why = {0};
    uint64_t before = u->at;
    int r = bucket_read(u->req->fd, u->at, buf, n, err);
    if (r != 0) return gp_wrap(err, "'%s'", u->req->path);
    r = send_part(u, buf, n, &why);
    for (int i = 0; i < STALLS_MAX && may_pass(r, &why); i++) {
        r = gp_sleep((int64_t)500 << i, u->s->g.cancel, err);
        if (r != 0) return r;
        gp_error_clear(&why);
        r = send_part(u, "", 0, &why);
        if (r != 0 || u->done || u->at != before) break; /* buf is of another place then */
        r = send_part(u, buf, n, &why);
    }
    if (r == 0 && !u->done && u->at < before + GP_MIN(STEP, (uint64_t)n))
        r = gp_fail(&why, GP_EPROTO, "gcs upload of '%s': the store does not take '%s'", u->s->base.text, u->req->path);
    if (r == 0) return 0;
    if (is_checksum(u->s, &why))
        return gp_fail(err, GP_EBUSY, "'%s' changed while it was sent: %.200s", u->req->path, why.msg);
    if (err != NULL) *err = why;
    return r;
}

int gcs_put(struct bucket *b, const struct bucket_put *req, struct gp_error *err) {
    GP_AUTO_FREE char *url = NULL;
    GP_AUTO_FREE char *buf = xmalloc((size_t)GP_MIN(BUCKET_PART, req->size) + 1);
    struct session u = {.s = gcs_of(b), .req = req};
    int r = begin(u.s, req, &url, err);
    u.url = url;
    if (r == 0 && req->size == 0) r = send_part(&u, "", 0, err);
    while (r == 0 && !u.done && u.at < req->size) r = next_part(&u, buf, err);
    if (r == 0 && !u.done)
        r = gp_fail(err, GP_EPROTO, "gcs upload of '%s': the store does not complete '%s'", b->text, req->path);
    return r;
}

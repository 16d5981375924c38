/* SPDX-License-Identifier: Apache-2.0 */
/* Cloud Storage as a store for the files of jobs: opens a bucket, checks the rights, lists and reads. gcs_put.c writes.
 * One thread at a time. */
#include "base/gp_base.h"

#include "providers/google/gcs_int.h"

#include <inttypes.h>

#define ROOT "https://storage.googleapis.com"
#define ROOT_ENV "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE" /* of gcloud */

static void gcs_close(struct bucket *b) {
    struct gcs *s = gcs_of(b);
    http_close(s->g.http);
    google_cred_clear(&s->g.cred);
    bucket_clear(b);
    free(s->root);
    free(s);
}

static int set_root(struct gcs *s, struct gp_error *err) {
    const char *set = getenv(ROOT_ENV);
    if (set == NULL || set[0] == '\0') set = ROOT;
    int r = http_url_check("google: " ROOT_ENV, set, err);
    if (r != 0) return r;
    if (strpbrk(set, "?#") != NULL) return gp_fail(err, GP_EUSAGE, "google: " ROOT_ENV " has a query: correct it");
    s->root = xstrdup(set);
    size_t n = strlen(s->root);
    while (n > 0 && s->root[n - 1] == '/') s->root[--n] = '\0';
    if (str_ends(s->root, "/storage/v1")) s->root[n - strlen("/storage/v1")] = '\0';
    return 0;
}

static int gcs_open(const struct bucket_url *where, const struct gp_cancel *cancel, const struct http_watch *watch,
                    struct bucket **ret, struct gp_error *err) {
    struct gcs *s = xcalloc(1, sizeof *s);
    bucket_init(&s->base, &bucket_gs, where);
    s->g.cancel = cancel;
    s->g.watch = watch;
    s->g.principal_owner = s->base.name; /* known: no service is asked for the principal's address */
    int r = set_root(s, err);
    if (r == 0) r = google_http_open(&s->g, err);
    if (r == 0) r = google_creds_ensure(&s->g, false, err);
    if (r != 0) {
        gcs_close(&s->base);
        return r;
    }
    *ret = &s->base;
    return 0;
}

static int gcs_check(struct bucket *b, struct gp_error *err) {
    static const char *const needed[] = {"storage.objects.list", "storage.objects.get", "storage.objects.create",
                                         "storage.objects.delete", NULL}; /* delete: to replace an object */
    GP_AUTO_STR struct str query = {0}, missing = {0};
    GP_AUTO_JSON json_t *j = NULL;
    str_add(&query, "/iam/testPermissions");
    for (size_t i = 0; needed[i] != NULL; i++) str_addf(&query, "%cpermissions=%s", i == 0 ? '?' : '&', needed[i]);
    GP_AUTO_FREE char *url = gcs_url(gcs_of(b), NULL, query.s);
    struct gcs_call call = {.action = "buckets.testIamPermissions", .method = "GET", .url = url};
    int r = gcs_json(gcs_of(b), &call, &j, err);
    const json_t *has = json_at(j, "permissions");
    for (size_t i = 0; r == 0 && needed[i] != NULL; i++) {
        bool found = false;
        for (size_t k = 0; k < json_array_size(has); k++)
            found = found || str_eq(json_string_value(json_array_get(has, k)), needed[i]);
        if (!found) str_addf(&missing, "%s%s", missing.len > 0 ? ", " : "", needed[i]);
    }
    if (r != 0 || missing.len == 0) return r;
    return gp_fail(err, GP_EAUTH, "'%s': this principal lacks %s: give it the role Storage Object User on the bucket",
                   b->text, missing.s);
}

/* --- lists --- */

static int add_page(const struct gcs *s, const json_t *page, struct bucket_objects *ret, struct gp_error *err) {
    const json_t *items = json_at(page, "items");
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i), *name = json_object_get(item, "name");
        const json_t *metadata = json_object_get(item, "metadata");
        int64_t size = 0;
        if (!json_is_string(name) || !str_to_i64(json_str(item, "size", ""), 0, INT64_MAX, &size))
            return gp_fail(err, GP_EPROTO, "gcs objects.list of '%s': an entry is malformed", s->base.text);
        int r = bucket_objects_add(&s->base, ret, json_string_value(name), json_string_length(name), (uint64_t)size,
                                   json_string_value(json_object_get(metadata, BUCKET_META_SHA256)), err);
        if (r != 0) return r;
    }
    return 0;
}

static int gcs_list(struct bucket *b, struct bucket_objects *ret, struct gp_error *err) {
    GP_AUTO_BUCKET_PAGES struct bucket_pages pages = {0};
    do {
        GP_AUTO_STR struct str query = {0};
        GP_AUTO_JSON json_t *page = NULL;
        str_add(&query, "/o");
        rest_query(&query, "fields", "nextPageToken,items(name,size,metadata)");
        rest_query(&query, "maxResults", "1000");
        if (b->prefix[0] != '\0') {
            GP_AUTO_FREE char *prefix = xasprintf("%s/", b->prefix);
            rest_query(&query, "prefix", prefix);
        }
        if (pages.token != NULL) rest_query(&query, "pageToken", pages.token);
        GP_AUTO_FREE char *url = gcs_url(gcs_of(b), NULL, query.s);
        struct gcs_call call = {.action = "objects.list", .method = "GET", .url = url};
        int r = gcs_json(gcs_of(b), &call, &page, err);
        if (r == 0) r = add_page(gcs_of(b), page, ret, err);
        const char *next = json_str(page, "nextPageToken", "");
        if (r == 0) r = bucket_pages_next(b, &pages, ret, next[0] != '\0' ? next : NULL, err);
        if (r != 0) return r;
    } while (pages.token != NULL);
    return 0;
}

/* --- objects --- */

static int gcs_stat(struct bucket *b, struct bucket_object *o, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    GP_AUTO_FREE char *key = bucket_key(b, o->path);
    GP_AUTO_FREE char *url = gcs_url(gcs_of(b), key, "?fields=metadata");
    struct gcs_call call = {.action = "objects.get", .method = "GET", .url = url};
    int r = gcs_json(gcs_of(b), &call, &j, err);
    if (r != 0) return r;
    const char *sha256 = json_string_value(json_object_get(json_object_get(j, "metadata"), BUCKET_META_SHA256));
    o->sha256[0] = '\0';
    if (sha256 != NULL && bucket_sha256_valid(sha256)) str_put(o->sha256, sizeof o->sha256, sha256);
    return 0;
}

/* *generation: the version, read from the first reply. */
static int get_piece(struct gcs *s, const struct bucket_get *req, const char *key, uint64_t at, size_t n,
                     char **generation, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    GP_AUTO_STR struct str query = {0};
    char range[64], want[100];
    snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, at, at + n - 1);
    snprintf(want, sizeof want, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, at, at + n - 1, req->size);
    rest_query(&query, "alt", "media");
    if (*generation != NULL) rest_query(&query, "generation", *generation);
    http_fields_add(&headers, "Range", range);
    GP_AUTO_FREE char *url = gcs_url(s, key, query.s);
    struct gcs_call call = {
        .action = "objects.get", .method = "GET", .url = url, .headers = &headers, .max_body = n + 1};
    bucket_moves(&s->base, at, n);
    int r = gcs_call(s, &call, &resp, err);
    if (r != 0) return gp_wrap(err, "'%s'", req->path);
    bool whole = resp.status == 200 && at == 0 && n == req->size;
    bool part = resp.status == 206 && str_eq(http_fields_get(&resp.headers, "content-range"), want);
    if (resp.body.len != n || (!whole && !part))
        return gp_fail(err, GP_EPROTO,
                       "gcs objects.get of '%s': '%s' has another size than in the list, or not all of it came",
                       s->base.text, req->path);
    const char *version = http_fields_get(&resp.headers, "x-goog-generation");
    if (*generation == NULL && version != NULL) *generation = xstrdup(version);
    bucket_moved(&s->base, at + n);
    r = bucket_write(req->fd, at, resp.body.s, n, err);
    return r != 0 ? gp_wrap(err, "'%s'", req->path) : 0;
}

static int gcs_get(struct bucket *b, const struct bucket_get *req, struct gp_error *err) {
    GP_AUTO_FREE char *key = bucket_key(b, req->path), *generation = NULL;
    for (uint64_t at = 0; at < req->size; at += BUCKET_PART) {
        size_t n = (size_t)GP_MIN(BUCKET_PART, req->size - at);
        int r = get_piece(gcs_of(b), req, key, at, n, &generation, err);
        if (r != 0) return r;
    }
    return 0;
}

const struct bucket_ops bucket_gs = {
    .scheme = "gs",
    .open = gcs_open,
    .close = gcs_close,
    .check = gcs_check,
    .list = gcs_list,
    .stat = gcs_stat,
    .put = gcs_put,
    .get = gcs_get,
};

// SPDX-License-Identifier: Apache-2.0
/* One call to Compute Engine, its operations, the pages of a list, and the forms of its names. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/fs.h"
#include "base/hash.h"
#include "providers/common/cloud_clock.h"

#define POLL_FIRST_MS 100
#define POLL_MAX_MS 5000

int64_t google_now_s(const struct google *g) { return cloud_now_s(&g->base); }

/* --- forms --- */

bool google_name_valid(const char *s) {
    size_t n = s != NULL ? strlen(s) : 0;
    return n > 0 && n <= GOOGLE_NAME_MAX && s[0] >= 'a' && s[0] <= 'z' && s[n - 1] != '-' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static bool number_valid(const char *s) {
    size_t n = strlen(s);
    return n > 0 && n <= 20 && s[0] != '0' && strspn(s, "0123456789") == n; /* uint64 */
}

char *google_id_name(const char *id) {
    const char *slash = strchr(id, '/');
    GP_AUTO_FREE char *name = slash != NULL ? xstrndup(id, (size_t)(slash - id)) : xstrdup(id);
    if (!google_name_valid(name) || (slash != NULL && !number_valid(slash + 1))) return NULL;
    return GP_STEAL(name);
}

/* Old projects belong to a domain: "example.com:name". */
bool google_project_valid(const char *s) {
    size_t n = s != NULL ? strlen(s) : 0;
    return n > 0 && n <= 96 && s[0] >= 'a' && s[0] <= 'z' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-.:") == n && strstr(s, "..") == NULL;
}

const char *google_last(const char *url) {
    const char *slash = strrchr(url, '/');
    return slash != NULL ? slash + 1 : url;
}

char *google_region_of(const char *zone) {
    const char *dash = strrchr(zone, '-');
    if (!google_name_valid(zone) || dash == NULL || dash == zone || strchr(zone, '-') == dash) return NULL;
    return xstrndup(zone, (size_t)(dash - zone));
}

void google_uuid(const char *text, char ret[37]) {
    char hex[65];
    sha256_hex(text, strlen(text), hex);
    snprintf(ret, 37, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hex, hex + 8, hex + 12, hex + 15, hex + 18);
}

/* --- URLs and calls --- */

char *google_url(const struct google *g, const char *fmt, ...) {
    struct str url = {0};
    va_list ap;
    str_addf(&url, "%sprojects/%s/", g->endpoint, g->project);
    va_start(ap, fmt);
    str_vaddf(&url, fmt, ap);
    va_end(ap);
    return str_steal(&url);
}

char *google_zonal_url(const struct google *g, const struct resource *r, const char *kind, const char *more) {
    GP_AUTO_FREE char *region = google_region_of(r->zone);
    GP_AUTO_FREE char *name = google_id_name(r->id);
    if (region == NULL || name == NULL) return NULL;
    return google_url(g, "zones/%s/%s/%s%s", r->zone, kind, name, more);
}

int google_url_once(const struct google *g, char **url, struct gp_error *err) {
    char hex[33], uuid[37];
    (void)g;
    int r = fs_random_hex(hex, 16, err);
    if (r != 0) return r;
    google_uuid(hex, uuid);
    char *with = rest_with_param(*url, "requestId", uuid);
    free(*url);
    *url = with;
    return 0;
}

int google_call(struct google *g, const char *what, const char *method, const char *url, const json_t *body,
                unsigned flags, struct rest_reply *ret, struct gp_error *err) {
    GP_AUTO_FREE char *text = body != NULL ? json_text_exact(body, 0) : NULL;
    struct rest_call call = {.what = what,
                             .method = method,
                             .url = url,
                             .body = text != NULL                  ? text
                                     : strcmp(method, "POST") == 0 ? ""
                                                                   : NULL,
                             .flags = flags};
    int r = rest_call(&g->rest, &call, ret, err);
    if (r == 0 && ret->json == NULL && ret->status != 404) {
        r = gp_fail(err, GP_EPROTO, "%s: the reply is empty: check the endpoint", what);
        if (flags & REST_ONCE) r = cloud_to_unknown(err);
    }
    return r;
}

/* --- operations --- */

const char *google_operation_name(const json_t *operation) {
    const char *name = json_str(operation, "name", "");
    size_t n = strlen(name);
    bool valid = n > 0 && n <= 200 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
    return valid ? name : NULL;
}

/* Google accepts a request first and refuses it later, with HTTP 200. */
static int result_of(const json_t *operation, const char *what, struct gp_error *err) {
    const json_t *errors = json_at(operation, "error.errors");
    if (!json_is_object(json_at(operation, "error"))) return 0;
    struct cloud_said said = {json_str(json_array_get(errors, 0), "code", "unknown"),
                              json_str(json_array_get(errors, 0), "message", ""), ""};
    return cloud_fail(err, what, &said, cloud_error_find(google_errors, google_error_count, &said));
}

static int64_t end_of(const json_t *operation) {
    int64_t at = 0;
    return time_parse_utc(json_str(operation, "endTime", ""), &at) ? at : 0;
}

static int ended(const json_t *operation, const char *what, int64_t *ret_end_s, struct gp_error *err) {
    if (ret_end_s != NULL) *ret_end_s = end_of(operation);
    return result_of(operation, what, err);
}

int google_operation_end(struct google *g, const char *zone, const char *name, int64_t *ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *url = google_url(g, "zones/%s/operations/%s", zone, name);
    int r = google_call(g, "google zoneOperations.get", "GET", url, NULL, REST_MISSING, &reply, err);
    *ret = r == 0 && reply.status != 404 ? end_of(reply.json) : 0;
    return r;
}

int google_wait(struct google *g, const char *zone, const json_t *operation, const char *what, int64_t *ret_end_s,
                struct gp_error *err) {
    const char *name = google_operation_name(operation);
    int64_t until = clock_deadline(GOOGLE_WAIT_MS), pause = POLL_FIRST_MS;
    if (name == NULL) return gp_fail(err, GP_EUNKNOWN, "%s: the reply is not an operation: check the endpoint", what);
    GP_AUTO_FREE char *url = zone != NULL ? google_url(g, "zones/%s/operations/%s", zone, name)
                                          : google_url(g, "global/operations/%s", name);
    if (strcmp(json_str(operation, "status", ""), "DONE") == 0) return ended(operation, what, ret_end_s, err);
    for (;; pause = GP_MIN(pause * 2, (int64_t)POLL_MAX_MS)) {
        GP_AUTO_REST struct rest_reply reply = {0};
        struct gp_error why = {0};
        if (gp_sleep(pause, g->cancel, NULL) != 0)
            return gp_fail(err, GP_EUNKNOWN, "%s: cancelled while Google works on it", what);
        if (google_call(g, what, "GET", url, NULL, 0, &reply, &why) != 0)
            return gp_fail(err, GP_EUNKNOWN, "%s: its operation could not be read: %.300s", what, why.msg);
        if (strcmp(json_str(reply.json, "status", ""), "DONE") == 0) return ended(reply.json, what, ret_end_s, err);
        if (clock_left_ms(until) == 0)
            return gp_fail(err, GP_EUNKNOWN, "%s: Google has not finished it in %d minutes", what,
                           GOOGLE_WAIT_MS / 60000);
    }
}

/* --- lists --- */

static char *next_page(const char *url, const json_t *reply) {
    const char *token = json_str(reply, "nextPageToken", "");
    return token[0] != '\0' ? rest_with_param(url, "pageToken", token) : NULL;
}

struct rest_paged google_paged(const char *what, const char *url, google_page_fn page, void *ctx) {
    return (struct rest_paged){.first = {.what = what, .method = "GET", .url = url},
                               .list = {.next = next_page, .page = page, .ctx = ctx}};
}

int google_pages(struct google *g, const char *what, const char *url, google_page_fn page, void *ctx,
                 struct gp_error *err) {
    struct rest_paged one = google_paged(what, url, page, ctx);
    return rest_pages(&g->rest, &one.first, &one.list, err);
}

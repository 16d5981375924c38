// SPDX-License-Identifier: Apache-2.0
/* One call to Azure Resource Manager: URLs, ids, tags, lists with nextLink. One thread at a time. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"

#include <ctype.h>
#include <stdarg.h>

/* --- forms --- */

bool azure_is_guid(const char *s) {
    static const size_t dashes[] = {8, 13, 18, 23};
    if (s == NULL || strlen(s) != 36) return false;
    for (size_t i = 0, d = 0; i < 36; i++) {
        if (d < GP_ARRAY_LEN(dashes) && dashes[d] == i) {
            if (s[i] != '-') return false;
            d++;
        } else if (!isxdigit((unsigned char)s[i])) {
            return false;
        }
    }
    return true;
}

bool azure_is_name(const char *s) {
    size_t n = s != NULL ? strlen(s) : 0;
    return n >= 1 && n <= 90 && s[0] != '.' && s[n - 1] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static char *lower(const char *s) {
    char *out = xstrdup(s);
    for (char *p = out; *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
    return out;
}

char *azure_region(const char *text) {
    char *out = lower(text);
    size_t n = 0;
    for (const char *p = out; *p != '\0'; p++)
        if (*p != ' ') out[n++] = *p;
    out[n] = '\0';
    if (n > 64 || strspn(out, "abcdefghijklmnopqrstuvwxyz0123456789") != n) out[0] = '\0';
    return out;
}

bool azure_id_split(const struct azure *a, const char *id, char **ret_group, char **ret_type, char **ret_name) {
    GP_AUTO_STRV struct strv parts = {0};
    if (id[0] != '/' || strstr(id, "//") != NULL) return false;
    strv_split(&parts, id, "/");
    if (parts.n != 8 || strcasecmp(parts.v[0], "subscriptions") != 0 || strcasecmp(parts.v[1], a->subscription) != 0 ||
        strcasecmp(parts.v[2], "resourceGroups") != 0 || strcasecmp(parts.v[4], "providers") != 0)
        return false;
    for (size_t i = 3; i < 8; i++)
        if (i != 4 && !azure_is_name(parts.v[i])) return false;
    *ret_group = lower(parts.v[3]);
    *ret_type = xasprintf("%s/%s", parts.v[5], parts.v[6]);
    *ret_name = lower(parts.v[7]);
    return true;
}

/* --- ids of the journal --- */

void azure_handle_clear(struct azure_handle *h) {
    free(h->group);
    free(h->type);
    free(h->name);
    free(h->uid);
    *h = (struct azure_handle){0};
}

char *azure_handle_text(const char *group, const char *type, const char *name, const char *uid) {
    if (name[0] == '\0') return xasprintf("%s@%s", group, uid);
    if (strcmp(type, AZURE_VM) == 0) return xasprintf("%s/%s@%s", group, name, uid);
    return xasprintf("%s/%s/%s@%s", group, type, name, uid);
}

bool azure_handle_same(const char *a, const char *b) {
    GP_AUTO_AZURE_HANDLE struct azure_handle one = {0}, two = {0};
    return azure_handle_read(a, &one) && azure_handle_read(b, &two) && strcmp(one.group, two.group) == 0 &&
           strcmp(one.type, two.type) == 0 && strcmp(one.name, two.name) == 0;
}

bool azure_handle_read(const char *id, struct azure_handle *ret) {
    GP_AUTO_STRV struct strv parts = {0};
    const char *at = strrchr(id, '@');
    if (at == NULL || (at[1] != '\0' && !form_uid(at + 1)) || strstr(id, "//") != NULL || id[0] == '/') return false;
    GP_AUTO_FREE char *path = xstrndup(id, (size_t)(at - id));
    strv_split(&parts, path, "/");
    if (parts.n < 1 || parts.n > 3) return false;
    for (size_t i = 0; i < parts.n; i++)
        if (!azure_is_name(parts.v[i])) return false;
    ret->group = xstrdup(parts.v[0]);
    ret->type = xstrdup(parts.n == 3 ? parts.v[1] : parts.n == 2 ? AZURE_VM : "");
    ret->name = xstrdup(parts.n > 1 ? parts.v[parts.n - 1] : "");
    ret->uid = xstrdup(at + 1);
    return true;
}

/* --- calls --- */

char *azure_url(const struct azure *a, const char *version, const char *path_fmt, ...) {
    struct str url = {0};
    va_list ap;
    str_addf(&url, "%s/subscriptions/%s", a->endpoint, a->subscription);
    va_start(ap, path_fmt);
    str_vaddf(&url, path_fmt, ap);
    va_end(ap);
    rest_query(&url, "api-version", version);
    return str_steal(&url);
}

char *azure_what(const char *method, const char *url) {
    GP_AUTO_STRV struct strv parts = {0};
    const char *host = strstr(url, "://");
    GP_AUTO_FREE char *path = xstrndup(host != NULL ? host + 3 : url, strcspn(host != NULL ? host + 3 : url, "?"));
    strv_split(&parts, path, "/");
    size_t n = parts.n;
    if (n < 2) return xasprintf("azure %s", method);
    return xasprintf("azure %s %s/%s", method, parts.v[n - 2], parts.v[n - 1]);
}

int azure_authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    struct azure *a = ctx;
    (void)call, (void)err;
    GP_AUTO_FREE char *value = xasprintf("Bearer %s", secret_reveal(&a->cred.token));
    http_fields_add(add, "Authorization", value);
    explicit_bzero(value, strlen(value));
    return 0;
}

/* 404 means that the thing is not there only where Azure's code says that: a wrong subscription or endpoint is 404 too,
 * and proves nothing of what exists. */
static int check_missing(const char *what, const struct rest_reply *reply, struct gp_error *err) {
    static const char *const missing[] = {"ResourceGroupNotFound", "ResourceNotFound", "ParentResourceNotFound",
                                          "RoleAssignmentNotFound", "NotFound"};
    const char *code = json_str(reply->json, "error.code", "");
    for (size_t i = 0; i < GP_ARRAY_LEN(missing); i++)
        if (strcmp(code, missing[i]) == 0) return 0;
    if (code[0] == '\0')
        return gp_fail(err, GP_EPROTO, "%s: HTTP 404 without Azure's error code: check GPUPROV_AZURE_ENDPOINT", what);
    struct cloud_said said = {code, json_str(reply->json, "error.message", ""), ""};
    return cloud_fail(err, what, &said, cloud_error_find(azure_errors, azure_error_count, &said));
}

int azure_call(struct azure *a, const char *method, const char *url, const json_t *body, unsigned flags,
               struct rest_reply *ret, struct gp_error *err) {
    GP_AUTO_FREE char *what = azure_what(method, url);
    GP_AUTO_FREE char *text = body != NULL ? json_text_exact(body, 0) : NULL;
    struct rest_call call = {.what = what, .method = method, .url = url, .body = text, .flags = flags};
    int r = rest_call(&a->rest, &call, ret, err);
    return r == 0 && ret->status == 404 ? check_missing(what, ret, err) : r;
}

static char *next_link(const char *url, const json_t *reply) {
    (void)url;
    const char *next = json_str(reply, "nextLink", "");
    return next[0] != '\0' ? xstrdup(next) : NULL;
}

int azure_pages(struct azure *a, const char *url, int (*each)(void *ctx, const json_t *item, struct gp_error *err),
                void *ctx, struct gp_error *err) {
    GP_AUTO_FREE char *what = azure_what("GET", url);
    struct rest_call call = {.what = what, .method = "GET", .url = url};
    struct rest_list list = {.items = "value", .next = next_link, .each = each, .ctx = ctx};
    return rest_pages(&a->rest, &call, &list, err);
}

void azure_reads_clear(struct azure_reads *w) {
    vec_free(&w->lists);
    strv_clear(&w->texts);
}

size_t azure_reads_add(struct azure_reads *w, char *url, const char *what, const struct rest_list *list,
                       unsigned flags) {
    strv_take(&w->texts, url);
    strv_take(&w->texts, what != NULL ? xstrdup(what) : azure_what("GET", url));
    struct rest_paged one = {.first = {.what = w->texts.v[w->texts.n - 1], .method = "GET", .url = url, .flags = flags},
                             .list = *list};
    vec_push(&w->lists, one);
    return w->lists.len - 1;
}

size_t azure_reads_pages(struct azure_reads *w, char *url, unsigned flags,
                         int (*each)(void *ctx, const json_t *item, struct gp_error *err), void *ctx) {
    struct rest_list list = {.items = "value", .next = next_link, .each = each, .ctx = ctx};
    return azure_reads_add(w, url, NULL, &list, flags);
}

int64_t azure_retry_ms(const struct http_fields *headers, int64_t def) {
    int64_t s = 0;
    const char *text = http_fields_get(headers, "Retry-After");
    if (text == NULL || !str_to_i64(text, 0, 3600, &s)) return def;
    return GP_MAX((int64_t)100, GP_MIN(s * 1000, (int64_t)60000));
}

/* --- tags --- */

json_t *azure_tags_json(const struct tags *tags) {
    GP_AUTO_LABELS struct label_list labels = {0};
    json_t *j = json_object();
    labels_write(&labels_azure, tags, &labels);
    for (size_t i = 0; i < labels.list.len; i++)
        json_object_set_new(j, labels.list.items[i].key, json_string(labels.list.items[i].value));
    return j;
}

void azure_tags_decode(json_t *tags, struct tags *ret) {
    GP_AUTO_LABELS struct label_list labels = {0};
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(tags, key, value) {
        labels_add(&labels, key, json_is_string(value) ? json_string_value(value) : "");
    }
    labels_read(&labels_azure, &labels, ret);
}

int azure_tags_merge(struct azure *a, const char *id, json_t *tags, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *body = json_pack("{s:s,s:{s:O}}", "operation", "Merge", "properties", "tags", tags);
    GP_AUTO_FREE char *url = azure_url(a, AZURE_RESOURCES, "%s/providers/Microsoft.Resources/tags/default", id);
    return azure_call(a, "PATCH", url, body, 0, &reply, err);
}

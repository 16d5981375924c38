/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a request to the package cache and as package sources: a request that is taken has the parts of its
 * form, climbs nowhere, and its origin is one that sources can name. */
#include "base/gp_base.h"

#include "validate/agent/cache/cache_request.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct cache_request *q) {
    const char *rest = strstr(q->url, "://");
    if (strlen(q->sha256) != 64 || q->size < 1 || q->size > CACHE_SIZE_MAX || rest == NULL) abort();
    if (strncmp(rest + 3, q->origin, strlen(q->origin)) != 0 || rest[3 + strlen(q->origin)] != '/') abort();
    for (const char *p = q->url; *p != '\0'; p++)
        if (strchr(" \t\"'`$&;|<>()\\?#*[]{}\n", *p) != NULL || *p < ' ' || *p > '~') abort();
    if (strstr(rest, "/../") != NULL || str_ends(q->url, "/..")) abort();
    GP_AUTO_STRV struct strv origins = {0};
    GP_AUTO_FREE char *line = xasprintf("deb %s x", q->url);
    cache_origins_add(&origins, line);
    if (origins.n != 1 || strcmp(origins.v[0], q->origin) != 0) abort();
    (void)cache_origin_refused(q->origin);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cache_request q = {0};
    const char *head = (const char *)data, *status = NULL, *why = NULL;
    size_t n = cache_head_size(head, size);
    if (n > size) abort();
    if (cache_request_parse(head, n > 0 ? n : size, &q, &status, &why)) check(&q);
    else if (status == NULL || why == NULL || q.url[0] != '\0') abort();
    GP_AUTO_STRV struct strv origins = {0};
    GP_AUTO_FREE char *text = xstrndup(head, size);
    cache_origins_add(&origins, text);
    for (size_t i = 0; i < origins.n; i++) (void)cache_origin_refused(origins.v[i]);
    return 0;
}

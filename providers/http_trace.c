// SPDX-License-Identifier: Apache-2.0
/* Trace lines and shown forms of URLs. A query string can have a token or a
 * signature, and the part before '@' a password: neither is printed. Any thread. */
#include "base/gp_base.h"

#include "providers/http_int.h"

#include "base/clock.h"
#include "base/log.h"

/* The authority without user and password: where it begins and its length. */
static const char *authority(const char *url, size_t *ret_len) {
    const char *start = strstr(url, "://");
    start = start != NULL ? start + 3 : url;
    size_t len = strcspn(start, "/?#");
    for (const char *at = start + len; at > start; at--)
        if (at[-1] == '@') {
            len -= (size_t)(at - start);
            start = at;
            break;
        }
    *ret_len = len;
    return start;
}

char *http_url_place(const char *url) {
    size_t len = 0;
    const char *start = authority(url, &len);
    return xstrndup(start, len);
}

char *http_url_shown(const char *url) {
    size_t len = 0;
    const char *host = authority(url, &len), *scheme = strstr(url, "://");
    const char *path = host + len;
    size_t shown = strcspn(path, "?#");
    return xasprintf("%.*s%.*s%.*s%s", scheme != NULL ? (int)(scheme + 3 - url) : 0, url, (int)len, host, (int)shown,
                     path, path[shown] != '\0' ? "?..." : "");
}

void http_trace(const struct http_transfer *t, const struct gp_error *failed) {
    if (!log_on(LOG_HTTP)) return;
    GP_AUTO_FREE char *url = http_url_shown(t->req->url);
    log_trace(LOG_HTTP, "%s: %s %s -> %d, %zu bytes, %lld ms%s%s", t->req->what, t->req->method, url, t->resp->status,
              t->resp->body.len, (long long)(clock_ms() - t->start_ms), failed != NULL ? ": " : "",
              failed != NULL ? failed->msg : "");
}

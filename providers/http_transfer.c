// SPDX-License-Identifier: Apache-2.0
/* One attempt of one request through libcurl: its options, its reply, the mapping of libcurl's codes. It does not
 * follow redirects and does not interpret bodies. A request that must not be repeated is never sent twice
 * by libcurl itself, which it would do when the server closes a reused connection without an answer: it gets a
 * fresh connection or, where connections are shared, a body that cannot be read again. One thread per client. */
#include "base/gp_base.h"

#include "providers/http_int.h"

#include <time.h>

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    struct http_transfer *t = ctx;
    size_t bytes = size * n;
    if (t->resp->body.len + bytes > t->max_body) {
        t->too_big = true;
        return 0;
    }
    str_add_mem(&t->resp->body, data, bytes);
    return bytes;
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx) {
    struct http_transfer *t = ctx;
    size_t bytes = size * n;
    if (bytes >= 5 && memcmp(data, "HTTP/", 5) == 0) { /* a new head: drop that of a 1xx or proxy */
        http_fields_clear(&t->resp->headers);
        return bytes;
    }
    char *colon = memchr(data, ':', bytes);
    if (colon == NULL || t->resp->headers.list.len >= 200) return bytes;
    GP_AUTO_FREE char *name = xstrndup(data, (size_t)(colon - data));
    GP_AUTO_FREE char *value = xstrndup(colon + 1, bytes - (size_t)(colon + 1 - data));
    http_fields_add(&t->resp->headers, name, str_trim(value));
    return bytes;
}

static const char *env_any(const char *a, const char *b) {
    const char *v = getenv(a);
    if (v == NULL || v[0] == '\0') v = getenv(b);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

static void set_proxy(CURL *c, const struct http_req *req, bool direct) {
    if (req->no_proxy || direct) {
        curl_easy_setopt(c, CURLOPT_PROXY, "");
        return;
    }
    /* libcurl reads HTTPS_PROXY and NO_PROXY itself but, unlike most tools, only http_proxy in
     * lower case. */
    const char *proxy =
        str_starts(req->url, "http:") ? env_any("http_proxy", "HTTP_PROXY") : env_any("https_proxy", "HTTPS_PROXY");
    if (proxy != NULL) curl_easy_setopt(c, CURLOPT_PROXY, proxy);
}

static struct curl_slist *header_list(const struct http_fields *f, struct curl_slist *list) {
    for (size_t i = 0; f != NULL && i < f->list.len; i++) {
        GP_AUTO_STR struct str line = {0};
        const char *value = f->list.items[i].value;
        if (value[0] == '\0') str_addf(&line, "%s;", f->list.items[i].name); /* libcurl's syntax of an empty field */
        else str_addf(&line, "%s: %s", f->list.items[i].name, value);
        list = curl_slist_append(list, line.s);
        explicit_bzero(line.s, line.len);
    }
    return list;
}

static void wipe_list(struct curl_slist *list) {
    for (struct curl_slist *l = list; l != NULL; l = l->next) explicit_bzero(l->data, strlen(l->data));
    curl_slist_free_all(list);
}

/* The body of a request that must not be repeated: read once. */
static size_t on_read(char *to, size_t size, size_t n, void *ctx) {
    struct http_transfer *t = ctx;
    size_t bytes = GP_MIN(size * n, t->req->body_len - t->body_at);
    memcpy(to, t->req->body + t->body_at, bytes);
    t->body_at += bytes;
    return bytes;
}

static int on_seek(void *ctx, curl_off_t offset, int origin) {
    const struct http_transfer *t = ctx;
    return t->body_at == 0 && offset == 0 && origin == SEEK_SET ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

static void set_body(struct http_transfer *t, bool once) {
    const struct http_req *req = t->req;
    CURL *c = t->easy;
    if (req->body != NULL) {
        curl_easy_setopt(c, CURLOPT_POST, 1L);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body_len);
        if (once) {
            curl_easy_setopt(c, CURLOPT_READFUNCTION, on_read);
            curl_easy_setopt(c, CURLOPT_READDATA, t);
            curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
            curl_easy_setopt(c, CURLOPT_SEEKDATA, t);
        } else {
            curl_easy_setopt(c, CURLOPT_POSTFIELDS, req->body);
        }
    }
    if (strcmp(req->method, "HEAD") == 0) curl_easy_setopt(c, CURLOPT_NOBODY, 1L); /* else it waits for a body */
    else if (req->body == NULL || strcmp(req->method, "POST") != 0)
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, req->method);
}

/* A connection of its own, over HTTP/1.1; or, shared, one stream of many where the server offers HTTP/2. */
static void set_connection(struct http_transfer *t, bool shared) {
    bool readable_once = t->req->body != NULL && t->req->body_len > 0;
    CURL *c = t->easy;
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)(shared ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    if (shared) curl_easy_setopt(c, CURLOPT_PIPEWAIT, 1L);
    if (!t->req->repeatable && !(shared && readable_once)) curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L);
    set_body(t, shared && !t->req->repeatable && readable_once);
}

static void set_options(const struct http *h, struct http_transfer *t, bool shared, int64_t timeout_ms) {
    const struct http_req *req = t->req;
    CURL *c = t->easy;
    curl_easy_setopt(c, CURLOPT_URL, req->url);
    curl_easy_setopt(c, CURLOPT_PRIVATE, t);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(req->connect_ms ? req->connect_ms : 10000));
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "gpuprov/" GP_VERSION);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers);
    if (h->ca_bundle != NULL) curl_easy_setopt(c, CURLOPT_CAINFO, h->ca_bundle);
    set_proxy(c, req, t->direct);
    set_connection(t, shared);
}

static void read_heads(struct http_resp *r) {
    const char *date = http_fields_get(&r->headers, "date");
    time_t t = date != NULL ? curl_getdate(date, NULL) : -1;
    r->has_date = t != -1;
    if (r->has_date) r->date_skew_s = (int64_t)t - clock_wall_s();
    r->retry_after_s = -1;
    const char *after = http_fields_get(&r->headers, "retry-after");
    if (after == NULL) return;
    int64_t seconds = 0;
    if (str_to_i64(after, 0, 86400, &seconds)) {
        r->retry_after_s = seconds;
    } else if ((t = curl_getdate(after, NULL)) != -1) {
        seconds = (int64_t)t - clock_wall_s() - (r->has_date ? r->date_skew_s : 0);
        r->retry_after_s = GP_MAX(seconds, 0);
    }
}

/* Maps libcurl's codes to ours, only here. */
static int fail_curl(const struct http *h, const struct http_transfer *t, CURLcode code, struct gp_error *err) {
    const struct http_req *req = t->req;
    GP_AUTO_FREE char *place = http_url_place(req->url);
    const char *why = t->error[0] != '\0' ? t->error : curl_easy_strerror(code);
    int r = 0;
    const char *detail = "";
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        r = gp_fail(err, GP_ECANCELLED, "%s: cancelled", req->what);
    } else if (t->too_big) {
        r = gp_fail(err, GP_EPROTO, "%s: the reply of %s is larger than %zu bytes", req->what, place, t->max_body);
        detail = "TooBig";
    } else if (code == CURLE_URL_MALFORMAT || (code == CURLE_UNSUPPORTED_PROTOCOL && !t->resp->sent)) {
        GP_AUTO_FREE char *shown = http_url_shown(req->url);
        r = gp_fail(err, GP_EUSAGE, "%s: '%s' is not an http or https URL", req->what, shown);
    } else if (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY) {
        r = gp_fail(err, GP_EENDPOINT,
                    "%s: no address for %s '%s': check the region's name, the network "
                    "and the proxy",
                    req->what, code == CURLE_COULDNT_RESOLVE_PROXY ? "the proxy of" : "host", place);
        detail = "DNS";
    } else if (code == CURLE_COULDNT_CONNECT) {
        r = gp_fail(err, GP_EENDPOINT,
                    "%s: %s does not answer (%.160s): check the endpoint, the network "
                    "and the proxy",
                    req->what, place, why);
        detail = "Connect";
    } else if (code == CURLE_SSL_CACERT_BADFILE) {
        r = gp_fail(err, GP_EENV, "%s: the CA bundle '%s' could not be used: correct %s", req->what,
                    h->ca_bundle != NULL ? h->ca_bundle : "(system)",
                    h->ca_setting != NULL ? h->ca_setting : "this system's certificates");
    } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CONNECT_ERROR ||
               code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_CERTPROBLEM) {
        r = gp_fail(err, GP_EENDPOINT,
                    "%s: no trusted TLS connection with %s (%.160s): if this network has its own "
                    "certificate authority, %s%s",
                    req->what, place, why, h->ca_setting != NULL ? "set " : "add it to this system's certificates",
                    h->ca_setting != NULL ? h->ca_setting : "");
        detail = "TLS";
    } else if (!t->resp->sent) {
        r = gp_fail(err, GP_EENDPOINT, "%s: %s could not be reached (%.160s)", req->what, place, why);
        detail = "Connect";
    } else if (code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_UNSUPPORTED_PROTOCOL) {
        r = gp_fail(err, GP_EPROTO, "%s: the reply of %s is not HTTP (%.160s)", req->what, place, why);
        detail = "NoHttp";
    } else {
        r = gp_fail(err, GP_ELOST, "%s: sent, but the reply of %s was lost (%.160s)", req->what, place, why);
        detail = "LostReply";
    }
    if (err != NULL && detail[0] != '\0') str_put(err->detail, sizeof err->detail, detail);
    return r;
}

int http_transfer_begin(struct http *h, struct http_transfer *t, bool shared, int64_t timeout_ms,
                        struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields extra = {0};
    http_resp_clear(t->resp);
    t->max_body = t->req->max_body ? t->req->max_body : (size_t)32 << 20;
    str_init(&t->resp->body, t->max_body); /* a string, whatever comes */
    int r = http_clear_check(t->req, &t->direct, err);
    if (r == 0 && t->req->sign != NULL) r = t->req->sign(t->req->ctx, &extra, err);
    if (r == 0) r = http_headers_check(t->req, t->req->headers, err);
    if (r == 0) r = http_headers_check(t->req, &extra, err);
    if (r != 0) return r;
    t->easy = curl_easy_init();
    if (t->easy == NULL) return gp_fail(err, GP_EENV, "libcurl could not create a handle");
    t->too_big = false;
    t->body_at = 0;
    t->error[0] = '\0';
    t->headers = curl_slist_append(NULL, "Expect:");
    t->headers = header_list(t->req->headers, t->headers);
    t->headers = header_list(&extra, t->headers);
    t->start_ms = clock_ms();
    set_options(h, t, shared, timeout_ms);
    if (curl_multi_add_handle(h->multi, t->easy) == CURLM_OK) return 0;
    return http_transfer_end(h, t, CURLE_FAILED_INIT, err);
}

uint64_t http_transfer_moved(const struct http_transfer *t) {
    curl_off_t up = 0;
    curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &up);
    return (uint64_t)GP_MAX(up, (curl_off_t)0) + t->resp->body.len;
}

int http_transfer_end(struct http *h, struct http_transfer *t, CURLcode code, struct gp_error *err) {
    long status = 0, request_bytes = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->easy, CURLINFO_REQUEST_SIZE, &request_bytes);
    curl_multi_remove_handle(h->multi, t->easy);
    curl_easy_cleanup(t->easy);
    t->easy = NULL;
    wipe_list(t->headers);
    t->headers = NULL;
    t->resp->status = (int)status;
    t->resp->sent = request_bytes > 0;
    read_heads(t->resp);
    int r = code != CURLE_OK ? fail_curl(h, t, code, err) : 0;
    if (r != 0 && err != NULL) err->domain = GP_D_HTTP;
    http_trace(t, r != 0 ? err : NULL);
    return r;
}

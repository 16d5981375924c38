// SPDX-License-Identifier: Apache-2.0
/* HTTP through libcurl's multi interface, one transfer at a time, so that a wait hears the cancel
 * descriptor at once. It does not follow redirects, does not interpret bodies and knows no cloud.
 * A request that must not be repeated gets a fresh connection: on a reused one libcurl repeats it
 * by itself when the server closes without an answer. One thread at a time per client. */
#include "base/gp_base.h"

#include "providers/http.h"

#include "base/fs.h"
#include "base/log.h"

#include <ctype.h>
#include <curl/curl.h>
#include <pthread.h>
#include <strings.h>
#include <time.h>

#define CONNECTS_MAX 3 /* an endpoint that does not answer: said soon */

struct http {
    CURLM *multi;
    CURL *easy;
    const struct gp_cancel *cancel;
    char *ca_bundle;
    char error[CURL_ERROR_SIZE];
};

/* --- header fields --- */

void http_fields_add(struct http_fields *f, const char *name, const char *value) {
    struct http_field one = {xstrdup(name), xstrdup(value)};
    vec_push(&f->list, one);
}

const char *http_fields_get(const struct http_fields *f, const char *name) {
    for (size_t i = 0; i < f->list.len; i++)
        if (strcasecmp(f->list.items[i].name, name) == 0) return f->list.items[i].value;
    return NULL;
}

void http_fields_clear(struct http_fields *f) {
    for (size_t i = 0; i < f->list.len; i++) {
        free(f->list.items[i].name);
        explicit_bzero(f->list.items[i].value, strlen(f->list.items[i].value));
        free(f->list.items[i].value);
    }
    vec_free(&f->list);
}

void http_resp_clear(struct http_resp *r) {
    str_clear(&r->body);
    http_fields_clear(&r->headers);
    *r = (struct http_resp){0};
}

void http_encode(struct str *out, const char *s) {
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~') str_addc(out, (char)c);
        else str_addf(out, "%%%02X", c);
    }
}

/* --- open and close --- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_init_result;
static void curl_init(void) { curl_init_result = curl_global_init(CURL_GLOBAL_DEFAULT); }

int http_open(const struct gp_cancel *cancel, const char *ca_bundle, struct http **ret, struct gp_error *err) {
    pthread_once(&curl_once, curl_init);
    if (curl_init_result != CURLE_OK)
        return gp_fail(err, GP_EENV, "libcurl could not start: %s", curl_easy_strerror(curl_init_result));
    if (ca_bundle != NULL && ca_bundle[0] != '\0' && !fs_exists(ca_bundle))
        return gp_fail(err, GP_EENV, "the CA bundle '%s' does not exist: correct AWS_CA_BUNDLE", ca_bundle);
    struct http *h = xcalloc(1, sizeof *h);
    h->cancel = cancel;
    if (ca_bundle != NULL && ca_bundle[0] != '\0') h->ca_bundle = xstrdup(ca_bundle);
    h->multi = curl_multi_init();
    h->easy = curl_easy_init();
    if (h->multi == NULL || h->easy == NULL) {
        http_close(h);
        return gp_fail(err, GP_EENV, "libcurl could not make a handle");
    }
    *ret = h;
    return 0;
}

void http_close(struct http *h) {
    if (h == NULL) return;
    if (h->easy != NULL) curl_easy_cleanup(h->easy);
    if (h->multi != NULL) curl_multi_cleanup(h->multi);
    free(h->ca_bundle);
    free(h);
}

void http_cleanup(struct http **h) {
    http_close(*h);
    *h = NULL;
}

/* --- one attempt --- */

struct attempt {
    struct http_resp *resp;
    size_t max_body;
    bool too_big;
};

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    struct attempt *a = ctx;
    size_t bytes = size * n;
    if (a->resp->body.len + bytes > a->max_body) {
        a->too_big = true;
        return 0;
    }
    str_add_mem(&a->resp->body, data, bytes);
    return bytes;
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx) {
    struct attempt *a = ctx;
    size_t bytes = size * n;
    if (bytes >= 5 && memcmp(data, "HTTP/", 5) == 0) { /* a new head: drop that of a 1xx or proxy */
        http_fields_clear(&a->resp->headers);
        return bytes;
    }
    char *colon = memchr(data, ':', bytes);
    if (colon == NULL || a->resp->headers.list.len >= 200) return bytes;
    GP_AUTO_FREE char *name = xstrndup(data, (size_t)(colon - data));
    GP_AUTO_FREE char *value = xstrndup(colon + 1, bytes - (size_t)(colon + 1 - data));
    http_fields_add(&a->resp->headers, name, str_trim(value));
    return bytes;
}

static const char *env_any(const char *a, const char *b) {
    const char *v = getenv(a);
    if (v == NULL || v[0] == '\0') v = getenv(b);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

static void set_proxy(CURL *c, const struct http_req *req) {
    if (req->no_proxy) {
        curl_easy_setopt(c, CURLOPT_PROXY, "");
        return;
    }
    /* libcurl reads HTTPS_PROXY and NO_PROXY itself but, unlike the AWS CLI, only http_proxy in
     * lower case. */
    const char *proxy =
        str_starts(req->url, "http:") ? env_any("http_proxy", "HTTP_PROXY") : env_any("https_proxy", "HTTPS_PROXY");
    if (proxy != NULL) curl_easy_setopt(c, CURLOPT_PROXY, proxy);
}

static struct curl_slist *header_list(const struct http_fields *f, struct curl_slist *list) {
    for (size_t i = 0; f != NULL && i < f->list.len; i++) {
        GP_AUTO_STR struct str line = {0};
        const char *value = f->list.items[i].value;
        if (value[0] == '\0') str_addf(&line, "%s;", f->list.items[i].name); /* libcurl's form of an empty field */
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

static void set_options(struct http *h, const struct http_req *req, struct attempt *a, struct curl_slist *headers,
                        int64_t timeout_ms) {
    CURL *c = h->easy;
    curl_easy_reset(c); /* keeps connections, which belong to the multi handle */
    h->error[0] = '\0';
    curl_easy_setopt(c, CURLOPT_URL, req->url);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, h->error);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(req->connect_ms ? req->connect_ms : 10000));
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "gpuprov/" GP_VERSION);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, a);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, a);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (h->ca_bundle != NULL) curl_easy_setopt(c, CURLOPT_CAINFO, h->ca_bundle);
    if (!req->repeatable) curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, 1L);
    set_proxy(c, req);
    if (req->body != NULL) {
        curl_easy_setopt(c, CURLOPT_POST, 1L);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body_len);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, req->body);
    }
    if (req->body == NULL || strcmp(req->method, "POST") != 0) curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, req->method);
}

/* Runs the transfer to its end. Returns CURLE_ABORTED_BY_CALLBACK when cancelled. */
static CURLcode transfer(struct http *h) {
    if (curl_multi_add_handle(h->multi, h->easy) != CURLM_OK) return CURLE_FAILED_INIT;
    CURLcode result = CURLE_OK;
    for (;;) {
        int running = 0;
        if (gp_cancelled(h->cancel)) {
            result = CURLE_ABORTED_BY_CALLBACK;
            break;
        }
        if (curl_multi_perform(h->multi, &running) != CURLM_OK) {
            result = CURLE_FAILED_INIT;
            break;
        }
        int left = 0;
        CURLMsg *msg = curl_multi_info_read(h->multi, &left);
        if (msg != NULL && msg->msg == CURLMSG_DONE) {
            result = msg->data.result;
            break;
        }
        struct curl_waitfd extra = {.fd = h->cancel != NULL ? h->cancel->efd : -1, .events = CURL_WAIT_POLLIN};
        curl_multi_poll(h->multi, h->cancel != NULL ? &extra : NULL, h->cancel != NULL ? 1 : 0, 1000, NULL);
    }
    curl_multi_remove_handle(h->multi, h->easy);
    return result;
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

/* host[:port] of a URL, for messages. */
static char *url_place(const char *url) {
    const char *start = strstr(url, "://");
    start = start != NULL ? start + 3 : url;
    return xstrndup(start, strcspn(start, "/?"));
}

static int fail_tls(const struct http *h, const char *what, const char *place, CURLcode code, struct gp_error *err) {
    const char *why = h->error[0] != '\0' ? h->error : curl_easy_strerror(code);
    int r = gp_fail(err, GP_EENDPOINT,
                    "%s: no trusted TLS connection with %s (%.160s): if this network has its own "
                    "certificate authority, set AWS_CA_BUNDLE",
                    what, place, why);
    if (err != NULL) str_put(err->detail, sizeof err->detail, "TLS");
    return r;
}

/* The one place where libcurl's codes become ours. */
static int fail_curl(const struct http *h, const struct http_req *req, const struct attempt *a, CURLcode code,
                     struct gp_error *err) {
    GP_AUTO_FREE char *place = url_place(req->url);
    const char *why = h->error[0] != '\0' ? h->error : curl_easy_strerror(code);
    int r = 0;
    const char *detail = "";
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        r = gp_fail(err, GP_ECANCELLED, "%s: cancelled", req->what);
    } else if (a->too_big) {
        r = gp_fail(err, GP_EPROTO, "%s: the reply of %s is larger than %zu bytes", req->what, place, a->max_body);
        detail = "TooBig";
    } else if (code == CURLE_URL_MALFORMAT || (code == CURLE_UNSUPPORTED_PROTOCOL && !a->resp->sent)) {
        r = gp_fail(err, GP_EUSAGE, "%s: '%s' is no http or https address", req->what, req->url);
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
        r = gp_fail(err, GP_EENV, "%s: the CA bundle '%s' could not be used: correct AWS_CA_BUNDLE", req->what,
                    h->ca_bundle != NULL ? h->ca_bundle : "(system)");
    } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CONNECT_ERROR ||
               code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_CERTPROBLEM) {
        return fail_tls(h, req->what, place, code, err);
    } else if (!a->resp->sent) {
        r = gp_fail(err, GP_EENDPOINT, "%s: %s could not be reached (%.160s)", req->what, place, why);
        detail = "Connect";
    } else if (code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_UNSUPPORTED_PROTOCOL) {
        r = gp_fail(err, GP_EPROTO, "%s: %s does not speak HTTP (%.160s)", req->what, place, why);
        detail = "NoHttp";
    } else {
        r = gp_fail(err, GP_ELOST, "%s: sent, but the reply of %s was lost (%.160s)", req->what, place, why);
        detail = "LostReply";
    }
    if (err != NULL && detail[0] != '\0') str_put(err->detail, sizeof err->detail, detail);
    return r;
}

static int attempt_once(struct http *h, const struct http_req *req, struct http_resp *ret, int64_t timeout_ms,
                        struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields extra = {0};
    if (req->sign != NULL) {
        int r = req->sign(req->ctx, &extra, err);
        if (r != 0) return r;
    }
    struct attempt a = {.resp = ret, .max_body = req->max_body ? req->max_body : (size_t)32 << 20};
    ret->body.max = a.max_body;
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    headers = header_list(req->headers, headers);
    headers = header_list(&extra, headers);
    set_options(h, req, &a, headers, timeout_ms);
    int64_t start = clock_ms();
    CURLcode code = transfer(h);
    long status = 0, request_bytes = 0;
    curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(h->easy, CURLINFO_REQUEST_SIZE, &request_bytes);
    curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, NULL);
    wipe_list(headers);
    ret->status = (int)status;
    ret->sent = request_bytes > 0;
    read_heads(ret);
    int r = 0;
    if (code != CURLE_OK) {
        r = fail_curl(h, req, &a, code, err);
        if (err != NULL) err->domain = GP_D_HTTP;
    }
    log_trace(LOG_HTTP, "%s: %s %s -> %ld, %zu bytes, %lld ms%s%s", req->what, req->method, req->url, status,
              ret->body.len, (long long)(clock_ms() - start), r != 0 ? ": " : "",
              r != 0 && err != NULL ? err->msg : "");
    return r;
}

/* --- retries --- */

static enum http_verdict judge_default(const struct http_resp *r) {
    if (r->status == 429) return HTTP_REFUSED;
    if (r->status == 502 || r->status == 503 || r->status == 504) return HTTP_TROUBLE;
    return HTTP_DONE;
}

/* Full jitter over 0.2 s, 0.4 s, ... at most 8 s; at least what the server asked for. */
static int64_t backoff_ms(int attempt, int64_t retry_after_s) {
    int64_t cap = (int64_t)200 << GP_MIN(attempt, 6);
    cap = GP_MIN(cap, 8000);
    uint32_t random = 0;
    if (fs_random(&random, sizeof random, NULL) != 0) random = UINT32_MAX / 2;
    int64_t ms = cap / 4 + (int64_t)(0.75 * (double)cap * (random / (double)UINT32_MAX));
    return retry_after_s >= 0 ? GP_MAX(ms, retry_after_s * 1000) : ms;
}

static bool worth_retrying(const struct http_req *req, const struct http_resp *resp, int failed,
                           const struct gp_error *e) {
    if (failed == -GP_EENDPOINT)
        return resp->attempts < CONNECTS_MAX && strcmp(e->detail, "TLS") != 0 && strcmp(e->detail, "DNS") != 0;
    if (failed == -GP_ELOST) return req->repeatable || !resp->sent;
    return false;
}

int http_call(struct http *h, const struct http_req *req, struct http_resp *ret, struct gp_error *err) {
    int tries = req->tries > 0 ? req->tries : 5;
    bool sent_before = false;
    for (int i = 1;; i++) {
        struct gp_error one = {0};
        int64_t timeout = req->timeout_ms > 0 ? req->timeout_ms : 60000;
        int64_t left = req->deadline_ms > 0 ? clock_left_ms(req->deadline_ms) : GP_NEVER;
        http_resp_clear(ret);
        int r = attempt_once(h, req, ret, GP_MAX(GP_MIN(timeout, left), 1), &one);
        ret->attempts = i;
        ret->sent = ret->sent || sent_before;
        sent_before = ret->sent;
        bool retry = false;
        if (r == 0) {
            enum http_verdict v = req->judge ? req->judge(req->ctx, ret) : judge_default(ret);
            if (v == HTTP_REFUSED) sent_before = false;
            retry = v == HTTP_REFUSED || (v == HTTP_TROUBLE && req->repeatable);
        } else {
            retry = worth_retrying(req, ret, r, &one);
        }
        int64_t wait = backoff_ms(i, ret->retry_after_s);
        if (!retry || i >= tries || wait >= left || ret->retry_after_s > 120) {
            if (r == -GP_ELOST && req->repeatable) { /* nothing hangs on it: the endpoint is ill */
                one.code = GP_EENDPOINT;
                r = -GP_EENDPOINT;
            }
            if (r != 0 && err != NULL) *err = one;
            return r;
        }
        log_trace(LOG_HTTP, "%s: try %d of %d in %lld ms", req->what, i + 1, tries, (long long)wait);
        struct gp_error slept = {0};
        if (gp_sleep(wait, h->cancel, &slept) != 0) return gp_fail(err, GP_ECANCELLED, "%s: cancelled", req->what);
    }
}

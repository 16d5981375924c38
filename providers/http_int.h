/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the HTTP client: the client, one attempt of a request, the retry policy. */
#ifndef GP_PROVIDERS_HTTP_INT_H
#define GP_PROVIDERS_HTTP_INT_H

#include "base/clock.h"
#include "providers/http.h"

#include <curl/curl.h>

struct http {
    CURLM *multi;
    const struct gp_cancel *cancel;
    const struct http_watch *watch;
    bool over; /* the watch has ended a call */
    char *ca_bundle, *ca_setting;
    int64_t min_interval_ms, backoff_min_ms;
    int64_t next_ms; /* no request starts before */
};

/* --- what may be sent (http_clear.c) --- */
/* Before anything of the request is sent. *ret_direct: in clear text, so through no proxy either. */
int http_clear_check(const struct http_req *req, bool *ret_direct, struct gp_error *err);
/* Refuses fields that would become others, and registers secrets with the redactor. */
int http_headers_check(const struct http_req *req, const struct http_fields *f, struct gp_error *err);

/* --- one attempt (http_transfer.c) --- */
struct http_transfer {
    CURL *easy; /* NULL: none in progress */
    const struct http_req *req;
    struct http_resp *resp;
    struct curl_slist *headers;
    size_t max_body, body_at;
    int64_t start_ms;
    bool too_big, direct;
    char error[CURL_ERROR_SIZE];
};
/* Signs the request and starts its transfer on the client's multi handle; resp is cleared. shared: other requests
 * use the connections too (HTTP/2 where the server offers it). Not 0: no transfer was started. */
int http_transfer_begin(struct http *h, struct http_transfer *t, bool shared, int64_t timeout_ms, struct gp_error *err);
/* Bytes of the bodies of request and reply so far. */
uint64_t http_transfer_moved(const struct http_transfer *t);
/* Ends it, finished or not, and fills resp except `attempts`. Returns the attempt's outcome: a code of
 * http_call. */
int http_transfer_end(struct http *h, struct http_transfer *t, CURLcode code, struct gp_error *err);

/* --- policy (http_retry.c) --- */
int http_tries(const struct http_req *req);
/* Milliseconds to the next attempt; -1: this outcome is the last one. failed 0: a whole reply is in resp.
 * ret_refused: the server did nothing. */
int64_t http_retry_ms(const struct http *h, const struct http_req *req, const struct http_resp *resp, int failed,
                      const struct gp_error *e, bool *ret_refused);

/* --- safe output (http_trace.c) --- */
char *http_url_place(const char *url); /* host[:port]; caller frees */
char *http_url_shown(const char *url); /* without user, password, query and fragment; caller frees */
void http_trace(const struct http_transfer *t, const struct gp_error *failed); /* failed: NULL or why */

#endif

// SPDX-License-Identifier: Apache-2.0
/* The retry policy of requests: bounded, jittered pauses, at least as long as the server's Retry-After. Pure
 * except for the jitter. */
#include "base/gp_base.h"

#include "providers/http_int.h"

#include "base/fs.h"

#define CONNECTS_MAX 3 /* an endpoint that does not answer is reported soon */
#define TRIES_DEFAULT 5
#define BACKOFF_MIN_MS 200
#define BACKOFF_MAX_MS 8000
#define RETRY_AFTER_MAX_S 120 /* no retry when the server demands more */

static enum http_verdict judge_default(const struct http_resp *r) {
    if (r->status == 429) return HTTP_REFUSED;
    if (r->status == 502 || r->status == 503 || r->status == 504) return HTTP_TROUBLE;
    return HTTP_DONE;
}

/* Jitter over the upper three quarters of min_ms * 2, * 4, ... at most 8 s (or min_ms). */
static int64_t backoff_ms(int64_t min_ms, int attempt, int64_t retry_after_s) {
    int64_t min = min_ms > 0 ? min_ms : BACKOFF_MIN_MS;
    int64_t cap = min << GP_MIN(attempt, 6);
    cap = GP_MIN(cap, GP_MAX(min, (int64_t)BACKOFF_MAX_MS));
    uint32_t random = 0;
    if (fs_random(&random, sizeof random, NULL) != 0) random = UINT32_MAX / 2;
    int64_t ms = cap / 4 + (int64_t)(0.75 * (double)cap * (random / (double)UINT32_MAX));
    if (min_ms > 0) ms = GP_MAX(ms, min_ms);
    return retry_after_s >= 0 ? GP_MAX(ms, retry_after_s * 1000) : ms;
}

static bool failure_passes(const struct http_req *req, const struct http_resp *resp, int failed,
                           const struct gp_error *e) {
    if (failed == -GP_EENDPOINT)
        return resp->attempts < CONNECTS_MAX && strcmp(e->detail, "TLS") != 0 && strcmp(e->detail, "DNS") != 0;
    if (failed == -GP_ELOST) return req->repeatable || !resp->sent;
    return false;
}

int http_tries(const struct http_req *req) { return req->tries > 0 ? req->tries : TRIES_DEFAULT; }

int64_t http_retry_ms(const struct http *h, const struct http_req *req, const struct http_resp *resp, int failed,
                      const struct gp_error *e, bool *ret_refused) {
    bool retry = false;
    *ret_refused = false;
    if (failed == 0) {
        enum http_verdict v = req->judge ? req->judge(req->ctx, resp) : judge_default(resp);
        *ret_refused = v == HTTP_REFUSED;
        retry = v == HTTP_REFUSED || (v == HTTP_TROUBLE && req->repeatable);
    } else {
        retry = failure_passes(req, resp, failed, e);
    }
    int64_t left = req->deadline_ms > 0 ? clock_left_ms(req->deadline_ms) : GP_NEVER;
    int64_t wait = backoff_ms(h->backoff_min_ms, resp->attempts, resp->retry_after_s);
    bool again = retry && resp->attempts < http_tries(req) && wait < left && resp->retry_after_s <= RETRY_AFTER_MAX_S;
    return again ? wait : -1;
}

// SPDX-License-Identifier: Apache-2.0
/* The HTTP client: open and close, and the loop that runs one request or many until each has its
 * outcome, with its own retries and deadline. It waits in libcurl's multi interface together with the cancel
 * descriptor. One thread at a time per client. */
#include "base/gp_base.h"

#include "providers/http_int.h"

#include "base/fs.h"
#include "base/log.h"

#include <pthread.h>

#define GAP_MS 10000 /* a wait takes a second at most: in a longer one this process did not run */

/* --- open and close --- */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_init_result;
static void curl_init(void) { curl_init_result = curl_global_init(CURL_GLOBAL_DEFAULT); }

int http_open(const struct http_options *opt, struct http **ret, struct gp_error *err) {
    bool bundle = opt->ca_bundle != NULL && opt->ca_bundle[0] != '\0';
    pthread_once(&curl_once, curl_init);
    if (curl_init_result != CURLE_OK)
        return gp_fail(err, GP_EENV, "libcurl could not start: %s", curl_easy_strerror(curl_init_result));
    if (bundle && !fs_exists(opt->ca_bundle))
        return gp_fail(err, GP_EENV, "the CA bundle '%s' does not exist: correct %s", opt->ca_bundle, opt->ca_setting);
    struct http *h = xcalloc(1, sizeof *h);
    h->cancel = opt->cancel;
    h->watch = opt->watch;
    h->ca_bundle = bundle ? xstrdup(opt->ca_bundle) : NULL;
    h->ca_setting = opt->ca_setting != NULL ? xstrdup(opt->ca_setting) : NULL;
    h->min_interval_ms = opt->min_interval_ms;
    h->backoff_min_ms = opt->backoff_min_ms;
    h->multi = curl_multi_init();
    if (h->multi == NULL) {
        http_close(h);
        return gp_fail(err, GP_EENV, "libcurl could not create a handle");
    }
    *ret = h;
    return 0;
}

void http_close(struct http *h) {
    if (h == NULL) return;
    if (h->multi != NULL) curl_multi_cleanup(h->multi);
    free(h->ca_bundle);
    free(h->ca_setting);
    free(h);
}

void http_cleanup(struct http **h) {
    http_close(*h);
    *h = NULL;
}

bool http_over(const struct http *h) { return h->over; }

/* --- requests in progress --- */

/* One request in progress; its outcome is in `out` once it is finished. */
struct course {
    struct http_transfer attempt; /* easy not NULL: running */
    struct http_result *out;
    int attempts;
    int64_t due_ms; /* the next attempt starts then at the earliest */
    bool sent_before, over;
};

struct batch {
    struct http *h;
    struct course *all;
    size_t n, open, running, at_once;
    int64_t looked_ms; /* when the watch was called last */
};

static void end(struct batch *b, struct course *c, int rc, const struct gp_error *err) {
    c->out->rc = rc;
    c->out->err = *err;
    c->over = true;
    b->open--;
}

/* Ends an attempt: sets the outcome, or the time of the next attempt. */
static void settle(struct batch *b, struct course *c, int r, struct gp_error *one) {
    const struct http_req *req = c->attempt.req;
    struct http_resp *resp = &c->out->resp;
    bool refused = false;
    resp->attempts = ++c->attempts;
    resp->sent = resp->sent || c->sent_before;
    int64_t wait = http_retry_ms(b->h, req, resp, r, one, &refused);
    c->sent_before = resp->sent && !refused;
    if (wait < 0) {
        if (r == -GP_ELOST && req->repeatable) { /* repeating is safe: the endpoint has a fault */
            one->code = GP_EENDPOINT;
            r = -GP_EENDPOINT;
        }
        end(b, c, r, one);
        return;
    }
    c->out->rc = r;
    c->out->err = *one;
    c->due_ms = clock_deadline(wait);
    log_trace(LOG_HTTP, "%s: try %d of %d in %lld ms", req->what, c->attempts + 1, http_tries(req), (long long)wait);
}

static void finish(struct batch *b, struct course *c, CURLcode code) {
    struct gp_error one = {0};
    int r = http_transfer_end(b->h, &c->attempt, code, &one);
    b->running--;
    settle(b, c, r, &one);
}

static void start(struct batch *b, struct course *c) {
    const struct http_req *req = c->attempt.req;
    struct gp_error one = {0};
    int64_t timeout = req->timeout_ms > 0 ? req->timeout_ms : 60000;
    int64_t left = req->deadline_ms > 0 ? clock_left_ms(req->deadline_ms) : GP_NEVER;
    if (left == 0) { /* the deadline passed before its turn: the last attempt's outcome stands */
        struct gp_error last = c->out->err;
        int r = c->out->rc;
        if (c->attempts == 0) r = gp_fail(&last, GP_EENDPOINT, "%s: not sent before its deadline", req->what);
        end(b, c, r, &last);
        return;
    }
    if (b->h->min_interval_ms > 0) b->h->next_ms = clock_deadline(b->h->min_interval_ms);
    int r = http_transfer_begin(b->h, &c->attempt, b->n > 1, GP_MIN(timeout, left), &one);
    if (r == 0) b->running++;
    else settle(b, c, r, &one);
}

/* Starts the requests that are due; returns the time until the next one is. */
static int64_t start_due(struct batch *b) {
    int64_t sleep_ms = 1000;
    for (size_t i = 0; i < b->n && b->running < b->at_once; i++) {
        struct course *c = &b->all[i];
        if (c->over || c->attempt.easy != NULL) continue;
        int64_t wait = GP_MAX(c->due_ms, b->h->next_ms) - clock_ms();
        if (wait <= 0) start(b, c);
        else sleep_ms = GP_MIN(sleep_ms, wait);
    }
    return sleep_ms;
}

/* Ends what is not finished: cancelled, or too late. */
static void give_up(struct batch *b) {
    for (size_t i = 0; i < b->n; i++) {
        struct course *c = &b->all[i];
        struct gp_error one = {0};
        if (c->over) continue;
        bool running = c->attempt.easy != NULL;
        int r = running ? http_transfer_end(b->h, &c->attempt, CURLE_ABORTED_BY_CALLBACK, &one)
                        : gp_fail(&one, GP_ECANCELLED, "%s: cancelled", c->attempt.req->what);
        if (b->h->over && !gp_cancelled(b->h->cancel)) {
            gp_error_clear(&one);
            r = gp_fail(&one, GP_ETIMEOUT, "%s: not finished in time", c->attempt.req->what);
        }
        c->out->resp.attempts = c->attempts + running;
        c->out->resp.sent = c->out->resp.sent || c->sent_before;
        end(b, c, r, &one);
    }
}

/* Handles a transfer that libcurl has finished; false: none. */
static bool collect(struct batch *b) {
    int running = 0, left = 0;
    bool some = false;
    if (curl_multi_perform(b->h->multi, &running) != CURLM_OK) {
        for (size_t i = 0; i < b->n; i++)
            if (b->all[i].attempt.easy != NULL) finish(b, &b->all[i], CURLE_FAILED_INIT);
        return true;
    }
    for (CURLMsg *msg = NULL; (msg = curl_multi_info_read(b->h->multi, &left)) != NULL; some = true) {
        CURLcode code = msg->data.result;
        struct http_transfer *t = NULL;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
        finish(b, (struct course *)(void *)t, code); /* attempt is the first member */
    }
    return some;
}

static enum http_wait look(struct batch *b) {
    const struct http_watch *w = b->h->watch;
    int64_t now = clock_ms(), waited = GP_MIN(now - b->looked_ms, (int64_t)GAP_MS);
    uint64_t moved = 0;
    if (w == NULL) return HTTP_WAIT_ON;
    b->looked_ms = now;
    for (size_t i = 0; i < b->n; i++)
        if (b->all[i].attempt.easy != NULL) moved += http_transfer_moved(&b->all[i].attempt);
    return w->waited(w->ctx, waited, moved);
}

/* False: the watch ends all requests. */
static bool goes_on(struct batch *b) {
    enum http_wait next = look(b);
    b->h->over = next == HTTP_WAIT_OVER;
    for (size_t i = 0; next == HTTP_WAIT_AGAIN && i < b->n; i++)
        if (b->all[i].attempt.easy != NULL) finish(b, &b->all[i], CURLE_OPERATION_TIMEDOUT);
    return !b->h->over;
}

void http_call_many(struct http *h, const struct http_req *reqs, size_t n, size_t at_once, struct http_result *ret) {
    struct batch b = {.h = h, .n = n, .open = n, .at_once = at_once > 0 ? at_once : n, .looked_ms = clock_ms()};
    b.all = xcalloc(n + 1, sizeof *b.all);
    for (size_t i = 0; i < n; i++) {
        b.all[i].out = &ret[i];
        b.all[i].attempt.req = &reqs[i];
        b.all[i].attempt.resp = &ret[i].resp;
    }
    while (b.open > 0 && !gp_cancelled(h->cancel) && goes_on(&b)) {
        int64_t sleep_ms = start_due(&b);
        if (collect(&b)) continue;
        struct curl_waitfd extra = {.fd = h->cancel != NULL ? h->cancel->efd : -1, .events = CURL_WAIT_POLLIN};
        if (b.open > 0)
            curl_multi_poll(h->multi, h->cancel != NULL ? &extra : NULL, h->cancel != NULL ? 1 : 0, (int)sleep_ms,
                            NULL);
    }
    if (b.open == 0) (void)look(&b); /* its last wait counts too */
    give_up(&b);
    free(b.all);
}

int http_call(struct http *h, const struct http_req *req, struct http_resp *ret, struct gp_error *err) {
    struct http_result one = {.resp = *ret};
    http_call_many(h, req, 1, 1, &one);
    *ret = one.resp;
    if (one.rc != 0 && err != NULL) *err = one.err;
    return one.rc;
}

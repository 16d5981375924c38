// SPDX-License-Identifier: Apache-2.0
/* Decisions from a cloud's error table. The code counts before the HTTP status, because clouds send capacity as 500
 * and throttling as 503. */
#include "base/gp_base.h"

#include "providers/common/refusal.h"

#include "base/log.h"
#include "base/str.h"

#define MESSAGE_MAX 180 /* encoded authorization messages are very long */

static const struct cloud_error unknown = {"", GP_EPROTO, GP_SCOPE_OFFER, CLOUD_NO, ""};

static bool matches(const char *pattern, const struct cloud_said *said) {
    const char *text = strchr(pattern, '|'), *code = said->code;
    size_t n = text != NULL ? (size_t)(text - pattern) : strlen(pattern);
    if (text != NULL && strcasestr(said->message, text + 1) == NULL) return false;
    if (n == 1 && pattern[0] == '*') return true;
    bool family = n > 2 && pattern[n - 1] == '*' && (pattern[n - 2] == '.' || pattern[n - 2] == '/');
    if (family) n -= 2;
    return strncmp(pattern, code, n) == 0 && (code[n] == '\0' || (family && code[n] == pattern[n]));
}

const struct cloud_error *cloud_error_find(const struct cloud_error *rows, size_t n, const struct cloud_said *said) {
    for (size_t i = 0; i < n; i++)
        if (matches(rows[i].code, said)) return &rows[i];
    return &unknown;
}

/* The status means that the server did nothing. */
static bool turned_away(const struct http_resp *resp) {
    return resp->status == 429 || (resp->status == 503 && resp->retry_after_s >= 0);
}

static bool success(const struct http_resp *resp) { return resp->status / 100 == 2; }

enum http_verdict cloud_judge(const struct http_resp *resp, const struct cloud_error *row, bool malformed) {
    if (row != NULL) {
        if (row->class == CLOUD_SLOW) return HTTP_REFUSED;
        return row->class == CLOUD_TROUBLE ? HTTP_TROUBLE : HTTP_DONE;
    }
    if (turned_away(resp)) return HTTP_REFUSED;
    return resp->status >= 500 || (success(resp) && malformed) ? HTTP_TROUBLE : HTTP_DONE;
}

int cloud_fail(struct gp_error *err, const char *what, const struct cloud_said *said, const struct cloud_error *row) {
    enum gp_code code = row->gp == GP_OK ? GP_EPROTO : row->gp;
    /* before it is cut: services repeat the key that they refuse */
    GP_AUTO_FREE char *message = log_redacted(said->message), *own_code = log_redacted(said->code);
    size_t n = strlen(message);
    while (n > 0 && (message[n - 1] == '.' || message[n - 1] == '\n')) n--;
    n = GP_MIN(n, (size_t)MESSAGE_MAX);
    int r = gp_fail(err, code, "%s: %s%s%.*s%s%s%s%s%s", what, own_code, n > 0 ? ": " : "", (int)n, message,
                    row->advice[0] ? ": " : "", row->advice, said->request_id[0] ? " (request " : "", said->request_id,
                    said->request_id[0] ? ")" : "");
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = row->scope;
        err->retryable = row->class == CLOUD_SLOW || row->class == CLOUD_TROUBLE;
        str_put(err->detail, sizeof err->detail, own_code);
    }
    return r;
}

int cloud_fail_status(struct gp_error *err, const char *what, const struct http_resp *resp, const char *form) {
    int r = 0;
    if (resp->status == 429 || resp->status == 503)
        r = gp_fail(err, GP_ETHROTTLED, "%s: HTTP %d, still after %d tries: try again later", what, resp->status,
                    resp->attempts);
    else if (resp->status >= 300 && resp->status < 400)
        r = gp_fail(err, GP_EPROTO,
                    "%s: HTTP %d, a redirect, which is not followed: correct the "
                    "endpoint or the region",
                    what, resp->status);
    else if (!success(resp))
        r = gp_fail(err, GP_EPROTO, "%s: HTTP %d without an error code%s", what, resp->status,
                    resp->status >= 500 ? ": the service failed, try again later" : "");
    else r = gp_fail(err, GP_EPROTO, "%s: the reply is not %s: it was truncated, or the endpoint is wrong", what, form);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_REGION;
        err->retryable = resp->status >= 429;
        snprintf(err->detail, sizeof err->detail, "HTTP%d", resp->status);
    }
    return r;
}

bool cloud_outcome_open(const struct http_resp *resp, int http, const struct cloud_error *row) {
    if (!resp->sent) return false;
    if (http != 0) return true;
    if (row != NULL) return row->class == CLOUD_TROUBLE;
    if (turned_away(resp)) return false;
    return resp->status >= 500 || success(resp);
}

int cloud_to_unknown(struct gp_error *err) {
    if (err == NULL) return -GP_EUNKNOWN;
    err->code = GP_EUNKNOWN;
    err->scope = GP_SCOPE_NONE; /* it is settled before another offer is tried */
    return -GP_EUNKNOWN;
}

/* --- several regions --- */

bool regions_failed(struct regions_result *r, const struct gp_error *e) {
    r->fatal = e->code == GP_ECANCELLED || (e->code == GP_EAUTH && e->scope == GP_SCOPE_PROVIDER);
    if (!r->fatal && r->regions > 1) event_emit(r->sink, -1, NODE_PLANNED, EVENT_WARN, "offers", "%s", e->msg);
    int code = gp_exit_code(e->code), worst = gp_exit_code(r->worst.code);
    if (r->fatal || r->worst.code == GP_OK || gp_exit_worst(code, worst) != worst) r->worst = *e;
    return r->fatal;
}

int regions_end(const struct regions_result *r, bool any_offer, struct gp_error *err) {
    struct gp_error worst = r->worst;
    if (any_offer && !r->fatal) return 0;
    /* An error of this entry does not rule out others. */
    if (worst.code == GP_EUSAGE && worst.scope == GP_SCOPE_NONE) worst.scope = GP_SCOPE_OFFER;
    if (err != NULL) *err = worst;
    return -(int)worst.code;
}

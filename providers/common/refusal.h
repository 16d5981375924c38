/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a cloud's error replies: one table per cloud maps its error codes (never an HTTP status alone) to
 * our codes, scopes and retries. The decisions from a row are the same for every cloud, and so is that from the
 * failures of several regions. Pure but for the events; any thread. */
#ifndef GP_COMMON_REFUSAL_H
#define GP_COMMON_REFUSAL_H

#include "base/error.h"
#include "model/event.h"
#include "providers/http.h"

enum cloud_class {
    CLOUD_NO,      /* permanently refused: nothing was done */
    CLOUD_SLOW,    /* refused for now (throttled): nothing was done, try again */
    CLOUD_TROUBLE, /* the cloud's own error: it may have acted */
    CLOUD_STALE,   /* credentials expired: get new ones, try again once */
    CLOUD_CLOCK    /* our clock differs too much: correct it, try again once */
};

struct cloud_error {
    /* "X.*": every code that starts with "X." or is X, in the same way with '/' for '.'; "*": every code. After it
       "|TEXT": only where the message contains TEXT, in any case (Azure's OperationNotAllowed is a quota or something
       else). */
    const char *code;
    enum gp_code gp;
    enum gp_scope scope;
    enum cloud_class class;
    const char *advice; /* the next step for the user; "" when the cloud's own text has it */
};

/* The error in a reply; borrowed from the reply. */
struct cloud_said {
    const char *code, *message, *request_id; /* "" when absent; code "": not an error of the cloud */
};

/* The first row that matches, in the table's order. Never NULL: an unknown code gets a row of scope OFFER. */
const struct cloud_error *cloud_error_find(const struct cloud_error *rows, size_t n, const struct cloud_said *said);

/* For http_req.judge. row: the reply's error, NULL without one. malformed: the body is not that of a success. */
enum http_verdict cloud_judge(const struct http_resp *resp, const struct cloud_error *row, bool malformed);

/* Sets err from the row: "WHAT: CODE: MESSAGE: advice (request ID)". Returns -err->code. */
int cloud_fail(struct gp_error *err, const char *what, const struct cloud_said *said, const struct cloud_error *row);
/* The same for a reply without an error of the cloud: an HTTP status, or a success without a `form` ("JSON") body. */
int cloud_fail_status(struct gp_error *err, const char *what, const struct http_resp *resp, const char *form);

/* True if the server may have acted on a failed call. http: the result of http_call. */
bool cloud_outcome_open(const struct http_resp *resp, int http, const struct cloud_error *row);
/* A create whose outcome is unknown: the same message with -GP_EUNKNOWN. */
int cloud_to_unknown(struct gp_error *err);

/* --- provider_ops.offers where some regions have no offer --- */

struct regions_result {
    const struct event_sink *sink; /* may be NULL */
    size_t regions;                /* of several regions each failure is reported as a warning */
    struct gp_error worst;         /* zeroed */
    bool fatal;
};

/* A region failed with e. True: the other regions would fail for the same reason (cancelled, credentials refused), and
 * the loop over them ends. */
bool regions_failed(struct regions_result *r, const struct gp_error *e);
/* 0 with an offer of any region; else the worst failure (gp_exit_worst), with the scope OFFER for an error of the spec
 * that rules out nothing else. A fatal one counts in any case. Returns -err->code. */
int regions_end(const struct regions_result *r, bool any_offer, struct gp_error *err);

#endif

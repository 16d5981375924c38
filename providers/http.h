/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP through libcurl, its only user: one client per open provider, connections kept alive,
 * a deadline for every call, immediate cancellation, capped bodies, no redirects. Retries are
 * bounded, jittered and honour Retry-After. One request or many in parallel. Calls block. A client is used by
 * one thread at a time. */
#ifndef GP_PROVIDERS_HTTP_H
#define GP_PROVIDERS_HTTP_H

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

struct http;

/* Limits the waiting of all requests of a client together, credentials included. */
enum http_wait {
    HTTP_WAIT_ON,
    HTTP_WAIT_AGAIN, /* the attempts that wait have lost their replies, and are repeated as after such a loss */
    HTTP_WAIT_OVER   /* every request ends with -GP_ETIMEOUT */
};
struct http_watch {
    /* Called in the thread of the call, at least each second and at its end. waited_ms: since the last time. moved:
     * bytes of bodies that the attempts in progress have sent and received. */
    enum http_wait (*waited)(void *ctx, int64_t waited_ms, uint64_t moved);
    void *ctx;
};

struct http_options {
    const struct gp_cancel *cancel; /* may be NULL; outlives the client */
    const struct http_watch *watch; /* likewise */
    const char *ca_bundle;          /* PEM file instead of the system's; NULL or "": the system's */
    const char *ca_setting;         /* the setting of ca_bundle, for messages: "AWS_CA_BUNDLE"; NULL: there is none */
    int64_t min_interval_ms;        /* least time between the starts of two requests; 0: none */
    int64_t backoff_min_ms;         /* least time before a request is repeated; 0: chosen by the client */
};
/* The first call of the process initialises curl's global state. */
int http_open(const struct http_options *opt, struct http **ret, struct gp_error *err);
void http_close(struct http *h); /* accepts NULL */
void http_cleanup(struct http **h);
bool http_over(const struct http *h); /* the watch has ended a call */
#define GP_AUTO_HTTP GP_CLEANUP(http_cleanup)

struct http_field {
    char *name, *value;
};
struct http_fields {
    VEC_OF(struct http_field) list;
};
void http_fields_add(struct http_fields *f, const char *name, const char *value); /* copies */
const char *http_fields_get(const struct http_fields *f, const char *name);       /* any case; or NULL */
void http_fields_clear(struct http_fields *f); /* wipes values: signatures and tokens */
#define GP_AUTO_FIELDS GP_CLEANUP(http_fields_clear)

struct http_resp {
    int status;
    struct str body;
    struct http_fields headers;
    bool sent;           /* bytes of the request left this machine: the server may have acted */
    int64_t date_skew_s; /* the server's Date minus our clock */
    bool has_date;
    int64_t retry_after_s; /* -1: not given */
    int attempts;
};
void http_resp_clear(struct http_resp *r);
#define GP_AUTO_RESP GP_CLEANUP(http_resp_clear)

/* The meaning of a reply for retries. */
enum http_verdict {
    HTTP_DONE,    /* return it to the caller, whatever its status */
    HTTP_REFUSED, /* the server reports that it did nothing: retry (throttled) */
    HTTP_TROUBLE  /* a server error: it may or may not have acted */
};

struct http_req {
    const char *what;   /* for messages: "ec2 RunInstances in us-east-1" */
    const char *method; /* "GET", "HEAD", "POST", "PUT", "DELETE" */
    const char *url;
    const char *body; /* NULL: none; sent with its own Content-Length */
    size_t body_len;
    const struct http_fields *headers; /* may be NULL */
    /* Called before every attempt to add headers that depend on the time (a signature). May be NULL. */
    int (*sign)(void *ctx, struct http_fields *add, struct gp_error *err);
    /* Judges a whole reply. NULL: 429, 502, 503, 504 are trouble, else done. */
    enum http_verdict (*judge)(void *ctx, const struct http_resp *resp);
    void *ctx;
    bool repeatable;     /* may be sent again when it is unknown whether the server acted */
    bool no_proxy;       /* link-local metadata services */
    bool metadata;       /* a metadata service: http to the addresses of those is allowed too */
    int tries;           /* at most; 0: 5 */
    int64_t timeout_ms;  /* of one attempt; 0: 60 s */
    int64_t connect_ms;  /* 0: 10 s */
    int64_t deadline_ms; /* of the whole, monotonic; 0: none */
    size_t max_body;     /* 0: 32 MiB */
};

/* 0: a whole reply of any status is in ret, also one that judge rated HTTP_TROUBLE or HTTP_REFUSED at the
 * last try. Otherwise one of these; ret->sent is valid in every case:
 *   -GP_EENDPOINT  nothing was sent: DNS, refused, TLS, connect time-out, deadline; or, of a repeatable request,
 *                  every reply was lost
 *   -GP_ELOST      sent once, but the reply was lost, late or cut short
 *   -GP_EPROTO     sent, but the reply was larger than max_body or not HTTP
 *   -GP_ETIMEOUT   the client's watch ended it
 *   -GP_ECANCELLED -GP_EUSAGE (malformed URL, or http where only https is allowed) -GP_EENV (CA bundle unreadable)
 *   -GP_EAUTH      nothing was sent: a header would not be printable ASCII
 * ret is zeroed by the caller and cleared by it in every case. */
int http_call(struct http *h, const struct http_req *req, struct http_resp *ret, struct gp_error *err);

struct http_result {
    struct http_resp resp; /* zeroed by the caller and cleared by it in every case */
    int rc;                /* the result of http_call */
    struct gp_error err;   /* set where rc is not 0 */
};
/* http_call for n requests in parallel, each with its own retries, deadline, outcome and `sent`; at most at_once
 * at a time (0: all). They share connections, and one HTTP/2 connection where the server offers it. A request
 * that is not repeatable is not repeated there either. Returns when all are finished; a failure affects no other
 * request, a cancellation ends all unfinished ones. ret: n of them. */
void http_call_many(struct http *h, const struct http_req *reqs, size_t n, size_t at_once, struct http_result *ret);

/* Secrets are sent by https, and by http to this machine only or to a host that the user names (base/form.h). Every
 * request is checked; this is the same check for an endpoint that is configured, before anything is done with it.
 * what: begins the message, "aws: AWS_ENDPOINT_URL". 0 or -GP_EUSAGE. */
int http_url_check(const char *what, const char *url, struct gp_error *err);
/* Percent-encodes everything but unreserved characters (RFC 3986). */
void http_encode(struct str *out, const char *s);

#endif

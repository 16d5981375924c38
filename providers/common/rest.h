/* SPDX-License-Identifier: Apache-2.0 */
/* One call to a cloud whose replies are JSON: headers, reply, error, paging. http.c retries; new credentials and a
 * corrected clock are tried once here. The cloud gives its error rows and the way of its credentials. Calls block.
 * One thread at a time. */
#ifndef GP_COMMON_REST_H
#define GP_COMMON_REST_H

#include "base/json.h"
#include "providers/common/refusal.h"
#include "providers/provider.h"

enum rest_flags {
    REST_ONCE = 1,     /* creates something: never sent again when it is unknown whether the cloud acted; then the
                          call returns -GP_EUNKNOWN */
    REST_OPTIONAL = 2, /* one try, ten seconds: its failure is not fatal to the caller */
    REST_MISSING = 4,  /* HTTP 404 is a success too (reply.status has it) */
    REST_PUBLIC = 8    /* without credentials: token services, price lists */
};
struct rest_call {
    const char *what;   /* for messages: "google instances.insert in us-central1-a" */
    const char *method; /* "GET", "POST", "PUT", "DELETE", "PATCH" */
    const char *url;
    const char *body;                  /* NULL: none */
    const char *type;                  /* of the body; NULL: application/json */
    const struct http_fields *headers; /* further ones, may be NULL */
    unsigned flags;
    int64_t deadline_ms; /* of the whole, monotonic; 0: none */
};
struct rest_reply {
    int status;                 /* 0: no reply */
    json_t *json;               /* NULL: an empty body */
    struct http_fields headers; /* of the reply */
    char code[96];              /* the cloud's error code when the call failed */
    bool sent;
};
void rest_reply_clear(struct rest_reply *r);
#define GP_AUTO_REST GP_CLEANUP(rest_reply_clear)

/* A cloud, embedded in its open provider. All slots but `ensure` are set. */
struct rest {
    struct provider *provider; /* its clock is set by every reply */
    struct http *http;
    void *ctx;
    /* Makes the credentials usable for the next five minutes; force: new ones, the old were refused. NULL: there is
       nothing to renew. */
    int (*ensure)(void *ctx, bool force, struct gp_error *err);
    /* Adds what authorises this attempt: a token, a key, a signature of now. */
    int (*authorize)(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err);
    /* The error in a reply (json NULL: no JSON), borrowed from both; code "": none. Also of replies of status 200. */
    void (*said)(const struct http_resp *resp, const json_t *json, struct cloud_said *ret);
    const struct cloud_error *rows;
    size_t row_count;
    int64_t list_ms;           /* limit of a list with all its pages; 0: PAGE_WALK_MS */
    const char *const *hidden; /* names of members whose values are not traced (user-data, secrets); NULL ends */
};

/* 0: a reply of status 2xx (or 404 with REST_MISSING) without an error of the cloud; its body is JSON or empty.
 * Else err by the rows (refusal.h). ret: zeroed by the caller, and cleared by it in every case. */
int rest_call(struct rest *r, const struct rest_call *call, struct rest_reply *ret, struct gp_error *err);

struct rest_result {
    struct rest_reply reply; /* zeroed by the caller and cleared by it */
    int rc;
    struct gp_error err; /* set where rc is not 0 */
};
/* rest_call for n calls in parallel, at most at_once at a time (0: all). */
void rest_call_many(struct rest *r, const struct rest_call *calls, size_t n, size_t at_once, struct rest_result *ret);

/* Every page of a list: its items one by one (`items`, `each`), or each page as a whole (`page`). A list that passes a
 * limit of page_walk.h is an error. */
struct rest_list {
    const char *items; /* path of the array in a reply: "value", "Instances.Instance" */
    bool may_lack;     /* the cloud leaves an empty array out */
    /* The URL of the next page, NULL: this was the last; caller frees. url: of this page. A URL with another scheme,
       host or port is refused: it would get the credentials. Without this slot there is one page. */
    char *(*next)(const char *url, const json_t *reply);
    /* Of one item. Negative ends the list. */
    int (*each)(void *ctx, const json_t *item, struct gp_error *err);
    /* Not NULL: of one page, any JSON, for lists that are not one array. Negative ends the list. */
    int (*page)(void *ctx, const json_t *reply, struct gp_error *err);
    void *ctx; /* of each or page */
};
int rest_pages(struct rest *r, const struct rest_call *first, const struct rest_list *list, struct gp_error *err);
/* Several lists side by side: one round trip for a page of each. */
struct rest_paged {
    struct rest_call first; /* of its first page */
    struct rest_list list;
    int rc;              /* out */
    struct gp_error err; /* zeroed by the caller; set where rc is not 0 */
};
void rest_pages_many(struct rest *r, struct rest_paged *lists, size_t n);

/* Appends NAME=VALUE, percent-encoded, after '?', or '&' where the text has a '?' already. */
void rest_query(struct str *url, const char *name, const char *value);
/* The same for a form: '&' between the fields, no '?'. */
void rest_form(struct str *body, const char *name, const char *value);
/* URL with its query parameter name set to value (replaced or appended): for `next`. Caller frees. */
char *rest_with_param(const char *url, const char *name, const char *value);

#endif

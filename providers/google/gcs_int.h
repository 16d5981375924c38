/* SPDX-License-Identifier: Apache-2.0 */
/* One call to Cloud Storage and the bucket that makes it. Private to providers/google. One thread at a time. */
#ifndef GP_GOOGLE_GCS_INT_H
#define GP_GOOGLE_GCS_INT_H

#include "providers/bucket/bucket.h"
#include "providers/google/google_int.h"

struct gcs {
    struct bucket base;
    struct google g; /* credentials and clock; no project */
    char *root;      /* "https://storage.googleapis.com", without a slash at its end */
};
static inline struct gcs *gcs_of(struct bucket *b) { return (struct gcs *)b; }

struct gcs_call {
    const char *action;                /* for messages: "objects.list" */
    const char *method;                /* "GET", "POST", "PUT" */
    const char *url;                   /* below root: it gets the token */
    const char *type;                  /* of the body; NULL: application/octet-stream */
    const struct http_fields *headers; /* further ones; NULL */
    const void *body;                  /* NULL: none */
    size_t body_len, max_body;         /* max_body: of the reply; 0: that of lists */
    bool once;                         /* not repeated: the caller asks first what has arrived */
};
/* 0: a reply of status 2xx, or 308 of an upload, is in resp, which the caller clears in every case. New credentials are
 * tried once. */
int gcs_call(struct gcs *s, const struct gcs_call *call, struct http_resp *resp, struct gp_error *err);
/* The same for a reply that is JSON. *ret: caller frees. */
int gcs_json(struct gcs *s, const struct gcs_call *call, json_t **ret, struct gp_error *err);
/* "ROOT/storage/v1/b/BUCKET" and the rest; key: NULL, or of "/o/KEY". Caller frees. */
char *gcs_url(const struct gcs *s, const char *key, const char *query);

/* gcs_put.c */
int gcs_put(struct bucket *b, const struct bucket_put *req, struct gp_error *err);

#endif

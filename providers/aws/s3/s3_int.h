/* SPDX-License-Identifier: Apache-2.0 */
/* One call to S3 and the bucket that makes it. Private to providers/aws. One thread at a time. */
#ifndef GP_AWS_S3_INT_H
#define GP_AWS_S3_INT_H

#include "providers/aws/aws_int.h"
#include "providers/bucket/bucket.h"

struct s3 {
    struct bucket base;
    struct aws a;      /* configuration, credentials, clock; no account and no cache */
    char *region;      /* of the bucket, as far as known */
    char *endpoint;    /* the user's own, without a slash at its end; NULL: AWS */
    bool region_found; /* the store has named it */
};
static inline struct s3 *s3_of(struct bucket *b) { return (struct s3 *)b; }

struct s3_call {
    const char *action;                /* for messages: "PutObject" */
    const char *method;                /* "GET", "HEAD", "PUT", "POST", "DELETE" */
    const char *key;                   /* NULL: the bucket itself */
    const char *query;                 /* encoded; NULL: none */
    const char *range;                 /* "bytes=0-9"; NULL */
    const char *etag;                  /* the version to read; NULL: any */
    const struct http_fields *headers; /* further ones; NULL */
    const void *body;                  /* NULL: none */
    size_t body_len;
    size_t max_body; /* of the reply; 0: that of lists */
    bool quick;      /* a request without a body that is sent while something has failed: half a minute in all */
};
/* 0: a reply of status 2xx without an error is in resp, which the caller clears in every case. A redirect to the
 * bucket's region, new credentials and a corrected clock are tried once each. Every call may be repeated. */
int s3_call(struct s3 *s, const struct s3_call *call, struct http_resp *resp, struct gp_error *err);
/* The error in a reply; borrowed from xml. status: of a reply without a body (HEAD). */
void s3_said(int status, const struct xml_node *xml, struct cloud_said *ret);
/* The row of an error code: S3's own first. Never NULL. */
const struct cloud_error *s3_error_row(const char *code);
/* "https://BUCKET.s3.eu-west-1.amazonaws.com/KEY", or path style with an own endpoint or a bucket with dots. *ret_host:
 * with its port. *ret_path: decoded, as it is signed. Callers free. -GP_EUSAGE: the endpoint is no URL. */
int s3_address(const struct s3 *s, const char *key, char **ret_url, char **ret_host, char **ret_path,
               struct gp_error *err);

/* s3_put.c */
int s3_put(struct bucket *b, const struct bucket_put *req, struct gp_error *err);
/* Begins an upload of key in parts; caller frees *ret_id. sha256: stored with the object; NULL: nothing. */
int s3_upload_begin(struct s3 *s, const char *key, const char *sha256, char **ret_id, struct gp_error *err);
int s3_abandon(struct bucket *b, const char *note, struct gp_error *err);
/* Gives it up; the parts are removed. Not ended by cancellation. */
int s3_upload_abort(struct s3 *s, const char *key, const char *id, struct gp_error *err);
/* s3.c */
int s3_stat(struct bucket *b, struct bucket_object *o, struct gp_error *err);

#endif

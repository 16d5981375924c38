/* SPDX-License-Identifier: Apache-2.0 */
/* AWS Signature Version 4, header form. Pure functions: no clock, no network. */
#ifndef GP_AWS_SIGV4_H
#define GP_AWS_SIGV4_H

#include "base/error.h"
#include "base/secret.h"
#include "base/str.h"
#include "providers/http.h"

struct sigv4_req {
    const char *method;
    const char *path;                  /* as it stands in the request line, before '?'; "" means "/" */
    const char *query;                 /* after '?'; "" or NULL: none */
    const struct http_fields *headers; /* all of them are signed; host and x-amz-date must be there */
    const char *body;
    size_t body_len;
    const char *body_sha256; /* 64 hex digits; NULL: computed from the body */
    const char *region, *service;
    const char *date; /* the value of x-amz-date: "20260102T030405Z" */
    bool raw_path;    /* S3: no normalisation of the path, encoded once */
};

/* The three stages, each a function of the one before; tests read all of them. */
void sigv4_canonical(const struct sigv4_req *r, struct str *out);
void sigv4_string_to_sign(const struct sigv4_req *r, const char *canonical, struct str *out);
void sigv4_signed_headers(const struct sigv4_req *r, struct str *out);
/* hex: 65 bytes. Fails only when OpenSSL has no SHA-256. */
int sigv4_signature(const struct sigv4_req *r, const char *string_to_sign, const struct secret *secret_key,
                    char hex[65], struct gp_error *err);
/* The whole value of the Authorization header, appended to out. */
int sigv4_authorization(const struct sigv4_req *r, const char *access_key_id, const struct secret *secret_key,
                        struct str *out, struct gp_error *err);

#endif

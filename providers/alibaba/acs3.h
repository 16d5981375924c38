/* SPDX-License-Identifier: Apache-2.0 */
/* ACS3-HMAC-SHA256, the signature of Alibaba Cloud's API gateways (version 3). Pure; any thread. */
#ifndef GP_ALIBABA_ACS3_H
#define GP_ALIBABA_ACS3_H

#include "base/secret.h"
#include "providers/http.h"

struct acs3_req {
    const char *method;
    const char *path;                  /* "" counts as "/" */
    const char *query;                 /* percent-encoded, in any order; NULL: none */
    const struct http_fields *headers; /* all of them are signed; one that comes twice is joined by a comma */
    const char *payload_hash;          /* of the body: 64 hex digits */
};
void acs3_canonical(const struct acs3_req *r, struct str *out);
void acs3_string_to_sign(const struct acs3_req *r, struct str *out);
void acs3_signature(const struct acs3_req *r, const struct secret *key, char ret_hex[65]);
/* The value of the header Authorization. */
void acs3_authorization(const struct acs3_req *r, const char *key_id, const struct secret *key, struct str *out);

#endif

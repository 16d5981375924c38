// SPDX-License-Identifier: Apache-2.0
/* The signature of a request (acs3.h): a hash of its canonical form, signed with the secret itself. No derived key, no
 * region, and so one signature form for every service. */
#include "base/gp_base.h"

#include "providers/alibaba/acs3.h"

#include "base/hash.h"

#include <ctype.h>

#define ALGORITHM "ACS3-HMAC-SHA256"
#define BLOCK 64 /* of SHA-256, for HMAC */

static int compare_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The parameters in the order of their names. '=' must sort before every other character of a name. */
static void canonical_query(const char *query, struct str *out) {
    GP_AUTO_STRV struct strv pairs = {0};
    if (query == NULL) return;
    strv_split(&pairs, query, "&");
    for (size_t i = 0; i < pairs.n; i++) {
        char *mark = strchr(pairs.v[i], '=');
        if (mark != NULL) *mark = '\x01';
    }
    if (pairs.n > 1) qsort(pairs.v, pairs.n, sizeof *pairs.v, compare_text);
    for (size_t i = 0; i < pairs.n; i++) {
        char *mark = strchr(pairs.v[i], '\x01');
        if (mark != NULL) *mark = '=';
        str_addf(out, "%s%s%s", i > 0 ? "&" : "", pairs.v[i], mark == NULL ? "=" : "");
    }
}

static char *lower(const char *name) {
    char *s = xstrdup(name);
    for (char *c = s; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
    return s;
}

/* Lower-case names, each once, sorted. */
static void header_names(const struct acs3_req *r, struct strv *out) {
    for (size_t i = 0; i < r->headers->list.len; i++) {
        GP_AUTO_FREE char *name = lower(r->headers->list.items[i].name);
        if (!strv_has(out, name)) strv_add(out, name);
    }
    if (out->n > 1) qsort(out->v, out->n, sizeof *out->v, compare_text);
}

static void add_header(const struct acs3_req *r, const char *name, struct str *out) {
    bool first = true;
    str_addf(out, "%s:", name);
    for (size_t i = 0; i < r->headers->list.len; i++) {
        GP_AUTO_FREE char *one = lower(r->headers->list.items[i].name);
        if (strcmp(one, name) != 0) continue;
        GP_AUTO_FREE char *value = xstrdup(r->headers->list.items[i].value);
        str_addf(out, "%s%s", first ? "" : ",", str_trim(value));
        first = false;
    }
    str_addc(out, '\n');
}

void acs3_canonical(const struct acs3_req *r, struct str *out) {
    GP_AUTO_STRV struct strv names = {0};
    header_names(r, &names);
    str_addf(out, "%s\n%s\n", r->method, r->path[0] != '\0' ? r->path : "/");
    canonical_query(r->query, out);
    str_addc(out, '\n');
    for (size_t i = 0; i < names.n; i++) add_header(r, names.v[i], out);
    GP_AUTO_FREE char *joined = strv_join(&names, ";");
    str_addf(out, "\n%s\n%s", joined, r->payload_hash);
}

void acs3_string_to_sign(const struct acs3_req *r, struct str *out) {
    GP_AUTO_STR struct str canonical = {0};
    char hex[65];
    acs3_canonical(r, &canonical);
    sha256_hex(canonical.s, canonical.len, hex);
    str_addf(out, ALGORITHM "\n%s", hex);
}

/* HMAC-SHA256 (RFC 2104) in hex. */
static void hmac_hex(const struct secret *key, const char *text, size_t n, char ret[65]) {
    unsigned char block[BLOCK] = {0}, inner[SHA256_BYTES];
    GP_AUTO_STR struct str message = {0};
    if (key->len > BLOCK) sha256_bytes(secret_reveal(key), key->len, block);
    else memcpy(block, secret_reveal(key), key->len);
    for (size_t i = 0; i < BLOCK; i++) block[i] ^= 0x36;
    str_add_mem(&message, block, BLOCK);
    str_add_mem(&message, text, n);
    sha256_bytes(message.s, message.len, inner);
    explicit_bzero(message.s, message.len);
    str_reset(&message);
    for (size_t i = 0; i < BLOCK; i++) block[i] ^= 0x36 ^ 0x5c;
    str_add_mem(&message, block, BLOCK);
    str_add_mem(&message, inner, sizeof inner);
    sha256_hex(message.s, message.len, ret);
    explicit_bzero(message.s, message.len);
    explicit_bzero(block, sizeof block);
}

void acs3_signature(const struct acs3_req *r, const struct secret *key, char ret_hex[65]) {
    GP_AUTO_STR struct str text = {0};
    acs3_string_to_sign(r, &text);
    hmac_hex(key, text.s, text.len, ret_hex);
}

void acs3_authorization(const struct acs3_req *r, const char *key_id, const struct secret *key, struct str *out) {
    GP_AUTO_STRV struct strv names = {0};
    char hex[65];
    header_names(r, &names);
    GP_AUTO_FREE char *joined = strv_join(&names, ";");
    acs3_signature(r, key, hex);
    str_addf(out, ALGORITHM " Credential=%s,SignedHeaders=%s,Signature=%s", key_id, joined, hex);
}

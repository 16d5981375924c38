// SPDX-License-Identifier: Apache-2.0
/* AWS Signature Version 4 with OpenSSL's SHA-256 and HMAC. Header form only (no presigned URLs, no
 * chunked bodies). Pure; any thread. */
#include "base/gp_base.h"

#include "providers/aws/sigv4.h"

#include "base/hash.h"
#include "base/vec.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <strings.h>

#define ALGORITHM "AWS4-HMAC-SHA256"

static int compare_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Encodes for a canonical query; an existing %XX stays one character. */
static void encode_query_part(struct str *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char one[2] = {s[i], '\0'};
        if (s[i] == '%' && i + 2 < n && hex_value(s[i + 1]) >= 0 && hex_value(s[i + 2]) >= 0) {
            one[0] = (char)(hex_value(s[i + 1]) * 16 + hex_value(s[i + 2]));
            i += 2;
        } else if (s[i] == '+') {
            one[0] = ' ';
        }
        if (one[0] == '\0') str_add(out, "%00");
        else http_encode(out, one);
    }
}

static void canonical_query(const char *query, struct str *out) {
    if (query == NULL || query[0] == '\0') return;
    GP_AUTO_STRV struct strv pairs = {0};
    GP_AUTO_STRV struct strv parts = {0};
    strv_split(&parts, query, "&");
    for (size_t i = 0; i < parts.n; i++) {
        const char *part = parts.v[i];
        size_t name = strcspn(part, "=");
        struct str pair = {0};
        encode_query_part(&pair, part, name);
        str_addc(&pair, '\x01'); /* sorts before every character that a name may have */
        if (part[name] == '=') encode_query_part(&pair, part + name + 1, strlen(part + name + 1));
        strv_take(&pairs, str_steal(&pair));
    }
    if (pairs.n > 1) qsort(pairs.v, pairs.n, sizeof *pairs.v, compare_text);
    for (size_t i = 0; i < pairs.n; i++) {
        char *mark = strchr(pairs.v[i], '\x01');
        if (mark != NULL) *mark = '=';
        str_addf(out, "%s%s", i > 0 ? "&" : "", pairs.v[i]);
    }
}

/* "/a/./b/../c//d/" to "/a/c/d/". */
static void normalise_path(const char *path, struct str *out) {
    GP_AUTO_STRV struct strv parts = {0};
    GP_AUTO_STRV struct strv kept = {0};
    strv_split(&parts, path, "/");
    for (size_t i = 0; i < parts.n; i++) {
        if (strcmp(parts.v[i], ".") == 0) continue;
        if (strcmp(parts.v[i], "..") == 0) {
            if (kept.n > 0) free(kept.v[--kept.n]);
            if (kept.v != NULL) kept.v[kept.n] = NULL;
            continue;
        }
        strv_add(&kept, parts.v[i]);
    }
    for (size_t i = 0; i < kept.n; i++) str_addf(out, "/%s", kept.v[i]);
    size_t n = strlen(path);
    if (out->len == 0 || (n > 1 && path[n - 1] == '/' && kept.n > 0)) str_addc(out, '/');
}

static void canonical_path(const struct sigv4_req *r, struct str *out) {
    GP_AUTO_STR struct str plain = {0};
    const char *path = r->path == NULL || r->path[0] == '\0' ? "/" : r->path;
    if (r->raw_path) str_add(&plain, path);
    else normalise_path(path, &plain);
    for (const char *p = plain.s; *p != '\0'; p++) {
        char one[2] = {*p, '\0'};
        if (*p == '/') str_addc(out, '/');
        else http_encode(out, one);
    }
}

/* Lower-case names, each once, sorted. */
static void header_names(const struct sigv4_req *r, struct strv *out) {
    for (size_t i = 0; i < r->headers->list.len; i++) {
        GP_AUTO_FREE char *name = xstrdup(r->headers->list.items[i].name);
        for (char *c = name; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
        if (!strv_has(out, name)) strv_add(out, name);
    }
    if (out->n > 1) qsort(out->v, out->n, sizeof *out->v, compare_text);
}

/* A field's value with runs of blanks (and folded lines) as one space, none at the ends. */
static void add_squeezed(struct str *out, const char *value) {
    bool blank = false, first = true;
    for (; *value != '\0'; value++) {
        if (isspace((unsigned char)*value)) {
            blank = true;
            continue;
        }
        if (blank && !first) str_addc(out, ' ');
        str_addc(out, *value);
        blank = first = false;
    }
}

void sigv4_signed_headers(const struct sigv4_req *r, struct str *out) {
    GP_AUTO_STRV struct strv names = {0};
    header_names(r, &names);
    for (size_t i = 0; i < names.n; i++) str_addf(out, "%s%s", i > 0 ? ";" : "", names.v[i]);
}

void sigv4_canonical(const struct sigv4_req *r, struct str *out) {
    GP_AUTO_STRV struct strv names = {0};
    str_addf(out, "%s\n", r->method);
    canonical_path(r, out);
    str_addc(out, '\n');
    canonical_query(r->query, out);
    str_addc(out, '\n');
    header_names(r, &names);
    for (size_t i = 0; i < names.n; i++) {
        bool first = true;
        str_addf(out, "%s:", names.v[i]);
        for (size_t k = 0; k < r->headers->list.len; k++) {
            if (strcasecmp(r->headers->list.items[k].name, names.v[i]) != 0) continue;
            if (!first) str_addc(out, ',');
            add_squeezed(out, r->headers->list.items[k].value);
            first = false;
        }
        str_addc(out, '\n');
    }
    str_addc(out, '\n');
    sigv4_signed_headers(r, out);
    char hash[65];
    if (r->body_sha256 != NULL) str_put(hash, sizeof hash, r->body_sha256);
    else sha256_hex(r->body != NULL ? r->body : "", r->body_len, hash);
    str_addf(out, "\n%s", hash);
}

static void add_scope(const struct sigv4_req *r, struct str *out) {
    str_addf(out, "%.8s/%s/%s/aws4_request", r->date, r->region, r->service);
}

void sigv4_string_to_sign(const struct sigv4_req *r, const char *canonical, struct str *out) {
    char hash[65];
    sha256_hex(canonical, strlen(canonical), hash);
    str_addf(out, ALGORITHM "\n%s\n", r->date);
    add_scope(r, out);
    str_addf(out, "\n%s", hash);
}

static bool hmac(const void *key, size_t key_len, const char *text, unsigned char out[32]) {
    unsigned len = 0;
    return HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), out, &len) != NULL &&
           len == 32;
}

int sigv4_signature(const struct sigv4_req *r, const char *string_to_sign, const struct secret *secret_key,
                    char hex[65], struct gp_error *err) {
    GP_AUTO_STR struct str start = {0};
    unsigned char k[32], next[32];
    char date[9] = {0};
    str_put(date, sizeof date, r->date);
    str_addf(&start, "AWS4%s", secret_reveal(secret_key));
    const char *const steps[] = {r->region, r->service, "aws4_request", string_to_sign};
    bool ok = hmac(start.s, start.len, date, k);
    explicit_bzero(start.s, start.len);
    for (size_t i = 0; ok && i < GP_ARRAY_LEN(steps); i++) {
        ok = hmac(k, sizeof k, steps[i], next);
        memcpy(k, next, sizeof k);
    }
    if (ok) str_hex(hex, k, sizeof k);
    explicit_bzero(k, sizeof k);
    explicit_bzero(next, sizeof next);
    return ok ? 0 : gp_fail(err, GP_EENV, "this OpenSSL could not compute HMAC-SHA256");
}

int sigv4_authorization(const struct sigv4_req *r, const char *access_key_id, const struct secret *secret_key,
                        struct str *out, struct gp_error *err) {
    GP_AUTO_STR struct str canonical = {0};
    GP_AUTO_STR struct str to_sign = {0};
    char hex[65];
    sigv4_canonical(r, &canonical);
    sigv4_string_to_sign(r, canonical.s, &to_sign);
    int e = sigv4_signature(r, to_sign.s, secret_key, hex, err);
    if (e != 0) return e;
    str_addf(out, ALGORITHM " Credential=%s/", access_key_id);
    add_scope(r, out);
    str_add(out, ", SignedHeaders=");
    sigv4_signed_headers(r, out);
    str_addf(out, ", Signature=%s", hex);
    return 0;
}

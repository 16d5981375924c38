// SPDX-License-Identifier: Apache-2.0
/* RS256 through OpenSSL. */
#include "base/gp_base.h"

#include "providers/common/jwt.h"

#include "base/hash.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

void base64url(struct str *out, const void *data, size_t n) {
    GP_AUTO_FREE char *text = base64_text(data, n);
    for (const char *p = text; *p != '\0' && *p != '='; p++) str_addc(out, *p == '+' ? '-' : *p == '/' ? '_' : *p);
}

static void add_json(struct str *out, const json_t *j) {
    GP_AUTO_FREE char *text = json_text_exact(j, 0);
    base64url(out, text, strlen(text));
}

/* A key with a pass phrase is refused, not asked for. */
static int no_phrase(char *buf, int size, int writing, void *ctx) {
    (void)buf, (void)size, (void)writing, (void)ctx;
    return -1;
}

static EVP_PKEY *load(const struct secret *pem) {
    BIO *text = BIO_new_mem_buf(secret_reveal(pem), (int)pem->len);
    EVP_PKEY *key = text != NULL ? PEM_read_bio_PrivateKey(text, NULL, no_phrase, NULL) : NULL;
    BIO_free(text);
    if (key == NULL || EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA) return key;
    EVP_PKEY_free(key);
    return NULL;
}

/* False: OpenSSL failed. */
static bool sign(EVP_PKEY *key, const struct str *text, struct str *out) {
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t n = (size_t)EVP_PKEY_get_size(key);
    unsigned char *sig = xcalloc(n + 1, 1);
    bool ok = ctx != NULL && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
              EVP_DigestSign(ctx, sig, &n, (const unsigned char *)text->s, text->len) == 1;
    if (ok) base64url(out, sig, n);
    free(sig);
    EVP_MD_CTX_free(ctx);
    return ok;
}

int jwt_rs256(const struct secret *key, json_t *header, const json_t *claims, struct secret *ret,
              struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STR struct str sig = {0};
    GP_AUTO_JSON json_t *whole = json_pack("{s:s,s:s}", "alg", "RS256", "typ", "JWT");
    EVP_PKEY *rsa = load(key);
    if (rsa == NULL) return gp_fail(err, GP_EAUTH, "not a private RSA key in PEM form without a pass phrase");
    if (header != NULL) json_object_update(whole, header);
    add_json(&text, whole);
    str_addc(&text, '.');
    add_json(&text, claims);
    bool ok = sign(rsa, &text, &sig);
    EVP_PKEY_free(rsa);
    if (!ok) return gp_fail(err, GP_EINTERNAL, "OpenSSL cannot sign with this RSA key");
    str_addc(&text, '.');
    str_add(&text, sig.s);
    secret_set(ret, text.s, text.len);
    memset(text.s, 0, text.len);
    return 0;
}

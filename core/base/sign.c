/* SPDX-License-Identifier: Apache-2.0 */
/* Ed25519 through OpenSSL: make, load, sign, check; the key file of a folder. Keeps no key beyond the call and its
 * struct. Any thread. */
#include "base/gp_base.h"

#include "base/sign.h"

#include "base/fs.h"
#include "base/hash.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

enum { DER_BYTES = 44 }; /* SubjectPublicKeyInfo of Ed25519: always that long */

static void pkey_cleanup(EVP_PKEY **k) { EVP_PKEY_free(*k); }
static void bio_cleanup(BIO **b) { BIO_free(*b); }
static void ctx_cleanup(EVP_MD_CTX **c) { EVP_MD_CTX_free(*c); }

static bool public_of(EVP_PKEY *key, struct sign_public *ret) {
    unsigned char *der = NULL;
    int n = key != NULL && EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? i2d_PUBKEY(key, &der) : -1;
    bool ok = n == DER_BYTES;
    if (ok) {
        unsigned char hash[SHA256_BYTES];
        sha256_bytes(der, (size_t)n, hash);
        GP_AUTO_FREE char *body = base64_text(der, (size_t)n), *sum = base64_text(hash, sizeof hash);
        str_put(ret->base64, sizeof ret->base64, body);
        snprintf(ret->fingerprint, sizeof ret->fingerprint, "SHA256:%.43s", sum);
    }
    OPENSSL_free(der);
    return ok;
}

static EVP_PKEY *public_key(const struct sign_public *pub) {
    GP_AUTO_STR struct str der = {0};
    if (!base64_bytes(pub->base64, strlen(pub->base64), &der) || der.len != DER_BYTES) return NULL;
    const unsigned char *p = (const unsigned char *)der.s;
    return d2i_PUBKEY(NULL, &p, (long)der.len);
}

static EVP_PKEY *private_key(const char *pem, size_t n) {
    GP_CLEANUP(bio_cleanup) BIO *in = BIO_new_mem_buf(pem, (int)n);
    /* "" as pass phrase: never asks a terminal */
    static char nothing[] = "";
    return in != NULL ? PEM_read_bio_PrivateKey(in, NULL, NULL, nothing) : NULL;
}

int sign_key_make(struct sign_key *ret, struct gp_error *err) {
    GP_CLEANUP(pkey_cleanup) EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    GP_CLEANUP(bio_cleanup) BIO *out = BIO_new(BIO_s_secmem());
    char *text = NULL;
    struct sign_public pub = {0};
    bool ok = key != NULL && out != NULL && public_of(key, &pub) &&
              PEM_write_bio_PKCS8PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1;
    long n = ok ? BIO_get_mem_data(out, &text) : 0;
    if (n <= 0) return gp_fail(err, GP_EINTERNAL, "OpenSSL could not create an Ed25519 key");
    ret->pub = pub;
    secret_set(&ret->pem, text, (size_t)n);
    return 0;
}

int sign_key_load(const char *pem, size_t n, struct sign_key *ret, struct gp_error *err) {
    GP_CLEANUP(pkey_cleanup) EVP_PKEY *key = private_key(pem, n);
    struct sign_public pub = {0};
    if (!public_of(key, &pub)) return gp_fail(err, GP_EUSAGE, "not an Ed25519 private key without a pass phrase");
    ret->pub = pub;
    secret_set(&ret->pem, pem, n);
    return 0;
}

void sign_key_clear(struct sign_key *k) {
    secret_clear(&k->pem);
    *k = (struct sign_key){0};
}

char *sign_public_pem(const struct sign_public *pub) {
    return xasprintf("-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n", pub->base64);
}

bool sign_public_parse(const char *text, struct sign_public *ret) {
    static const char head[] = "-----BEGIN PUBLIC KEY-----";
    const char *at = strstr(text, head);
    at = at != NULL ? at + sizeof head - 1 : text;
    at += strspn(at, " \t\r\n");
    struct sign_public bare = {0};
    size_t n = strcspn(at, " \t\r\n-");
    if (n >= sizeof bare.base64) return false;
    memcpy(bare.base64, at, n);
    GP_CLEANUP(pkey_cleanup) EVP_PKEY *key = public_key(&bare);
    return public_of(key, ret);
}

int sign_data(const struct sign_key *key, const void *data, size_t n, unsigned char ret[SIGN_BYTES],
              struct gp_error *err) {
    GP_CLEANUP(pkey_cleanup) EVP_PKEY *pkey = private_key(secret_reveal(&key->pem), key->pem.len);
    GP_CLEANUP(ctx_cleanup) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t len = SIGN_BYTES;
    bool ok = pkey != NULL && ctx != NULL && EVP_DigestSignInit(ctx, NULL, NULL, NULL, pkey) == 1 &&
              EVP_DigestSign(ctx, ret, &len, data, n) == 1 && len == SIGN_BYTES;
    return ok ? 0 : gp_fail(err, GP_EINTERNAL, "OpenSSL could not sign");
}

bool sign_holds(const struct sign_public *pub, const void *data, size_t n, const unsigned char *sig, size_t sig_n) {
    GP_CLEANUP(pkey_cleanup) EVP_PKEY *pkey = public_key(pub);
    GP_CLEANUP(ctx_cleanup) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    return pkey != NULL && ctx != NULL && sig_n == SIGN_BYTES &&
           EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1 && EVP_DigestVerify(ctx, sig, sig_n, data, n) == 1;
}

/* --- the key of a folder --- */

static int load_file(const char *path, struct sign_key *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int r = fs_read(path, 65536, &text, err);
    if (r == 0) r = sign_key_load(text.s != NULL ? text.s : "", text.len, ret, err);
    if (text.s != NULL) explicit_bzero(text.s, text.len);
    return r == 0 ? 0 : gp_wrap(err, "the signing key '%s'", path);
}

static int write_public(const char *pub_path, const struct sign_key *key, struct gp_error *err) {
    GP_AUTO_FREE char *pub = sign_public_pem(&key->pub);
    return fs_write_atomic(pub_path, pub, strlen(pub), 0644, err);
}

/* The public half is written first: a private key on disk always has its public one beside it. The first of two
 * processes wins, because signatures of a key that was replaced would no longer count. */
static int make_key(const char *path, const char *pub_path, struct sign_key *ret, struct gp_error *err) {
    GP_AUTO_SIGN_KEY struct sign_key mine = {0};
    GP_AUTO_FREE char *draft = xasprintf("%s.%ld", path, (long)getpid());
    int r = sign_key_make(&mine, err);
    if (r == 0) r = write_public(pub_path, &mine, err);
    if (r == 0) r = fs_write_atomic(draft, secret_reveal(&mine.pem), mine.pem.len, 0600, err);
    if (r != 0) return r;
    int failed = link(draft, path) == 0 ? 0 : errno;
    unlink(draft);
    if (failed != 0 && failed != EEXIST)
        return gp_fail_errno(err, GP_EIO, failed, "could not make the signing key '%s'", path);
    r = load_file(path, ret, err);
    return r == 0 && failed == EEXIST ? write_public(pub_path, ret, err) : r;
}

int sign_key_of_folder(const char *dir, bool make, struct sign_key *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, "signing_key"), *pub_path = fs_join(dir, "signing_key.pub");
    if (fs_exists(path)) return load_file(path, ret, err);
    if (!make) return gp_fail(err, GP_ENOTFOUND, "there is no signing key '%s'", path);
    return make_key(path, pub_path, ret, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Signing with a private key by OpenSSL: unencrypted keys in OpenSSH's form and in PEM; ed25519,
 * ECDSA, and RSA with SHA-2. Does not check whether a key may be used (keyfile.c does).
 * Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>

#define SIG_MAX 2048

struct piece {
    const unsigned char *p;
    size_t n;
};

bool ssh_openssh_key_body(const struct secret *pem, struct str *raw, const unsigned char **ret_p,
                          const unsigned char **ret_end) {
    static const char begin[] = "-----BEGIN OPENSSH PRIVATE KEY-----", magic[] = "openssh-key-v1";
    const char *start = strstr(secret_reveal(pem), begin);
    if (start == NULL) return false;
    start += sizeof begin - 1;
    const char *end = strstr(start, "-----END");
    if (end == NULL || !ssh_unbase64(start, (size_t)(end - start), raw)) return false;
    if (raw->len <= sizeof magic || memcmp(raw->s, magic, sizeof magic) != 0) return false;
    *ret_p = (const unsigned char *)raw->s + sizeof magic;
    *ret_end = (const unsigned char *)raw->s + raw->len;
    return true;
}

static EVP_PKEY *from_params(const char *type, OSSL_PARAM_BLD *build) {
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *key = NULL;
    if (params == NULL || ctx == NULL || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return key;
}

static EVP_PKEY *from_ecdsa(const struct piece *f) {
    char curve[32] = "";
    if (f[0].n >= sizeof curve) return NULL;
    memcpy(curve, f[0].p, f[0].n);
    const char *group = strcmp(curve, "nistp256") == 0   ? "prime256v1"
                        : strcmp(curve, "nistp384") == 0 ? "secp384r1"
                        : strcmp(curve, "nistp521") == 0 ? "secp521r1"
                                                         : NULL;
    if (group == NULL) return NULL;
    BIGNUM *d = BN_bin2bn(f[2].p, (int)f[2].n, NULL);
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    EVP_PKEY *key = NULL;
    if (d != NULL && b != NULL && OSSL_PARAM_BLD_push_utf8_string(b, OSSL_PKEY_PARAM_GROUP_NAME, group, 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(b, OSSL_PKEY_PARAM_PUB_KEY, f[1].p, f[1].n) == 1 &&
        OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_PRIV_KEY, d) == 1)
        key = from_params("EC", b);
    OSSL_PARAM_BLD_free(b);
    BN_clear_free(d);
    return key;
}

static EVP_PKEY *from_rsa(const struct piece *f) {
    static const char *const names[] = {OSSL_PKEY_PARAM_RSA_N, OSSL_PKEY_PARAM_RSA_E, OSSL_PKEY_PARAM_RSA_D};
    BIGNUM *n[3] = {NULL, NULL, NULL};
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    bool ok = b != NULL;
    for (size_t i = 0; i < 3; i++) {
        n[i] = BN_bin2bn(f[i].p, (int)f[i].n, NULL);
        ok = ok && n[i] != NULL && OSSL_PARAM_BLD_push_BN(b, names[i], n[i]) == 1;
    }
    EVP_PKEY *key = ok ? from_params("RSA", b) : NULL;
    OSSL_PARAM_BLD_free(b);
    for (size_t i = 0; i < 3; i++) BN_clear_free(n[i]);
    return key;
}

/* The private section: two check numbers, the type, the fields of the type, a comment. */
static EVP_PKEY *from_private_section(const unsigned char *p, const unsigned char *end) {
    uint32_t check1 = 0, check2 = 0;
    struct piece type = {0}, f[3] = {{0}};
    if (!ssh_read_u32(&p, end, &check1) || !ssh_read_u32(&p, end, &check2) || check1 != check2 ||
        !ssh_read_string(&p, end, &type.p, &type.n))
        return NULL;
    for (size_t i = 0; i < 3; i++)
        if (!ssh_read_string(&p, end, &f[i].p, &f[i].n)) return NULL;
    if (type.n == 11 && memcmp(type.p, "ssh-ed25519", 11) == 0)
        return f[1].n == 64 ? EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, f[1].p, 32) : NULL;
    if (type.n == 7 && memcmp(type.p, "ssh-rsa", 7) == 0) return from_rsa(f);
    return from_ecdsa(f);
}

static EVP_PKEY *from_openssh(const struct secret *pem) {
    GP_AUTO_STR struct str raw = {0};
    const unsigned char *p = NULL, *end = NULL;
    struct piece skipped[4] = {{0}}, section = {0};
    uint32_t keys = 0;
    bool ok = ssh_openssh_key_body(pem, &raw, &p, &end);
    for (size_t i = 0; i < 3 && ok; i++) ok = ssh_read_string(&p, end, &skipped[i].p, &skipped[i].n);
    ok = ok && ssh_read_u32(&p, end, &keys) && ssh_read_string(&p, end, &skipped[3].p, &skipped[3].n) &&
         ssh_read_string(&p, end, &section.p, &section.n);
    EVP_PKEY *key = ok ? from_private_section(section.p, section.p + section.n) : NULL;
    if (raw.s != NULL) explicit_bzero(raw.s, raw.len);
    return key;
}

static int no_passphrase(char *buf, int size, int writing, void *ctx) {
    (void)buf;
    (void)size;
    (void)writing;
    (void)ctx;
    return -1;
}

int ssh_signer_load(const char *name, const struct secret *pem, struct ssh_signer *ret, struct gp_error *err) {
    EVP_PKEY *key = from_openssh(pem);
    if (key == NULL) {
        BIO *bio = BIO_new_mem_buf(secret_reveal(pem), (int)pem->len);
        if (bio != NULL) key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
        BIO_free(bio);
    }
    ERR_clear_error();
    if (key == NULL)
        return ssh_fail_detail(err, GP_EAUTH, "KEY", "%s is damaged: its private half cannot be read", name);
    ret->key = key;
    return 0;
}

void ssh_signer_clear(struct ssh_signer *g) {
    EVP_PKEY_free(g->key);
    g->key = NULL;
}

/* The signed data: session id, code, user, service, "publickey", true, NAME, key. */
bool ssh_sign_algorithm(const unsigned char *data, size_t n, char *dst, size_t dst_n) {
    const unsigned char *p = data, *end = data + n, *s = NULL;
    size_t len = 0;
    if (!ssh_read_string(&p, end, &s, &len) || p++ >= end) return false;
    for (int i = 0; i < 3; i++)
        if (!ssh_read_string(&p, end, &s, &len)) return false;
    if (p++ >= end || !ssh_read_string(&p, end, &s, &len) || len >= dst_n) return false;
    memcpy(dst, s, len);
    dst[len] = '\0';
    return true;
}

static void put_mpint(struct str *s, const BIGNUM *n) {
    unsigned char b[136] = {0};
    int len = BN_num_bytes(n);
    if (len <= 0 || (size_t)len >= sizeof b) return;
    BN_bn2bin(n, b + 1);
    bool pad = (b[1] & 0x80) != 0;
    ssh_put_string(s, pad ? b : b + 1, (size_t)len + pad);
}

/* DER to SSH's two numbers. */
static bool put_ecdsa(struct str *ret, const unsigned char *der, size_t n) {
    ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &der, (long)n);
    if (sig == NULL) return false;
    put_mpint(ret, ECDSA_SIG_get0_r(sig));
    put_mpint(ret, ECDSA_SIG_get0_s(sig));
    ECDSA_SIG_free(sig);
    return true;
}

int ssh_signer_sign(const struct ssh_signer *g, const unsigned char *data, size_t n, struct str *ret_sig,
                    struct gp_error *err) {
    char name[64] = "";
    if (!ssh_sign_algorithm(data, n, name, sizeof name))
        return gp_fail(err, GP_EINTERNAL, "libssh2 requested a malformed signature");
    return ssh_signer_sign_as(g, name, data, n, ret_sig, err);
}

int ssh_signer_sign_as(const struct ssh_signer *g, const char *name, const unsigned char *data, size_t n,
                       struct str *ret_sig, struct gp_error *err) {
    bool ecdsa = str_starts(name, "ecdsa-");
    const char *hash = strcmp(name, "ssh-ed25519") == 0                           ? NULL
                       : str_ends(name, "nistp384")                               ? "SHA384"
                       : str_ends(name, "nistp521") || str_ends(name, "sha2-512") ? "SHA512"
                       : str_ends(name, "nistp256") || str_ends(name, "sha2-256") ? "SHA256"
                                                                                  : "SHA1";
    if (hash != NULL && strcmp(hash, "SHA1") == 0)
        return gp_fail(err, GP_EAUTH, "the server requires %s signatures, which use SHA-1: use an ed25519 key", name);
    unsigned char sig[SIG_MAX];
    size_t len = sizeof sig;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestSignInit_ex(ctx, NULL, hash, NULL, NULL, g->key, NULL) == 1 &&
              EVP_DigestSign(ctx, sig, &len, data, n) == 1;
    EVP_MD_CTX_free(ctx);
    if (ok && ecdsa) ok = put_ecdsa(ret_sig, sig, len);
    else if (ok) str_add_mem(ret_sig, sig, len);
    ERR_clear_error();
    return ok ? 0 : gp_fail(err, GP_EAUTH, "openssl could not sign with it");
}

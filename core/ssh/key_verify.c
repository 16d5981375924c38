/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a signature with the public half of its key, by OpenSSL. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

struct piece {
    const unsigned char *p;
    size_t n;
};

static EVP_PKEY *rsa_public(const struct piece *e, const struct piece *n) {
    BIGNUM *be = BN_bin2bn(e->p, (int)e->n, NULL), *bn = BN_bin2bn(n->p, (int)n->n, NULL);
    OSSL_PARAM_BLD *b = OSSL_PARAM_BLD_new();
    bool ok = be != NULL && bn != NULL && b != NULL && OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_N, bn) == 1 &&
              OSSL_PARAM_BLD_push_BN(b, OSSL_PKEY_PARAM_RSA_E, be) == 1;
    OSSL_PARAM *params = ok ? OSSL_PARAM_BLD_to_param(b) : NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    EVP_PKEY *key = NULL;
    if (params == NULL || ctx == NULL || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(b);
    BN_free(be);
    BN_free(bn);
    return key;
}

static bool is_type(const struct piece *type, const char *name) {
    return type->n == strlen(name) && memcmp(type->p, name, type->n) == 0;
}

/* NULL: another type, or malformed. *ret_digest: of the signature, NULL: the type has its own. */
static EVP_PKEY *public_of(const struct str *blob, const EVP_MD **ret_digest) {
    const unsigned char *p = (const unsigned char *)blob->s, *end = p + blob->len;
    struct piece type = {0}, first = {0}, second = {0};
    *ret_digest = NULL;
    if (!ssh_read_string(&p, end, &type.p, &type.n) || !ssh_read_string(&p, end, &first.p, &first.n)) return NULL;
    if (is_type(&type, "ssh-ed25519") && first.n == 32 && p == end)
        return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, first.p, first.n);
    if (!is_type(&type, "ssh-rsa") || !ssh_read_string(&p, end, &second.p, &second.n) || p != end) return NULL;
    *ret_digest = EVP_sha512(); /* rsa-sha2-512 */
    return rsa_public(&first, &second);
}

bool ssh_signature_holds(const struct str *blob, const struct str *data, const struct str *sig) {
    const EVP_MD *digest = NULL;
    EVP_PKEY *key = public_of(blob, &digest);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool holds =
        key != NULL && ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, digest, NULL, key) == 1 &&
        EVP_DigestVerify(ctx, (const unsigned char *)sig->s, sig->len, (const unsigned char *)data->s, data->len) == 1;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return holds;
}

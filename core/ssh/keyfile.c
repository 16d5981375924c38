/* SPDX-License-Identifier: Apache-2.0 */
/* Private key files: the type of the key, whether it can be used, and the file's permissions. Never
 * decrypts: a key with a passphrase belongs in ssh-agent. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/fs.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_MAX ((size_t)64 << 10)

void ssh_keyfile_clear(struct ssh_keyfile *k) {
    free(k->type);
    str_clear(&k->blob);
    k->type = NULL;
}

int ssh_keyfile_read(const char *path, struct secret *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    int r = fs_read(path, KEY_MAX, &text, &why);
    if (r != 0) return ssh_fail_detail(err, GP_EAUTH, "KEY", "the private key: %s", why.msg);
    struct stat st;
    if (stat(path, &st) == 0 && st.st_uid == getuid() && (st.st_mode & 077) != 0) {
        explicit_bzero(text.s, text.len);
        return ssh_fail_detail(err, GP_EAUTH, "KEY",
                               "the private key '%s' can be read by others (mode %04o); ssh refuses "
                               "that too: chmod 600 '%s'",
                               path, (unsigned)(st.st_mode & 07777), path);
    }
    secret_set(ret, text.s != NULL ? text.s : "", text.len);
    if (text.s != NULL) explicit_bzero(text.s, text.len);
    return 0;
}

static int not_a_key(const char *name, const char *why, struct gp_error *err) {
    return ssh_fail_detail(err, GP_EAUTH, "KEY", "%s %s", name, why);
}

static bool blob_type(struct ssh_keyfile *k) {
    const unsigned char *p = (const unsigned char *)k->blob.s, *type = NULL;
    size_t n = 0;
    if (k->blob.len == 0 || !ssh_read_string(&p, p + k->blob.len, &type, &n) || n == 0 || n > 64) return false;
    k->type = xstrndup((const char *)type, n);
    return true;
}

/* The public half and the name of the cipher are in the clear. */
static int inspect_openssh(const char *name, const struct secret *pem, struct ssh_keyfile *k, struct gp_error *err) {
    GP_AUTO_STR struct str raw = {0};
    const unsigned char *p = NULL, *end = NULL;
    bool ok = ssh_openssh_key_body(pem, &raw, &p, &end);
    const unsigned char *cipher = NULL, *skipped = NULL, *blob = NULL;
    size_t cipher_n = 0, skipped_n = 0, blob_n = 0;
    uint32_t keys = 0;
    ok = ok && ssh_read_string(&p, end, &cipher, &cipher_n) && ssh_read_string(&p, end, &skipped, &skipped_n) &&
         ssh_read_string(&p, end, &skipped, &skipped_n) && ssh_read_u32(&p, end, &keys) && keys == 1 &&
         ssh_read_string(&p, end, &blob, &blob_n);
    if (ok) {
        k->encrypted = cipher_n != 4 || memcmp(cipher, "none", 4) != 0;
        str_add_mem(&k->blob, blob, blob_n);
        ok = blob_type(k);
    }
    if (raw.s != NULL) explicit_bzero(raw.s, raw.len);
    return ok ? 0 : not_a_key(name, "is damaged: its OpenSSH form cannot be read", err);
}

static void put_mpint(struct str *s, const BIGNUM *n) {
    int len = BN_num_bytes(n);
    unsigned char *b = xcalloc((size_t)len + 1, 1);
    BN_bn2bin(n, b + 1);
    bool pad = len > 0 && (b[1] & 0x80) != 0;
    ssh_put_string(s, pad ? b : b + 1, (size_t)len + pad);
    free(b);
}

static bool blob_of_rsa(EVP_PKEY *key, struct str *blob) {
    BIGNUM *e = NULL, *n = NULL;
    bool ok = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e) == 1 &&
              EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n) == 1;
    if (ok) {
        ssh_put_string(blob, "ssh-rsa", 7);
        put_mpint(blob, e);
        put_mpint(blob, n);
    }
    BN_free(e);
    BN_free(n);
    return ok;
}

/* The point is made of its coordinates: OpenSSL before 3.0.8 gives "pub" in compressed form. */
static bool blob_of_ec(EVP_PKEY *key, struct str *blob) {
    static const struct {
        const char *group, *curve;
        int bytes;
    } known[] = {{"prime256v1", "nistp256", 32}, {"secp384r1", "nistp384", 48}, {"secp521r1", "nistp521", 66}};
    char group[64] = "";
    size_t n = 0, i = 0;
    if (EVP_PKEY_get_group_name(key, group, sizeof group, &n) != 1) return false;
    while (i < GP_ARRAY_LEN(known) && strcmp(group, known[i].group) != 0) i++;
    if (i == GP_ARRAY_LEN(known)) return false;
    int bytes = known[i].bytes;
    unsigned char point[1 + 2 * 66] = {4};
    BIGNUM *x = NULL, *y = NULL;
    bool ok = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_EC_PUB_X, &x) == 1 &&
              EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_EC_PUB_Y, &y) == 1 &&
              BN_bn2binpad(x, point + 1, bytes) == bytes && BN_bn2binpad(y, point + 1 + bytes, bytes) == bytes;
    BN_free(x);
    BN_free(y);
    if (!ok) return false;
    GP_AUTO_FREE char *type = xasprintf("ecdsa-sha2-%s", known[i].curve);
    ssh_put_string(blob, type, strlen(type));
    ssh_put_string(blob, known[i].curve, strlen(known[i].curve));
    ssh_put_string(blob, point, 1 + 2 * (size_t)bytes);
    return true;
}

static bool blob_of_ed25519(EVP_PKEY *key, struct str *blob) {
    unsigned char pub[32];
    size_t n = sizeof pub;
    if (EVP_PKEY_get_raw_public_key(key, pub, &n) != 1) return false;
    ssh_put_string(blob, "ssh-ed25519", 11);
    ssh_put_string(blob, pub, n);
    return true;
}

static int no_passphrase(char *buf, int size, int writing, void *asked) {
    (void)buf;
    (void)size;
    (void)writing;
    *(bool *)asked = true;
    return -1;
}

static int inspect_pem(const char *name, const struct secret *pem, struct ssh_keyfile *k, struct gp_error *err) {
    BIO *bio = BIO_new_mem_buf(secret_reveal(pem), (int)pem->len);
    if (bio == NULL) return gp_fail(err, GP_EENV, "openssl could not create a buffer");
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &k->encrypted);
    BIO_free(bio);
    ERR_clear_error();
    if (key == NULL)
        return k->encrypted ? 0 : not_a_key(name, "is not a private key: name one that ssh-keygen wrote", err);
    k->encrypted = false;
    int id = EVP_PKEY_get_base_id(key);
    bool ok = id == EVP_PKEY_ED25519 ? blob_of_ed25519(key, &k->blob)
              : id == EVP_PKEY_EC    ? blob_of_ec(key, &k->blob)
              : id == EVP_PKEY_RSA   ? blob_of_rsa(key, &k->blob)
                                     : false;
    EVP_PKEY_free(key);
    if (ok && blob_type(k)) return 0;
    return not_a_key(name, "is of a type that is not supported: create one with 'ssh-keygen -t ed25519'", err);
}

int ssh_keyfile_inspect(const char *name, const struct secret *pem, struct ssh_keyfile *ret, struct gp_error *err) {
    const char *text = secret_reveal(pem);
    if (strstr(text, "-----BEGIN OPENSSH PRIVATE KEY-----") != NULL) {
        if (strstr(text, "-----END") == NULL) return not_a_key(name, "is cut short: its END line is missing", err);
        return inspect_openssh(name, pem, ret, err);
    }
    if (str_starts(text, "ssh-") || str_starts(text, "ecdsa-"))
        return not_a_key(name, "is a public key; the private one has no .pub at its end", err);
    if (strstr(text, "-----BEGIN") == NULL)
        return not_a_key(name, "is not a private key: name one that ssh-keygen wrote", err);
    return inspect_pem(name, pem, ret, err);
}

int ssh_keytype_usable(const char *name, const char *type, struct gp_error *err) {
    if (type == NULL || strcmp(type, "ssh-ed25519") == 0 || str_starts(type, "ecdsa-sha2-nistp")) return 0;
    if (strcmp(type, "ssh-rsa") == 0) {
        if (ssh_rsa_ok()) return 0;
        return ssh_fail_detail(err, GP_EAUTH, "KEY",
                               "%s is an RSA key, and libssh2 %s here can sign with it only in SHA-1, "
                               "which servers refuse: use an ed25519 key (ssh-keygen -t ed25519) or "
                               "libssh2 1.11",
                               name, libssh2_version(0));
    }
    return ssh_fail_detail(err, GP_EAUTH, "KEY",
                           "%s is of type %s, which libssh2 %s cannot use: use an ed25519 key "
                           "(ssh-keygen -t ed25519)",
                           name, type, libssh2_version(0));
}

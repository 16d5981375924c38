/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: a new ed25519 pair in OpenSSH's own form, public lines, fingerprints.
 * Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/fs.h"
#include "base/hash.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#define ED25519_LEN 32
#define PEM_COLUMNS 70

/* Allocated at its full size: a string that grows leaves copies of a key in freed memory. */
static void reserve(struct str *s, size_t n) {
    str_init(s, n);
    s->s = xrealloc(s->s, n + 1);
    s->cap = n + 1;
}

static void put_private_section(struct str *s, uint32_t check, const unsigned char *seed, const unsigned char *pub,
                                const struct str *blob, const char *comment) {
    GP_AUTO_STR struct str in = {0};
    unsigned char both[2 * ED25519_LEN];
    reserve(&in, 1024 + strlen(comment));
    reserve(s, 2048 + strlen(comment));
    memcpy(both, seed, ED25519_LEN);
    memcpy(both + ED25519_LEN, pub, ED25519_LEN);
    str_add_mem(s, "openssh-key-v1", sizeof "openssh-key-v1");
    ssh_put_string(s, "none", 4);
    ssh_put_string(s, "none", 4);
    ssh_put_string(s, "", 0);
    ssh_put_u32(s, 1);
    ssh_put_string(s, blob->s, blob->len);
    ssh_put_u32(&in, check);
    ssh_put_u32(&in, check);
    ssh_put_string(&in, "ssh-ed25519", 11);
    ssh_put_string(&in, pub, ED25519_LEN);
    ssh_put_string(&in, both, sizeof both);
    ssh_put_string(&in, comment, strlen(comment));
    for (char pad = 1; in.len % 8 != 0; pad++) str_addc(&in, pad);
    ssh_put_string(s, in.s, in.len);
    explicit_bzero(both, sizeof both);
    explicit_bzero(in.s, in.cap);
}

static void put_pem(struct secret *ret, const struct str *raw) {
    GP_AUTO_FREE char *b64 = base64_text(raw->s, raw->len);
    struct str pem = {0};
    size_t n = strlen(b64);
    reserve(&pem, 4096 + 2 * n);
    str_add(&pem, "-----BEGIN OPENSSH PRIVATE KEY-----\n");
    for (size_t i = 0; i < n; i += PEM_COLUMNS) {
        str_add_mem(&pem, b64 + i, GP_MIN(n - i, (size_t)PEM_COLUMNS));
        str_addc(&pem, '\n');
    }
    str_add(&pem, "-----END OPENSSH PRIVATE KEY-----\n");
    secret_set(ret, pem.s, pem.len);
    explicit_bzero(pem.s, pem.len);
    explicit_bzero(b64, n);
    str_clear(&pem);
}

int ssh_key_make(const char *comment, struct secret *ret_private, char **ret_public, struct gp_error *err) {
    unsigned char seed[ED25519_LEN], pub[ED25519_LEN];
    size_t seed_n = sizeof seed, pub_n = sizeof pub;
    uint32_t check = 0;
    int r = fs_random(&check, sizeof check, err);
    if (r != 0) return r;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    bool ok = key != NULL && EVP_PKEY_get_raw_private_key(key, seed, &seed_n) == 1 &&
              EVP_PKEY_get_raw_public_key(key, pub, &pub_n) == 1;
    EVP_PKEY_free(key);
    if (!ok) {
        ERR_clear_error();
        return gp_fail(err, GP_EENV, "openssl could not create an ed25519 key");
    }
    GP_AUTO_STR struct str blob = {0}, raw = {0};
    GP_AUTO_FREE char *words = xstrdup(comment);
    for (char *p = words; *p != '\0'; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    ssh_put_string(&blob, "ssh-ed25519", 11);
    ssh_put_string(&blob, pub, sizeof pub);
    put_private_section(&raw, check, seed, pub, &blob, words);
    put_pem(ret_private, &raw);
    explicit_bzero(seed, sizeof seed);
    explicit_bzero(raw.s, raw.cap);
    GP_AUTO_FREE char *line = ssh_blob_line(blob.s, blob.len);
    *ret_public = xasprintf("%s%s%s", line, words[0] != '\0' ? " " : "", words);
    return 0;
}

int ssh_key_fingerprint(const char *public_line, char *dst, size_t n, struct gp_error *err) {
    GP_AUTO_STR struct str blob = {0};
    if (!ssh_line_blob(public_line, &blob))
        return gp_fail(err, GP_EUSAGE, "'%.40s' is not a public key line", public_line);
    ssh_blob_fingerprint(blob.s, blob.len, dst, n);
    return 0;
}

/* An encrypted key is good as long as the agent holds it. */
static int encrypted_public(const char *path, const struct ssh_keyfile *k, struct gp_error *err) {
    GP_AUTO_SSH_AGENT struct ssh_agent agent = {.fd = -1};
    struct gp_error why = {0};
    if (k->blob.len > 0 && ssh_agent_open(&agent, clock_deadline(5000), NULL, &why) == 0)
        for (size_t i = 0; i < agent.keys.len; i++)
            if (agent.keys.items[i].blob.len == k->blob.len &&
                memcmp(agent.keys.items[i].blob.s, k->blob.s, k->blob.len) == 0)
                return 0;
    return ssh_fail_detail(err, GP_EAUTH, "KEY",
                           "key '%s' has a passphrase, and gpuprov never prompts for one: load it "
                           "into ssh-agent (ssh-add), or use a key without one",
                           path);
}

int ssh_key_public(const char *private_path, char **ret_line, struct gp_error *err) {
    GP_AUTO_SECRET struct secret pem = {0};
    GP_AUTO_SSH_KEYFILE struct ssh_keyfile k = {0};
    GP_AUTO_FREE char *name = xasprintf("key '%s'", private_path);
    int r = ssh_keyfile_read(private_path, &pem, err);
    if (r == 0) r = ssh_keyfile_inspect(name, &pem, &k, err);
    if (r == 0) r = ssh_keytype_usable(name, k.type, err);
    if (r == 0 && k.encrypted) r = encrypted_public(private_path, &k, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *derived = ssh_blob_line(k.blob.s, k.blob.len);
    if (derived == NULL) return gp_fail(err, GP_EINTERNAL, "%s has no public half", name);
    /* The .pub file beside it adds the comment, if it is of the same key. */
    GP_AUTO_FREE char *pub_path = xasprintf("%s.pub", private_path);
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STR struct str blob = {0};
    if (fs_read(pub_path, 16384, &text, NULL) == 0 && text.len > 0) {
        text.s[strcspn(text.s, "\r\n")] = '\0';
        if (ssh_line_blob(text.s, &blob) && blob.len == k.blob.len && memcmp(blob.s, k.blob.s, blob.len) == 0) {
            *ret_line = xstrdup(str_trim(text.s));
            return 0;
        }
    }
    *ret_line = GP_STEAL(derived);
    return 0;
}

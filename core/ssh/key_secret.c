/* SPDX-License-Identifier: Apache-2.0 */
/* Secret bytes from a private key, also from one that never leaves its agent: a deterministic signature. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <openssl/evp.h>

#define AGENT_MS 60000   /* an agent may prompt its user */
#define SIGNATURE_MIN 64 /* of ed25519; of RSA with 512 bits */

/* The signed bytes: the magic, then namespace, reserved, hash algorithm and hash of the text, as strings. A server's
 * login request begins with the length of its session id, so it never has these bytes. */
static bool signed_bytes(const char *name_space, const char *text, struct str *ret) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_Digest(text, strlen(text), digest, &n, EVP_sha512(), NULL) != 1) return false;
    str_add(ret, "SSHSIG");
    ssh_put_string(ret, name_space, strlen(name_space));
    ssh_put_string(ret, "", 0);
    ssh_put_string(ret, "sha512", 6);
    ssh_put_string(ret, digest, n);
    return true;
}

/* NULL: a key of this type signs the same bytes differently each time. */
static const char *algorithm_of(const char *type) {
    if (type == NULL) return NULL;
    if (strcmp(type, "ssh-ed25519") == 0) return "ssh-ed25519";
    return strcmp(type, "ssh-rsa") == 0 ? "rsa-sha2-512" : NULL;
}

static int no_algorithm(const char *name, const char *type, struct gp_error *err) {
    return gp_fail(err, GP_EUSAGE,
                   "%s is of type %s, whose signatures differ each time, so it cannot prove that a machine is of this "
                   "stack: use an ed25519 key (ssh-keygen -t ed25519)",
                   name, type != NULL ? type : "unknown");
}

static int by_agent(const char *name, const struct str *blob, const struct str *data, const struct gp_cancel *cancel,
                    struct str *sig, struct gp_error *err) {
    GP_AUTO_SSH_AGENT struct ssh_agent agent = {.fd = -1};
    int r = ssh_agent_open(&agent, clock_deadline(AGENT_MS), cancel, err);
    if (r != 0) return gp_wrap(err, "%s", name);
    for (size_t i = 0; i < agent.keys.len; i++) {
        const struct ssh_agent_key *k = &agent.keys.items[i];
        GP_AUTO_FREE char *used = NULL;
        if (blob->len != k->blob.len || memcmp(blob->s, k->blob.s, blob->len) != 0) continue;
        const char *algorithm = algorithm_of(k->type);
        if (algorithm == NULL) return no_algorithm(name, k->type, err);
        r = ssh_agent_sign_as(&agent, k, algorithm, (const unsigned char *)data->s, data->len, sig, &used, err);
        if (r == 0 && strcmp(used, algorithm) != 0)
            r = gp_fail(err, GP_EAUTH, "the agent signs with %.40s instead of %s: use an ed25519 key", used, algorithm);
        if (r == 0 && (sig->len < SIGNATURE_MIN || !ssh_signature_holds(blob, data, sig)))
            r = gp_fail(err, GP_EAUTH,
                        "the signature of ssh-agent is not of this key: check that SSH_AUTH_SOCK leads to your agent");
        return r == 0 ? 0 : gp_wrap(err, "%s", name);
    }
    return gp_fail(err, GP_ENOTFOUND, "%s: ssh-agent does not hold it: add it with ssh-add", name);
}

static int by_pem(const char *name, const struct secret *pem, const struct str *data, const struct gp_cancel *cancel,
                  struct str *sig, struct gp_error *err) {
    GP_AUTO_SSH_KEYFILE struct ssh_keyfile k = {0};
    int r = ssh_keyfile_inspect(name, pem, &k, err);
    if (r != 0) return r;
    if (k.encrypted) return by_agent(name, &k.blob, data, cancel, sig, err);
    const char *algorithm = algorithm_of(k.type);
    if (algorithm == NULL) return no_algorithm(name, k.type, err);
    GP_AUTO_SSH_SIGNER struct ssh_signer own = {0};
    r = ssh_signer_load(name, pem, &own, err);
    return r == 0 ? ssh_signer_sign_as(&own, algorithm, (const unsigned char *)data->s, data->len, sig, err) : r;
}

int ssh_key_secret(const struct ssh_key_ref *key, const char *name_space, const char *text,
                   const struct gp_cancel *cancel, struct secret *ret, struct gp_error *err) {
    GP_AUTO_STR struct str data = {0}, sig = {0}, blob = {0};
    GP_AUTO_SECRET struct secret file = {0};
    bool in_memory = key->pem != NULL && key->pem->len > 0;
    GP_AUTO_FREE char *name = in_memory           ? xstrdup("gpuprov's own key")
                              : key->path != NULL ? xasprintf("key '%s'", key->path)
                                                  : xstrdup("the agent's key");
    if (!signed_bytes(name_space, text, &data)) return gp_fail(err, GP_EENV, "openssl has no SHA-512");
    int r = 0;
    if (in_memory) {
        r = by_pem(name, key->pem, &data, cancel, &sig, err);
    } else if (key->path != NULL) {
        r = ssh_keyfile_read(key->path, &file, err);
        if (r == 0) r = by_pem(name, &file, &data, cancel, &sig, err);
    } else if (key->public_line != NULL && ssh_line_blob(key->public_line, &blob)) {
        r = by_agent(name, &blob, &data, cancel, &sig, err);
    } else {
        r = gp_fail(err, GP_ENOTFOUND, "there is no login key");
    }
    if (r == 0) secret_set(ret, sig.s, sig.len);
    if (sig.s != NULL) explicit_bzero(sig.s, sig.len);
    return r;
}

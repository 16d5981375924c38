/* SPDX-License-Identifier: Apache-2.0 */
/* Login by public key: the key in memory, else the key file, else ssh-agent. A key file with a
 * passphrase is used through the agent when the agent holds it. No passwords. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <unistd.h>

#define LOGIN_MS 60000

struct login {
    const struct ssh_attempt *a;
    struct ssh_session *s;
    int64_t deadline_ms;
    struct str tried; /* "key '/x' (SHA256:...), 2 keys of ssh-agent" */
    int refused;
    bool locked; /* the key given has a passphrase and the agent does not hold it */
};

static int login_wait(struct login *l, struct gp_error *err) {
    struct gp_error waited = {0};
    int r = ssh_wait(l->s, l->deadline_ms, l->a->cancel, &waited);
    if (r == 0) return 0;
    l->s->dead = true;
    if (r != -GP_ETIMEOUT) return gp_fail(err, waited.code, "%s", waited.msg);
    r = ssh_fail_detail(err, GP_EREACH, "LOGIN_TIMEOUT", "%s did not answer the login in time", l->a->where);
    if (err != NULL) err->retryable = true;
    return r;
}

/* 0: logged in. -GP_EAUTH with detail REFUSED: the server refused this key; try the next. */
static int login_outcome(struct login *l, int rc, struct gp_error *err) {
    struct ssh_session *s = l->s;
    if (rc == 0) return 0;
    if (s->dead || libssh2_session_last_errno(s->lib) == LIBSSH2_ERROR_SOCKET_DISCONNECT) {
        if (l->refused >= 4)
            return ssh_fail_detail(err, GP_EAUTH, "LOGIN",
                                   "%s closed the connection after refusing %d keys (MaxAuthTries): set "
                                   "access.key to the key to use",
                                   l->a->where, l->refused);
        int r = ssh_fail_detail(err, GP_EREACH, "LOGIN_LOST", "lost the connection to %s at login (%s)", l->a->where,
                                ssh_lost_why(s));
        if (err != NULL) err->retryable = true;
        return r;
    }
    if (rc == LIBSSH2_ERROR_AUTHENTICATION_FAILED || rc == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED) {
        l->refused++;
        return ssh_fail_detail(err, GP_EAUTH, "REFUSED", "refused");
    }
    int r = ssh_fail_lib(s, err, GP_EAUTH, "login at %s failed", l->a->where);
    if (err != NULL) str_put(err->detail, sizeof err->detail, "KEY");
    return r;
}

/* Either the agent or a key of our own signs. */
struct signing {
    struct ssh_agent *agent;
    const struct ssh_agent_key *key;
    const struct ssh_signer *own;
    struct gp_error err;
};

static LIBSSH2_USERAUTH_PUBLICKEY_SIGN_FUNC(sign_callback) {
    struct signing *g = *abstract;
    GP_AUTO_STR struct str out = {0};
    (void)session;
    if (g->err.code != GP_OK) return -1;
    int r = g->own != NULL ? ssh_signer_sign(g->own, data, data_len, &out, &g->err)
                           : ssh_agent_sign(g->agent, g->key, data, data_len, &out, &g->err);
    if (r != 0) return -1;
    *sig = malloc(out.len + 1); /* libssh2 frees it */
    if (*sig == NULL) return -1;
    memcpy(*sig, out.s, out.len);
    *sig_len = out.len;
    return 0;
}

static int with_key(struct login *l, struct signing *g, const struct str *blob, const char *name,
                    struct gp_error *err) {
    const char *user = l->a->target->user;
    const unsigned char *key = (const unsigned char *)blob->s;
    void *abstract = g;
    int rc = 0;
    while ((rc = libssh2_userauth_publickey(l->s->lib, user, key, blob->len, sign_callback, &abstract)) ==
           LIBSSH2_ERROR_EAGAIN) {
        int r = login_wait(l, err);
        if (r == 0) continue;
        /* Called again on the dead session, so that libssh2 frees its memory. */
        libssh2_userauth_publickey(l->s->lib, user, key, blob->len, sign_callback, &abstract);
        return r;
    }
    if (g->err.code == GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s", g->err.msg);
    if (g->err.code != GP_OK) return ssh_fail_detail(err, GP_EAUTH, "KEY", "%s: %s", name, g->err.msg);
    return login_outcome(l, rc, err);
}

static void tried(struct login *l, const char *name, const struct str *blob) {
    char print[80] = "";
    if (blob->len > 0) ssh_blob_fingerprint(blob->s, blob->len, print, sizeof print);
    str_addf(&l->tried, "%s%s (%s)", l->tried.len > 0 ? ", " : "", name, print);
}

static bool was_refused(struct gp_error *err) {
    if (err->code != GP_EAUTH || strcmp(err->detail, "REFUSED") != 0) return false;
    gp_error_clear(err);
    return true;
}

/* blob NULL: every usable key. -GP_ENOTFOUND: no agent, or not this key. */
static int try_agent(struct login *l, const struct str *blob, struct gp_error *err) {
    GP_AUTO_SSH_AGENT struct ssh_agent agent = {.fd = -1};
    int r = ssh_agent_open(&agent, l->deadline_ms, l->a->cancel, err);
    if (r != 0) return r;
    int used = 0;
    struct gp_error unusable = {0};
    for (size_t i = 0; i < agent.keys.len; i++) {
        const struct ssh_agent_key *k = &agent.keys.items[i];
        if (blob != NULL && (blob->len != k->blob.len || memcmp(blob->s, k->blob.s, blob->len) != 0)) continue;
        GP_AUTO_FREE char *name = xasprintf("ssh-agent's '%s'", k->comment);
        if (ssh_keytype_usable(name, k->type, unusable.code == GP_OK ? &unusable : NULL) != 0) continue;
        used++;
        tried(l, name, &k->blob);
        struct signing g = {.agent = &agent, .key = k};
        r = with_key(l, &g, &k->blob, name, err);
        if (r == 0 || !was_refused(err)) return r;
    }
    if (used > 0) return ssh_fail_detail(err, GP_EAUTH, "REFUSED", "refused");
    if (unusable.code != GP_OK && err != NULL) {
        *err = unusable;
        return -(int)unusable.code;
    }
    return gp_fail(err, GP_ENOTFOUND, "ssh-agent does not hold it");
}

static int try_pem(struct login *l, const char *name, const struct secret *pem, struct gp_error *err) {
    GP_AUTO_SSH_KEYFILE struct ssh_keyfile k = {0};
    int r = ssh_keyfile_inspect(name, pem, &k, err);
    if (r == 0) r = ssh_keytype_usable(name, k.type, err);
    if (r != 0) return r;
    if (!k.encrypted) {
        GP_AUTO_SSH_SIGNER struct ssh_signer own = {0};
        r = ssh_signer_load(name, pem, &own, err);
        if (r != 0) return r;
        tried(l, name, &k.blob);
        struct signing g = {.own = &own};
        return with_key(l, &g, &k.blob, name, err);
    }
    r = k.blob.len > 0 ? try_agent(l, &k.blob, err) : -(int)GP_ENOTFOUND;
    if (r != -GP_ENOTFOUND) return r;
    if (err != NULL) gp_error_clear(err);
    l->locked = true;
    return ssh_fail_detail(err, GP_EAUTH, "KEY",
                           "%s has a passphrase, and gpuprov never prompts for one: load it into "
                           "ssh-agent (ssh-add), or use a key without one",
                           name);
}

/* Tries the configured key, in memory or by its file. -GP_ENOTFOUND: none is configured. */
static int try_given(struct login *l, struct gp_error *err) {
    const struct ssh_target *t = l->a->target;
    if (t->key_pem.len > 0) return try_pem(l, "gpuprov's own key", &t->key_pem, err);
    if (t->key_path == NULL) return -(int)GP_ENOTFOUND;
    GP_AUTO_SECRET struct secret pem = {0};
    GP_AUTO_FREE char *name = xasprintf("key '%s'", t->key_path);
    int r = ssh_keyfile_read(t->key_path, &pem, err);
    return r == 0 ? try_pem(l, name, &pem, err) : r;
}

static int login_try(struct login *l, struct gp_error *err) {
    bool agent = l->a->target->use_agent;
    int r = try_given(l, err);
    bool given = r != -GP_ENOTFOUND;
    if (given && (!agent || (!l->locked && !was_refused(err)))) return r;
    struct gp_error locked = *err;
    gp_error_clear(err);
    if (agent) r = try_agent(l, NULL, err);
    if (r != -GP_ENOTFOUND) return r;
    struct gp_error why = *err;
    gp_error_clear(err);
    if (l->locked) *err = locked;
    if (l->locked) return -(int)locked.code;
    if (given) return ssh_fail_detail(err, GP_EAUTH, "REFUSED", "refused");
    return ssh_fail_detail(err, GP_EAUTH, "KEY", "no key to log in with: %.200s%sset access.key", why.msg,
                           why.msg[0] != '\0' ? "; " : "");
}

int ssh_login(const struct ssh_attempt *a, struct ssh_session *s, struct gp_error *err) {
    if (a->target->user == NULL || a->target->user[0] == '\0')
        return gp_fail(err, GP_EINTERNAL, "no user to log in as");
    struct login l = {.a = a, .s = s, .deadline_ms = ssh_part_deadline(a, LOGIN_MS)};
    struct gp_error why = {0};
    int r = login_try(&l, &why);
    if (r == 0 && !libssh2_userauth_authenticated(s->lib)) r = ssh_fail_detail(&why, GP_EAUTH, "REFUSED", "refused");
    if (r != 0 && was_refused(&why))
        r = ssh_fail_detail(err, GP_EAUTH, "LOGIN",
                            "login as '%s' at %s was refused; tried %s: check "
                            "~%s/.ssh/authorized_keys there",
                            a->target->user, a->where, l.tried.s ? l.tried.s : "nothing", a->target->user);
    else if (r != 0 && err != NULL) *err = why;
    str_clear(&l.tried);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The proof key of a run: from the login key, else from the stack's folder. Contacts no node. */
#include "base/gp_base.h"

#include "engine/trust/proof_key.h"

#include "base/fs.h"
#include "engine/run/login_key.h"
#include "engine/run/run_event.h"
#include "engine/run/stack_dir.h"

#define NAME_SPACE "proof@gpuprov" /* of the signature; a change makes every proof void */
#define TEXT "gpuprov stack proof 1"
#define PURPOSE "gpuprov proof key 1"
#define OWN_BYTES 32

static int from_login_key(struct run *run, struct gp_error *err) {
    GP_AUTO_SECRET struct secret signature = {0};
    struct ssh_key_ref key = {.pem = &run->login.key, .path = run->login.key_path, .public_line = run->login.pubkey};
    int r = ssh_key_secret(&key, NAME_SPACE, TEXT, &run->e->cancel, &signature, err);
    if (r == 0) proof_key_make(&run->proof, PURPOSE, secret_reveal(&signature), signature.len);
    return r;
}

/* Of a login key that cannot sign twice alike. */
static int from_folder(struct run *run, bool make, const char *why, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    unsigned char own[OWN_BYTES];
    GP_AUTO_STR struct str text = {0};
    int r = stack_dir_path(run->e, run->stack.uid, &dir, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *path = fs_join(dir, "proof_key");
    if (!fs_exists(path)) {
        if (!make) return gp_fail(err, GP_ENOTFOUND, "%s", why);
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "proof", "only this machine's journal will know the nodes: %s",
                  why);
        r = fs_mkdirs(dir, 0700, err);
        if (r == 0) r = fs_random(own, sizeof own, err);
        if (r == 0) r = fs_write_atomic(path, own, sizeof own, 0600, err);
    }
    if (r == 0) r = fs_read(path, 4096, &text, err);
    if (r == 0 && text.len != OWN_BYTES)
        r = gp_fail(err, GP_EENV, "'%s' is damaged: it has %zu bytes instead of %d: run 'gpuprov down %s'", path,
                    text.len, OWN_BYTES, run->stack.name);
    if (r == 0) proof_key_make(&run->proof, PURPOSE, text.s, text.len);
    explicit_bzero(own, sizeof own);
    if (text.s != NULL) explicit_bzero(text.s, text.len);
    return r;
}

int run_proof_key(struct run *run, bool make, struct gp_error *err) {
    struct gp_error why = {0};
    if (run->proof.known) return 0;
    if (run->owner == NULL) return gp_fail(err, GP_ENOTFOUND, "the owner of '%s' is not known yet", run->stack.name);
    if (!make && run->no_proof.code != GP_OK) {
        if (err != NULL) *err = run->no_proof;
        return -(int)run->no_proof.code;
    }
    int r = login_key_get(run, make, &why);
    if (r == 0) r = from_login_key(run, &why);
    if (r == -GP_EUSAGE) {
        struct gp_error differs = why;
        gp_error_clear(&why);
        r = from_folder(run, make, differs.msg, &why);
    }
    if (r == 0) proof_key_bind(&run->proof, run->owner, run->stack.name);
    if (r == 0) return 0;
    run->no_proof = why;
    if (err != NULL) *err = why;
    return r;
}

bool run_has_proof_key(struct run *run) { return run_proof_key(run, false, NULL) == 0; }

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes certificates and their signing keys: one key per stack, and one for validations without a stack. */
#include "base/gp_base.h"

#include "engine/certificate/certify.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/sign.h"

static char *key_folder(const char *state_dir, const char *uid) {
    GP_AUTO_FREE char *dir = form_uid(uid) ? xasprintf("%s/stacks/%s", state_dir, uid) : NULL;
    return dir != NULL && fs_exists(dir) ? GP_STEAL(dir) : xstrdup(state_dir);
}

static bool is_file_name(const char *path) { return str_ends(path, ".json"); }

static char *path_of(const char *to, const struct report *r, const struct report_node *n) {
    if (is_file_name(to)) return xstrdup(to);
    return xasprintf("%s/%s-%d.certificate.json", to, r->stack, n->slot);
}

/* A node that is not ready any more must not keep the certificate of an earlier run. */
static int withdraw(const char *path, struct gp_error *err) {
    int r = fs_remove_output(path, err);
    return r == 0 ? 0 : gp_wrap(err, "the certificate of an earlier run");
}

int certify(const char *state_dir, const struct report *r, const char *to, int64_t ttl_ms, struct certified *ret,
            struct gp_error *err) {
    GP_AUTO_SIGN_KEY struct sign_key key = {0};
    if (is_file_name(to) && r->nodes.len != 1)
        return gp_fail(err, GP_EUSAGE, "'%s' is one file and there are %zu nodes: name a folder", to, r->nodes.len);
    GP_AUTO_FREE char *folder = NULL;
    int rc = is_file_name(to) ? 0 : fs_follow(to, &folder, err);
    if (rc == 0 && folder != NULL) rc = fs_mkdirs(folder, 0755, err);
    GP_AUTO_FREE char *dir = key_folder(state_dir, r->uid);
    if (rc == 0) rc = sign_key_of_folder(dir, true, &key, err);
    if (rc != 0) return rc;
    ret->key = key.pub;
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct report_node *n = &r->nodes.items[i];
        GP_AUTO_FREE char *path = path_of(to, r, n), *text = NULL;
        struct gp_error why = {0};
        rc = certificate_make(r, i, ttl_ms / 1000, &key, &text, &why);
        if (rc == -GP_EVALIDATE) {
            strv_add(&ret->refused, why.msg);
            rc = withdraw(path, err);
        } else if (rc == 0) {
            rc = fs_write_output(path, text, strlen(text), 0644, err);
            strv_add(&ret->paths, path);
        } else if (err != NULL) {
            *err = why;
        }
        if (rc != 0) return rc;
    }
    return 0;
}

void certified_clear(struct certified *c) {
    strv_clear(&c->paths);
    strv_clear(&c->refused);
}

bool certify_known(const char *state_dir, const struct certificate *c) {
    GP_AUTO_FREE char *own = key_folder(state_dir, c->uid);
    const char *dirs[] = {own, state_dir};
    for (size_t i = 0; i < GP_ARRAY_LEN(dirs); i++) {
        GP_AUTO_FREE char *path = fs_join(dirs[i], "signing_key.pub");
        GP_AUTO_STR struct str text = {0};
        struct sign_public pub = {0};
        if (fs_read(path, 4096, &text, NULL) == 0 && sign_public_parse(text.s, &pub) &&
            strcmp(pub.fingerprint, c->key.fingerprint) == 0)
            return true;
    }
    return false;
}

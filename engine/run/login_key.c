/* SPDX-License-Identifier: Apache-2.0 */
/* The key that logs in: access.key, else a generated one in the stack's folder (0600). Contacts no node. */
#include "base/gp_base.h"

#include "engine/run/login_key.h"

#include "base/fs.h"
#include "engine/run/stack_dir.h"

static bool is_agent(const char *key) { return strcmp(key, "agent") == 0; }

int login_key_named(const struct spec *spec, char **ret_pubkey, struct gp_error *err) {
    const char *key = spec->access.key;
    if (key == NULL) return 0;
    if (is_agent(key)) return ssh_agent_public(ret_pubkey, err);
    return ssh_key_public(key, ret_pubkey, err) == 0 ? 0 : gp_wrap(err, "access.key '%s'", key);
}

static int from_spec(struct run *run, struct gp_error *err) {
    const char *key = run->spec->access.key;
    int r = login_key_named(run->spec, &run->login.pubkey, err);
    if (r == 0 && !is_agent(key)) run->login.key_path = xstrdup(key);
    return r;
}

static int load(struct run *run, const char *path, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int r = fs_read(path, 65536, &text, err);
    if (r != 0) return r;
    secret_set(&run->login.key, text.s, text.len);
    explicit_bzero(text.s, text.len);
    GP_AUTO_FREE char *pub_path = xasprintf("%s.pub", path);
    GP_AUTO_STR struct str pub = {0};
    r = fs_read(pub_path, 4096, &pub, err);
    if (r == 0) run->login.pubkey = xstrdup(str_trim(pub.s));
    return r;
}

/* The public half is written first: a private key on disk always has its public one beside it. */
static int make_key(struct run *run, const char *dir, const char *path, struct gp_error *err) {
    GP_AUTO_SECRET struct secret private_key = {0};
    GP_AUTO_FREE char *public_line = NULL;
    GP_AUTO_FREE char *comment = xasprintf("gpuprov-%s-%s", run->stack.name, run->stack.uid);
    GP_AUTO_FREE char *pub_path = xasprintf("%s.pub", path);
    int r = fs_mkdirs(dir, 0700, err);
    if (r == 0) r = ssh_key_make(comment, &private_key, &public_line, err);
    if (r == 0) r = fs_write_atomic(pub_path, public_line, strlen(public_line), 0644, err);
    if (r == 0) r = fs_write_atomic(path, secret_reveal(&private_key), private_key.len, 0600, err);
    return r;
}

int login_key_get(struct run *run, bool make, struct gp_error *err) {
    if (run->login.pubkey != NULL) return 0;
    if (run->spec != NULL && run->spec->access.key != NULL) return from_spec(run, err);
    GP_AUTO_FREE char *dir = NULL;
    int rc = stack_dir_path(run->e, run->stack.uid, &dir, err);
    if (rc != 0) return rc;
    GP_AUTO_FREE char *path = fs_join(dir, "login_key");
    if (!fs_exists(path)) {
        if (!make)
            return gp_fail(err, GP_ENOTFOUND,
                           "the login key of '%s' is not on this machine: connect from the machine that "
                           "launched it%s, or destroy it with 'gpuprov down %s'",
                           run->stack.name,
                           run->spec == NULL ? ", give its spec file instead of its name if that has 'access.key'" : "",
                           run->stack.name);
        int r = make_key(run, dir, path, err);
        if (r != 0) return gp_wrap(err, "could not create the login key of '%s'", run->stack.name);
    }
    return load(run, path, err);
}

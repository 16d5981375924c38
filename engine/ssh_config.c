/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the OpenSSH config of a stack, for the verb ssh, scp, rsync and editors. Changes no resource. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/fs.h"
#include "engine/proof/node_target.h"
#include "engine/run/login_key.h"
#include "engine/run/open_known.h"
#include "engine/run/run_node.h"
#include "engine/run/stack_dir.h"
#include "engine/stack/reconcile.h"

int engine_ssh_config(struct engine *e, const char *name, const char *self_exe, char **ret_path, struct gp_error *err) {
    struct run *run = NULL;
    GP_AUTO_STR struct str out = {0};
    int r = run_open_known(e, NULL, name, &run, err);
    if (r != 0) return r;
    r = reconcile(run, NULL, err);
    if (r == 0 && run->stack.uid == NULL) r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s'", name);
    if (r == 0) r = login_key_get(run, false, err);
    GP_AUTO_FREE char *dir = NULL;
    if (r == 0) r = stack_dir_path(e, run->stack.uid, &dir, err);
    if (r == 0) r = fs_mkdirs(dir, 0700, err);
    int usable = 0;
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        GP_AUTO_SSH_TARGET struct ssh_target t = {0};
        if (!run->nodes[i].exists) continue;
        struct gp_error why = {0};
        if (node_target(run, &run->nodes[i], &t, &why) != 0) continue;
        if (t.key_pem.len > 0) {
            secret_clear(&t.key_pem);
            t.key_path = fs_join(dir, "login_key");
        }
        GP_AUTO_FREE char *alias = xasprintf("%s-%d", name, i);
        r = ssh_client_config(&t, alias, dir, self_exe, &out, err);
        usable++;
    }
    if (r == 0 && usable == 0)
        r = gp_fail(err, GP_ENOTFOUND,
                    "'%s' has no node with an SSH address: 'gpuprov status %s' "
                    "lists the nodes",
                    name, name);
    GP_AUTO_FREE char *path = r == 0 ? fs_join(dir, "ssh_config") : NULL;
    if (r == 0) r = fs_write_changed(path, out.s, out.len, 0600, err);
    if (r == 0) *ret_path = GP_STEAL(path);
    run_close(run);
    return r;
}

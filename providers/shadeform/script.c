// SPDX-License-Identifier: Apache-2.0
/* The startup script of a node: Shadeform runs a script instead of cloud-init's user-data. It makes the user gpuprov
 * with the login key, replaces the host keys by the first-contact key and stops package timers. Pure. */
#include "base/gp_base.h"

#include "providers/shadeform/shadeform_int.h"

#include "base/hash.h"

static void put(struct str *out, const char *text, const char *path, const char *mode) {
    GP_AUTO_FREE char *coded = base64_text(text, strlen(text));
    str_addf(out, "echo %s | base64 -d >%s.new && chmod %s %s.new && mv %s.new %s\n", coded, path, mode, path, path,
             path);
}

void shade_script(const struct create_req *req, struct str *out) {
    GP_AUTO_STR struct str root = {0};
    GP_AUTO_FREE char *login = xasprintf("%s\n", req->login_pubkey);
    GP_AUTO_FREE char *host = xasprintf("%s\n", req->host_key_public);
    str_add(&root, "umask 077\n"
                   "systemctl mask --now apt-daily.timer apt-daily-upgrade.timer 2>/dev/null\n"
                   "id gpuprov >/dev/null 2>&1 || useradd --create-home --shell /bin/bash gpuprov\n"
                   "passwd --lock gpuprov >/dev/null\n"
                   "mkdir -p /home/gpuprov/.ssh\n");
    put(&root, "gpuprov ALL=(ALL) NOPASSWD:ALL\n", "/etc/sudoers.d/gpuprov", "440");
    put(&root, login, "/home/gpuprov/.ssh/authorized_keys", "600");
    str_add(&root, "chown -R gpuprov: /home/gpuprov/.ssh\n");
    if (req->host_key_private[0] != '\0') {
        str_add(&root, "rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub\n");
        put(&root, req->host_key_private, "/etc/ssh/ssh_host_ed25519_key", "600");
        put(&root, host, "/etc/ssh/ssh_host_ed25519_key.pub", "644");
        str_add(&root, "systemctl restart ssh 2>/dev/null || systemctl restart sshd\n");
    }
    GP_AUTO_FREE char *coded = base64_text(root.s, root.len);
    str_addf(out,
             "#!/bin/bash\n"
             "# made by gpuprov for stack %s (%s)\n"
             "as_root() { if [ \"$(id -u)\" = 0 ]; then bash; else sudo -n bash; fi; }\n"
             "echo %s | base64 -d | as_root\n",
             req->stack->name, req->stack->uid, coded);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a node the right to end itself at its deadline. The credential goes over standard input: it is in no argument
 * and in no file but one in the node's memory. The node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/log.h"
#include "templates/templates.h"

int bootstrap_hand_over(struct node_link *l, const struct bootstrap_end *end, int64_t deadline_ms,
                        struct gp_error *err) {
    struct deadline_req req = {.uid = end->uid,
                               .expires_s = end->expires_s,
                               .ttl_s = end->ttl_s,
                               .idle_s = end->idle_s,
                               .controller_s = end->controller_s,
                               .end_script = end->script};
    GP_AUTO_STR struct str line = {0};
    GP_AUTO_STR struct str file = {0};
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    log_redact(end->credential);
    str_add(&script, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = template_deadline(&req, &line, err);
    if (!rc) rc = boot_file("run/lib", &script, err);
    if (!rc) rc = boot_file("run/hand-over", &file, err);
    if (rc) return rc;
    boot_var(&script, "SCRIPT", file.s);
    boot_var(&script, "INSTALL", line.s);
    boot_var(&script, "CREDENTIAL", secret_reveal(end->credential));
    boot_var(&script, "STACK", end->uid);
    str_add(&script, "printf '%s' \"$CREDENTIAL\" | root sh -c \"$SCRIPT\" hand-over \"$INSTALL\" \"$STACK\"\n");
    rc = node_link_sh(l, "giving the node the right to end itself", &script, BOOT_SHORT_MS, deadline_ms, &r, err);
    explicit_bzero(script.s, script.cap);
    if (rc) return rc;
    if (r.status == 0 && r.out.s != NULL && strstr(r.out.s, "::ends\n") != NULL) return 0;
    GP_AUTO_FREE char *text = boot_said(&r);
    if (err) err->domain = GP_D_NODE;
    return gp_fail(err, GP_EBOOTSTRAP, "%s: the node would not end itself at its deadline: %s", l->target.label, text);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the deadline that a node keeps itself, in two steps, so that either all nodes of a stack move or none does. The
 * node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "templates/templates.h"

static const char *const actions[] = {[DEADLINE_PREPARE] = "prepare",
                                      [DEADLINE_COMMIT] = "commit",
                                      [DEADLINE_RESTORE] = "restore",
                                      [DEADLINE_FINISH] = "finish"};
static const char *const done[] = {[DEADLINE_PREPARE] = "::prepared ",
                                   [DEADLINE_COMMIT] = "::moved\n",
                                   [DEADLINE_RESTORE] = "::restored\n",
                                   [DEADLINE_FINISH] = "::finished\n"};

static int make_script(const struct bootstrap_move *m, enum deadline_action action, struct str *script,
                       struct gp_error *err) {
    GP_AUTO_STR struct str file = {0};
    GP_AUTO_FREE char *text = action == DEADLINE_PREPARE ? template_deadline_script() : xstrdup("");
    str_add(script, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = boot_file("run/lib", script, err);
    if (!rc) rc = boot_file("run/move-deadline", &file, err);
    if (rc) return rc;
    boot_var(script, "SCRIPT", file.s);
    boot_var(script, "TEXT", text);
    boot_var(script, "RUN_ID", m->run);
    boot_var(script, "STACK", m->uid);
    str_addf(
        script,
        "printf '%%s' \"$TEXT\" | root sh -c \"$SCRIPT\" move-deadline %s \"$RUN_ID\" \"$STACK\" %lld %lld %lld %lld\n",
        actions[action], (long long)m->expires_s, (long long)m->left_s, (long long)m->idle_s,
        (long long)m->controller_s);
    return 0;
}

int bootstrap_move_deadline(struct node_link *l, const struct bootstrap_move *m, enum deadline_action action,
                            int64_t *ret_was_s, int64_t deadline_ms, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    int rc = make_script(m, action, &script, err);
    if (!rc) rc = node_link_sh(l, "moving its deadline", &script, BOOT_SHORT_MS, deadline_ms, &r, err);
    if (rc) return rc;
    const char *at = r.status == 0 && r.out.s != NULL ? strstr(r.out.s, done[action]) : NULL;
    if (at != NULL && ret_was_s != NULL && action == DEADLINE_PREPARE) {
        GP_AUTO_FREE char *was = xstrndup(at + strlen(done[action]), strcspn(at + strlen(done[action]), "\n"));
        if (!str_to_i64(was, 0, INT64_MAX / 1000, ret_was_s)) *ret_was_s = 0;
    }
    if (at != NULL) return 0;
    GP_AUTO_FREE char *text = boot_said(&r);
    if (err) err->domain = GP_D_NODE;
    return gp_fail(err, GP_EBOOTSTRAP, "%s: could not move its deadline: %s", l->target.label, text);
}

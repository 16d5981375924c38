/* SPDX-License-Identifier: Apache-2.0 */
/* The step "limits": its files are written by a script; only a new login can show that they have an effect. The
 * node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

/* As pam_limits counts: KiB. */
static void memlock_text(const char *text, char *dst, size_t n) {
    int64_t number = 0;
    GP_AUTO_FREE char *digits = xstrndup(text ? text : "", text ? strspn(text, "0123456789") : 0);
    if (!str_to_i64(digits, 1, 999999, &number)) {
        str_put(dst, n, text ? text : "");
        return;
    }
    number *= str_ends(text, "GiB") ? 1 << 20 : 1 << 10;
    snprintf(dst, n, "%lld", (long long)number);
}

void boot_limits_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    const struct spec_node_limits *l = &b->req->spec->storage.limits;
    char memlock[32];
    memlock_text(l->memlock, memlock, sizeof memlock);
    boot_var(out, "MEMLOCK", memlock);
    str_addf(out, "NOFILE=%d\nHUGEPAGES=%d\n", l->nofile, l->hugepages);
    struct gp_error ignored = {0};
    (void)boot_file("storage/lib", out, &ignored); /* a template of this program */
}

int boot_limits_set(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err) {
    int rc = node_step(b, it, ret_changed, err);
    if (!rc) rc = node_link_again(b->link, b->req->deadline_ms, err);
    if (rc) return rc;
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    str_add(&script, "echo\n"); /* ends a line that a start-up file printed without a newline */
    rc = boot_file("run/lib", &script, err);
    if (!rc) rc = boot_item_script(b, it, "in_login\n", &script, err);
    if (!rc)
        rc = node_link_sh(b->link, "looking at a new login's limits", &script, BOOT_SHORT_MS, b->req->deadline_ms, &r,
                          err);
    if (rc || r.status == 0) return rc;
    GP_AUTO_FREE char *said = boot_said(&r);
    return boot_fail(b->link, it->name, err, said);
}

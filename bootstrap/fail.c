/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of step failures. Pure. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/log.h"

int boot_fail(const struct node_link *l, const char *step, struct gp_error *err, const char *text) {
    GP_AUTO_FREE char *clean = log_redacted(text);
    if (err) err->domain = GP_D_NODE;
    return gp_fail(err, GP_EBOOTSTRAP, "%s: step '%s': %s", l->target.label, step, clean);
}

char *boot_said(const struct ssh_result *r) {
    const char *error = r->out.s ? strstr(r->out.s, "\n::error ") : NULL;
    if (error) return xstrndup(error + 9, strcspn(error + 9, "\n"));
    /* the last line: start-up files may have written before it */
    GP_AUTO_FREE char *text = xstrdup(r->err.s ? r->err.s : "");
    char *said = str_trim(text), *line = strrchr(said, '\n');
    if (line) said = line + 1;
    if (*said) return xasprintf("%s (status %d)", said, r->status);
    return xasprintf("status %d", r->status);
}

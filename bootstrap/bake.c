/* SPDX-License-Identifier: Apache-2.0 */
/* Cleans a node of which an image will be made, and reads what it has. The node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#define CLEAN_MS (5 * 60 * 1000)

static int clean_script(struct str *out, struct gp_error *err) {
    GP_AUTO_STR struct str file = {0};
    str_add(out, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = boot_file("run/lib", out, err);
    if (!rc) rc = boot_file("run/bake", &file, err);
    if (rc) return rc;
    boot_var(out, "SCRIPT", file.s);
    str_add(out, "if [ \"$(id -u)\" != 0 ] && ! sudo -n true 2>/dev/null; then "
                 "fail \"user '$(id -un)' may not use sudo without a password\"; fi\n"
                 "root sh -c \"$SCRIPT\" bake \"$HOME\" \"$NODE_DIR\" </dev/null\n");
    return 0;
}

/* "::fact KEY VALUE": the value of the first such line of one word; "" where there is none. */
static void fact(const char *text, const char *key, char *dst, size_t size) {
    GP_AUTO_FREE char *prefix = xasprintf("\n::fact %s ", key);
    const char *at = text != NULL ? strstr(text, prefix) : NULL;
    dst[0] = '\0';
    if (at == NULL) return;
    at += strlen(prefix);
    size_t n = strcspn(at, "\r\n");
    if (n < size && n == strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+")) {
        memcpy(dst, at, n);
        dst[n] = '\0';
    }
}

int bootstrap_clean(struct node_link *l, struct bootstrap_clean *ret, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    char cleaned[8];
    int rc = clean_script(&script, err);
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(CLEAN_MS)};
    if (!rc) rc = node_link_exec(l, &script, &opts, &r, err);
    if (rc) return rc;
    fact(r.out.s, "arch", ret->arch, sizeof ret->arch);
    fact(r.out.s, "driver", ret->driver, sizeof ret->driver);
    fact(r.out.s, "cuda", ret->cuda, sizeof ret->cuda);
    fact(r.out.s, "cleaned", cleaned, sizeof cleaned);
    if (strcmp(cleaned, "yes") == 0 && ret->arch[0] != '\0') return 0;
    GP_AUTO_FREE char *text = boot_said(&r);
    return gp_fail(err, GP_EBOOTSTRAP, "%s: could not clean the node for its image: %s", l->target.label, text);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the host key from user-data by one that the node generated itself. Each round reads the state
 * from the node anew, so a run that was cut anywhere can be repeated. The node's own
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#define ROUNDS_MAX 20
#define PAUSE_MS 250

static int rotate_script(const char *mode, const char *key, struct str *out, struct gp_error *err) {
    GP_AUTO_STR struct str file = {0};
    str_add(out, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = boot_file("run/lib", out, err);
    if (!rc) rc = boot_file("run/rotate", &file, err);
    if (rc) return rc;
    boot_var(out, "SCRIPT", file.s);
    boot_var(out, "KEY", key);
    str_add(out, "if [ \"$(id -u)\" != 0 ] && ! sudo -n true 2>/dev/null; then "
                 "fail \"user '$(id -un)' may not use sudo without a password\"; fi\n");
    str_addf(out, "root sh -c \"$SCRIPT\" rotate %s \"$KEY\" </dev/null\n", mode);
    return 0;
}

static int rotate_fail(const struct node_link *l, const struct ssh_result *r, struct gp_error *err) {
    GP_AUTO_FREE char *text = boot_said(r);
    if (err) err->domain = GP_D_NODE;
    return gp_fail(err, GP_EBOOTSTRAP, "%s: replacing the first host key: %s", l->target.label, text);
}

/* The node's own key, generated now or before: "ssh-ed25519 AAAA...". */
static int rotate_make(struct node_link *l, int64_t deadline_ms, char **ret_key, bool *ret_in_place,
                       struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    int rc = rotate_script("make", "", &script, err);
    if (!rc) rc = node_link_sh(l, "replacing the first host key", &script, BOOT_SHORT_MS, deadline_ms, &r, err);
    if (rc) return rc;
    const char *key = r.out.s ? strstr(r.out.s, "::key ") : NULL;
    key = key ? strstr(key, "ssh-ed25519 ") : NULL;
    size_t n = key ? strcspn(key, "\r\n") : 0;
    GP_AUTO_FREE char *line = key ? xstrndup(key, n) : NULL;
    if (r.status != 0 || n > 200 || !line || ssh_host_key_line(line, ret_key, NULL) != 0)
        return rotate_fail(l, &r, err);
    *ret_in_place = strstr(r.out.s, "::key switched ") != NULL;
    return 0;
}

/* A lost connection is not a failure: the next round reads the state. */
static int rotate_switch(struct node_link *l, const char *key, int64_t deadline_ms, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    int rc = rotate_script("switch", key, &script, err);
    if (rc) return rc;
    int64_t end = clock_deadline(BOOT_SHORT_MS);
    struct ssh_exec_opts opts = {.deadline_ms = GP_MIN(end, deadline_ms)};
    rc = node_link_exec(l, &script, &opts, &r, err);
    if (rc) return rc;
    if (r.end == SSH_EXITED && r.status != 0 && !ssh_cut_short(&r)) return rotate_fail(l, &r, err);
    return 0;
}

int bootstrap_rotate_host_key(struct node_link *l, int64_t deadline_ms,
                              int (*commit)(void *ctx, const char *next_public, struct gp_error *err), void *ctx,
                              char **ret_key, struct gp_error *err) {
    GP_AUTO_FREE char *committed = NULL;
    int rc = l->session ? 0 : node_link_ensure(l, err);
    for (int round = 0; !rc && round < ROUNDS_MAX; round++) {
        GP_AUTO_FREE char *key = NULL;
        bool in_place = false; /* the switch is complete: sshd may show a key whose switch was cut */
        rc = rotate_make(l, deadline_ms, &key, &in_place, err);
        if (!rc && !str_eq(key, committed)) {
            rc = commit(ctx, key, err);
            if (rc) return rc;
            free(committed);
            committed = xstrdup(key);
            if (!strv_has(&l->target.host_keys, key)) strv_add(&l->target.host_keys, key);
        }
        if (rc) return rc;
        if (in_place && str_eq(ssh_host_key(l->session), key)) {
            strv_clear(&l->target.host_keys);
            strv_add(&l->target.host_keys, key);
            *ret_key = GP_STEAL(key);
            return 0;
        }
        event_emit(l->sink, l->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, "host key", "%s",
                   "switches to the node's own host key");
        rc = rotate_switch(l, key, deadline_ms, err);
        if (!rc && round > 0) rc = gp_sleep(PAUSE_MS, l->cancel, err); /* sshd is still reloading */
        if (!rc) rc = node_link_again(l, deadline_ms, err);
    }
    if (rc) return rc;
    return gp_fail(err, GP_EBOOTSTRAP,
                   "%s: its sshd still uses the first host key: check "
                   "'HostKey' in its sshd_config",
                   l->target.label);
}

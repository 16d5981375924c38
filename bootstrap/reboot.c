/* SPDX-License-Identifier: Apache-2.0 */
/* Reboots a node between two runs of a step that called restart_node, and waits until it is back. The node's own
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#define POLL_MS 1000
#define ATTEMPT_MS 30000
#define DEFAULT_MS (20 * 60 * 1000) /* large machines take ten minutes and more */

static int failed(const struct boot *b, const struct boot_item *it, const char *why, const char *what, int64_t limit_ms,
                  struct gp_error *err) {
    char limit[32];
    duration_format(limit, sizeof limit, limit_ms);
    GP_AUTO_FREE char *text = xasprintf("the node must be rebooted (%s), and %s within %s: look at its console; "
                                        "access.timeout of the spec sets this limit",
                                        why, what, limit);
    return boot_fail(b->link, it->name, err, text);
}

/* One attempt over a new connection. A connection that does not open or breaks is part of a reboot: 0, and
 * *ret_answered is false. */
static int attempt(struct boot *b, const struct boot_item *it, const struct str *script, int64_t end_ms,
                   bool *ret_answered, bool *ret_back, struct gp_error *err) {
    struct node_link *l = b->link;
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    struct gp_error why = {0};
    int64_t attempt_ms = clock_deadline(ATTEMPT_MS);
    struct ssh_exec_opts opts = {.deadline_ms = GP_MIN(attempt_ms, end_ms), .max_output = 4096};
    *ret_answered = *ret_back = false;
    int rc = l->session ? 0 : node_link_again(l, end_ms, &why);
    if (rc == 0) rc = node_link_exec(l, script, &opts, &r, &why);
    if (rc == -GP_ECANCELLED || rc == -GP_EAUTH) {
        if (err) *err = why;
        return rc;
    }
    const char *out = r.out.s ? r.out.s : "";
    *ret_back = strstr(out, "\n::back") != NULL;
    *ret_answered = *ret_back || strstr(out, "\n::asked") != NULL;
    if (*ret_answered) return 0;
    if (rc == 0 && r.end == SSH_EXITED && strstr(out, "\n::error ")) {
        GP_AUTO_FREE char *said = boot_said(&r);
        return boot_fail(l, it->name, err, said);
    }
    node_link_close(l);
    return 0;
}

int boot_reboot(struct boot *b, const struct boot_item *it, const char *run_id, const char *why, struct gp_error *err) {
    int64_t limit_ms = b->req->reboot_ms > 0 ? b->req->reboot_ms : DEFAULT_MS;
    int64_t end_ms = clock_deadline(limit_ms);
    if (end_ms > b->req->deadline_ms) end_ms = b->req->deadline_ms;
    limit_ms = GP_MIN(limit_ms, (clock_left_ms(end_ms) + 999) / 1000 * 1000); /* shown in whole seconds */
    GP_AUTO_STR struct str script = {0};
    str_add(&script, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = boot_file("run/lib", &script, err);
    boot_var(&script, "STEP", it->id);
    boot_var(&script, "RUN_ID", run_id);
    if (!rc) rc = boot_file("run/reboot", &script, err);
    event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, it->name, "reboots the node: %s", why);
    for (bool down = false; !rc;) {
        bool answered = false, back = false;
        rc = attempt(b, it, &script, end_ms, &answered, &back, err);
        if (rc == -GP_EBOOTSTRAP) return rc;
        if (rc || back) break;
        if (!answered && clock_left_ms(end_ms) > 0) down = true;
        if (clock_left_ms(end_ms) == 0)
            return failed(b, it, why, down ? "it did not come back" : "it did not go down", limit_ms, err);
        rc = gp_sleep(GP_MIN((int64_t)POLL_MS, clock_left_ms(end_ms)), b->link->cancel, err);
    }
    if (rc) return gp_wrap(err, "step '%s'", it->name);
    event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, it->name,
               "the node rebooted, runs the step again");
    return boot_facts_get(b, err); /* another kernel, another driver */
}

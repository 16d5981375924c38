/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: probes all steps of a node in one script, applies the missing ones in the table's order, and
 * applies none the second time. The node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/log.h"

#define PROBE_MS 240000 /* without the user's own checks */
#define ROUNDS_MAX 4    /* of probes: a driver changes what later steps find */
#define CHECK_MS 70000  /* each: lib.sh kills it after a minute and 5 s */

/* Two round trips: the node's facts, which choose the steps; then all steps' probes. */
static int probe_all(struct boot *b, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    int rc = boot_facts_get(b, err);
    if (!rc) rc = boot_items_make(b, err);
    if (!rc) rc = boot_probe_script(b, &script, err);
    if (!rc) {
        int64_t each_ms = PROBE_MS + (int64_t)b->items.len * CHECK_MS;
        rc = node_link_sh(b->link, "probing the node", &script, each_ms, b->req->deadline_ms, &r, err);
    }
    if (script.s) explicit_bzero(script.s, script.cap); /* secrets */
    if (!rc) boot_probe_parse(b, r.out.s ? r.out.s : "", r.out.len);
    return rc;
}

static int item_judge(const struct boot *b, const struct boot_item *it, struct gp_error *err) {
    if (it->warning)
        event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_WARN, it->name, "%s", it->warning);
    if (it->probe == 0 || it->probe == BOOT_PROBE_TODO) return 0;
    if (strcmp(it->step->file, "driver") == 0 && it->why && str_starts(it->why, "no driver:"))
        return gp_fail(err, GP_EBOOTSTRAP, "%s: %s", b->link->target.label, it->why);
    GP_AUTO_FREE char *text = it->why ? xstrdup(it->why) : xasprintf("could not be probed (status %d)", it->probe);
    return boot_fail(b->link, it->name, err, text);
}

static int item_apply(struct boot *b, const struct boot_item *it, struct gp_error *err) {
    event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_START, it->name, "%s", "");
    bool changed = false;
    boot_cache(b, it);
    int rc = it->step->apply ? it->step->apply(b, it, &changed, err) : node_step(b, it, &changed, err);
    if (rc) return rc;
    if (changed) {
        b->applied++;
        strv_add(&b->changed, it->name);
    }
    event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_DONE, it->name, "%s",
               changed           ? "done"
               : it->step->first ? "finished"
                                 : "nothing to do");
    return 0;
}

/* Applies the steps that the others depend on, before the rest is judged. True: probe again. */
static int apply_first(struct boot *b, bool *ret_again, struct gp_error *err) {
    for (size_t i = 0; i < b->items.len; i++) {
        const struct boot_item *it = &b->items.items[i];
        if (!it->step->first || it->probe != BOOT_PROBE_TODO) continue;
        int rc = item_apply(b, it, err);
        if (rc) return rc;
        *ret_again = true;
    }
    return 0;
}

/* True in *ret_again: a step changed the facts of the node, on which the later ones depend: probe again. */
static int apply_rest(struct boot *b, bool *ret_again, struct gp_error *err) {
    *ret_again = false;
    /* Reports steps that cannot be applied before anything is installed, also an agent of another
     * architecture. */
    for (size_t i = 0; i < b->items.len; i++) {
        int rc = item_judge(b, &b->items.items[i], err);
        if (rc) return rc;
    }
    for (size_t i = 0; i < b->items.len; i++) {
        const struct boot_item *it = &b->items.items[i];
        if (it->probe != BOOT_PROBE_TODO) continue;
        int before = b->applied, rc = item_apply(b, it, err);
        if (rc) return rc;
        if (it->step->new_facts && b->applied > before) {
            *ret_again = true;
            return 0;
        }
    }
    return 0;
}

/* Reads the node's current boot_id: a step may have rebooted it. */
static int boot_id_now(struct boot *b, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    str_add(&script, "echo; echo \"::boot $(cat /proc/sys/kernel/random/boot_id)\"\n");
    int rc = node_link_sh(b->link, "reading boot_id", &script, BOOT_SHORT_MS, b->req->deadline_ms, &r, err);
    const char *said = !rc && r.out.s ? strstr(r.out.s, "\n::boot ") : NULL;
    if (said) {
        said += strlen("\n::boot ");
        GP_AUTO_FREE char *id = xstrndup(said, strcspn(said, "\n"));
        if (*id) str_put(b->facts.boot_id, sizeof b->facts.boot_id, id);
    }
    return rc;
}

/* Probes only: the steps that would be applied, as far as they are known before the first one is. */
static int dry_run(struct boot *b, struct gp_error *err) {
    int rc = 0;
    for (size_t i = 0; i < b->items.len && !rc; i++) {
        const struct boot_item *it = &b->items.items[i];
        rc = item_judge(b, it, err);
        if (it->probe == BOOT_PROBE_TODO) strv_add(&b->changed, it->name);
    }
    return rc;
}

static int run(struct boot *b, struct gp_error *err) {
    int rc = b->link->session ? 0 : node_link_ensure(b->link, err);
    if (!rc) rc = probe_all(b, err);
    if (!rc && b->req->pick && b->req->pick->dry_run) return dry_run(b, err);
    bool again = false;
    for (size_t i = 0; i < b->items.len && !rc; i++) /* an image without cloud-init fails here */
        if (b->items.items[i].step->first) rc = item_judge(b, &b->items.items[i], err);
    if (!rc) rc = apply_first(b, &again, err);
    if (!rc && again) rc = probe_all(b, err);
    again = true;
    for (int i = 0; again && !rc && i < ROUNDS_MAX; i++) {
        if (i > 0) rc = probe_all(b, err);
        if (!rc) rc = apply_rest(b, &again, err);
    }
    if (!rc && again)
        rc = gp_fail(err, GP_EBOOTSTRAP, "%s: its steps do not come to an end: each run changes the node again",
                     b->link->target.label);
    if (!rc && b->applied > 0) rc = boot_id_now(b, err);
    return rc;
}

int bootstrap_run(struct node_link *l, const struct bootstrap_req *req, struct bootstrap_result *ret,
                  struct gp_error *err) {
    for (size_t i = 0; i < req->n_secrets; i++) log_redact(&req->secrets[i].value);
    GP_CLEANUP(boot_clear) struct boot b = {.link = l, .req = req};
    int rc = run(&b, err);
    ret->failed = b.failed;
    ret->steps = b.changed;
    b.changed = (struct strv){0};
    if (rc == -GP_ETIMEOUT && err) { /* a timeout of one operation is a failure of the node here */
        err->code = GP_EBOOTSTRAP;
        return -GP_EBOOTSTRAP;
    }
    if (rc) return rc;
    ret->applied = b.applied;
    ret->nvidia = b.facts.nvidia;
    ret->root = b.facts.root;
    str_put(ret->boot_id, sizeof ret->boot_id, b.facts.boot_id);
    str_put(ret->arch, sizeof ret->arch, b.facts.arch);
    return 0;
}

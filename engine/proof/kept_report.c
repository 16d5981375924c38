/* SPDX-License-Identifier: Apache-2.0 */
/* The verb report: reads the last report of a stack from the journal, or of a destroyed one from the state folder. */
#include "base/gp_base.h"

#include "engine/proof/kept_report.h"

#include "engine/run/old_report.h"
#include "engine/run/owner.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"

int kept_report_read(struct engine *e, const char *uid, struct report *ret, struct gp_error *err) {
    GP_AUTO_FREE char *text = NULL;
    int r = journal_report_get(e->journal, uid, &text, err);
    if (r != 0) return r;
    json_t *j = json_loads(text, 0, NULL);
    r = report_from_json(j, ret, err);
    json_decref(j);
    return r;
}

bool kept_report_proves(const struct run *run, const struct report *report) {
    bool proves = report->ready && report->nodes.len == (size_t)run->spec->nodes;
    for (size_t i = 0; proves && i < report->nodes.len; i++) {
        const struct report_node *rn = &report->nodes.items[i];
        proves = rn->ready && rn->slot == (int)i && run->nodes[i].exists && str_eq(rn->id, run->nodes[i].res.id);
    }
    return proves;
}

static const struct node_record *record_of(const struct node_record_list *all, int slot) {
    for (size_t i = 0; i < all->list.len; i++)
        if (all->list.items[i].slot == slot) return &all->list.items[i];
    return NULL;
}

/* Why the report is out of date for this node; NULL if it is not. Caller frees. */
static char *why_outdated(const struct report *report, const struct report_node *rn, const struct node_record *rec) {
    if (rec == NULL || rec->resource_id == NULL || rec->resource_id[0] == '\0')
        return xasprintf("%s/%d has no machine any more", report->stack, rn->slot);
    if (!str_eq(rec->resource_id, rn->id))
        return xasprintf("%s/%d is another machine now (%s)", report->stack, rn->slot, rec->resource_id);
    if (rec->phase != NODE_READY)
        return xasprintf("%s/%d was not validated again since (phase '%s')", report->stack, rn->slot,
                         node_phase_name(rec->phase));
    return NULL;
}

int kept_report_compare(struct engine *e, const char *uid, struct report *report, struct gp_error *err) {
    struct node_record_list all = {0};
    int r = journal_nodes(e->journal, uid, &all, err);
    for (size_t i = 0; r == 0 && i < report->nodes.len; i++) {
        struct report_node *rn = &report->nodes.items[i];
        char *why = rn->ready ? why_outdated(report, rn, record_of(&all, rn->slot)) : NULL;
        if (why == NULL) continue;
        rn->ready = report->ready = false;
        if (report->outdated == NULL) report->outdated = why;
        else free(why);
    }
    node_record_list_clear(&all);
    return r;
}

static int report_of(struct engine *e, const char *uid, struct report *ret, struct gp_error *err) {
    int r = kept_report_read(e, uid, ret, err);
    return r == 0 ? kept_report_compare(e, uid, ret, err) : r;
}

/* It stays what it was at its time: a CI job reads it after `down`. */
static int report_of_destroyed(struct engine *e, const char *name, struct report *ret, struct gp_error *err) {
    struct gp_error why = {0};
    int64_t when_s = 0;
    char at[32];
    int r = old_report_read(e, name, e->opts.owner, ret, &when_s, &why);
    if (r == -GP_ENOTFOUND)
        return gp_fail(
            err, GP_ENOTFOUND,
            "there is no stack '%s' in the journal, and no report of a destroyed one: 'gpuprov status' lists "
            "the stacks",
            name);
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    time_format_utc(at, sizeof at, when_s);
    free(ret->outdated);
    ret->outdated = xasprintf("'%s' was destroyed at %s", name, at);
    return 0;
}

int engine_report(struct engine *e, const char *name, struct report *ret, struct gp_error *err) {
    struct stack known = {0};
    run_say_damaged(e, &e->sink);
    int r = owner_find_stack(e->journal, name, e->opts.owner, &known, err);
    if (r == -GP_ENOTFOUND) {
        gp_error_clear(err);
        return report_of_destroyed(e, name, ret, err);
    }
    if (r == 0) r = report_of(e, known.uid, ret, err);
    stack_clear(&known);
    return r;
}

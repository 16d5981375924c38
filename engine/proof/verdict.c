/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the report and each node's phase from the results of the checks. A check that did not run is in the report as
 * an error with its reason, never as a pass. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/proof/verdict.h"

#include "engine/proof/run_baseline.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "validate/judge.h"

static bool holds(const struct check_result *c, bool strict) {
    return !c->required || c->verdict == VERDICT_PASS || (c->verdict == VERDICT_DEGRADED && !strict);
}

static bool has_check(const struct check_result *list, size_t n, const char *id) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].check, id) == 0) return true;
    return false;
}

static struct check_result did_not_run(const struct run *run, const char *id, const char *why) {
    return (struct check_result){.check = xstrdup(id),
                                 .verdict = VERDICT_ERROR,
                                 .required = validate_required(run->spec, id),
                                 .code = xstrdup("did_not_run"),
                                 .message = xasprintf("did not run: %s", why),
                                 .suggestion = xstrdup("")};
}

static void add_node(struct run *run, struct run_node *n, struct report *report) {
    struct report_node rn = n->report;
    n->report = (struct report_node){0};
    free(rn.id);
    free(rn.place);
    free(rn.image);
    rn.image = xstrdup(n->exists ? n->res.image : "");
    free(rn.address);
    rn.slot = n->slot;
    rn.id = xstrdup(n->exists ? n->res.id : "");
    rn.place =
        n->exists ? xasprintf("%s %s", n->res.provider, n->res.zone[0] ? n->res.zone : n->res.region) : xstrdup("");
    rn.address = xstrdup(n->link.target.host ? n->link.target.host : "");
    GP_AUTO_FREE char *label = xasprintf("%s/%d: ", run->stack.name, n->slot);
    const char *why = !n->exists ? "there is no machine" : n->rc != 0 ? n->err.msg : "no reason was reported";
    if (str_starts(why, label)) why += strlen(label); /* the row is this node's */
    for (size_t i = 0; i < run->validation.plan.node_checks.len; i++) {
        const char *id = run->validation.plan.node_checks.items[i]->id;
        if (has_check(rn.checks.items, rn.checks.len, id)) continue;
        struct check_result c = did_not_run(run, id, why);
        vec_push(&rn.checks, c);
    }
    vec_push(&report->nodes, rn);
}

void verdict_collect(struct run *run, struct report *report) {
    report->stack = xstrdup(run->stack.name);
    report->uid = xstrdup(run->stack.uid);
    report->run = xstrdup(run->id);
    report->strict = run->spec->validate.strict;
    run_nodes_alloc(run, run->spec->nodes);
    for (int i = 0; i < run->spec->nodes; i++) add_node(run, &run->nodes[i], report);
}

void verdict_judge(const struct run *run, struct report *report, const char *gang_why) {
    for (size_t i = 0; i < run->validation.plan.gang_checks.len; i++) {
        const char *id = run->validation.plan.gang_checks.items[i]->id;
        if (has_check(report->gang.items, report->gang.len, id)) continue;
        struct check_result c = did_not_run(run, id, gang_why);
        vec_push(&report->gang, c);
    }
    run_baseline_hold(&run->validation.baseline, &run->validation.env, report, true);
    report->took_ms = clock_ms() - run->validation.started_ms;
    report_judge(report);
}

/* A node that passed its own checks keeps its phase if the gang checks did not run. Any other node that is not ready
 * failed. */
static int record_node(struct run *run, const struct report *report, int slot, struct gp_error *err) {
    struct run_node *n = &run->nodes[slot];
    const struct report_node *rn = &report->nodes.items[slot];
    if (!n->exists || n->rc != 0) return 0;
    if (rn->ready) return run_node_phase(n, NODE_READY, err);
    bool own = true, ran = true;
    for (size_t i = 0; i < rn->checks.len; i++) own = own && holds(&rn->checks.items[i], report->strict);
    for (size_t i = 0; i < report->gang.len; i++) ran = ran && !str_eq(report->gang.items[i].code, "did_not_run");
    if (own && !ran) return 0;
    resource_set(&n->rec.note, "validation failed");
    n->rec.phase = NODE_FAILED;
    int r = run_node_save(n, err);
    if (!own) run_event(run, n->slot, NODE_FAILED, EVENT_FAIL, "", "validation failed: see the report");
    return r;
}

static int keep_report(struct run *run, const struct report *report, struct gp_error *err) {
    json_t *j = report_to_json(report);
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    if (text == NULL) return gp_fail(err, GP_EINTERNAL, "could not write the report as JSON");
    int r = journal_report_put(run->e->journal, run->stack.uid, text, err);
    free(text);
    return r;
}

/* The report is written first, so that a cut in between leaves nodes that were validated but are not READY. A READY
 * node beside an older report would be handed over with the wrong report. */
int verdict_record(struct run *run, const struct report *report, struct gp_error *err) {
    int r = keep_report(run, report, err);
    for (int i = 0; r == 0 && i < run->spec->nodes; i++) r = record_node(run, report, i, err);
    return r;
}

/* Names the worst failed check. Node checks come before gang checks, because a bad node fails its gang too. */
int verdict_error(const struct run *run, const struct report *report, struct gp_error *err) {
    const char *name = run->stack.name;
    const struct check_result *worst = NULL;
    int slot = 0;
    for (size_t i = 0; i < report->nodes.len; i++) {
        const struct report_node *rn = &report->nodes.items[i];
        for (size_t k = 0; k < rn->checks.len; k++) {
            const struct check_result *c = &rn->checks.items[k];
            if (holds(c, report->strict) || (worst != NULL && c->verdict <= worst->verdict)) continue;
            worst = c;
            slot = rn->slot;
        }
    }
    if (worst != NULL)
        return gp_fail(err, GP_EVALIDATE,
                       "%s/%d: %s: %s: %s (the nodes keep running: "
                       "'gpuprov report %s' shows all checks, 'gpuprov down %s' destroys them)",
                       name, slot, worst->check, verdict_name(worst->verdict), worst->message, name, name);
    for (size_t k = 0; k < report->gang.len; k++) {
        const struct check_result *c = &report->gang.items[k];
        if (!holds(c, report->strict))
            return gp_fail(err, GP_EVALIDATE,
                           "%s: %s: %s: %s (the nodes keep running: 'gpuprov "
                           "report %s' shows all checks, 'gpuprov down %s' destroys them)",
                           name, c->check, verdict_name(c->verdict), c->message, name, name);
    }
    return gp_fail(err, GP_EVALIDATE, "%s: not validated: no required check ran", name);
}

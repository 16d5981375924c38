/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the gang checks over all nodes, then the verdict. Runs in the verb's thread after the pool, and owns the SSH
 * sessions. */
#include "base/gp_base.h"

#include "engine/proof/barrier.h"

#include "engine/proof/history.h"
#include "engine/proof/node_target.h"
#include "engine/proof/run_baseline.h"
#include "engine/proof/verdict.h"
#include "engine/run/run_node.h"

int barrier_failures(struct run *run, struct gp_error *err) {
    const struct run_node *worst = NULL;
    int failed = 0;
    for (int i = 0; i < run->spec->nodes; i++) {
        struct run_node *n = &run->nodes[i];
        if (!n->exists && n->rc == 0)
            n->rc = gp_fail(&n->err, GP_EREACH, "%s/%d: there is no machine: run 'gpuprov up' to launch one",
                            run->stack.name, i);
        if (n->rc == 0) continue;
        failed++;
        int code = gp_exit_code(n->err.code);
        if (worst == NULL || gp_exit_worst(code, gp_exit_code(worst->err.code)) != gp_exit_code(worst->err.code))
            worst = n;
    }
    if (worst == NULL) return 0;
    if (gp_cancelled(
            &run->e->cancel)) /* whatever a node reports then is the effect of Ctrl-C, or no longer asked for */
        return gp_fail(err, GP_ECANCELLED, "'%s': stopped before all nodes were ready", run->stack.name);
    *err = worst->err;
    if (failed > 1) {
        size_t len = strlen(err->msg);
        snprintf(err->msg + len, sizeof err->msg - len, " (and %d more node%s failed)", failed - 1,
                 failed == 2 ? "" : "s");
    }
    return -(int)err->code;
}

/* The reason in the report for gang checks that did not run. */
static const char *gang_why(const struct run *run, const struct gp_error *failed, struct str *out) {
    int n = 0;
    for (int i = 0; i < run->spec->nodes; i++) n += run->nodes[i].rc != 0;
    if (n == 0) return failed->code != GP_OK ? failed->msg : "no rank reported a reason";
    str_addf(out, "%d of %d node%s failed", n, run->spec->nodes, run->spec->nodes == 1 ? "" : "s");
    return out->s;
}

static int run_gang_checks(struct run *run, struct report *report, struct gp_error *err) {
    struct gang_node *gang = xcalloc((size_t)run->spec->nodes, sizeof *gang);
    int r = 0;
    for (int i = 0; r == 0 && i < run->spec->nodes; i++) {
        struct run_node *n = &run->nodes[i];
        r = run_node_phase(n, NODE_GANG, err);
        n->link.cancel = &run->e->cancel; /* the watcher is stopped and passes nothing on */
        gang[i] = (struct gang_node){
            .link = &n->link, .private_ip = node_target_peer_address(n), .rn = &report->nodes.items[i]};
    }
    if (r == 0) r = validate_gang(gang, (size_t)run->spec->nodes, &run->validation.env, report, err);
    free(gang);
    return r;
}

/* A run that did not finish makes no node ready, even if its checks passed. */
static void withhold(struct report *report) {
    report->ready = false;
    for (size_t i = 0; i < report->nodes.len; i++) report->nodes.items[i].ready = false;
}

int barrier_run(struct run *run, struct report *report, struct gp_error *err) {
    struct gp_error failed = {0};
    verdict_collect(run, report);
    validate_peers(&run->validation.env, report);
    validate_products(&run->validation.env, report);
    run_baseline_hold(&run->validation.baseline, &run->validation.env, report, false);
    int r = barrier_failures(run, &failed);
    if (r == 0) r = run_gang_checks(run, report, &failed);
    GP_AUTO_STR struct str why = {0};
    verdict_judge(run, report, gang_why(run, &failed, &why));
    if (r == 0 && gp_cancelled(&run->e->cancel)) r = gp_fail(&failed, GP_ECANCELLED, "cancelled");
    if (r != 0) withhold(report);
    /* a report with failures is recorded too; that of a cancelled run is not */
    struct gp_error kept = {0};
    int k = gp_cancelled(&run->e->cancel) ? 0 : verdict_record(run, report, &kept);
    if (!gp_cancelled(&run->e->cancel)) history_add(run, report);
    if (r != 0 || k != 0) {
        if (err != NULL) *err = r != 0 ? failed : kept;
        return r != 0 ? r : k;
    }
    if (!report->ready) return verdict_error(run, report, err);
    return run->e->calibrate ? run_baseline_write(run->e, &run->validation.env, report, err) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the deadline that nodes keep themselves: every node stores the new one, then every node puts it in force. */
#include "base/gp_base.h"

#include "engine/proof/node_deadline.h"

#include "engine/proof/node_run.h"
#include "engine/proof/self_end.h"
#include "engine/proof/watch.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"

#define CONNECT_MS (60 * 1000)
#define STEP_MS (90 * 1000)

/* Whether its own unit ends it. */
static bool ends_itself(const struct run_node *n) {
    const struct provider_ops *ops = n->exists ? provider_find(n->res.provider) : NULL;
    if (ops == NULL || ops->lent) return false;
    return ops->guest_end == GUEST_POWEROFF || (ops->guest_end == GUEST_DELETES && n->res.ends_itself);
}

static int act(struct run_node *n, enum deadline_action action, struct gp_error *err) {
    const struct run *run = n->run;
    int64_t was_s = 0;
    struct bootstrap_move m = {.uid = run->stack.uid,
                               .run = run->id,
                               .expires_s = run->moved_expires_s,
                               .left_s = run->moved_expires_s - run_cloud_s(run, n->res.provider),
                               .idle_s = run->spec->idle_ms / 1000,
                               .controller_s = run->spec->controller_ms / 1000};
    if (m.left_s <= 0) return gp_fail(err, GP_EUSAGE, "%s/%d: the new deadline has passed", run->stack.name, n->slot);
    int r = bootstrap_move_deadline(&n->link, &m, action, &was_s, clock_deadline(STEP_MS), err);
    if (r != 0 || was_s == 0 || llabs(was_s - run->stack.expires_s) <= 60) return r;
    char node[40], tags[40];
    time_format_utc(node, sizeof node, was_s);
    time_format_utc(tags, sizeof tags, run->stack.expires_s);
    run_event(run, n->slot, n->rec.phase, EVENT_WARN, "ttl",
              "its own deadline was %s, and its tags had %s: both are set now", node, tags);
    return 0;
}

static void prepare(struct run_node *n) {
    bool known = n->rec.host_key != NULL && n->rec.host_key[0] != '\0';
    int r =
        known ? node_run_connect(n, CONNECT_MS, &n->err)
              : gp_fail(&n->err, GP_EREACH, "%s/%d: it was never reached: run 'gpuprov up' with the earlier ttl first",
                        n->run->stack.name, n->slot);
    if (r == 0) r = node_run_hand_over(n, &n->err);
    if (r == 0) r = act(n, DEADLINE_PREPARE, &n->err);
    n->rc = r;
}

static void commit(struct run_node *n) { n->rc = act(n, DEADLINE_COMMIT, &n->err); }

static void restore(struct run_node *n) {
    struct gp_error why = {0};
    n->unreached = n->link.session != NULL && act(n, DEADLINE_RESTORE, &why) != 0;
    if (!n->unreached) return;
    char when[40];
    time_format_utc(when, sizeof when, n->run->moved_expires_s);
    run_event(n->run, n->slot, n->rec.phase, EVENT_WARN, "ttl", "it may have the deadline %s already: %s", when,
              why.msg);
}

static void finish(struct run_node *n) {
    struct gp_error why = {0};
    act(n, DEADLINE_FINISH, &why);
}

static int first_failure(const struct run *run, struct gp_error *err) {
    for (int i = 0; i < run->n_nodes; i++) {
        const struct run_node *n = &run->nodes[i];
        if (n->skip || n->rc == 0) continue;
        if (err != NULL) *err = n->err;
        return n->rc;
    }
    return 0;
}

static int all_or_none(struct run *run, struct gp_error *err) {
    int r = pool_run(run, prepare, err);
    if (r == 0) r = first_failure(run, err);
    if (r == 0) r = pool_run(run, commit, err);
    if (r == 0) r = first_failure(run, err);
    pool_run(run, r == 0 ? finish : restore, NULL);
    return r == 0 ? 0 : gp_wrap(err, "the deadline was not moved");
}

int node_deadline_move(struct run *run, bool *ret_mixed, struct gp_error *err) {
    int n = 0, r = 0;
    *ret_mixed = false;
    for (int i = 0; i < run->n_nodes; i++) {
        run->nodes[i].skip = !ends_itself(&run->nodes[i]);
        run->nodes[i].rc = 0;
        run->nodes[i].unreached = false;
        n += !run->nodes[i].skip;
    }
    if (n == 0) return 0;
    int64_t before_s = run->stack.expires_s;
    run->stack.expires_s = GP_MAX(before_s, run->moved_expires_s); /* credentials of nodes must reach to it */
    r = self_end_prepare(run, err);
    run->stack.expires_s = before_s;
    if (r == 0) r = watch_start(run, err);
    if (r != 0) return r;
    r = all_or_none(run, err);
    watch_stop(run);
    int confirmed = self_end_confirm(run, r == 0 ? err : NULL);
    for (int i = 0; i < run->n_nodes; i++) {
        *ret_mixed = *ret_mixed || run->nodes[i].unreached;
        node_link_close(&run->nodes[i].link);
        gp_cancel_clear(&run->nodes[i].cancel);
        gp_error_clear(&run->nodes[i].err);
        run->nodes[i].rc = 0;
        run->nodes[i].skip = false;
    }
    return r == 0 ? confirmed : r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The verb extend: moves the deadline of a stack on its nodes, in the tags and in the journal, in this order, so that
 * the earlier deadline counts wherever it is cut. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/extend.h"

#include "engine/proof/node_deadline.h"
#include "engine/run/login_key.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/claim.h"
#include "engine/stack/cost.h"
#include "engine/stack/deadline.h"
#include "engine/stack/open_known.h"

#define LONGEST_S ((int64_t)30 * 86400) /* as limits.ttl */
#define SHORTEST_S 60

int deadline_move_nodes(struct run *run, struct gp_error *err) {
    struct gp_error second = {0};
    bool mixed = false;
    if (run->moved_expires_s == 0) return 0;
    int r = login_key_get(run, false, err);
    if (r == 0) r = deadline_begin(run, err);
    if (r != 0) return r;
    r = node_deadline_move(run, &mixed, err);
    if (r != 0 && r != -GP_ECANCELLED && !mixed && deadline_abandon(run, &second) != 0)
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "journal", "%s", second.msg);
    return r;
}

static int check_time(const struct run *run, bool add, int64_t now_s, int64_t to_s, struct gp_error *err) {
    char at[40];
    const char *name = run->stack.name;
    time_format_utc(at, sizeof at, to_s);
    if (run->stack.expires_s == 0 && add)
        return gp_fail(err, GP_EUSAGE, "the deadline of '%s' is not known: give a time from now, without '+'", name);
    if (run->stack.expires_s > 0 && now_s >= run->stack.expires_s)
        return gp_fail(err, GP_EUSAGE, "the deadline of '%s' has passed: run 'gpuprov down %s'", name, name);
    if (to_s - now_s < SHORTEST_S)
        return gp_fail(err, GP_EUSAGE, "'%s': %s is less than a minute from now: run 'gpuprov down %s' to end it", name,
                       at, name);
    if (to_s - now_s > LONGEST_S)
        return gp_fail(err, GP_EUSAGE, "'%s': %s is more than 30 days from now: give a shorter time", name, at);
    return 0;
}

/* A node at a place that was not looked at would keep its deadline. */
static int check_places(const struct run *run, struct gp_error *err) {
    const struct look *gap = coverage_gap(&run->look.covered);
    if (gap != NULL)
        return gp_fail(err, gap->why.code, "'%s' may have nodes at %s%s%s, which was not looked at: %s",
                       run->stack.name, gap->provider, gap->region[0] != '\0' ? " " : "", gap->region, gap->why.msg);
    for (size_t i = 0; i < run->providers.len; i++) {
        const struct provider *p = run->providers.items[i];
        char until[40];
        bool late = p->credentials_until_s != 0 && p->credentials_until_s < run->moved_expires_s;
        time_format_utc(until, sizeof until, p->credentials_until_s);
        if (late && run_nodes_end(run) == ENDS_GC_ONLY)
            return gp_fail(
                err, GP_EUSAGE,
                "'%s': the credentials for %s end at %s, before the new deadline, and only 'gpuprov gc' would "
                "terminate the nodes: use credentials that last longer, or give a shorter time",
                run->stack.name, p->ops->name, until);
    }
    const struct provider_ops *fixed = deadline_cannot_move(run);
    if (fixed == NULL) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "'%s': %s cannot move the deadline of running nodes: launch a second stack with a longer limits.ttl",
                   run->stack.name, fixed->name);
}

static int check_cost(const struct run *run, double usd, struct gp_error *err) {
    char limit[48];
    if (run->spec->max_cost == 0 || run->moved_expires_s <= run->stack.expires_s) return 0;
    spec_money_text(limit, sizeof limit, run->spec->max_cost, "USD");
    if (usd < 0)
        return gp_fail(err, GP_EMONEY, "'%s': the price of a node is not known, and limits.max_cost is %s",
                       run->stack.name, limit);
    if (usd * 1e6 <= (double)run->spec->max_cost) return 0;
    return gp_fail(
        err, GP_EMONEY,
        "'%s' would cost up to %.2f USD until the new deadline, over limits.max_cost %s: give a shorter time, or "
        "raise the limit in the spec and run 'gpuprov up'",
        run->stack.name, usd, limit);
}

static int move(struct run *run, const struct extend_req *req, struct extend_result *ret, struct gp_error *err) {
    int64_t now_s = run_cloud_s(run, run->stack.provider);
    int64_t to_s = (req->add ? run->stack.expires_s : now_s) + req->by_ms / 1000;
    const struct provider_ops *ops = provider_find(run->stack.provider);
    ret->stack = xstrdup(run->stack.name);
    ret->was_s = ret->expires_s = run->stack.expires_s;
    int r = check_time(run, req->add, now_s, to_s, err);
    run->moved_expires_s = to_s;
    if (r == 0) r = check_places(run, err);
    if (r != 0) return r;
    ret->max_usd = cost_of(run, 0, 0).usd;
    r = check_cost(run, ret->max_usd, err);
    if (r == 0) r = deadline_move_nodes(run, err);
    if (r == 0) r = claim_take(run, err);
    if (r == 0) r = journal_stack_put(run->e->journal, &run->stack, NULL, err);
    enum offer_ends ends = run_nodes_end(run);
    if (ends == ENDS_BY_PROVIDER && ops != NULL) ends = ops->ends;
    ret->ends = xstrdup(offer_ends_name(ends));
    if (r != 0) return r;
    ret->expires_s = to_s;
    ret->left_s = to_s - now_s;
    return 0;
}

int engine_extend(struct engine *e, const struct extend_req *req, struct extend_result *ret, struct gp_error *err) {
    struct run *run = NULL;
    int r = run_open_journaled(e, req->spec, req->name, &run, err);
    if (r == 0) r = adopt_existing(run, err);
    if (r == 0) r = move(run, req, ret, err);
    if (r != 0 && run != NULL && run->stack.uid != NULL) run_event_end(run, err);
    run_close(run);
    return r;
}

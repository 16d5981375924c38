/* SPDX-License-Identifier: Apache-2.0 */
/* Launches the missing nodes: gang-wise, offer after offer, each attempt after its intent (which the provider
 * commits). A create call with an unknown outcome is settled before anything else is tried. Nodes that a refused call
 * launched anyway are used; if the rest cannot be launched beside them, they are destroyed. */
#include "base/gp_base.h"

#include "engine/stack/launch.h"

#include "engine/internal.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/give_back.h"
#include "engine/trust/trust.h"
#include "templates/templates.h"

#define REPLAYS 3
#define LAUNCHES_S 600 /* time in which a run that claimed the stack sends its launches */

/* What a refusal rules out for the rest of this launch. */
struct ruled_out {
    enum gp_scope scope;
    const struct offer *offer;
};
struct launch {
    struct run *run;
    VEC_OF(struct ruled_out) out;
    struct str reasons;
    struct gp_error last; /* refusal */
    bool nowhere;         /* every offer that fits has refused what is missing */
    int worst_exit;
    enum gp_code worst;
    struct secret host_key; /* first-contact pair, one per launch */
    char *host_key_public;
};

static bool is_ruled_out(const struct launch *l, const struct offer *o) {
    for (size_t i = 0; i < l->out.len; i++) {
        const struct offer *bad = l->out.items[i].offer;
        bool provider = strcmp(bad->provider, o->provider) == 0;
        bool region = provider && strcmp(bad->region, o->region) == 0;
        bool place = region && strcmp(bad->zone, o->zone) == 0 && strcmp(bad->instance_type, o->instance_type) == 0 &&
                     bad->market == o->market;
        switch (l->out.items[i].scope) {
        case GP_SCOPE_ZONE:
            if (place) return true;
            break;
        case GP_SCOPE_REGION:
            if (region && bad->market == o->market && strcmp(bad->instance_type, o->instance_type) == 0) return true;
            break;
        case GP_SCOPE_OFFER:
            if (bad->spec_index == o->spec_index) return true;
            break;
        case GP_SCOPE_PROVIDER:
            if (provider) return true;
            break;
        case GP_SCOPE_NONE: break;
        }
    }
    return false;
}

static int take_created(struct run *run, const struct resource_list *made, const char *first_key,
                        struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < made->list.len; i++) {
        const struct resource *res = &made->list.items[i];
        if (!resource_is_machine(res) || res->slot < 0 || res->slot >= RUN_MAX_SLOTS) continue;
        engine_note_resource(run->e, res, true);
        run_nodes_alloc(run, res->slot + 1);
        struct run_node *n = &run->nodes[res->slot];
        if (res->state == RES_GONE) { /* a settled launch whose machine terminated since */
            n->rec.attempt = GP_MAX(n->rec.attempt, res->attempt);
            continue;
        }
        resource_clear(&n->res);
        resource_copy(&n->res, res);
        trust_machine(run, &n->res); /* where this machine alone decides what there is, a reply names only its own */
        n->exists = true;
        resource_set(&n->rec.resource_id, res->id);
        if (first_key != NULL) resource_set(&n->rec.host_key_first, first_key);
        if (res->other_run) resource_set(&n->rec.host_key_first, "");
        resource_set(&n->rec.host_key_next, "");
        resource_set(&n->rec.host_key, "");
        n->rec.attempt = res->attempt;
        n->rec.phase = NODE_LAUNCHING;
        trust_tag_key(n);
        r = run_node_save(n, err);
        if (r == 0)
            run_event(run, res->slot, NODE_LAUNCHING, EVENT_DONE, "create", "%s in %s%s%s", res->id, res->region,
                      res->zone[0] ? " " : "", res->zone);
    }
    return r;
}

int launch_replay(struct run *run, const struct intent *intent, struct gp_error *err) {
    struct provider *p = NULL;
    int r = run_provider(run, intent->provider, &p, err);
    if (r != 0) return r;
    struct offer offer = {.provider = intent->provider,
                          .region = intent->region,
                          .zone = intent->zone,
                          .instance_type = xstrdup(""),
                          .image = xstrdup(""),
                          .image_name = xstrdup(""),
                          .subnet = xstrdup(""),
                          .gpu_model = xstrdup(""),
                          .price_usd_per_h = -1,
                          .price_source = xstrdup("")};
    struct create_req req = {.stack = &run->stack,
                             .spec = run->spec,
                             .offer = &offer,
                             .slot_first = intent->slot_first,
                             .slot_count = intent->slot_count,
                             .attempt = intent->attempt,
                             .proof = &run->proof,
                             .login_pubkey = run->login.pubkey,
                             .user_data = "",
                             .host_key_private = "",
                             .host_key_public = "",
                             .replay = intent};
    struct gp_error why = {0};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    for (int i = 0; i < REPLAYS; i++) {
        gp_error_clear(&why);
        resource_list_clear(&made);
        run_event(run, -1, NODE_LAUNCHING, EVENT_PROGRESS, "settle",
                  "the outcome of a launch (nodes %d..%d, attempt %d) is not known: settling it at %s",
                  intent->slot_first, intent->slot_first + intent->slot_count - 1, intent->attempt, intent->provider);
        r = p->ops->create(p, &req, &made, &why);
        if (r != -GP_EUNKNOWN) break;
        struct gp_error cancelled = {0};
        if (gp_sleep(1000 << i, &run->e->cancel, &cancelled) != 0) break;
    }
    free(offer.instance_type);
    free(offer.image);
    free(offer.image_name);
    free(offer.subnet);
    free(offer.gpu_model);
    free(offer.price_source);
    if (r == 0) return take_created(run, &made, NULL, err);
    for (size_t i = 0; i < made.list.len; i++) /* they exist, whatever failed then, and perhaps unrecorded */
        engine_note_resource(run->e, &made.list.items[i], true);
    if (made.list.len > 0) (void)take_created(run, &made, NULL, NULL);
    if (err != NULL) *err = why;
    if (r == -GP_EUNKNOWN)
        return gp_wrap(err,
                       "nodes %d..%d may exist at %s (token %s): 'gpuprov up' repeats the "
                       "launch, 'gpuprov down %s' destroys them",
                       intent->slot_first, intent->slot_first + intent->slot_count - 1, intent->provider, intent->token,
                       run->stack.name);
    return r;
}

int launch_settle(struct run *run, const struct intent *in, struct gp_error *err) {
    struct intent_list open = {0};
    struct gp_error why = {0}, unread = {0};
    int r = launch_replay(run, in, &why);
    if (r == 0) return 0;
    bool is_open = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, &unread) != 0;
    for (size_t i = 0; i < open.list.len; i++) is_open = is_open || open.list.items[i].id == in->id;
    intent_list_clear(&open);
    bool nothing = r != -GP_EBILLED && r != -GP_ECANCELLED;
    for (int s = in->slot_first; s < in->slot_first + in->slot_count && s < run->n_nodes; s++)
        nothing = nothing && !run->nodes[s].exists;
    if (is_open || !nothing) {
        if (err != NULL) *err = why;
        return r;
    }
    run_event(run, -1, NODE_LAUNCHING, EVENT_WARN, "settle", "the launch created nothing: %s", why.msg);
    return 0;
}

/* Replays every open launch. After success no outcome is unknown. */
static int settle_unknown(struct run *run, struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++)
        if (open.list.items[i].kind == RES_INSTANCE && str_eq(open.list.items[i].spec_hash, run->spec->hash))
            r = launch_settle(run, &open.list.items[i], err);
    intent_list_clear(&open);
    return r;
}

/* A node that is launched late gets the rest of its stack's time, at least a minute. */
static int64_t time_left_s(const struct run *run, const struct provider *p) {
    return GP_MAX(run->stack.expires_s - clock_wall_s() - p->clock_skew_s, (int64_t)60);
}

static bool ends_itself(const struct provider *p, const struct offer *o) {
    return p->ops->guest_end == GUEST_POWEROFF || (p->ops->guest_end == GUEST_DELETES && o->ends == ENDS_GUEST);
}

static int render_user_data(struct launch *l, const struct provider *p, const struct offer *o, struct str *out,
                            struct gp_error *err) {
    struct run *run = l->run;
    struct container_start_req start = {.login_pubkey = run->login.pubkey,
                                        .host_key_private = secret_reveal(&l->host_key),
                                        .host_key_public = l->host_key_public,
                                        .max = p->ops->user_data_max};
    if (p->ops->node_shape == NODE_CONTAINER) return template_container_start(&start, out, err);
    struct deadline_req end = {.uid = run->stack.uid,
                               .expires_s = run->stack.expires_s,
                               .ttl_s = time_left_s(run, p),
                               .idle_s = run->spec->idle_ms / 1000,
                               .controller_s = run->spec->controller_ms / 1000,
                               .end_script = p->ops->end_script};
    struct cloud_init_req req = {.login_pubkey = run->login.pubkey,
                                 .host_key_private = secret_reveal(&l->host_key),
                                 .host_key_public = l->host_key_public,
                                 .stack = run->stack.name,
                                 .uid = run->stack.uid,
                                 .deadline = ends_itself(p, o) ? &end : NULL,
                                 .max = p->ops->user_data_max};
    return template_cloud_init(&req, out, err);
}

/* Claims the stack at the offer's provider too, before anything is launched there. */
static int claim_there_too(struct run *run, struct provider *p, const struct offer *o, struct gp_error *err) {
    if (strcmp(p->ops->name, run->stack.provider) == 0) return 0;
    struct stack there = {0};
    stack_copy(&there, &run->stack);
    free(there.region);
    there.region = xstrdup(o->region);
    struct prepare_req req = {.stack = &there, .spec = run->spec, .further = true};
    int r = p->ops->prepare(p, &req, err);
    if (r == 0 && strcmp(there.uid, run->stack.uid) != 0)
        r = gp_fail(err, GP_EEXISTS,
                    "%s has another stack '%s' (uid %s): destroy it first, or choose "
                    "another name",
                    p->ops->name, run->stack.name, there.uid);
    stack_clear(&there);
    return r;
}

/* Other offers may have taken the stack's time: nothing is launched that should be gone already. */
static int check_time(const struct run *run, const struct provider *p, struct gp_error *err) {
    int64_t now_s = clock_wall_s() + p->clock_skew_s;
    if (run->stack.expires_s == 0 || now_s < run->stack.expires_s) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "'%s': its deadline passed before all nodes were launched: run 'gpuprov down %s', set a longer "
                   "limits.ttl, then run 'gpuprov up'",
                   run->stack.name, run->stack.name);
}

/* Two runs under one claim send the same tokens, so that a node is made once. A cloud without tokens would make it
 * twice: there a run waits until the other one, which claimed the stack a moment ago, must have launched. */
static int check_alone(const struct run *run, const struct provider *p, struct gp_error *err) {
    int64_t age_s = clock_wall_s() + p->clock_skew_s - run->stack.created_s;
    if (!run->shares_claim || !p->ops->billed || p->ops->replay_max_s > 0 || age_s >= LAUNCHES_S) return 0;
    return gp_fail(err, GP_EEXISTS,
                   "%s: another run claimed '%s' %lld s ago and may be launching it: run the same command again in "
                   "%lld s, or 'gpuprov down %s' if there is no other run",
                   p->ops->name, run->stack.name, (long long)GP_MAX(age_s, (int64_t)0), (long long)(LAUNCHES_S - age_s),
                   run->stack.name);
}

/* limits.max_cost may give each offer's nodes another deadline, as long as there are none. */
static int set_deadline(struct run *run, const struct offer *o, struct gp_error *err) {
    if (o->ttl_ms == 0 || run_any_exists(run)) return 0;
    int64_t from_s = run->stack.created_s > 0 ? run->stack.created_s : run_cloud_s(run, o->provider);
    run->stack.expires_s = from_s + o->ttl_ms / 1000;
    return journal_stack_put(run->e->journal, &run->stack, NULL, err);
}

static int try_offer(struct launch *l, const struct offer *o, int first, int count, struct gp_error *err) {
    struct run *run = l->run;
    struct provider *p = NULL;
    GP_AUTO_STR struct str user_data = {0};
    str_add(&user_data, "");
    int r = run_provider(run, o->provider, &p, err);
    if (r == 0) r = claim_there_too(run, p, o, err); /* its replies have the cloud's time */
    if (r == 0) r = set_deadline(run, o, err);
    if (r == 0) r = check_time(run, p, err);
    if (r == 0) r = check_alone(run, p, err);
    if (r == 0 && p->ops->user_data && l->host_key_public == NULL)
        r = ssh_key_make("gpuprov-first-contact", &l->host_key, &l->host_key_public, err);
    if (r == 0 && p->ops->user_data) r = render_user_data(l, p, o, &user_data, err);
    int attempt = 0;
    for (int s = first; s < first + count; s++) attempt = GP_MAX(attempt, run->nodes[s].rec.attempt + 1);
    for (int s = first; r == 0 && s < first + count; s++) {
        struct run_node *n = &run->nodes[s];
        n->rec.attempt = attempt;
        n->rec.phase = NODE_LAUNCHING;
        resource_set(&n->rec.host_key_first, p->ops->user_data ? l->host_key_public : "");
        r = run_node_save(n, err);
    }
    if (r != 0) return r;
    GP_AUTO_FREE char *text = offer_text(o);
    run_event(run, count == 1 ? first : -1, NODE_LAUNCHING, EVENT_START, "create", "%d x %s", count, text);
    struct create_req req = {.stack = &run->stack,
                             .spec = run->spec,
                             .offer = o,
                             .slot_first = first,
                             .slot_count = count,
                             .attempt = attempt,
                             .proof = &run->proof,
                             .login_pubkey = run->login.pubkey,
                             .user_data = user_data.s,
                             .host_key_private = p->ops->user_data ? secret_reveal(&l->host_key) : "",
                             .host_key_public = p->ops->user_data ? l->host_key_public : ""};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    GP_AUTO_FREE char *under_way = xasprintf("(a launch of nodes %d..%d at %s %s, without a reply yet)", first,
                                             first + count - 1, o->provider, o->zone[0] ? o->zone : o->region);
    if (p->ops->billed) engine_note_billed(run->e, under_way, true); /* for the second Ctrl-C */
    r = p->ops->create(p, &req, &made, err);
    if (r != -GP_EUNKNOWN && r != -GP_ECANCELLED) engine_note_billed(run->e, under_way, false);
    for (size_t i = 0; r != 0 && i < made.list.len; i++) /* launched, perhaps not recorded */
        engine_note_resource(run->e, &made.list.items[i], true);
    if (r == -GP_EBILLED) return r;
    struct gp_error why = {0};
    int taken = take_created(run, &made, p->ops->user_data ? l->host_key_public : NULL, &why);
    if (taken != 0) {
        if (err != NULL) *err = why;
        return taken;
    }
    if (r != -GP_EUNKNOWN) return r;
    gp_error_clear(err);
    r = settle_unknown(run, err);
    if (r != -GP_EUNKNOWN && r != -GP_ECANCELLED) engine_note_billed(run->e, under_way, false);
    return r;
}

static bool any_exists(const struct run *run, int first, int count) {
    for (int s = first; s < first + count; s++)
        if (run->nodes[s].exists) return true;
    return false;
}

/* What a failed create rules out; NONE: it stops the launch. An unknown outcome is never a refusal. */
static enum gp_scope refused_scope(const struct gp_error *why) {
    if (why->code == GP_EUNKNOWN || why->code == GP_ECANCELLED || why->code == GP_EBILLED) return GP_SCOPE_NONE;
    if (why->scope != GP_SCOPE_NONE) return why->scope;
    switch (why->code) {
    case GP_ECAPACITY:
    case GP_EQUOTA:
    case GP_ETHROTTLED: return GP_SCOPE_ZONE;
    case GP_EENDPOINT: return GP_SCOPE_REGION;
    case GP_EAUTH:
    case GP_EMONEY: return GP_SCOPE_PROVIDER;
    default: return GP_SCOPE_NONE;
    }
}

/* Records a refusal; false: an error that stops the launch. */
static bool note_refusal(struct launch *l, const struct offer *o, const struct gp_error *why) {
    enum gp_scope scope = refused_scope(why);
    if (scope == GP_SCOPE_NONE) return false;
    struct ruled_out out = {.scope = scope, .offer = o};
    vec_push(&l->out, out);
    l->last = *why;
    GP_AUTO_FREE char *text = offer_text(o);
    run_event(l->run, -1, NODE_LAUNCHING, EVENT_WARN, "create", "%s: %s", text, why->msg);
    str_addf(&l->reasons, "%s%s: %s", l->reasons.len ? "; " : "", text, why->detail[0] ? why->detail : why->msg);
    int code = gp_exit_code(why->code);
    if (l->worst == GP_OK || gp_exit_worst(code, l->worst_exit) != l->worst_exit) {
        l->worst = why->code;
        l->worst_exit = code;
    }
    return true;
}

/* 0: some or all nodes of the range exist now. */
static int launch_range(struct launch *l, const struct offer_list *offers, int first, int count, struct gp_error *err) {
    struct run *run = l->run;
    bool skipped = false;
    for (size_t i = 0; i < offers->list.len; i++) {
        const struct offer *o = &offers->list.items[i];
        if (gp_cancelled(&run->e->cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
        if (is_ruled_out(l, o) || !run_nodes_beside(run, o->provider, o->region)) continue;
        if (o->max_count > 0 && o->max_count < count) {
            str_addf(&l->reasons, "%s%s has capacity for %d", l->reasons.len ? "; " : "", o->provider, o->max_count);
            skipped = true;
            continue;
        }
        struct gp_error why = {0};
        int r = try_offer(l, o, first, count, &why);
        if (r != 0 && !note_refusal(l, o, &why)) {
            if (err != NULL) *err = why;
            return r;
        }
        if (any_exists(run, first, count)) return 0;
        /* refused, or a settled launch that made nothing: go on with the next offer */
    }
    l->nowhere = true;
    if (l->out.len == 1 && !skipped) { /* then its own message is more specific */
        if (err != NULL) *err = l->last;
        return gp_wrap(err, "no offer has %d node%s", count, count == 1 ? "" : "s");
    }
    enum gp_code none = skipped ? GP_ECAPACITY : GP_EUSAGE;
    return gp_fail(err, l->worst ? l->worst : none, "no offer has %d node%s: %s", count, count == 1 ? "" : "s",
                   l->reasons.s ? l->reasons.s
                                : "none fits beside the nodes "
                                  "that are there");
}

/* Each round launches some of the missing nodes, or fails. */
static int launch_all(struct launch *l, const struct offer_list *offers, struct gp_error *err) {
    for (;;) {
        int first = 0, count = 0, wanted = l->run->spec->nodes;
        while (first < wanted && l->run->nodes[first].exists) first++;
        if (first == wanted) return 0;
        while (first + count < wanted && !l->run->nodes[first + count].exists) count++;
        int r = launch_range(l, offers, first, count, err);
        if (r != 0) return r;
    }
}

int launch_missing(struct run *run, const struct offer_list *offers, struct gp_error *err) {
    struct launch l = {.run = run};
    int wanted = run->spec->nodes, r = 0;
    bool *before = xcalloc((size_t)wanted, sizeof *before);
    int *made = xcalloc((size_t)wanted, sizeof *made);
    for (int s = 0; s < wanted; s++) before[s] = run->nodes[s].exists;
    for (;;) {
        struct gp_error why = {0};
        size_t n = 0;
        l.nowhere = false;
        r = launch_all(&l, offers, &why);
        for (int s = 0; s < wanted; s++)
            if (run->nodes[s].exists && !before[s]) made[n++] = s;
        bool part = r != 0 && l.nowhere && n > 0;
        if (part)
            r = give_back(run, made, n, "of a gang that cannot be completed there",
                          err); /* then the whole gang may fit elsewhere */
        if (part && r == 0) continue;
        if (!part && r != 0 && err != NULL) *err = why;
        break;
    }
    free(before);
    free(made);
    vec_free(&l.out);
    str_clear(&l.reasons);
    secret_clear(&l.host_key);
    free(l.host_key_public);
    return r;
}

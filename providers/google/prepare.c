// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack: a firewall rule gpuprov-STACK-HASH with uid, spec and expiry in the description of the same
 * create call. Google keeps the name unique in the project, so of two concurrent claims one wins and the other reads
 * the winner. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "providers/common/ownership.h"

#define CLAIM_SHARED_S 600 /* age up to which another run may still be working on a claim */
#define TRIES 8

static int is_of(const struct google_rule *r, const struct stack *s, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *what = xasprintf("google: the firewall rule '%s'", r->name);
    return cloud_check_owner(&r->tags, what, s, uid, err);
}

/* The regions where a stack of this spec may have resources at Google. */
static void spec_regions(const struct spec *spec, const struct stack *s, struct strv *ret) {
    GP_AUTO_FREE char *set = google_default_region();
    strv_add(ret, s->region);
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (!str_eq(o->provider, "google")) continue;
        for (size_t k = 0; k < o->regions.n; k++) strv_add(ret, o->regions.v[k]);
        if (o->regions.n == 0 && set != NULL) strv_add(ret, set);
    }
}

/* The network of all offers: a rule is valid in one network only. */
static int network_of_spec(struct google *g, const struct spec *spec, const char *home, char **ret,
                           struct gp_error *err) {
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (str_eq(o->provider, "google"))
            return google_network_of(g, o->regions.n > 0 ? o->regions.v[0] : home, o, ret, err);
    }
    *ret = xstrdup("default");
    return 0;
}

/* A claim that another run of the same spec created a moment ago: both runs use its times, so that both send equal
 * requests. The spec's times replace those of any other claim without machines. */
static bool shares_times(const struct google *g, const struct tags *t, const struct stack *s) {
    int64_t now = google_now_s(g), age_s = now - t->created_s;
    int64_t ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : now);
    return t->created_s > 0 && age_s < CLAIM_SHARED_S && age_s > -CLAIM_SHARED_S &&
           str_eq(t->spec_hash, s->spec_hash) && llabs(t->expires_s - t->created_s - ttl_s) <= 60;
}

static bool same_networks(const struct strv *a, const struct strv *b) {
    for (size_t i = 0; i < a->n; i++)
        if (!strv_has(b, a->v[i])) return false;
    for (size_t i = 0; i < b->n; i++)
        if (!strv_has(a, b->v[i])) return false;
    return true;
}

/* True if it names each region already. A claim that names none stands for all. */
static bool add_regions(const struct strv *regions, struct google_rule *r) {
    GP_AUTO_FREE char *named = tags_regions(&r->tags);
    GP_AUTO_STRV struct strv all = {0};
    bool there = true;
    if (!tags_regions_split(named, &all)) return true;
    for (size_t i = 0; i < regions->n; i++) {
        if (strv_has(&all, regions->v[i])) continue;
        strv_add(&all, regions->v[i]);
        there = false;
    }
    if (there) return true;
    GP_AUTO_FREE char *text = tags_regions_text(&all);
    resource_set(&r->tags.regions, text);
    resource_set(&r->tags.more_regions, "");
    return false;
}

/* Makes the claim that of this spec: networks, regions and, with `times`, the times of the stack. */
static int update(struct google *g, const struct spec *spec, const struct stack *s, bool times, struct google_rule *r,
                  struct gp_error *err) {
    GP_AUTO_STRV struct strv from = {0}, regions = {0};
    int rc = google_ssh_from(g, spec, &from, err);
    if (rc != 0) return rc;
    spec_regions(spec, s, &regions);
    bool same = add_regions(&regions, r) && same_networks(&from, &r->from) && r->changed.n == 0 && !times;
    if (times) {
        r->tags.created_s = s->created_s;
        r->tags.expires_s = s->expires_s;
        resource_set(&r->tags.spec_hash, s->spec_hash);
    }
    return same ? 0 : google_rule_patch(g, r, &from, err);
}

/* Reads or creates the claim; at the end *ret is the rule as it is at Google. An unseen claim is not read first: if it
 * exists, Google refuses the name, and then it is read. */
static int claim(struct google *g, const struct prepare_req *req, const char *network, bool *ret_made,
                 struct google_rule *ret, struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_STRV struct strv from = {0}, regions = {0};
    GP_AUTO_FREE char *name = google_claim_name(s->owner, s->name);
    struct gp_error last = {0};
    char uid[17];
    bool read = s->uid != NULL;
    int r = fs_random_hex(uid, 8, err);
    if (r == 0) r = google_ssh_from(g, req->spec, &from, err);
    if (r != 0) return r;
    spec_regions(req->spec, s, &regions);
    GP_AUTO_FREE char *text = tags_regions_text(&regions);
    struct stack fresh = {.owner = s->owner,
                          .name = s->name,
                          .uid = req->further ? s->uid : uid,
                          .spec_hash = s->spec_hash,
                          .unit = s->unit,
                          .region = s->region,
                          .created_s = google_now_s(g),
                          .expires_s = s->expires_s};
    struct google_new_rule new = {&fresh, name, network, text, &from};
    for (int i = 0; i < TRIES; i++, read = true) {
        if (read) r = google_rule_get(g, name, ret, err);
        if (r != 0 || ret->name != NULL) return r;
        /* Google knows the name at once, and shows the rule when its operation is done. */
        if (i > 0 && gp_sleep(100 << i, g->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
        gp_error_clear(&last);
        r = google_rule_create(g, &new, ret, &last);
        *ret_made = r == 0;
        if (r == 0) return 0;
        if (r != -GP_EEXISTS && r != -GP_EUNKNOWN) break;
        r = 0;
    }
    /* Without permission to create one this rule may still exist. */
    if (!read && google_rule_get(g, name, ret, NULL) == 0 && ret->name != NULL) return 0;
    if (err != NULL) *err = last;
    return -(int)last.code;
}

static int take_claim(struct google *g, const struct prepare_req *req, bool made, struct google_rule *r,
                      struct gp_error *err) {
    struct stack *s = req->stack;
    bool shared = made || shares_times(g, &r->tags, s);
    free(s->uid);
    s->uid = xstrdup(r->tags.uid);
    if (shared) {
        s->created_s = r->tags.created_s;
        s->expires_s = r->tags.expires_s;
    }
    if (r->home[0] != '\0') resource_set(&s->region, r->home);
    return made ? 0 : update(g, req->spec, s, !shared, r, err);
}

/* Whether nodes that a launch made lack the rule between them: it was cut, or somebody deleted the rule. One that is
 * there is as gpuprov makes it afterwards, because it allows everything. */
static int look_at_members(struct google *g, const struct prepare_req *req, bool *ret_lack, struct gp_error *err) {
    GP_AUTO_FREE char *name = google_members_name(req->stack->uid);
    size_t nodes = 0;
    bool known = false, there = false;
    for (size_t i = 0; i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        if (k->state == RES_GONE || !str_eq(k->provider, "google")) continue;
        known = known || (k->kind == RES_GROUP && str_eq(k->id, name));
        nodes += k->kind == RES_INSTANCE;
    }
    int r = known ? google_members_look(g, req->stack, &there, err) : 0;
    *ret_lack = r == 0 && !there && nodes > 0 && req->spec->nodes > 1;
    return r;
}

/* A stack that has machines keeps its claim; its rule gets the networks and the regions of the current spec. */
static int apply_access(struct google *g, const struct prepare_req *req, struct gp_error *err) {
    bool lack = false;
    int r = look_at_members(g, req, &lack, err);
    for (size_t i = 0; r == 0 && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        GP_AUTO_RULE struct google_rule rule = {0};
        bool its = k->kind == RES_GROUP && k->state != RES_GONE && k->claim && str_eq(k->provider, "google") &&
                   str_eq(k->uid, req->stack->uid) && google_name_valid(k->id);
        if (!its) continue;
        r = google_rule_get(g, k->id, &rule, err);
        if (r == 0 && rule.name != NULL) r = is_of(&rule, req->stack, req->stack->uid, err);
        if (r == 0 && rule.name != NULL) r = update(g, req->spec, req->stack, false, &rule, err);
        if (r == 0 && rule.name != NULL && lack) r = google_members_ensure(g, req->stack, rule.network, err);
    }
    return r != 0 ? gp_wrap(err, "access of stack '%s'", req->stack->name) : 0;
}

int google_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct google *g = google_of(p);
    struct stack *s = req->stack;
    GP_AUTO_RULE struct google_rule rule = {0};
    GP_AUTO_FREE char *network = NULL;
    bool made = false;
    if (req->known != NULL) return apply_access(g, req, err);
    if (!google_name_valid(s->region))
        return gp_fail(err, GP_EUSAGE, "google: no region for the stack '%s': give regions in the offer", s->name);
    int r = network_of_spec(g, req->spec, s->region, &network, err);
    if (r == 0) r = claim(g, req, network, &made, &rule, err);
    if (r == 0) r = is_of(&rule, s, req->further ? s->uid : NULL, err);
    if (r == 0 && strcmp(rule.network, network) != 0)
        r = gp_fail(
            err, GP_EEXISTS,
            "google: the firewall rule '%s' is in the network '%.63s', but the spec's nodes are in '%.63s': run "
            "'gpuprov down' first",
            rule.name, rule.network, network);
    if (r == 0) r = google_rule_settle(g, &rule, err);
    if (r == 0) r = take_claim(g, req, made, &rule, err);
    if (r == 0) {
        struct resource one;
        google_rule_resource(&rule, &one);
        r = journal_resource_put(g->journal, &one, err);
        resource_clear(&one);
    }
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}

// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack: a key pair, whose name nova keeps unique for the user. Its name is of owner and stack; the tags
 * are the comment of its public key, of which nobody has the private one, and no server is given it. A key pair cannot
 * be changed: new times are written by deleting and creating it with the same uid. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

#define SHARED_S 600 /* age up to which another run may still be working on a claim */

struct claim {
    struct resource res; /* res.id NULL: none */
    struct tags tags;
    bool made; /* by this call */
};

static void claim_reset(struct claim *c) {
    if (c->res.id != NULL) resource_clear(&c->res);
    c->res = (struct resource){0};
    tags_clear(&c->tags);
    tags_init(&c->tags);
    c->made = false;
}

static int get(struct os *o, const char *region, const char *name, struct claim *c, struct gp_error *err) {
    claim_reset(c);
    return os_claim_get(o, region, name, &c->res, &c->tags, err);
}

static void regions_text(const struct os *o, const struct spec *spec, const struct stack *s, char **ret) {
    GP_AUTO_STRV struct strv names = {0};
    strv_add(&names, s->region);
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *offer = &spec->offers.items[i];
        if (!str_eq(offer->provider, "openstack")) continue;
        for (size_t k = 0; k < offer->regions.n; k++)
            if (!strv_has(&names, offer->regions.v[k])) strv_add(&names, offer->regions.v[k]);
        if (offer->regions.n == 0 && os_home(o) != NULL && !strv_has(&names, os_home(o))) strv_add(&names, os_home(o));
    }
    *ret = tags_regions_text(&names);
}

/* -GP_EEXISTS: the name is taken. -GP_EUNKNOWN: its reply was lost. */
static int create(struct os *o, const struct stack *s, const char *name, const char *regions, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error why = {0};
    struct tags t;
    tags_of_stack(&t, s);
    t.created_s = s->created_s;
    t.claim = true;
    resource_set(&t.regions, regions);
    GP_AUTO_FREE char *key = os_claim_key(&t);
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:s,s:s,s:s}}", "keypair", "name", name, "type", "ssh", "public_key", key);
    GP_AUTO_FREE char *body = json_text(j, 0);
    struct intent in;
    cloud_intent_thing(s, "openstack", s->region, RES_KEY_PAIR, name, body, &in);
    in.claim = true;
    int r = journal_intent(o->journal, &in, err);
    if (r == 0) {
        struct resource one;
        struct os_call c = {.service = OS_COMPUTE,
                            .region = s->region,
                            .method = "POST",
                            .path = "/os-keypairs",
                            .body = body,
                            .flags = REST_ONCE};
        r = os_call(o, &c, &reply, &why);
        resource_init(&one, RES_KEY_PAIR, "openstack");
        GP_AUTO_FREE char *id = xasprintf("%s.%s", name, s->uid);
        resource_set(&one.region, s->region);
        resource_set(&one.id, id);
        resource_set(&one.account, o->project_id);
        tags_to_resource(&t, -1, &one);
        one.state = RES_RUNNING;
        one.price_usd_per_h = 0;
        r = cloud_thing_created(o->journal, &in, r, &one, &why, err);
        resource_clear(&one);
    }
    tags_clear(&t);
    intent_clear(&in);
    return r;
}

/* Reads or creates the claim: at the end *c is the cloud's. */
static int take(struct os *o, const struct prepare_req *req, const char *name, struct claim *c, struct gp_error *err) {
    const struct stack *s = req->stack;
    GP_AUTO_FREE char *regions = NULL;
    char uid[17];
    struct gp_error last = {0};
    bool read = s->uid != NULL;
    int r = fs_random_hex(uid, 8, err);
    if (r != 0) return r;
    regions_text(o, req->spec, s, &regions);
    for (int i = 0; i < 8; i++, read = true) {
        if (read) r = get(o, s->region, name, c, err);
        if (r != 0 || c->res.id != NULL) return r;
        if (i > 1 && gp_sleep(100 << i, o->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
        struct stack fresh = {.owner = s->owner,
                              .name = s->name,
                              .uid = req->further ? s->uid : uid,
                              .spec_hash = s->spec_hash,
                              .unit = s->unit,
                              .region = s->region,
                              .created_s = cloud_now_s(&o->base),
                              .expires_s = s->expires_s};
        gp_error_clear(&last);
        r = create(o, &fresh, name, regions, &last);
        if (r != 0 && r != -GP_EEXISTS && r != -GP_EUNKNOWN) break;
        bool made = r == 0;
        r = get(o, s->region, name, c, err); /* what was created is read back: only that counts */
        if (r != 0) return r;
        c->made = made && c->res.id != NULL && str_eq(c->tags.uid, fresh.uid);
        if (c->res.id != NULL) return 0;
    }
    if (err != NULL) *err = last;
    return -(int)last.code;
}

/* A claim that another run of the same spec created a moment ago: both use its times. */
static bool shares_times(const struct os *o, const struct tags *t, const struct stack *s) {
    int64_t now_s = cloud_now_s(&o->base), age_s = now_s - t->created_s;
    int64_t ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : now_s);
    return t->created_s > 0 && age_s < SHARED_S && age_s > -SHARED_S && str_eq(t->spec_hash, s->spec_hash) &&
           llabs(t->expires_s - t->created_s - ttl_s) <= 60;
}

/* An old claim gets the spec's times. Between the two calls another run may take the name: then its claim counts. */
static int renew(struct os *o, const struct prepare_req *req, const char *name, struct claim *c, struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_FREE char *uid = xstrdup(c->tags.uid);
    GP_AUTO_FREE char *regions = NULL;
    struct gp_error why = {0};
    struct stack same = *s;
    regions_text(o, req->spec, s, &regions);
    same.uid = uid;
    if (same.created_s <= 0) same.created_s = cloud_now_s(&o->base);
    int r = os_claim_delete(o, &c->res, err);
    for (int i = 0; r == 0 && i < 4; i++) {
        gp_error_clear(&why);
        int made = create(o, &same, name, regions, &why);
        if (made != 0 && made != -GP_EEXISTS && made != -GP_EUNKNOWN) break;
        r = get(o, s->region, name, c, err);
        if (r != 0 || c->res.id != NULL) return r;
    }
    if (r == 0 && err != NULL) *err = why;
    return r != 0 ? r : -(int)why.code;
}

/* A stack that has machines keeps its claim; its groups get the rules of the current spec, and servers of a launch that
 * was killed their addresses. */
static int apply_access(struct os *o, const struct prepare_req *req, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        bool its = k->kind == RES_GROUP && k->state != RES_GONE && str_eq(k->provider, "openstack") &&
                   str_eq(k->uid, req->stack->uid) && os_uuid(k->id);
        if (its) r = os_group_rules(o, req->spec, k->region, k->id, err);
        if (its && r == 0 && req->spec->access.public_ip) r = os_addresses_complete(o, k->region, req->stack->uid, err);
    }
    return r != 0 ? gp_wrap(err, "access of stack '%s'", req->stack->name) : 0;
}

static int settle(struct os *o, const struct prepare_req *req, const char *name, struct claim *c,
                  struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_FREE char *what = xasprintf("openstack: the key pair '%s'", name);
    int r = cloud_check_owner(&c->tags, what, s, req->further ? s->uid : NULL, err);
    bool shared = c->made || shares_times(o, &c->tags, s);
    if (r == 0 && !shared) {
        r = renew(o, req, name, c, err);
        if (r == 0) r = cloud_check_owner(&c->tags, what, s, req->further ? s->uid : NULL, err);
    }
    if (r == 0) r = cloud_thing_settle(o->journal, &c->res, name, err);
    if (r == 0) r = journal_resource_put(o->journal, &c->res, err);
    if (r != 0) return r;
    resource_set(&s->uid, c->tags.uid);
    s->created_s = c->tags.created_s;
    s->expires_s = c->tags.expires_s;
    return 0;
}

int os_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct os *o = os_of(p);
    struct stack *s = req->stack;
    struct claim c = {0};
    GP_AUTO_FREE char *group = NULL;
    if (req->known != NULL) return apply_access(o, req, err);
    if (s->region == NULL || s->region[0] == '\0') {
        if (os_home(o) == NULL)
            return gp_fail(err, GP_EUSAGE,
                           "openstack: the cloud has several regions: give 'regions' in the offer, or "
                           "OS_REGION_NAME");
        resource_set(&s->region, os_home(o));
    }
    GP_AUTO_FREE char *name = os_claim_name(s->owner, s->name);
    tags_init(&c.tags);
    int r = take(o, req, name, &c, err);
    if (r == 0) r = settle(o, req, name, &c, err);
    if (r == 0) r = os_group_ensure(o, s, req->spec, s->region, &group, err);
    claim_reset(&c);
    tags_clear(&c.tags);
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Claims a stack by its resource group. Azure has no create of a group that fails when it exists: of two writers at
 * the same time the last one's tags stay. So the claim is read back after a pause that is longer than such an
 * overlap, and both writers go on with what is there. Names of nodes do not depend on the uid and their creation is
 * conditional, so not even a lost race gives a stack two sets of nodes. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

#define CLAIM_SHARED_S 600  /* age up to which another run may still be working on a claim */
#define CLAIM_PAUSE_MS 1000 /* longer than the time between another run's look and its write */

static const char *home_region(const struct azure *a) { return a->fallback_region != NULL ? a->fallback_region : ""; }

/* The regions where a stack of this spec may have resources at Azure. */
static void spec_regions(const struct spec *spec, const char *home, struct strv *ret) {
    strv_add(ret, home);
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (!str_eq(o->provider, "azure")) continue;
        for (size_t k = 0; k < o->regions.n; k++) strv_add(ret, o->regions.v[k]);
    }
}

/* A claim that another run of the same spec created a moment ago: both runs use its times. */
static bool shares_times(const struct azure *a, const struct tags *t, const struct stack *s) {
    int64_t now = cloud_now_s(&a->base), age_s = now - t->created_s;
    int64_t ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : now);
    return t->created_s > 0 && age_s < CLAIM_SHARED_S && age_s > -CLAIM_SHARED_S &&
           str_eq(t->spec_hash, s->spec_hash) && llabs(t->expires_s - t->created_s - ttl_s) <= 60;
}

static int settle(struct azure *a, const struct azure_group *g, struct gp_error *err) {
    struct resource there;
    azure_group_resource(g, &there);
    int r = cloud_thing_settle(a->journal, &there, g->name, err);
    resource_clear(&there);
    return r;
}

/* Writes the group with the tags of a new claim. The outcome is what is read back later. */
static int put(struct azure *a, const struct stack *s, const char *name, const char *regions, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    struct tags tags;
    struct intent in;
    struct gp_error why = {0};
    tags_of_stack(&tags, s);
    tags.created_s = s->created_s;
    resource_set(&tags.regions, regions);
    tags.claim = true;
    GP_AUTO_JSON json_t *body = json_pack("{s:s,s:o}", "location", s->region, "tags", azure_tags_json(&tags));
    GP_AUTO_FREE char *text = json_text_exact(body, 0);
    GP_AUTO_FREE char *url = azure_url(a, AZURE_RESOURCES, "/resourcegroups/%s", name);
    tags_clear(&tags);
    cloud_intent_thing(s, "azure", s->region, RES_GROUP, name, text, &in);
    in.claim = true;
    int r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        r = azure_call(a, "PUT", url, body, REST_ONCE, &reply, &why);
        if (r != 0) r = cloud_thing_created(a->journal, &in, r, NULL, &why, err);
    }
    intent_clear(&in);
    return r;
}

/* Reads or creates the claim; at the end *g is the cloud's group. *ret_made: it has the uid of this call. */
static int claim(struct azure *a, const struct prepare_req *req, const char *name, bool *ret_made,
                 struct azure_group *g, struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_STRV struct strv names = {0};
    char uid[17];
    struct gp_error last = {0};
    spec_regions(req->spec, s->region, &names);
    GP_AUTO_FREE char *regions = tags_regions_text(&names);
    int r = fs_random_hex(uid, 8, err);
    struct stack fresh = {.owner = s->owner,
                          .name = s->name,
                          .uid = req->further ? s->uid : uid,
                          .spec_hash = s->spec_hash,
                          .unit = s->unit,
                          .region = s->region,
                          .created_s = cloud_now_s(&a->base),
                          .expires_s = s->expires_s};
    for (int i = 0; r == 0 && i < 6; i++) {
        r = azure_group_get(a, name, g, err);
        if (r == 0 && g->exists && i > 0) *ret_made = str_eq(g->tags.uid, fresh.uid);
        if (r != 0 || g->exists) return r;
        gp_error_clear(&last);
        r = put(a, &fresh, name, regions, &last);
        if (r == -GP_EUNKNOWN || r == -GP_EEXISTS) r = 0; /* reading the group settles both */
        else if (r != 0) break;
        if (gp_sleep(CLAIM_PAUSE_MS, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
    if (r == 0 && last.code == GP_OK)
        gp_fail(&last, GP_EPROTO, "azure: the resource group '%s' was written and cannot be read: run it again", name);
    if (err != NULL && err->code == GP_OK) *err = last;
    return err != NULL ? -(int)err->code : -(int)last.code;
}

/* Updates the claim's own tags. times: those of the stack. */
static int retag(struct azure *a, const struct stack *s, const struct spec *spec, bool times, struct azure_group *g,
                 struct gp_error *err) {
    GP_AUTO_FREE char *named = tags_regions(&g->tags);
    GP_AUTO_FREE char *id = xasprintf("/resourcegroups/%s", g->name);
    GP_AUTO_STRV struct strv regions = {0}, before = {0};
    GP_AUTO_JSON json_t *tags = json_object();
    char when[32];
    spec_regions(spec, g->region, &regions);
    if (tags_regions_split(named, &before)) {
        for (size_t i = 0; i < regions.n; i++) {
            if (strv_has(&before, regions.v[i])) continue;
            strv_add(&before, regions.v[i]);
            GP_AUTO_FREE char *key = xasprintf("gpuprov:region.%s", regions.v[i]);
            json_object_set_new(tags, key, json_string(TAGS_YES));
        }
    }
    if (times) {
        time_format_utc(when, sizeof when, s->created_s);
        json_object_set_new(tags, "gpuprov:created", json_string(when));
        time_format_utc(when, sizeof when, s->expires_s);
        json_object_set_new(tags, "gpuprov:expires", json_string(when));
        json_object_set_new(tags, "gpuprov:spec", json_string(s->spec_hash));
    }
    if (json_object_size(tags) == 0) return 0;
    int r = azure_tags_merge(a, id, tags, err);
    if (r != 0) return gp_wrap(err, "could not update the claim %s", g->name);
    for (size_t i = 0; i < regions.n; i++) {
        GP_AUTO_FREE char *key = xasprintf(TAGS_REGION "%s", regions.v[i]);
        if (!strv_has(&before, regions.v[i])) tags_read(&g->tags, key, TAGS_YES);
    }
    if (!times) return 0;
    g->tags.created_s = s->created_s;
    g->tags.expires_s = s->expires_s;
    resource_set(&g->tags.spec_hash, s->spec_hash);
    return 0;
}

static int take_claim(struct azure *a, const struct prepare_req *req, bool made, struct azure_group *g,
                      struct gp_error *err) {
    struct stack *s = req->stack;
    bool shared = made || shares_times(a, &g->tags, s);
    free(s->uid);
    s->uid = xstrdup(g->tags.uid);
    free(s->region);
    s->region = xstrdup(g->region);
    if (shared) {
        s->created_s = g->tags.created_s;
        s->expires_s = g->tags.expires_s;
    } else if (s->created_s == 0) {
        s->created_s = cloud_now_s(&a->base);
    }
    return retag(a, s, req->spec, !shared, g, err);
}

static int check(const struct azure_group *g, const struct stack *s, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *what = xasprintf("azure: the resource group '%s'", g->name);
    if (g->deleting) return gp_fail(err, GP_EEXISTS, "%s is being deleted: try again in a few minutes", what);
    return cloud_check_owner(&g->tags, what, s, uid, err);
}

/* A stack that has machines keeps its claim: its security groups get the rules of the spec, and the claim names the
 * spec's regions. */
static int apply_access(struct azure *a, const struct prepare_req *req, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        GP_AUTO_AZURE_HANDLE struct azure_handle h = {0};
        if (k->kind != RES_GROUP || k->state == RES_GONE || !str_eq(k->provider, "azure") ||
            !str_eq(k->uid, req->stack->uid) || !azure_handle_read(k->id, &h))
            continue;
        if (strcmp(h.type, AZURE_GUARD) == 0) r = azure_guard_put(a, req->stack, req->spec, k->region, err);
        if (h.name[0] != '\0') continue;
        GP_AUTO_AZURE_GROUP struct azure_group g = {0};
        if (r == 0) r = azure_group_get(a, h.group, &g, err);
        if (r == 0 && g.exists) r = check(&g, req->stack, req->stack->uid, err);
        if (r == 0 && g.exists) r = retag(a, req->stack, req->spec, false, &g, err);
    }
    if (r == 0) r = azure_grants_complete(a, req, err);
    return r != 0 ? gp_wrap(err, "access of stack '%s'", req->stack->name) : 0;
}

int azure_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct azure *a = azure_of(p);
    struct stack *s = req->stack;
    GP_AUTO_FREE char *name = azure_group_name(s->owner, s->name);
    GP_AUTO_AZURE_GROUP struct azure_group g = {0};
    bool made = false;
    if (req->known != NULL) return apply_access(a, req, err);
    if (s->region == NULL || s->region[0] == '\0') {
        free(s->region);
        s->region = xstrdup(home_region(a));
    }
    int r = 0;
    if (s->region[0] == '\0') r = gp_fail(err, GP_EUSAGE, "azure: no region: give regions in the offer");
    if (r == 0) r = claim(a, req, name, &made, &g, err);
    if (r == 0) r = check(&g, s, req->further ? s->uid : NULL, err);
    if (r == 0) r = settle(a, &g, err);
    if (r == 0) r = take_claim(a, req, made, &g, err);
    if (r == 0) {
        struct resource one;
        azure_group_resource(&g, &one);
        r = journal_resource_put(a->journal, &one, err);
        resource_clear(&one);
    }
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}

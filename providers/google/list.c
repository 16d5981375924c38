// SPDX-License-Identifier: Apache-2.0
/* Lists resources: instances and disks of all zones by label in one paged list each, firewall rules of the project by
 * name and description. The first pages are read side by side. A zone that Google could not read makes its region
 * incomplete. Does not read the journal. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#define PAGE "500"
#define NOTHING_HERE "NO_RESULTS_ON_PAGE"

static bool has_id(const struct resource_list *l, const struct resource *r) {
    for (size_t i = 0; i < l->list.len; i++)
        if (strcmp(l->list.items[i].id, r->id) == 0 && str_eq(l->list.items[i].zone, r->zone)) return true;
    return false;
}

/* --- first pages, side by side --- */

struct paged {
    char *what, *url;
    struct rest_result first;
};
#define PAGED_MAX 4 /* instances, the same by uid, disks, rules */
struct paged_set {
    struct paged lists[PAGED_MAX];
    size_t n;
};

static void paged_clear(struct paged_set *s) {
    for (size_t i = 0; i < s->n; i++) {
        free(s->lists[i].what);
        free(s->lists[i].url);
        rest_reply_clear(&s->lists[i].first.reply);
    }
}

/* url: taken over. */
static const struct paged *paged_add(struct paged_set *s, const char *what, char *url) {
    struct paged *p = &s->lists[s->n++];
    p->what = xasprintf("google %s", what);
    p->url = url;
    return p;
}

static void paged_read(struct google *g, struct paged_set *s) {
    struct rest_call calls[PAGED_MAX];
    struct rest_result results[PAGED_MAX] = {0};
    for (size_t i = 0; i < s->n; i++)
        calls[i] = (struct rest_call){.what = s->lists[i].what, .method = "GET", .url = s->lists[i].url};
    rest_call_many(&g->rest, calls, s->n, 0, results);
    for (size_t i = 0; i < s->n; i++) s->lists[i].first = results[i];
}

static int paged_each(struct google *g, const struct paged *p, google_page_fn each, void *ctx, struct gp_error *err) {
    if (p->first.rc != 0) {
        if (err != NULL) *err = p->first.err;
        return p->first.rc;
    }
    if (p->first.reply.json == NULL)
        return gp_fail(err, GP_EPROTO, "%s: the reply is empty: check the endpoint", p->what);
    int r = each(ctx, p->first.reply.json, err);
    const char *next = json_str(p->first.reply.json, "nextPageToken", "");
    if (r != 0 || next[0] == '\0') return r;
    GP_AUTO_FREE char *more = rest_with_param(p->url, "pageToken", next);
    return google_pages(g, p->what, more, each, ctx, err);
}

/* --- one aggregated list --- */

struct listing {
    const char *kind; /* "instances", "disks" */
    int (*read)(const json_t *item, struct resource *ret, struct gp_error *err);
    const struct google_wanted *wanted;
    struct resource_list *out;
    struct strv *regions; /* that the reply names */
    struct strv *gaps;    /* regions with a zone that Google could not read; "": any */
};

static void add_once(struct strv *v, const char *s) {
    if (!strv_has(v, s)) strv_add(v, s);
}

static void add_gap(struct listing *l, const char *scope) {
    const char *name = google_last(scope);
    GP_AUTO_FREE char *region =
        strstr(scope, "regions/") != NULL && google_name_valid(name) ? xstrdup(name) : google_region_of(name);
    add_once(l->gaps, region != NULL ? region : "");
}

static int on_scope(struct listing *l, const char *scope, const json_t *part, struct gp_error *err) {
    const char *warning = json_str(part, "warning.code", "");
    const json_t *item = NULL;
    size_t i = 0;
    if (str_starts(scope, "zones/")) {
        GP_AUTO_FREE char *region = google_region_of(scope + 6);
        if (region == NULL)
            return gp_fail(err, GP_EPROTO, "google %s: the reply names a place that is not a zone", l->kind);
        add_once(l->regions, region);
    }
    if (warning[0] != '\0' && strcmp(warning, NOTHING_HERE) != 0) add_gap(l, scope);
    json_array_foreach(json_at(part, l->kind), i, item) {
        struct resource r;
        /* A disk of a region (not of a zone) is never gpuprov's. */
        if (!str_starts(scope, "zones/")) continue;
        int rc = l->read(item, &r, err);
        if (rc == 0 && google_is_wanted(&r, l->wanted) && !has_id(l->out, &r)) vec_push(&l->out->list, r);
        else resource_clear(&r);
        if (rc != 0) return rc;
    }
    return 0;
}

static int on_page(void *ctx, const json_t *page, struct gp_error *err) {
    struct listing *l = ctx;
    const char *scope = NULL, *warning = json_str(page, "warning.code", "");
    json_t *part = NULL;
    const json_t *name = NULL;
    size_t i = 0;
    bool named = false;
    if (json_at(page, "items") != NULL && !json_is_object(json_at(page, "items")))
        return gp_fail(err, GP_EPROTO, "google %s: the reply has no list of places", l->kind);
    json_array_foreach(json_at(page, "unreachables"), i, name) {
        if (json_is_string(name)) add_gap(l, json_string_value(name));
        named = true;
    }
    if (warning[0] != '\0' && strcmp(warning, NOTHING_HERE) != 0 && !named) add_once(l->gaps, "");
    json_object_foreach(json_at(page, "items"), scope, part) {
        int r = on_scope(l, scope, part, err);
        if (r != 0) return r;
    }
    return 0;
}

static const struct paged *ask_kind(struct google *g, struct paged_set *all, const struct listing *l) {
    GP_AUTO_FREE char *filter = google_filter(l->wanted);
    GP_AUTO_FREE char *what = xasprintf("%s.aggregatedList", l->kind);
    GP_AUTO_FREE char *base = google_url(g, "aggregated/%s?maxResults=" PAGE "&returnPartialSuccess=true", l->kind);
    return paged_add(all, what, rest_with_param(base, "filter", filter));
}

/* A region that one list names and another one lacks was not read whole. */
static int list_kind(struct google *g, const struct paged *p, struct listing *l, struct strv *seen,
                     struct gp_error *err) {
    GP_AUTO_STRV struct strv here = {0};
    l->regions = &here;
    int r = paged_each(g, p, on_page, l, err);
    l->regions = NULL;
    if (r != 0) return r;
    if (here.n == 0) return gp_fail(err, GP_EPROTO, "%s: the reply names no zone: check the endpoint", p->what);
    for (size_t i = 0; i < seen->n; i++)
        if (!strv_has(&here, seen->v[i])) add_once(l->gaps, seen->v[i]);
    bool first = seen->n == 0;
    for (size_t i = 0; first && i < here.n; i++) strv_add(seen, here.v[i]);
    return 0;
}

/* --- one zone --- */

struct zone_listing {
    const struct google_wanted *wanted;
    struct resource_list *out;
};

static int on_zone_page(void *ctx, const json_t *page, struct gp_error *err) {
    struct zone_listing *l = ctx;
    const json_t *item = NULL;
    size_t i = 0;
    json_array_foreach(json_at(page, "items"), i, item) {
        struct resource r;
        int rc = google_instance_read(item, &r, err);
        if (rc == 0 && google_is_wanted(&r, l->wanted)) vec_push(&l->out->list, r);
        else resource_clear(&r);
        if (rc != 0) return rc;
    }
    return 0;
}

int google_list_zone(struct google *g, const char *zone, const struct google_wanted *w, struct resource_list *ret,
                     struct gp_error *err) {
    struct zone_listing l = {w, ret};
    GP_AUTO_FREE char *filter = google_filter(w);
    GP_AUTO_FREE char *base = google_url(g, "zones/%s/instances?maxResults=" PAGE, zone);
    GP_AUTO_FREE char *url = rest_with_param(base, "filter", filter);
    return google_pages(g, "google instances.list", url, on_zone_page, &l, err);
}

/* --- rules --- */

struct rule_listing {
    const struct list_req *req;
    struct resource_list *out;
};

/* A rule whose description does not decode is this stack's by its name alone. */
static bool rule_is_wanted(const struct google_rule *r, const struct list_req *req) {
    if (r->tags.owner[0] != '\0') {
        if (strcmp(r->tags.owner, req->owner) != 0) return false;
        bool by_uid = req->uid != NULL && str_eq(r->tags.uid, req->uid);
        return req->stack == NULL || r->tags.stack[0] == '\0' || strcmp(r->tags.stack, req->stack) == 0 || by_uid;
    }
    if (req->stack == NULL) return false;
    GP_AUTO_FREE char *name = google_claim_name(req->owner, req->stack);
    return strcmp(r->name, name) == 0;
}

static int on_rules(void *ctx, const json_t *page, struct gp_error *err) {
    struct rule_listing *l = ctx;
    const json_t *item = NULL;
    size_t i = 0;
    json_array_foreach(json_at(page, "items"), i, item) {
        GP_AUTO_RULE struct google_rule rule = {0};
        int rc = google_rule_read(item, &rule, err);
        if (rc != 0) return rc;
        if (!str_starts(rule.name, "gpuprov-") || !rule_is_wanted(&rule, l->req)) continue;
        struct resource r;
        google_rule_resource(&rule, &r);
        vec_push(&l->out->list, r);
    }
    return 0;
}

static const struct paged *ask_rules(struct google *g, struct paged_set *all) {
    GP_AUTO_FREE char *base = google_url(g, "global/firewalls?maxResults=" PAGE);
    return paged_add(all, "firewalls.list", rest_with_param(base, "filter", "name eq \"gpuprov-.*\""));
}

/* --- machines of the journal whose labels were changed --- */

static int list_known(struct google *g, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    for (size_t i = 0; req->known != NULL && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        GP_AUTO_REST struct rest_reply reply = {0};
        GP_AUTO_FREE char *region = google_region_of(k->zone);
        if (k->kind != RES_INSTANCE || k->state == RES_GONE || region == NULL || !google_name_valid(k->id)) continue;
        if (!str_eq(k->provider, "google") || has_id(ret, k)) continue;
        GP_AUTO_FREE char *url = google_url(g, "zones/%s/instances/%s", k->zone, k->id);
        int r = google_call(g, "google instances.get", "GET", url, NULL, REST_MISSING, &reply, err);
        if (r != 0) return r;
        if (reply.status == 404) continue;
        struct resource one;
        r = google_instance_read(reply.json, &one, err);
        if (r == 0) vec_push(&ret->list, one);
        else resource_clear(&one);
        if (r != 0) return r;
    }
    return 0;
}

/* --- coverage --- */

static int incomplete(struct gp_error *err, const char *region) {
    int r = gp_fail(err, GP_EENDPOINT,
                    "google %s: a zone could not be read now, so that its list is incomplete: try "
                    "again",
                    region);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_REGION;
    }
    return r;
}

/* why: the error of the whole list; NULL: it was read, with gaps. */
static int cover(const struct list_req *req, const struct strv *regions, const struct strv *seen,
                 const struct strv *gaps, const struct gp_error *why, struct gp_error *err) {
    int worst = 0;
    for (size_t i = 0; i < regions->n; i++) {
        const char *region = regions->v[i];
        struct gp_error e = {0};
        if (why != NULL) e = *why;
        else if (strv_has(gaps, region) || strv_has(gaps, "")) incomplete(&e, region);
        else if (!strv_has(seen, region))
            gp_fail(&e, GP_EUSAGE, "google: the project has no region '%.63s': correct regions", region);
        if (req->looked != NULL)
            coverage_put(req->looked, "google", region, req->owner, true, e.code != GP_OK ? &e : NULL);
        if (e.code == GP_OK || worst != 0) continue;
        worst = -(int)e.code;
        if (err != NULL) *err = e;
    }
    return worst;
}

static int list_all(struct google *g, const struct list_req *req, struct resource_list *ret, struct strv *seen,
                    struct strv *gaps, struct gp_error *err) {
    struct google_wanted w = {.owner = req->owner, .stack = req->stack};
    struct google_wanted by_uid = {.owner = req->owner, .uid = req->uid};
    struct listing nodes = {"instances", google_instance_read, &w, ret, NULL, gaps};
    struct listing more = {"instances", google_instance_read, &by_uid, ret, NULL, gaps};
    struct listing disks = {"disks", google_disk_read, &w, ret, NULL, gaps};
    struct rule_listing rules = {req, ret};
    struct paged_set all = {0};
    const struct paged *of_nodes = ask_kind(g, &all, &nodes), *of_more = NULL, *of_disks = NULL, *of_rules = NULL;
    if (req->uid != NULL && req->stack != NULL) of_more = ask_kind(g, &all, &more);
    if (!req->nodes_only) {
        of_disks = ask_kind(g, &all, &disks);
        of_rules = ask_rules(g, &all);
    }
    paged_read(g, &all);
    int r = list_kind(g, of_nodes, &nodes, seen, err);
    if (r == 0 && of_more != NULL) r = list_kind(g, of_more, &more, seen, err);
    if (r == 0) r = list_known(g, req, ret, err);
    if (r == 0 && of_disks != NULL) r = list_kind(g, of_disks, &disks, seen, err);
    if (r == 0 && of_rules != NULL) r = paged_each(g, of_rules, on_rules, &rules, err);
    paged_clear(&all);
    return r;
}

int google_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct google *g = google_of(p);
    GP_AUTO_STRV struct strv seen = {0}, gaps = {0}, regions = {0};
    struct gp_error why = {0};
    if (req->images) { /* none are made here; nothing is claimed about a place */
        for (size_t i = 0; req->looked != NULL && req->regions != NULL && i < req->regions->n; i++)
            coverage_put(req->looked, "google", req->regions->v[i], req->owner, true, NULL);
        return 0;
    }
    int r = list_all(g, req, ret, &seen, &gaps, &why);
    bool everywhere = req->regions == NULL || req->everywhere;
    if (req->regions != NULL) strv_copy(&regions, req->regions);
    for (size_t i = 0; everywhere && i < seen.n; i++) add_once(&regions, seen.v[i]);
    for (size_t i = 0; everywhere && i < gaps.n; i++)
        if (gaps.v[i][0] != '\0') add_once(&regions, gaps.v[i]);
    if (everywhere && req->looked != NULL && r != 0) coverage_put(req->looked, "google", "", req->owner, true, &why);
    struct gp_error first = {0};
    int covered = cover(req, &regions, &seen, &gaps, r != 0 ? &why : NULL, &first);
    if (r == 0) {
        r = covered;
        why = first;
    }
    if (r != 0 && err != NULL) *err = why;
    return r != 0 ? gp_wrap(err, "listing the resources of '%s'", req->owner) : 0;
}

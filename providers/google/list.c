// SPDX-License-Identifier: Apache-2.0
/* Lists resources: instances and disks of all zones by label in one paged list each, firewall rules of the project by
 * name and description. Pages of different lists are read side by side. A zone that Google could not read makes its
 * region incomplete. Does not read the journal. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "providers/common/places.h"

#define NOTHING_HERE "NO_RESULTS_ON_PAGE"

static bool has_id(const struct resource_list *l, const struct resource *r) {
    for (size_t i = 0; i < l->list.len; i++)
        if (resource_same(&l->list.items[i], r) && str_eq(l->list.items[i].zone, r->zone)) return true;
    return false;
}

/* An instance's boot disk has its name, and ends with it. */
static bool is_of_listed(const struct resource_list *l, const struct resource *disk) {
    size_t n = strcspn(disk->id, "/");
    for (size_t i = 0; disk->kind == RES_VOLUME && i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        bool named = strncmp(r->id, disk->id, n) == 0 && (r->id[n] == '/' || r->id[n] == '\0');
        if (r->kind == RES_INSTANCE && named && str_eq(r->zone, disk->zone)) return true;
    }
    return false;
}

static void drop_boot_disks(struct resource_list *l) {
    bool *drop = xcalloc(l->list.len + 1, sizeof *drop);
    size_t n = 0;
    for (size_t i = 0; i < l->list.len; i++) drop[i] = is_of_listed(l, &l->list.items[i]);
    for (size_t i = 0; i < l->list.len; i++) {
        if (drop[i]) resource_clear(&l->list.items[i]);
        else l->list.items[n++] = l->list.items[i];
    }
    l->list.len = n;
    free(drop);
}

/* --- one aggregated list --- */

struct listing {
    const char *kind; /* "instances", "disks" */
    const char *what; /* the name of the call */
    int (*read)(const json_t *item, struct resource *ret, struct gp_error *err);
    const struct google_wanted *wanted;
    struct resource_list *out;
    struct strv *gaps;   /* regions with a zone that Google could not read; "": any */
    struct strv regions; /* that the reply names */
};

static int add_gap(struct listing *l, const char *scope, struct gp_error *err) {
    const char *name = google_last(scope);
    GP_AUTO_FREE char *region =
        strstr(scope, "regions/") != NULL && google_name_valid(name) ? xstrdup(name) : google_region_of(name);
    return places_add(l->gaps, region != NULL ? region : "", l->what, err);
}

static int on_scope(struct listing *l, const char *scope, const json_t *part, struct gp_error *err) {
    const char *warning = json_str(part, "warning.code", "");
    const json_t *item = NULL;
    size_t i = 0;
    int rc = 0;
    if (str_starts(scope, "zones/")) {
        GP_AUTO_FREE char *region = google_region_of(scope + 6);
        if (region == NULL)
            return gp_fail(err, GP_EPROTO, "google %s: the reply names a place that is not a zone", l->kind);
        rc = places_add(&l->regions, region, l->what, err);
    }
    if (rc == 0 && warning[0] != '\0' && strcmp(warning, NOTHING_HERE) != 0) rc = add_gap(l, scope, err);
    if (rc != 0) return rc;
    json_array_foreach(json_at(part, l->kind), i, item) {
        struct resource r;
        /* A disk of a region (not of a zone) is never gpuprov's. */
        if (!str_starts(scope, "zones/")) continue;
        rc = l->read(item, &r, err);
        bool wanted = rc == 0 && google_is_wanted(&r, l->wanted);
        if (wanted && !has_id(l->out, &r)) vec_push(&l->out->list, r);
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
    int r = 0;
    if (json_at(page, "items") != NULL && !json_is_object(json_at(page, "items")))
        return gp_fail(err, GP_EPROTO, "google %s: the reply has no list of places", l->kind);
    json_array_foreach(json_at(page, "unreachables"), i, name) {
        if (r == 0 && json_is_string(name)) r = add_gap(l, json_string_value(name), err);
        named = true;
    }
    if (r == 0 && warning[0] != '\0' && strcmp(warning, NOTHING_HERE) != 0 && !named)
        r = places_add(l->gaps, "", l->what, err);
    if (r != 0) return r;
    json_object_foreach(json_at(page, "items"), scope, part) {
        r = on_scope(l, scope, part, err);
        if (r != 0) return r;
    }
    return 0;
}

/* A region that one list names and another one lacks was not read whole. */
static int take_kind(struct listing *l, struct strv *seen, struct gp_error *err) {
    if (l->regions.n == 0)
        return gp_fail(err, GP_EPROTO, "google %s.aggregatedList: the reply names no zone: check the endpoint",
                       l->kind);
    for (size_t i = 0; i < seen->n; i++)
        if (!strv_has(&l->regions, seen->v[i]) && !strv_has(l->gaps, seen->v[i])) strv_add(l->gaps, seen->v[i]);
    bool first = seen->n == 0;
    for (size_t i = 0; first && i < l->regions.n; i++) strv_add(seen, l->regions.v[i]);
    return 0;
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

/* --- machines of the journal whose labels were changed --- */

/* one: the machine with the name of k, which takes its place, or nothing if another machine has the name by now. */
static void add_known(const struct resource *k, struct resource *one, struct resource_list *ret) {
    bool older = strchr(k->id, '/') == NULL; /* its id is the name: the list may have it by its whole id */
    bool listed = false;
    for (size_t i = 0; older && i < ret->list.len; i++) {
        struct resource *r = &ret->list.items[i];
        if (r->kind != RES_INSTANCE || strcmp(r->id, one->id) != 0 || !str_eq(r->zone, one->zone)) continue;
        resource_set(&r->id, k->id);
        listed = true;
    }
    bool other = !older && strcmp(one->id, k->id) != 0;
    if (older) resource_set(&one->id, k->id);
    if (listed || other) resource_clear(one);
    else vec_push(&ret->list, *one);
}

static int list_known(struct google *g, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    for (size_t i = 0; req->known != NULL && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        GP_AUTO_REST struct rest_reply reply = {0};
        if (k->kind != RES_INSTANCE || k->state == RES_GONE) continue;
        if (!str_eq(k->provider, "google") || has_id(ret, k)) continue;
        GP_AUTO_FREE char *url = google_zonal_url(g, k, "instances", "");
        if (url == NULL) continue;
        int r = google_call(g, "google instances.get", "GET", url, NULL, REST_MISSING, &reply, err);
        if (r != 0) return r;
        if (reply.status == 404) continue;
        struct resource one;
        r = google_instance_read(reply.json, &one, err);
        if (r == 0) add_known(k, &one, ret);
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

/* --- all of them, side by side --- */

#define LISTS_MAX 4 /* instances, the same by uid, disks, rules */
struct reading {
    struct rest_paged lists[LISTS_MAX];
    struct listing *kinds[LISTS_MAX]; /* NULL: the rules */
    struct strv texts;
    size_t n;
};

/* base and filter: taken over. */
static void read_also(struct reading *all, const char *what, char *base, char *filter, google_page_fn page, void *ctx) {
    strv_take(&all->texts, rest_with_param(base, "filter", filter));
    const char *url = all->texts.v[all->texts.n - 1];
    all->lists[all->n++] = google_paged(what, url, page, ctx);
    free(base);
    free(filter);
}

static void read_kind(const struct google *g, struct reading *all, const char *what, struct listing *l) {
    char *base = google_url(g, "aggregated/%s?maxResults=" GOOGLE_PAGE "&returnPartialSuccess=true", l->kind);
    l->what = what;
    all->kinds[all->n] = l;
    read_also(all, what, base, google_filter(l->wanted), on_page, l);
}

static void reading_clear(struct reading *all) {
    for (size_t i = 0; i < all->n; i++)
        if (all->kinds[i] != NULL) strv_clear(&all->kinds[i]->regions);
    strv_clear(&all->texts);
}

static int list_all(struct google *g, const struct list_req *req, struct resource_list *ret, struct strv *seen,
                    struct strv *gaps, struct gp_error *err) {
    static const char nodes_what[] = "google instances.aggregatedList";
    struct google_wanted w = {.owner = req->owner, .stack = req->stack};
    struct google_wanted by_uid = {.owner = req->owner, .uid = req->uid};
    struct listing nodes = {"instances", NULL, google_instance_read, &w, ret, gaps, {0}};
    struct listing more = {"instances", NULL, google_instance_read, &by_uid, ret, gaps, {0}};
    struct listing disks = {"disks", NULL, google_disk_read, &w, ret, gaps, {0}};
    struct rule_listing rules = {req, ret};
    struct reading all = {0};
    read_kind(g, &all, nodes_what, &nodes);
    if (req->uid != NULL && req->stack != NULL) read_kind(g, &all, nodes_what, &more);
    if (!req->nodes_only) {
        read_kind(g, &all, "google disks.aggregatedList", &disks);
        read_also(&all, "google firewalls.list", google_url(g, "global/firewalls?maxResults=" GOOGLE_PAGE),
                  xstrdup("name eq \"gpuprov-.*\""), on_rules, &rules);
    }
    rest_pages_many(&g->rest, all.lists, all.n);
    int r = 0;
    for (size_t i = 0; r == 0 && i < all.n; i++) {
        r = all.lists[i].rc;
        if (r != 0 && err != NULL) *err = all.lists[i].err;
        if (r == 0 && all.kinds[i] != NULL) r = take_kind(all.kinds[i], seen, err);
    }
    if (r == 0) r = list_known(g, req, ret, err);
    drop_boot_disks(ret);
    reading_clear(&all);
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
    if (everywhere) strv_merge(&regions, &seen);
    for (size_t i = 0; everywhere && i < gaps.n; i++)
        if (gaps.v[i][0] != '\0' && !strv_has(&regions, gaps.v[i])) strv_add(&regions, gaps.v[i]);
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

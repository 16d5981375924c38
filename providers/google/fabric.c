// SPDX-License-Identifier: Apache-2.0
/* GPUDirect between the nodes of a gang: which types have it, and the network interfaces of a launch. Google documents
 * the layout in "Networking and GPU machines" and "RDMA RoCE network profile" (read 2026-11-24): each gVNIC is in a
 * network of its own; the MRDMA cards are in one network with the RoCE profile of their zone, each in a subnet of its
 * own. The networks are the offer's `networks`; they exist before, and are read here. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#define ROCE "-vpc-roce"
#define MTU_USUAL 1460
#define MTU_ROCE 8896

struct google_fabric {
    const char *type, *name;
    int gvnics, cards; /* besides the first interface */
    int mtu;           /* of their networks at least, by Google's guides to each */
};
static const struct google_fabric fabrics[] = {
    {"a3-highgpu-8g", "GPUDirect-TCPX", 4, 0, 8244},
    {"a3-megagpu-8g", "GPUDirect-TCPXO", 8, 0, 8244},
    {"a3-ultragpu-8g", "GPUDirect RDMA", 1, 8, 8896},
    {"a4-highgpu-8g", "GPUDirect RDMA", 1, 8, 8896},
};

static const struct google_fabric *fabric_of(const char *type) {
    for (size_t i = 0; i < GP_ARRAY_LEN(fabrics); i++)
        if (strcmp(fabrics[i].type, type) == 0) return &fabrics[i];
    return NULL;
}

static bool is_wanted(const struct spec *spec) {
    return spec->nodes > 1 && (spec->fabric == FABRIC_AUTO || spec->fabric == FABRIC_INFINIBAND);
}

void google_nics_clear(struct google_nics *n) {
    strv_clear(&n->subnets);
    *n = (struct google_nics){0};
}

void google_data_network_clear(struct google_data_network *n) {
    free(n->name);
    free(n->zone);
    strv_clear(&n->subnets);
    *n = (struct google_data_network){0};
}

/* --- the networks --- */

static int refuse(struct gp_error *err, int r) {
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

static const struct google_data_network *cached(const struct google *g, const char *name) {
    for (size_t i = 0; i < g->cache->data_networks.len; i++)
        if (strcmp(g->cache->data_networks.items[i].name, name) == 0) return &g->cache->data_networks.items[i];
    return NULL;
}

/* "REGION/NAME" of ".../regions/REGION/subnetworks/NAME". Caller frees; NULL: it is not the URL of a subnet. */
static char *subnet_in(const char *url) {
    static const char before[] = "/regions/", between[] = "/subnetworks/";
    const char *region = strstr(url, before), *name = strstr(url, between);
    if (region == NULL || name == NULL || name < region) return NULL;
    region += strlen(before);
    GP_AUTO_FREE char *place = xstrndup(region, (size_t)(name - region));
    name += strlen(between);
    return google_name_valid(place) && google_name_valid(name) ? xasprintf("%s/%s", place, name) : NULL;
}

/* In the order of their names, so that two runs send equal requests; each once. */
static void add_sorted(struct strv *v, char *s) {
    if (strv_has(v, s)) {
        free(s);
        return;
    }
    strv_take(v, s);
    for (size_t i = v->n - 1; i > 0 && strcmp(v->v[i - 1], s) > 0; i--) {
        v->v[i] = v->v[i - 1];
        v->v[i - 1] = s;
    }
}

static int read_network(const char *name, const json_t *reply, struct google_data_network *ret, struct gp_error *err) {
    const json_t *url = NULL;
    const char *profile = google_last(json_str(reply, "networkProfile", ""));
    size_t i = 0;
    if (strcmp(json_str(reply, "name", ""), name) != 0)
        return gp_fail(err, GP_EPROTO, "google networks.get of %s: the reply is another network", name);
    ret->name = xstrdup(name);
    if (profile[0] != '\0') /* another profile than RoCE is for no zone */
        ret->zone = str_ends(profile, ROCE) && google_name_valid(profile)
                        ? xstrndup(profile, strlen(profile) - strlen(ROCE))
                        : xstrdup("");
    /* Google's defaults. */
    int64_t mtu = json_int(reply, "mtu", ret->zone != NULL ? MTU_ROCE : MTU_USUAL);
    ret->mtu = mtu > 0 && mtu <= UINT16_MAX ? (int)mtu : 0;
    json_array_foreach(json_at(reply, "subnetworks"), i, url) {
        char *subnet = subnet_in(json_is_string(url) ? json_string_value(url) : "");
        if (subnet == NULL)
            return gp_fail(err, GP_EPROTO, "google networks.get of %s: the reply names a subnet that is none", name);
        add_sorted(&ret->subnets, subnet);
    }
    return 0;
}

void google_networks_ahead(const struct google *g, const struct spec *spec, const struct spec_offer *want,
                           struct strv *ret) {
    for (size_t i = 0; is_wanted(spec) && i < want->networks.n; i++)
        if (cached(g, want->networks.v[i]) == NULL) strv_add(ret, want->networks.v[i]);
}

void google_network_came(struct google *g, const char *name, const json_t *reply) {
    struct google_data_network one = {0};
    if (read_network(name, reply, &one, NULL) == 0) vec_push(&g->cache->data_networks, one);
    else google_data_network_clear(&one);
}

/* Reads those that the cache lacks, side by side. */
static int read_networks(struct google *g, const struct strv *names, struct gp_error *err) {
    struct rest_call *calls = xcalloc(names->n + 1, sizeof *calls);
    struct rest_result *replies = xcalloc(names->n + 1, sizeof *replies);
    const char **which = xcalloc(names->n + 1, sizeof *which);
    GP_AUTO_STRV struct strv urls = {0};
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; i < names->n; i++) {
        if (cached(g, names->v[i]) != NULL) continue;
        strv_take(&urls, google_url(g, "global/networks/%s", names->v[i]));
        which[n] = names->v[i];
        calls[n++] = (struct rest_call){
            .what = "google networks.get", .method = "GET", .url = urls.v[urls.n - 1], .flags = REST_MISSING};
    }
    if (n > 0) rest_call_many(&g->rest, calls, n, 0, replies);
    for (size_t i = 0; i < n; i++) {
        struct google_data_network one = {0};
        if (r == 0 && replies[i].rc != 0 && err != NULL) *err = replies[i].err;
        if (r == 0) r = replies[i].rc;
        if (r == 0 && replies[i].reply.status == 404)
            r = refuse(err,
                       gp_fail(err, GP_EUSAGE, "google: the network '%s' does not exist: correct networks", which[i]));
        else if (r == 0) r = read_network(which[i], replies[i].reply.json, &one, err);
        if (r == 0) vec_push(&g->cache->data_networks, one);
        else google_data_network_clear(&one);
        rest_reply_clear(&replies[i].reply);
    }
    free(calls);
    free(replies);
    free(which);
    return r;
}

/* --- the choice --- */

struct choice {
    const struct google_fabric *f;
    const char *region, *zone;
    struct google_nics *out;
};

static size_t take_subnets(const struct choice *c, const struct google_data_network *net, size_t most) {
    GP_AUTO_FREE char *start = xasprintf("%s/", c->region);
    size_t n = 0;
    for (size_t i = 0; i < net->subnets.n; i++) {
        if (!str_starts(net->subnets.v[i], start)) continue;
        if (n++ < most) strv_add(&c->out->subnets, net->subnets.v[i] + strlen(start));
    }
    return n;
}

static int check_mtu(const struct google_fabric *f, const struct google_data_network *net, struct gp_error *err) {
    if (net->mtu >= f->mtu) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "google: the network '%s' has an MTU of %d, and %s of %s needs %d: give another network, or change "
                   "its mtu",
                   net->name, net->mtu, f->name, f->type, f->mtu);
}

/* One subnet in the region: with several, which one would be a guess. */
static int take_gvnic(const struct choice *c, const struct google_data_network *net, struct gp_error *err) {
    int r = check_mtu(c->f, net, err);
    if (r != 0) return r;
    size_t n = take_subnets(c, net, 1);
    if (n == 1) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "google %s: the network '%s' has %zu subnets there, and an interface needs exactly one: %s",
                   c->region, net->name, n, n == 0 ? "create a subnet" : "give another network");
}

static int take_cards(const struct choice *c, const struct google_data_network *net, struct gp_error *err) {
    if (strcmp(net->zone, c->zone) != 0)
        return gp_fail(err, GP_EUSAGE,
                       "google %s: the network '%s' does not have the RoCE profile of this zone: give one that has the "
                       "profile %s" ROCE,
                       c->zone, net->name, c->zone);
    int r = check_mtu(c->f, net, err);
    if (r != 0) return r;
    size_t n = take_subnets(c, net, (size_t)c->f->cards);
    if (n >= (size_t)c->f->cards) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "google %s: the network '%s' has %zu of the %d subnets there that the cards of %s need: create them",
                   c->region, net->name, n, c->f->cards, c->f->type);
}

static int refuse_count(const struct google_fabric *f, struct gp_error *err) {
    if (f->cards == 0)
        return refuse(err, gp_fail(err, GP_EUSAGE,
                                   "google: %s has %s on %d interfaces of their own: give the names of %d networks "
                                   "without a profile as networks, or bootstrap.fabric: none",
                                   f->type, f->name, f->gvnics, f->gvnics));
    return refuse(err, gp_fail(err, GP_EUSAGE,
                               "google: %s has %s on %d cards: give the names of one ordinary network and one with a "
                               "RoCE profile as networks, or bootstrap.fabric: none",
                               f->type, f->name, f->cards));
}

/* Ordinary networks first, in the order of the spec. */
static int choose(struct google *g, const struct choice *c, const struct strv *names, struct gp_error *err) {
    VEC_OF(const struct google_data_network *) ordinary = {0}, roce = {0};
    int r = read_networks(g, names, err);
    for (size_t i = 0; r == 0 && i < names->n; i++) {
        const struct google_data_network *net = cached(g, names->v[i]);
        if (net == NULL) r = gp_fail(err, GP_EINTERNAL, "google: the network '%s' was not read", names->v[i]);
        else if (net->zone == NULL) vec_push(&ordinary, net);
        else vec_push(&roce, net);
    }
    if (r == 0 && (ordinary.len != (size_t)c->f->gvnics || roce.len != (c->f->cards > 0 ? 1 : 0)))
        r = refuse_count(c->f, err);
    for (size_t i = 0; r == 0 && i < ordinary.len; i++) r = take_gvnic(c, ordinary.items[i], err);
    if (r == 0 && roce.len > 0) r = take_cards(c, roce.items[0], err);
    if (r != 0 && err != NULL && err->scope == GP_SCOPE_NONE) err->scope = GP_SCOPE_ZONE;
    vec_free(&ordinary);
    vec_free(&roce);
    return r;
}

/* Each interface needs a network of its own. The spec has no name twice. */
static int check_names(struct google *g, const struct spec_offer *want, const char *region, struct gp_error *err) {
    GP_AUTO_FREE char *first = NULL;
    int r = google_network_of(g, region, want, &first, err);
    if (r != 0 || !strv_has(&want->networks, first)) return r;
    return refuse(err, gp_fail(err, GP_EUSAGE,
                               "google: two interfaces of a node would be in the network '%s': name another one in "
                               "networks",
                               first));
}

/* The type cannot have what the spec asks for. */
static int check_type(const struct spec *spec, const struct spec_offer *want, const char *type,
                      const struct google_fabric *f, struct gp_error *err) {
    bool must = spec->fabric == FABRIC_INFINIBAND;
    if (!is_wanted(spec) && want->networks.n > 0)
        return refuse(err, gp_fail(err, GP_EUSAGE,
                                   "google: networks are for a gang with GPUDirect: remove them, or set nodes above 1 "
                                   "and bootstrap.fabric: auto"));
    if (is_wanted(spec) && must && (f == NULL || f->cards == 0))
        return refuse(err, gp_fail(err, GP_EUSAGE,
                                   "google: %s has no RDMA cards: give an instance_type that has them, or "
                                   "bootstrap.fabric: auto",
                                   type));
    if (is_wanted(spec) && f == NULL && want->networks.n > 0)
        return refuse(err, gp_fail(err, GP_EUSAGE,
                                   "google: %s has no GPUDirect: remove networks, or give an instance_type that has it",
                                   type));
    return 0;
}

int google_nics_choose(struct google *g, const struct spec *spec, const struct spec_offer *want,
                       const struct google_place *at, struct google_nics *ret, struct gp_error *err) {
    const struct google_fabric *f = fabric_of(at->type);
    struct choice c = {f, at->region, at->zone, ret};
    *ret = (struct google_nics){0};
    int r = check_type(spec, want, at->type, f, err);
    if (r != 0 || f == NULL || !is_wanted(spec)) return r;
    r = check_names(g, want, at->region, err);
    if (r == 0) r = choose(g, &c, &want->networks, err);
    if (r != 0) google_nics_clear(ret);
    else ret->cards = f->cards;
    return r;
}

char *google_fabric_text(const struct spec *spec, const char *type, const struct google_nics *chosen) {
    const struct google_fabric *f = fabric_of(type);
    if (f == NULL || spec->nodes < 2) return xstrdup("");
    if (chosen->subnets.n == 0)
        return xasprintf("TCP only; the type has %s: bootstrap.fabric: auto with networks uses it", f->name);
    return f->cards > 0 ? xasprintf("%s x%d", f->name, f->cards) : xasprintf("%s, %d interfaces", f->name, f->gvnics);
}

void google_nics_add(const struct google *g, const char *region, const struct google_nics *chosen, json_t *interfaces) {
    size_t n = chosen->subnets.n;
    if (n > 0) json_object_set_new(json_array_get(interfaces, 0), "nicType", json_string("GVNIC"));
    for (size_t i = 0; i < n; i++) {
        GP_AUTO_FREE char *path =
            xasprintf("projects/%s/regions/%s/subnetworks/%s", g->project, region, chosen->subnets.v[i]);
        json_array_append_new(interfaces, json_pack("{s:s, s:s}", "subnetwork", path, "nicType",
                                                    i + (size_t)chosen->cards >= n ? "MRDMA" : "GVNIC"));
    }
}

int google_cards_of(const json_t *instance) {
    const json_t *nic = NULL;
    size_t i = 0;
    int n = 0;
    json_array_foreach(json_at(instance, "networkInterfaces"), i, nic) n +=
        strcmp(json_str(nic, "nicType", ""), "MRDMA") == 0;
    return n;
}

// SPDX-License-Identifier: Apache-2.0
/* What a stack's rules are made of: the networks that may open SSH, the network of a subnet, and the rule between the
 * nodes. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"
#include "providers/common/ownership.h"
#include "providers/common/ssh_from.h"

#define TRIES 6

int google_ssh_from(struct google *g, const struct spec *spec, struct strv *ret, struct gp_error *err) {
    struct ssh_from networks = {g->http, spec, "google", NULL, NULL, &g->cache->public_cidr};
    int r = ssh_from_read(&networks, ret, err);
    for (size_t i = 0; r == 0 && i < ret->n; i++)
        if (strchr(ret->v[i], ':') != NULL)
            r = gp_fail(err, GP_EUSAGE,
                        "google: '%.60s' is an IPv6 network, and nodes have IPv4 addresses only: give IPv4 networks in "
                        "access.ssh_from",
                        ret->v[i]);
    return r;
}

/* The network of a subnet. */
static int network_of_subnet(struct google *g, const char *region, const char *subnet, char **ret,
                             struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *key = xasprintf("%s/%s=", region, subnet);
    for (size_t i = 0; i < g->cache->networks.n; i++)
        if (str_starts(g->cache->networks.v[i], key)) {
            *ret = xstrdup(g->cache->networks.v[i] + strlen(key));
            return 0;
        }
    GP_AUTO_FREE char *url = google_url(g, "regions/%s/subnetworks/%s", region, subnet);
    int r = google_call(g, "google subnetworks.get", "GET", url, NULL, REST_MISSING, &reply, err);
    if (r != 0) return r;
    if (reply.status == 404) {
        r = gp_fail(err, GP_EUSAGE, "google %s: the subnet '%s' does not exist: correct subnet", region, subnet);
        if (err != NULL) err->scope = GP_SCOPE_REGION;
        return r;
    }
    const char *network = google_last(json_str(reply.json, "network", ""));
    if (!google_name_valid(network))
        return gp_fail(err, GP_EPROTO, "google subnetworks.get of %s: the reply has no network", subnet);
    strv_take(&g->cache->networks, xasprintf("%s%s", key, network));
    *ret = xstrdup(network);
    return 0;
}

int google_network_of(struct google *g, const char *region, const struct spec_offer *offer, char **ret,
                      struct gp_error *err) {
    if (offer->subnet == NULL) {
        *ret = xstrdup(offer->network != NULL ? offer->network : "default");
        return 0;
    }
    int r = network_of_subnet(g, region, offer->subnet, ret, err);
    if (r != 0 || offer->network == NULL || strcmp(*ret, offer->network) == 0) return r;
    r = gp_fail(err, GP_EUSAGE,
                "google %s: the subnet '%s' is in the network '%s', but 'network' is '%s': correct one of both", region,
                offer->subnet, *ret, offer->network);
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

bool google_members_known(const struct google *g, const char *uid) { return strv_has(&g->cache->members_ready, uid); }

int google_members_begin(struct google *g, const struct stack *s, const char *network, struct google_rule_call *ret,
                         struct gp_error *err) {
    GP_AUTO_FREE char *name = google_members_name(s->uid);
    struct google_new_rule new = {s, name, network, NULL, NULL};
    return google_rule_begin(g, &new, ret, err);
}

int google_members_end(struct google *g, const struct stack *s, const char *network, struct google_rule_call *c,
                       struct rest_result *sent, struct gp_error *err) {
    GP_AUTO_RULE struct google_rule rule = {0};
    struct gp_error why = {0};
    int r = google_rule_end(g, c, sent, &rule, &why);
    if (r == 0) strv_add(&g->cache->members_ready, s->uid);
    if (r == -GP_EEXISTS || r == -GP_EUNKNOWN) return google_members_ensure(g, s, network, err);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

int google_members_look(struct google *g, const struct stack *s, bool *ret_there, struct gp_error *err) {
    GP_AUTO_RULE struct google_rule rule = {0};
    GP_AUTO_FREE char *name = google_members_name(s->uid);
    GP_AUTO_FREE char *what = xasprintf("google: the firewall rule '%s'", name);
    int r = google_rule_get(g, name, &rule, err);
    bool there = r == 0 && rule.name != NULL;
    if (there) r = cloud_check_owner(&rule.tags, what, s, s->uid, err);
    if (r == 0 && there) r = google_rule_settle(g, &rule, err);
    if (r == 0 && there && rule.changed.n > 0) r = google_rule_patch(g, &rule, NULL, err);
    if (r != 0) return r;
    if (there) strv_add(&g->cache->members_ready, s->uid);
    *ret_there = there;
    return 0;
}

int google_members_ensure(struct google *g, const struct stack *s, const char *network, struct gp_error *err) {
    GP_AUTO_FREE char *name = google_members_name(s->uid);
    struct gp_error last = {0};
    if (google_members_known(g, s->uid)) return 0;
    for (int i = 0; i < TRIES; i++) {
        GP_AUTO_RULE struct google_rule rule = {0};
        struct google_new_rule new = {s, name, network, NULL, NULL};
        if (i > 0 && gp_sleep(100 << i, g->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
        gp_error_clear(&last);
        int r = google_rule_create(g, &new, &rule, &last);
        if (r == -GP_EEXISTS || r == -GP_EUNKNOWN) { /* of an earlier call or another run */
            bool there = false;
            r = google_members_look(g, s, &there, err);
            if (r != 0 || there) return r;
            continue;
        }
        if (r != 0) break;
        r = google_rule_settle(g, &rule, err); /* an earlier insert without a reply did nothing */
        if (r != 0) return r;
        strv_add(&g->cache->members_ready, s->uid);
        return 0;
    }
    if (err != NULL) *err = last;
    return -(int)last.code;
}

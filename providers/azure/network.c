// SPDX-License-Identifier: Apache-2.0
/* The network pieces of a stack in a region: a security group with exactly the rules of the spec, and a network of its
 * own where the offer names no subnet. Both are in the stack's resource group and go with it. A PUT by name is
 * idempotent. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "providers/common/intents.h"
#include "providers/common/settle.h"
#include "providers/common/ssh_from.h"

#define NET_CIDR "10.71.0.0/16" /* Azure's networks do not meet unless they are peered */
#define SUBNET "nodes"
#define READY_MS (3 * 60 * 1000)
#define READ_MS 1000

/* --- access --- */

/* One rule for each family: Azure does not mix them in one. */
static void add_rule(json_t *rules, const struct strv *from, bool six) {
    json_t *prefixes = json_array();
    for (size_t i = 0; i < from->n; i++)
        if ((strchr(from->v[i], ':') != NULL) == six) json_array_append_new(prefixes, json_string(from->v[i]));
    if (json_array_size(prefixes) == 0) {
        json_decref(prefixes);
        return;
    }
    json_array_append_new(rules,
                          json_pack("{s:s,s:{s:s,s:s,s:o,s:s,s:s,s:s,s:i,s:s}}", "name", six ? "ssh-ipv6" : "ssh",
                                    "properties", "protocol", "Tcp", "sourcePortRange", "*", "sourceAddressPrefixes",
                                    prefixes, "destinationAddressPrefix", "*", "destinationPortRange", "22", "access",
                                    "Allow", "priority", six ? 110 : 100, "direction", "Inbound"));
}

/* --- pieces --- */

static json_t *tags_of(const struct stack *s) {
    struct tags tags;
    tags_of_stack(&tags, s);
    json_t *j = azure_tags_json(&tags);
    tags_clear(&tags);
    return j;
}

static char *piece_url(const struct azure *a, const char *group, const char *type, const char *name) {
    return azure_url(a, AZURE_NETWORK, "/resourceGroups/%s/providers/Microsoft.Network/%s/%s", group, type, name);
}

/* A machine that refers to a piece which is not provisioned yet is refused. */
static int wait_ready(struct azure *a, const char *url, struct rest_reply *reply, struct gp_error *err) {
    int64_t until = clock_deadline(READY_MS);
    for (;;) {
        const char *state = json_str(reply->json, "properties.provisioningState", "");
        if (strcasecmp(state, "Succeeded") == 0) return 0;
        GP_AUTO_FREE char *what = azure_what("PUT", url);
        if (strcasecmp(state, "Failed") == 0 || clock_left_ms(until) == 0)
            return gp_fail(err, GP_EPROTO, "%s: it is '%.40s' and was not provisioned: run the same command again",
                           what, state);
        int64_t pause = azure_retry_ms(&reply->headers, READ_MS);
        if (gp_sleep(pause, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
        int r = azure_call(a, "GET", url, NULL, 0, reply, err);
        if (r != 0) return r;
    }
}

static void piece_resource(const struct stack *s, const char *region, const char *group, const char *type,
                           const char *name, struct resource *ret) {
    resource_init(ret, RES_GROUP, "azure");
    resource_set(&ret->region, region);
    resource_set(&ret->owner, s->owner);
    resource_set(&ret->stack, s->name);
    resource_set(&ret->uid, s->uid);
    resource_set(&ret->spec_hash, s->spec_hash);
    free(ret->id);
    ret->id = azure_handle_text(group, type, name, s->uid);
    ret->expires_s = s->expires_s;
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
}

/* Intent, PUT, and the wait until it can be used. Takes over body. */
static int put_piece(struct azure *a, const struct stack *s, const char *region, const char *type, json_t *body,
                     struct gp_error *err) {
    GP_AUTO_JSON json_t *owned = body;
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *group = azure_group_name(s->owner, s->name);
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", region);
    GP_AUTO_FREE char *token = xasprintf("%s/%s", type, name);
    GP_AUTO_FREE char *url = piece_url(a, group, type, name);
    GP_AUTO_FREE char *text = json_text_exact(owned, 0);
    struct gp_error why = {0};
    struct intent in;
    struct resource one;
    cloud_intent_thing(s, "azure", region, RES_GROUP, token, text, &in);
    piece_resource(s, region, group, type, name, &one);
    int r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        r = azure_call(a, "PUT", url, owned, 0, &reply, &why);
        if (r == 0) r = wait_ready(a, url, &reply, &why);
        bool open = r != 0 && reply.sent && reply.code[0] == '\0'; /* no reply: the next call settles it */
        int result = open ? -(int)why.code : cloud_thing_created(a->journal, &in, r, &one, &why, err);
        if (open && err != NULL) *err = why;
        r = result;
    }
    if (r == 0) r = cloud_thing_settle(a->journal, &one, token, err);
    resource_clear(&one);
    intent_clear(&in);
    return r;
}

int azure_guard_put(struct azure *a, const struct stack *s, const struct spec *spec, const char *region,
                    struct gp_error *err) {
    GP_AUTO_STRV struct strv from = {0};
    struct ssh_from networks = {a->http, spec, "azure", region, NULL, &a->cache->public_cidr};
    int r = ssh_from_read(&networks, &from, err);
    if (r != 0) return r;
    json_t *rules = json_array();
    add_rule(rules, &from, false);
    add_rule(rules, &from, true);
    return put_piece(
        a, s, region, AZURE_GUARD,
        json_pack("{s:s,s:o,s:{s:o}}", "location", region, "tags", tags_of(s), "properties", "securityRules", rules),
        err);
}

static int net_put(struct azure *a, const struct stack *s, const char *region, struct gp_error *err) {
    return put_piece(a, s, region, AZURE_NET,
                     json_pack("{s:s,s:o,s:{s:{s:[s]},s:[{s:s,s:{s:s}}]}}", "location", region, "tags", tags_of(s),
                               "properties", "addressSpace", "addressPrefixes", NET_CIDR, "subnets", "name", SUBNET,
                               "properties", "addressPrefix", NET_CIDR),
                     err);
}

int azure_network_ensure(struct azure *a, const struct stack *s, const struct spec *spec, const struct offer *o,
                         char **ret_subnet, char **ret_guard, struct gp_error *err) {
    GP_AUTO_FREE char *group = azure_group_name(s->owner, s->name);
    bool named = o->subnet != NULL && o->subnet[0] != '\0';
    GP_AUTO_FREE char *key = xasprintf("%s/%s/%s", o->region, s->uid, named ? "guard" : "net");
    if (!strv_has(&a->cache->networks_ready, key)) {
        int r = azure_guard_put(a, s, spec, o->region, err);
        if (r == 0 && !named) r = net_put(a, s, o->region, err);
        if (r != 0) return r;
        strv_add(&a->cache->networks_ready, key);
    }
    GP_AUTO_FREE char *base =
        xasprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Network", a->subscription, group);
    *ret_guard = xasprintf("%s/" AZURE_GUARD "/gpuprov-%s", base, o->region);
    *ret_subnet =
        named ? xstrdup(o->subnet) : xasprintf("%s/" AZURE_NET "/gpuprov-%s/subnets/" SUBNET, base, o->region);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* What the machines of a stack refer to in a region: a security group with exactly the rules of the spec, a network of
 * the stack's own where the offer names no subnet, and the availability set of a gang with InfiniBand. All are in the
 * stack's resource group and go with it. A PUT by name is idempotent, and they are sent side by side. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ssh_from.h"

#define NET_CIDR "10.71.0.0/16" /* Azure's networks do not meet unless they are peered */
#define SUBNET "nodes"
#define READY_MS (3 * 60 * 1000)
#define READ_MS 1000
#define PIECES 3 /* the security group, the network and the availability set of a region */

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
    bool set = strcmp(type, AZURE_SET) == 0;
    return azure_url(a, set ? AZURE_COMPUTE : AZURE_NETWORK, "/resourceGroups/%s/providers/%s/%s/%s", group,
                     set ? "Microsoft.Compute" : "Microsoft.Network", type, name);
}

static void piece_resource(const struct stack *s, const char *region, const char *group, const char *type,
                           const char *name, struct resource *ret) {
    resource_init(ret, strcmp(type, AZURE_SET) == 0 ? RES_PLACEMENT : RES_GROUP, "azure");
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

/* A security group, a network or an availability set on its way. */
struct piece {
    json_t *body;
    char *token, *what, *url, *text;
    struct intent in;
    struct resource one;
    struct rest_result res;
    bool at_once; /* its reply is the end: it has no provisioning state */
};

static void piece_clear(struct piece *p) {
    json_decref(p->body);
    free(p->token);
    free(p->what);
    free(p->url);
    free(p->text);
    intent_clear(&p->in);
    resource_clear(&p->one);
    rest_reply_clear(&p->res.reply);
}

/* Takes over body. */
static void piece_init(struct azure *a, const struct stack *s, const char *region, const char *type, const char *name,
                       json_t *body, struct piece *ret) {
    GP_AUTO_FREE char *group = azure_group_name(s->owner, s->name);
    *ret =
        (struct piece){.body = body, .token = xasprintf("%s/%s", type, name), .at_once = strcmp(type, AZURE_SET) == 0};
    ret->url = piece_url(a, group, type, name);
    ret->what = azure_what("PUT", ret->url);
    ret->text = json_text_exact(body, 0);
    cloud_intent_thing(s, "azure", region, ret->at_once ? RES_PLACEMENT : RES_GROUP, ret->token, ret->text, &ret->in);
    piece_resource(s, region, group, type, name, &ret->one);
}

static void call_all(struct azure *a, const char *method, struct piece *const *pieces, size_t n) {
    struct rest_call calls[PIECES] = {0};
    struct rest_result results[PIECES] = {0};
    for (size_t i = 0; i < n; i++)
        calls[i] = (struct rest_call){.what = pieces[i]->what,
                                      .method = method,
                                      .url = pieces[i]->url,
                                      .body = strcmp(method, "PUT") == 0 ? pieces[i]->text : NULL};
    rest_call_many(&a->rest, calls, n, 0, results);
    for (size_t i = 0; i < n; i++) {
        rest_reply_clear(&pieces[i]->res.reply);
        pieces[i]->res = results[i];
    }
}

/* A machine that refers to a piece which is not provisioned yet is refused. */
static void wait_ready(struct azure *a, struct piece *pieces, size_t n) {
    int64_t until = clock_deadline(READY_MS);
    for (;;) {
        struct piece *late[PIECES] = {0};
        size_t left = 0;
        int64_t pause = READ_MS;
        for (size_t i = 0; i < n; i++) {
            struct rest_result *res = &pieces[i].res;
            const char *state = json_str(res->reply.json, "properties.provisioningState", "");
            if (res->rc != 0 || pieces[i].at_once || strcasecmp(state, "Succeeded") == 0) continue;
            if (strcasecmp(state, "Failed") == 0 || clock_left_ms(until) == 0) {
                res->rc = gp_fail(&res->err, GP_EPROTO,
                                  "%s: it is '%.40s' and was not provisioned: run the same command again",
                                  pieces[i].what, state);
                continue;
            }
            pause = GP_MIN(pause, azure_retry_ms(&res->reply.headers, READ_MS));
            late[left++] = &pieces[i];
        }
        if (left == 0) return;
        if (gp_sleep(pause, a->cancel, NULL) != 0) {
            for (size_t i = 0; i < left; i++) late[i]->res.rc = gp_fail(&late[i]->res.err, GP_ECANCELLED, "cancelled");
            return;
        }
        call_all(a, "GET", late, left);
    }
}

static int piece_end(struct azure *a, struct piece *p, struct gp_error *err) {
    const struct rest_reply *reply = &p->res.reply;
    int r = p->res.rc;
    bool open = r != 0 && reply->sent && reply->code[0] == '\0'; /* no reply: the next call settles it */
    if (!open) r = cloud_thing_created(a->journal, &p->in, r, &p->one, &p->res.err, err);
    else if (err != NULL) *err = p->res.err;
    return r == 0 ? cloud_thing_settle(a->journal, &p->one, p->token, err) : r;
}

/* Their intents, the PUTs side by side, and the wait until they can be used. The first error is returned. */
static int put_pieces(struct azure *a, struct piece *pieces, size_t n, struct gp_error *err) {
    struct piece *all[PIECES];
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        all[i] = &pieces[i];
        if (r == 0) r = journal_intent(a->journal, &pieces[i].in, err);
    }
    if (r == 0) {
        call_all(a, "PUT", all, n);
        wait_ready(a, pieces, n);
    }
    bool sent = r == 0;
    for (size_t i = 0; sent && i < n; i++) {
        struct gp_error e = {0};
        int one = piece_end(a, &pieces[i], &e);
        if (one == 0 || r != 0) continue;
        r = one;
        if (err != NULL) *err = e;
    }
    for (size_t i = 0; i < n; i++) piece_clear(&pieces[i]);
    return r;
}

static int guard_init(struct azure *a, const struct stack *s, const struct spec *spec, const char *region,
                      struct piece *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv from = {0};
    struct ssh_from networks = {a->http, spec, "azure", region, NULL, &a->cache->public_cidr};
    int r = ssh_from_read(&networks, &from, err);
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", region);
    if (r != 0) return r;
    json_t *rules = json_array();
    add_rule(rules, &from, false);
    add_rule(rules, &from, true);
    piece_init(
        a, s, region, AZURE_GUARD, name,
        json_pack("{s:s,s:o,s:{s:o}}", "location", region, "tags", tags_of(s), "properties", "securityRules", rules),
        ret);
    return 0;
}

static void net_init(struct azure *a, const struct stack *s, const char *region, struct piece *ret) {
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", region);
    piece_init(a, s, region, AZURE_NET, name,
               json_pack("{s:s,s:o,s:{s:{s:[s]},s:[{s:s,s:{s:s}}]}}", "location", region, "tags", tags_of(s),
                         "properties", "addressSpace", "addressPrefixes", NET_CIDR, "subnets", "name", SUBNET,
                         "properties", "addressPrefix", NET_CIDR),
               ret);
}

/* One fault domain: its machines are behind the same switches. */
static void set_init(struct azure *a, const struct stack *s, const char *region, const char *name, struct piece *ret) {
    piece_init(a, s, region, AZURE_SET, name,
               json_pack("{s:s,s:o,s:{s:s},s:{s:i,s:i}}", "location", region, "tags", tags_of(s), "sku", "name",
                         "Aligned", "properties", "platformFaultDomainCount", 1, "platformUpdateDomainCount", 1),
               ret);
}

int azure_guard_put(struct azure *a, const struct stack *s, const struct spec *spec, const char *region,
                    struct gp_error *err) {
    struct piece guard = {0};
    int r = guard_init(a, s, spec, region, &guard, err);
    return r == 0 ? put_pieces(a, &guard, 1, err) : r;
}

int azure_network_ensure(struct azure *a, const struct stack *s, const struct spec *spec, const struct offer *o,
                         bool together, struct azure_places *ret, struct gp_error *err) {
    GP_AUTO_FREE char *group = azure_group_name(s->owner, s->name);
    GP_AUTO_FREE char *set = together ? xasprintf("gpuprov-%s-%s", o->region, o->instance_type) : NULL;
    bool named = o->subnet != NULL && o->subnet[0] != '\0';
    GP_AUTO_FREE char *key =
        xasprintf("%s/%s/%s/%s", o->region, s->uid, named ? "guard" : "net", set != NULL ? set : "");
    if (!strv_has(&a->cache->networks_ready, key)) {
        struct piece pieces[PIECES] = {0};
        size_t n = 1;
        int r = guard_init(a, s, spec, o->region, &pieces[0], err);
        if (r == 0 && !named) net_init(a, s, o->region, &pieces[n++]);
        if (r == 0 && set != NULL) set_init(a, s, o->region, set, &pieces[n++]);
        if (r == 0) r = put_pieces(a, pieces, n, err);
        if (r != 0) return r;
        strv_add(&a->cache->networks_ready, key);
    }
    GP_AUTO_FREE char *base = xasprintf("/subscriptions/%s/resourceGroups/%s/providers", a->subscription, group);
    ret->guard = xasprintf("%s/Microsoft.Network/" AZURE_GUARD "/gpuprov-%s", base, o->region);
    ret->subnet = named ? xstrdup(o->subnet)
                        : xasprintf("%s/Microsoft.Network/" AZURE_NET "/gpuprov-%s/subnets/" SUBNET, base, o->region);
    if (set != NULL) ret->set = xasprintf("%s/Microsoft.Compute/" AZURE_SET "/%s", base, set);
    return 0;
}

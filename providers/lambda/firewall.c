// SPDX-License-Identifier: Apache-2.0
/* Firewall rulesets: one for each stack and region, if the spec names networks. Rulesets only allow; the account's
 * global rules count too, so that wider ones are reported. A ruleset has no tags: its name has owner and stack as a
 * hash, and the uid. One thread. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/form.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"

#define SSH_PORT 22
#define NO_FIREWALL "us-south-1" /* of the API description */
#define NAME_LEN (8 + 16 + 1 + 16)

void lambda_rulesets_clear(struct lambda_rulesets *r) {
    for (size_t i = 0; i < r->list.len; i++) {
        free(r->list.items[i].id);
        free(r->list.items[i].name);
        free(r->list.items[i].region);
    }
    vec_free(&r->list);
}

static char *name_of(const struct stack *s) {
    GP_AUTO_FREE char *prefix = key_claim_prefix(s->owner, s->name);
    return xasprintf("%s%s", prefix, s->uid);
}

static bool is_name(const char *name) {
    return strlen(name) == NAME_LEN && str_starts(name, "gpuprov-") && name[24] == '-' &&
           strspn(name + 8, "0123456789abcdef") == 16 && form_uid(name + 25);
}

int lambda_rulesets_read(struct lambda *l, struct lambda_rulesets *ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *data = NULL, *one = NULL;
    size_t i = 0;
    int r = lambda_call(l, "GET", "/firewall-rulesets", NULL, LAMBDA_LIST, &reply, &data, err);
    if (r != 0) return r;
    json_array_foreach(data, i, one) {
        const char *id = json_str(one, "id", ""), *name = json_str(one, "name", "");
        const char *region = json_str(one, "region.name", "");
        if (!is_name(name)) continue;
        if (!form_word(id) || !form_word(region))
            return gp_fail(err, GP_EPROTO, "lambda GET /firewall-rulesets: '%s' has no id and region of Lambda's",
                           name);
        struct lambda_ruleset found = {xstrdup(id), xstrdup(name), xstrdup(region)};
        vec_push(&ret->list, found);
    }
    return 0;
}

/* With the tags of its claim. Without a claim it has no owner, unless the names of owner and stack are given. */
void lambda_ruleset_resource(const struct lambda_ruleset *s, const struct key_claims *claims, const char *owner,
                             const char *stack, struct resource *ret) {
    const struct key_claim *of = NULL;
    GP_AUTO_FREE char *prefix = stack != NULL ? key_claim_prefix(owner, stack) : NULL;
    for (size_t i = 0; claims != NULL && i < claims->list.len && of == NULL; i++) {
        const struct key_claim *c = &claims->list.items[i];
        if (strncmp(c->name, s->name, NAME_LEN) == 0 && c->tags.uid[0] != '\0') of = c;
    }
    resource_init(ret, RES_GROUP, "lambda");
    resource_set(&ret->id, s->id);
    resource_set(&ret->region, s->region);
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
    if (of != NULL) {
        tags_to_resource(&of->tags, -1, ret);
        ret->claim = false;
    } else if (prefix != NULL && str_starts(s->name, prefix)) {
        resource_set(&ret->owner, owner);
        resource_set(&ret->stack, stack);
        resource_set(&ret->uid, s->name + 25);
    } else {
        resource_set(&ret->unreadable, "its stack's SSH key, which has the tags, is not there");
    }
}

int lambda_ruleset_delete(struct lambda *l, const char *id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *path = xasprintf("/firewall-rulesets/%s", id);
    json_t *data = NULL;
    struct gp_error why = {0};
    if (!form_word(id)) return gp_fail(err, GP_EUSAGE, "lambda: '%.80s' is not the id of a firewall ruleset", id);
    int r = lambda_call(l, "DELETE", path, NULL, REST_MISSING, &reply, &data, &why);
    if (r == 0 || r == -GP_EEXISTS) return 0; /* in use: the list shows it */
    if (err != NULL) *err = why;
    return r;
}

/* --- rules --- */

/* The networks of all offers that may be in the region. */
static void networks(const struct spec *spec, const char *region, struct strv *ret) {
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (!str_eq(o->provider, "lambda") || (o->regions.n > 0 && !strv_has(&o->regions, region))) continue;
        const struct strv *from = spec_effective(spec, i).ssh_from;
        for (size_t k = 0; k < from->n; k++)
            if (!strv_has(ret, from->v[k])) strv_add(ret, from->v[k]);
    }
}

static int check(const struct strv *from, const char *region, struct gp_error *err) {
    int r = 0;
    if (from->n > 0 && str_eq(region, NO_FIREWALL))
        r = gp_fail(err, GP_EUSAGE,
                    "lambda: firewall rules have no effect in " NO_FIREWALL
                    ": remove ssh_from, or offer other regions");
    for (size_t i = 0; r == 0 && i < from->n; i++)
        if (strchr(from->v[i], ':') != NULL)
            r = gp_fail(err, GP_EUSAGE, "lambda: the firewall takes IPv4 networks only: remove %s from ssh_from",
                        from->v[i]);
    if (r != 0 && err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

static json_t *rules_of(const struct strv *from) {
    json_t *all = json_array();
    for (size_t i = 0; i < from->n; i++) {
        json_array_append_new(all, json_pack("{s:s,s:[ii],s:s,s:s}", "protocol", "tcp", "port_range", SSH_PORT,
                                             SSH_PORT, "source_network", from->v[i], "description", "gpuprov: SSH"));
        json_array_append_new(all, json_pack("{s:s,s:s,s:s}", "protocol", "icmp", "source_network", from->v[i],
                                             "description", "gpuprov: ping"));
    }
    return all;
}

/* Global rules that let others reach SSH. */
static int warn_of_global(struct lambda *l, const struct strv *from, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_STRV struct strv wider = {0};
    json_t *data = NULL, *one = NULL;
    size_t i = 0;
    if (l->global_seen) return 0;
    int r = lambda_call(l, "GET", "/firewall-rulesets/global", NULL, 0, &reply, &data, err);
    if (r != 0) return r;
    json_array_foreach(json_at(data, "rules"), i, one) {
        const char *protocol = json_str(one, "protocol", ""), *source = json_str(one, "source_network", "");
        bool port = json_int(one, "port_range.0", 1) <= SSH_PORT && json_int(one, "port_range.1", 65535) >= SSH_PORT;
        bool form = source[0] != '\0' && strlen(source) < 20 && strspn(source, "0123456789./") == strlen(source);
        if (!port || (!str_eq(protocol, "tcp") && !str_eq(protocol, "all")) || strv_has(from, source)) continue;
        if (!strv_has(&wider, form ? source : "unknown networks")) strv_add(&wider, form ? source : "unknown networks");
    }
    GP_AUTO_FREE char *text = strv_join(&wider, ", ");
    if (wider.n > 0)
        event_emit(l->sink, -1, NODE_PLANNED, EVENT_WARN, "firewall",
                   "lambda: the account's global firewall rules allow SSH from %.200s too: remove them in the console, "
                   "under Firewall",
                   text);
    l->global_seen = true;
    return 0;
}

/* --- a stack's ruleset --- */

static const struct lambda_ruleset *find(const struct lambda_rulesets *all, const char *name, const char *region) {
    for (size_t i = 0; i < all->list.len; i++)
        if (str_eq(all->list.items[i].name, name) && str_eq(all->list.items[i].region, region))
            return &all->list.items[i];
    return NULL;
}

static int set_rules(struct lambda *l, const char *id, const struct strv *from, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *path = xasprintf("/firewall-rulesets/%s", id);
    GP_AUTO_JSON json_t *body = json_pack("{s:o}", "rules", rules_of(from));
    json_t *data = NULL;
    return lambda_call(l, "PATCH", path, body, 0, &reply, &data, err);
}

static int create(struct lambda *l, const struct stack *s, const char *region, const char *name,
                  const struct strv *from, char **ret_id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *body = json_pack("{s:s,s:s,s:o}", "name", name, "region", region, "rules", rules_of(from));
    GP_AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);
    json_t *data = NULL;
    struct gp_error why = {0};
    struct intent in;
    struct resource made;
    cloud_intent_thing(s, "lambda", region, RES_GROUP, name, text, &in);
    int r = journal_intent(l->journal, &in, err);
    if (r == 0) {
        r = lambda_call(l, "POST", "/firewall-rulesets", body, REST_ONCE, &reply, &data, &why);
        const char *id = json_str(data, "id", "");
        if (r == 0 && !form_word(id))
            r = gp_fail(&why, GP_EUNKNOWN, "lambda POST /firewall-rulesets: the reply has no id of a ruleset");
        *ret_id = xstrdup(id);
        struct lambda_ruleset set = {*ret_id, in.token, in.region};
        lambda_ruleset_resource(&set, NULL, s->owner, s->name, &made);
        r = cloud_thing_created(l->journal, &in, r, &made, &why, err);
        resource_clear(&made);
    }
    intent_clear(&in);
    return r;
}

static int adopt(struct lambda *l, const struct stack *s, const struct lambda_ruleset *set, struct gp_error *err) {
    struct resource there;
    lambda_ruleset_resource(set, NULL, s->owner, s->name, &there);
    int r = cloud_thing_settle(l->journal, &there, set->name, err);
    if (r == 0) r = journal_resource_put(l->journal, &there, err);
    resource_clear(&there);
    return r;
}

int lambda_firewall_ensure(struct lambda *l, const struct stack *s, const struct spec *spec, const char *region,
                           char **ret_id, struct gp_error *err) {
    GP_AUTO_STRV struct strv from = {0};
    GP_AUTO_FREE char *name = name_of(s);
    networks(spec, region, &from);
    *ret_id = NULL;
    int r = check(&from, region, err);
    if (r != 0 || from.n == 0) return r;
    r = warn_of_global(l, &from, err);
    for (int i = 0; r == 0 && *ret_id == NULL; i++) {
        GP_AUTO_RULESETS struct lambda_rulesets all = {0};
        struct gp_error why = {0};
        r = lambda_rulesets_read(l, &all, err);
        if (r != 0) return r;
        const struct lambda_ruleset *set = find(&all, name, region);
        if (set != NULL) {
            r = set_rules(l, set->id, &from, err);
            if (r == 0) r = adopt(l, s, set, err);
            if (r == 0) *ret_id = xstrdup(set->id);
            break;
        }
        char *id = NULL;
        r = create(l, s, region, name, &from, &id, &why);
        if (r == 0) *ret_id = GP_STEAL(id);
        free(id);
        if (r == -GP_EUNKNOWN && i < 3 && gp_sleep(GP_MAX(l->pace_ms, (int64_t)100), l->cancel, NULL) == 0) r = 0;
        if (r != 0 && err != NULL) *err = why;
    }
    return r != 0 ? gp_wrap(err, "the firewall of stack '%s' in %s", s->name, region) : 0;
}

/* Running nodes keep the rulesets of their launch: only the rules of these can change. */
int lambda_firewall_apply(struct lambda *l, const struct prepare_req *req, struct gp_error *err) {
    bool any = false, wanted = false;
    int r = 0;
    for (size_t i = 0; i < req->spec->offers.len; i++)
        wanted = wanted || (str_eq(req->spec->offers.items[i].provider, "lambda") &&
                            spec_effective(req->spec, i).ssh_from->n > 0);
    for (size_t i = 0; r == 0 && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        GP_AUTO_STRV struct strv from = {0};
        bool its = k->kind == RES_GROUP && k->state != RES_GONE && str_eq(k->provider, "lambda") &&
                   str_eq(k->uid, req->stack->uid);
        if (!its || !form_word(k->id)) continue;
        any = true;
        networks(req->spec, k->region, &from);
        r = check(&from, k->region, err);
        if (r == 0 && from.n > 0) r = warn_of_global(l, &from, err);
        if (r == 0) r = set_rules(l, k->id, &from, err);
    }
    if (wanted && !any)
        event_emit(l->sink, -1, NODE_PLANNED, EVENT_WARN, "firewall",
                   "lambda: ssh_from has no effect on the nodes of '%s', which were launched without it: run 'gpuprov "
                   "down', then 'gpuprov up'",
                   req->stack->name);
    return r != 0 ? gp_wrap(err, "access of stack '%s'", req->stack->name) : 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Firewall rules: the claim, which opens SSH to a stack's nodes, and the rule between nodes. A rule has no labels: its
 * description is a JSON object with the tags. Its name is unique in the project, so it is its own idempotency token.
 * prepare.c decides. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"
#include "base/hash.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ssh_from.h"

#define ABOUT_MAX 2048 /* characters of a description */
#define HOME "home"    /* its member with the stack's region */
#define INSERT "google firewalls.insert"
#define PRIORITY 1000 /* Google's own, where a rule has none */
#define READS 5

void google_rule_clear(struct google_rule *r) {
    free(r->name);
    free(r->network);
    free(r->home);
    tags_clear(&r->tags);
    strv_clear(&r->from);
    strv_clear(&r->others);
    strv_clear(&r->changed);
    *r = (struct google_rule){0};
}

char *google_claim_name(const char *owner, const char *stack) {
    char hex[65];
    GP_AUTO_FREE char *text = xasprintf("%s/%s", owner, stack);
    sha256_hex(text, strlen(text), hex);
    return xasprintf("gpuprov-%s-%.12s", stack, hex);
}

char *google_members_name(const char *uid) { return xasprintf("gpuprov-%s-members", uid); }
char *google_tag_name(const char *uid) { return xasprintf("gpuprov-%s", uid); }

/* --- decoding --- */

/* The tags of a description. One that gpuprov would not write makes them bad. */
static void read_about(const char *about, struct google_rule *ret) {
    GP_AUTO_JSON json_t *json = NULL;
    GP_AUTO_LABELS struct label_list labels = {0};
    const char *key = NULL;
    json_t *value = NULL;
    bool foreign = json_parse(about, strlen(about), "the description", &json, NULL) != 0 || !json_is_object(json);
    json_object_foreach(foreign ? NULL : json, key, value) {
        bool home = strcmp(key, HOME) == 0, ours = str_starts(key, labels_ec2.prefix);
        const char *text = json_is_string(value) ? json_string_value(value) : NULL;
        if (text == NULL || (!home && !ours) || (home && !google_name_valid(text))) foreign = true;
        else if (home) resource_set(&ret->home, text);
        else labels_add(&labels, key, text);
    }
    labels_read(&labels_ec2, &labels, &ret->tags);
    if (foreign && tags_identify(&ret->tags)) tags_complain(&ret->tags, "description", "as gpuprov writes it");
}

static bool is_one(const json_t *list, const char *value) {
    const json_t *first = json_array_get(list, 0);
    return json_array_size(list) == 1 && json_is_string(first) && strcmp(json_string_value(first), value) == 0;
}

static bool is_empty(const json_t *item, const char *list) { return json_array_size(json_at(item, list)) == 0; }

/* The members that are not as gpuprov makes them for this uid: SSH from networks, or everything between nodes. */
static void find_changed(const json_t *item, const char *uid, bool members, struct strv *ret) {
    GP_AUTO_FREE char *tag = google_tag_name(uid);
    const char *protocol = json_str(item, "allowed.0.IPProtocol", "");
    const struct {
        const char *name;
        bool right;
    } parts[] = {
        {"allowed", json_array_size(json_at(item, "allowed")) == 1 && strcmp(protocol, members ? "all" : "tcp") == 0 &&
                        (members || is_one(json_at(item, "allowed.0.ports"), "22"))},
        {"denied", is_empty(item, "denied")},
        {"destinationRanges", is_empty(item, "destinationRanges")},
        {"direction", strcmp(json_str(item, "direction", "INGRESS"), "INGRESS") == 0},
        {"disabled", !json_bool(item, "disabled", false)},
        {"priority", json_int(item, "priority", PRIORITY) == PRIORITY},
        {"sourceRanges", !members || is_empty(item, "sourceRanges")},
        {"sourceServiceAccounts", is_empty(item, "sourceServiceAccounts")},
        {"sourceTags", members ? is_one(json_at(item, "sourceTags"), tag) : is_empty(item, "sourceTags")},
        {"targetServiceAccounts", is_empty(item, "targetServiceAccounts")},
        {"targetTags", is_one(json_at(item, "targetTags"), tag)},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(parts); i++)
        if (!parts[i].right) strv_add(ret, parts[i].name);
}

static void add_texts(const json_t *item, const char *list, const char *but, struct strv *ret) {
    const json_t *one = NULL;
    size_t i = 0;
    json_array_foreach(json_at(item, list), i, one) if (json_is_string(one) && !str_eq(json_string_value(one), but))
        strv_add(ret, json_string_value(one));
}

/* Its kind is in its name: the description is anybody's. */
static void read_form(const json_t *item, struct google_rule *ret) {
    GP_AUTO_FREE char *members_name = google_members_name(ret->tags.uid), *tag = google_tag_name(ret->tags.uid);
    bool members = strcmp(ret->name, members_name) == 0;
    add_texts(item, "sourceRanges", NULL, &ret->from);
    add_texts(item, "sourceTags", members ? tag : NULL, &ret->others);
    add_texts(item, "sourceServiceAccounts", NULL, &ret->others);
    find_changed(item, ret->tags.uid, members, &ret->changed);
}

int google_rule_read(const json_t *item, struct google_rule *ret, struct gp_error *err) {
    const char *name = json_str(item, "name", "");
    google_rule_clear(ret);
    if (!google_name_valid(name))
        return gp_fail(err, GP_EPROTO, "google firewalls: a name in the reply is not that of a rule");
    resource_set(&ret->home, "");
    read_about(json_str(item, "description", ""), ret);
    ret->name = xstrdup(name);
    ret->network = xstrdup(google_last(json_str(item, "network", "")));
    str_one_line(ret->network);
    read_form(item, ret);
    return 0;
}

int google_rule_get(struct google *g, const char *name, struct google_rule *ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *url = google_url(g, "global/firewalls/%s", name);
    google_rule_clear(ret);
    int r = google_call(g, "google firewalls.get", "GET", url, NULL, REST_MISSING, &reply, err);
    return r == 0 && reply.status != 404 ? google_rule_read(reply.json, ret, err) : r;
}

void google_rule_resource(const struct google_rule *r, struct resource *ret) {
    resource_init(ret, RES_GROUP, "google");
    resource_set(&ret->region, r->home);
    resource_set(&ret->id, r->name);
    tags_to_resource(&r->tags, -1, ret);
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
}

/* --- encoding --- */

static int about_text(const struct tags *t, const char *home, char **ret, struct gp_error *err) {
    GP_AUTO_LABELS struct label_list labels = {0};
    GP_AUTO_JSON json_t *json = json_object();
    bool fits = labels_write(&labels_ec2, t, &labels);
    for (size_t i = 0; i < labels.list.len; i++)
        json_object_set_new(json, labels.list.items[i].key, json_string(labels.list.items[i].value));
    json_object_set_new(json, HOME, json_string(home));
    *ret = json_text_exact(json, 0);
    if (fits && strlen(*ret) <= ABOUT_MAX) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "google: the claim's regions do not fit the description of a firewall rule: give "
                   "fewer regions");
}

/* from NULL: between nodes. */
static json_t *rule_body(const char *uid, const struct strv *from, const char *about) {
    GP_AUTO_FREE char *tag = google_tag_name(uid);
    json_t *body = json_pack("{s:s, s:s, s:[s], s:b}", "description", about, "direction", "INGRESS", "targetTags", tag,
                             "disabled", 0);
    if (from == NULL) {
        json_object_set_new(body, "allowed", json_pack("[{s:s}]", "IPProtocol", "all"));
        json_object_set_new(body, "sourceTags", json_pack("[s]", tag));
        return body;
    }
    json_t *ranges = json_array();
    for (size_t i = 0; i < from->n; i++) json_array_append_new(ranges, json_string(from->v[i]));
    json_object_set_new(body, "allowed", json_pack("[{s:s, s:[s]}]", "IPProtocol", "tcp", "ports", "22"));
    json_object_set_new(body, "sourceRanges", ranges);
    return body;
}

/* --- changes --- */

void google_rule_call_clear(struct google_rule_call *c) {
    google_rule_clear(&c->rule);
    if (c->in.token != NULL) intent_clear(&c->in);
    free(c->url);
    *c = (struct google_rule_call){0};
}

int google_rule_begin(struct google *g, const struct google_new_rule *n, struct google_rule_call *ret,
                      struct gp_error *err) {
    const struct stack *s = n->stack;
    GP_AUTO_FREE char *about = NULL;
    ret->rule =
        (struct google_rule){.name = xstrdup(n->name), .network = xstrdup(n->network), .home = xstrdup(s->region)};
    tags_of_stack(&ret->rule.tags, s);
    ret->rule.tags.created_s = s->created_s;
    resource_set(&ret->rule.tags.regions, n->regions);
    ret->rule.tags.claim = n->regions != NULL;
    if (n->from != NULL) strv_copy(&ret->rule.from, n->from);
    int r = about_text(&ret->rule.tags, s->region, &about, err);
    if (r != 0) return r;
    GP_AUTO_JSON json_t *body = rule_body(s->uid, n->from, about);
    GP_AUTO_FREE char *network = xasprintf("projects/%s/global/networks/%s", g->project, n->network);
    json_object_set_new(body, "name", json_string(n->name));
    json_object_set_new(body, "network", json_string(network));
    GP_AUTO_FREE char *text = json_text_exact(body, 0);
    cloud_intent_thing(s, "google", s->region, RES_GROUP, n->name, text, &ret->in);
    ret->in.claim = n->regions != NULL;
    ret->url = google_url(g, "global/firewalls");
    r = google_url_once(g, &ret->url, err);
    if (r == 0) r = journal_intent(g->journal, &ret->in, err);
    ret->call =
        (struct rest_call){.what = INSERT, .method = "POST", .url = ret->url, .body = ret->in.body, .flags = REST_ONCE};
    return r;
}

int google_rule_end(struct google *g, struct google_rule_call *c, struct rest_result *sent, struct google_rule *ret,
                    struct gp_error *err) {
    struct resource one = {0};
    int r = sent->rc == 0 ? google_wait(g, NULL, sent->reply.json, INSERT, NULL, &sent->err) : sent->rc;
    google_rule_resource(&c->rule, &one);
    r = cloud_thing_created(g->journal, &c->in, r, &one, &sent->err, err);
    resource_clear(&one);
    if (r != 0) return r;
    google_rule_clear(ret);
    *ret = c->rule;
    c->rule = (struct google_rule){0};
    return 0;
}

int google_rule_create(struct google *g, const struct google_new_rule *n, struct google_rule *ret,
                       struct gp_error *err) {
    GP_AUTO_RULE_CALL struct google_rule_call c = {0};
    struct rest_result sent = {0};
    int r = google_rule_begin(g, n, &c, err);
    if (r != 0) return r;
    sent.rc = rest_call(&g->rest, &c.call, &sent.reply, &sent.err);
    r = google_rule_end(g, &c, &sent, ret, err);
    rest_reply_clear(&sent.reply);
    return r;
}

/* Google merges: a member that a patch does not name stays. The log is the user's own. */
static json_t *patch_body(const struct google_rule *r, const struct strv *from, const char *about) {
    static const char *const lists[] = {"denied",     "destinationRanges",    "sourceRanges", "sourceServiceAccounts",
                                        "sourceTags", "targetServiceAccounts"};
    json_t *body = rule_body(r->tags.uid, from, about);
    json_object_del(body, "direction"); /* it cannot be changed */
    json_object_set_new(body, "name", json_string(r->name));
    json_object_set_new(body, "priority", json_integer(PRIORITY));
    for (size_t i = 0; i < GP_ARRAY_LEN(lists); i++)
        if (json_object_get(body, lists[i]) == NULL) json_object_set_new(body, lists[i], json_array());
    return body;
}

static bool has_network(const struct strv *from, const char *network) {
    for (size_t i = 0; from != NULL && i < from->n; i++)
        if (ssh_from_same(from->v[i], network)) return true;
    return false;
}

static void say_removed(struct google *g, const char *rule, const struct strv *from, const char *source) {
    GP_AUTO_FREE char *text =
        from != NULL
            ? xasprintf("firewall rule %s allowed SSH from %.100s, which access.ssh_from does not list: removed", rule,
                        source)
            : xasprintf("firewall rule %s allowed everything from %.100s, which is no node of the stack: removed", rule,
                        source);
    str_one_line(text);
    event_emit(g->sink, -1, NODE_LAUNCHING, EVENT_WARN, "access", "%s", text);
}

/* r: before the patch. */
static void say_changed(struct google *g, const struct google_rule *r, const struct strv *from) {
    GP_AUTO_STR struct str names = {0};
    for (size_t i = 0; i < r->from.n; i++)
        if (!has_network(from, r->from.v[i])) say_removed(g, r->name, from, r->from.v[i]);
    for (size_t i = 0; i < r->others.n; i++) say_removed(g, r->name, from, r->others.v[i]);
    for (size_t i = 0; i < r->changed.n; i++)
        if (!str_starts(r->changed.v[i], "source"))
            str_addf(&names, "%s%s", names.len > 0 ? ", " : "", r->changed.v[i]);
    if (names.len > 0)
        event_emit(g->sink, -1, NODE_LAUNCHING, EVENT_WARN, "access",
                   "firewall rule %s was changed by somebody (%s): it is as gpuprov makes it again", r->name, names.s);
}

/* Somebody may change it again, and what Google makes of a patch is Google's. */
static int read_back(struct google *g, const char *name, struct gp_error *err) {
    for (int i = 0;; i++) {
        GP_AUTO_RULE struct google_rule now = {0};
        int r = google_rule_get(g, name, &now, err);
        if (r != 0 || (now.name != NULL && now.changed.n == 0)) return r;
        if (i == READS - 1 && now.name == NULL)
            return gp_fail(err, GP_EPROTO, "google: somebody deleted it meanwhile: run the command again");
        if (i == READS - 1)
            return gp_fail(err, GP_EPROTO,
                           "google: its %s is still not as gpuprov makes it: delete the rule in the cloud's console",
                           now.changed.v[0]);
        if (gp_sleep(100 << i, g->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
}

int google_rule_patch(struct google *g, const struct google_rule *r, const struct strv *from, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *about = NULL;
    int rc = about_text(&r->tags, r->home, &about, err);
    if (rc != 0) return rc;
    GP_AUTO_JSON json_t *body = patch_body(r, from, about);
    GP_AUTO_FREE char *url = google_url(g, "global/firewalls/%s", r->name);
    rc = google_call(g, "google firewalls.patch", "PATCH", url, body, 0, &reply, err);
    if (rc == 0) rc = google_wait(g, NULL, reply.json, "google firewalls.patch", NULL, err);
    if (rc == 0) rc = read_back(g, r->name, err);
    if (rc == 0) say_changed(g, r, from);
    return rc != 0 ? gp_wrap(err, "could not update the rule %s", r->name) : 0;
}

int google_rule_settle(struct google *g, const struct google_rule *r, struct gp_error *err) {
    struct resource there;
    google_rule_resource(r, &there);
    int rc = cloud_thing_settle(g->journal, &there, r->name, err);
    resource_clear(&there);
    return rc;
}

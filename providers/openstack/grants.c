// SPDX-License-Identifier: Apache-2.0
/* The right of a node to delete itself: an application credential of keystone that may read and delete that one server
 * and ends after its deadline. keystone shows its secret once, so a lost reply is settled by deleting what has its name
 * and making it again. It counts for a node once the node has used it: then the server's metadata names it, and those
 * of earlier runs are deleted. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

#define NAME "gpuprov-end-"
#define MARGIN_S 7200 /* how long a node may try after its deadline */
#define TRIES 4
#define UUID 36
#define NUMBER_MAX 99999999

bool os_wants_self_delete(const struct spec *spec) {
    for (size_t i = 0; spec != NULL && i < spec->offers.len; i++)
        if (str_eq(spec->offers.items[i].provider, "openstack") && spec->offers.items[i].role != NULL) return true;
    return false;
}

int os_check_may_grant(const struct os *o, struct gp_error *err) {
    if (!o->restricted) return 0;
    int r =
        gp_fail(err, GP_EAUTH,
                "openstack: %s is an application credential that may not create others, so 'role: self-delete' does "
                "not work: log in with a password, create it with '--unrestricted' and without access rules, or remove "
                "'role' from the offer",
                o->cfg.source);
    if (err != NULL) err->scope = GP_SCOPE_PROVIDER;
    return r;
}

/* keystone's ids are 32 hex digits. */
static bool is_id(const char *s) { return strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32; }

/* --- calls to keystone --- */

/* things: "application_credentials" or "access_rules" of the user. */
static int call(struct os *o, const char *method, const char *things, const char *id, const char *body, unsigned flags,
                struct rest_reply *ret, struct gp_error *err) {
    GP_AUTO_FREE char *base = os_identity_url(o->cfg.auth_url);
    if (base == NULL || !form_word(o->user_id))
        return gp_fail(err, GP_EPROTO, "openstack: keystone's reply has a malformed user id");
    GP_AUTO_FREE char *url =
        xasprintf("%s/users/%s/%s%s%s", base, o->user_id, things, id != NULL ? "/" : "", id != NULL ? id : "");
    GP_AUTO_FREE char *what = xasprintf("openstack identity %s %s", method, things);
    struct rest_call c = {.what = what, .method = method, .url = url, .body = body, .flags = flags};
    return rest_call(&o->rest, &c, ret, err);
}

/* --- what it may do --- */

/* "/v2.1/servers/ID", as nova sees the path. NULL: no compute endpoint. */
static char *server_path(const struct os *o, const char *region, const char *server, char **ret_url) {
    const char *url = os_endpoint_url(o, OS_COMPUTE, region);
    if (url == NULL || !os_uuid(server)) return NULL;
    *ret_url = xasprintf("%s/servers/%s", url, server);
    const char *host = strstr(*ret_url, "://") + 3;
    return xstrdup(host + strcspn(host, "/"));
}

static const char *const methods[] = {"DELETE", "GET"};

static json_t *rules_of(const char *path) {
    json_t *rules = json_array();
    for (size_t i = 0; i < GP_ARRAY_LEN(methods); i++)
        json_array_append_new(rules,
                              json_pack("{s:s,s:s,s:s}", "service", "compute", "method", methods[i], "path", path));
    return rules;
}

/* Exactly those rules, restricted, and not over before the deadline. */
static bool is_right(const json_t *item, const char *path, int64_t expires_s) {
    const json_t *rules = json_object_get(item, "access_rules"), *rule = NULL;
    unsigned seen = 0;
    size_t i = 0;
    int64_t until_s = 0;
    json_array_foreach(rules, i, rule) {
        unsigned bit = 0;
        for (size_t m = 0; m < GP_ARRAY_LEN(methods); m++)
            if (strcmp(json_str(rule, "method", ""), methods[m]) == 0) bit = 1U << m;
        if (bit == 0 || strcmp(json_str(rule, "service", ""), "compute") != 0 ||
            strcmp(json_str(rule, "path", ""), path) != 0)
            return false;
        seen |= bit;
    }
    const char *until = json_str(item, "expires_at", "");
    GP_AUTO_FREE char *utc = xasprintf("%s%s", until, until[0] != '\0' && !str_ends(until, "Z") ? "Z" : "");
    return seen == 3U && !json_bool(item, "unrestricted", true) && time_parse_utc(utc, &until_s) && until_s > expires_s;
}

/* --- list --- */

struct grant {
    struct resource res;
    char server[UUID + 1];
    char *name;
    int64_t number; /* of this server's credentials: the newest has the highest */
    bool good;      /* it has the rights for its server, until its deadline */
};
struct listing {
    const struct os *o;
    const char *region;
    VEC_OF(struct grant) list;
};

static void listing_clear(struct listing *l) {
    for (size_t i = 0; i < l->list.len; i++) {
        resource_clear(&l->list.items[i].res);
        free(l->list.items[i].name);
    }
    vec_free(&l->list);
}
#define AUTO_LISTING GP_CLEANUP(listing_clear)

static char *name_of(const char *region, const char *server, int64_t number) {
    return xasprintf(NAME "%s-%s-%lld", region, server, (long long)number);
}

/* False: it is not a name of that region. */
static bool read_name(const char *name, const char *region, struct grant *ret) {
    GP_AUTO_FREE char *head = xasprintf(NAME "%s-", region);
    size_t n = strlen(head);
    if (!str_starts(name, head) || strlen(name) < n + UUID + 2 || name[n + UUID] != '-') return false;
    str_put(ret->server, sizeof ret->server, name + n);
    return os_uuid(ret->server) && str_to_i64(name + n + UUID + 1, 1, NUMBER_MAX, &ret->number);
}

/* The name has the region and the server, the description the tags. */
static int on_item(struct listing *l, const json_t *item, struct gp_error *err) {
    const char *id = json_str(item, "id", ""), *name = json_str(item, "name", "");
    struct grant g = {0};
    struct tags t;
    if (!read_name(name, l->region, &g)) return 0;
    if (!is_id(id))
        return gp_fail(err, GP_EPROTO,
                       "openstack: keystone's list of application credentials has a malformed entry: run the same "
                       "command again");
    if (strcmp(json_str(item, "project_id", ""), l->o->project_id) != 0) return 0;
    if (os_description_read(json_str(item, "description", ""), &t)) {
        GP_AUTO_FREE char *url = NULL;
        GP_AUTO_FREE char *path = server_path(l->o, l->region, g.server, &url);
        resource_init(&g.res, RES_GRANT, "openstack");
        resource_set(&g.res.region, l->region);
        resource_set(&g.res.id, id);
        resource_set(&g.res.account, l->o->project_id);
        tags_to_resource(&t, -1, &g.res);
        if (t.slot_count == 1) g.res.slot = t.slot_first;
        g.res.state = RES_RUNNING;
        g.res.price_usd_per_h = 0;
        g.name = xstrdup(name);
        g.good = path != NULL && is_right(item, path, t.expires_s);
        vec_push(&l->list, g);
    }
    tags_clear(&t);
    return 0;
}

/* -GP_EAUTH: this session may not read them. */
static int read_all(struct listing *l, struct os *o, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    const json_t *item = NULL;
    size_t i = 0;
    if (o->cache->grants_hidden) return gp_fail(err, GP_EAUTH, "openstack: this login may not list them");
    int r = call(o, "GET", "application_credentials", NULL, NULL, REST_MISSING, &reply, err);
    if (r == -GP_EAUTH || (r == 0 && reply.status == 404)) {
        o->cache->grants_hidden = true;
        return r != 0 ? r : gp_fail(err, GP_EAUTH, "openstack: keystone has no application credentials");
    }
    const json_t *all = r == 0 ? json_object_get(reply.json, "application_credentials") : NULL;
    if (r == 0 && (!json_is_array(all) || json_bool(reply.json, "truncated", false)))
        return gp_fail(err, GP_EPROTO,
                       "openstack: keystone's list of application credentials is not complete: remove those that are "
                       "not used, then run the same command again");
    json_array_foreach(all, i, item) {
        if (r == 0) r = on_item(l, item, err);
    }
    return r;
}

/* A login that may not read credentials may not have created any: only those in the journal can exist. */
static int check_hidden(const struct os *o, const char *region, const struct resource_list *known,
                        struct gp_error *err) {
    for (size_t i = 0; known != NULL && i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (k->kind != RES_GRANT || k->state == RES_GONE || !str_eq(k->provider, "openstack") ||
            !str_eq(k->region, region))
            continue;
        return gp_fail(err, GP_EAUTH,
                       "openstack %s: %s may not read application credentials, and a node has one (%s): use the login "
                       "that launched the stack",
                       region, o->cfg.source, k->id);
    }
    return 0;
}

static const struct resource *machine_of(const struct grant *g, struct resource_list *nodes) {
    for (size_t i = 0; i < nodes->list.len; i++) {
        struct resource *n = &nodes->list.items[i];
        if (n->kind == RES_INSTANCE && n->state != RES_GONE && str_eq(n->id, g->server)) return n;
    }
    return NULL;
}

int os_grants_list(struct os *o, const char *region, const struct resource_list *known, struct resource_list *nodes,
                   struct resource_list *ret, struct gp_error *err) {
    AUTO_LISTING struct listing l = {.o = o, .region = region};
    struct gp_error why = {0};
    int r = read_all(&l, o, &why);
    if (r == -GP_EAUTH) return check_hidden(o, region, known, err);
    if (r != 0 && err != NULL) *err = why;
    for (size_t k = 0; r == 0 && k < l.list.len; k++) {
        struct grant *g = &l.list.items[k];
        for (size_t i = 0; i < nodes->list.len; i++) {
            struct resource *n = &nodes->list.items[i];
            GP_AUTO_FREE char *used = xasprintf("%s %s", n->id, g->res.id);
            bool its = n->kind == RES_INSTANCE && str_eq(g->server, n->id) && str_eq(g->res.uid, n->uid) &&
                       str_eq(g->res.owner, n->owner);
            if (its && strv_has(&o->cache->confirmed, used) && g->good && g->res.expires_s >= n->expires_s)
                n->ends_itself = true;
        }
        if (machine_of(g, nodes) == NULL) g->res.state = RES_STOPPED;
    }
    for (size_t i = 0; r == 0 && i < l.list.len; i++) resource_list_add(ret, &l.list.items[i].res);
    return r;
}

/* --- end --- */

/* keystone keeps the rules of a deleted credential. It refuses to delete one that another credential uses. */
static int end_rules(struct os *o, const struct strv *rules, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < rules->n; i++) {
        GP_AUTO_REST struct rest_reply reply = {0};
        struct gp_error why = {0};
        r = call(o, "DELETE", "access_rules", rules->v[i], NULL, REST_MISSING, &reply, &why);
        if (r == -GP_EAUTH || r == -GP_ENOTFOUND) r = 0;
        if (r != 0 && err != NULL) *err = why;
    }
    return r;
}

static int end(struct os *o, const char *id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_REST struct rest_reply deleted = {0};
    GP_AUTO_STRV struct strv rules = {0};
    const json_t *rule = NULL;
    size_t i = 0;
    if (!is_id(id)) return gp_fail(err, GP_EUSAGE, "openstack: '%.60s' is not an id", id);
    int r = call(o, "GET", "application_credentials", id, NULL, REST_MISSING, &reply, err);
    if (r == -GP_ENOTFOUND || (r == 0 && reply.status == 404)) return 0;
    if (r != 0) return r;
    json_array_foreach(json_at(reply.json, "application_credential.access_rules"), i, rule) {
        if (is_id(json_str(rule, "id", ""))) strv_add(&rules, json_str(rule, "id", ""));
    }
    if (o->restricted)
        return gp_fail(err, GP_EAUTH,
                       "openstack: %s is an application credential that may not delete others, such as %s of a node: "
                       "use the login that launched the stack",
                       o->cfg.source, id);
    r = call(o, "DELETE", "application_credentials", id, NULL, REST_MISSING, &deleted, err);
    if (r == 0 || r == -GP_ENOTFOUND) r = end_rules(o, &rules, err);
    return r;
}

int os_grant_end(struct os *o, const struct resource *grant, struct gp_error *err) { return end(o, grant->id, err); }

/* --- make --- */

struct making {
    struct os *o;
    const struct resource *node;
    struct intent in;
    char *name, *path, *url;
    int64_t until_s;
};

static bool is_its(const struct grant *g, const struct making *m) {
    return str_eq(g->server, m->node->id) && str_eq(g->res.uid, m->node->uid) && cloud_is_ours(&m->o->base, &g->res);
}

/* Those of earlier runs stay: the node may have one of them. Their intents end. Sets the name of the next one. */
static int name_next(struct making *m, struct gp_error *err) {
    AUTO_LISTING struct listing l = {.o = m->o, .region = m->node->region};
    int64_t number = 0;
    int r = read_all(&l, m->o, err);
    for (size_t i = 0; r == 0 && i < l.list.len; i++) {
        const struct grant *g = &l.list.items[i];
        if (!str_eq(g->server, m->node->id)) continue;
        number = GP_MAX(number, g->number);
        if (is_its(g, m)) r = cloud_thing_settle(m->o->journal, &g->res, g->name, err);
    }
    if (r == 0 && number >= NUMBER_MAX)
        r = gp_fail(err, GP_EEXISTS,
                    "openstack: no name is left for an application credential of %s: remove those of that server "
                    "('openstack application credential delete')",
                    m->node->id);
    if (r == 0) m->name = name_of(m->node->region, m->node->id, number + 1);
    return r;
}

/* One whose reply was lost: nobody has its secret. */
static int end_lost(const struct making *m, struct gp_error *err) {
    AUTO_LISTING struct listing l = {.o = m->o, .region = m->node->region};
    int r = read_all(&l, m->o, err);
    for (size_t i = 0; r == 0 && i < l.list.len; i++)
        if (is_its(&l.list.items[i], m) && str_eq(l.list.items[i].name, m->name))
            r = end(m->o, l.list.items[i].res.id, err);
    return r;
}

static bool is_secret(const char *s) {
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    size_t n = strlen(s);
    return n >= 16 && n <= 255 && strspn(s, good) == n;
}

static char *request_body(const struct making *m, const char *about) {
    char until[32];
    time_format_utc(until, sizeof until, m->until_s);
    GP_AUTO_JSON json_t *j =
        json_pack("{s:{s:s,s:s,s:s,s:b,s:o}}", "application_credential", "name", m->name, "description", about,
                  "expires_at", until, "unrestricted", 0, "access_rules", rules_of(m->path));
    return json_text(j, 0);
}

/* -GP_EUNKNOWN: its reply was lost. */
static int request(struct making *m, struct secret *ret_secret, char ret_id[33], struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    int r = call(m->o, "POST", "application_credentials", NULL, m->in.body, REST_ONCE, &reply, err);
    if (r != 0) return r;
    const char *id = json_str(reply.json, "application_credential.id", "");
    const char *secret = json_str(reply.json, "application_credential.secret", "");
    if (!is_id(id) || !is_secret(secret))
        return gp_fail(err, GP_EUNKNOWN, "openstack: keystone's reply to a new application credential has no secret");
    secret_set(ret_secret, secret, strlen(secret));
    log_redact(ret_secret);
    str_put(ret_id, 33, id);
    return 0;
}

static int read_back(const struct making *m, const char *id, int64_t expires_s, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    int r = call(m->o, "GET", "application_credentials", id, NULL, 0, &reply, err);
    if (r != 0 || is_right(json_object_get(reply.json, "application_credential"), m->path, expires_s)) return r;
    return gp_fail(err, GP_EPROTO,
                   "openstack: the application credential %s was read back with other rights or another end than were "
                   "requested",
                   id);
}

static int add_ca(const struct os *o, struct str *out, struct gp_error *err) {
    GP_AUTO_STR struct str pem = {0};
    int r = o->cfg.cacert != NULL ? fs_read(o->cfg.cacert, (size_t)256 << 10, &pem, err) : 0;
    GP_AUTO_FREE char *coded = base64_text(pem.s != NULL ? pem.s : "", pem.len);
    str_addf(out, "CACERT=%s\n", coded);
    return r;
}

/* The file that the node's script reads. */
static int file_for(const struct making *m, const char *id, const struct secret *secret, struct secret *ret,
                    struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_FREE char *identity = os_identity_url(m->o->cfg.auth_url);
    str_addf(&text, "AUTH=%s/auth/tokens\nSERVER=%s\nID=%s\nSECRET=%s\n", identity, m->url, id, secret_reveal(secret));
    int r = add_ca(m->o, &text, err);
    if (r == 0) secret_set(ret, text.s, text.len);
    explicit_bzero(text.s, text.cap);
    return r;
}

static int make_one(struct making *m, const struct stack *s, const struct tags *t, struct secret *ret,
                    struct gp_error *err) {
    GP_AUTO_SECRET struct secret secret = {0};
    struct gp_error why = {0};
    struct resource made;
    char id[33] = "";
    int r = request(m, &secret, id, &why);
    for (int i = 1; i < TRIES && r == -GP_EUNKNOWN; i++) {
        struct gp_error again = {0};
        if (end_lost(m, &again) != 0) break; /* it may exist: the intent stays open */
        gp_error_clear(&why);
        r = request(m, &secret, id, &why);
    }
    resource_init(&made, RES_GRANT, "openstack");
    resource_set(&made.region, m->node->region);
    resource_set(&made.id, id);
    resource_set(&made.account, m->o->project_id);
    tags_to_resource(t, -1, &made);
    made.slot = m->node->slot;
    made.state = RES_RUNNING;
    made.price_usd_per_h = 0;
    r = cloud_thing_created(m->o->journal, &m->in, r, &made, &why, err);
    if (r == 0) r = cloud_thing_settle(m->o->journal, &made, m->name, err);
    if (r == 0) r = read_back(m, id, s->expires_s, err);
    if (r == 0) r = file_for(m, id, &secret, ret, err);
    resource_clear(&made);
    return r;
}

static int make(struct provider *p, const struct stack *stack, const struct spec *spec, const struct resource *node,
                struct secret *ret, struct gp_error *err) {
    struct os *o = os_of(p);
    struct making m = {.o = o, .node = node, .until_s = stack->expires_s + MARGIN_S};
    GP_AUTO_STR struct str about = {0};
    struct tags t;
    if (!os_wants_self_delete(spec)) return 0;
    int r = os_check_may_grant(o, err);
    if (r != 0) return r;
    tags_of_stack(&t, stack);
    t.slot_first = node->slot;
    t.slot_count = 1;
    t.attempt = node->attempt;
    m.path = server_path(o, node->region, node->id, &m.url);
    if (m.path == NULL || !os_description(&t, &about)) {
        r = gp_fail(err, GP_EPROTO, "openstack: the server %.40s has no endpoint or too long tags", node->id);
    } else {
        r = name_next(&m, err);
        if (r == 0) {
            GP_AUTO_FREE char *body = request_body(&m, about.s);
            cloud_intent_thing(stack, "openstack", node->region, RES_GRANT, m.name, body, &m.in);
            r = journal_intent(o->journal, &m.in, err);
        }
        if (r == 0) r = make_one(&m, stack, &t, ret, err);
        intent_clear(&m.in);
    }
    tags_clear(&t);
    free(m.name);
    free(m.path);
    free(m.url);
    return r;
}

static int note_used(struct os *o, const struct resource *node, const char *id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:s}}", "metadata", OS_CONFIRMED, id);
    GP_AUTO_FREE char *body = json_text(j, 0);
    GP_AUTO_FREE char *path = xasprintf("/servers/%s/metadata", node->id);
    struct os_call c = {.service = OS_COMPUTE, .region = node->region, .method = "POST", .path = path, .body = body};
    return os_call(o, &c, &reply, err);
}

/* The newest credential of the server is the one that it has. Those of earlier runs go only now. */
static int confirm(struct provider *p, const struct resource *node, struct gp_error *err) {
    struct os *o = os_of(p);
    struct making m = {.o = o, .node = node};
    AUTO_LISTING struct listing l = {.o = o, .region = node->region};
    const struct grant *newest = NULL;
    int r = os_uuid(node->id) ? read_all(&l, o, err) : gp_fail(err, GP_EUSAGE, "openstack: malformed id of a node");
    for (size_t i = 0; r == 0 && i < l.list.len; i++) {
        const struct grant *g = &l.list.items[i];
        if (is_its(g, &m) && (newest == NULL || g->number > newest->number)) newest = g;
    }
    if (r == 0 && (newest == NULL || !newest->good))
        r = gp_fail(err, GP_ENOTFOUND,
                    "openstack: the application credential of %s was removed or changed: run the same command again",
                    node->id);
    if (r == 0) r = note_used(o, node, newest->res.id, err);
    for (size_t i = 0; r == 0 && i < l.list.len; i++)
        if (&l.list.items[i] != newest && is_its(&l.list.items[i], &m)) r = end(o, l.list.items[i].res.id, err);
    return r;
}

const struct self_end_ops os_self_end = {.make = make, .confirm = confirm};

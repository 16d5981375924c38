// SPDX-License-Identifier: Apache-2.0
/* The session: a token of keystone, the catalogue's endpoints, nova's microversion, one call to a service. A token is
 * renewed before it ends, and once when a service refuses it. One thread. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/form.h"
#include "base/log.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/places.h"

#define MICROVERSION_LEAST 61 /* 2.61: flavors are listed with their extra specs */
#define MICROVERSION_MOST 93  /* what was tried: Zed */
#define TOKEN_MAX 16384

static const char *const types[] = {[OS_COMPUTE] = "compute", [OS_NETWORK] = "network", [OS_IMAGE] = "image"};
static const char *const hidden[] = {"password", "secret", "user_data", "token", "application_credential", NULL};

/* --- login --- */

static json_t *named(const char *id, const char *name) {
    if (id != NULL) return json_pack("{s:s}", "id", id);
    return json_pack("{s:s}", "name", name);
}

/* {"id": ..} or {"name": .., "domain": ..}: ids are unique, names within a domain. */
static json_t *in_domain(const char *id, const char *name, const char *domain_id, const char *domain_name) {
    json_t *j = named(id, name);
    if (id == NULL && domain_id == NULL && domain_name == NULL) domain_id = "default";
    if (id == NULL) json_object_set_new(j, "domain", named(domain_id, domain_name));
    return j;
}

static json_t *user_of(const struct os_config *c) {
    return in_domain(c->user_id, c->username, c->user_domain_id, c->user_domain_name);
}

static json_t *identity(const struct os_config *c) {
    if (str_eq(c->auth_type, "v3token"))
        return json_pack("{s:[s],s:{s:s}}", "methods", "token", "token", "id", secret_reveal(&c->token));
    if (str_eq(c->auth_type, "v3applicationcredential")) {
        json_t *app = named(c->app_id, c->app_name);
        if (c->app_id == NULL) json_object_set_new(app, "user", user_of(c));
        json_object_set_new(app, "secret", json_string(secret_reveal(&c->app_secret)));
        return json_pack("{s:[s],s:o}", "methods", "application_credential", "application_credential", app);
    }
    json_t *user = user_of(c);
    json_object_set_new(user, "password", json_string(secret_reveal(&c->password)));
    return json_pack("{s:[s],s:{s:o}}", "methods", "password", "password", "user", user);
}

static char *login_body(const struct os_config *c) {
    GP_AUTO_JSON json_t *j = json_pack("{s:{s:o}}", "auth", "identity", identity(c));
    bool project = c->project_id != NULL || c->project_name != NULL;
    if (project && !str_eq(c->auth_type, "v3applicationcredential")) { /* an application credential has its own */
        json_t *scope = json_pack("{s:o}", "project",
                                  in_domain(c->project_id, c->project_name,
                                            c->project_domain_id ? c->project_domain_id : c->user_domain_id,
                                            c->project_domain_name ? c->project_domain_name : c->user_domain_name));
        json_object_set_new(json_object_get(j, "auth"), "scope", scope);
    }
    return json_text_exact(j, 0);
}

char *os_identity_url(const char *auth_url) {
    GP_AUTO_FREE char *base = xstrdup(auth_url);
    for (size_t n = strlen(base); n > 0 && base[n - 1] == '/'; n--) base[n - 1] = '\0';
    struct url_place place;
    if (!form_url(base, &place) || strpbrk(base, "@?#") != NULL || str_ends(base, "/v2.0")) return NULL;
    return xasprintf("%s%s", base, str_ends(base, "/v3") ? "" : "/v3");
}

/* Printable and without blanks: it becomes a header. */
static bool token_valid(const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~') return false;
    return n > 0 && n <= TOKEN_MAX;
}

/* "public", also as "publicURL". */
static bool is_interface(const char *wanted, const char *have) {
    size_t n = strlen(wanted != NULL ? wanted : "public");
    if (wanted == NULL) wanted = "public";
    if (n > 3 && strcmp(wanted + n - 3, "URL") == 0) n -= 3;
    return strlen(have) == n && strncmp(wanted, have, n) == 0;
}

static bool url_valid(const char *s) {
    size_t n = strlen(s);
    struct url_place place;
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~' || strchr("@?#\\\"", s[i]) != NULL) return false;
    return form_url(s, &place) && n < 1024;
}

static char *endpoint_url(enum os_service service, const char *url) {
    GP_AUTO_FREE char *base = xstrdup(url);
    for (size_t n = strlen(base); n > 0 && base[n - 1] == '/'; n--) base[n - 1] = '\0';
    if (service == OS_NETWORK && !str_ends(base, "/v2.0")) return xasprintf("%s/v2.0", base);
    if (service == OS_IMAGE && !str_ends(base, "/v2")) return xasprintf("%s/v2", base);
    return GP_STEAL(base);
}

static void endpoints_clear(struct os *o) {
    for (size_t i = 0; i < o->endpoints.len; i++) {
        free(o->endpoints.items[i].region);
        free(o->endpoints.items[i].url);
        free(o->endpoints.items[i].microversion);
    }
    vec_free(&o->endpoints);
}

static struct os_endpoint *endpoint_of(const struct os *o, enum os_service service, const char *region) {
    for (size_t i = 0; i < o->endpoints.len; i++)
        if (o->endpoints.items[i].service == service && str_eq(o->endpoints.items[i].region, region))
            return &o->endpoints.items[i];
    return NULL;
}

static int take_catalogue(struct os *o, const json_t *catalogue, struct gp_error *err) {
    GP_AUTO_STRV struct strv regions = {0};
    json_t *entry = NULL, *item = NULL;
    size_t i = 0, k = 0;
    json_array_foreach(catalogue, i, entry) {
        for (size_t t = 0; t < GP_ARRAY_LEN(types); t++) {
            if (strcmp(json_str(entry, "type", ""), types[t]) != 0) continue;
            json_array_foreach(json_object_get(entry, "endpoints"), k, item) {
                const char *region = json_str(item, "region", json_str(item, "region_id", ""));
                const char *url = json_str(item, "url", "");
                if (!is_interface(o->cfg.interface, json_str(item, "interface", ""))) continue;
                if (!form_word(region) || !url_valid(url))
                    return gp_fail(err, GP_EPROTO,
                                   "openstack: the catalogue has a %s endpoint with a malformed region or URL: tell "
                                   "the cloud's operator",
                                   types[t]);
                if (endpoint_of(o, (enum os_service)t, region) != NULL) continue;
                int r = places_add(&regions, region, "openstack login", err);
                if (r != 0) return r;
                struct os_endpoint e = {
                    .service = (enum os_service)t,
                    .region = xstrdup(region),
                    .url = endpoint_url((enum os_service)t, url),
                };
                vec_push(&o->endpoints, e);
            }
        }
    }
    return 0;
}

static void set_text(char **field, const char *value) {
    free(*field);
    *field = xstrdup(value);
}

int os_take_token(struct os *o, const struct rest_reply *reply, struct gp_error *err) {
    const json_t *token = json_at(reply->json, "token");
    const char *value = http_fields_get(&reply->headers, "x-subject-token");
    const char *user = json_str(token, "user.id", ""), *project = json_str(token, "project.id", "");
    int64_t until_s = 0;
    if (value == NULL || !token_valid(value) || !form_word(user) ||
        !time_parse_utc(json_str(token, "expires_at", ""), &until_s))
        return gp_fail(err, GP_EPROTO,
                       "openstack: keystone's reply has no token, user or expiry: check auth_url (%.120s)",
                       o->cfg.auth_url);
    if (project[0] == '\0')
        return gp_fail(err, GP_EAUTH, "openstack: the token of %s has no project: add project_name or project_id",
                       o->cfg.source);
    if (!form_word(project)) return gp_fail(err, GP_EPROTO, "openstack: keystone's reply has a malformed project id");
    if (o->project_id != NULL && (!str_eq(o->project_id, project) || !str_eq(o->user_id, user)))
        return gp_fail(err, GP_EAUTH,
                       "openstack: a new login is of another user or project: run the same command again");
    secret_set(&o->token, value, strlen(value));
    log_redact(&o->token);
    o->restricted = json_bool(token, "application_credential.restricted", false) ||
                    json_array_size(json_at(token, "application_credential.access_rules")) > 0;
    o->token_until_s = until_s;
    o->base.credentials_until_s = str_eq(o->cfg.auth_type, "v3token") ? until_s : 0; /* a token renews no token */
    o->token_life_s = until_s - cloud_now_s(&o->base);
    set_text(&o->user_id, user);
    set_text(&o->user_name, json_str(token, "user.name", user));
    set_text(&o->project_id, project);
    set_text(&o->project_name, json_str(token, "project.name", project));
    str_one_line(o->project_name);
    struct os old = {.endpoints = {0}};
    old.endpoints.items = o->endpoints.items; /* their microversions stay true */
    old.endpoints.len = o->endpoints.len;
    old.endpoints.cap = o->endpoints.cap;
    o->endpoints.items = NULL;
    o->endpoints.len = o->endpoints.cap = 0;
    int r = take_catalogue(o, json_object_get(token, "catalog"), err);
    for (size_t i = 0; i < old.endpoints.len; i++) {
        struct os_endpoint *was = &old.endpoints.items[i], *is = endpoint_of(o, was->service, was->region);
        if (is != NULL && str_eq(is->url, was->url)) is->microversion = GP_STEAL(was->microversion);
    }
    endpoints_clear(&old);
    if (r != 0) secret_clear(&o->token); /* the regions are not known: no call goes on with some of them */
    return r;
}

int os_login(struct os *o, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    struct gp_error why = {0};
    GP_AUTO_FREE char *identity_url = os_identity_url(o->cfg.auth_url);
    if (identity_url == NULL)
        return gp_fail(err, GP_EUSAGE,
                       "openstack: auth_url '%.120s' of %s is not the URL of a keystone with API v3: correct it",
                       o->cfg.auth_url, o->cfg.source);
    GP_AUTO_FREE char *of = xasprintf("openstack: auth_url of %.200s", o->cfg.source);
    int safe = http_url_check(of, identity_url, err);
    if (safe != 0) return safe;
    GP_AUTO_FREE char *url = xasprintf("%s/auth/tokens", identity_url);
    GP_AUTO_FREE char *body = login_body(&o->cfg);
    struct rest_call call = {
        .what = "openstack login", .method = "POST", .url = url, .body = body, .flags = REST_PUBLIC};
    int r = rest_call(&o->rest, &call, &reply, &why);
    explicit_bzero(body, strlen(body));
    if (r == 0) return os_take_token(o, &reply, err);
    bool refused = r == -GP_ENOTFOUND && strcmp(why.detail, "Not Found") == 0; /* of an application credential */
    if (refused) why.code = GP_EAUTH;
    if (refused) why.scope = GP_SCOPE_PROVIDER;
    if (err != NULL) *err = why;
    return gp_wrap(err, "openstack: %s", o->cfg.source);
}

/* --- slots of rest.h --- */

static int ensure(void *ctx, bool force, struct gp_error *err) {
    struct os *o = ctx;
    int64_t left_s = o->token_until_s - cloud_now_s(&o->base);
    int64_t least_s = GP_MIN(300, o->token_life_s / 4);
    if (!force && o->token.len > 0 && left_s > least_s) return 0;
    if (str_eq(o->cfg.auth_type, "v3token") && o->token.len > 0 && (force || left_s <= 0))
        return gp_fail(err, GP_EAUTH, "openstack: the token of %s has ended: get a new one", o->cfg.source);
    if (str_eq(o->cfg.auth_type, "v3token") && o->token.len > 0) return 0; /* a new one would not live longer */
    return os_login(o, err);
}

static int authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    const struct os *o = ctx;
    (void)call;
    (void)err;
    http_fields_add(add, "X-Auth-Token", secret_reveal(&o->token));
    return 0;
}

void os_session_init(struct os *o) {
    o->rest = (struct rest){.provider = &o->base,
                            .http = o->rest.http,
                            .ctx = o,
                            .ensure = ensure,
                            .authorize = authorize,
                            .said = os_said,
                            .rows = os_errors,
                            .row_count = os_error_count,
                            .hidden = hidden};
}

void os_session_clear(struct os *o) {
    endpoints_clear(o);
    secret_clear(&o->token);
    free(o->user_id);
    free(o->user_name);
    free(o->project_id);
    free(o->project_name);
}

void os_regions(const struct os *o, struct strv *ret) {
    for (size_t i = 0; i < o->endpoints.len; i++)
        if (o->endpoints.items[i].service == OS_COMPUTE && !strv_has(ret, o->endpoints.items[i].region))
            strv_add(ret, o->endpoints.items[i].region);
}

const char *os_home(const struct os *o) {
    if (o->cfg.region != NULL) return o->cfg.region;
    const char *only = NULL;
    for (size_t i = 0; i < o->endpoints.len; i++) {
        const struct os_endpoint *e = &o->endpoints.items[i];
        if (e->service != OS_COMPUTE) continue;
        if (only != NULL && strcmp(only, e->region) != 0) return NULL;
        only = e->region;
    }
    return only;
}

const char *os_microversion(const struct os *o, const char *region) {
    const struct os_endpoint *e = endpoint_of(o, OS_COMPUTE, region);
    return e != NULL ? e->microversion : NULL;
}

const char *os_endpoint_url(const struct os *o, enum os_service service, const char *region) {
    const struct os_endpoint *e = endpoint_of(o, service, region);
    return e != NULL ? e->url : NULL;
}

/* --- calls --- */

static int no_endpoint(const struct os *o, enum os_service service, const char *region, struct gp_error *err) {
    GP_AUTO_STRV struct strv regions = {0};
    os_regions(o, &regions);
    GP_AUTO_FREE char *names = strv_join(&regions, ", ");
    int r =
        gp_fail(err, GP_EUSAGE,
                "openstack: the catalogue has no %s endpoint (%s) in region '%.64s'; it has compute in: "
                "%.200s: correct regions or the region of %s",
                types[service], o->cfg.interface != NULL ? o->cfg.interface : "public", region, names, o->cfg.source);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

/* The catalogue is foreign: the token must not leave this machine in clear text wherever it points to. */
static int check_encrypted(const struct os *o, const struct os_endpoint *e, struct gp_error *err) {
    if (http_url_check("", e->url, NULL) == 0) return 0;
    int r = gp_fail(err, GP_EUSAGE,
                    "openstack: the %s endpoint (%s) in region '%.64s' is %.120s, which would send the token in clear "
                    "text: give an interface with https endpoints (OS_INTERFACE), or tell the cloud's operator; where "
                    "nobody is on the way, set " FORM_URL_CLEAR_ENV " to its host",
                    types[e->service], o->cfg.interface != NULL ? o->cfg.interface : "public", e->region, e->url);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

int os_check_encrypted(const struct os *o, const char *region, struct gp_error *err) {
    for (size_t i = 0; i < o->endpoints.len; i++) {
        const struct os_endpoint *e = &o->endpoints.items[i];
        int r = str_eq(e->region, region) ? check_encrypted(o, e, err) : 0;
        if (r != 0) return r;
    }
    return 0;
}

static bool minor_of(const char *text, int64_t *ret) {
    return str_starts(text, "2.") && str_to_i64(text + 2, 0, 1000, ret);
}

/* Some catalogues have the project in the URL: the version is above it. */
static char *version_url(const struct os *o, const char *url) {
    size_t n = strlen(o->project_id), len = strlen(url);
    bool project = len > n + 1 && strcmp(url + len - n, o->project_id) == 0 && url[len - n - 1] == '/';
    return xasprintf("%.*s/", (int)(project ? len - n - 1 : len), url);
}

static int negotiate(struct os *o, struct os_endpoint *e, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *url = version_url(o, e->url);
    GP_AUTO_FREE char *what = xasprintf("openstack version of compute in %s", e->region);
    struct rest_call call = {.what = what, .method = "GET", .url = url};
    GP_AUTO_FREE char *region = xstrdup(e->region);
    int64_t most = 0, least = 0;
    int r = rest_call(&o->rest, &call, &reply, err);
    if (r != 0) return r;
    e = endpoint_of(o, OS_COMPUTE, region); /* a new login may have moved them */
    if (e == NULL || !minor_of(json_str(reply.json, "version.version", ""), &most) ||
        !minor_of(json_str(reply.json, "version.min_version", ""), &least) || most < MICROVERSION_LEAST ||
        least > MICROVERSION_MOST) {
        r = gp_fail(err, GP_EUSAGE,
                    "%s: it has '%.20s', and gpuprov needs a nova with a microversion of 2.%d to 2.%d (since Queens)",
                    what, json_str(reply.json, "version.version", "no microversions"), MICROVERSION_LEAST,
                    MICROVERSION_MOST);
        if (err != NULL) err->scope = GP_SCOPE_REGION;
        return r;
    }
    e->microversion = xasprintf("2.%d", (int)GP_MIN(most, MICROVERSION_MOST));
    return 0;
}

/* A call with its URL and headers, as rest.h needs them. */
struct ready {
    char *what, *url;
    struct http_fields headers;
    struct rest_call call;
};

static void ready_clear(struct ready *r) {
    free(r->what);
    free(r->url);
    http_fields_clear(&r->headers);
}

static int make_ready(struct os *o, const struct os_call *c, struct ready *ret, struct gp_error *err) {
    struct os_endpoint *e = endpoint_of(o, c->service, c->region);
    if (e == NULL) return no_endpoint(o, c->service, c->region, err);
    int r = check_encrypted(o, e, err);
    if (r != 0) return r;
    if (c->service == OS_COMPUTE && e->microversion == NULL) {
        r = negotiate(o, e, err);
        if (r != 0) return r;
        e = endpoint_of(o, c->service, c->region);
        if (e == NULL) return no_endpoint(o, c->service, c->region, err);
    }
    size_t shown = strcspn(c->path, "?");
    ret->what = xasprintf("openstack %s %s %.*s in %s", types[c->service], c->method, (int)GP_MIN(shown, 80), c->path,
                          c->region);
    ret->url = xasprintf("%s%s", e->url, c->path);
    if (c->service == OS_COMPUTE) {
        GP_AUTO_FREE char *version = xasprintf("compute %s", e->microversion);
        http_fields_add(&ret->headers, "OpenStack-API-Version", version);
    }
    ret->call = (struct rest_call){.what = ret->what,
                                   .method = c->method,
                                   .url = ret->url,
                                   .body = c->body,
                                   .headers = &ret->headers,
                                   .flags = c->flags};
    return 0;
}

int os_call(struct os *o, const struct os_call *c, struct rest_reply *ret, struct gp_error *err) {
    struct ready ready = {0};
    int r = make_ready(o, c, &ready, err);
    if (r == 0) r = rest_call(&o->rest, &ready.call, ret, err);
    ready_clear(&ready);
    return r;
}

int os_call_many(struct os *o, const struct os_call *calls, size_t n, struct rest_result *ret, struct gp_error *err) {
    enum { AT_ONCE = 8 };
    struct ready *ready = xcalloc(n + 1, sizeof *ready);
    struct rest_call *all = xcalloc(n + 1, sizeof *all);
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = make_ready(o, &calls[i], &ready[i], err);
        all[i] = ready[i].call;
    }
    if (r == 0) rest_call_many(&o->rest, all, n, AT_ONCE, ret);
    for (size_t i = 0; i < n; i++) ready_clear(&ready[i]);
    free(all);
    free(ready);
    return r;
}

/* --- pages --- */

static const struct page_form {
    const char *items, *marker;
} forms[] = {{"servers", "id"},  {"flavors", "id"},         {"keypairs", "keypair.name"},
             {"networks", "id"}, {"security_groups", "id"}, {"floatingips", "id"},
             {"images", "id"},   {"ports", "id"},           {"security_group_rules", "id"}};

/* The next page is asked for by the last item: services behind a proxy often name themselves wrongly in their links. */
static char *next_page(const char *url, const json_t *reply) {
    for (size_t i = 0; i < GP_ARRAY_LEN(forms); i++) {
        const json_t *items = json_object_get(reply, forms[i].items);
        size_t n = json_array_size(items);
        if (!json_is_array(items)) continue;
        GP_AUTO_FREE char *links = xasprintf("%s_links", forms[i].items);
        bool more = json_object_get(reply, "next") != NULL;
        const json_t *link = NULL;
        size_t k = 0;
        json_array_foreach(json_object_get(reply, links), k, link) more =
            more || strcmp(json_str(link, "rel", ""), "next") == 0;
        if (!more) return NULL;
        const char *marker = json_str(n > 0 ? json_array_get(items, n - 1) : NULL, forms[i].marker, "");
        /* There is a next page, but no id to ask for what follows it: the same URL again, which rest_pages refuses. */
        return marker[0] == '\0' ? xstrdup(url) : rest_with_param(url, "marker", marker);
    }
    return NULL;
}

struct counted {
    const struct os_list *list;
    size_t n;
};

static int on_item(void *ctx, const json_t *item, struct gp_error *err) {
    struct counted *c = ctx;
    c->n++;
    return c->list->each(c->list->ctx, item, err);
}

int os_pages(struct os *o, const struct os_list *l, struct gp_error *err) {
    struct ready ready = {0};
    struct counted counted = {.list = l};
    struct os_call c = {.service = l->service, .region = l->region, .method = "GET", .path = l->path};
    struct rest_list list = {.items = l->items, .next = next_page, .each = on_item, .ctx = &counted};
    int r = make_ready(o, &c, &ready, err);
    if (r == 0) r = rest_pages(&o->rest, &ready.call, &list, err);
    /* The last item of a page was deleted before the next page was read: another read of the list succeeds. */
    if (counted.n > 0 && (r == -GP_ENOTFOUND || r == -GP_EUSAGE)) {
        if (err != NULL) err->code = GP_EPROTO;
        r = gp_wrap(err, "openstack: the list of %s in %s changed while its pages were read", l->items, l->region);
    }
    ready_clear(&ready);
    return r;
}

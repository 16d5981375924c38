// SPDX-License-Identifier: Apache-2.0
/* Opens and closes the google provider and lists its slots. open gets a token, which checks the credentials, names the
 * owner and sets the clock. One thread at a time. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/ini.h"
#include "providers/common/ownership.h"

#define ENDPOINT "https://compute.googleapis.com/compute/v1/"
#define ENDPOINT_ENV "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE" /* of gcloud */

void google_cache_free(struct google_cache *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < c->images.len; i++) {
        free(c->images.items[i]->key);
        free(c->images.items[i]->id);
        free(c->images.items[i]->name);
        free(c->images.items[i]);
    }
    vec_free(&c->images);
    for (size_t i = 0; i < c->data_networks.len; i++) google_data_network_clear(&c->data_networks.items[i]);
    vec_free(&c->data_networks);
    strv_clear(&c->networks);
    strv_clear(&c->quotas_ok);
    strv_clear(&c->members_ready);
    free(c->public_cidr);
    free(c->region);
    json_decref(c->of_region);
    json_decref(c->of_project);
    free(c);
}

static void google_close(struct provider *p) {
    struct google *g = p != NULL ? google_of(p) : NULL;
    if (g == NULL) return;
    http_close(g->http);
    google_cred_clear(&g->cred);
    google_cache_free(g->cache);
    free(g->project);
    free(g->principal_owner);
    free(g->endpoint);
    free(g->base.owner);
    free(g);
}

/* --- endpoint, project, owner --- */

static int set_endpoint(struct google *g, struct gp_error *err) {
    const char *set = getenv(ENDPOINT_ENV);
    if (set == NULL || set[0] == '\0') set = ENDPOINT;
    int r = http_url_check("google: " ENDPOINT_ENV, set, err);
    if (r != 0) return r;
    if (strpbrk(set, "?#") != NULL) return gp_fail(err, GP_EUSAGE, "google: " ENDPOINT_ENV " has a query: correct it");
    g->endpoint = xasprintf("%s%s", set, str_ends(set, "/") ? "" : "/");
    return 0;
}

/* A value of gcloud's active configuration; NULL: none. */
static char *configured(const char *section, const char *key) {
    GP_AUTO_STR struct str active = {0}, text = {0};
    GP_AUTO_INI struct ini ini = {0};
    const char *folder = getenv("CLOUDSDK_CONFIG"), *name = getenv("CLOUDSDK_ACTIVE_CONFIG_NAME");
    GP_AUTO_FREE char *home = fs_expand_home(folder != NULL && folder[0] != '\0' ? folder : "~/.config/gcloud");
    GP_AUTO_FREE char *active_path = fs_join(home, "active_config");
    if (name == NULL || name[0] == '\0')
        name = fs_read_text(active_path, 256, &active, NULL) == 0 && active.len > 0 ? str_trim(active.s) : "default";
    if (!form_word(name)) return NULL;
    GP_AUTO_FREE char *path = xasprintf("%s/configurations/config_%s", home, name);
    if (fs_read_text(path, 65536, &text, NULL) != 0 || ini_parse(path, text.s, &ini, NULL) != 0) return NULL;
    const char *value = ini_get(&ini, section, key);
    return value != NULL ? xstrdup(value) : NULL;
}

char *google_default_region(void) {
    const char *set = getenv("CLOUDSDK_COMPUTE_REGION");
    GP_AUTO_FREE char *region = set != NULL && set[0] != '\0' ? xstrdup(set) : configured("compute", "region");
    return google_name_valid(region) ? GP_STEAL(region) : NULL;
}

/* The one that the spec's offers name; NULL: none. */
static int project_of_spec(const struct spec *spec, const char **ret, struct gp_error *err) {
    *ret = NULL;
    for (size_t i = 0; spec != NULL && i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (!str_eq(o->provider, "google") || o->project == NULL) continue;
        if (*ret != NULL && strcmp(*ret, o->project) != 0)
            return gp_fail(err, GP_EUSAGE,
                           "google: the offers name the projects '%s' and '%s', and a stack is in one: correct project",
                           *ret, o->project);
        *ret = o->project;
    }
    return 0;
}

static int set_project(struct google *g, const struct spec *spec, struct gp_error *err) {
    static const char *const names[] = {"GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"};
    const char *named = NULL;
    int r = project_of_spec(spec, &named, err);
    if (r != 0) return r;
    if (named != NULL) g->project = xstrdup(named);
    for (size_t i = 0; g->project == NULL && i < GP_ARRAY_LEN(names); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') g->project = xstrdup(value);
    }
    if (g->project == NULL && g->cred.project != NULL) g->project = xstrdup(g->cred.project);
    if (g->project == NULL) g->project = configured("core", "project");
    if (g->project == NULL)
        return gp_fail(err, GP_EAUTH,
                       "google: no project: set GOOGLE_CLOUD_PROJECT, or run 'gcloud config set project NAME'");
    if (!google_project_valid(g->project))
        return gp_fail(
            err, GP_EAUTH,
            "google: '%.100s' is not the id of a project: correct GOOGLE_CLOUD_PROJECT or the offer's project",
            g->project);
    g->base.account = g->project;
    return 0;
}

/* The principal's address in the form of an owner. */
static int set_owner(struct google *g, const char *owner, struct gp_error *err) {
    if (g->cred.email != NULL && g->cred.email[0] != '\0') {
        g->principal_owner = xstrdup(g->cred.email);
        owner_to_form(g->principal_owner);
        g->base.principal_owner = g->principal_owner;
    }
    if (owner == NULL && g->principal_owner == NULL)
        return gp_fail(err, GP_EAUTH, "google: %s do not name a principal: give --owner NAME", g->cred.source);
    g->base.owner = xstrdup(owner != NULL ? owner : g->principal_owner);
    if (!form_owner(g->base.owner))
        return gp_fail(err, GP_EAUTH, "google: '%.140s' is too long for an owner: give --owner NAME", g->base.owner);
    return 0;
}

static int authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    const struct google *g = ctx;
    (void)call;
    (void)err;
    GP_AUTO_FREE char *bearer = xasprintf("Bearer %s", secret_reveal(&g->cred.token));
    http_fields_add(add, "Authorization", bearer);
    explicit_bzero(bearer, strlen(bearer));
    return 0;
}

static const char *const hidden[] = {"metadata", NULL};

static void set_rest(struct google *g) {
    g->rest = (struct rest){.provider = &g->base,
                            .http = g->http,
                            .ctx = g,
                            .ensure = google_creds_ensure,
                            .authorize = authorize,
                            .said = google_said,
                            .rows = google_errors,
                            .row_count = google_error_count,
                            .hidden = hidden};
}

int google_http_open(struct google *g, struct gp_error *err) {
    struct http_options opt = {.cancel = g->cancel,
                               .watch = g->watch,
                               .ca_bundle = getenv("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"),
                               .ca_setting = "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE"};
    g->base.ops = &provider_google;
    int r = http_open(&opt, &g->http, err);
    set_rest(g);
    return r;
}

static int google_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct google *g = xcalloc(1, sizeof *g);
    g->base.ops = &provider_google;
    g->cancel = env->cancel;
    g->journal = env->journal;
    g->sink = env->sink;
    g->cache = xcalloc(1, sizeof *g->cache);
    int r = set_endpoint(g, err);
    if (r == 0) r = google_http_open(g, err);
    if (r == 0) r = google_creds_ensure(g, false, err);
    if (r == 0) r = set_project(g, env->spec, err);
    if (r == 0) r = set_owner(g, env->owner, err);
    if (r != 0) {
        google_close(&g->base);
        return r;
    }
    *ret = &g->base;
    return 0;
}

const struct provider_ops provider_google = {
    .name = "google",
    .summary = "Google Compute Engine: on-demand and spot instances",
    .spec = &google_spec,
    .notices = "google",
    .note = "google: Compute Engine deletes a node at its deadline; the time is read back after each launch",
    .ends = ENDS_SERVER,
    .guest_end = GUEST_NOTHING, /* a poweroff stops the instance: its disk is still billed */
    .node_shape = NODE_VM,
    .user_data_max = 256 * 1024,
    .poll_ms = 5000,
    .replay_max_s = 50 * 60, /* a requestId is kept for at least an hour */
    .principal = true,
    .unique_claim = true,
    .user_data = true,
    .key_rotation = true,
    .billed = true,
    .boot_timeout_ms = 10 * 60 * 1000, /* A3 and larger take several minutes */
    .settle_ms = 30 * 1000,
    .image_refusal = "images cannot be baked at google yet: give image.id of an image that you made",
    .policy = google_policy_json,
    .doctor = google_doctor,
    .open = google_open,
    .close = google_close,
    .offers = google_offers,
    .prepare = google_prepare,
    .create = google_create,
    .list = google_list,
    .destroy = google_destroy,
    .tag = google_tag_late,
    .console = google_console,
};

// SPDX-License-Identifier: Apache-2.0
/* Application Default Credentials in the order of Google's libraries: the file of GOOGLE_APPLICATION_CREDENTIALS, the
 * one that 'gcloud auth application-default login' writes, the metadata server. A file is read again for each token,
 * so that no long-lived secret stays in memory. Tokens are registered with the trace's redactor. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/fs.h"
#include "base/log.h"
#include "providers/common/secret_file.h"

#define REFRESH_AHEAD_S 300
#define FILE_MAX ((size_t)1 << 20)

void google_cred_clear(struct google_cred *c) {
    secret_clear(&c->token);
    free(c->source);
    free(c->email);
    free(c->project);
    *c = (struct google_cred){0};
}

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

bool google_url_trusted(const char *url) { return http_url_check("", url, NULL) == 0; }

char *google_email_in(const char *url) {
    const char *at = strstr(url, "/serviceAccounts/");
    const char *end = at != NULL ? strchr(at + 17, ':') : NULL;
    return end != NULL && end > at + 17 ? xstrndup(at + 17, (size_t)(end - at - 17)) : NULL;
}

/* --- files --- */

static int token_of_file(struct google *g, const json_t *file, int depth, struct google_cred *ret,
                         struct gp_error *err);

/* Takes another account's identity by the credentials within the file. */
static int token_of_impersonation(struct google *g, const json_t *file, int depth, struct google_cred *ret,
                                  struct gp_error *err) {
    GP_AUTO_GOOGLE_CRED struct google_cred source = {0};
    const json_t *inner = json_at(file, "source_credentials");
    const char *url = json_str(file, "service_account_impersonation_url", "");
    if (!json_is_object(inner))
        return gp_fail(err, GP_EAUTH, "google credentials: the file has no source_credentials: create it again");
    int r = token_of_file(g, inner, depth + 1, &source, err);
    if (r == 0) r = google_token_for(g, url, json_at(file, "delegates"), &source.token, ret, err);
    if (r != 0) return r;
    ret->email = google_email_in(url);
    return 0;
}

static int token_of_file(struct google *g, const json_t *file, int depth, struct google_cred *ret,
                         struct gp_error *err) {
    const char *type = json_str(file, "type", "");
    if (depth > 2)
        return gp_fail(err, GP_EAUTH,
                       "google credentials: source_credentials are nested too deeply: create the file "
                       "again");
    if (strcmp(type, "service_account") == 0) return google_token_of_key(g, file, ret, err);
    if (strcmp(type, "authorized_user") == 0) return google_token_of_user(g, file, ret, err);
    if (strcmp(type, "external_account") == 0) return google_token_of_exchange(g, file, ret, err);
    if (strcmp(type, "impersonated_service_account") == 0) return token_of_impersonation(g, file, depth, ret, err);
    return gp_fail(err, GP_EAUTH,
                   "google credentials: the type '%.60s' is not one of service_account, authorized_user, "
                   "external_account, impersonated_service_account: give another file",
                   type);
}

static int parse_file(const char *text, size_t n, json_t **ret, struct gp_error *err) {
    struct gp_error why = {0};
    if (json_parse(text, n, "the file", ret, &why) == 0) return 0;
    return gp_fail(err, GP_EAUTH, "%.200s: create it again", why.msg);
}

static int token_of_path(struct google *g, const char *path, struct google_cred *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *file = NULL;
    int r = secret_file_read(path, FILE_MAX, &text, err);
    if (r == 0) r = parse_file(text.s, text.len, &file, err);
    if (r == 0) r = token_of_file(g, file, 0, ret, err);
    explicit_bzero(text.s, text.len);
    if (r != 0) {
        if (err != NULL && (err->code == GP_ENOTFOUND || err->code == GP_EPROTO || err->code == GP_EUSAGE))
            err->code = GP_EAUTH;
        return gp_wrap(err, "google credentials of '%.200s'", path);
    }
    const char *project = json_str(file, "project_id", json_str(file, "quota_project_id", ""));
    ret->project = project[0] != '\0' ? xstrdup(project) : NULL;
    ret->source = xasprintf("the file '%s'", path);
    return 0;
}

/* The file of 'gcloud auth application-default login'. */
static char *well_known_file(void) {
    GP_AUTO_FREE char *home = fs_expand_home("~/.config/gcloud");
    const char *folder = env("CLOUDSDK_CONFIG");
    return fs_join(folder != NULL ? folder : home, "application_default_credentials.json");
}

/* --- the chain --- */

static int run_chain(struct google *g, struct google_cred *ret, struct gp_error *err) {
    const char *named = env("GOOGLE_APPLICATION_CREDENTIALS");
    if (named != NULL) return token_of_path(g, named, ret, err);
    GP_AUTO_FREE char *file = well_known_file();
    if (fs_exists(file)) return token_of_path(g, file, ret, err);
    int r = google_token_of_metadata(g, ret, err);
    if (r != 0 || ret->source != NULL) return r;
    r = gp_fail(err, GP_EAUTH,
                "google credentials: none found in GOOGLE_APPLICATION_CREDENTIALS, '%.200s' or a metadata server: run "
                "'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS",
                file);
    if (err != NULL) {
        err->scope = GP_SCOPE_PROVIDER;
        str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    }
    return r;
}

int google_creds_ensure(void *ctx, bool force, struct gp_error *err) {
    struct google *g = ctx;
    int64_t now = google_now_s(g);
    bool lasting = g->cred.token.len > 0 && g->cred.expires_s - now > REFRESH_AHEAD_S;
    if (lasting && !force) return 0;
    GP_AUTO_GOOGLE_CRED struct google_cred fresh = {0};
    struct gp_error e = {0};
    int r = run_chain(g, &fresh, &e);
    if (r != 0) {
        bool usable = g->cred.token.len > 0 && g->cred.expires_s > now && !force;
        if (usable) return 0; /* still valid for minutes: the next call tries again */
        if (e.scope == GP_SCOPE_NONE) e.scope = GP_SCOPE_PROVIDER;
        if (err != NULL) *err = e;
        return r;
    }
    log_trace(LOG_HTTP, "google credentials from %s", fresh.source);
    google_cred_clear(&g->cred);
    g->cred = fresh;
    fresh = (struct google_cred){0};
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Tokens for Azure Resource Manager, in the order of azure-identity's DefaultAzureCredential: environment (client
 * secret, certificate), workload identity (federated token file), managed identity, Azure CLI. The first source that
 * is configured decides; its refusal is an error, not a reason to try the next one. One thread at a time. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"
#include "base/hash.h"
#include "base/log.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/dmi.h"
#include "providers/common/secret_file.h"

#define REFRESH_AHEAD_S 300
#define TOKEN_FILE_MAX ((size_t)64 << 10)
#define TOKEN_MAX ((size_t)64 << 10)
#define LIFE_MAX_S ((int64_t)30 * 86400) /* of a token; the longest are those of managed identities: a day */
#define ASSERTION "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#define AZURE_ASSET_TAG "7783-7084-3265-9085-8269-3286-77"

void azure_cred_clear(struct azure_cred *c) {
    secret_clear(&c->token);
    free(c->source);
    free(c->subscription);
    *c = (struct azure_cred){0};
}

const char *azure_env(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

/* A number of seconds, or a number as text: the services differ. 0: none, or none that is possible. */
static int64_t seconds(const json_t *j, const char *path, int64_t max) {
    int64_t n = json_int(j, path, 0);
    const char *text = json_str(j, path, "");
    if (text[0] != '\0' && !str_to_i64(text, 0, max, &n)) n = 0;
    return n >= 0 && n <= max ? n : 0;
}

static bool header_safe(const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~') return false;
    return n > 0 && n <= TOKEN_MAX;
}

int azure_cred_from_json(struct azure *a, const json_t *j, const char *what, struct azure_cred *ret,
                         struct gp_error *err) {
    const char *token = json_str(j, "access_token", json_str(j, "accessToken", ""));
    int64_t now = cloud_now_s(&a->base);
    int64_t at = seconds(j, "expires_on", now + LIFE_MAX_S), in_s = seconds(j, "expires_in", LIFE_MAX_S);
    if (!header_safe(token)) return gp_fail(err, GP_EPROTO, "azure: the reply of %s has no token: try again", what);
    secret_set(&ret->token, token, strlen(token));
    log_redact(&ret->token);
    ret->expires_s = at > 0 ? at : now + (in_s > 0 ? in_s : 3600);
    return 0;
}

/* --- the token service --- */

static bool form_tenant(const char *s) { return form_word(s); }

static int token_request(struct azure *a, const char *tenant, const char *client, const char *secret,
                         const char *assertion, struct azure_cred *ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_FREE char *url = xasprintf("%s/%s/oauth2/v2.0/token", a->authority, tenant);
    GP_AUTO_FREE char *scope = xasprintf("%s/.default", a->audience);
    rest_form(&body, "grant_type", "client_credentials");
    rest_form(&body, "client_id", client);
    rest_form(&body, "scope", scope);
    log_redact_text(secret);
    log_redact_text(assertion);
    if (secret != NULL) rest_form(&body, "client_secret", secret);
    if (assertion != NULL) rest_form(&body, "client_assertion_type", ASSERTION);
    if (assertion != NULL) rest_form(&body, "client_assertion", assertion);
    struct rest_call call = {.what = "azure token",
                             .method = "POST",
                             .url = url,
                             .body = body.s,
                             .type = "application/x-www-form-urlencoded",
                             .flags = REST_PUBLIC};
    int r = rest_call(&a->rest, &call, &reply, err);
    explicit_bzero(body.s, body.len);
    return r != 0 ? r : azure_cred_from_json(a, reply.json, "the token service", ret, err);
}

static int incomplete(const char *given, const char *lacks, struct gp_error *err) {
    return gp_fail(err, GP_EAUTH, "azure credentials: %s is set, but %s is not: set it, or unset %s", given, lacks,
                   given);
}

static int principal(const char *given, const char **ret_tenant, const char **ret_client, struct gp_error *err) {
    *ret_tenant = azure_env("AZURE_TENANT_ID");
    *ret_client = azure_env("AZURE_CLIENT_ID");
    if (*ret_tenant == NULL) return incomplete(given, "AZURE_TENANT_ID", err);
    if (*ret_client == NULL) return incomplete(given, "AZURE_CLIENT_ID", err);
    if (!form_tenant(*ret_tenant))
        return gp_fail(err, GP_EAUTH, "azure credentials: AZURE_TENANT_ID is not a tenant's id or domain: correct it");
    return 0;
}

static int from_secret(struct azure *a, const char *secret, struct azure_cred *ret, struct gp_error *err) {
    const char *tenant = NULL, *client = NULL;
    int r = principal("AZURE_CLIENT_SECRET", &tenant, &client, err);
    if (r == 0) r = token_request(a, tenant, client, secret, NULL, ret, err);
    if (r == 0) ret->source = xstrdup("the environment (client secret)");
    return r;
}

static int from_certificate(struct azure *a, const char *file, struct azure_cred *ret, struct gp_error *err) {
    const char *tenant = NULL, *client = NULL;
    GP_AUTO_SECRET struct secret assertion = {0};
    int r = principal("AZURE_CLIENT_CERTIFICATE_PATH", &tenant, &client, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *url = xasprintf("%s/%s/oauth2/v2.0/token", a->authority, tenant);
    r = azure_assertion_sign(a, file, tenant, client, url, &assertion, err);
    if (r == 0) r = token_request(a, tenant, client, NULL, secret_reveal(&assertion), ret, err);
    if (r == 0) ret->source = xstrdup("the environment (client certificate)");
    return r;
}

static int from_token_file(struct azure *a, const char *file, struct azure_cred *ret, struct gp_error *err) {
    const char *tenant = NULL, *client = NULL;
    GP_AUTO_STR struct str text = {.max = TOKEN_FILE_MAX};
    int r = principal("AZURE_FEDERATED_TOKEN_FILE", &tenant, &client, err);
    if (r == 0) r = secret_file_read(file, TOKEN_FILE_MAX, &text, err);
    if (r != 0) return gp_wrap(err, "azure credentials: AZURE_FEDERATED_TOKEN_FILE");
    r = token_request(a, tenant, client, NULL, str_trim(text.s), ret, err);
    explicit_bzero(text.s, text.len);
    if (r == 0) ret->source = xstrdup("workload identity (AZURE_FEDERATED_TOKEN_FILE)");
    return r;
}

/* --- managed identity --- */

static bool is_azure_machine(void) {
    static const struct dmi_mark marks[] = {{"chassis_asset_tag", AZURE_ASSET_TAG}, {NULL, NULL}};
    return dmi_names(DMI_FOLDER, marks) == DMI_YES;
}

/* The metadata service is asked only where it exists: elsewhere 169.254.169.254 may be anybody's. */
static int from_managed_identity(struct azure *a, struct azure_cred *ret, struct gp_error *err) {
    const char *own = azure_env("AZURE_POD_IDENTITY_AUTHORITY_HOST"), *client = azure_env("AZURE_CLIENT_ID");
    if (own == NULL && !is_azure_machine()) return 0;
    GP_AUTO_STR struct str url = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *j = NULL;
    struct gp_error why = {0};
    size_t n = own != NULL ? strlen(own) : 0;
    while (n > 0 && own[n - 1] == '/') n--;
    GP_AUTO_FREE char *base = own != NULL ? xstrndup(own, n) : xstrdup("http://169.254.169.254");
    str_addf(&url, "%s/metadata/identity/oauth2/token", base);
    rest_query(&url, "api-version", "2018-02-01");
    rest_query(&url, "resource", a->audience);
    if (client != NULL) rest_query(&url, "client_id", client);
    http_fields_add(&headers, "Metadata", "true");
    struct http_req req = {.what = "azure managed identity",
                           .method = "GET",
                           .url = url.s,
                           .headers = &headers,
                           .repeatable = true,
                           .no_proxy = true,
                           .metadata = true,
                           .tries = 3,
                           .timeout_ms = 10000,
                           .connect_ms = 1000,
                           .max_body = TOKEN_FILE_MAX};
    int r = http_call(a->http, &req, &resp, &why);
    if (r == -GP_EENDPOINT || r == -GP_ELOST) return 0;                 /* there is no such service */
    if (r == 0 && (resp.status == 400 || resp.status == 404)) return 0; /* this machine has no identity */
    if (r == 0 && resp.status != 200) r = gp_fail(&why, GP_EAUTH, "azure managed identity: HTTP %d", resp.status);
    if (r == 0) r = json_parse(resp.body.s, resp.body.len, "the metadata service's token", &j, &why);
    if (r == 0) r = azure_cred_from_json(a, j, "the metadata service", ret, &why);
    if (r == 0) ret->source = xstrdup("managed identity");
    else if (err != NULL) *err = why;
    return r;
}

/* --- the chain --- */

static int run_chain(struct azure *a, struct azure_cred *ret, struct gp_error *err) {
    const char *secret = azure_env("AZURE_CLIENT_SECRET"), *file = azure_env("AZURE_CLIENT_CERTIFICATE_PATH");
    const char *federated = azure_env("AZURE_FEDERATED_TOKEN_FILE");
    if (secret != NULL) return from_secret(a, secret, ret, err);
    if (file != NULL) return from_certificate(a, file, ret, err);
    if (federated != NULL) return from_token_file(a, federated, ret, err);
    int r = from_managed_identity(a, ret, err);
    if (r == 0 && ret->token.len == 0) r = azure_creds_cli(a, ret, err);
    if (r != 0 || ret->token.len > 0) return r;
    r = gp_fail(err, GP_EAUTH,
                "azure credentials: none found in the environment, workload identity, managed identity or the Azure "
                "CLI: run 'az login', or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET");
    if (err != NULL) {
        err->scope = GP_SCOPE_PROVIDER;
        str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    }
    return r;
}

int azure_creds_ensure(void *ctx, bool force, struct gp_error *err) {
    struct azure *a = ctx;
    int64_t now = cloud_now_s(&a->base);
    bool lasting = a->cred.token.len > 0 && a->cred.expires_s - now > REFRESH_AHEAD_S;
    if (lasting && !force) return 0;
    GP_AUTO_AZURE_CRED struct azure_cred fresh = {0};
    struct gp_error e = {0};
    int r = run_chain(a, &fresh, &e);
    if (r != 0) {
        bool usable = a->cred.token.len > 0 && a->cred.expires_s > now && !force;
        if (usable) return 0; /* still valid for minutes: the next call tries again */
        if (e.scope == GP_SCOPE_NONE) e.scope = GP_SCOPE_PROVIDER;
        if (err != NULL) *err = e;
        return r;
    }
    log_trace(LOG_HTTP, "azure credentials from %s", fresh.source);
    azure_cred_clear(&a->cred);
    a->cred = fresh;
    fresh = (struct azure_cred){0};
    return 0;
}

json_t *azure_token_claims(const struct secret *token) {
    const char *text = secret_reveal(token), *begin = strchr(text, '.');
    const char *end = begin != NULL ? strchr(begin + 1, '.') : NULL;
    GP_AUTO_STR struct str raw = {0};
    json_t *claims = NULL;
    if (end == NULL) return NULL;
    size_t n = (size_t)(end - begin - 1), pad = (4 - n % 4) % 4;
    GP_AUTO_FREE char *coded = xasprintf("%.*s%.*s", (int)n, begin + 1, (int)pad, "===");
    for (char *p = coded; *p != '\0'; p++) *p = *p == '-' ? '+' : *p == '_' ? '/' : *p;
    if (!base64_bytes(coded, strlen(coded), &raw)) return NULL;
    if (json_parse(raw.s, raw.len, "the token", &claims, NULL) != 0) return NULL;
    return claims;
}

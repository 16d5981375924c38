// SPDX-License-Identifier: Apache-2.0
/* Tokens from Google's services: by a service account's key (a signed JWT), a refresh token, an exchange of another
 * provider's token, another account's identity, the metadata server. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/fs.h"
#include "base/log.h"
#include "providers/common/dmi.h"
#include "providers/common/jwt.h"
#include "providers/common/secret_file.h"

#define TOKEN_URL "https://oauth2.googleapis.com/token"
#define JWT_AUDIENCE TOKEN_URL /* whatever token_uri is, as Google's own library does */
#define FORM "application/x-www-form-urlencoded"
#define TOKEN_MAX 16384
#define LIFE_S 3600
#define LIFE_MAX_S 86400 /* of a token, whatever a service says */
#define METADATA "computeMetadata/v1/"

static int lacks(struct gp_error *err, const char *what) {
    return gp_fail(err, GP_EAUTH, "google credentials: the file has no '%s': create it again", what);
}

static int check_url(const char *url, const char *key, struct gp_error *err) {
    GP_AUTO_FREE char *what = xasprintf("google credentials: '%s' of the file", key);
    if (http_url_check(what, url, err) == 0) return 0;
    if (err != NULL) err->code = GP_EAUTH;
    return -GP_EAUTH;
}

/* A token becomes a header and is a secret from here on. */
static bool set_token(const char *token, int64_t expires_s, struct google_cred *ret) {
    size_t n = strlen(token);
    for (size_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] > '~') return false;
    if (n == 0 || n > TOKEN_MAX) return false;
    secret_set(&ret->token, token, n);
    log_redact(&ret->token);
    ret->expires_s = expires_s;
    return true;
}

int google_cred_from_json(const struct google *g, const json_t *json, const char *what, struct google_cred *ret,
                          struct gp_error *err) {
    int64_t seconds = json_int(json, "expires_in", 0);
    if (seconds > 0 && seconds <= LIFE_MAX_S &&
        set_token(json_str(json, "access_token", ""), google_now_s(g) + seconds, ret))
        return 0;
    return gp_fail(err, GP_EAUTH, "%s: the reply has no token of use: check the credentials file", what);
}

int google_cred_from_impersonation(const struct google *g, const json_t *json, const char *what,
                                   struct google_cred *ret, struct gp_error *err) {
    int64_t until = 0, most = google_now_s(g) + LIFE_MAX_S;
    if (time_parse_utc(json_str(json, "expireTime", ""), &until) &&
        set_token(json_str(json, "accessToken", ""), GP_MIN(until, most), ret))
        return 0;
    return gp_fail(err, GP_EAUTH, "%s: the reply has no token and its time: check the credentials file", what);
}

/* A form is a secret: it is wiped. */
static int post_form(struct google *g, const char *what, const char *url, struct str *form, struct rest_reply *reply,
                     struct gp_error *err) {
    struct rest_call call = {
        .what = what, .method = "POST", .url = url, .body = form->s, .type = FORM, .flags = REST_PUBLIC};
    int r = rest_call(&g->rest, &call, reply, err);
    explicit_bzero(form->s, form->len);
    return r;
}

/* --- a service account's key --- */

static int sign(const struct google *g, const json_t *file, struct secret *ret, struct gp_error *err) {
    GP_AUTO_SECRET struct secret key = {0};
    const char *pem = json_str(file, "private_key", ""), *email = json_str(file, "client_email", "");
    int64_t now = google_now_s(g);
    if (pem[0] == '\0') return lacks(err, "private_key");
    if (email[0] == '\0') return lacks(err, "client_email");
    secret_set(&key, pem, strlen(pem));
    log_redact(&key);
    GP_AUTO_JSON json_t *header = json_pack("{s:s}", "kid", json_str(file, "private_key_id", ""));
    GP_AUTO_JSON json_t *claims = json_pack("{s:s,s:s,s:s,s:I,s:I}", "iss", email, "scope", GOOGLE_SCOPE, "aud",
                                            JWT_AUDIENCE, "iat", (json_int_t)now, "exp", (json_int_t)now + LIFE_S);
    return jwt_rs256(&key, header, claims, ret, err);
}

int google_token_of_key(struct google *g, const json_t *file, struct google_cred *ret, struct gp_error *err) {
    GP_AUTO_SECRET struct secret jwt = {0};
    GP_AUTO_STR struct str form = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    const char *url = json_str(file, "token_uri", TOKEN_URL);
    int r = check_url(url, "token_uri", err);
    if (r == 0) r = sign(g, file, &jwt, err);
    if (r != 0) return r;
    log_redact(&jwt);
    rest_form(&form, "grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
    rest_form(&form, "assertion", secret_reveal(&jwt));
    r = post_form(g, "google token of the service account", url, &form, &reply, err);
    if (r == 0) r = google_cred_from_json(g, reply.json, "google token of the service account", ret, err);
    if (r == 0) ret->email = xstrdup(json_str(file, "client_email", ""));
    return r;
}

/* --- a person's login --- */

/* The file has no name of the person, but the token's own description may. */
static void ask_email(struct google *g, const char *token_url, struct google_cred *ret) {
    GP_AUTO_STR struct str form = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *origin = xstrdup(token_url);
    char *path = strchr(strstr(origin, "://") + 3, '/');
    if (path != NULL) *path = '\0';
    GP_AUTO_FREE char *url = xasprintf("%s/tokeninfo", origin);
    rest_form(&form, "access_token", secret_reveal(&ret->token));
    if (post_form(g, "google tokeninfo", url, &form, &reply, NULL) != 0) return;
    const char *email = json_str(reply.json, "email", "");
    if (email[0] != '\0') ret->email = xstrdup(email);
}

int google_token_of_user(struct google *g, const json_t *file, struct google_cred *ret, struct gp_error *err) {
    static const char *const keys[] = {"client_id", "client_secret", "refresh_token"};
    GP_AUTO_STR struct str form = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    const char *url = json_str(file, "token_uri", TOKEN_URL), *account = json_str(file, "account", "");
    int r = check_url(url, "token_uri", err);
    rest_form(&form, "grant_type", "refresh_token");
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(keys); i++) {
        const char *value = json_str(file, keys[i], "");
        if (value[0] == '\0') r = lacks(err, keys[i]);
        if (i > 0) log_redact_text(value);
        rest_form(&form, keys[i], value);
    }
    if (r == 0) r = post_form(g, "google token of the login", url, &form, &reply, err);
    if (r == 0) r = google_cred_from_json(g, reply.json, "google token of the login", ret, err);
    if (r != 0) return r;
    if (account[0] != '\0') ret->email = xstrdup(account);
    else if (g->principal_owner == NULL) ask_email(g, url, ret); /* once: by open */
    return 0;
}

/* --- an exchange of another provider's token --- */

/* A token is the whole text, or a member of JSON. */
static int take_subject(const json_t *source, const char *text, size_t n, struct secret *ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *json = NULL;
    const char *token = text;
    if (strcmp(json_str(source, "format.type", "text"), "json") == 0) {
        const char *field = json_str(source, "format.subject_token_field_name", "");
        int r = json_parse(text, n, "the subject token", &json, NULL);
        const json_t *value = r == 0 ? json_object_get(json, field) : NULL;
        if (!json_is_string(value))
            return gp_fail(err, GP_EAUTH, "google credentials: the subject token has no member '%.60s'", field);
        token = json_string_value(value);
    }
    GP_AUTO_FREE char *copy = xstrdup(token);
    const char *word = str_trim(copy);
    if (word[0] == '\0') return gp_fail(err, GP_EAUTH, "google credentials: the subject token is empty");
    secret_set(ret, word, strlen(word));
    return 0;
}

static int subject_of_url(struct google *g, const json_t *source, struct secret *ret, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    const char *url = json_str(source, "url", ""), *name = NULL;
    json_t *value = NULL;
    json_object_foreach(json_at(source, "headers"), name, value) if (json_is_string(value))
        http_fields_add(&headers, name, json_string_value(value));
    struct http_req req = {.what = "the subject token",
                           .method = "GET",
                           .url = url,
                           .headers = &headers,
                           .repeatable = true,
                           .metadata = true, /* workloads of another cloud get it from that cloud's */
                           .tries = 3,
                           .timeout_ms = 10000,
                           .max_body = 65536};
    int r = http_call(g->http, &req, &resp, err);
    if (r == -GP_EUSAGE && err != NULL) err->code = GP_EAUTH;
    if (r != 0) return gp_wrap(err, "google credentials: credential_source.url of the file");
    if (resp.status != 200)
        return gp_fail(err, GP_EAUTH, "google credentials: credential_source.url answered with HTTP %d", resp.status);
    return take_subject(source, resp.body.s, resp.body.len, ret, err);
}

static int subject_token(struct google *g, const json_t *file, struct secret *ret, struct gp_error *err) {
    const json_t *source = json_at(file, "credential_source");
    const char *path = json_str(source, "file", "");
    if (path[0] == '\0' && json_str(source, "url", "")[0] != '\0') return subject_of_url(g, source, ret, err);
    if (path[0] == '\0')
        return gp_fail(err, GP_EAUTH,
                       "google credentials: credential_source has neither 'file' nor 'url', and gpuprov supports no "
                       "other source: use one of them, or a service account key");
    GP_AUTO_STR struct str text = {0};
    int r = secret_file_read(path, 65536, &text, err);
    return r == 0 ? take_subject(source, text.s, text.len, ret, err) : r;
}

int google_token_of_exchange(struct google *g, const json_t *file, struct google_cred *ret, struct gp_error *err) {
    GP_AUTO_SECRET struct secret subject = {0};
    GP_AUTO_STR struct str form = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    const char *url = json_str(file, "token_url", ""), *audience = json_str(file, "audience", "");
    const char *for_account = json_str(file, "service_account_impersonation_url", "");
    int r = check_url(url, "token_url", err);
    if (r == 0 && audience[0] == '\0') r = lacks(err, "audience");
    if (r == 0) r = subject_token(g, file, &subject, err);
    if (r != 0) return r;
    log_redact(&subject);
    rest_form(&form, "grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
    rest_form(&form, "audience", audience);
    rest_form(&form, "scope", GOOGLE_SCOPE);
    rest_form(&form, "requested_token_type", "urn:ietf:params:oauth:token-type:access_token");
    rest_form(&form, "subject_token", secret_reveal(&subject));
    rest_form(&form, "subject_token_type",
              json_str(file, "subject_token_type", "urn:ietf:params:oauth:token-type:jwt"));
    r = post_form(g, "google token exchange", url, &form, &reply, err);
    if (r == 0) r = google_cred_from_json(g, reply.json, "google token exchange", ret, err);
    if (r != 0 || for_account[0] == '\0') return r;
    GP_AUTO_SECRET struct secret with = {0};
    secret_copy(&with, &ret->token);
    r = google_token_for(g, for_account, NULL, &with, ret, err);
    if (r == 0) ret->email = google_email_in(for_account);
    return r;
}

int google_token_for(struct google *g, const char *url, json_t *delegates, const struct secret *with,
                     struct google_cred *ret, struct gp_error *err) {
    static const char what[] = "google generateAccessToken";
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    GP_AUTO_JSON json_t *body = json_pack("{s:[s],s:s}", "scope", GOOGLE_SCOPE, "lifetime", "3600s");
    int r = check_url(url, "service_account_impersonation_url", err);
    if (r != 0) return r;
    log_redact(with);
    if (json_array_size(delegates) > 0) json_object_set(body, "delegates", delegates);
    GP_AUTO_FREE char *text = json_text_exact(body, 0);
    GP_AUTO_FREE char *bearer = xasprintf("Bearer %s", secret_reveal(with));
    http_fields_add(&headers, "Authorization", bearer);
    explicit_bzero(bearer, strlen(bearer));
    struct rest_call call = {
        .what = what, .method = "POST", .url = url, .body = text, .headers = &headers, .flags = REST_PUBLIC};
    r = rest_call(&g->rest, &call, &reply, err);
    if (r != 0) return r;
    return google_cred_from_impersonation(g, reply.json, what, ret, err);
}

/* --- the metadata server --- */

/* Its name is asked for only on a machine of Google: elsewhere the look-up could hang. */
static bool at_google(void) {
    static const struct dmi_mark marks[] = {{"product_name", "Google"}, {NULL, NULL}};
    return dmi_names(DMI_FOLDER, marks) == DMI_YES;
}

static int metadata(struct google *g, const char *host, const char *path, struct http_resp *resp,
                    struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields headers = {0};
    GP_AUTO_FREE char *url = xasprintf("http://%s/" METADATA "%s", host, path);
    http_fields_add(&headers, "Metadata-Flavor", "Google");
    struct http_req req = {.what = "google metadata server",
                           .method = "GET",
                           .url = url,
                           .headers = &headers,
                           .repeatable = true,
                           .no_proxy = true,
                           .metadata = true,
                           .tries = 3,
                           .timeout_ms = 5000,
                           .connect_ms = 2000,
                           .max_body = 65536};
    int r = http_call(g->http, &req, resp, err);
    if (r != 0) return r;
    if (resp->status == 200) return 0;
    return gp_fail(err, GP_EAUTH, "google metadata server: HTTP %d for %s: attach a service account to this machine",
                   resp->status, path);
}

static char *metadata_text(struct google *g, const char *host, const char *path) {
    GP_AUTO_RESP struct http_resp resp = {0};
    if (metadata(g, host, path, &resp, NULL) != 0) return NULL;
    return xstrdup(str_trim(resp.body.s));
}

int google_token_of_metadata(struct google *g, struct google_cred *ret, struct gp_error *err) {
    const char *named = getenv("GCE_METADATA_HOST");
    bool set = named != NULL && named[0] != '\0';
    const char *host = set ? named : "metadata.google.internal";
    if (!set && !at_google()) return 0;
    if (strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]") != strlen(host))
        return gp_fail(err, GP_EAUTH, "GCE_METADATA_HOST is not a host and port: correct it");
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *json = NULL;
    int r = metadata(g, host, "instance/service-accounts/default/token", &resp, err);
    if (r == 0 && json_parse(resp.body.s, resp.body.len, "the token", &json, NULL) != 0)
        r = gp_fail(err, GP_EAUTH, "google metadata server: its token is not JSON: check GCE_METADATA_HOST");
    if (r == 0) r = google_cred_from_json(g, json, "google metadata server", ret, err);
    if (resp.body.s != NULL) explicit_bzero(resp.body.s, resp.body.len);
    if (r != 0) return r;
    ret->source = xstrdup("the metadata server");
    if (g->principal_owner == NULL) ret->email = metadata_text(g, host, "instance/service-accounts/default/email");
    if (g->project == NULL) ret->project = metadata_text(g, host, "project/project-id");
    return 0;
}

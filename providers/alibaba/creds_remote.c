// SPDX-License-Identifier: Apache-2.0
/* Credentials from services and programs: roles by STS, the metadata of an ECS instance, a URI, an external program.
 * Each has its own short deadline. creds.c decides the order. One thread at a time. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "providers/common/program.h"
#include "providers/common/secret_file.h"

#define SMALL_MAX ((size_t)64 << 10)
#define METADATA "http://100.100.100.200"

int ali_cred_from_json(const json_t *j, const char *what, char *source, struct ali_cred *ret, struct gp_error *err) {
    const char *id = json_str(j, "AccessKeyId", ""), *key = json_str(j, "AccessKeySecret", "");
    const char *until = json_str(j, "Expiration", "");
    int64_t at = until[0] != '\0' ? ali_time(until) : 0;
    if (id[0] == '\0' || key[0] == '\0' || (until[0] != '\0' && at == 0)) {
        free(source);
        return gp_fail(err, GP_EAUTH, "alibaba credentials: %s returned no complete credentials", what);
    }
    ali_cred_set(ret, id, key, json_str(j, "SecurityToken", ""), source);
    ret->expires_s = at;
    return 0;
}

/* --- STS --- */

int ali_creds_assume(struct ali *a, const struct ali_assume *how, struct ali_cred *ret, struct gp_error *err) {
    const char *action = how->with != NULL ? "AssumeRole" : "AssumeRoleWithOIDC";
    GP_AUTO_STR struct str query = {0}, token = {.max = SMALL_MAX};
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *session =
        how->session_name != NULL ? xstrdup(how->session_name) : xasprintf("gpuprov-%lld", (long long)clock_wall_s());
    int r = 0;
    ali_param(&query, "RoleArn", how->role_arn);
    ali_param(&query, "RoleSessionName", session);
    if (how->with == NULL) {
        GP_AUTO_FREE char *path = fs_expand_home(how->oidc_file);
        ali_param(&query, "OIDCProviderArn", how->oidc_provider);
        r = secret_file_read(path, SMALL_MAX, &token, err);
        if (r != 0) return gp_wrap(err, "alibaba credentials: the OIDC token of role %.120s", how->role_arn);
        log_redact_text(str_trim(token.s));
        ali_param(&query, "OIDCToken", str_trim(token.s));
        explicit_bzero(token.s, token.len);
    }
    /* Without a signature the token of the identity provider is the proof. */
    struct ali_cred none = {0};
    r = ali_call_as(a, how->with != NULL ? how->with : &none, ALI_STS, ali_home(a), action, &query,
                    how->with == NULL ? REST_PUBLIC : 0, &reply, err);
    explicit_bzero(query.s, query.len);
    if (r != 0) return gp_wrap(err, "alibaba credentials: role %.120s", how->role_arn);
    GP_AUTO_FREE char *source = xasprintf("the role %s", how->role_arn);
    return ali_cred_from_json(json_at(reply.json, "Credentials"), action, GP_STEAL(source), ret, err);
}

/* --- plain HTTP sources --- */

static int get(struct ali *a, const char *what, const char *method, const char *url, const char *name,
               const char *value, struct http_resp *resp, struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields headers = {0};
    if (name != NULL) http_fields_add(&headers, name, value);
    struct http_req req = {.what = what,
                           .method = method,
                           .url = url,
                           .body = strcmp(method, "PUT") == 0 ? "" : NULL,
                           .headers = &headers,
                           .repeatable = true,
                           .no_proxy = true,
                           .metadata = name != NULL, /* the header of the instance's metadata */
                           .tries = 1,
                           .timeout_ms = 3000,
                           .connect_ms = 1000,
                           .max_body = SMALL_MAX};
    http_resp_clear(resp);
    int r = http_call(a->http, &req, resp, err);
    if (r == 0 && resp->status != 200) r = gp_fail(err, GP_ENOTFOUND, "%s: HTTP %d", what, resp->status);
    return r;
}

static bool token_valid(const char *s) {
    for (const char *p = s; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~') return false;
    return s[0] != '\0';
}

static bool role_valid(const char *s) {
    size_t n = strlen(s);
    return n >= 1 && n <= 64 && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.@_-") == n;
}

static int metadata_role(struct ali *a, const char *base, const char *token, const char *role, struct ali_cred *ret,
                         struct gp_error *err) {
    static const char header[] = "X-aliyun-ecs-metadata-token";
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *j = NULL;
    GP_AUTO_FREE char *list = xasprintf("%s/latest/meta-data/ram/security-credentials/", base);
    int r = 0;
    if (role == NULL) r = get(a, "instance metadata", "GET", list, header, token, &resp, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *name = role != NULL ? xstrdup(role)
                                           : xstrndup(resp.body.s != NULL ? resp.body.s : "",
                                                      strcspn(resp.body.s != NULL ? resp.body.s : "", "\r\n"));
    if (!role_valid(name)) /* it becomes part of a URL */
        return gp_fail(err, GP_EPROTO,
                       "instance metadata: the list of roles does not begin with a role: set "
                       "ALIBABA_CLOUD_ECS_METADATA_DISABLED=true, or give credentials another way");
    GP_AUTO_FREE char *url = xasprintf("%s%s", list, name);
    r = get(a, "instance metadata", "GET", url, header, token, &resp, err);
    if (r == 0) r = json_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "instance metadata", &j, err);
    if (r == 0)
        r = ali_cred_from_json(j, "instance metadata", xasprintf("instance metadata (role %s)", name), ret, err);
    return r;
}

int ali_creds_metadata(struct ali *a, const char *role, struct ali_cred *ret, struct gp_error *err) {
    const char *own = ali_env("GPUPROV_ALIBABA_METADATA");
    GP_AUTO_FREE char *url = xasprintf("%s/latest/api/token", own != NULL ? own : METADATA);
    GP_AUTO_RESP struct http_resp resp = {0};
    struct gp_error e = {0};
    int r = get(a, "instance metadata", "PUT", url, "X-aliyun-ecs-metadata-token-ttl-seconds", "21600", &resp, &e);
    if (r == 0) {
        GP_AUTO_FREE char *token = xstrdup(resp.body.s != NULL ? resp.body.s : "");
        r = token_valid(token) ? metadata_role(a, own != NULL ? own : METADATA, token, role, ret, &e)
                               : gp_fail(&e, GP_EPROTO,
                                         "instance metadata: its token is not a header value: set "
                                         "ALIBABA_CLOUD_ECS_METADATA_DISABLED=true");
        explicit_bzero(token, strlen(token));
    }
    if (r == -GP_EENDPOINT || r == -GP_ELOST || r == -GP_ENOTFOUND) return 0; /* not on ECS, or no role */
    if (r != 0 && err != NULL) *err = e;
    return r;
}

int ali_creds_uri(struct ali *a, const char *uri, struct ali_cred *ret, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *j = NULL;
    int r = http_url_check("alibaba credentials: the credentials URI", uri, err);
    if (r == 0) r = get(a, "the credentials URI", "GET", uri, NULL, NULL, &resp, err);
    if (r == 0) r = json_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "the credentials URI", &j, err);
    if (r == 0) r = ali_cred_from_json(j, "the credentials URI", xstrdup("the credentials URI"), ret, err);
    if (r == 0 || r == -GP_ECANCELLED) return r;
    if (err != NULL) err->code = GP_EAUTH;
    return -GP_EAUTH;
}

/* --- an external program --- */

/* Its output: {"mode": "AK" | "StsToken", "access_key_id", "access_key_secret", "sts_token"}. Blanks separate its
 * words, as in the official CLI. */
int ali_creds_process(struct ali *a, const char *command, struct ali_cred *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv words = {0};
    GP_AUTO_STR struct str out = {0};
    GP_AUTO_JSON json_t *j = NULL;
    strv_split(&words, command, " \t");
    int r = words.n > 0 ? program_run(words.v, PROGRAM_MS, a->cancel, &out, err)
                        : gp_fail(err, GP_EAUTH, "process_command is empty");
    if (r == 0) r = json_parse(out.s != NULL ? out.s : "", out.len, "its output", &j, err);
    if (out.s != NULL) explicit_bzero(out.s, out.len);
    const char *id = json_str(j, "access_key_id", ""), *key = json_str(j, "access_key_secret", "");
    if (r == 0 && (id[0] == '\0' || key[0] == '\0'))
        r = gp_fail(err, GP_EAUTH, "its output has no access_key_id and access_key_secret");
    if (r == 0) {
        ali_cred_set(ret, id, key, json_str(j, "sts_token", ""), xstrdup("the profile's external program"));
        return 0;
    }
    gp_wrap(err, "alibaba credentials: process_command");
    if (r == -GP_ECANCELLED) return r;
    if (err != NULL) err->code = GP_EAUTH;
    return -GP_EAUTH;
}

// SPDX-License-Identifier: Apache-2.0
/* Credentials from other programs and services: STS (assume role, web identity), credential_process,
 * the container's agent, instance metadata v2. Each has its own short deadline. creds.c decides
 * the order. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/fs.h"
#include "base/log.h"
#include "providers/common/program.h"
#include "providers/common/secret_file.h"

#include <strings.h>

#define STS_VERSION "2011-06-15"
#define SMALL_MAX ((size_t)64 << 10)

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

/* --- STS --- */

static int sts_result(const struct aws_reply *reply, const char *action, struct aws_cred *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = xasprintf("%sResult/Credentials", action);
    const struct xml_node *c = xml_find(reply->xml, path);
    const char *id = xml_str(c, "AccessKeyId", "");
    const char *key = xml_str(c, "SecretAccessKey", "");
    const char *token = xml_str(c, "SessionToken", "");
    int64_t expires = 0;
    if (c == NULL || id[0] == '\0' || key[0] == '\0' || !time_parse_utc(xml_str(c, "Expiration", ""), &expires))
        return gp_fail(err, GP_EPROTO, "sts %s: the reply has no complete credentials", action);
    ret->id = xstrdup(id);
    secret_set(&ret->key, key, strlen(key));
    secret_set(&ret->token, token, strlen(token));
    log_redact(&ret->key);
    log_redact(&ret->token);
    ret->expires_s = expires;
    return 0;
}

int aws_sts_assume(struct aws *a, const struct aws_assume *how, struct aws_cred *ret, struct gp_error *err) {
    const char *action = how->with != NULL ? "AssumeRole" : "AssumeRoleWithWebIdentity";
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_STR struct str token = {0};
    GP_AUTO_FREE char *session =
        how->session_name != NULL ? xstrdup(how->session_name) : xasprintf("gpuprov-%lld", (long long)clock_wall_s());
    str_addf(&body, "Action=%s&Version=" STS_VERSION, action);
    aws_param(&body, "RoleArn", how->role_arn);
    aws_param(&body, "RoleSessionName", session);
    if (how->external_id != NULL) aws_param(&body, "ExternalId", how->external_id);
    if (how->duration_s > 0) aws_param_int(&body, "DurationSeconds", how->duration_s);
    if (how->with == NULL) {
        GP_AUTO_FREE char *path = fs_expand_home(how->token_file);
        str_init(&token, SMALL_MAX);
        int r = secret_file_read(path, SMALL_MAX, &token, err);
        if (r != 0) return r;
        log_redact_text(str_trim(token.s));
        aws_param(&body, "WebIdentityToken", str_trim(token.s));
        explicit_bzero(token.s, token.len);
    }
    struct aws_call call = {.service = "sts",
                            .region = aws_home(a),
                            .action = action,
                            .body = body.s,
                            .cred = how->with,
                            .flags = how->with == NULL ? AWS_UNSIGNED : 0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    int r = aws_call(a, &call, &reply, err);
    explicit_bzero(body.s, body.len);
    return r != 0 ? r : sts_result(&reply, action, ret, err);
}

/* --- credential_process --- */

bool aws_split_command(const char *command, struct strv *ret) {
    GP_AUTO_STR struct str word = {0};
    bool in_word = false;
    char quote = '\0';
    for (const char *p = command; *p != '\0'; p++) {
        if (quote == '\0' && (*p == ' ' || *p == '\t' || *p == '\n')) {
            if (in_word) strv_take(ret, str_steal(&word));
            in_word = false;
            continue;
        }
        in_word = true;
        if (quote == '\0' && (*p == '\'' || *p == '"')) {
            quote = *p;
        } else if (*p == quote) {
            quote = '\0';
        } else if (*p == '\\' && p[1] != '\0' && (quote == '\0' || (quote == '"' && (p[1] == '"' || p[1] == '\\')))) {
            str_addc(&word, *++p);
        } else {
            str_addc(&word, *p);
        }
    }
    if (in_word) strv_take(ret, str_steal(&word));
    return quote == '\0';
}

int aws_creds_process(struct aws *a, const char *command, const char *profile, struct aws_cred *ret,
                      struct gp_error *err) {
    GP_AUTO_STRV struct strv words = {0};
    GP_AUTO_STR struct str out = {0};
    GP_AUTO_JSON json_t *j = NULL;
    if (!aws_split_command(command, &words) || words.n == 0)
        return gp_fail(err, GP_EAUTH,
                       "aws profile '%s': credential_process has an unclosed quote or "
                       "is empty",
                       profile);
    int r = program_run(words.v, PROGRAM_MS, a->cancel, &out, err);
    if (r == 0) r = json_parse(out.s != NULL ? out.s : "", out.len, "its output", &j, err);
    if (out.s != NULL) explicit_bzero(out.s, out.len);
    if (r == 0 && json_int(j, "Version", 0) != 1) r = gp_fail(err, GP_EAUTH, "its output does not have Version 1");
    if (r == 0) r = aws_cred_from_json(j, "SessionToken", "it", ret, err);
    if (r != 0) {
        gp_wrap(err, "aws profile '%s': credential_process", profile);
        if (err != NULL && err->code != GP_ECANCELLED) err->code = GP_EAUTH;
        return err != NULL ? -(int)err->code : -GP_EAUTH;
    }
    ret->source = xasprintf("credential_process of profile '%s'", profile);
    return 0;
}

/* --- the container's agent --- */

/* Plain http only to this machine and the link-local addresses that ECS and EKS use. */
static bool is_agent(const char *url) {
    static const char *const hosts[] = {"169.254.170.2", "169.254.170.23", "fd00:ec2::23"};
    struct url_place place;
    if (!form_url(url, &place)) return false;
    for (size_t i = 0; i < GP_ARRAY_LEN(hosts); i++)
        if (strcmp(place.host, hosts[i]) == 0) return true;
    return false;
}

int aws_creds_container(struct aws *a, struct aws_cred *ret, struct gp_error *err) {
    const char *relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (relative == NULL && full == NULL) return 0;
    GP_AUTO_FREE char *url = relative != NULL ? xasprintf("http://169.254.170.2%s", relative) : xstrdup(full);
    GP_AUTO_STR struct str token = {0};
    GP_AUTO_FIELDS struct http_fields headers = {0};
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *j = NULL;
    bool near = is_agent(url);
    if (!near && http_url_check("aws credentials: AWS_CONTAINER_CREDENTIALS_FULL_URI", url, err) != 0) {
        if (err != NULL) err->code = GP_EAUTH;
        return -GP_EAUTH;
    }
    const char *file = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    if (file != NULL) {
        int r = secret_file_read(file, SMALL_MAX, &token, err);
        if (r != 0) return gp_wrap(err, "aws credentials: AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    } else if (env("AWS_CONTAINER_AUTHORIZATION_TOKEN") != NULL) {
        str_add(&token, env("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    }
    if (token.len > 0) http_fields_add(&headers, "Authorization", str_trim(token.s));
    if (token.s != NULL) explicit_bzero(token.s, token.len);
    struct http_req req = {.what = "aws container credentials",
                           .method = "GET",
                           .url = url,
                           .headers = &headers,
                           .repeatable = true,
                           .no_proxy = true,
                           .metadata = near,
                           .tries = 3,
                           .timeout_ms = 5000,
                           .connect_ms = 2000,
                           .max_body = SMALL_MAX};
    int r = http_call(a->http, &req, &resp, err);
    if (r != 0) return r;
    if (resp.status != 200) return gp_fail(err, GP_EAUTH, "aws container credentials: HTTP %d", resp.status);
    r = json_parse(resp.body.s, resp.body.len, "the container's credentials", &j, err);
    if (r == 0) r = aws_cred_from_json(j, "Token", "the container's agent", ret, err);
    if (r == 0) ret->source = xstrdup("the container's agent");
    return r;
}

/* --- instance metadata, version 2 only --- */

static char *imds_base(void) {
    const char *own = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    if (own == NULL)
        own = mode != NULL && strcasecmp(mode, "ipv6") == 0 ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
    char *base = xstrdup(own);
    size_t n = strlen(base);
    while (n > 0 && base[n - 1] == '/') base[--n] = '\0';
    return base;
}

static int imds_get(struct aws *a, const char *path, const char *token, struct http_resp *resp, struct gp_error *err) {
    GP_AUTO_FREE char *base = imds_base();
    GP_AUTO_FREE char *url = xasprintf("%s/latest/%s", base, path);
    GP_AUTO_FIELDS struct http_fields headers = {0};
    if (token == NULL) http_fields_add(&headers, "X-aws-ec2-metadata-token-ttl-seconds", "21600");
    else http_fields_add(&headers, "X-aws-ec2-metadata-token", token);
    struct http_req req = {.what = "instance metadata",
                           .method = token == NULL ? "PUT" : "GET",
                           .url = url,
                           .body = token == NULL ? "" : NULL,
                           .headers = &headers,
                           .repeatable = true,
                           .no_proxy = true,
                           .metadata = true,
                           .tries = 1,
                           .timeout_ms = 2000,
                           .connect_ms = 1000,
                           .max_body = SMALL_MAX};
    http_resp_clear(resp);
    int r = http_call(a->http, &req, resp, err);
    if (r == 0 && resp->status != 200)
        return gp_fail(err, GP_ENOTFOUND, "instance metadata: HTTP %d for '%s'", resp->status, path);
    return r;
}

static bool role_name_valid(const char *s) {
    size_t n = strlen(s);
    return n >= 1 && n <= 64 && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+=,.@_-") == n;
}

/* Reads the region where no setting names one. None there: the caller's default. A malformed one is an
 * error, because the calls of this run would otherwise go to another region than the machine's. */
static int imds_region(struct aws *a, const char *token, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    if (imds_get(a, "meta-data/placement/region", token, &resp, NULL) != 0 || resp.body.len == 0) return 0;
    bool whole = strlen(resp.body.s) == resp.body.len;
    const char *region = str_trim(resp.body.s);
    if (!whole || !aws_region_valid(region))
        return gp_fail(err, GP_EPROTO, "instance metadata: placement/region is not a region: set AWS_REGION");
    a->cfg.region = xstrdup(region);
    return 0;
}

static int imds_role(struct aws *a, const char *token, struct aws_cred *ret, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    GP_AUTO_JSON json_t *j = NULL;
    int r = imds_get(a, "meta-data/iam/security-credentials/", token, &resp, err);
    if (r != 0 || resp.body.len == 0) return r;
    GP_AUTO_FREE char *role = xstrndup(resp.body.s, strcspn(resp.body.s, "\r\n"));
    if (!role_name_valid(role)) /* it becomes part of a URL */
        return gp_fail(err, GP_EPROTO,
                       "instance metadata: its security-credentials list does not begin "
                       "with a role name: give credentials another way, or set "
                       "AWS_EC2_METADATA_DISABLED=true");
    GP_AUTO_FREE char *path = xasprintf("meta-data/iam/security-credentials/%s", role);
    r = imds_get(a, path, token, &resp, err);
    if (r != 0) return r;
    r = json_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "the instance's credentials", &j, err);
    if (r == 0) r = aws_cred_from_json(j, "Token", "instance metadata", ret, err);
    if (r != 0) return r;
    ret->source = xasprintf("instance metadata (role %s)", role);
    return a->cfg.region == NULL ? imds_region(a, token, err) : 0;
}

static bool token_valid(const struct str *s) {
    for (size_t i = 0; i < s->len; i++)
        if (s->s[i] <= ' ' || s->s[i] > '~') return false;
    return true;
}

int aws_creds_imds(struct aws *a, struct aws_cred *ret, struct gp_error *err) {
    const char *off = env("AWS_EC2_METADATA_DISABLED");
    if (off != NULL && strcasecmp(off, "true") == 0) return 0;
    GP_AUTO_RESP struct http_resp resp = {0};
    struct gp_error e = {0};
    int r = imds_get(a, "api/token", NULL, &resp, &e);
    if (r == 0 && resp.body.len == 0) return 0;
    if (r == 0 && !token_valid(&resp.body)) {
        r = gp_fail(&e, GP_EPROTO,
                    "instance metadata: its token is not a valid header value: give credentials "
                    "another way, or set AWS_EC2_METADATA_DISABLED=true");
    } else if (r == 0) {
        GP_AUTO_FREE char *token = xstrdup(resp.body.s);
        r = imds_role(a, token, ret, &e);
        explicit_bzero(token, strlen(token));
    }
    if (r == -GP_EENDPOINT || r == -GP_ELOST || r == -GP_ENOTFOUND) return 0; /* not on EC2, or no role */
    if (r != 0 && err != NULL) *err = e;
    return r;
}

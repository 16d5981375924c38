// SPDX-License-Identifier: Apache-2.0
/* Credentials in the AWS CLI's order: environment, the profile's role, web identity, shared file,
 * credential_process, config file, container, instance metadata. Sources that need the network or a
 * program are in creds_remote.c. Secrets are registered with the trace's redactor. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "providers/common/dmi.h"

#define REFRESH_AHEAD_S 300
#define CHAIN_DEPTH 5

void aws_cred_clear(struct aws_cred *c) {
    free(c->id);
    free(c->source);
    secret_clear(&c->key);
    secret_clear(&c->token);
    *c = (struct aws_cred){0};
}

static const char *env(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

static void set_keys(struct aws_cred *c, const char *id, const char *key, const char *token) {
    free(c->id);
    c->id = xstrdup(id);
    secret_set(&c->key, key, strlen(key));
    secret_clear(&c->token);
    if (token != NULL && token[0] != '\0') secret_set(&c->token, token, strlen(token));
    log_redact(&c->key);
    log_redact(&c->token);
}

static void set_source(struct aws_cred *c, char *source) {
    free(c->source);
    c->source = source;
}

int aws_cred_from_json(const json_t *j, const char *token_key, const char *what, struct aws_cred *ret,
                       struct gp_error *err) {
    const char *id = json_str(j, "AccessKeyId", "");
    const char *key = json_str(j, "SecretAccessKey", "");
    const char *expires = json_str(j, "Expiration", "");
    if (id[0] == '\0' || key[0] == '\0')
        return gp_fail(err, GP_EAUTH, "aws credentials: %s returned no AccessKeyId and SecretAccessKey", what);
    int64_t at = 0;
    if (expires[0] != '\0' && !time_parse_utc(expires, &at))
        return gp_fail(err, GP_EAUTH, "aws credentials: %s returned an Expiration that is not a time", what);
    set_keys(ret, id, key, json_str(j, token_key, ""));
    ret->expires_s = at;
    return 0;
}

/* --- one source of the chain each; ret->id stays NULL where there are none --- */

static int from_environment(struct aws_cred *ret, struct gp_error *err) {
    const char *id = env("AWS_ACCESS_KEY_ID"), *key = env("AWS_SECRET_ACCESS_KEY");
    if (id == NULL) return 0;
    if (key == NULL)
        return gp_fail(err, GP_EAUTH,
                       "aws credentials: AWS_ACCESS_KEY_ID is set but "
                       "AWS_SECRET_ACCESS_KEY is not: set both or none");
    set_keys(ret, id, key, env("AWS_SESSION_TOKEN"));
    const char *until = env("AWS_CREDENTIAL_EXPIRATION");
    if (until != NULL && !time_parse_utc(until, &ret->expires_s)) ret->expires_s = 0;
    set_source(ret, xstrdup("the environment"));
    return 0;
}

static int from_web_identity(struct aws *a, const char *role, const char *file, const char *session,
                             struct aws_cred *ret, struct gp_error *err) {
    struct aws_assume how = {.role_arn = role, .session_name = session, .token_file = file};
    int r = aws_sts_assume(a, &how, ret, err);
    if (r != 0) return gp_wrap(err, "aws credentials: web identity '%s' for %s", file, role);
    set_source(ret, xasprintf("the web identity for %s", role));
    return 0;
}

static int from_profile(struct aws *a, const char *profile, int depth, struct aws_cred *ret, struct gp_error *err);

/* The credentials that assume a profile's role. */
static int role_base(struct aws *a, const char *profile, int depth, struct aws_cred *ret, struct gp_error *err) {
    const char *source = aws_config_get(&a->cfg, profile, "credential_source");
    const char *parent = aws_config_get(&a->cfg, profile, "source_profile");
    int r = 0;
    if (parent != NULL) {
        if (!aws_config_has(&a->cfg, parent))
            return gp_fail(err, GP_EAUTH, "aws profile '%s': its source_profile '%s' does not exist", profile, parent);
        r = from_profile(a, parent, strcmp(parent, profile) == 0 ? CHAIN_DEPTH : depth + 1, ret, err);
    } else if (strcmp(source, "Environment") == 0) {
        r = from_environment(ret, err);
    } else if (strcmp(source, "Ec2InstanceMetadata") == 0) {
        r = aws_creds_imds(a, ret, err);
    } else if (strcmp(source, "EcsContainer") == 0) {
        r = aws_creds_container(a, ret, err);
    } else {
        return gp_fail(err, GP_EAUTH,
                       "aws profile '%s': credential_source '%s' is not one of "
                       "Environment, Ec2InstanceMetadata, EcsContainer",
                       profile, source);
    }
    if (r == 0 && ret->id == NULL)
        return gp_fail(err, GP_EAUTH, "aws profile '%s': %s '%s' has no credentials", profile,
                       parent != NULL ? "source_profile" : "credential_source", parent != NULL ? parent : source);
    return r;
}

static int from_role(struct aws *a, const char *profile, const char *role, int depth, struct aws_cred *ret,
                     struct gp_error *err) {
    if (aws_config_get(&a->cfg, profile, "mfa_serial") != NULL)
        return gp_fail(err, GP_EAUTH,
                       "aws profile '%s' requires a code from an MFA device, and gpuprov "
                       "cannot prompt for it: run 'aws sts get-session-token' and export its result",
                       profile);
    GP_AUTO_CRED struct aws_cred base = {0};
    int r = role_base(a, profile, depth, &base, err);
    if (r != 0) return r;
    int64_t duration = 0;
    const char *text = aws_config_get(&a->cfg, profile, "duration_seconds");
    if (text != NULL && !str_to_i64(text, 900, 43200, &duration))
        return gp_fail(err, GP_EAUTH, "aws profile '%s': duration_seconds must be 900 to 43200", profile);
    struct aws_assume how = {.role_arn = role,
                             .with = &base,
                             .duration_s = duration,
                             .session_name = aws_config_get(&a->cfg, profile, "role_session_name"),
                             .external_id = aws_config_get(&a->cfg, profile, "external_id")};
    r = aws_sts_assume(a, &how, ret, err);
    if (r != 0) return gp_wrap(err, "aws profile '%s': role %s", profile, role);
    set_source(ret, xasprintf("profile '%s' (role %s)", profile, role));
    return 0;
}

static void from_keys(const struct ini *file, const char *section, const char *profile, struct aws_cred *ret) {
    const char *id = ini_get(file, section, "aws_access_key_id");
    const char *key = ini_get(file, section, "aws_secret_access_key");
    if (id == NULL || key == NULL) return;
    set_keys(ret, id, key, ini_get(file, section, "aws_session_token"));
    set_source(ret, xasprintf("profile '%s'", profile));
}

static int from_profile(struct aws *a, const char *profile, int depth, struct aws_cred *ret, struct gp_error *err) {
    const struct aws_config *c = &a->cfg;
    const char *role = aws_config_get(c, profile, "role_arn");
    const char *file = aws_config_get(c, profile, "web_identity_token_file");
    bool chained =
        aws_config_get(c, profile, "source_profile") != NULL || aws_config_get(c, profile, "credential_source") != NULL;
    GP_AUTO_FREE char *section =
        strcmp(profile, "default") == 0 ? xstrdup("default") : xasprintf("profile %s", profile);
    if (role != NULL && chained && depth < CHAIN_DEPTH) return from_role(a, profile, role, depth, ret, err);
    if (role != NULL && file != NULL && depth < CHAIN_DEPTH)
        return from_web_identity(a, role, file, aws_config_get(c, profile, "role_session_name"), ret, err);
    from_keys(&c->credentials, profile, profile, ret);
    if (ret->id != NULL) return 0;
    const char *process = aws_config_get(c, profile, "credential_process");
    if (process != NULL) return aws_creds_process(a, process, profile, ret, err);
    from_keys(&c->config, section, profile, ret);
    if (ret->id != NULL) return 0;
    if (aws_config_get(c, profile, "sso_session") != NULL || aws_config_get(c, profile, "sso_start_url") != NULL)
        return gp_fail(err, GP_EAUTH,
                       "aws profile '%s' signs in through SSO, which only the AWS CLI "
                       "supports: add 'credential_process = aws configure export-credentials "
                       "--profile %s' to a profile of its own",
                       profile, profile);
    if (depth >= CHAIN_DEPTH && role != NULL)
        return gp_fail(err, GP_EAUTH, "aws profile '%s': source_profile refers back to itself: correct the profile",
                       profile);
    return 0;
}

/* A setting of the service decides; without one, firmware of another vendor means that there is none. EC2's older types
 * run on Xen, some of them without Amazon's name. */
static bool may_have_imds(void) {
    static const struct dmi_mark marks[] = {
        {"sys_vendor", "Amazon"}, {"bios_version", "amazon"}, {"sys_vendor", "Xen"}, {NULL, NULL}};
    if (env("AWS_EC2_METADATA_SERVICE_ENDPOINT") != NULL || env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE") != NULL)
        return true;
    return dmi_names(DMI_FOLDER, marks) != DMI_NO;
}

static int run_chain(struct aws *a, struct aws_cred *ret, struct gp_error *err) {
    int r = from_environment(ret, err);
    if (r != 0 || ret->id != NULL) return r;
    const char *role = env("AWS_ROLE_ARN"), *file = env("AWS_WEB_IDENTITY_TOKEN_FILE");
    bool profile_role = aws_config_get(&a->cfg, a->cfg.profile, "role_arn") != NULL;
    if (role != NULL && file != NULL && !profile_role)
        return from_web_identity(a, role, file, env("AWS_ROLE_SESSION_NAME"), ret, err);
    r = from_profile(a, a->cfg.profile, 0, ret, err);
    if (r != 0 || ret->id != NULL) return r;
    r = aws_creds_container(a, ret, err);
    if (r != 0 || ret->id != NULL) return r;
    if (may_have_imds()) r = aws_creds_imds(a, ret, err);
    if (r != 0 || ret->id != NULL) return r;
    r = gp_fail(err, GP_EAUTH,
                "aws credentials: none found in the environment, web identity, profile "
                "'%s', container or instance metadata: run 'aws configure', or set AWS_PROFILE or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                a->cfg.profile);
    if (err != NULL) {
        err->scope = GP_SCOPE_PROVIDER;
        str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    }
    return r;
}

int aws_creds_ensure(struct aws *a, bool force, struct gp_error *err) {
    int64_t now = aws_now_s(a);
    bool lasting = a->cred.id != NULL && (a->cred.expires_s == 0 || a->cred.expires_s - now > REFRESH_AHEAD_S);
    if (lasting && !force) return 0;
    GP_AUTO_CRED struct aws_cred fresh = {0};
    struct gp_error e = {0};
    int r = run_chain(a, &fresh, &e);
    if (r != 0) {
        bool usable = a->cred.id != NULL && a->cred.expires_s > now && !force;
        if (usable) return 0; /* still valid for minutes: the next call tries again */
        if (err != NULL) *err = e;
        return r;
    }
    if (fresh.expires_s != 0 && fresh.expires_s <= now)
        return gp_fail(err, GP_EAUTH, "aws credentials of %s expired: get new ones", fresh.source);
    log_trace(LOG_HTTP, "aws credentials from %s", fresh.source);
    aws_cred_clear(&a->cred);
    a->cred = fresh;
    fresh = (struct aws_cred){0};
    return 0;
}

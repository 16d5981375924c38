// SPDX-License-Identifier: Apache-2.0
/* Credentials in the order of the official credentials library: environment, the identity provider's token, the CLI's
 * profile, the shared file, the role of this ECS instance, the credentials URI. Sources that need the network or a
 * program are in creds_remote.c. Secrets are registered with the trace's redactor. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/log.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/dmi.h"

#define REFRESH_AHEAD_S 300

void ali_cred_clear(struct ali_cred *c) {
    free(c->id);
    free(c->source);
    secret_clear(&c->key);
    secret_clear(&c->token);
    *c = (struct ali_cred){0};
}

const char *ali_env(const char *name) {
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

void ali_cred_set(struct ali_cred *c, const char *id, const char *key, const char *token, char *source) {
    ali_cred_clear(c);
    c->id = xstrdup(id);
    secret_set(&c->key, key, strlen(key));
    if (token != NULL && token[0] != '\0') secret_set(&c->token, token, strlen(token));
    c->source = source;
    log_redact(&c->key);
    log_redact(&c->token);
}

static int from_environment(struct ali_cred *ret, struct gp_error *err) {
    const char *id = ali_env("ALIBABA_CLOUD_ACCESS_KEY_ID"), *key = ali_env("ALIBABA_CLOUD_ACCESS_KEY_SECRET");
    if (id == NULL) return 0;
    if (key == NULL)
        return gp_fail(err, GP_EAUTH,
                       "alibaba credentials: ALIBABA_CLOUD_ACCESS_KEY_ID is set but ALIBABA_CLOUD_ACCESS_KEY_SECRET is "
                       "not: set both or none");
    ali_cred_set(ret, id, key, ali_env("ALIBABA_CLOUD_SECURITY_TOKEN"), xstrdup("the environment"));
    return 0;
}

static int from_oidc(struct ali *a, struct ali_cred *ret, struct gp_error *err) {
    struct ali_assume how = {.role_arn = ali_env("ALIBABA_CLOUD_ROLE_ARN"),
                             .oidc_provider = ali_env("ALIBABA_CLOUD_OIDC_PROVIDER_ARN"),
                             .oidc_file = ali_env("ALIBABA_CLOUD_OIDC_TOKEN_FILE"),
                             .session_name = ali_env("ALIBABA_CLOUD_ROLE_SESSION_NAME")};
    if (how.role_arn == NULL || how.oidc_provider == NULL || how.oidc_file == NULL) return 0;
    return ali_creds_assume(a, &how, ret, err);
}

static int from_uri(struct ali *a, struct ali_cred *ret, struct gp_error *err) {
    const char *uri = ali_env("ALIBABA_CLOUD_CREDENTIALS_URI");
    return uri != NULL ? ali_creds_uri(a, uri, ret, err) : 0;
}

/* A setting of the service decides; without one, firmware of another vendor means that there is none. Older instance
 * types run on Xen. */
static bool may_have_metadata(void) {
    static const struct dmi_mark marks[] = {
        {"sys_vendor", "Alibaba Cloud"}, {"product_name", "Alibaba Cloud"}, {"sys_vendor", "Xen"}, {NULL, NULL}};
    if (ali_env("GPUPROV_ALIBABA_METADATA") != NULL || ali_env("ALIBABA_CLOUD_ECS_METADATA") != NULL) return true;
    return dmi_names(DMI_FOLDER, marks) != DMI_NO;
}

static int from_metadata(struct ali *a, struct ali_cred *ret, struct gp_error *err) {
    const char *off = ali_env("ALIBABA_CLOUD_ECS_METADATA_DISABLED");
    if ((off != NULL && strcasecmp(off, "true") == 0) || !may_have_metadata()) return 0;
    return ali_creds_metadata(a, ali_env("ALIBABA_CLOUD_ECS_METADATA"), ret, err);
}

static int run_chain(struct ali *a, struct ali_cred *ret, struct gp_error *err) {
    int r = from_environment(ret, err);
    if (r == 0 && ret->id == NULL) r = from_oidc(a, ret, err);
    if (r == 0 && ret->id == NULL) r = ali_creds_config(a, ret, err);
    if (r == 0 && ret->id == NULL) r = ali_creds_ini(a, ret, err);
    if (r == 0 && ret->id == NULL) r = from_uri(a, ret, err);
    if (r == 0 && ret->id == NULL) r = from_metadata(a, ret, err);
    if (r != 0 || ret->id != NULL) return r;
    r = gp_fail(
        err, GP_EAUTH,
        "alibaba credentials: none found in the environment, ~/.aliyun/config.json, ~/.alibabacloud/credentials "
        "or instance metadata: run 'aliyun configure', or set ALIBABA_CLOUD_ACCESS_KEY_ID and "
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET");
    if (err != NULL) {
        err->scope = GP_SCOPE_PROVIDER;
        str_put(err->detail, sizeof err->detail, PROVIDER_NO_CREDENTIALS);
    }
    return r;
}

/* The id and the token become header values. */
static bool header_valid(const char *s) {
    for (; *s != '\0'; s++)
        if (*s <= ' ' || *s > '~') return false;
    return true;
}

int ali_creds_ensure(void *ctx, bool force, struct gp_error *err) {
    struct ali *a = ctx;
    int64_t now = cloud_now_s(&a->base);
    bool lasting = a->cred.id != NULL && (a->cred.expires_s == 0 || a->cred.expires_s - now > REFRESH_AHEAD_S);
    if (lasting && !force) return 0;
    GP_AUTO_CRED struct ali_cred fresh = {0};
    struct gp_error e = {0};
    int r = run_chain(a, &fresh, &e);
    if (r != 0) {
        if (a->cred.id != NULL && a->cred.expires_s > now && !force) return 0; /* still valid for minutes */
        if (err != NULL) *err = e;
        return r;
    }
    if (!header_valid(fresh.id) || !header_valid(secret_reveal(&fresh.token)))
        return gp_fail(err, GP_EAUTH,
                       "alibaba credentials of %s: the access key id or the token has a blank or a "
                       "control character: correct it",
                       fresh.source);
    if (fresh.expires_s != 0 && fresh.expires_s <= now)
        return gp_fail(err, GP_EAUTH, "alibaba credentials of %s expired: get new ones", fresh.source);
    log_trace(LOG_HTTP, "alibaba credentials from %s", fresh.source);
    ali_cred_clear(&a->cred);
    a->cred = fresh;
    fresh = (struct ali_cred){0};
    return 0;
}

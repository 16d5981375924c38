// SPDX-License-Identifier: Apache-2.0
/* Opens and closes the azure provider and lists its slots. open gets a token: its claims name the owner. One thread
 * at a time. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"
#include "base/str.h"
#include "providers/common/ownership.h"

#include <ctype.h>

static const char *const hidden[] = {"customData", "userData", "keyData", NULL};

static void azure_close(struct provider *p) {
    struct azure *a = p != NULL ? azure_of(p) : NULL;
    if (a == NULL) return;
    http_close(a->http);
    azure_cred_clear(&a->cred);
    azure_cache_free(a->cache);
    free(a->endpoint);
    free(a->audience);
    free(a->authority);
    free(a->subscription);
    free(a->principal_owner);
    free(a->tenant);
    free(a->fallback_region);
    strv_clear(&a->roles_ok);
    free(a->base.owner);
    free(a);
}

static char *without_slash(const char *s) {
    size_t n = strlen(s);
    while (n > 0 && s[n - 1] == '/') n--;
    return xstrndup(s, n);
}

/* Azure's own clouds: each has its token service and its Resource Manager. */
static const struct {
    const char *authority, *manager;
} clouds[] = {
    {"https://login.microsoftonline.com", "https://management.azure.com"},
    {"https://login.microsoftonline.us", "https://management.usgovcloudapi.net"},
    {"https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"},
    {"https://login.partner.microsoftonline.cn", "https://management.chinacloudapi.cn"},
};

static int set_endpoints(struct azure *a, struct gp_error *err) {
    const char *authority = azure_env("AZURE_AUTHORITY_HOST"), *own = azure_env("GPUPROV_AZURE_ENDPOINT");
    GP_AUTO_FREE char *full =
        authority != NULL && strstr(authority, "://") == NULL ? xasprintf("https://%s", authority) : NULL;
    a->authority = without_slash(full != NULL ? full : authority != NULL ? authority : clouds[0].authority);
    const char *manager = NULL;
    for (size_t i = 0; i < GP_ARRAY_LEN(clouds); i++)
        if (strcmp(a->authority, clouds[i].authority) == 0) manager = clouds[i].manager;
    if (manager == NULL && own == NULL)
        return gp_fail(err, GP_EENV,
                       "azure: AZURE_AUTHORITY_HOST is '%.80s', which is none of Azure's token services: set "
                       "GPUPROV_AZURE_ENDPOINT to its Resource Manager too",
                       a->authority);
    a->audience = xstrdup(manager != NULL ? manager : clouds[0].manager);
    a->endpoint = own != NULL ? without_slash(own) : xstrdup(manager);
    int r = http_url_check("azure: AZURE_AUTHORITY_HOST", a->authority, err);
    return r == 0 ? http_url_check("azure: GPUPROV_AZURE_ENDPOINT", a->endpoint, err) : r;
}

static int set_subscription(struct azure *a, struct gp_error *err) {
    const char *own = azure_env("AZURE_SUBSCRIPTION_ID");
    const char *id = own != NULL ? own : a->cred.subscription;
    if (id == NULL || id[0] == '\0')
        return gp_fail(err, GP_EAUTH,
                       "azure: no subscription: set AZURE_SUBSCRIPTION_ID ('az account list' prints yours)");
    if (!azure_is_guid(id))
        return gp_fail(err, GP_EAUTH, "azure: %s is not the id of a subscription (8-4-4-4-12 hex digits): correct it",
                       own != NULL ? "AZURE_SUBSCRIPTION_ID" : "the Azure CLI's subscription");
    a->subscription = xstrdup(id);
    for (char *p = a->subscription; *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
    a->base.account = a->subscription;
    return 0;
}

/* The claims are not verified: the token came from Azure's token service, and Azure checks it at each call. They
 * only choose the name under which resources are tagged. */
static int set_owner(struct azure *a, const char *owner, struct gp_error *err) {
    GP_AUTO_JSON json_t *claims = azure_token_claims(&a->cred.token);
    const char *who = json_str(claims, "oid", json_str(claims, "appid", ""));
    a->tenant = xstrdup(azure_is_guid(json_str(claims, "tid", "")) ? json_str(claims, "tid", "") : "");
    if (azure_is_guid(who)) {
        a->principal_owner = xstrdup(who);
        for (char *p = a->principal_owner; *p != '\0'; p++) *p = (char)tolower((unsigned char)*p);
        a->base.principal_owner = a->principal_owner;
    } else if (owner == NULL) {
        return gp_fail(err, GP_EAUTH, "azure: the token of %s does not name its principal: give --owner NAME",
                       a->cred.source);
    }
    a->base.owner = xstrdup(owner != NULL ? owner : a->principal_owner);
    return 0;
}

/* A new assignment is readable within seconds, and used by all of Azure within minutes. */
static int set_role_wait(struct azure *a, struct gp_error *err) {
    const char *text = azure_env("GPUPROV_AZURE_ROLE_WAIT");
    int64_t s = 180;
    if (text != NULL && !str_to_i64(text, 1, 1800, &s))
        return gp_fail(err, GP_EENV, "azure: GPUPROV_AZURE_ROLE_WAIT is '%.20s': give seconds, 1 to 1800", text);
    a->role_wait_ms = s * 1000;
    return 0;
}

static int azure_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct azure *a = xcalloc(1, sizeof *a);
    a->base.ops = &provider_azure;
    a->cancel = env->cancel;
    a->journal = env->journal;
    a->sink = env->sink;
    a->cache = xcalloc(1, sizeof *a->cache);
    for (size_t i = 0; env->spec != NULL && i < env->spec->offers.len; i++) {
        const struct spec_offer *o = &env->spec->offers.items[i];
        if (str_eq(o->provider, "azure") && o->regions.n > 0 && a->fallback_region == NULL)
            a->fallback_region = xstrdup(o->regions.v[0]);
    }
    struct http_options opt = {
        .cancel = env->cancel, .ca_bundle = azure_env("REQUESTS_CA_BUNDLE"), .ca_setting = "REQUESTS_CA_BUNDLE"};
    int r = set_role_wait(a, err);
    if (r == 0) r = set_endpoints(a, err);
    if (r == 0) r = http_open(&opt, &a->http, err);
    a->rest = (struct rest){.provider = &a->base,
                            .http = a->http,
                            .ctx = a,
                            .ensure = azure_creds_ensure,
                            .authorize = azure_authorize,
                            .said = azure_said,
                            .rows = azure_errors,
                            .row_count = azure_error_count,
                            .hidden = hidden};
    if (r == 0) r = azure_creds_ensure(a, false, err);
    if (r == 0) r = set_subscription(a, err);
    if (r == 0) r = set_owner(a, env->owner, err);
    if (r != 0) {
        azure_close(&a->base);
        return r;
    }
    *ret = &a->base;
    return 0;
}

/* Sizes with 8 GPUs are whole machines; no figure is published: twice the limit of one GPU, as at EC2. */
static int64_t azure_boot_timeout(const char *instance_type, int gpus) {
    (void)instance_type;
    return gpus >= 8 ? (int64_t)20 * 60 * 1000 : 0;
}

const struct provider_ops provider_azure = {
    .name = "azure",
    .summary = "Microsoft Azure: virtual machines, on-demand and spot",
    .spec = &azure_spec,
    .notices = "azure",
    .note = "azure: a poweroff does not end a node's bill; without 'role' in the offer only 'gpuprov gc' and 'gpuprov "
            "down' terminate nodes",
    .ends = ENDS_GC_ONLY,
    .guest_end = GUEST_DELETES, /* with a role */
    .end_script = "cloud-init/end-azure.sh",
    .node_shape = NODE_VM,
    .user_data_max = 65535,
    .poll_ms = 5000,
    .replay_max_s = 3600, /* a name has one machine as long as it exists: If-None-Match */
    .principal = true,
    .unique_claim = true,
    .user_data = true,
    .key_rotation = true,
    .billed = true,
    .boot_timeout_ms = 10 * 60 * 1000,
    .settle_ms = 10 * 1000, /* groups are read by name, and machines from their own list */
    .image_refusal = "azure: images cannot be made there yet: launch from a system or an image of your own",
    .policy = azure_policy_json,
    .node_policy = azure_node_policy_json,
    .doctor = azure_doctor,
    .boot_timeout = azure_boot_timeout,
    .open = azure_open,
    .close = azure_close,
    .offers = azure_offers,
    .prepare = azure_prepare,
    .create = azure_create,
    .list = azure_list,
    .destroy = azure_destroy,
    .tag = azure_tag_late,
    .console = NULL,
};

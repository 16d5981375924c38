// SPDX-License-Identifier: Apache-2.0
/* Opens and closes the alibaba provider and lists its slots. open calls STS GetCallerIdentity, which checks the
 * credentials, returns the account and the principal, and sets the clock. One thread at a time. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/alibaba/spec.h"
#include "providers/common/ownership.h"

static void cache_free(struct ali_cache *c) {
    if (c == NULL) return;
    strv_clear(&c->regions);
    strv_clear(&c->endpoints);
    strv_clear(&c->vswitch_regions);
    strv_clear(&c->groups_ready);
    for (size_t i = 0; i < c->erdma.len; i++) {
        free(c->erdma.items[i].region);
        free(c->erdma.items[i].type);
    }
    vec_free(&c->erdma);
    ali_vswitches_clear(&c->vswitches);
    for (size_t i = 0; i < c->images.list.len; i++) free(c->images.list.items[i].id);
    vec_free(&c->images.list);
    for (size_t i = 0; i < c->quotas.len; i++) {
        free(c->quotas.items[i]->region);
        free(c->quotas.items[i]);
    }
    vec_free(&c->quotas);
    free(c->claim_made);
    free(c->public_cidr);
    free(c);
}

static void ali_close(struct provider *p) {
    if (p == NULL) return;
    struct ali *a = ali_of(p);
    http_close(a->http);
    ali_cred_clear(&a->cred);
    cache_free(a->cache);
    free(a->account);
    free(a->principal_owner);
    free(a->region);
    free(a->base.owner);
    free(a);
}

/* "acs:ram::123:assumed-role/Name/session" to "Name"; "acs:ram::123:user/name" to "name"; "root". */
static char *principal_of(const char *arn) {
    GP_AUTO_STRV struct strv parts = {0};
    const char *last = strrchr(arn, ':');
    strv_split(&parts, last != NULL ? last + 1 : "", "/");
    if (parts.n == 0) return xstrdup("unknown");
    return xstrdup(strcmp(parts.v[0], "assumed-role") == 0 && parts.n > 1 ? parts.v[1] : parts.v[parts.n - 1]);
}

static bool account_valid(const char *s) {
    size_t n = strlen(s);
    return n >= 5 && n <= 20 && strspn(s, "0123456789") == n;
}

/* An owner derived from a principal begins with its account: its machines are only there. */
static bool of_other_account(const char *owner, const char *account) {
    size_t n = strspn(owner, "0123456789");
    return n >= 12 && owner[n] == '-' && (strlen(account) != n || strncmp(owner, account, n) != 0);
}

static int who_am_i(struct ali *a, const char *owner, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    int r = ali_call(a, ALI_STS, ali_home(a), "GetCallerIdentity", NULL, 0, &reply, err);
    if (r == -GP_EAUTH && err != NULL && a->cred.source != NULL)
        return gp_wrap(err, "credentials of %s", a->cred.source);
    if (r != 0) return r;
    const char *account = json_str(reply.json, "AccountId", ""), *arn = json_str(reply.json, "Arn", "");
    if (!account_valid(account) || !str_starts(arn, "acs:"))
        return gp_fail(err, GP_EPROTO,
                       "sts GetCallerIdentity: no account number and no ARN in the reply: check "
                       "GPUPROV_ALIBABA_ENDPOINT");
    if (owner != NULL && of_other_account(owner, account))
        return gp_fail(err, GP_EAUTH,
                       "alibaba: the credentials are for account %s, but '%s' is an owner of another account: use "
                       "credentials for that account, or give --owner",
                       account, owner);
    GP_AUTO_FREE char *principal = principal_of(arn);
    a->account = xstrdup(account);
    a->base.account = a->account;
    a->principal_owner = xasprintf("%s-%s", account, principal);
    owner_to_form(a->principal_owner);
    a->base.principal_owner = a->principal_owner;
    a->base.owner = xstrdup(owner != NULL ? owner : a->principal_owner);
    if (owner == NULL && !form_owner(a->base.owner))
        return gp_fail(err, GP_EPROTO, "sts GetCallerIdentity: '%.140s' is too long for an owner: give --owner NAME",
                       a->base.owner);
    return 0;
}

static int ali_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct ali *a = xcalloc(1, sizeof *a);
    a->base.ops = &provider_alibaba;
    a->cancel = env->cancel;
    a->journal = env->journal;
    a->sink = env->sink;
    a->cache = xcalloc(1, sizeof *a->cache);
    const char *region = ali_env("ALIBABA_CLOUD_REGION_ID");
    int r = region == NULL || ali_region_valid(region)
                ? 0
                : gp_fail(err, GP_EUSAGE, "ALIBABA_CLOUD_REGION_ID '%.60s' is not a region: correct it", region);
    if (r == 0 && region != NULL) a->region = xstrdup(region);
    if (r == 0) r = ali_rest_open(a, err);
    if (r == 0) r = who_am_i(a, env->owner, err);
    for (size_t i = 0; r == 0 && env->spec != NULL && i < env->spec->offers.len; i++) {
        const struct spec_offer *o = &env->spec->offers.items[i];
        if (a->region == NULL && str_eq(o->provider, "alibaba") && o->regions.n > 0)
            a->region = xstrdup(o->regions.v[0]);
    }
    if (r != 0) {
        ali_close(&a->base);
        return r;
    }
    *ret = &a->base;
    return 0;
}

const struct provider_ops provider_alibaba = {
    .name = "alibaba",
    .summary = "Alibaba Cloud ECS: pay-as-you-go and spot instances",
    .spec = &alibaba_spec,
    .notices = "alibaba",
    .note = "alibaba: the cloud releases a node at its AutoReleaseTime, which gpuprov sets and reads back",
    .ends = ENDS_SERVER,
    .guest_end = GUEST_NOTHING,
    .node_shape = NODE_VM,
    .user_data_max = 32768,
    .poll_ms = 3000,
    .replay_max_s = 12 * 3600, /* tokens are kept for a day: half of that */
    .principal = true,
    .unique_claim = true,
    .user_data = true,
    .key_rotation = true,
    .billed = true,
    .boot_timeout_ms = 15 * 60 * 1000,
    .settle_ms = 30 * 1000,
    .image_refusal = "alibaba: images cannot be baked there yet: give image.id or image.os",
    .policy = ali_policy_json,
    .doctor = ali_doctor,
    .open = ali_open,
    .close = ali_close,
    .offers = ali_offers,
    .prepare = ali_prepare,
    .create = ali_create,
    .list = ali_list_all,
    .destroy = ali_destroy,
    .tag = ali_tag_late,
    .console = ali_console,
};

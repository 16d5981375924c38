// SPDX-License-Identifier: Apache-2.0
/* Opens and closes the aws provider and lists its slots. open calls STS GetCallerIdentity, which checks the
 * credentials, returns the account and the owner, and sets the clock. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/common/ownership.h"

void aws_cache_free(struct aws_cache *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < c->images.len; i++) {
        aws_image_clear(c->images.items[i]);
        free(c->images.items[i]);
    }
    vec_free(&c->images);
    strv_clear(&c->image_keys);
    strv_clear(&c->groups_ready);
    vec_free(&c->quotas);
    strv_clear(&c->placements);
    strv_clear(&c->nics_of);
    vec_free(&c->nics);
    aws_reservation_clear(&c->reservation);
    aws_subnets_clear(&c->subnets);
    strv_clear(&c->subnet_regions);
    free(c->claim.region);
    free(c->claim.vpc);
    free(c->claim.uid);
    free(c->claim.id);
    free(c->public_cidr);
    free(c);
}

static void aws_close(struct provider *p) {
    struct aws *a = p != NULL ? aws_of(p) : NULL;
    if (a == NULL) return;
    http_close(a->http);
    aws_cred_clear(&a->cred);
    aws_config_clear(&a->cfg);
    aws_cache_free(a->cache);
    proof_key_clear(&a->image_key);
    free(a->account);
    free(a->principal_owner);
    free(a->fallback_region);
    free(a->base.owner);
    free(a);
}

/* "arn:aws:sts::123:assumed-role/Name/session" to "Name"; users lose their path. */
static char *principal_of(const char *arn) {
    GP_AUTO_STRV struct strv fields = {0};
    GP_AUTO_STRV struct strv parts = {0};
    strv_split(&fields, arn, ":");
    const char *last = fields.n > 0 ? fields.v[fields.n - 1] : "";
    strv_split(&parts, last, "/");
    if (parts.n == 0) return xstrdup("unknown");
    if (parts.n == 1) return xstrdup(parts.v[0]); /* "root" */
    if (strcmp(parts.v[0], "assumed-role") == 0) return xstrdup(parts.v[1]);
    return xstrdup(parts.v[parts.n - 1]);
}

/* ACCOUNT-NAME in the form of an owner: it becomes part of tags, filters and group names. */
static char *owner_of(const char *account, const char *principal) {
    char *owner = xasprintf("%s-%s", account, principal);
    owner_to_form(owner);
    return owner;
}

static bool account_valid(const char *s) { return strlen(s) == 12 && strspn(s, "0123456789") == 12; }

/* An owner derived from a cloud principal begins with its account: its machines are only there. */
static bool of_other_account(const char *owner, const char *account) {
    bool names_one = strspn(owner, "0123456789") == 12 && owner[12] == '-';
    return names_one && strncmp(owner, account, 12) != 0;
}

static int who_am_i(struct aws *a, const char *owner, struct gp_error *err) {
    GP_AUTO_REPLY struct aws_reply reply = {0};
    struct aws_call call = {.service = "sts",
                            .region = aws_home(a),
                            .action = "GetCallerIdentity",
                            .body = "Action=GetCallerIdentity&Version=2011-06-15"};
    int r = aws_call(a, &call, &reply, err);
    if (r != 0) return r;
    const char *account = xml_str(reply.xml, "GetCallerIdentityResult/Account", "");
    const char *arn = xml_str(reply.xml, "GetCallerIdentityResult/Arn", "");
    if (!account_valid(account) || !str_starts(arn, "arn:"))
        return gp_fail(err, GP_EPROTO,
                       "sts GetCallerIdentity: no account of 12 digits and no ARN in the "
                       "reply: check AWS_ENDPOINT_URL");
    if (owner != NULL && of_other_account(owner, account))
        return gp_fail(err, GP_EAUTH,
                       "aws: the credentials are for account %s, but '%s' is an owner of account %.12s: "
                       "use credentials for that account, or give --owner",
                       account, owner, owner);
    a->account = xstrdup(account);
    a->base.account = a->account;
    GP_AUTO_FREE char *principal = principal_of(arn);
    a->principal_owner = owner_of(account, principal);
    a->base.principal_owner = a->principal_owner;
    a->base.owner = xstrdup(owner != NULL ? owner : a->principal_owner);
    if (owner == NULL && !form_owner(a->base.owner))
        return gp_fail(err, GP_EPROTO,
                       "sts GetCallerIdentity: '%.140s' is too long for an owner: give "
                       "--owner NAME",
                       a->base.owner);
    return 0;
}

static int aws_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct aws *a = xcalloc(1, sizeof *a);
    a->base.ops = &provider_aws;
    a->cancel = env->cancel;
    a->journal = env->journal;
    a->sink = env->sink;
    if (env->image_key != NULL) a->image_key = *env->image_key;
    a->cache = xcalloc(1, sizeof *a->cache);
    for (size_t i = 0; env->spec != NULL && i < env->spec->offers.len; i++) {
        const struct spec_offer *o = &env->spec->offers.items[i];
        if (str_eq(o->provider, "aws") && o->regions.n > 0 && a->fallback_region == NULL)
            a->fallback_region = xstrdup(o->regions.v[0]);
    }
    int r = aws_config_load(&a->cfg, err);
    if (r == 0) r = aws_http_open(a, &a->http, err);
    if (r == 0) r = who_am_i(a, env->owner, err);
    if (r != 0) {
        aws_close(&a->base);
        return r;
    }
    *ret = &a->base;
    return 0;
}

const struct provider_ops provider_aws = {
    .name = "aws",
    .summary = "Amazon EC2: on-demand and spot instances",
    .spec = &aws_spec,
    .notices = "aws",
    .note = "aws: a node terminates itself at its deadline by a shutdown; 'gpuprov gc' terminates those that did not",
    .ends = ENDS_GUEST,
    .guest_end = GUEST_POWEROFF,
    .node_shape = NODE_VM,
    .user_data_max = 16384,
    .poll_ms = 5000,
    .replay_max_s = 12 * 3600, /* EC2 keeps tokens for at least a day: half of that */
    .principal = true,
    .unique_claim = true,
    .user_data = true,
    .key_rotation = true,
    .billed = true,
    .boot_timeout_ms = 10 * 60 * 1000, /* most take two minutes */
    .settle_ms = 30 * 1000,
    .images = &aws_image_ops,
    .policy = aws_policy_json,
    .doctor = aws_doctor,
    .boot_timeout = aws_boot_timeout,
    .open = aws_open,
    .close = aws_close,
    .offers = aws_offers,
    .prepare = aws_prepare,
    .create = aws_create,
    .list = aws_list,
    .destroy = aws_destroy,
    .tag = aws_tag_late,
    .console = aws_console,
};

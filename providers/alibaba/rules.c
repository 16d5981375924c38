// SPDX-License-Identifier: Apache-2.0
/* The ingress rules of a security group: SSH from the networks of the spec. Missing rules are added first, then all
 * others are revoked and reported. Members of the group reach each other without a rule. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/form.h"

#include <arpa/inet.h>

static int public_cidr(struct ali *a, const char **ret, struct gp_error *err) {
    const char *own = ali_env("GPUPROV_CHECKIP_URL");
    const char *url = own != NULL ? own : "https://checkip.amazonaws.com";
    if (a->cache->public_cidr == NULL) {
        GP_AUTO_RESP struct http_resp resp = {0};
        struct http_req req = {.what = "this controller's public address",
                               .method = "GET",
                               .url = url,
                               .repeatable = true,
                               .tries = 3,
                               .timeout_ms = 10000,
                               .max_body = 4096};
        int r = http_call(a->http, &req, &resp, err);
        if (r != 0) return gp_wrap(err, "access.ssh_from is not given, and");
        char *text = str_trim(resp.body.s != NULL ? resp.body.s : (char[]){0});
        if (resp.status != 200 || !form_address(text))
            return gp_fail(err, GP_EENV,
                           "%s did not return this controller's public address (HTTP %d): set "
                           "access.ssh_from",
                           url, resp.status);
        a->cache->public_cidr = xasprintf("%s/%d", text, strchr(text, ':') == NULL ? 32 : 128);
    }
    *ret = a->cache->public_cidr;
    return 0;
}

/* --- networks --- */

struct cidr {
    unsigned char bytes[16];
    int family, bits;
};

static bool cidr_read(const char *text, struct cidr *ret) {
    size_t n = strcspn(text, "/");
    int64_t bits = 0;
    GP_AUTO_FREE char *address = xstrndup(text, n);
    *ret = (struct cidr){.family = strchr(address, ':') == NULL ? AF_INET : AF_INET6};
    int64_t most = ret->family == AF_INET ? 32 : 128;
    if (text[n] == '\0') bits = most; /* the cloud returns a single address without its length */
    else if (!str_to_i64(text + n + 1, 0, most, &bits)) return false;
    if (inet_pton(ret->family, address, ret->bytes) != 1) return false;
    ret->bits = (int)bits;
    for (int64_t i = bits; i < most; i++) ret->bytes[i / 8] &= (unsigned char)~(0x80 >> (i % 8));
    return true;
}

static bool same_cidr(const char *x, const char *y) {
    struct cidr a, b;
    if (!cidr_read(x, &a) || !cidr_read(y, &b)) return strcmp(x, y) == 0;
    return a.family == b.family && a.bits == b.bits && memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

/* The networks of every offer that may use that region's group. *ret_own: one of them has none, so this controller's
 * own address is added. */
static void networks(const struct ali *a, const struct spec *spec, const char *region, struct strv *ret,
                     bool *ret_own) {
    bool some = false;
    *ret_own = false;
    for (size_t i = 0; i <= spec->offers.len; i++) {
        const struct spec_offer *o = i < spec->offers.len ? &spec->offers.items[i] : NULL;
        if (o == NULL && some) break;
        if (o != NULL && !str_eq(o->provider, "alibaba")) continue;
        if (o != NULL && (o->regions.n > 0 ? !strv_has(&o->regions, region) : !str_eq(ali_home(a), region))) continue;
        const struct strv *from = o != NULL ? spec_effective(spec, i).ssh_from : &spec->access.ssh_from;
        some = true;
        if (from->n == 0) *ret_own = true;
        for (size_t k = 0; k < from->n; k++)
            if (!strv_has(ret, from->v[k])) strv_add(ret, from->v[k]);
    }
}

/* --- rules as they are --- */

struct rule {
    char *id, *protocol, *ports, *source, *policy;
};
struct rules {
    VEC_OF(struct rule) list;
};

static void rules_clear(struct rules *r) {
    for (size_t i = 0; i < r->list.len; i++) {
        free(r->list.items[i].id);
        free(r->list.items[i].protocol);
        free(r->list.items[i].ports);
        free(r->list.items[i].source);
        free(r->list.items[i].policy);
    }
    vec_free(&r->list);
}

static int on_rule(void *ctx, const json_t *item, struct gp_error *err) {
    struct rules *all = ctx;
    const char *v4 = json_str(item, "SourceCidrIp", ""), *v6 = json_str(item, "Ipv6SourceCidrIp", "");
    const char *other = json_str(item, "SourceGroupId", json_str(item, "SourcePrefixListId", ""));
    (void)err;
    if (strcasecmp(json_str(item, "Direction", "ingress"), "ingress") != 0) return 0;
    struct rule r = {.id = xstrdup(json_str(item, "SecurityGroupRuleId", "")),
                     .protocol = xstrdup(json_str(item, "IpProtocol", "")),
                     .ports = xstrdup(json_str(item, "PortRange", "")),
                     .policy = xstrdup(json_str(item, "Policy", "")),
                     .source = xstrdup(v4[0]   ? v4
                                       : v6[0] ? v6
                                               : other)};
    vec_push(&all->list, r);
    return 0;
}

static int read_rules(struct ali *a, const char *region, const char *group, struct rules *ret, struct gp_error *err) {
    struct ali_list l = {.service = ALI_ECS,
                         .region = region,
                         .action = "DescribeSecurityGroupAttribute",
                         .items = "Permissions.Permission",
                         .page = 500,
                         .each = on_rule,
                         .ctx = ret};
    ali_begin(&l.query, region);
    ali_param(&l.query, "SecurityGroupId", group);
    ali_param(&l.query, "Direction", "ingress");
    return ali_list_one(a, &l, err);
}

static bool is_ssh(const struct rule *r, const char *cidr) {
    return strcasecmp(r->protocol, "tcp") == 0 && strcmp(r->ports, "22/22") == 0 &&
           strcasecmp(r->policy, "accept") == 0 && same_cidr(r->source, cidr);
}

static bool wanted(const struct rule *r, const struct strv *from) {
    if (strcasecmp(r->policy, "drop") == 0) return true; /* it allows nothing */
    for (size_t i = 0; i < from->n; i++)
        if (is_ssh(r, from->v[i])) return true;
    return false;
}

/* --- add and revoke --- */

static int add_missing(struct ali *a, const char *region, const char *group, const struct rules *have,
                       const struct strv *from, struct gp_error *err) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    int n = 0;
    ali_begin(&query, region);
    ali_param(&query, "SecurityGroupId", group);
    for (size_t i = 0; i < from->n; i++) {
        bool there = false;
        for (size_t k = 0; k < have->list.len && !there; k++) there = is_ssh(&have->list.items[k], from->v[i]);
        if (there) continue;
        n++;
        ali_paramf(&query, "TCP", "Permissions.%d.IpProtocol", n);
        ali_paramf(&query, "22/22", "Permissions.%d.PortRange", n);
        ali_paramf(&query, "Accept", "Permissions.%d.Policy", n);
        ali_paramf(&query, from->v[i], "Permissions.%d.%s", n,
                   strchr(from->v[i], ':') != NULL ? "Ipv6SourceCidrIp" : "SourceCidrIp");
    }
    return n == 0 ? 0 : ali_call(a, ALI_ECS, region, "AuthorizeSecurityGroup", &query, 0, &reply, err);
}

static void say_revoked(struct ali *a, const char *group, const struct rule *r) {
    GP_AUTO_FREE char *text =
        xasprintf("security group %s allowed %s %s from %s, which access.ssh_from does not list: revoked", group,
                  r->protocol, r->ports, r->source);
    str_one_line(text);
    event_emit(a->sink, -1, NODE_LAUNCHING, EVENT_WARN, "access", "%s", text);
}

static int revoke(struct ali *a, const char *region, const char *group, const struct rules *have,
                  const struct strv *from, struct gp_error *err) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    int n = 0;
    ali_begin(&query, region);
    ali_param(&query, "SecurityGroupId", group);
    for (size_t i = 0; i < have->list.len; i++) {
        const struct rule *r = &have->list.items[i];
        if (wanted(r, from)) continue;
        if (!ali_id(r->id, "sgr-"))
            return gp_fail(err, GP_EPROTO,
                           "alibaba: a rule of security group %s allows access that access.ssh_from does not list, and "
                           "has no id: remove it in the ECS console",
                           group);
        ali_paramf(&query, r->id, "SecurityGroupRuleId.%d", ++n);
    }
    if (n == 0) return 0;
    int r = ali_call(a, ALI_ECS, region, "RevokeSecurityGroup", &query, 0, &reply, err);
    for (size_t i = 0; r == 0 && i < have->list.len; i++)
        if (!wanted(&have->list.items[i], from)) say_revoked(a, group, &have->list.items[i]);
    return r;
}

int ali_group_rules(struct ali *a, const struct spec *spec, const char *region, const char *group, bool fresh,
                    struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, group);
    GP_AUTO_STRV struct strv from = {0};
    struct rules have = {0};
    const char *own = NULL;
    bool with_own = false;
    if (strv_has(&a->cache->groups_ready, key)) return 0;
    networks(a, spec, region, &from, &with_own);
    int r = with_own ? public_cidr(a, &own, err) : 0;
    if (r != 0) return r;
    if (own != NULL && !strv_has(&from, own)) strv_add(&from, own);
    if (!fresh) r = read_rules(a, region, group, &have, err);
    if (r == 0) r = add_missing(a, region, group, &have, &from, err);
    if (r == 0) r = revoke(a, region, group, &have, &from, err);
    rules_clear(&have);
    if (r == 0) strv_add(&a->cache->groups_ready, key);
    return r;
}

// SPDX-License-Identifier: Apache-2.0
/* The ingress rules of a security group: SSH from the networks of the spec. Missing rules are added first, then all
 * others are revoked and reported. Members of the group reach each other without a rule. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "providers/common/ssh_from.h"

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
           strcasecmp(r->policy, "accept") == 0 && ssh_from_same(r->source, cidr);
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
    struct ssh_from networks = {a->http, spec, "alibaba", region, ali_home(a), &a->cache->public_cidr};
    if (strv_has(&a->cache->groups_ready, key)) return 0;
    int r = ssh_from_read(&networks, &from, err);
    if (r != 0) return r;
    if (!fresh) r = read_rules(a, region, group, &have, err);
    if (r == 0) r = add_missing(a, region, group, &have, &from, err);
    if (r == 0) r = revoke(a, region, group, &have, &from, err);
    rules_clear(&have);
    if (r == 0) strv_add(&a->cache->groups_ready, key);
    return r;
}

// SPDX-License-Identifier: Apache-2.0
/* Security groups: find, and create after an intent. A group's name is unique in its VPC, so it is its own
 * idempotency token. prepare.c selects the claim; rules.c sets the rules. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

static void rule_clear(struct aws_rule *r) {
    free(r->protocol);
    free(r->from);
    free(r->to);
    free(r->source);
    free(r->account);
}

void aws_group_clear(struct aws_group *g) {
    free(g->id);
    free(g->name);
    free(g->vpc);
    tags_clear(&g->tags);
    for (size_t i = 0; i < g->rules.len; i++) rule_clear(&g->rules.items[i]);
    vec_free(&g->rules);
    *g = (struct aws_group){0};
}

char *aws_group_name(const char *owner, const char *stack, const char *uid) {
    return xasprintf("gpuprov-%s/%s%s%s", owner, stack, uid != NULL ? "/" : "", uid != NULL ? uid : "");
}

static void read_sources(const struct xml_node *permission, struct aws_group *g) {
    static const struct {
        const char *set, *source, *account;
    } kinds[] = {[AWS_FROM_IPV4] = {"ipRanges", "cidrIp", "-"},
                 [AWS_FROM_IPV6] = {"ipv6Ranges", "cidrIpv6", "-"},
                 [AWS_FROM_PREFIX_LIST] = {"prefixListIds", "prefixListId", "-"},
                 [AWS_FROM_GROUP] = {"groups", "groupId", "userId"}};
    for (size_t kind = 0; kind < GP_ARRAY_LEN(kinds); kind++) {
        const struct xml_node *set = xml_find(permission, kinds[kind].set);
        for (size_t i = 0; set != NULL && i < set->children.len; i++) {
            const struct xml_node *item = set->children.items[i];
            struct aws_rule r = {.protocol = xstrdup(xml_str(permission, "ipProtocol", "")),
                                 .from = xstrdup(xml_str(permission, "fromPort", "")),
                                 .to = xstrdup(xml_str(permission, "toPort", "")),
                                 .kind = (int)kind,
                                 .source = xstrdup(xml_str(item, kinds[kind].source, "")),
                                 .account = xstrdup(xml_str(item, kinds[kind].account, ""))};
            vec_push(&g->rules, r);
        }
    }
}

void aws_group_ingress(const struct xml_node *item, const char *id, struct str *out) {
    struct aws_group g = {0};
    const struct xml_node *set = xml_find(item, "ipPermissions");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) read_sources(set->children.items[i], &g);
    for (size_t i = 0; i < g.rules.len; i++) {
        const struct aws_rule *r = &g.rules.items[i];
        bool all = strcmp(r->protocol, "-1") == 0, range = strcmp(r->from, r->to) != 0;
        if (all && r->kind == AWS_FROM_GROUP && strcmp(r->source, id) == 0) continue; /* its own members */
        GP_AUTO_FREE char *line =
            xasprintf("%s%s%s%s%s %s", all ? "all" : r->protocol, !all && r->from[0] ? " " : "", all ? "" : r->from,
                      !all && range ? "-" : "", !all && range ? r->to : "", r->source);
        str_one_line(line);
        str_addf(out, "%s%s", out->len > 0 ? "\n" : "", line);
    }
    if (out->len == 0) str_add(out, "none");
    aws_group_clear(&g);
}

static int on_group(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct aws_group *g = ctx;
    const char *id = xml_str(item, "groupId", "");
    if (g->id != NULL) return 0;
    if (!form_ec2_id(id, "sg-"))
        return gp_fail(err, GP_EPROTO, "ec2 DescribeSecurityGroups: an id in the reply is not the id of a group");
    aws_tags_decode(item, &g->tags);
    g->id = xstrdup(id);
    g->name = xstrdup(xml_str(item, "groupName", ""));
    str_one_line(g->name);
    g->vpc = xstrdup(xml_str(item, "vpcId", ""));
    const struct xml_node *set = xml_find(item, "ipPermissions");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) read_sources(set->children.items[i], g);
    return 0;
}

int aws_group_find(struct aws *a, const char *region, const char *vpc, const char *name, struct aws_group *ret,
                   struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeSecurityGroups");
    aws_filter(&body, 1, "group-name", name);
    aws_filter(&body, 2, "vpc-id", vpc);
    return aws_describe(a, region, "DescribeSecurityGroups", &body, 0, "securityGroupInfo", on_group, ret, err);
}

int aws_group_by_id(struct aws *a, const char *region, const char *id, struct aws_group *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeSecurityGroups");
    aws_filter(&body, 1, "group-id", id);
    return aws_describe(a, region, "DescribeSecurityGroups", &body, 0, "securityGroupInfo", on_group, ret, err);
}

int aws_group_is_of(const struct aws_group *g, const struct stack *s, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *what = xasprintf("aws: the security group '%s' (%s)", g->name, g->id);
    return cloud_check_owner(&g->tags, what, s, uid, err);
}

void aws_group_resource(const struct aws_group *g, const char *region, struct resource *ret) {
    resource_init(ret, RES_GROUP, "aws");
    resource_set(&ret->region, region);
    resource_set(&ret->id, g->id);
    tags_to_resource(&g->tags, -1, ret);
    ret->state = RES_RUNNING;
    ret->price_usd_per_h = 0;
}

/* --- create --- */

/* The tags of the new group. */
static void tags_to_send(const struct stack *s, const char *regions, struct tags *ret) {
    tags_of_stack(ret, s);
    ret->created_s = s->created_s;
    resource_set(&ret->regions, regions);
    ret->claim = regions != NULL;
}

static void group_body(const struct stack *s, const char *vpc, const char *name, const struct tags *tags,
                       struct str *body) {
    GP_AUTO_FREE char *about = xasprintf("gpuprov: nodes of the stack %s/%s", s->owner, s->name);
    aws_begin(body, "CreateSecurityGroup");
    aws_param(body, "GroupName", name);
    aws_param(body, "GroupDescription", about);
    aws_param(body, "VpcId", vpc);
    aws_tags_encode(body, 1, "security-group", name, tags);
}

int aws_group_create(struct aws *a, const struct stack *s, const char *region, const char *vpc, const char *name,
                     const char *regions, struct aws_group *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    struct aws_group g = {.name = xstrdup(name), .vpc = xstrdup(vpc)};
    tags_to_send(s, regions, &g.tags);
    group_body(s, vpc, name, &g.tags, &body);
    struct intent in;
    cloud_intent_thing(s, "aws", region, RES_GROUP, name, body.s, &in);
    in.claim = regions != NULL;
    int r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        struct gp_error why = {0};
        struct resource one = {0};
        r = aws_ec2(a, region, "CreateSecurityGroup", &body, AWS_ONCE, &reply, &why);
        g.id = xstrdup(xml_str(reply.xml, "groupId", ""));
        if (r == 0 && !form_ec2_id(g.id, "sg-"))
            r = gp_fail(&why, GP_EUNKNOWN, "ec2 CreateSecurityGroup in %s: no id in the reply", region);
        aws_group_resource(&g, region, &one);
        r = cloud_thing_created(a->journal, &in, r, &one, &why, err);
        resource_clear(&one);
    }
    if (r == 0) {
        aws_group_clear(ret);
        *ret = g;
        g = (struct aws_group){0};
    }
    aws_group_clear(&g);
    intent_clear(&in);
    return r;
}

int aws_group_settle(struct aws *a, const char *region, const struct aws_group *g, struct gp_error *err) {
    struct resource there;
    aws_group_resource(g, region, &there);
    int r = cloud_thing_settle(a->journal, &there, g->name, err);
    resource_clear(&there);
    return r;
}

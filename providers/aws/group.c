// SPDX-License-Identifier: Apache-2.0
/* Security groups: find, create after an intent, rules. A group's name is unique in its VPC, which
 * makes it its own idempotency token. Which group is the claim is claim.c's business. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <ctype.h>

void aws_group_clear(struct aws_group *g) {
    free(g->id);
    free(g->name);
    free(g->vpc);
    free(g->owner);
    free(g->stack);
    free(g->uid);
    free(g->spec);
    strv_clear(&g->ssh);
    *g = (struct aws_group){0};
}

char *aws_group_name(const char *owner, const char *stack, const char *uid) {
    char *name = xasprintf("gpuprov-%s-%s%s%s", owner, stack, uid != NULL ? "-" : "",
                           uid != NULL ? uid : "");
    for (char *p = name; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr(" ._-:/()#,@[]+=&;{}!$*", *p) == NULL) *p = '-';
    return name;
}

static void read_rules(const struct xml_node *item, struct aws_group *g) {
    const struct xml_node *set = xml_find(item, "ipPermissions");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        const struct xml_node *p = set->children.items[i];
        const char *protocol = xml_str(p, "ipProtocol", "");
        const struct xml_node *groups = xml_find(p, "groups");
        for (size_t k = 0; groups != NULL && k < groups->children.len; k++)
            if (strcmp(protocol, "-1") == 0 &&
                strcmp(xml_str(groups->children.items[k], "groupId", ""), g->id) == 0)
                g->members = true;
        if (strcmp(protocol, "tcp") != 0 || strcmp(xml_str(p, "fromPort", ""), "22") != 0 ||
            strcmp(xml_str(p, "toPort", ""), "22") != 0)
            continue;
        const struct xml_node *v4 = xml_find(p, "ipRanges"), *v6 = xml_find(p, "ipv6Ranges");
        for (size_t k = 0; v4 != NULL && k < v4->children.len; k++)
            strv_add(&g->ssh, xml_str(v4->children.items[k], "cidrIp", ""));
        for (size_t k = 0; v6 != NULL && k < v6->children.len; k++)
            strv_add(&g->ssh, xml_str(v6->children.items[k], "cidrIpv6", ""));
    }
}

static int on_group(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct aws_group *g = ctx;
    struct aws_tags tags;
    (void)err;
    if (g->id != NULL) return 0;
    aws_tags_read(item, &tags);
    g->id = xstrdup(xml_str(item, "groupId", ""));
    g->name = xstrdup(xml_str(item, "groupName", ""));
    g->vpc = xstrdup(xml_str(item, "vpcId", ""));
    g->owner = xstrdup(tags.owner);
    g->stack = xstrdup(tags.stack);
    g->uid = xstrdup(tags.uid);
    g->spec = xstrdup(tags.spec);
    g->claim = strcmp(tags.claim, "1") == 0;
    if (!time_parse_utc(tags.expires, &g->expires_s)) g->expires_s = 0;
    if (!time_parse_utc(tags.created, &g->created_s)) g->created_s = 0;
    read_rules(item, g);
    return 0;
}

int aws_group_find(struct aws *a, const char *region, const char *vpc, const char *name,
                   struct aws_group *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeSecurityGroups");
    aws_filter(&body, 1, "group-name", name);
    aws_filter(&body, 2, "vpc-id", vpc);
    return aws_describe(a, region, "DescribeSecurityGroups", &body, 0, "securityGroupInfo", on_group,
                        ret, err);
}

void aws_group_resource(const struct aws_group *g, const char *region, struct resource *ret) {
    resource_init(ret, RES_GROUP, "aws");
    resource_set(&ret->region, region);
    resource_set(&ret->id, g->id);
    resource_set(&ret->owner, g->owner);
    resource_set(&ret->stack, g->stack);
    resource_set(&ret->uid, g->uid);
    resource_set(&ret->spec_hash, g->spec);
    ret->slot = -1;
    ret->state = RES_RUNNING;
    ret->claim = g->claim;
    ret->created_s = g->created_s;
    ret->expires_s = g->expires_s;
}

/* --- create --- */

static void add_tag(struct str *body, int *n, const char *key, const char *value) {
    (*n)++;
    aws_paramf(body, key, "TagSpecification.1.Tag.%d.Key", *n);
    aws_paramf(body, value, "TagSpecification.1.Tag.%d.Value", *n);
}

static void group_body(const struct stack *s, const char *vpc, const char *name, bool claim,
                       struct str *body) {
    char when[32];
    int n = 0;
    GP_AUTO_FREE char *text = aws_group_name(s->owner, s->name, NULL);
    GP_AUTO_FREE char *about = xasprintf("gpuprov: nodes of the stack %s", text + strlen("gpuprov-"));
    aws_begin(body, "CreateSecurityGroup");
    aws_param(body, "GroupName", name);
    aws_param(body, "GroupDescription", about);
    aws_param(body, "VpcId", vpc);
    aws_param(body, "TagSpecification.1.ResourceType", "security-group");
    add_tag(body, &n, "Name", name);
    add_tag(body, &n, AWS_TAG "owner", s->owner);
    add_tag(body, &n, AWS_TAG "stack", s->name);
    add_tag(body, &n, AWS_TAG "uid", s->uid);
    add_tag(body, &n, AWS_TAG "spec", s->spec_hash);
    time_format_utc(when, sizeof when, s->created_s);
    add_tag(body, &n, AWS_TAG "created", when);
    time_format_utc(when, sizeof when, s->expires_s);
    add_tag(body, &n, AWS_TAG "expires", when);
    if (claim) add_tag(body, &n, AWS_TAG "claim", "1");
}

int aws_group_create(struct aws *a, const struct stack *s, const char *region, const char *vpc,
                     const char *name, bool claim, struct aws_group *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    group_body(s, vpc, name, claim, &body);
    struct intent in = {.uid = xstrdup(s->uid), .provider = xstrdup("aws"),
                        .region = xstrdup(region), .zone = xstrdup(""), .kind = RES_GROUP,
                        .slot_first = -1, .token = xstrdup(name), .body = xstrdup(body.s),
                        .offer = xstrdup(""), .created_s = clock_wall_s(),
                        .deadline_s = s->expires_s, .state = INTENT_OPEN, .note = xstrdup("")};
    int r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        struct gp_error e = {0};
        r = aws_ec2(a, region, "CreateSecurityGroup", &body, AWS_ONCE, &reply, &e);
        const char *id = xml_str(reply.xml, "groupId", "");
        if (r == 0 && id[0] == '\0') {
            r = gp_fail(&e, GP_EUNKNOWN, "ec2 CreateSecurityGroup in %s: no id in the reply", region);
        } else if (r == 0) {
            struct resource_list made = {0};
            struct aws_group g = {.id = xstrdup(id), .name = xstrdup(name), .vpc = xstrdup(vpc),
                                  .owner = xstrdup(s->owner), .stack = xstrdup(s->name),
                                  .uid = xstrdup(s->uid), .spec = xstrdup(s->spec_hash),
                                  .created_s = s->created_s, .expires_s = s->expires_s,
                                  .claim = claim};
            struct resource one;
            aws_group_resource(&g, region, &one);
            vec_push(&made.list, one);
            r = journal_intent_done(a->journal, in.id, &made, &e);
            if (r == 0) {
                aws_group_clear(ret);
                *ret = g;
            } else {
                aws_group_clear(&g);
            }
            resource_list_clear(&made);
        } else if (r != -GP_EUNKNOWN) {
            int j = journal_intent_end(a->journal, in.id, INTENT_FAILED, e.detail, NULL);
            if (j != 0) r = gp_fail(err, GP_EIO, "the journal could not end an intent");
        }
        if (r != 0 && err != NULL && err->code == GP_OK) *err = e;
    }
    intent_clear(&in);
    return r;
}

int aws_group_settle(struct aws *a, const char *region, const struct aws_group *g,
                     struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(a->journal, NULL, 1U << INTENT_OPEN | 1U << INTENT_TOMBSTONE, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++) {
        const struct intent *in = &open.list.items[i];
        if (in->kind != RES_GROUP || !str_eq(in->provider, "aws") || !str_eq(in->region, region) ||
            !str_eq(in->token, g->name))
            continue;
        if (!str_eq(in->uid, g->uid)) {
            r = journal_intent_end(a->journal, in->id, INTENT_FAILED, "another claim won", err);
            continue;
        }
        struct resource_list made = {0};
        struct resource one;
        aws_group_resource(g, region, &one);
        vec_push(&made.list, one);
        r = journal_intent_done(a->journal, in->id, &made, err);
        resource_list_clear(&made);
    }
    intent_list_clear(&open);
    return r;
}

/* --- rules --- */

static int public_cidr(struct aws *a, const char **ret, struct gp_error *err) {
    const char *own = getenv("GPUPROV_CHECKIP_URL");
    const char *url = own != NULL && own[0] != '\0' ? own : "https://checkip.amazonaws.com";
    if (a->cache->public_cidr == NULL) {
        GP_AUTO_RESP struct http_resp resp = {0};
        struct http_req req = {.what = "this controller's public address", .method = "GET",
                               .url = url, .repeatable = true, .tries = 3, .timeout_ms = 10000,
                               .max_body = 4096};
        int r = http_call(a->http, &req, &resp, err);
        if (r != 0) return gp_wrap(err, "access.ssh_from is not given, and");
        char *text = str_trim(resp.body.s != NULL ? resp.body.s : (char[]){0});
        unsigned char raw[16];
        bool v4 = inet_pton(AF_INET, text, raw) == 1, v6 = inet_pton(AF_INET6, text, raw) == 1;
        if (resp.status != 200 || (!v4 && !v6))
            return gp_fail(err, GP_EENV, "%s did not tell this controller's public address (HTTP %d): "
                           "give access.ssh_from", url, resp.status);
        a->cache->public_cidr = xasprintf("%s/%d", text, v4 ? 32 : 128);
    }
    *ret = a->cache->public_cidr;
    return 0;
}

static void permit_members(struct str *body, int n, const char *group) {
    aws_paramf(body, "-1", "IpPermissions.%d.IpProtocol", n);
    aws_paramf(body, group, "IpPermissions.%d.Groups.1.GroupId", n);
}

static void permit_ssh(struct str *body, int n, const char *cidr) {
    aws_paramf(body, "tcp", "IpPermissions.%d.IpProtocol", n);
    aws_paramf(body, "22", "IpPermissions.%d.FromPort", n);
    aws_paramf(body, "22", "IpPermissions.%d.ToPort", n);
    if (strchr(cidr, ':') != NULL)
        aws_paramf(body, cidr, "IpPermissions.%d.Ipv6Ranges.1.CidrIpv6", n);
    else
        aws_paramf(body, cidr, "IpPermissions.%d.IpRanges.1.CidrIp", n);
}

static int authorize(struct aws *a, const char *region, const char *id, const char *const *cidrs,
                     size_t n, bool members, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    struct gp_error e = {0};
    int count = 0;
    aws_begin(&body, "AuthorizeSecurityGroupIngress");
    aws_param(&body, "GroupId", id);
    if (members) permit_members(&body, ++count, id);
    for (size_t i = 0; i < n; i++) permit_ssh(&body, ++count, cidrs[i]);
    if (count == 0) return 0;
    int r = aws_ec2(a, region, "AuthorizeSecurityGroupIngress", &body, 0, &reply, &e);
    if (r == -GP_EEXISTS && count > 1) { /* somebody added one of them meanwhile: one by one */
        r = authorize(a, region, id, NULL, 0, members, err);
        for (size_t i = 0; r == 0 && i < n; i++) r = authorize(a, region, id, &cidrs[i], 1, false, err);
        return r;
    }
    if (r == -GP_EEXISTS) return 0;
    if (r != 0 && err != NULL) *err = e;
    return r;
}

int aws_group_rules(struct aws *a, const struct spec *spec, const char *region,
                    const struct aws_group *g, struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, g->id);
    if (strv_has(&a->cache->groups_ready, key)) return 0;
    GP_AUTO_STRV struct strv missing = {0};
    const char *own = NULL;
    int r = spec->access.ssh_from.n == 0 ? public_cidr(a, &own, err) : 0;
    if (own != NULL && !strv_has(&g->ssh, own)) strv_add(&missing, own);
    for (size_t i = 0; i < spec->access.ssh_from.n; i++)
        if (!strv_has(&g->ssh, spec->access.ssh_from.v[i]))
            strv_add(&missing, spec->access.ssh_from.v[i]);
    for (int i = 0; r == 0; i++) { /* a new group may be unknown for a moment */
        struct gp_error e = {0};
        int one = authorize(a, region, g->id, (const char *const *)missing.v, missing.n, !g->members,
                            &e);
        if (one == 0) break;
        if (one != -GP_ENOTFOUND || i == 4) {
            if (err != NULL) *err = e;
            return one;
        }
        if (gp_sleep(500 << i, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
    if (r == 0) strv_add(&a->cache->groups_ready, key);
    return r;
}

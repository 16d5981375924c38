// SPDX-License-Identifier: Apache-2.0
/* The ingress rules of a security group: exactly those of the spec. Missing rules
 * are added first, then all others are revoked and reported. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "providers/common/ssh_from.h"

/* --- expected rules --- */

static bool is_ssh(const struct aws_rule *r) {
    return strcmp(r->protocol, "tcp") == 0 && strcmp(r->from, "22") == 0 && strcmp(r->to, "22") == 0 &&
           (r->kind == AWS_FROM_IPV4 || r->kind == AWS_FROM_IPV6);
}

static bool is_members(const struct aws_group *g, const struct aws_rule *r) {
    return r->kind == AWS_FROM_GROUP && strcmp(r->protocol, "-1") == 0 && strcmp(r->source, g->id) == 0;
}

static bool has_ssh(const struct aws_group *g, const char *cidr) {
    for (size_t i = 0; i < g->rules.len; i++)
        if (is_ssh(&g->rules.items[i]) && ssh_from_same(g->rules.items[i].source, cidr)) return true;
    return false;
}

static bool has_members(const struct aws_group *g) {
    for (size_t i = 0; i < g->rules.len; i++)
        if (is_members(g, &g->rules.items[i])) return true;
    return false;
}

static bool wanted(const struct aws_group *g, const struct aws_rule *r, const struct strv *from) {
    if (is_members(g, r)) return true;
    for (size_t i = 0; is_ssh(r) && i < from->n; i++)
        if (ssh_from_same(r->source, from->v[i])) return true;
    return false;
}

/* --- add and revoke --- */

static void put_rule(struct str *body, int n, const struct aws_rule *r) {
    static const char *const names[] = {[AWS_FROM_IPV4] = "IpRanges.1.CidrIp",
                                        [AWS_FROM_IPV6] = "Ipv6Ranges.1.CidrIpv6",
                                        [AWS_FROM_PREFIX_LIST] = "PrefixListIds.1.PrefixListId",
                                        [AWS_FROM_GROUP] = "Groups.1.GroupId"};
    aws_paramf(body, r->protocol, "IpPermissions.%d.IpProtocol", n);
    if (r->from[0] != '\0') aws_paramf(body, r->from, "IpPermissions.%d.FromPort", n);
    if (r->to[0] != '\0') aws_paramf(body, r->to, "IpPermissions.%d.ToPort", n);
    aws_paramf(body, r->source, "IpPermissions.%d.%s", n, names[r->kind]);
    if (r->account[0] != '\0') aws_paramf(body, r->account, "IpPermissions.%d.Groups.1.UserId", n);
}

struct rules {
    VEC_OF(struct aws_rule) list; /* strings borrowed */
};

static int change(struct aws *a, const char *action, const char *region, const char *group,
                  const struct aws_rule *rules, size_t n, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    aws_begin(&body, action);
    aws_param(&body, "GroupId", group);
    for (size_t i = 0; i < n; i++) put_rule(&body, (int)i + 1, &rules[i]);
    return aws_ec2(a, region, action, &body, 0, &reply, err);
}

/* All in one call; where one of them already exists (or is gone), one by one. */
static int change_all(struct aws *a, const char *action, int done_already, const char *region, const char *group,
                      const struct rules *r, struct gp_error *err) {
    struct gp_error e = {0};
    if (r->list.len == 0) return 0;
    int rc = change(a, action, region, group, r->list.items, r->list.len, &e);
    bool partly = rc == done_already && r->list.len > 1;
    for (size_t i = 0; partly && i < r->list.len; i++) {
        gp_error_clear(&e);
        rc = change(a, action, region, group, &r->list.items[i], 1, &e);
        if (rc != 0 && rc != done_already) break;
    }
    if (rc == 0 || rc == done_already) return 0;
    if (err != NULL) *err = e;
    return rc;
}

static char empty[] = "", tcp[] = "tcp", ssh_port[] = "22", any[] = "-1";

static void find_missing(const struct aws_group *g, const struct strv *from, struct rules *ret) {
    if (!has_members(g)) {
        struct aws_rule members = {
            .protocol = any, .from = empty, .to = empty, .kind = AWS_FROM_GROUP, .source = g->id, .account = empty};
        vec_push(&ret->list, members);
    }
    for (size_t i = 0; i < from->n; i++) {
        struct aws_rule ssh = {.protocol = tcp,
                               .from = ssh_port,
                               .to = ssh_port,
                               .account = empty,
                               .kind = strchr(from->v[i], ':') != NULL ? AWS_FROM_IPV6 : AWS_FROM_IPV4,
                               .source = from->v[i]};
        if (!has_ssh(g, from->v[i])) vec_push(&ret->list, ssh);
    }
}

static int add_missing(struct aws *a, const char *region, const struct aws_group *g, const struct rules *missing,
                       struct gp_error *err) {
    for (int i = 0;; i++) { /* EC2 may not find a new group for a moment */
        struct gp_error e = {0};
        int r = change_all(a, "AuthorizeSecurityGroupIngress", -GP_EEXISTS, region, g->id, missing, &e);
        if (r == 0) return 0;
        if (r != -GP_ENOTFOUND || i == 4) {
            if (err != NULL) *err = e;
            return r;
        }
        if (gp_sleep(500 << i, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
}

static void say_revoked(struct aws *a, const struct aws_group *g, const struct aws_rule *r) {
    bool ports = r->from[0] != '\0' && strcmp(r->from, r->to) != 0;
    GP_AUTO_FREE char *text =
        xasprintf("security group %s allowed %s%s%s%s%s from %s, which access.ssh_from does not list: revoked", g->id,
                  strcmp(r->protocol, "-1") == 0 ? "everything" : r->protocol, r->from[0] ? " " : "", r->from,
                  ports ? "-" : "", ports ? r->to : "", r->source);
    str_one_line(text);
    event_emit(a->sink, -1, NODE_LAUNCHING, EVENT_WARN, "access", "%s", text);
}

static void find_foreign(const struct aws_group *g, const struct strv *from, struct rules *ret) {
    for (size_t i = 0; i < g->rules.len; i++)
        if (!wanted(g, &g->rules.items[i], from)) vec_push(&ret->list, g->rules.items[i]);
}

/* EC2 also reports success for a revoke of rules that it does not recognize, so the group is read again. */
static int revoke(struct aws *a, const char *region, const struct aws_group *g, const struct strv *from,
                  const struct rules *foreign, struct gp_error *err) {
    if (foreign->list.len == 0) return 0;
    int r = change_all(a, "RevokeSecurityGroupIngress", -GP_ENOTFOUND, region, g->id, foreign, err);
    for (int i = 0; r == 0; i++) {
        struct aws_group now = {0};
        struct rules left = {0};
        r = aws_group_by_id(a, region, g->id, &now, err);
        if (r == 0) find_foreign(&now, from, &left);
        bool none = left.list.len == 0;
        if (r == 0 && !none && i == 4)
            r = gp_fail(err, GP_EPROTO,
                        "security group %s still allows access that access.ssh_from does not list (from "
                        "%.60s): remove that rule in the cloud's console",
                        g->id, left.list.items[0].source);
        vec_free(&left.list);
        aws_group_clear(&now);
        if (r == 0 && none) break;
        if (r == 0 && gp_sleep(500 << i, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
    for (size_t i = 0; r == 0 && i < foreign->list.len; i++) say_revoked(a, g, &foreign->list.items[i]);
    return r;
}

int aws_group_rules(struct aws *a, const struct spec *spec, const char *region, const struct aws_group *g,
                    struct gp_error *err) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, g->id);
    if (strv_has(&a->cache->groups_ready, key)) return 0;
    GP_AUTO_STRV struct strv from = {0};
    struct ssh_from networks = {a->http, spec, "aws", region, aws_home(a), &a->cache->public_cidr};
    int r = ssh_from_read(&networks, &from, err);
    if (r != 0) return r;
    struct rules missing = {0}, foreign = {0};
    find_missing(g, &from, &missing);
    find_foreign(g, &from, &foreign);
    r = add_missing(a, region, g, &missing, err);
    if (r == 0) r = revoke(a, region, g, &from, &foreign, err);
    vec_free(&missing.list);
    vec_free(&foreign.list);
    if (r == 0) strv_add(&a->cache->groups_ready, key);
    return r;
}

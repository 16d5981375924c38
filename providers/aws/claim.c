// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack: a security group named gpuprov-OWNER-STACK in the default VPC of the home
 * region, with uid, spec and expiry as tags of the very call that makes it. EC2 keeps the name unique,
 * so of two claims at once one wins and the other reads the winner. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/fs.h"

#define CLAIM_FRESH_MS (60 * 1000) /* later it is read again before something is launched into it */

static int on_vpc(void *ctx, const struct xml_node *item, struct gp_error *err) {
    char **id = ctx;
    (void)err;
    if (*id == NULL) *id = xstrdup(xml_str(item, "vpcId", ""));
    return 0;
}

/* The default VPC; without one the VPC of the first subnet that the spec names in this region. */
static int claim_vpc(struct aws *a, const char *region, const struct spec *spec, char **ret,
                     struct gp_error *err) {
    const struct aws_subnet *seen = aws_subnet_seen(a, region, NULL);
    if (seen != NULL) { /* default subnets are in the default VPC only */
        *ret = xstrdup(seen->vpc);
        return 0;
    }
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeVpcs");
    aws_filter(&body, 1, "is-default", "true");
    int r = aws_describe(a, region, "DescribeVpcs", &body, 0, "vpcSet", on_vpc, ret, err);
    for (size_t i = 0; r == 0 && *ret == NULL && i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        struct aws_subnets subnets = {0};
        if (!str_eq(o->provider, "aws") || o->subnet == NULL) continue;
        if (aws_subnets_find(a, region, o->subnet, &subnets, NULL) == 0 && subnets.list.len > 0)
            *ret = xstrdup(subnets.list.items[0].vpc);
        aws_subnets_clear(&subnets);
    }
    if (r == 0 && *ret == NULL) {
        r = gp_fail(err, GP_EUSAGE, "aws %s has no default VPC: give a subnet in the offer", region);
        if (err != NULL) err->scope = GP_SCOPE_REGION;
    }
    return r;
}

static int check_owner(const struct aws_group *g, const struct stack *s, struct gp_error *err) {
    if (str_eq(g->owner, s->owner) && str_eq(g->stack, s->name) && g->uid[0] != '\0') return 0;
    if (g->owner[0] == '\0' || g->uid[0] == '\0')
        return gp_fail(err, GP_EEXISTS, "aws: the security group '%s' (%s) exists but has no gpuprov "
                       "tags: remove it, or choose another stack name", g->name, g->id);
    return gp_fail(err, GP_EEXISTS, "aws: '%s' (%s) belongs to the stack '%s' of '%s': choose another "
                   "stack name or --owner", g->name, g->id, g->stack, g->owner);
}

static void take_claim(struct stack *s, const struct aws_group *g) {
    free(s->uid);
    s->uid = xstrdup(g->uid);
    free(s->spec_hash);
    s->spec_hash = xstrdup(g->spec);
    if (g->created_s > 0) s->created_s = g->created_s;
    if (g->expires_s > 0) s->expires_s = g->expires_s;
}

/* Reads or makes the claim; at the end *g is what the cloud holds. One that nobody saw is not read
 * first: where it is there after all EC2 refuses the name, and then it is read. */
static int claim(struct aws *a, struct stack *s, const char *vpc, const char *name,
                 struct aws_group *g, struct gp_error *err) {
    char uid[17];
    int r = fs_random_hex(uid, 8, err);
    if (r != 0) return r;
    struct gp_error last = {0};
    bool read = s->uid != NULL;
    for (int i = 0; i < 8; i++, read = true) {
        if (read) r = aws_group_find(a, s->region, vpc, name, g, err);
        if (r != 0 || g->id != NULL) return r;
        if (i > 0 && gp_sleep(100 << i, a->cancel, NULL) != 0)
            return gp_fail(err, GP_ECANCELLED, "cancelled");
        struct stack fresh = {.owner = s->owner, .name = s->name, .uid = uid,
                              .spec_hash = s->spec_hash, .created_s = aws_now_s(a),
                              .expires_s = s->expires_s};
        gp_error_clear(&last);
        r = aws_group_create(a, &fresh, s->region, vpc, name, true, g, &last);
        if (r == 0) return 0;
        /* The name is taken, or nobody knows: both are settled by reading it. */
        if (r != -GP_EEXISTS && r != -GP_EUNKNOWN) break;
        r = 0;
    }
    /* Who may make no (further) group can still have this one. */
    if (!read && aws_group_find(a, s->region, vpc, name, g, NULL) == 0 && g->id != NULL) return 0;
    if (err != NULL) *err = last;
    return -(int)last.code;
}

static void remember(struct aws *a, const char *region, const struct aws_group *g) {
    resource_set(&a->cache->claim.region, region);
    resource_set(&a->cache->claim.vpc, g->vpc);
    resource_set(&a->cache->claim.uid, g->uid);
    resource_set(&a->cache->claim.id, g->id);
    a->cache->claim.until_ms = clock_deadline(CLAIM_FRESH_MS);
}

static bool remembered(const struct aws *a, const char *region, const char *vpc, const char *uid) {
    return a->cache->claim.id != NULL && clock_left_ms(a->cache->claim.until_ms) > 0 &&
           str_eq(a->cache->claim.region, region) && str_eq(a->cache->claim.vpc, vpc) &&
           str_eq(a->cache->claim.uid, uid);
}

int aws_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct aws *a = aws_of(p);
    struct stack *s = req->stack;
    GP_AUTO_FREE char *vpc = NULL;
    GP_AUTO_FREE char *name = aws_group_name(s->owner, s->name, NULL);
    struct aws_group g = {0};
    if (s->region == NULL || s->region[0] == '\0') {
        free(s->region);
        s->region = xstrdup(aws_home(a));
    }
    int r = claim_vpc(a, s->region, req->spec, &vpc, err);
    if (r == 0) r = claim(a, s, vpc, name, &g, err);
    if (r == 0) r = check_owner(&g, s, err);
    if (r == 0) r = aws_group_settle(a, s->region, &g, err);
    if (r == 0) {
        struct resource one;
        take_claim(s, &g);
        aws_group_resource(&g, s->region, &one);
        r = journal_resource_put(a->journal, &one, err);
        resource_clear(&one);
    }
    if (r == 0) r = aws_group_rules(a, req->spec, s->region, &g, err);
    if (r == 0) remember(a, s->region, &g);
    aws_group_clear(&g);
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}

int aws_group_ensure(struct aws *a, const struct stack *stack, const struct spec *spec,
                     const char *region, const char *vpc, char **ret_id, struct gp_error *err) {
    if (remembered(a, region, vpc, stack->uid)) {
        *ret_id = xstrdup(a->cache->claim.id);
        return 0;
    }
    GP_AUTO_FREE char *claim_name = aws_group_name(stack->owner, stack->name, NULL);
    GP_AUTO_FREE char *own_name = aws_group_name(stack->owner, stack->name, stack->uid);
    struct aws_group g = {0};
    int r = aws_group_find(a, region, vpc, claim_name, &g, err);
    if (r == 0 && (g.id == NULL || !str_eq(g.uid, stack->uid))) {
        aws_group_clear(&g); /* another region or VPC: a group beside the claim */
        r = aws_group_find(a, region, vpc, own_name, &g, err);
        if (r == 0 && g.id == NULL) {
            struct gp_error e = {0};
            r = aws_group_create(a, stack, region, vpc, own_name, false, &g, &e);
            if (r == -GP_EEXISTS || r == -GP_EUNKNOWN) {
                aws_group_clear(&g);
                r = aws_group_find(a, region, vpc, own_name, &g, err);
                if (r == 0 && g.id != NULL) r = aws_group_settle(a, region, &g, err);
                if (r == 0 && g.id == NULL)
                    r = gp_fail(err, GP_EPROTO, "%s: it could not be read back: run the same command "
                                "again", e.msg);
            } else if (r != 0 && err != NULL) {
                *err = e;
            }
        }
    }
    if (r == 0) r = aws_group_rules(a, spec, region, &g, err);
    if (r == 0) *ret_id = xstrdup(g.id);
    aws_group_clear(&g);
    return r;
}

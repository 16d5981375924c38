// SPDX-License-Identifier: Apache-2.0
/* The claim of a stack: a security group named gpuprov-OWNER-STACK in the default VPC of the home
 * region, with uid, spec and expiry as tags of the same create call. EC2 keeps the name unique,
 * so of two concurrent claims one wins and the other reads the winner. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/fs.h"

#define CLAIM_SHARED_S 600         /* age up to which another run may still be working on a claim */
#define CLAIM_FRESH_MS (60 * 1000) /* an older one is read again before a launch */

static int on_vpc(void *ctx, const struct xml_node *item, struct gp_error *err) {
    char **id = ctx;
    (void)err;
    if (*id == NULL) *id = xstrdup(xml_str(item, "vpcId", ""));
    return 0;
}

/* The default VPC; without one the VPC of the first subnet that the spec names in this region. */
static int claim_vpc(struct aws *a, const char *region, const struct spec *spec, char **ret, struct gp_error *err) {
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

/* The regions where a stack of this spec may have resources at EC2. */
static void spec_regions(const struct aws *a, const struct spec *spec, const struct stack *s, struct strv *ret) {
    strv_add(ret, s->region);
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (!str_eq(o->provider, "aws")) continue;
        for (size_t k = 0; k < o->regions.n; k++) strv_add(ret, o->regions.v[k]);
        if (o->regions.n == 0) strv_add(ret, aws_home(a));
    }
}

/* A claim that another run of the same spec created a moment ago: both runs use its times, so that both send
 * equal requests. The spec's times replace those of any other claim without machines. */
static bool shares_times(const struct aws *a, const struct tags *t, const struct stack *s) {
    int64_t age_s = aws_now_s(a) - t->created_s;
    int64_t ttl_s = s->expires_s - (s->created_s > 0 ? s->created_s : aws_now_s(a));
    return t->created_s > 0 && age_s < CLAIM_SHARED_S && age_s > -CLAIM_SHARED_S &&
           str_eq(t->spec_hash, s->spec_hash) && llabs(t->expires_s - t->created_s - ttl_s) <= 60;
}

static void add_new_tag(struct str *body, int *n, const char *key, const char *value) {
    (*n)++;
    aws_paramf(body, key, "Tag.%d.Key", *n);
    aws_paramf(body, value, "Tag.%d.Value", *n);
}

/* Tags each region that the claim does not name yet. One tag per region, so that two concurrent runs do not
 * overwrite each other. A claim that names none stands for all. */
static void add_regions(const struct strv *regions, const struct aws_group *g, struct str *body, int *n) {
    GP_AUTO_FREE char *named = tags_regions(&g->tags);
    GP_AUTO_STRV struct strv before = {0};
    if (!tags_regions_split(named, &before)) return;
    for (size_t i = 0; i < regions->n; i++) {
        if (strv_has(&before, regions->v[i])) continue;
        strv_add(&before, regions->v[i]);
        GP_AUTO_FREE char *key = xasprintf(AWS_TAG TAGS_REGION "%s", regions->v[i]);
        add_new_tag(body, n, key, TAGS_YES);
    }
}

/* Updates the claim's own tags from the stack. */
static int retag(struct aws *a, const struct stack *s, const struct strv *regions, bool times, struct aws_group *g,
                 struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    char when[32];
    int n = 0;
    aws_begin(&body, "CreateTags");
    aws_param(&body, "ResourceId.1", g->id);
    add_regions(regions, g, &body, &n);
    if (times) {
        time_format_utc(when, sizeof when, s->created_s);
        add_new_tag(&body, &n, AWS_TAG "created", when);
        time_format_utc(when, sizeof when, s->expires_s);
        add_new_tag(&body, &n, AWS_TAG "expires", when);
        add_new_tag(&body, &n, AWS_TAG "spec", s->spec_hash);
    }
    if (n == 0) return 0;
    int r = aws_ec2(a, s->region, "CreateTags", &body, 0, &reply, err);
    if (r != 0) return gp_wrap(err, "could not update the claim %s", g->id);
    for (size_t i = 0; i < regions->n; i++) {
        GP_AUTO_FREE char *key = xasprintf(TAGS_REGION "%s", regions->v[i]);
        tags_read(&g->tags, key, TAGS_YES);
    }
    if (!times) return 0;
    g->tags.created_s = s->created_s;
    g->tags.expires_s = s->expires_s;
    resource_set(&g->tags.spec_hash, s->spec_hash);
    return 0;
}

/* Continues with the claim as the cloud has it. made: this call created it. */
static int take_claim(struct aws *a, const struct prepare_req *req, bool made, struct aws_group *g,
                      struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_STRV struct strv regions = {0};
    bool shared = made || shares_times(a, &g->tags, s);
    free(s->uid);
    s->uid = xstrdup(g->tags.uid);
    if (shared) {
        s->created_s = g->tags.created_s;
        s->expires_s = g->tags.expires_s;
    }
    spec_regions(a, req->spec, s, &regions);
    return retag(a, s, &regions, !shared, g, err);
}

/* Reads or creates the claim; at the end *g is the cloud's group. An unseen claim is not read
 * first: if it exists, EC2 refuses the name, and then it is read. */
static int claim(struct aws *a, const struct prepare_req *req, const char *vpc, const char *name, bool *ret_made,
                 struct aws_group *g, struct gp_error *err) {
    struct stack *s = req->stack;
    GP_AUTO_STRV struct strv names = {0};
    spec_regions(a, req->spec, s, &names);
    GP_AUTO_FREE char *regions = tags_regions_text(&names);
    char uid[17];
    int r = fs_random_hex(uid, 8, err);
    if (r != 0) return r;
    struct gp_error last = {0};
    bool read = s->uid != NULL;
    for (int i = 0; i < 8; i++, read = true) {
        if (read) r = aws_group_find(a, s->region, vpc, name, g, err);
        if (r != 0 || g->id != NULL) return r;
        if (i > 0 && gp_sleep(100 << i, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
        struct stack fresh = {.owner = s->owner,
                              .name = s->name,
                              .uid = req->further ? s->uid : uid,
                              .spec_hash = s->spec_hash,
                              .unit = s->unit,
                              .created_s = aws_now_s(a),
                              .expires_s = s->expires_s};
        gp_error_clear(&last);
        r = aws_group_create(a, &fresh, s->region, vpc, name, regions, g, &last);
        *ret_made = r == 0;
        if (r == 0) return 0;
        /* The name is taken, or the outcome is unknown: reading the group settles both. */
        if (r != -GP_EEXISTS && r != -GP_EUNKNOWN) break;
        r = 0;
    }
    /* Without permission to create a (further) group this one may still exist. */
    if (!read && aws_group_find(a, s->region, vpc, name, g, NULL) == 0 && g->id != NULL) return 0;
    if (err != NULL) *err = last;
    return -(int)last.code;
}

static void remember(struct aws *a, const char *region, const struct aws_group *g) {
    resource_set(&a->cache->claim.region, region);
    resource_set(&a->cache->claim.vpc, g->vpc);
    resource_set(&a->cache->claim.uid, g->tags.uid);
    resource_set(&a->cache->claim.id, g->id);
    a->cache->claim.until_ms = clock_deadline(CLAIM_FRESH_MS);
}

static bool remembered(const struct aws *a, const char *region, const char *vpc, const char *uid) {
    return a->cache->claim.id != NULL && clock_left_ms(a->cache->claim.until_ms) > 0 &&
           str_eq(a->cache->claim.region, region) && str_eq(a->cache->claim.vpc, vpc) &&
           str_eq(a->cache->claim.uid, uid);
}

/* A stack that has machines keeps its claim. Its groups get the rules of the current spec, and the claim
 * also names the regions of this spec. */
static int apply_access(struct aws *a, const struct prepare_req *req, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        struct aws_group g = {0};
        bool its = k->kind == RES_GROUP && k->state != RES_GONE && str_eq(k->provider, "aws") &&
                   str_eq(k->uid, req->stack->uid);
        if (!its) continue;
        r = aws_group_by_id(a, k->region, k->id, &g, err);
        if (r == 0 && g.id != NULL) r = aws_group_is_of(&g, req->stack, req->stack->uid, err);
        if (r == 0 && g.id != NULL) r = aws_group_rules(a, req->spec, k->region, &g, err);
        if (r == 0 && g.id != NULL && g.tags.claim) {
            struct stack at = *req->stack;
            at.region = k->region;
            GP_AUTO_STRV struct strv regions = {0};
            spec_regions(a, req->spec, &at, &regions);
            r = retag(a, &at, &regions, false, &g, err);
        }
        aws_group_clear(&g);
    }
    return r != 0 ? gp_wrap(err, "access of stack '%s'", req->stack->name) : 0;
}

int aws_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct aws *a = aws_of(p);
    struct stack *s = req->stack;
    GP_AUTO_FREE char *vpc = NULL;
    GP_AUTO_FREE char *name = aws_group_name(s->owner, s->name, NULL);
    struct aws_group g = {0};
    bool made = false;
    if (req->known != NULL) return apply_access(a, req, err);
    if (s->region == NULL || s->region[0] == '\0') {
        free(s->region);
        s->region = xstrdup(aws_home(a));
    }
    int r = claim_vpc(a, s->region, req->spec, &vpc, err);
    if (r == 0) r = claim(a, req, vpc, name, &made, &g, err);
    if (r == 0) r = aws_group_is_of(&g, s, req->further ? s->uid : NULL, err);
    if (r == 0) r = aws_group_settle(a, s->region, &g, err);
    if (r == 0) r = take_claim(a, req, made, &g, err);
    if (r == 0) {
        struct resource one;
        aws_group_resource(&g, s->region, &one);
        r = journal_resource_put(a->journal, &one, err);
        resource_clear(&one);
    }
    if (r == 0) r = aws_group_rules(a, req->spec, s->region, &g, err);
    if (r == 0) remember(a, s->region, &g);
    aws_group_clear(&g);
    return r != 0 ? gp_wrap(err, "claim of stack '%s'", s->name) : 0;
}

int aws_group_ensure(struct aws *a, const struct stack *stack, const struct spec *spec, const char *region,
                     const char *vpc, char **ret_id, struct gp_error *err) {
    if (remembered(a, region, vpc, stack->uid)) {
        *ret_id = xstrdup(a->cache->claim.id);
        return 0;
    }
    GP_AUTO_FREE char *claim_name = aws_group_name(stack->owner, stack->name, NULL);
    GP_AUTO_FREE char *own_name = aws_group_name(stack->owner, stack->name, stack->uid);
    struct aws_group g = {0};
    int r = aws_group_find(a, region, vpc, claim_name, &g, err);
    if (r == 0 && (g.id == NULL || !str_eq(g.tags.uid, stack->uid))) {
        aws_group_clear(&g); /* another region or VPC: a group beside the claim */
        r = aws_group_find(a, region, vpc, own_name, &g, err);
        if (r == 0 && g.id == NULL) {
            struct gp_error e = {0};
            r = aws_group_create(a, stack, region, vpc, own_name, NULL, &g, &e);
            if (r == -GP_EEXISTS || r == -GP_EUNKNOWN) {
                aws_group_clear(&g);
                r = aws_group_find(a, region, vpc, own_name, &g, err);
                if (r == 0 && g.id != NULL) r = aws_group_settle(a, region, &g, err);
                if (r == 0 && g.id == NULL)
                    r = gp_fail(err, GP_EPROTO,
                                "%s: it could not be read back: run the same command "
                                "again",
                                e.msg);
            } else if (r != 0 && err != NULL) {
                *err = e;
            }
        }
    }
    if (r == 0) r = aws_group_is_of(&g, stack, stack->uid, err);
    if (r == 0) r = aws_group_rules(a, spec, region, &g, err);
    if (r == 0) *ret_id = xstrdup(g.id);
    aws_group_clear(&g);
    return r;
}

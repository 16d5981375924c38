// SPDX-License-Identifier: Apache-2.0
/* Destroys instances, then volumes that they left behind, then security and placement groups, the claim last.
 * Missing resources are success; a resource still in use is kept, and list shows it. One bad
 * id makes TerminateInstances refuse all, so a refused batch is repeated one by one. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "providers/common/ownership.h"

#define BATCH 100

static void first_error(struct gp_error *to, const struct gp_error *e) {
    if (to->code == GP_OK) *to = *e;
}

static int terminate(struct aws *a, const char *region, char *const *ids, size_t n, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    struct gp_error e = {0};
    aws_begin(&body, "TerminateInstances");
    for (size_t i = 0; i < n; i++) aws_paramf(&body, ids[i], "InstanceId.%zu", i + 1);
    int r = aws_ec2(a, region, "TerminateInstances", &body, 0, &reply, &e);
    if (r == 0 || (r == -GP_ENOTFOUND && n == 1)) return 0;
    if (n > 1 && r != -GP_ECANCELLED && r != -GP_EENDPOINT && r != -GP_ETHROTTLED) {
        struct gp_error first = {0};
        for (size_t i = 0; i < n; i++) {
            struct gp_error one = {0};
            if (terminate(a, region, &ids[i], 1, &one) != 0) first_error(&first, &one);
        }
        if (first.code == GP_OK) return 0;
        e = first;
    }
    if (err != NULL) *err = e;
    return -(int)e.code;
}

static int delete_one(struct aws *a, const char *region, const char *action, const char *param, const char *id,
                      struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    struct gp_error e = {0};
    aws_begin(&body, action);
    aws_param(&body, param, id);
    int r = aws_ec2(a, region, action, &body, 0, &reply, &e);
    /* EEXISTS: DependencyViolation, VolumeInUse: not yet. */
    if (r == 0 || r == -GP_ENOTFOUND || r == -GP_EEXISTS) return 0;
    if (err != NULL) *err = e;
    return r;
}

static size_t count_live(const struct resource_list *l) {
    size_t n = 0;
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].state != RES_GONE) n++;
    return n;
}

/* Instances of the stack that this region still shows alive, and when there are none its volumes. */
static int alive(struct aws *a, const struct resource *group, bool volumes, size_t *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct aws_wanted w = {.owner = group->owner, .uid = group->uid, .live = true};
    *ret = 0;
    int r = aws_list_instances(a, group->region, &w, &all, err);
    if (r == 0) *ret = count_live(&all);
    if (r != 0 || *ret > 0 || !volumes) return r;
    r = aws_list_volumes(a, group->region, &w, &all, err);
    if (r == 0) *ret = count_live(&all);
    return r;
}

static void destroy_instances(struct aws *a, const struct resource_list *what, struct gp_error *first) {
    GP_AUTO_STRV struct strv regions = {0};
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (r->kind == RES_INSTANCE && !strv_has(&regions, r->region)) strv_add(&regions, r->region);
    }
    for (size_t k = 0; k < regions.n; k++) {
        GP_AUTO_STRV struct strv ids = {0};
        for (size_t i = 0; i < what->list.len; i++) {
            const struct resource *r = &what->list.items[i];
            if (r->kind == RES_INSTANCE && r->state != RES_GONE && cloud_is_ours(&a->base, r) &&
                str_eq(r->region, regions.v[k]))
                strv_add(&ids, r->id);
        }
        for (size_t at = 0; at < ids.n; at += BATCH) {
            struct gp_error e = {0};
            if (terminate(a, regions.v[k], ids.v + at, GP_MIN(ids.n - at, BATCH), &e) != 0) first_error(first, &e);
        }
    }
}

/* A security group or a placement group. */
static void destroy_group(struct aws *a, const struct resource *g, bool volumes, struct gp_error *first) {
    struct gp_error e = {0};
    bool placement = g->kind == RES_PLACEMENT;
    size_t n = 0;
    /* EC2 refuses while a network interface exists, and the claim must outlive the last node. */
    if (alive(a, g, volumes, &n, &e) != 0) {
        first_error(first, &e);
    } else if (n == 0) {
        a->cache->claim.until_ms = 0;
        if (placement) strv_clear(&a->cache->placements);
        int r = placement ? delete_one(a, g->region, "DeletePlacementGroup", "GroupName", g->id, &e)
                          : delete_one(a, g->region, "DeleteSecurityGroup", "GroupId", g->id, &e);
        if (r != 0) first_error(first, &e);
    }
}

int aws_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct aws *a = aws_of(p);
    struct gp_error first = {0};
    bool elsewhere = false; /* a listed resource still exists: the claim stays */
    bool nodes = false;     /* the list is older than their end: it lacks the volumes that they leave behind */
    destroy_instances(a, what, &first);
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        struct gp_error e = {0};
        if (!cloud_is_ours(&a->base, r)) {
            gp_fail(&e, GP_EUSAGE, "aws: %s belongs to '%s', not to '%s': left alone", r->id, r->owner, a->base.owner);
            first_error(&first, &e);
        } else if (r->kind == RES_IMAGE) {
            if (delete_one(a, r->region, "DeregisterImage", "ImageId", r->id, &e) != 0) first_error(&first, &e);
        } else if (r->kind == RES_VOLUME && r->state == RES_STOPPED) {
            if (delete_one(a, r->region, "DeleteVolume", "VolumeId", r->id, &e) != 0) first_error(&first, &e);
        } else if ((r->kind == RES_GROUP && !r->claim) || (r->kind == RES_PLACEMENT && r->state != RES_GONE)) {
            destroy_group(a, r, false, &first);
            elsewhere = true; /* it may still exist: the next call removes the claim */
        }
    }
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        for (size_t k = 0; k < what->list.len; k++) {
            const struct resource *n = &what->list.items[k];
            if (n->kind != RES_INSTANCE || n->state == RES_GONE) continue;
            nodes = true;
            if (!str_eq(n->region, r->region))
                elsewhere = true; /* another region's node: this region's list cannot show its end */
        }
        if (r->kind == RES_GROUP && r->claim && cloud_is_ours(&a->base, r) && !elsewhere && first.code == GP_OK)
            destroy_group(a, r, nodes, &first);
    }
    for (size_t i = 0; i < what->list.len; i++) { /* EC2 keeps a snapshot while its image is registered */
        const struct resource *r = &what->list.items[i];
        struct gp_error e = {0};
        if (r->kind != RES_SNAPSHOT || !cloud_is_ours(&a->base, r)) continue;
        if (delete_one(a, r->region, "DeleteSnapshot", "SnapshotId", r->id, &e) != 0) first_error(&first, &e);
    }
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

/* Its tags move with the deadline: nodes, the claim and the groups beside it. */
static bool takes_tags(const struct aws *a, const struct resource *r, bool deadline) {
    bool group = r->kind == RES_GROUP && r->state != RES_GONE && deadline;
    return (r->kind == RES_INSTANCE || group) && cloud_is_ours(&a->base, r);
}

int aws_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                 struct gp_error *err) {
    struct aws *a = aws_of(p);
    GP_AUTO_STRV struct strv regions = {0};
    bool deadline = false;
    for (size_t t = 0; t < n; t++) deadline = deadline || str_eq(tags[t].key, "expires");
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (takes_tags(a, r, deadline) && !strv_has(&regions, r->region)) strv_add(&regions, r->region);
    }
    for (size_t k = 0; k < regions.n; k++) {
        GP_AUTO_STR struct str body = {0};
        GP_AUTO_REPLY struct aws_reply reply = {0};
        size_t ids = 0;
        aws_begin(&body, "CreateTags");
        for (size_t i = 0; i < what->list.len; i++) {
            const struct resource *r = &what->list.items[i];
            if (takes_tags(a, r, deadline) && str_eq(r->region, regions.v[k]))
                aws_paramf(&body, r->id, "ResourceId.%zu", ++ids);
        }
        if (ids == 0) continue;
        for (size_t t = 0; t < n; t++) {
            GP_AUTO_FREE char *full = xasprintf(AWS_TAG "%s", tags[t].key);
            aws_paramf(&body, full, "Tag.%zu.Key", t + 1);
            aws_paramf(&body, tags[t].value, "Tag.%zu.Value", t + 1);
        }
        int r = aws_ec2(a, regions.v[k], "CreateTags", &body, 0, &reply, err);
        if (r != 0) return r;
    }
    return 0;
}

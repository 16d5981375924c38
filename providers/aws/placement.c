// SPDX-License-Identifier: Apache-2.0
/* Cluster placement groups: the nodes of a gang with EFA are close to each other in EC2's network. One per stack and
 * zone, named gpuprov-OWNER/STACK/UID/ZONE, made after its intent, with all tags in that call. A group is one of
 * its name: EC2 deletes it by name only. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"
#include "providers/common/ownership.h"

char *aws_placement_name(const struct stack *s, const char *zone) {
    GP_AUTO_FREE char *group = aws_group_name(s->owner, s->name, s->uid);
    return xasprintf("%s/%s", group, zone);
}

/* A name of aws_placement_name's form: it becomes the argument of a delete. */
static bool name_valid(const char *name) {
    return str_starts(name, "gpuprov-") && strlen(name) <= 255 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@+=,/") == strlen(name);
}

static enum resource_state state_of(const char *state) {
    return strcmp(state, "deleted") == 0    ? RES_GONE
           : strcmp(state, "deleting") == 0 ? RES_STOPPING
           : strcmp(state, "pending") == 0  ? RES_PENDING
                                            : RES_RUNNING;
}

static void to_resource(const struct xml_node *item, const char *region, struct resource *ret) {
    struct tags tags;
    const char *name = xml_str(item, "groupName", "");
    resource_init(ret, RES_PLACEMENT, "aws");
    resource_set(&ret->region, region);
    resource_set(&ret->id, name_valid(name) ? name : "");
    aws_tags_decode(item, &tags);
    tags_to_resource(&tags, -1, ret);
    tags_clear(&tags);
    ret->state = state_of(xml_str(item, "state", ""));
    ret->price_usd_per_h = 0;
}

struct listing {
    const char *region;
    struct resource_list *out;
};

static int on_group(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    (void)err;
    to_resource(item, l->region, &r);
    /* A group of another name has the tags because somebody set them: gpuprov did not make it. */
    if (r.id[0] != '\0') vec_push(&l->out->list, r);
    else resource_clear(&r);
    return 0;
}

int aws_list_placements(struct aws *a, const char *region, const struct aws_wanted *w, struct resource_list *ret,
                        struct gp_error *err) {
    struct listing l = {region, ret};
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribePlacementGroups");
    aws_tag_filters(&body, 1, w);
    return aws_describe(a, region, "DescribePlacementGroups", &body, 0, "placementGroupSet", on_group, &l, err);
}

/* --- create --- */

/* The group of this name, by its tags. *ret_there false: it is not listed. */
static int find(struct aws *a, const struct stack *s, const char *region, const char *name, bool *ret_there,
                struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct aws_wanted w = {.owner = s->owner, .uid = s->uid};
    *ret_there = false;
    int r = aws_list_placements(a, region, &w, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len && !*ret_there; i++) {
        const struct resource *one = &all.list.items[i];
        if (strcmp(one->id, name) != 0 || one->state == RES_STOPPING || one->state == RES_GONE) continue;
        *ret_there = true;
        r = cloud_thing_settle(a->journal, one, name, err);
        if (r == 0) r = journal_resource_put(a->journal, one, err);
    }
    return r;
}

static int create(struct aws *a, const struct stack *s, const char *region, const char *name, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    struct tags tags;
    tags_of_stack(&tags, s);
    aws_begin(&body, "CreatePlacementGroup");
    aws_param(&body, "GroupName", name);
    aws_param(&body, "Strategy", "cluster");
    aws_tags_encode(&body, 1, "placement-group", name, &tags);
    struct intent in;
    cloud_intent_thing(s, "aws", region, RES_PLACEMENT, name, body.s, &in);
    int r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        struct gp_error why = {0};
        struct resource one;
        r = aws_ec2(a, region, "CreatePlacementGroup", &body, AWS_ONCE, &reply, &why);
        resource_init(&one, RES_PLACEMENT, "aws");
        resource_set(&one.region, region);
        resource_set(&one.id, name);
        tags_to_resource(&tags, -1, &one);
        one.state = RES_RUNNING;
        one.price_usd_per_h = 0;
        r = cloud_thing_created(a->journal, &in, r, &one, &why, err);
        resource_clear(&one);
    }
    intent_clear(&in);
    tags_clear(&tags);
    return r;
}

int aws_placement_ensure(struct aws *a, const struct stack *s, const char *region, const char *zone, char **ret_name,
                         struct gp_error *err) {
    GP_AUTO_FREE char *name = aws_placement_name(s, zone);
    GP_AUTO_FREE char *key = xasprintf("%s/%s", region, name);
    int r = 0;
    bool there = strv_has(&a->cache->placements, key);
    struct gp_error why = {0};
    if (!there) r = create(a, s, region, name, &why);
    /* The name is taken, or the outcome is unknown: a list settles both, and may lag behind. */
    bool settle = r == -GP_EEXISTS || r == -GP_EUNKNOWN;
    for (int i = 0; settle && !there; i++) {
        r = find(a, s, region, name, &there, err);
        if (r != 0) return gp_wrap(err, "the placement group %s", name);
        if (there || i == 5) break;
        if (gp_sleep(500 << i, a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
    if (settle && !there) {
        if (err != NULL) *err = why;
        return gp_wrap(err, "the placement group %s could not be read back: run the same command again", name);
    }
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    if (!strv_has(&a->cache->placements, key)) strv_add(&a->cache->placements, key);
    *ret_name = GP_STEAL(name);
    return 0;
}

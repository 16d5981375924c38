// SPDX-License-Identifier: Apache-2.0
/* Baked images: made of a stopped instance with CreateImage, listed by their tags, chosen for a spec. An image's name
 * is unique in its account and region and has the stack's uid, so a repeated request cannot make a second image. One
 * thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "model/image.h"
#include "providers/common/intents.h"

#define STOP_MS (10 * 60 * 1000)
#define POLL_MS 3000

/* --- list --- */

struct listing {
    const char *region;
    struct resource_list *out;
};

static int read_common(struct listing *l, const struct xml_node *item, enum resource_kind kind, const char *id_path,
                       const char *prefix, struct resource *ret, struct gp_error *err) {
    struct tags tags;
    const char *id = xml_str(item, id_path, "");
    resource_init(ret, kind, "aws");
    aws_tags_decode(item, &tags);
    tags_to_resource(&tags, -1, ret);
    tags_clear(&tags);
    resource_set(&ret->region, l->region);
    resource_set(&ret->id, id);
    if (ret->unreadable[0] == '\0' && ret->image[0] == '\0')
        resource_set(&ret->unreadable, "it has no tag of what it has");
    if (ret->unreadable[0] != '\0') { /* never used, never removed */
        resource_set(&ret->owner, "");
        resource_set(&ret->stack, "");
        resource_set(&ret->uid, "");
    }
    if (form_ec2_id(id, prefix)) return 0;
    return gp_fail(err, GP_EPROTO, "ec2 in %s: a reply has an id that is not an EC2 id (%s...)", l->region, prefix);
}

static void push(struct listing *l, struct resource *r, int rc) {
    if (rc == 0) vec_push(&l->out->list, *r);
    else resource_clear(r);
}

static int on_image(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    const char *state = xml_str(item, "imageState", "");
    int rc = read_common(l, item, RES_IMAGE, "imageId", "ami-", &r, err);
    static const char *const of_no_use[] = {"failed", "error", "invalid", NULL}; /* gc removes them */
    bool failed = false;
    for (size_t i = 0; of_no_use[i] != NULL; i++) failed = failed || strcmp(state, of_no_use[i]) == 0;
    r.state = strcmp(state, "available") == 0      ? RES_RUNNING
              : strcmp(state, "deregistered") == 0 ? RES_GONE
              : failed                             ? RES_STOPPED
                                                   : RES_PENDING; /* also transient, disabled and unknown ones */
    const char *reason = xml_str(item, "stateReason/message", "");
    bool plain = r.state == RES_RUNNING || strcmp(state, "pending") == 0;
    resource_set(&r.state_reason, !plain && reason[0] == '\0' ? state : reason);
    str_one_line(r.state_reason);
    r.billed = r.state != RES_GONE;
    r.price_usd_per_h = -1;
    push(l, &r, rc);
    return rc;
}

static int on_snapshot(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    const char *status = xml_str(item, "status", "");
    int rc = read_common(l, item, RES_SNAPSHOT, "snapshotId", "snap-", &r, err);
    r.state = strcmp(status, "pending") == 0 ? RES_PENDING : strcmp(status, "error") == 0 ? RES_STOPPED : RES_RUNNING;
    r.billed = true;
    r.price_usd_per_h = -1;
    push(l, &r, rc);
    return rc;
}

int aws_list_images(struct aws *a, const char *region, const char *owner, struct resource_list *ret,
                    struct gp_error *err) {
    struct listing l = {region, ret};
    struct aws_wanted w = {.owner = owner};
    GP_AUTO_STR struct str images = {0}, snapshots = {0};
    aws_begin(&images, "DescribeImages");
    aws_param(&images, "Owner.1", "self");
    aws_tag_filters(&images, 1, &w);
    int r = aws_describe(a, region, "DescribeImages", &images, 0, "imagesSet", on_image, &l, err);
    if (r != 0) return r;
    aws_begin(&snapshots, "DescribeSnapshots");
    aws_param(&snapshots, "Owner.1", "self");
    aws_tag_filters(&snapshots, 1, &w);
    return aws_describe(a, region, "DescribeSnapshots", &snapshots, 1000, "snapshotSet", on_snapshot, &l, err);
}

/* --- choice --- */

int aws_image_baked(struct aws *a, const char *region, const struct spec *spec, const struct spec_image *want,
                    const struct aws_type *type, char **ret_id, char **ret_why, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct image_facts facts;
    int r = aws_list_images(a, region, a->base.owner, &all, err);
    if (r != 0) return r;
    for (size_t i = 0; i < all.list.len; i++) /* a filter that the endpoint ignored shows others' images */
        if (!str_eq(all.list.items[i].owner, a->base.owner)) all.list.items[i].state = RES_GONE;
    image_facts_wanted(spec, want, strcmp(type->arch, "arm64") == 0 ? "aarch64" : type->arch, &facts);
    const struct resource *best = image_choose(&all, &facts, "aws", region, spec->name, NULL, ret_why);
    if (best != NULL) *ret_id = xstrdup(best->id);
    return 0;
}

/* --- make --- */

/* 3 to 128 of letters, digits and ()[] ./-'@_ */
static char *image_name(const struct image_req *q) { return xasprintf("gpuprov-%s-%s", q->name, q->stack->uid); }

static void add_tags(struct str *body, int n, const char *type, const char *name, const struct image_req *q,
                     int64_t now_s) {
    struct tags tags;
    tags_of_stack(&tags, q->stack);
    resource_set(&tags.stack, q->name);
    resource_set(&tags.image, q->facts);
    tags.created_s = now_s;
    tags.expires_s = 0; /* it outlives its stack */
    aws_tags_encode(body, n, type, name, &tags);
    tags_clear(&tags);
}

/* EC2 stops an instance that a shutdown from inside would terminate; its disk is at rest then. */
static int stop(struct aws *a, const struct resource *node, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    int64_t until = clock_deadline(STOP_MS);
    aws_begin(&body, "StopInstances");
    aws_param(&body, "InstanceId.1", node->id);
    int r = aws_ec2(a, node->region, "StopInstances", &body, 0, &reply, err);
    while (r == 0) {
        GP_AUTO_RESOURCES struct resource_list seen = {0};
        struct aws_wanted w = {.owner = node->owner, .uid = node->uid};
        r = aws_list_instances(a, node->region, &w, &seen, err);
        for (size_t i = 0; r == 0 && i < seen.list.len; i++) {
            const struct resource *s = &seen.list.items[i];
            if (strcmp(s->id, node->id) != 0) continue;
            if (s->state == RES_STOPPED) return 0;
            if (s->state == RES_GONE)
                return gp_fail(err, GP_EREACH, "aws: %s terminated before its image was made", node->id);
        }
        if (r == 0 && clock_left_ms(until) == 0)
            r = gp_fail(err, GP_ETIMEOUT, "aws: %s did not stop within 10 minutes: its image was not requested",
                        node->id);
        if (r == 0) r = gp_sleep(POLL_MS, a->cancel, err);
    }
    return r;
}

/* The image of the stack's uid in a list that may lag. *ret_found. */
static int find(struct aws *a, const struct intent *in, const char *owner, bool wait, struct resource *ret,
                bool *ret_found, struct gp_error *err) {
    int64_t until = clock_deadline(wait ? provider_aws.settle_ms : 0);
    for (;;) {
        GP_AUTO_RESOURCES struct resource_list all = {0};
        int r = aws_list_images(a, in->region, owner, &all, err);
        for (size_t i = 0; r == 0 && i < all.list.len && !*ret_found; i++) {
            const struct resource *s = &all.list.items[i];
            if (s->kind != RES_IMAGE || !str_eq(s->uid, in->uid) || !str_eq(s->owner, owner)) continue;
            resource_copy(ret, s);
            *ret_found = true;
        }
        if (r != 0 || *ret_found || clock_left_ms(until) == 0) return r;
        r = gp_sleep(POLL_MS, a->cancel, err);
        if (r != 0) return r;
    }
}

/* What the reply names and the list will show. */
static void made(const struct intent *in, const struct image_req *q, const char *id, struct resource *ret) {
    resource_init(ret, RES_IMAGE, "aws");
    resource_set(&ret->id, id);
    resource_set(&ret->region, in->region);
    resource_set(&ret->owner, q->stack->owner);
    resource_set(&ret->stack, q->name);
    resource_set(&ret->uid, in->uid);
    resource_set(&ret->image, q->facts);
    ret->state = RES_PENDING;
    ret->billed = true;
}

/* After a lost reply the same request is sent again: it cannot make a second image of that name. A name that is taken
 * is settled by the list. */
static int request(struct aws *a, const struct intent *in, const struct image_req *q, struct resource *ret,
                   struct gp_error *err) {
    struct gp_error why = {0};
    bool found = false;
    for (int tries = 0; tries < 2; tries++) {
        GP_AUTO_STR struct str body = {0};
        GP_AUTO_REPLY struct aws_reply reply = {0};
        gp_error_clear(&why);
        str_add(&body, in->body);
        int r = aws_ec2(a, in->region, "CreateImage", &body, AWS_ONCE, &reply, &why);
        const char *id = xml_str(reply.xml, "imageId", "");
        if (r == 0 && form_ec2_id(id, "ami-")) {
            made(in, q, id, ret);
            return 0;
        }
        if (r == 0) r = gp_fail(&why, GP_EUNKNOWN, "ec2 CreateImage in %s: no id in the reply", in->region);
        if (r != -GP_EUNKNOWN) break;
    }
    if (why.code == GP_EEXISTS || why.code == GP_EUNKNOWN) {
        struct gp_error list = {0};
        if (find(a, in, q->stack->owner, true, ret, &found, &list) != 0) why = list;
        if (found) return 0;
    }
    if (err != NULL) *err = why;
    return -(int)why.code;
}

static int aws_image_make(struct provider *p, const struct image_req *q, struct resource *ret, struct gp_error *err) {
    struct aws *a = aws_of(p);
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_FREE char *name = image_name(q);
    struct intent in = {0};
    bool found = false;
    if (q->replay != NULL) {
        int r = find(a, q->replay, q->stack->owner, false, ret, &found, err);
        if (r != 0 || found) return r;
        return request(a, q->replay, q, ret, err);
    }
    int r = stop(a, q->node, err);
    if (r != 0) return r;
    aws_begin(&body, "CreateImage");
    aws_param(&body, "InstanceId", q->node->id);
    aws_param(&body, "Name", name);
    aws_param(&body, "Description", "gpuprov: a bootstrapped and validated node");
    aws_param(&body, "NoReboot", "false");
    add_tags(&body, 1, "image", name, q, aws_now_s(a));
    add_tags(&body, 2, "snapshot", name, q, aws_now_s(a));
    cloud_intent_thing(q->stack, "aws", q->node->region, RES_IMAGE, name, body.s, &in);
    r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        struct gp_error why = {0};
        r = request(a, &in, q, ret, &why);
        bool open = why.code == GP_EUNKNOWN || why.code == GP_ECANCELLED;
        if (r == 0) r = journal_intent_operation(a->journal, in.id, ret->id, &why);
        else if (!open) journal_intent_end(a->journal, in.id, INTENT_FAILED, why.detail, NULL);
        if (r != 0 && err != NULL) *err = why;
    }
    intent_clear(&in);
    return r;
}

const struct image_ops aws_image_ops = {.make = aws_image_make};

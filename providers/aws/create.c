// SPDX-License-Identifier: Apache-2.0
/* Creates the gang with one RunInstances: intent first, ids committed right after. After a lost reply the same token
 * and body are sent again (common/settle.h). One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/hash.h"
#include "providers/common/intents.h"
#include "providers/common/launch/launched.h"
#include "providers/common/launch/settle.h"

/* --- the body --- */

struct where {
    char *subnet, *group;             /* owned */
    char *placement;                  /* the placement group; NULL: none; owned */
    struct aws_nics nics;             /* the gang's EFA */
    const struct aws_reservation *of; /* NULL: none */
    bool ipv6_only;
};

static void where_clear(struct where *w) {
    free(w->subnet);
    free(w->group);
    free(w->placement);
}
#define GP_AUTO_WHERE GP_CLEANUP(where_clear)

static void add_tags(struct str *body, int n, const char *type, const struct create_req *req) {
    struct tags tags;
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", req->stack->name);
    cloud_launch_tags(req, req->slot_first, req->slot_count, &tags);
    aws_tags_encode(body, n, type, name, &tags);
    tags_clear(&tags);
}

static int add_user_data(struct str *body, const char *text, struct gp_error *err) {
    size_t n = strlen(text);
    if (n == 0) return 0;
    if (n > provider_aws.user_data_max)
        return gp_fail(err, GP_EINTERNAL, "the user-data has %zu bytes, EC2 takes %zu", n, provider_aws.user_data_max);
    GP_AUTO_FREE char *coded = base64_text(text, n);
    aws_param(body, "UserData", coded);
    return 0;
}

static void add_place(struct str *body, const struct create_req *req, const struct where *at) {
    aws_param(body, "Placement.AvailabilityZone", req->offer->zone);
    if (at->placement != NULL) aws_param(body, "Placement.GroupName", at->placement);
    aws_interfaces_add(body, &at->nics, at->subnet, at->group);
    if (at->ipv6_only) { /* EC2 refuses AssociatePublicIpAddress there: IPv6 addresses are public */
        aws_param_int(body, "NetworkInterface.1.Ipv6AddressCount", 1);
        /* Nodes read user-data over it. */
        aws_param(body, "MetadataOptions.HttpProtocolIpv6", "enabled");
    } else if (!aws_nics_several(&at->nics)) { /* refused beside several interfaces, also with "false" */
        aws_param(body, "NetworkInterface.1.AssociatePublicIpAddress", req->spec->access.public_ip ? "true" : "false");
    }
}

/* The root volume, and every further EBS device of the image. With the image's own mapping those would
 * remain, billed, after a node terminates itself. */
static void add_disks(struct str *body, const struct aws_image *image, int root_gib) {
    aws_param(body, "BlockDeviceMapping.1.DeviceName", image->root_device);
    aws_param_int(body, "BlockDeviceMapping.1.Ebs.VolumeSize", root_gib);
    aws_param(body, "BlockDeviceMapping.1.Ebs.VolumeType", "gp3");
    aws_param(body, "BlockDeviceMapping.1.Ebs.Encrypted", "true");
    aws_param(body, "BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true");
    for (int i = 0; i < image->n_disks; i++) {
        const struct aws_disk *d = &image->disks[i];
        GP_AUTO_FREE char *gib = xasprintf("%d", d->gib);
        aws_paramf(body, d->device, "BlockDeviceMapping.%d.DeviceName", i + 2);
        if (d->gib > 0) aws_paramf(body, gib, "BlockDeviceMapping.%d.Ebs.VolumeSize", i + 2);
        aws_paramf(body, "true", "BlockDeviceMapping.%d.Ebs.Encrypted", i + 2);
        aws_paramf(body, "true", "BlockDeviceMapping.%d.Ebs.DeleteOnTermination", i + 2);
    }
}

int aws_disk_gib(const struct spec *spec, const struct aws_image *image, int gpus) {
    return GP_MAX(image->root_gib, spec->disk_gib > 0 ? spec->disk_gib : gpus > 0 ? 100 : 20);
}

static void add_market(struct str *body, enum spec_market market, int64_t max_price) {
    char price[48];
    if (market != MARKET_SPOT) return;
    if (max_price > 0) { /* without it EC2 caps the price at the on-demand one */
        spec_money_text(price, sizeof price, max_price, "");
        price[strcspn(price, " ")] = '\0';
        aws_param(body, "InstanceMarketOptions.SpotOptions.MaxPrice", price);
    }
    aws_param(body, "InstanceMarketOptions.MarketType", "spot");
    aws_param(body, "InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
    aws_param(body, "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate");
}

static int build(const struct create_req *req, const struct aws_image *image, const struct where *at, const char *token,
                 struct str *body, struct gp_error *err) {
    const struct offer *o = req->offer;
    const char *role = spec_effective(req->spec, o->spec_index).role;
    int disk_gib = aws_disk_gib(req->spec, image, o->gpus);
    aws_begin(body, "RunInstances");
    aws_param(body, "ImageId", image->id);
    aws_param(body, "InstanceType", o->instance_type);
    aws_param_int(body, "MinCount", req->slot_count);
    aws_param_int(body, "MaxCount", req->slot_count);
    aws_param(body, "ClientToken", token);
    aws_param(body, "InstanceInitiatedShutdownBehavior", "terminate");
    aws_param(body, "MetadataOptions.HttpEndpoint", "enabled");
    aws_param(body, "MetadataOptions.HttpTokens", "required");
    /* Containers on the node can read the role's credentials only when the spec has a role. */
    aws_param_int(body, "MetadataOptions.HttpPutResponseHopLimit", role != NULL ? 2 : 1);
    add_disks(body, image, disk_gib);
    add_place(body, req, at);
    add_market(body, o->market, req->spec->max_price);
    if (at->of != NULL) aws_reservation_add(body, at->of);
    if (role != NULL)
        aws_param(body, str_starts(role, "arn:") ? "IamInstanceProfile.Arn" : "IamInstanceProfile.Name", role);
    add_tags(body, 1, "instance", req);
    add_tags(body, 2, "volume", req);
    add_tags(body, 3, "network-interface", req);
    if (o->market == MARKET_SPOT) add_tags(body, 4, "spot-instances-request", req);
    return add_user_data(body, req->user_data, err);
}

/* --- outcome --- */

struct launching {
    struct aws *a;
    const struct create_req *req;
};

static int find(void *ctx, const struct intent *in, struct resource_list *seen, struct gp_error *err) {
    const struct launching *l = ctx;
    char slots[32], attempt[16];
    tags_slots_text(slots, sizeof slots, in->slot_first, in->slot_count);
    snprintf(attempt, sizeof attempt, "%d", in->attempt);
    struct aws_wanted w = {.owner = l->req->stack->owner, .uid = in->uid, .slots = slots, .attempt = attempt};
    return aws_list_instances(l->a, in->region, &w, seen, err);
}

/* Takes a machine of the reply. False: it is none of the launch. The reply to a repeated token has the tags of now. */
static bool take_one(const struct launching *l, const struct intent *in, const struct xml_node *item,
                     struct resource_list *made) {
    struct resource r;
    int64_t index = 0;
    bool ok = aws_instance_read(item, in->region, &r, NULL) == 0 &&
              str_to_i64(xml_str(item, "amiLaunchIndex", "0"), 0, in->slot_count - 1, &index);
    if (ok) launched_identify(in, l->req->stack, (int)index, &r);
    for (size_t i = 0; ok && i < made->list.len; i++) ok = made->list.items[i].slot != r.slot;
    if (ok) vec_push(&made->list, r);
    else resource_clear(&r);
    return ok;
}

static int take_reply(const struct launching *l, const struct intent *in, const struct aws_reply *reply,
                      struct resource_list *made, struct gp_error *err) {
    const struct xml_node *set = xml_find(reply->xml, "instancesSet");
    bool whole = set != NULL && set->children.len == (size_t)in->slot_count;
    for (size_t i = 0; whole && i < set->children.len; i++) whole = take_one(l, in, set->children.items[i], made);
    if (whole) return 0;
    resource_list_clear(made);
    return gp_fail(err, GP_EUNKNOWN, /* truncated or malformed: the same request settles it */
                   "ec2 RunInstances in %s: the reply does not name the nodes that were "
                   "requested",
                   in->region);
}

static int send(void *ctx, const struct intent *in, struct resource_list *made, bool *ret_taken, struct gp_error *err) {
    const struct launching *l = ctx;
    GP_AUTO_REPLY struct aws_reply reply = {0};
    GP_AUTO_STR struct str body = {0};
    str_add(&body, in->body);
    int r = 0;
    for (int i = 0;; i++) { /* EC2 may not find a new placement group for a moment; then it has done nothing */
        r = aws_ec2(l->a, in->region, "RunInstances", &body, AWS_ONCE, &reply, err);
        if (strcmp(reply.code, "InvalidPlacementGroup.Unknown") != 0 || i == 5) break;
        if (gp_sleep(500 << i, l->a->cancel, NULL) != 0) break;
        gp_error_clear(err);
    }
    *ret_taken = strcmp(reply.code, "IdempotentParameterMismatch") == 0;
    return r == 0 ? take_reply(l, in, &reply, made, err) : r;
}

static struct cloud_launch launch_of(struct launching *l, const struct intent *in) {
    struct cloud_launch c = {.journal = l->a->journal,
                             .cancel = l->a->cancel,
                             .in = in,
                             .proof = l->req->proof,
                             .stack = l->req->stack->name,
                             .account = l->a->account,
                             .resend_s = provider_aws.replay_max_s,
                             .settle_ms = provider_aws.settle_ms,
                             .ctx = l,
                             .send = send,
                             .find = find};
    cloud_offer_facts(in, &c.price_usd_per_h, &c.gpus);
    return c;
}

static int place(struct aws *a, const struct create_req *req, struct where *ret, struct gp_error *err) {
    const struct offer *o = req->offer;
    struct aws_subnets subnets = {0};
    bool named = o->subnet != NULL && o->subnet[0] != '\0';
    const struct aws_subnet *in = named ? aws_subnet_seen(a, o->region, o->subnet) : NULL;
    if (in != NULL && strcmp(in->zone, o->zone) != 0) in = NULL;
    int r = in == NULL ? aws_subnets_find(a, o->region, o->subnet, &subnets, err) : 0;
    for (size_t i = 0; r == 0 && i < subnets.list.len && in == NULL; i++)
        if (strcmp(subnets.list.items[i].zone, o->zone) == 0) in = &subnets.list.items[i];
    if (r == 0 && in != NULL) {
        r = aws_group_ensure(a, req->stack, req->spec, o->region, in->vpc, &ret->group, err);
        if (r == 0) ret->subnet = xstrdup(in->id);
        ret->ipv6_only = in->ipv6_only;
    } else if (r == 0) {
        r = gp_fail(err, GP_EUSAGE, "aws: zone %s has no default subnet: give a subnet", o->zone);
        if (err != NULL) err->scope = GP_SCOPE_ZONE;
    }
    aws_subnets_clear(&subnets);
    return r;
}

/* The gang's network cards, its reservation, and the placement group that both lead to. */
static int place_close(struct aws *a, const struct create_req *req, struct where *ret, struct gp_error *err) {
    const struct offer *o = req->offer;
    const char *id = req->spec->offers.items[o->spec_index].reservation;
    struct aws_nics of = {0};
    int r = id != NULL ? aws_reservation_find(a, o->region, id, false, &ret->of, err) : 0;
    if (r == 0 && req->spec->nodes > 1 && req->spec->fabric != FABRIC_NONE)
        r = aws_type_nics(a, o->region, o->instance_type, &of, err);
    if (r == 0) r = aws_fabric_choose(req->spec, o->instance_type, &of, &ret->nics, err);
    if (r != 0) return r;
    if (ret->of != NULL) { /* a block is close by itself; a reservation has a group of its own, or none */
        ret->placement = ret->of->placement[0] != '\0' ? xstrdup(ret->of->placement) : NULL;
        return 0;
    }
    return ret->nics.efa > 0 ? aws_placement_ensure(a, req->stack, o->region, o->zone, &ret->placement, err) : 0;
}

/* These types are rarely to be had without. */
static void advise_reservation(const struct offer *o, const struct aws_reservation *of, struct gp_error *err) {
    const char *t = o->instance_type;
    if (err == NULL || of != NULL || (!str_starts(t, "p4") && !str_starts(t, "p5") && !str_starts(t, "p6"))) return;
    size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof err->msg - n, ": buy a Capacity Block and give its id as the offer's 'reservation'");
}

int aws_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct aws *a = aws_of(p);
    const struct offer *o = req->offer;
    struct launching l = {a, req};
    if (req->replay != NULL) {
        struct cloud_launch again = launch_of(&l, req->replay);
        return cloud_launch_replay(&again, ret, err);
    }
    GP_AUTO_WHERE struct where at = {0};
    GP_AUTO_FREE char *token = NULL;
    GP_AUTO_STR struct str body = {0};
    const struct aws_image *image = NULL;
    int r = cloud_launch_token(req, a->account, &token, err);
    if (r == 0) r = aws_quota_check(a, o, req->slot_count, err);
    if (r == 0) r = aws_image_by_id(a, o->region, o->image, &image, err);
    if (r == 0) r = place(a, req, &at, err);
    if (r == 0) r = place_close(a, req, &at, err);
    if (r == 0) r = build(req, image, &at, token, &body, err);
    if (r != 0) return r;
    struct intent in;
    cloud_intent_nodes(req, a->base.account, GP_STEAL(token), str_steal(&body), &in);
    r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        struct cloud_launch first = launch_of(&l, &in);
        r = cloud_launch_run(&first, ret, err);
        if (r == -GP_ECAPACITY) advise_reservation(o, at.of, err);
    }
    intent_clear(&in);
    return r;
}

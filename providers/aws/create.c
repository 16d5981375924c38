// SPDX-License-Identifier: Apache-2.0
/* The gang in one RunInstances: intent first, ids committed right after. A lost reply is settled by
 * the tags, and only when they show nothing the same token and body go again. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "providers/aws/sigv4.h"

#include <openssl/evp.h>

#define USER_DATA_MAX 16384
#define REPLAY_MAX_AGE_S (12 * 3600) /* EC2 remembers tokens for a day at least: half of that */
#define SENDS_MAX 3

/* --- the body --- */

struct where {
    char *subnet, *group; /* owned */
    bool ipv6_only;
};

static void where_clear(struct where *w) {
    free(w->subnet);
    free(w->group);
}
#define GP_AUTO_WHERE GP_CLEANUP(where_clear)

static char *token_of(const struct aws *a, const struct create_req *req) {
    const struct offer *o = req->offer;
    char hex[65];
    GP_AUTO_FREE char *text =
        xasprintf("%s|instance|%d|%d|%d|%s|%s|%s|%s|%s", req->stack->uid, req->slot_first, req->slot_count,
                  req->attempt, a->account, o->region, o->zone, o->instance_type, spec_market_name(o->market));
    sha256_hex(text, strlen(text), hex);
    return xstrdup(hex);
}

static void add_tags(struct str *body, int n, const char *type, const struct create_req *req) {
    char expires[32], slots[32], attempt[16], price[32] = "";
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s", req->stack->name);
    tags_price_text(price, sizeof price, req->offer->price_usd_per_h);
    time_format_utc(expires, sizeof expires, req->stack->expires_s);
    tags_slots_text(slots, sizeof slots, req->slot_first, req->slot_count);
    snprintf(attempt, sizeof attempt, "%d", req->attempt);
    const struct {
        const char *key, *value;
    } tags[] = {{"Name", name},
                {AWS_TAG "owner", req->stack->owner},
                {AWS_TAG "stack", req->stack->name},
                {AWS_TAG "uid", req->stack->uid},
                {AWS_TAG "spec", req->stack->spec_hash},
                {AWS_TAG "expires", expires},
                {AWS_TAG "slots", slots},
                {AWS_TAG "attempt", attempt},
                {AWS_TAG "price", price}}; /* USD per hour when it was bought; "" : not known */
    aws_paramf(body, type, "TagSpecification.%d.ResourceType", n);
    for (size_t i = 0; i < GP_ARRAY_LEN(tags); i++) {
        aws_paramf(body, tags[i].key, "TagSpecification.%d.Tag.%zu.Key", n, i + 1);
        aws_paramf(body, tags[i].value, "TagSpecification.%d.Tag.%zu.Value", n, i + 1);
    }
}

static int add_user_data(struct str *body, const char *text, struct gp_error *err) {
    size_t n = strlen(text);
    if (n == 0) return 0;
    if (n > USER_DATA_MAX)
        return gp_fail(err, GP_EINTERNAL, "the user-data has %zu bytes, EC2 takes %d", n, USER_DATA_MAX);
    GP_AUTO_FREE unsigned char *coded = xmalloc(4 * ((n + 2) / 3) + 1);
    EVP_EncodeBlock(coded, (const unsigned char *)text, (int)n);
    aws_param(body, "UserData", (const char *)coded);
    return 0;
}

static void add_place(struct str *body, const struct create_req *req, const struct where *at) {
    aws_param(body, "Placement.AvailabilityZone", req->offer->zone);
    aws_param(body, "NetworkInterface.1.DeviceIndex", "0");
    aws_param(body, "NetworkInterface.1.SubnetId", at->subnet);
    if (at->ipv6_only) { /* EC2 refuses AssociatePublicIpAddress there: IPv6 addresses are public */
        aws_param_int(body, "NetworkInterface.1.Ipv6AddressCount", 1);
        /* The user-data comes by it. */
        aws_param(body, "MetadataOptions.HttpProtocolIpv6", "enabled");
    } else {
        aws_param(body, "NetworkInterface.1.AssociatePublicIpAddress", req->spec->access.public_ip ? "true" : "false");
    }
    aws_param(body, "NetworkInterface.1.DeleteOnTermination", "true");
    aws_param(body, "NetworkInterface.1.SecurityGroupId.1", at->group);
}

/* The root volume, and every further EBS device of the image: an image's own mapping leaves those
 * behind, billed, when a node ends itself. */
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

static void add_market(struct str *body, enum spec_market market) {
    if (market != MARKET_SPOT) return;
    /* No MaxPrice: EC2 caps it at the on-demand price. */
    aws_param(body, "InstanceMarketOptions.MarketType", "spot");
    aws_param(body, "InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
    aws_param(body, "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate");
}

static int build(const struct create_req *req, const struct aws_image *image, const struct where *at, const char *token,
                 struct str *body, struct gp_error *err) {
    const struct offer *o = req->offer;
    const char *role = spec_effective(req->spec, o->spec_index).role;
    int disk_gib = GP_MAX(image->root_gib, o->gpus > 0 ? 100 : 20);
    aws_begin(body, "RunInstances");
    aws_param(body, "ImageId", image->id);
    aws_param(body, "InstanceType", o->instance_type);
    aws_param_int(body, "MinCount", req->slot_count);
    aws_param_int(body, "MaxCount", req->slot_count);
    aws_param(body, "ClientToken", token);
    aws_param(body, "InstanceInitiatedShutdownBehavior", "terminate");
    aws_param(body, "MetadataOptions.HttpEndpoint", "enabled");
    aws_param(body, "MetadataOptions.HttpTokens", "required");
    /* Containers on the node reach the role's credentials only when a role was asked for. */
    aws_param_int(body, "MetadataOptions.HttpPutResponseHopLimit", role != NULL ? 2 : 1);
    add_disks(body, image, disk_gib);
    add_place(body, req, at);
    add_market(body, o->market);
    if (role != NULL)
        aws_param(body, str_starts(role, "arn:") ? "IamInstanceProfile.Arn" : "IamInstanceProfile.Name", role);
    add_tags(body, 1, "instance", req);
    add_tags(body, 2, "volume", req);
    add_tags(body, 3, "network-interface", req);
    if (o->market == MARKET_SPOT) add_tags(body, 4, "spot-instances-request", req);
    return add_user_data(body, req->user_data, err);
}

/* --- outcome --- */

struct launch {
    struct aws *a;
    const struct intent *in;
    const char *owner;
    double price;
    int gpus;
};

static void complete(const struct launch *l, struct resource *r) {
    if (l->price >= 0) r->price_usd_per_h = l->price;
    if (l->gpus >= 0) r->gpus = l->gpus;
    resource_set(&r->account, l->a->account);
}

/* Ids to disk, then to the caller. Machines that only the journal does not know of are no refusal: the
 * intent stays open, and the error names them. */
static int commit(const struct launch *l, struct resource_list *made, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_STR struct str ids = {0};
    struct gp_error why = {0};
    for (size_t i = 0; i < made->list.len; i++) {
        complete(l, &made->list.items[i]);
        str_addf(&ids, "%s%s", ids.len ? ", " : "", made->list.items[i].id);
    }
    int r = journal_intent_done(l->a->journal, l->in->id, made, &why);
    for (size_t i = 0; i < made->list.len; i++) vec_push(&ret->list, made->list.items[i]);
    vec_free(&made->list);
    if (r == 0) return 0;
    return gp_fail(err, GP_EBILLED,
                   "launched in %s, but not written down: %.160s: %s: 'gpuprov up' goes "
                   "on with them, 'gpuprov down' ends them",
                   l->in->region, ids.s, why.msg);
}

static int refuse(const struct launch *l, const struct gp_error *why, struct gp_error *err) {
    int r = journal_intent_end(l->a->journal, l->in->id, INTENT_FAILED, why->detail, err);
    if (r != 0) return r;
    if (err != NULL) *err = *why;
    return -(int)why->code;
}

/* Looks for what this intent made, by its tags; up to `reads` times a second apart. */
static int adopt(const struct launch *l, int reads, struct resource_list *ret, bool *ret_found, struct gp_error *err) {
    char slots[32], attempt[16];
    tags_slots_text(slots, sizeof slots, l->in->slot_first, l->in->slot_count);
    snprintf(attempt, sizeof attempt, "%d", l->in->attempt);
    struct aws_wanted w = {.owner = l->owner, .uid = l->in->uid, .slots = slots, .attempt = attempt};
    *ret_found = false;
    for (int i = 0; i < reads; i++) {
        GP_AUTO_RESOURCES struct resource_list made = {0};
        if (i > 0 && gp_sleep(1000, l->a->cancel, NULL) != 0) return gp_fail(err, GP_ECANCELLED, "cancelled");
        int r = aws_list_instances(l->a, l->in->region, &w, &made, err);
        if (r != 0) return r;
        if (made.list.len < (size_t)l->in->slot_count) continue;
        *ret_found = true;
        return commit(l, &made, ret, err);
    }
    return 0;
}

static int unknown(const struct launch *l, const struct gp_error *why, struct gp_error *err) {
    int r = gp_fail(err, GP_EUNKNOWN,
                    "%s: whether it was done is not known yet: run 'up' or 'down' "
                    "again, both look first",
                    why->msg);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        str_put(err->detail, sizeof err->detail, why->detail);
    }
    (void)l;
    return r;
}

static int pass(const struct gp_error *why, struct gp_error *err) {
    if (err != NULL) *err = *why;
    return -(int)why->code;
}

static int take_reply(const struct launch *l, const struct aws_reply *reply, struct resource_list *ret,
                      struct gp_error *err) {
    struct resource_list made = {0};
    const struct xml_node *set = xml_find(reply->xml, "instancesSet");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        struct resource r;
        bool whole = aws_instance_read(set->children.items[i], l->in->region, &r, NULL) == 0 &&
                     str_eq(r.uid, l->in->uid) && r.slot >= 0;
        if (whole) vec_push(&made.list, r);
        else resource_clear(&r);
    }
    if (made.list.len != (size_t)l->in->slot_count) { /* cut, or not understood: the tags will tell */
        resource_list_clear(&made);
        return gp_fail(err, GP_EUNKNOWN,
                       "ec2 RunInstances in %s: the reply does not name the nodes that were "
                       "asked for",
                       l->in->region);
    }
    return commit(l, &made, ret, err);
}

/* Whether a refusal speaks of the launch itself. A token that had made machines would be answered with
 * them; a call that was not let in (throttled, not permitted, not reached) says nothing of an earlier one. */
static bool settles(const struct gp_error *why) {
    return why->code == GP_ECAPACITY || why->code == GP_EQUOTA || why->code == GP_EMONEY || why->code == GP_EUSAGE ||
           why->code == GP_EEXISTS;
}

/* Sends until the outcome is known, or as often as makes sense. open: an earlier send of the same may
 * have been acted on. */
static int send(const struct launch *l, bool open, struct resource_list *ret, struct gp_error *err) {
    struct gp_error why = {0};
    for (int i = 0; i < SENDS_MAX; i++) {
        GP_AUTO_REPLY struct aws_reply reply = {0};
        GP_AUTO_STR struct str body = {0};
        bool found = false;
        gp_error_clear(&why);
        str_add(&body, l->in->body);
        int r = aws_ec2(l->a, l->in->region, "RunInstances", &body, AWS_ONCE, &reply, &why);
        if (r == 0) r = take_reply(l, &reply, ret, &why);
        if (r == 0) return 0;
        if (r == -GP_EBILLED) return pass(&why, err);
        bool other_run = strcmp(reply.code, "IdempotentParameterMismatch") == 0;
        if (r != -GP_EUNKNOWN && !other_run)
            return !open || settles(&why) ? refuse(l, &why, err) : unknown(l, &why, err);
        open = true;
        if (gp_cancelled(l->a->cancel)) return unknown(l, &why, err);
        struct gp_error listed = {0};
        r = adopt(l, other_run ? 10 : 3, ret, &found, &listed);
        if (r == -GP_EBILLED) return pass(&listed, err);
        for (size_t k = 0; r == 0 && other_run && k < ret->list.len; k++) ret->list.items[k].other_run = true;
        if (r == 0 && found) return 0;
        if (r != 0) return unknown(l, &why, err);
        if (other_run) return refuse(l, &why, err);
    }
    return unknown(l, &why, err);
}

static int replay(struct aws *a, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    const struct intent *in = req->replay;
    GP_AUTO_JSON json_t *offer = NULL;
    bool found = false;
    if (in->offer[0] != '\0' && json_parse(in->offer, strlen(in->offer), "offer", &offer, NULL) != 0) offer = NULL;
    struct launch l = {.a = a,
                       .in = in,
                       .owner = req->stack->owner,
                       .price = json_num(offer, "price_usd_per_h", -1),
                       .gpus = (int)json_int(offer, "gpus", -1)};
    struct gp_error why = {0};
    int r = adopt(&l, 3, ret, &found, &why);
    if (r == -GP_EBILLED) return pass(&why, err);
    if (r != 0) return unknown(&l, &why, err);
    if (found) return 0;
    if (clock_wall_s() - in->created_s > REPLAY_MAX_AGE_S) {
        struct gp_error old = {0};
        gp_fail(&old, GP_ENOTFOUND,
                "aws: the launch of slots %d+%d from over 12 hours ago left nothing: "
                "it is not repeated",
                in->slot_first, in->slot_count);
        return refuse(&l, &old, err);
    }
    return send(&l, true, ret, err);
}

static char *offer_json(const struct offer *o) {
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:f,s:i,s:i}", "region", o->region, "zone", o->zone, "instance_type",
                  o->instance_type, "market", spec_market_name(o->market), "image", o->image, "price_usd_per_h",
                  o->price_usd_per_h, "gpus", o->gpus, "vcpus", o->vcpus);
    return j != NULL ? json_text(j, 0) : xstrdup("{}");
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

int aws_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct aws *a = aws_of(p);
    const struct offer *o = req->offer;
    if (req->replay != NULL) return replay(a, req, ret, err);
    GP_AUTO_WHERE struct where at = {0};
    GP_AUTO_FREE char *token = token_of(a, req);
    GP_AUTO_STR struct str body = {0};
    const struct aws_image *image = NULL;
    int r = aws_quota_check(a, o, req->slot_count, err);
    if (r == 0) r = aws_image_by_id(a, o->region, o->image, &image, err);
    if (r == 0) r = place(a, req, &at, err);
    if (r == 0) r = build(req, image, &at, token, &body, err);
    if (r != 0) return r;
    struct intent in = {.uid = xstrdup(req->stack->uid),
                        .spec_hash = xstrdup(req->spec->hash),
                        .provider = xstrdup("aws"),
                        .region = xstrdup(o->region),
                        .zone = xstrdup(o->zone),
                        .kind = RES_INSTANCE,
                        .slot_first = req->slot_first,
                        .slot_count = req->slot_count,
                        .attempt = req->attempt,
                        .token = GP_STEAL(token),
                        .body = str_steal(&body),
                        .offer = offer_json(o),
                        .created_s = clock_wall_s(),
                        .deadline_s = req->stack->expires_s,
                        .state = INTENT_OPEN,
                        .note = xstrdup("")};
    r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        struct launch l = {.a = a, .in = &in, .owner = req->stack->owner, .price = o->price_usd_per_h, .gpus = o->gpus};
        r = send(&l, false, ret, err);
    }
    intent_clear(&in);
    return r;
}

// SPDX-License-Identifier: Apache-2.0
/* Creates the gang with one RunInstances (Amount and MinAmount: all or none): intent first, ids committed right after.
 * After a lost reply the same token and body are sent again (common/settle.h). One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "base/hash.h"
#include "providers/common/intents.h"
#include "providers/common/launch/launched.h"
#include "providers/common/launch/settle.h"

#define GANG_MAX 100 /* of one call */

/* --- the request --- */

/* The spec's limit in the currency that the account is billed in, at the offer's rate. */
static int64_t limit_of(const struct create_req *req) {
    const struct offer *o = req->offer;
    bool other = o->currency != NULL && o->currency[0] != '\0' && o->price_in_currency > 0 && o->price_usd_per_h > 0;
    double limit = (double)req->spec->max_price * (other ? o->price_in_currency / o->price_usd_per_h : 1);
    return limit < 9e15 ? (int64_t)(limit + 0.5) : INT64_C(9000000000000000);
}

static void add_market(struct str *query, const struct create_req *req) {
    char price[48];
    ali_param(query, "InstanceChargeType", "PostPaid");
    if (req->offer->market != MARKET_SPOT) return;
    ali_param(query, "SpotInterruptionBehavior", "Terminate");
    if (req->spec->max_price <= 0) {
        ali_param(query, "SpotStrategy", "SpotAsPriceGo");
        return;
    }
    spec_money_text(price, sizeof price, limit_of(req), "");
    price[strcspn(price, " ")] = '\0';
    ali_param(query, "SpotStrategy", "SpotWithPriceLimit");
    ali_param(query, "SpotPriceLimit", price);
}

static int add_user_data(struct str *query, const char *text, struct gp_error *err) {
    size_t n = strlen(text);
    if (n == 0) return 0;
    if (n > provider_alibaba.user_data_max)
        return gp_fail(err, GP_EINTERNAL, "the user-data has %zu bytes, ECS takes %zu", n,
                       provider_alibaba.user_data_max);
    GP_AUTO_FREE char *coded = base64_text(text, n);
    ali_param(query, "UserData", coded); /* the last one: it travels in the body (call.c) */
    return 0;
}

static int build(const struct ali *a, const struct create_req *req, const struct ali_place *at, const char *token,
                 struct str *query, struct gp_error *err) {
    const struct offer *o = req->offer;
    const char *role = spec_effective(req->spec, o->spec_index).role;
    const struct ali_image *image = ali_image_seen(a, o->image);
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s-[%d,4]", req->stack->name, req->slot_first);
    struct tags tags;
    char when[32];
    time_format_utc(when, sizeof when, ali_release_s(a, req->stack->expires_s));
    ali_begin(query, o->region);
    ali_param(query, "ZoneId", o->zone);
    ali_param(query, "ImageId", o->image);
    ali_param(query, "InstanceType", o->instance_type);
    ali_param_int(query, "Amount", req->slot_count);
    ali_param_int(query, "MinAmount", req->slot_count);
    ali_param(query, "ClientToken", token);
    ali_param(query, "AutoReleaseTime", when);
    ali_param(query, "InstanceName", name); /* the number is the node's slot */
    ali_interface_add(query, a, req, at);
    if (req->spec->access.public_ip) {
        ali_param(query, "InternetChargeType", "PayByTraffic");
        ali_param(query, "InternetMaxBandwidthOut", "100"); /* Mbit/s; without it a node has no public address */
    }
    ali_param(query, "SystemDisk.Category", "cloud_essd");
    ali_param_int(query, "SystemDisk.Size", ali_disk_gib(a, req->spec, o->image, o->gpus));
    ali_param(query, "SystemDisk.Encrypted", "true");
    ali_param(query, "HttpEndpoint", "enabled");
    /* An older cloud-init cannot read its user-data where a token is required. */
    ali_param(query, "HttpTokens", image != NULL && image->token ? "required" : "optional");
    add_market(query, req);
    if (role != NULL) ali_param(query, "RamRoleName", role);
    cloud_launch_tags(req, req->slot_first, req->slot_count, &tags);
    ali_tags_add(query, &tags);
    tags_clear(&tags);
    return add_user_data(query, req->user_data, err);
}

/* --- outcome --- */

struct launching {
    struct ali *a;
    const struct create_req *req;
};

/* What is known of a machine before the first list. */
static void machine_of(const struct intent *in, const struct launching *l, const char *id, int slot,
                       struct resource *ret) {
    resource_init(ret, RES_INSTANCE, "alibaba");
    resource_set(&ret->region, in->region);
    resource_set(&ret->zone, in->zone);
    resource_set(&ret->id, id);
    resource_set(&ret->owner, l->req->stack->owner);
    resource_set(&ret->stack, l->req->stack->name);
    resource_set(&ret->uid, in->uid);
    resource_set(&ret->spec_hash, in->spec_hash);
    resource_set(&ret->user, "gpuprov");
    ret->slot = slot;
    ret->attempt = in->attempt;
    ret->state = RES_PENDING;
    ret->billed = true;
    ret->expires_s = in->deadline_s;
}

static int find(void *ctx, const struct intent *in, struct resource_list *seen, struct gp_error *err) {
    const struct launching *l = ctx;
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct ali_wanted w = {.owner = l->req->stack->owner, .uid = in->uid};
    int r = ali_list_instances(l->a, in->region, &w, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++)
        if (launched_claims(in, &all.list.items[i])) resource_list_add(seen, &all.list.items[i]);
    return r;
}

static int take_ids(const struct intent *in, const json_t *reply, struct strv *ret, struct gp_error *err) {
    json_t *ids = json_at(reply, "InstanceIdSets.InstanceIdSet"), *id = NULL;
    size_t i = 0;
    json_array_foreach(ids, i, id) {
        if (json_is_string(id) && ali_id(json_string_value(id), "i-")) strv_add(ret, json_string_value(id));
    }
    if (ret->n != (size_t)in->slot_count || json_array_size(ids) != ret->n)
        return gp_fail(err, GP_EUNKNOWN, /* truncated or malformed: the same request settles it */
                       "ecs RunInstances in %s: the reply does not name the nodes that were requested", in->region);
    return 0;
}

/* The machines of a reply, which has their ids only. The number in the name of each is its slot: unlike a tag, only who
 * may change the instance itself can write it. */
struct named {
    const struct launching *l;
    const struct intent *in;
    const struct strv *ids;
    struct resource_list *made; /* those without a number of the launch: slot -1 */
};

static bool has_slot(const struct resource_list *l, int slot) {
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].slot == slot) return true;
    return false;
}

static int on_named(void *ctx, const json_t *item, struct gp_error *err) {
    struct named *n = ctx;
    const struct intent *in = n->in;
    const char *id = json_str(item, "InstanceId", ""), *digits = strrchr(json_str(item, "InstanceName", ""), '-');
    int64_t slot = -1;
    struct resource one;
    (void)err;
    if (!strv_has(n->ids, id)) return 0;
    if (digits == NULL || strlen(digits + 1) != 4 ||
        !str_to_i64(digits + 1, in->slot_first, in->slot_first + in->slot_count - 1, &slot) ||
        has_slot(n->made, (int)slot))
        slot = -1;
    machine_of(in, n->l, id, (int)slot, &one);
    vec_push(&n->made->list, one);
    return 0;
}

static int read_named(const struct launching *l, const struct intent *in, const struct strv *ids,
                      struct resource_list *made, struct gp_error *err) {
    GP_AUTO_STR struct str all = {0};
    struct named n = {l, in, ids, made};
    struct ali_list list = {.service = ALI_ECS,
                            .region = in->region,
                            .action = "DescribeInstances",
                            .items = "Instances.Instance",
                            .page = GANG_MAX,
                            .each = on_named,
                            .ctx = &n};
    for (size_t i = 0; i < ids->n; i++) str_addf(&all, "%s\"%s\"", i > 0 ? "," : "[", ids->v[i]);
    str_addc(&all, ']');
    ali_begin(&list.query, in->region);
    ali_param(&list.query, "InstanceIds", all.s);
    return ali_list_one(l->a, &list, err);
}

/* The nodes of a launch are alike: which one gets the slot of a name that somebody changed is of no account. */
static void fill_slots(const struct intent *in, struct resource_list *made) {
    int next = in->slot_first;
    for (size_t i = 0; i < made->list.len; i++) {
        while (made->list.items[i].slot < 0 && has_slot(made, next)) next++;
        if (made->list.items[i].slot < 0) made->list.items[i].slot = next;
    }
}

static int send(void *ctx, const struct intent *in, struct resource_list *made, bool *ret_taken, struct gp_error *err) {
    const struct launching *l = ctx;
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_STR struct str query = {0};
    str_add(&query, in->body);
    int r = ali_call(l->a, ALI_ECS, in->region, "RunInstances", &query, REST_ONCE, &reply, err);
    explicit_bzero(query.s, query.len);
    *ret_taken = strcmp(reply.code, "IdempotentParameterMismatch") == 0;
    if (r != 0) return r;
    GP_AUTO_STRV struct strv ids = {0};
    r = take_ids(in, reply.json, &ids, err);
    if (r != 0) return r;
    if (in->slot_count == 1) {
        struct resource one;
        machine_of(in, l, ids.v[0], in->slot_first, &one);
        vec_push(&made->list, one);
        return 0;
    }
    struct gp_error listed = {0};
    for (int i = 0; i < 4; i++) {
        if (i > 0 && gp_sleep(200 << i, l->a->cancel, NULL) != 0) break;
        if (read_named(l, in, &ids, made, &listed) != 0) break;
        if (made->list.len == (size_t)in->slot_count) {
            fill_slots(in, made);
            return 0;
        }
        resource_list_clear(made);
    }
    resource_list_clear(made);
    return gp_fail(err, GP_EUNKNOWN, "ecs RunInstances in %s: the new nodes are not listed yet", in->region);
}

static struct cloud_launch launch_of(struct launching *l, const struct intent *in) {
    struct cloud_launch c = {.journal = l->a->journal,
                             .cancel = l->a->cancel,
                             .in = in,
                             .proof = l->req->proof,
                             .stack = l->req->stack->name,
                             .account = l->a->account,
                             .resend_s = provider_alibaba.replay_max_s,
                             .settle_ms = provider_alibaba.settle_ms,
                             .ctx = l,
                             .send = send,
                             .find = find};
    cloud_offer_facts(in, &c.price_usd_per_h, &c.gpus);
    return c;
}

/* A launch whose deadline the cloud does not keep is ended again. Machines of another run have that run's. */
static int with_deadline(struct ali *a, const struct intent *in, struct resource_list *ret, struct gp_error *err) {
    struct gp_error e = {0}, gone = {0};
    for (size_t i = 0; i < ret->list.len; i++)
        if (ret->list.items[i].other_run) return 0; /* then all of the launch are */
    int r = ali_release_verify(a, in->region, ret, in->deadline_s, &e);
    if (r == -GP_EPROTO) {
        e.scope = GP_SCOPE_PROVIDER;
        e.domain = GP_D_CLOUD;
        if (ali_destroy(&a->base, ret, &gone) != 0)
            r = gp_fail(err, GP_EBILLED, "%.200s; it could not be ended either: %.120s", e.msg, gone.msg);
        else if (err != NULL) *err = e;
        return r;
    }
    return 0; /* created: a cancelled wait does not undo that */
}

int ali_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct ali *a = ali_of(p);
    struct launching l = {a, req};
    if (req->replay != NULL) {
        struct cloud_launch again = launch_of(&l, req->replay);
        int r = cloud_launch_replay(&again, ret, err);
        if (r == 0) r = with_deadline(a, req->replay, ret, err);
        if (r == 0) ali_fabric_settle(a, req->replay, req->stack->owner, req->stack->name, ret);
        return r;
    }
    struct ali_place at = {0};
    GP_AUTO_FREE char *token = NULL;
    GP_AUTO_STR struct str query = {0};
    if (req->slot_count > GANG_MAX) {
        int r = gp_fail(err, GP_EUSAGE, "alibaba: one launch has at most %d nodes: ask for fewer nodes", GANG_MAX);
        if (err != NULL) err->scope = GP_SCOPE_PROVIDER;
        return r;
    }
    int r = cloud_launch_token(req, a->account, &token, err);
    if (r == 0) r = ali_quota_check(a, req->offer, req->slot_count, err);
    if (r == 0) r = ali_place_find(a, req, &at, err);
    if (r == 0) r = build(a, req, &at, token, &query, err);
    ali_place_clear(&at);
    if (r != 0) return r;
    struct intent in;
    cloud_intent_nodes(req, a->account, GP_STEAL(token), str_steal(&query), &in);
    r = journal_intent(a->journal, &in, err);
    if (r == 0) {
        struct cloud_launch first = launch_of(&l, &in);
        r = cloud_launch_run(&first, ret, err);
        if (r == 0) r = with_deadline(a, &in, ret, err);
        if (r == 0) ali_fabric_settle(a, &in, req->stack->owner, req->stack->name, ret);
    }
    intent_clear(&in);
    return r;
}

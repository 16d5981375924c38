// SPDX-License-Identifier: Apache-2.0
/* Creates the gang with one instances.bulkInsert: intent first, then the call with a requestId, then its operation,
 * where Google refuses what it has no capacity for. The rule between the nodes is inserted side by side with it; nodes
 * without their rule do not count. The deadline is read back from the instances before they count. After a
 * lost reply the same request is sent again (common/settle.h). One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"

/* --- the body --- */

static int labels_of(const struct create_req *req, json_t **ret, struct gp_error *err) {
    struct tags tags;
    cloud_launch_tags(req, req->slot_first, req->slot_count, &tags);
    *ret = google_tags_encode(&tags);
    tags_clear(&tags);
    if (*ret != NULL) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "google: the owner '%.140s' does not fit the labels of an instance: give a shorter "
                   "--owner",
                   req->stack->owner);
}

static json_t *disks_of(const struct create_req *req, const struct google_image *image, json_t *labels) {
    char gib[16];
    snprintf(gib, sizeof gib, "%d", google_disk_gib(req->spec, image, req->offer->gpus));
    return json_pack("[{s:b, s:b, s:s, s:{s:s, s:s, s:s, s:O}}]", "boot", 1, "autoDelete", 1, "type", "PERSISTENT",
                     "initializeParams", "sourceImage", image->id, "diskSizeGb", gib, "diskType",
                     google_disk_type(req->offer->instance_type), "labels", labels);
}

static json_t *network_of(const struct google *g, const struct create_req *req, const struct google_nics *more) {
    const struct offer *o = req->offer;
    const char *net = req->spec->offers.items[o->spec_index].network;
    bool named = o->subnet != NULL && o->subnet[0] != '\0';
    GP_AUTO_FREE char *path =
        named ? xasprintf("projects/%s/regions/%s/subnetworks/%s", g->project, o->region, o->subnet)
              : xasprintf("projects/%s/global/networks/%s", g->project, net != NULL ? net : "default");
    json_t *nic = json_pack("{s:s}", named ? "subnetwork" : "network", path);
    if (req->spec->access.public_ip)
        json_object_set_new(nic, "accessConfigs",
                            json_pack("[{s:s, s:s}]", "type", "ONE_TO_ONE_NAT", "name", "External NAT"));
    json_t *all = json_pack("[o]", nic);
    google_nics_add(g, o->region, more, all);
    return all;
}

static json_t *scheduling_of(const struct create_req *req) {
    char until[32];
    time_format_utc(until, sizeof until, req->stack->expires_s);
    json_t *s = json_pack("{s:s, s:s, s:b}", "terminationTime", until, "instanceTerminationAction", "DELETE",
                          "automaticRestart", 0);
    bool spot = req->offer->market == MARKET_SPOT;
    /* A machine with GPUs cannot be moved to another host. */
    if (req->offer->gpus > 0 || spot) json_object_set_new(s, "onHostMaintenance", json_string("TERMINATE"));
    if (spot) json_object_set_new(s, "provisioningModel", json_string("SPOT"));
    return s;
}

static void add_item(json_t *items, const char *key, const char *value) {
    json_array_append_new(items, json_pack("{s:s, s:s}", "key", key, "value", value));
}

static json_t *metadata_of(const struct create_req *req) {
    json_t *items = json_array();
    GP_AUTO_FREE char *key = xasprintf("gpuprov:%s", req->login_pubkey != NULL ? req->login_pubkey : "");
    if (req->user_data[0] != '\0') add_item(items, "user-data", req->user_data);
    if (req->login_pubkey != NULL) add_item(items, "ssh-keys", key);
    add_item(items, "block-project-ssh-keys", "TRUE");
    add_item(items, "enable-oslogin", "FALSE");
    return json_pack("{s:o}", "items", items);
}

static void add_options(const struct create_req *req, json_t *properties) {
    const struct offer *o = req->offer;
    const char *role = spec_effective(req->spec, o->spec_index).role;
    if (str_starts(o->instance_type, "n1-") && o->gpus > 0)
        json_object_set_new(properties, "guestAccelerators",
                            json_pack("[{s:s, s:i}]", "acceleratorType", o->gpu_model, "acceleratorCount", o->gpus));
    if (role != NULL)
        json_object_set_new(properties, "serviceAccounts",
                            json_pack("[{s:s, s:[s]}]", "email", role, "scopes", GOOGLE_SCOPE));
}

static int build(const struct google *g, const struct create_req *req, const struct google_image *image,
                 const struct google_nics *nics, const char *token, char **ret, struct gp_error *err) {
    const struct offer *o = req->offer;
    GP_AUTO_JSON json_t *labels = NULL;
    GP_AUTO_FREE char *tag = google_tag_name(req->stack->uid);
    char count[16];
    size_t user_data = strlen(req->user_data);
    if (user_data > provider_google.user_data_max)
        return gp_fail(err, GP_EINTERNAL, "the user-data has %zu bytes, Compute Engine takes %zu", user_data,
                       provider_google.user_data_max);
    int r = labels_of(req, &labels, err);
    if (r != 0) return r;
    json_t *names = json_object();
    for (int i = 0; i < req->slot_count; i++) {
        GP_AUTO_FREE char *name = google_instance_name(req->stack->uid, req->slot_first + i, req->attempt, token);
        json_object_set_new(names, name, json_object());
    }
    snprintf(count, sizeof count, "%d", req->slot_count);
    json_t *properties =
        json_pack("{s:s, s:o, s:o, s:O, s:o, s:{s:[s]}, s:o}", "machineType", o->instance_type, "disks",
                  disks_of(req, image, labels), "networkInterfaces", network_of(g, req, nics), "labels", labels,
                  "metadata", metadata_of(req), "tags", "items", tag, "scheduling", scheduling_of(req));
    add_options(req, properties);
    GP_AUTO_JSON json_t *body = json_pack("{s:s, s:s, s:o, s:o}", "count", count, "minCount", count,
                                          "perInstanceProperties", names, "instanceProperties", properties);
    *ret = json_text_exact(body, 0);
    return 0;
}

/* --- outcome --- */

struct launching {
    struct google *g;
    const struct create_req *req;
    const struct stack *stack;
    char *network; /* of the rule between the nodes; NULL: one node, or an earlier launch made it */
    bool removed;  /* what the refused request had made, also by an earlier send, is removed */
};

/* Google lists an instance before it has capacity for it: only the later states are a placement. */
static bool is_placed(const struct resource *r) {
    return r->state == RES_RUNNING || (r->state == RES_PENDING && str_starts(r->state_reason, "STAGING"));
}

static int find(void *ctx, const struct intent *in, struct resource_list *seen, struct gp_error *err) {
    const struct launching *l = ctx;
    GP_AUTO_GOOGLE_MADE struct google_made all = {0};
    bool named = in->operation != NULL && google_name_valid(in->operation);
    int r = named ? google_operation_end(l->g, in->zone, in->operation, &all.until_s, err) : 0;
    if (r == 0) r = google_read_back(l->g, l->stack, in, &all, err);
    for (size_t i = 0; r == 0 && i < all.nodes.list.len; i++)
        if (is_placed(&all.nodes.list.items[i])) resource_list_add(seen, &all.nodes.list.items[i]);
    return r;
}

/* What a refused gang left behind is deleted before the refusal counts; never what another run has made. */
static int remove_rest(struct launching *l, const struct intent *in, struct gp_error *err) {
    GP_AUTO_GOOGLE_MADE struct google_made all = {0};
    struct resource_list own = {0}; /* borrowed */
    struct gp_error why = {0};
    int r = google_read_back(l->g, l->stack, in, &all, &why);
    for (size_t i = 0; i < all.nodes.list.len; i++) {
        GP_AUTO_FREE char *name = google_id_name(all.nodes.list.items[i].id);
        if (!strv_has(&all.foreign, name)) vec_push(&own.list, all.nodes.list.items[i]);
    }
    if (r == 0 && own.list.len > 0) r = google_delete(l->g, &own, &why);
    vec_free(&own.list);
    l->removed = r == 0;
    if (r == 0) return 0;
    return gp_fail(err, GP_EUNKNOWN, "google %s: the launch failed, and its nodes could not be removed: %.300s",
                   in->zone, why.msg);
}

/* The deadline and the cards count only as Google has them now. *ret_taken: the nodes are another run's, whose request
 * had the same token and another deadline. */
static int check_made(struct launching *l, const struct intent *in, const struct google_made *made, bool *ret_taken,
                      struct gp_error *err) {
    const char *lost = NULL;
    GP_AUTO_JSON json_t *body = NULL;
    bool known = json_parse(in->body, strlen(in->body), "the request", &body, NULL) == 0;
    int cards = google_cards_of(json_at(body, "instanceProperties"));
    for (size_t i = 0; known && i < made->nodes.list.len; i++)
        if (made->nodes.list.items[i].rdma != cards) lost = "number of RDMA cards";
    if (made->late.n > 0) lost = "deadline";
    if (lost == NULL) return 0;
    *ret_taken = made->foreign.n > 0;
    if (*ret_taken)
        return gp_fail(err, GP_EEXISTS, "google %s: another run launched these nodes, with another %s", in->zone, lost);
    int r = remove_rest(l, in, err);
    if (r != 0) return r;
    r = gp_fail(err, GP_EPROTO,
                "google %s: the new nodes do not have the %s that was requested, so they were deleted: report this "
                "as a bug",
                in->zone, lost);
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

/* end_s: of the operation. */
static int take_nodes(struct launching *l, const struct intent *in, int64_t end_s, struct resource_list *made,
                      bool *ret_taken, struct gp_error *err) {
    GP_AUTO_GOOGLE_MADE struct google_made all = {.until_s = end_s};
    struct gp_error why = {0};
    size_t placed = 0;
    int r = google_read_back(l->g, l->stack, in, &all, &why);
    for (size_t i = 0; r == 0 && i < all.nodes.list.len; i++) placed += is_placed(&all.nodes.list.items[i]);
    if (placed < (size_t)in->slot_count)
        return gp_fail(err, GP_EUNKNOWN, "google bulkInsert in %s: its nodes are not listed yet%s%.200s", in->zone,
                       why.msg[0] != '\0' ? ": " : "", why.msg);
    r = check_made(l, in, &all, ret_taken, err);
    for (size_t i = 0; r == 0 && i < all.nodes.list.len; i++) resource_list_add(made, &all.nodes.list.items[i]);
    return r;
}

/* What became of the rule between the nodes, whose insert was sent with the launch. nodes: of the launch. */
static int end_members(struct launching *l, const struct intent *in, struct google_rule_call *rule,
                       struct rest_result *sent, int nodes, struct gp_error *err) {
    struct gp_error why = {0};
    int r = google_members_end(l->g, l->stack, l->network, rule, sent, &why);
    l->g->cache->members_refused = r != 0;
    /* google_create settles what is not known, and a rule that the journal cannot note: Google did not refuse it. */
    if (r == 0 || r == -GP_EUNKNOWN || nodes != 0 || why.domain == GP_D_JOURNAL) return 0;
    GP_AUTO_GOOGLE_MADE struct google_made made = {0};
    bool read = google_read_back(l->g, l->stack, in, &made, NULL) == 0;
    if (!read || made.nodes.list.len < (size_t)in->slot_count) /* else some would stay */
        return gp_fail(err, GP_EUNKNOWN, "google bulkInsert in %s: its nodes are not listed yet, and %.300s", in->zone,
                       why.msg);
    if (remove_rest(l, in, err) != 0) return -GP_EUNKNOWN;
    if (err != NULL) *err = why;
    return r;
}

static int send(void *ctx, const struct intent *in, struct resource_list *made, bool *ret_taken, struct gp_error *err) {
    struct launching *l = ctx;
    struct google *g = l->g;
    GP_AUTO_RULE_CALL struct google_rule_call rule = {0};
    GP_AUTO_FREE char *what = xasprintf("google instances.bulkInsert in %s", in->zone);
    GP_AUTO_FREE char *base = google_url(g, "zones/%s/instances/bulkInsert", in->zone);
    GP_AUTO_FREE char *url = rest_with_param(base, "requestId", in->token);
    bool both = l->network != NULL && !google_members_known(g, l->stack->uid);
    struct rest_result sent[2] = {0};
    struct rest_call calls[2] = {{.what = what, .method = "POST", .url = url, .body = in->body, .flags = REST_ONCE}};
    struct gp_error why = {0}, refused = {0};
    int members = both ? google_members_begin(g, l->stack, l->network, &rule, err) : 0;
    if (members != 0) return members;
    calls[1] = rule.call;
    rest_call_many(&g->rest, calls, both ? 2 : 1, 0, sent);
    int r = sent[0].rc;
    why = sent[0].err;
    const char *name = r == 0 ? google_operation_name(sent[0].reply.json) : NULL;
    /* Google launches whether or not the journal can note the operation, or has a tombstone by now. The nodes are found
     * without it; when they cannot be recorded either, that error names them. */
    if (name != NULL) (void)journal_intent_operation(g->journal, in->id, name, NULL);
    int64_t end_s = 0;
    if (r == 0) r = google_wait(g, in->zone, sent[0].reply.json, what, &end_s, &why);
    bool accepted = name != NULL;
    if (both) members = end_members(l, in, &rule, &sent[1], r, &refused);
    rest_reply_clear(&sent[0].reply);
    rest_reply_clear(&sent[1].reply);
    if (members != 0) {
        if (err != NULL) *err = refused;
        return members;
    }
    if (r == 0) return take_nodes(l, in, end_s, made, ret_taken, err);
    /* A repeated request is answered by its requestId while Google knows it. */
    *ret_taken = r == -GP_EEXISTS;
    if (r != -GP_EUNKNOWN && r != -GP_EEXISTS && accepted && remove_rest(l, in, err) != 0) return -GP_EUNKNOWN;
    if (err != NULL) *err = why;
    return r;
}

static bool is_over(const void *ctx) { return ((const struct launching *)ctx)->removed; }

static struct cloud_launch launch_of(struct launching *l, const struct intent *in) {
    struct cloud_launch c = {.journal = l->g->journal,
                             .cancel = l->g->cancel,
                             .in = in,
                             .proof = l->req->proof,
                             .stack = l->stack->name,
                             .account = l->g->project,
                             .resend_s = provider_google.replay_max_s,
                             .own_names = true,
                             .settle_ms = provider_google.settle_ms,
                             .ctx = l,
                             .send = send,
                             .find = find,
                             .is_over = is_over};
    cloud_offer_facts(in, &c.price_usd_per_h, &c.gpus);
    return c;
}

/* The network of the stack's rules: that of its first offer at Google. */
static int home_network(struct google *g, const struct spec *spec, const char *region, char **ret,
                        struct gp_error *err) {
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *first = &spec->offers.items[i];
        if (str_eq(first->provider, "google"))
            return google_network_of(g, first->regions.n > 0 ? first->regions.v[0] : region, first, ret, err);
    }
    return 0;
}

static int place(struct google *g, const struct create_req *req, char **ret_network, struct gp_error *err) {
    GP_AUTO_FREE char *network = NULL;
    const struct offer *o = req->offer;
    int r = google_network_of(g, o->region, &req->spec->offers.items[o->spec_index], &network, err);
    if (r == 0) r = home_network(g, req->spec, o->region, ret_network, err);
    if (r == 0 && !str_eq(*ret_network, network)) {
        r = gp_fail(err, GP_EUSAGE,
                    "google: the nodes of offers[%zu] are in the network '%s', but the stack's firewall rules are in "
                    "'%s': give one network in all offers",
                    o->spec_index, network, *ret_network);
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
    }
    return r;
}

/* Nodes of several count with the rule between them only. Without it those that run are named as billed, and no other
 * offer is tried. */
static int need_members(const struct launching *l, const struct create_req *req, int launched, struct gp_error *err) {
    struct gp_error why = {0};
    if (launched != 0 || req->spec->nodes < 2 || l->network == NULL) return launched;
    int r = google_members_ensure(l->g, req->stack, l->network, &why);
    if (r == 0) return 0;
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s", why.msg);
    return gp_fail(err, GP_EBILLED,
                   "google: the nodes of '%s' run, but the firewall rule between them could not be made: %.250s; "
                   "correct that and run 'gpuprov up' again, or 'gpuprov down %s'",
                   req->stack->name, why.msg, req->stack->name);
}

static void drop(char **network) {
    free(*network);
    *network = NULL;
}

static int replay(struct launching *l, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    int r = home_network(l->g, req->spec, req->replay->region, &l->network, err);
    if (r != 0) return r;
    if (req->spec->nodes < 2) drop(&l->network);
    struct cloud_launch again = launch_of(l, req->replay);
    return need_members(l, req, cloud_launch_replay(&again, ret, err), err);
}

static int launch(struct launching *l, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct google *g = l->g;
    const struct offer *o = req->offer;
    const struct google_image *image = NULL;
    const struct google_place at = {o->instance_type, o->region, o->zone};
    GP_AUTO_NICS struct google_nics nics = {0};
    GP_AUTO_FREE char *body = NULL;
    char uuid[37];
    GP_AUTO_FREE char *token = NULL;
    int r = cloud_launch_token(req, g->project, &token, err);
    if (r == 0) r = google_quota_check(g, o, req->slot_count, err);
    if (r == 0) r = google_image_by_id(g, o->image, &image, err);
    if (r == 0) r = place(g, req, &l->network, err);
    if (r == 0) r = google_nics_choose(g, req->spec, &req->spec->offers.items[o->spec_index], &at, &nics, err);
    if (r == 0 && g->cache->members_refused && req->spec->nodes > 1)
        r = google_members_ensure(g, req->stack, l->network, err);
    if (r == 0) r = build(g, req, image, &nics, token, &body, err);
    if (r != 0) return r;
    google_uuid(token, uuid);
    if (req->spec->nodes < 2) drop(&l->network);
    struct intent in;
    cloud_intent_nodes(req, g->project, xstrdup(uuid), GP_STEAL(body), &in);
    r = journal_intent(g->journal, &in, err);
    if (r == 0) {
        struct cloud_launch first = launch_of(l, &in);
        r = need_members(l, req, cloud_launch_run(&first, ret, err), err);
    }
    intent_clear(&in);
    return r;
}

int google_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct launching l = {.g = google_of(p), .req = req, .stack = req->stack};
    int r = req->replay != NULL ? replay(&l, req, ret, err) : launch(&l, req, ret, err);
    free(l.network);
    return r;
}

// SPDX-License-Identifier: Apache-2.0
/* Creates nodes by one conditional PUT each (If-None-Match: *), by slot, attempt and token: a name has one machine.
 * Azure accepts first and allocates later, so accepted requests are polled until they are placed; one that fails then
 * leaves an object behind, which is removed. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/hash.h"
#include "providers/common/intents.h"
#include "providers/common/launch/launched.h"

#define AT_ONCE 8
#define POLLS_AT_ONCE 32
#define POLL_MS 5000
#define SOON_MS 200 /* a machine was read just before its operation had ended */
#define PLACEMENT_MS (15 * 60 * 1000)

/* ctx of the slot operations. */
struct creating {
    struct azure *a;
    const struct stack *stack;
    char *group;
    struct azure_places at;
    bool resent; /* requests of unknown outcome are sent again */
};

static void creating_clear(struct creating *c) {
    free(c->group);
    free(c->at.subnet);
    free(c->at.guard);
    free(c->at.set);
}

/* At most 64 characters. 20 hex digits of the token: nobody without the proof key can take the name first. */
static char *vm_name(const char *stack, int slot, int attempt, const char *token) {
    return xasprintf("gpuprov-%.20s-%d-%d-%.20s", stack, slot, attempt, token);
}

/* The name in the body of the intent's request. */
static char *vm_name_of(const struct intent *in) {
    GP_AUTO_JSON json_t *body = NULL;
    const char *name = "";
    if (json_parse(in->body, strlen(in->body), "the request", &body, NULL) == 0)
        name = json_str(body, "properties.osProfile.computerName", "");
    return xstrdup(form_word(name) ? name : "unknown");
}

/* The role with which the nodes of a new launch delete themselves; NULL: none. */
static const char *role_of(const struct create_req *req) {
    return req->replay == NULL ? req->spec->offers.items[req->offer->spec_index].role : NULL;
}

static char *vm_url(const struct azure *a, const char *group, const char *name) {
    return azure_url(a, AZURE_COMPUTE, "/resourceGroups/%s/providers/Microsoft.Compute/" AZURE_VM "/%s", group, name);
}

static char *vm_view_url(const struct azure *a, const char *group, const char *name) {
    struct str url = {0};
    GP_AUTO_FREE char *plain = vm_url(a, group, name);
    str_add(&url, plain);
    rest_query(&url, "$expand", "instanceView");
    return str_steal(&url);
}

/* --- the body --- */

static json_t *network_json(const struct creating *c, const struct create_req *req, const char *name) {
    json_t *ip = json_pack("{s:b,s:{s:s}}", "primary", 1, "subnet", "id", c->at.subnet);
    if (req->spec->access.public_ip)
        json_object_set_new(ip, "publicIPAddressConfiguration",
                            json_pack("{s:s,s:{s:s},s:{s:s,s:s}}", "name", name, "sku", "name", "Standard",
                                      "properties", "deleteOption", "Delete", "publicIPAllocationMethod", "Static"));
    return json_pack("{s:s,s:[{s:s,s:{s:b,s:s,s:{s:s},s:[{s:s,s:o}]}}]}", "networkApiVersion", "2020-11-01",
                     "networkInterfaceConfigurations", "name", name, "properties", "primary", 1, "deleteOption",
                     "Delete", "networkSecurityGroup", "id", c->at.guard, "ipConfigurations", "name", "main",
                     "properties", ip);
}

static json_t *os_json(const struct create_req *req, const char *name) {
    GP_AUTO_FREE char *data = base64_text(req->user_data, strlen(req->user_data));
    json_t *os = json_pack("{s:s,s:s,s:{s:b,s:{s:[{s:s,s:s}]}}}", "computerName", name, "adminUsername", "gpuprov",
                           "linuxConfiguration", "disablePasswordAuthentication", 1, "ssh", "publicKeys", "path",
                           "/home/gpuprov/.ssh/authorized_keys", "keyData", req->login_pubkey);
    if (req->user_data[0] != '\0') json_object_set_new(os, "customData", json_string(data));
    return os;
}

static json_t *tags_json(const struct create_req *req, int slot) {
    struct tags tags;
    cloud_launch_tags(req, slot, 1, &tags);
    json_t *j = azure_tags_json(&tags);
    if (role_of(req) != NULL) json_object_set_new(j, AZURE_ROLE_TAG, json_string(role_of(req)));
    tags_clear(&tags);
    return j;
}

static void add_spot(json_t *properties, const struct create_req *req) {
    double most = -1; /* up to the on-demand price */
    if (req->spec->max_price > 0) most = (double)req->spec->max_price / 1e6 - req->offer->disk_usd_per_h;
    if (req->offer->market != MARKET_SPOT) return;
    json_object_set_new(properties, "priority", json_string("Spot"));
    json_object_set_new(properties, "evictionPolicy", json_string("Delete")); /* else its disk is billed */
    json_object_set_new(properties, "billingProfile",
                        most < 0 ? json_pack("{s:i}", "maxPrice", -1) : json_pack("{s:f}", "maxPrice", most));
}

static int on_body(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                   struct gp_error *err) {
    const struct creating *c = ctx;
    const struct offer *o = req->offer;
    GP_AUTO_FREE char *name = vm_name(req->stack->name, slot, req->attempt, token);
    if (strlen(req->user_data) > provider_azure.user_data_max)
        return gp_fail(err, GP_EINTERNAL, "the user-data has %zu bytes, Azure takes %zu", strlen(req->user_data),
                       provider_azure.user_data_max);
    json_t *properties = json_pack(
        "{s:{s:s},s:{s:o,s:{s:s,s:s,s:i,s:{s:s}}},s:o,s:o}", "hardwareProfile", "vmSize", o->instance_type,
        "storageProfile", "imageReference", azure_image_json(o->image), "osDisk", "createOption", "FromImage",
        "deleteOption", "Delete", "diskSizeGB", azure_disk_gib(req->spec, o->gpus), "managedDisk", "storageAccountType",
        "Premium_LRS", "osProfile", os_json(req, name), "networkProfile", network_json(c, req, name));
    if (c->at.set != NULL) json_object_set_new(properties, "availabilitySet", json_pack("{s:s}", "id", c->at.set));
    add_spot(properties, req);
    GP_AUTO_JSON json_t *body =
        json_pack("{s:s,s:o,s:o}", "location", o->region, "tags", tags_json(req, slot), "properties", properties);
    if (role_of(req) != NULL) json_object_set_new(body, "identity", json_pack("{s:s}", "type", "SystemAssigned"));
    const char *number = strrchr(o->zone, '-'); /* of "eastus-1" */
    if (number != NULL) json_object_set_new(body, "zones", json_pack("[s]", number + 1));
    GP_AUTO_FREE char *text = json_text_exact(body, 0);
    str_add(out, text);
    return 0;
}

/* --- outcomes --- */

/* Only the path and query of an operation are kept: the host is always that of the endpoint. "": there is none, or it
 * is at another host. */
static char *operation_path(const struct azure *a, const struct http_fields *headers) {
    const char *url = http_fields_get(headers, "Azure-AsyncOperation");
    size_t n = strlen(a->endpoint);
    if (url == NULL || strncasecmp(url, a->endpoint, n) != 0 || url[n] != '/' || strlen(url) > 2000) return xstrdup("");
    for (const char *p = url + n; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~' || *p == '#') return xstrdup("");
    return str_starts(url + n, "/subscriptions/") && strstr(url + n, "/..") == NULL ? xstrdup(url + n) : xstrdup("");
}

static void fail_as(struct slot_outcome *out, const char *what, const char *code, const char *message) {
    GP_AUTO_FREE char *text = xstrdup(message);
    GP_AUTO_FREE char *word = xstrdup(code[0] != '\0' ? code : "Failed");
    str_one_line(text);
    str_one_line(word);
    struct cloud_said said = {word, text, ""};
    gp_error_clear(&out->err);
    cloud_fail(&out->err, what, &said, cloud_error_find(azure_errors, azure_error_count, &said));
    if (out->err.scope == GP_SCOPE_NONE) out->err.scope = GP_SCOPE_ZONE;
    out->state = SLOT_REFUSED;
}

/* Takes the machine of a reply to a request by its name, which has the launch's token. Its tags may have been edited
 * since, so they do not say what it is. False: the reply is malformed. */
static bool take(const struct creating *c, const struct intent *in, const json_t *vm, struct slot_outcome *out) {
    struct resource r;
    bool ok = azure_vm_read(c->a, vm, &r, NULL) == 0;
    if (ok) {
        GP_AUTO_FREE char *name = vm_name_of(in);
        launched_identify(in, c->stack, 0, &r);
        free(r.id);
        r.id = azure_handle_text(c->group, AZURE_VM, name, in->uid);
        resource_set(&r.zone, r.zone[0] != '\0' ? r.zone : in->zone);
        resource_clear(&out->made);
        out->made = r;
        return true;
    }
    resource_clear(&r);
    return false;
}

static const json_t *failed_status(const json_t *vm) {
    size_t i = 0;
    json_t *s = NULL;
    json_array_foreach(json_at(vm, "properties.instanceView.statuses"), i, s) {
        if (str_starts(json_str(s, "code", ""), "ProvisioningState/failed")) return s;
    }
    return NULL;
}

static bool is_placed(const json_t *vm) {
    size_t i = 0;
    json_t *s = NULL;
    if (strcasecmp(json_str(vm, "properties.provisioningState", ""), "Succeeded") == 0) return true;
    json_array_foreach(json_at(vm, "properties.instanceView.statuses"), i, s) {
        const char *code = json_str(s, "code", "");
        if (strcmp(code, "PowerState/running") == 0) return true;
    }
    return false;
}

/* Decides by the machine of that name, as it was read. ended: its operation succeeded. */
static void judge(struct creating *c, const struct intent *in, bool ended, const struct rest_call *call,
                  const struct rest_result *res, struct slot_outcome *out) {
    const struct rest_reply *reply = &res->reply;
    gp_error_clear(&out->err);
    out->state = SLOT_ACCEPTED;
    if (res->rc != 0) return; /* read again: it was accepted */
    if (reply->status == 404) {
        if (ended || out->made.id[0] != '\0') fail_as(out, call->what, "", "it was deleted while it started");
        else out->state = SLOT_UNKNOWN;
        if (out->state == SLOT_UNKNOWN) gp_fail(&out->err, GP_EUNKNOWN, "%s: it is not listed", call->what);
        return;
    }
    if (!take(c, in, reply->json, out)) {
        gp_fail(&out->err, GP_EUNKNOWN, "%s: the reply is not a machine of this subscription", call->what);
        out->state = SLOT_UNKNOWN;
        return;
    }
    const json_t *failed = failed_status(reply->json);
    if (failed != NULL) {
        const char *code = strrchr(json_str(failed, "code", ""), '/');
        fail_as(out, call->what, strcmp(code + 1, "failed") == 0 ? "" : code + 1, json_str(failed, "message", ""));
    } else if (strcasecmp(json_str(reply->json, "properties.provisioningState", ""), "Failed") == 0) {
        fail_as(out, call->what, "", "its provisioning failed");
    } else if (is_placed(reply->json)) {
        out->state = SLOT_MADE;
    }
}

/* The call that reads the machine of an intent; texts keeps its texts. */
static struct rest_call look_call(const struct creating *c, const struct intent *in, struct strv *texts) {
    GP_AUTO_FREE char *name = vm_name_of(in);
    char *url = vm_view_url(c->a, c->group, name), *what = azure_what("PUT", url);
    strv_take(texts, url);
    strv_take(texts, what);
    return (struct rest_call){.what = what, .method = "GET", .url = url, .flags = REST_MISSING};
}

static void look(struct creating *c, const struct intent *in, struct slot_outcome *out) {
    GP_AUTO_STRV struct strv texts = {0};
    struct rest_call call = look_call(c, in, &texts);
    struct rest_result res = {0};
    rest_call_many(&c->a->rest, &call, 1, 1, &res);
    judge(c, in, false, &call, &res, out);
    rest_reply_clear(&res.reply);
}

/* What the operation of an accepted request shows. Its failure has the reason, which the machine may lack. */
static void judge_operation(const struct rest_result *res, struct slot_outcome *out) {
    const char *status = json_str(res->reply.json, "status", "");
    bool failed = res->rc == 0 && (strcasecmp(status, "Failed") == 0 || strcasecmp(status, "Canceled") == 0);
    if (failed && out->state != SLOT_MADE)
        fail_as(out, "azure create", json_str(res->reply.json, "error.code", status),
                json_str(res->reply.json, "error.message", ""));
}

static bool is_ended(const struct rest_result *operation) {
    return operation != NULL && operation->rc == 0 &&
           strcasecmp(json_str(operation->reply.json, "status", ""), "Succeeded") == 0;
}

/* The machines and their operations are read side by side. */
static void on_poll(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct creating *c = ctx;
    struct rest_call *calls = xcalloc(2 * n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(2 * n + 1, sizeof *results);
    GP_AUTO_STRV struct strv texts = {0};
    size_t all = n;
    for (size_t i = 0; i < n; i++) {
        const char *path = ret[i].operation != NULL ? ret[i].operation : "";
        calls[i] = look_call(c, in[i], &texts);
        if (path[0] != '/') continue;
        char *url = xasprintf("%s%s", c->a->endpoint, path);
        strv_take(&texts, url);
        calls[all++] = (struct rest_call){.what = calls[i].what, .method = "GET", .url = url, .flags = REST_MISSING};
    }
    rest_call_many(&c->a->rest, calls, all, POLLS_AT_ONCE, results);
    int64_t *pause = &c->a->slot_ops.poll_ms;
    *pause = POLL_MS;
    for (size_t i = 0, at = n; i < n; i++) {
        bool has = ret[i].operation != NULL && ret[i].operation[0] == '/';
        const struct rest_result *operation = has ? &results[at++] : NULL;
        judge(c, in[i], is_ended(operation), &calls[i], &results[i], &ret[i]);
        if (operation == NULL) continue;
        judge_operation(operation, &ret[i]);
        if (ret[i].state != SLOT_ACCEPTED) continue;
        *pause = GP_MIN(*pause, is_ended(operation) ? SOON_MS : azure_retry_ms(&operation->reply.headers, POLL_MS));
    }
    for (size_t i = 0; i < all; i++) rest_reply_clear(&results[i].reply);
    free(calls);
    free(results);
}

/* --- requests --- */

static void taken(struct creating *c, const struct intent *in, const struct rest_reply *reply,
                  struct slot_outcome *out) {
    if (!take(c, in, reply->json, out)) {
        out->state = SLOT_UNKNOWN; /* cut short: its name settles it */
        gp_fail(&out->err, GP_EUNKNOWN, "azure: the reply does not have the machine that was requested");
        return;
    }
    free(out->operation);
    out->operation = operation_path(c->a, &reply->headers);
    out->state = SLOT_ACCEPTED;
    c->a->slot_ops.poll_ms = azure_retry_ms(&reply->headers, POLL_MS);
}

static void on_send(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct creating *c = ctx;
    struct rest_call *calls = xcalloc(n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(n + 1, sizeof *results);
    GP_AUTO_STRV struct strv texts = {0};
    GP_AUTO_FIELDS struct http_fields only_new = {0};
    http_fields_add(&only_new, "If-None-Match", "*");
    for (size_t i = 0; i < n; i++) {
        GP_AUTO_FREE char *name = vm_name_of(in[i]);
        char *url = vm_url(c->a, c->group, name);
        strv_take(&texts, azure_what("PUT", url));
        strv_take(&texts, url);
        calls[i] = (struct rest_call){.what = texts.v[2 * i],
                                      .method = "PUT",
                                      .url = url,
                                      .body = in[i]->body,
                                      .headers = &only_new,
                                      .flags = REST_ONCE};
    }
    rest_call_many(&c->a->rest, calls, n, AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        const struct rest_result *r = &results[i];
        struct slot_outcome *out = &ret[i];
        if (r->rc == 0) {
            taken(c, in[i], &r->reply, out);
        } else if (strcmp(r->reply.code, "PreconditionFailed") == 0) {
            look(c, in[i], out); /* an earlier request of this intent, or another run */
            out->exists = true;
        } else {
            out->state = r->rc == -GP_EUNKNOWN ? SLOT_UNKNOWN : SLOT_REFUSED;
            out->err = r->err;
        }
        rest_reply_clear(&results[i].reply);
    }
    free(calls);
    free(results);
}

static int on_list(void *ctx, const char *region, const char *uid, struct resource_list *ret, struct gp_error *err) {
    struct creating *c = ctx;
    GP_AUTO_RESOURCES struct resource_list all = {0};
    (void)region; /* the group has the machines of all of them */
    int r = azure_list_vms(c->a, c->group, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct resource *one = &all.list.items[i];
        /* One that is not placed yet, or failed, is not a node: its request is sent again, which is refused because the
         * name exists, and then its placement is polled. */
        bool decided = one->state == RES_RUNNING || !c->resent;
        if (decided && str_eq(one->uid, uid)) resource_list_add(ret, one);
    }
    return r;
}

static int on_destroy(void *ctx, const struct resource_list *what, struct gp_error *err) {
    struct creating *c = ctx;
    return azure_destroy(&c->a->base, what, err);
}

/* Whether the offer's machines share InfiniBand: what its plan said. */
static int choose_fabric(struct azure *a, const struct create_req *req, bool *ret, struct gp_error *err) {
    const struct offer *o = req->offer;
    int r = azure_sizes_known(a, o->region) == NULL ? azure_sizes_load(a, o->region, err) : 0;
    if (r != 0) return r;
    const struct azure_size *size = azure_size_find(azure_sizes_known(a, o->region), o->instance_type);
    if (size == NULL) return 0;
    return azure_fabric_choose(req->spec, &req->spec->offers.items[o->spec_index], size, ret, err);
}

/* Whether the nodes of the launch are to delete themselves; of a replayed one the spec's offers say so, and then the
 * machine's tag. */
static bool wants_rights(const struct create_req *req) {
    bool any = role_of(req) != NULL;
    for (size_t i = 0; req->replay != NULL && i < req->spec->offers.len; i++) {
        const struct spec_offer *o = &req->spec->offers.items[i];
        any = any || (str_eq(o->provider, "azure") && o->role != NULL);
    }
    return any;
}

/* The first half of the nodes' right, before any of them exists. A role that does not fit is never accepted.
 * *ret_begun: the second half may follow. */
static int begin_rights(struct azure *a, const struct create_req *req, bool *ret_begun, struct gp_error *err) {
    struct gp_error why = {0};
    int r = azure_grants_begin(a, req->stack, role_of(req), &why);
    *ret_begun = r == 0;
    if (r == 0 || (r != -GP_EUSAGE && azure_grants_may_lack(a, req->spec, &why))) return 0;
    if (err != NULL) *err = why;
    return r;
}

/* The right of new nodes to delete themselves. Nodes that were to have it and do not are deleted, unless the spec
 * accepts them. */
static int give_rights(struct azure *a, const struct create_req *req, struct resource_list *made,
                       struct gp_error *err) {
    struct gp_error why = {0}, left = {0};
    int r = azure_grants_make(a, req->stack, req->spec, made, &why);
    if (gp_cancelled(a->cancel))
        return r == 0 ? 0
                      : gp_fail(err, GP_ECANCELLED,
                                "cancelled before the nodes could delete themselves: run 'gpuprov up' or 'gpuprov "
                                "down' again");
    if (r == 0 || azure_grants_may_lack(a, req->spec, &why)) return 0;
    if (azure_destroy(&a->base, made, &left) != 0)
        return gp_fail(err, GP_EBILLED,
                       "nodes of '%s' exist and cannot delete themselves: run 'gpuprov down %s' (deleting them: %s; "
                       "their right: %s)",
                       req->stack->name, req->stack->name, left.msg, why.msg);
    resource_list_clear(made);
    why.code = why.code == GP_EUNKNOWN ? GP_EPROTO : why.code; /* of the assignment: the machines are being deleted */
    why.scope = GP_SCOPE_OFFER;
    if (err != NULL) *err = why;
    return -(int)why.code;
}

/* Another run's nodes have the right that it gave them. */
static void set_aside_others(struct resource_list *made, struct resource_list *others) {
    size_t n = 0;
    for (size_t i = 0; i < made->list.len; i++) {
        if (made->list.items[i].other_run) vec_push(&others->list, made->list.items[i]);
        else made->list.items[n++] = made->list.items[i];
    }
    made->list.len = n;
}

int azure_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct azure *a = azure_of(p);
    int64_t age_s = req->replay != NULL ? clock_wall_s() - req->replay->created_s : 0;
    struct creating c = {.a = a,
                         .stack = req->stack,
                         .group = azure_group_name(req->stack->owner, req->stack->name),
                         .resent = age_s < provider_azure.replay_max_s};
    bool together = false, rights = wants_rights(req);
    int r = 0;
    if (req->replay == NULL) r = choose_fabric(a, req, &together, err);
    if (r == 0 && req->replay == NULL) r = azure_quota_check(a, req->offer, req->slot_count, err);
    if (r == 0 && req->replay == NULL)
        r = azure_network_ensure(a, req->stack, req->spec, req->offer, together, &c.at, err);
    if (r == 0 && role_of(req) != NULL) r = begin_rights(a, req, &rights, err);
    a->slot_ops = (struct slot_ops){.provider = "azure",
                                    .settle_ms = provider_azure.settle_ms,
                                    .poll_ms = POLL_MS,
                                    .placement_ms = PLACEMENT_MS,
                                    .replay_max_s = provider_azure.replay_max_s,
                                    .body = on_body,
                                    .send = on_send,
                                    .poll = on_poll,
                                    .list = on_list,
                                    .destroy = on_destroy};
    struct slot_create how = {
        .ops = &a->slot_ops, .ctx = &c, .account = a->subscription, .journal = a->journal, .cancel = a->cancel};
    if (r == 0) r = slot_create(&how, req, ret, err);
    struct resource_list others = {0};
    set_aside_others(ret, &others);
    if (ret->list.len > 0 && r != -GP_ECANCELLED && r != -GP_EBILLED && rights) {
        struct gp_error why = {0};
        int given = give_rights(a, req, ret, &why);
        if (given != 0 && (r == 0 || given == -GP_EBILLED)) {
            r = given;
            if (err != NULL) *err = why;
        }
    }
    for (size_t i = 0; i < others.list.len; i++) vec_push(&ret->list, others.list.items[i]); /* moves them */
    vec_free(&others.list);
    creating_clear(&c);
    return r;
}

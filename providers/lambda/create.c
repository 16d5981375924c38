// SPDX-License-Identifier: Apache-2.0
/* Creates nodes, one request each: intent first, at most one launch per 12 s. Lambda has no tokens, so that a lost
 * reply is settled by tags, and a request that left nothing in the lists is sent once more. An accepted launch counts
 * when a list shows it with its tags, because only these find it again. One thread. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/common/account_list.h"
#include "providers/common/cloud_clock.h"
#include "providers/common/intents.h"
#include "providers/common/launch/slot_send.h"

#define LAUNCH_PACES 12 /* of the API description: one launch per 12 s, other requests one per second */

struct launching {
    struct lambda *l;
    const struct stack *stack;
    const char *ruleset; /* NULL: none */
};

/* --- the request --- */

static json_t *tags_json(const struct create_req *req, int slot, struct gp_error *err) {
    GP_AUTO_LABELS struct label_list labels = {0};
    struct tags tags;
    cloud_launch_tags(req, slot, 1, &tags);
    bool whole = labels_write(&labels_lambda, &tags, &labels);
    tags_clear(&tags);
    if (!whole) {
        gp_fail(err, GP_EUSAGE, "lambda: a tag is longer than %zu characters: use a shorter --owner",
                labels_lambda.value_max);
        return NULL;
    }
    json_t *all = json_array();
    for (size_t i = 0; i < labels.list.len; i++)
        json_array_append_new(
            all, json_pack("{s:s,s:s}", "key", labels.list.items[i].key, "value", labels.list.items[i].value));
    return all;
}

static int body(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                struct gp_error *err) {
    const struct launching *c = ctx;
    const struct offer *o = req->offer;
    (void)token;
    if (strlen(req->user_data) > provider_lambda.user_data_max)
        return gp_fail(err, GP_EINTERNAL, "the user-data has %zu bytes, Lambda takes %zu", strlen(req->user_data),
                       provider_lambda.user_data_max);
    int r = key_claim_of(&c->l->claims, req->stack, err);
    if (r != 0) return r;
    json_t *tags = tags_json(req, slot, err);
    if (tags == NULL) return -GP_EUSAGE;
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s-%d", req->stack->name, slot);
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s,s:s,s:[s],s:s,s:{s:s},s:o}", "region_name", o->region, "instance_type_name", o->instance_type,
                  "ssh_key_names", c->l->claims.name, "name", name, "image", "id", o->image, "tags", tags);
    if (j == NULL) return gp_fail(err, GP_EINTERNAL, "lambda: the launch request is not UTF-8: report this as a bug");
    if (c->ruleset != NULL) json_object_set_new(j, "firewall_rulesets", json_pack("[{s:s}]", "id", c->ruleset));
    if (req->user_data[0] != '\0') json_object_set_new(j, "user_data", json_string(req->user_data));
    char *text = json_dumps(j, JSON_COMPACT);
    str_add(out, text != NULL ? text : "");
    free(text);
    return 0;
}

/* --- sending --- */

/* Requests wait for one another, so that the last ones may come after the deadline. Lambda has none of its own. */
static int check_time(const struct lambda *l, const struct intent *in, struct gp_error *err) {
    if (in->deadline_s == 0 || cloud_now_s(&l->base) < in->deadline_s) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "lambda launch in %s: the deadline passed before node %d was launched: set a longer limits.ttl",
                   in->region, in->slot_first);
}

static int launch(void *ctx, const struct intent *in, struct slot_outcome *ret) {
    struct lambda *l = ctx;
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *request = NULL;
    json_t *data = NULL;
    int64_t wait = clock_left_ms(l->launch_due_ms);
    int r = json_parse(in->body, strlen(in->body), "the request", &request, &ret->err);
    if (r == 0 && wait > 0) r = gp_sleep(wait, l->cancel, &ret->err);
    if (r == 0) r = check_time(l, in, &ret->err);
    if (r != 0) return r;
    l->launch_due_ms = clock_deadline(LAUNCH_PACES * l->pace_ms);
    r = lambda_call(l, "POST", "/instance-operations/launch", request, REST_ONCE, &reply, &data, &ret->err);
    if (r != 0) return r;
    const json_t *ids = json_at(data, "instance_ids");
    const char *id = json_str(data, "instance_ids.0", "");
    if (json_array_size(ids) != 1 || !form_word(id))
        return gp_fail(&ret->err, GP_EUNKNOWN, "lambda launch in %s: the reply has not exactly one id of an instance",
                       in->region);
    resource_set(&ret->made.id, id);
    return 0;
}

static void send(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    const struct launching *c = ctx;
    slot_send_each(c->stack, in, n, ret, launch, c->l);
}

static void poll(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    const struct launching *c = ctx;
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct gp_error why = {0};
    if (lambda_instances(c->l, NULL, &all, &why) != 0) return; /* read again */
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < all.list.len; k++) {
            const struct resource *r = &all.list.items[k];
            if (!str_eq(r->id, ret[i].made.id)) continue; /* its tags may have been edited since */
            resource_clear(&ret[i].made);
            resource_copy(&ret[i].made, r);
            bool failed = r->state == RES_GONE || r->state == RES_STOPPING || r->state == RES_STOPPED;
            ret[i].state = failed ? SLOT_REFUSED : SLOT_MADE;
            if (!failed) continue;
            gp_fail(&ret[i].err, GP_ECAPACITY, "lambda launch in %s: the instance %s is %s right after its launch",
                    in[i]->region, r->id, r->state_reason);
            ret[i].err.domain = GP_D_CLOUD;
            ret[i].err.scope = GP_SCOPE_REGION;
        }
    }
}

static int list(void *ctx, const char *region, const char *uid, struct resource_list *ret, struct gp_error *err) {
    const struct launching *c = ctx;
    struct resource_list all = {0};
    int r = lambda_instances(c->l, NULL, &all, err);
    account_list_take(&all, region, uid, ret);
    return r;
}

static int destroy(void *ctx, const struct resource_list *what, struct gp_error *err) {
    const struct launching *c = ctx;
    return lambda_terminate(c->l, what, err);
}

/* Before anything is launched: whether the last request of the gang comes before the deadline. */
static int check_gang(const struct lambda *l, const struct create_req *req, struct gp_error *err) {
    int64_t left_s = req->stack->expires_s - cloud_now_s(&l->base);
    int64_t takes_s = (req->slot_count - 1) * LAUNCH_PACES * l->pace_ms / 1000;
    if (req->stack->expires_s == 0 || takes_s < left_s) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "lambda: %d launches take %lld s, one each %lld s, and the deadline is in %lld s: set a longer "
                   "limits.ttl, or have fewer nodes",
                   req->slot_count, (long long)takes_s, (long long)(LAUNCH_PACES * l->pace_ms / 1000),
                   (long long)GP_MAX(left_s, (int64_t)0));
}

int lambda_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct lambda *l = lambda_of(p);
    const struct slot_ops ops = {.provider = "lambda",
                                 .settle_ms = provider_lambda.settle_ms,
                                 .poll_ms = GP_MAX(l->pace_ms, (int64_t)100),
                                 .placement_ms = 60 * 1000,
                                 .replay_max_s = provider_lambda.replay_max_s,
                                 .repeat_max_s = 10 * 60,
                                 .one_by_one = true,
                                 .body = body,
                                 .send = send,
                                 .poll = poll,
                                 .list = list,
                                 .destroy = destroy};
    GP_AUTO_FREE char *ruleset = NULL;
    int r = req->replay == NULL ? check_gang(l, req, err) : 0;
    if (r == 0 && req->replay == NULL)
        r = lambda_firewall_ensure(l, req->stack, req->spec, req->offer->region, &ruleset, err);
    if (r != 0) return r;
    struct launching ctx = {l, req->stack, ruleset};
    struct slot_create c = {
        .ops = &ops, .ctx = &ctx, .account = l->base.account, .journal = l->journal, .cancel = l->cancel};
    return slot_create(&c, req, ret, err);
}

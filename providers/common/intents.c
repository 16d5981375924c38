// SPDX-License-Identifier: Apache-2.0
/* Builds intents and keeps offers in them as JSON. */
#include "base/gp_base.h"

#include "providers/common/intents.h"

#include "base/clock.h"
#include "base/json.h"
#include "providers/common/launch/launched.h"

int cloud_launch_token(const struct create_req *req, const char *account, char **ret, struct gp_error *err) {
    const struct offer *o = req->offer;
    char token[PROOF_TOKEN_SIZE];
    int r = launched_need_key(req->proof, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *text =
        xasprintf("%s|instance|%d|%d|%d|%s|%s|%s|%s|%s", req->stack->uid, req->slot_first, req->slot_count,
                  req->attempt, account, o->region, o->zone, o->instance_type, spec_market_name(o->market));
    proof_token(req->proof, text, token);
    *ret = xstrdup(token);
    return 0;
}

void cloud_launch_tags(const struct create_req *req, int slot_first, int slot_count, struct tags *ret) {
    tags_of_launch(ret, req->stack, req->proof, slot_first, slot_count, req->attempt, req->offer->price_usd_per_h);
}

static struct intent intent_of(const struct stack *s, const char *provider, const char *region, const char *zone) {
    return (struct intent){.uid = xstrdup(s->uid),
                           .provider = xstrdup(provider),
                           .region = xstrdup(region),
                           .zone = xstrdup(zone),
                           .created_s = clock_wall_s(),
                           .deadline_s = s->expires_s,
                           .state = INTENT_OPEN,
                           .note = xstrdup("")};
}

static char *with_account(char *offer, const char *account) {
    GP_AUTO_FREE char *text = offer;
    GP_AUTO_JSON json_t *j = NULL;
    if (account == NULL || account[0] == '\0' || json_parse(text, strlen(text), "offer", &j, NULL) != 0)
        return GP_STEAL(text);
    json_object_set_new(j, "account", json_string(account));
    return json_text(j, 0);
}

void cloud_intent_nodes(const struct create_req *req, const char *account, char *token, char *body,
                        struct intent *ret) {
    *ret = intent_of(req->stack, req->offer->provider, req->offer->region, req->offer->zone);
    ret->spec_hash = xstrdup(req->spec->hash);
    ret->kind = RES_INSTANCE;
    ret->slot_first = req->slot_first;
    ret->slot_count = req->slot_count;
    ret->attempt = req->attempt;
    ret->token = token;
    ret->body = body;
    ret->offer = with_account(cloud_offer_json(req->offer), account);
}

void cloud_intent_thing(const struct stack *s, const char *provider, const char *region, enum resource_kind kind,
                        const char *name, const char *body, struct intent *ret) {
    *ret = intent_of(s, provider, region, "");
    ret->kind = kind;
    ret->slot_first = -1;
    ret->token = xstrdup(name);
    ret->body = xstrdup(body);
    ret->offer = xstrdup("");
}

/* Members that only some offers have are left out elsewhere, so that intents of all versions are read alike. */
char *cloud_offer_json(const struct offer *o) {
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:f,s:i,s:i}", "region", o->region, "zone", o->zone, "instance_type",
                  o->instance_type, "market", spec_market_name(o->market), "image", o->image, "price_usd_per_h",
                  o->price_usd_per_h, "gpus", o->gpus, "vcpus", o->vcpus);
    if (j != NULL && o->disk_gib > 0) json_object_set_new(j, "disk_gib", json_integer(o->disk_gib));
    if (j != NULL && o->currency != NULL && o->currency[0] != '\0') {
        json_object_set_new(j, "currency", json_string(o->currency));
        json_object_set_new(j, "price_in_currency", json_real(o->price_in_currency));
        json_object_set_new(j, "rate_date", json_string(o->rate_date != NULL ? o->rate_date : ""));
    }
    return j != NULL ? json_text(j, 0) : xstrdup("{}");
}

void cloud_offer_facts(const struct intent *in, double *ret_price_usd_per_h, int *ret_gpus) {
    GP_AUTO_JSON json_t *offer = NULL;
    if (in->offer[0] != '\0' && json_parse(in->offer, strlen(in->offer), "offer", &offer, NULL) != 0) offer = NULL;
    *ret_price_usd_per_h = json_num(offer, "price_usd_per_h", -1);
    *ret_gpus = (int)json_int(offer, "gpus", -1);
}

// SPDX-License-Identifier: Apache-2.0
/* Lists instances, claims and firewall rulesets. One call shows the instances of the whole account, in all regions and
 * without pages; tags decide which are ours. Does not read the journal. One thread at a time. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/form.h"
#include "base/hash.h"
#include "providers/common/account_list.h"
#include "providers/common/places.h"

/* --- the name as a carrier of late tags --- */

#define KEY_BYTES 32
#define PROOF_BYTES 16
#define NAME_LENGTH 64 /* of KEY_BYTES + PROOF_BYTES in base64; without padding */

char *lambda_name_of(const char *hostkey, const char *proof) {
    GP_AUTO_STR struct str bytes = {0};
    if (!form_fingerprint(hostkey) || !form_proof(proof)) return NULL;
    GP_AUTO_FREE char *padded = xasprintf("%s=", hostkey + strlen("SHA256:"));
    if (!base64_bytes(padded, strlen(padded), &bytes) || bytes.len != KEY_BYTES) return NULL;
    GP_AUTO_FREE char *again = base64_text(bytes.s, KEY_BYTES);
    if (strcmp(again, padded) != 0) return NULL; /* its last character has bits that are not of the hash */
    for (size_t i = 0; i < PROOF_BYTES; i++) {
        char hex[3] = {proof[2 * i], proof[2 * i + 1], '\0'};
        str_addc(&bytes, (char)strtoul(hex, NULL, 16));
    }
    return base64_text(bytes.s, bytes.len);
}

/* Any other name, such as the one of the launch or one that its owner gave it, carries nothing. */
static void read_name(const char *name, struct tags *ret) {
    GP_AUTO_STR struct str bytes = {0};
    char proof[2 * PROOF_BYTES + 1];
    if (strlen(name) != NAME_LENGTH || !base64_bytes(name, NAME_LENGTH, &bytes) || bytes.len != KEY_BYTES + PROOF_BYTES)
        return;
    GP_AUTO_FREE char *key = base64_text(bytes.s, KEY_BYTES);
    GP_AUTO_FREE char *hostkey = xasprintf("SHA256:%.43s", key);
    str_hex(proof, (const unsigned char *)bytes.s + KEY_BYTES, PROOF_BYTES);
    tags_read(ret, "hostkey", hostkey);
    tags_read(ret, "proof", proof);
}

void lambda_tags_decode(const json_t *instance, struct tags *ret) {
    GP_AUTO_LABELS struct label_list labels = {0};
    const json_t *all = json_at(instance, "tags"), *one = NULL;
    size_t i = 0;
    json_array_foreach(all, i, one) labels_add(&labels, json_str(one, "key", ""), json_str(one, "value", ""));
    labels_read(&labels_lambda, &labels, ret);
    read_name(json_str(instance, "name", ""), ret);
}

static bool has_tag_of_ours(const json_t *instance) {
    const json_t *all = json_at(instance, "tags"), *one = NULL;
    size_t i = 0;
    json_array_foreach(all, i, one) {
        if (str_starts(json_str(one, "key", ""), labels_lambda.prefix)) return true;
    }
    return false;
}

/* preempted: off, but Lambda does not document that it is gone; it is terminated like any other. */
static enum resource_state state_of(const char *status) {
    if (str_eq(status, "booting")) return RES_PENDING;
    if (str_eq(status, "active") || str_eq(status, "unhealthy")) return RES_RUNNING;
    if (str_eq(status, "preempted")) return RES_STOPPED;
    if (str_eq(status, "terminated")) return RES_GONE;
    return RES_STOPPING; /* terminating and unknown states: not gone */
}

static const char *word_or(const char *text) { return form_word(text) ? text : ""; }

static const char *address_or(const char *text) { return form_address(text) ? text : ""; }

int lambda_instance_read(const json_t *j, struct resource *ret, struct gp_error *err) {
    const char *id = json_str(j, "id", ""), *status = json_str(j, "status", "");
    const char *region = json_str(j, "region.name", "");
    int64_t gpus = json_int(j, "instance_type.specs.gpus", -1),
            cents = json_int(j, "instance_type.price_cents_per_hour", -1);
    struct tags tags;
    resource_init(ret, RES_INSTANCE, "lambda");
    if (!form_word(id) || !form_word(status) || !form_word(region))
        return gp_fail(err, GP_EPROTO,
                       "lambda GET /instances: an entry without the id, status and region of an instance: run the same "
                       "command again");
    lambda_tags_decode(j, &tags);
    resource_set(&ret->id, id);
    resource_set(&ret->region, region);
    tags_to_resource(&tags, 0, ret);
    tags_clear(&tags);
    resource_set(&ret->instance_type, word_or(json_str(j, "instance_type.name", "")));
    resource_set(&ret->public_ip, address_or(json_str(j, "ip", "")));
    resource_set(&ret->private_ip, address_or(json_str(j, "private_ip", "")));
    resource_set(&ret->user, "gpuprov");
    resource_set(&ret->state_reason, str_eq(status, "active") ? "" : status);
    ret->state = state_of(status);
    ret->billed = ret->state != RES_GONE;
    ret->gpus = gpus >= 0 && gpus <= 1024 ? (int)gpus : -1;
    if (ret->price_usd_per_h < 0 && cents > 0 && cents <= 10000000) ret->price_usd_per_h = (double)cents / 100.0;
    return 0;
}

int lambda_instances(struct lambda *l, const struct resource_list *known, struct resource_list *ret,
                     struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *data = NULL, *one = NULL;
    size_t i = 0;
    int r = lambda_call(l, "GET", "/instances", NULL, LAMBDA_LIST, &reply, &data, err);
    if (r != 0) return r;
    json_array_foreach(data, i, one) {
        struct resource found;
        if (!has_tag_of_ours(one) && !account_list_knows(known, json_str(one, "id", ""))) continue;
        r = lambda_instance_read(one, &found, err);
        if (r != 0) {
            resource_clear(&found);
            return r;
        }
        vec_push(&ret->list, found);
    }
    return 0;
}

static int all_regions(struct lambda *l, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_STRV struct strv all = {0};
    json_t *data = NULL, *one = NULL;
    size_t i = 0;
    if (l->regions.n > 0) return 0;
    int r = lambda_call(l, "GET", "/regions", NULL, LAMBDA_LIST, &reply, &data, err);
    if (r != 0) return r;
    json_array_foreach(data, i, one) {
        const char *name = json_str(one, "name", "");
        if (!form_word(name))
            return gp_fail(err, GP_EPROTO, "lambda GET /regions: a name in the reply is not a region");
        r = places_add(&all, name, "lambda GET /regions", err);
        if (r != 0) return r;
    }
    if (all.n == 0) return gp_fail(err, GP_EPROTO, "lambda GET /regions: the reply names no region");
    l->regions = all;
    all = (struct strv){0};
    return 0;
}

static void move_wanted(const struct list_req *req, struct resource_list *from, struct resource_list *to) {
    for (size_t i = 0; i < from->list.len; i++) {
        struct resource *r = &from->list.items[i];
        if (account_list_wants(req, r)) vec_push(&to->list, *r);
        else resource_clear(r);
    }
    vec_free(&from->list);
}

static int list_claims(struct lambda *l, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_KEY_CLAIMS struct key_claims all = {0};
    GP_AUTO_RULESETS struct lambda_rulesets sets = {0};
    int r = key_claims_read(&l->claims, &all, err);
    if (r == 0) r = lambda_rulesets_read(l, &sets, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        struct resource one;
        key_claim_resource(&l->claims, &all.list.items[i], &one);
        vec_push(&ret->list, one);
    }
    for (size_t i = 0; r == 0 && i < sets.list.len; i++) {
        struct resource one;
        lambda_ruleset_resource(&sets.list.items[i], &all, req->owner, req->stack, &one);
        vec_push(&ret->list, one);
    }
    return r;
}

int lambda_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct lambda *l = lambda_of(p);
    struct resource_list all = {0};
    struct gp_error why = {0};
    GP_AUTO_STRV struct strv regions = {0};
    if (req->images) return 0; /* there are none */
    if (req->regions != NULL) strv_copy(&regions, req->regions);
    bool everywhere = req->regions == NULL || req->everywhere;
    int r = everywhere ? all_regions(l, &why) : 0;
    if (everywhere) strv_merge(&regions, &l->regions);
    if (r == 0) r = lambda_instances(l, req->known, &all, &why);
    if (r == 0 && !req->nodes_only) r = list_claims(l, req, &all, &why);
    for (size_t i = 0; i < all.list.len; i++) { /* a region that is no longer in the list of regions */
        const char *region = all.list.items[i].region;
        if (r == 0 && everywhere && region[0] != '\0') r = places_add(&regions, region, "lambda GET /instances", &why);
    }
    move_wanted(req, &all, ret);
    for (size_t i = 0; req->looked != NULL && i < regions.n; i++)
        coverage_put(req->looked, "lambda", regions.v[i], req->owner, true, r != 0 ? &why : NULL);
    if (req->looked != NULL && r != 0 && everywhere) coverage_put(req->looked, "lambda", "", req->owner, true, &why);
    if (r != 0 && err != NULL) *err = why;
    return r != 0 ? gp_wrap(err, "listing the resources of '%s'", req->owner) : 0;
}

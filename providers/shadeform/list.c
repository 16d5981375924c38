// SPDX-License-Identifier: Apache-2.0
/* Lists instances and claims. One call shows the instances of the whole account, of all clouds; tags decide which are
 * ours. Does not read the journal. One thread at a time. */
#include "base/gp_base.h"

#include "providers/shadeform/shadeform_int.h"

#include "base/form.h"
#include "providers/common/account_list.h"
#include "providers/common/places.h"

static bool split_tag(const char *text, struct label *ret) {
    const char *eq = strchr(text, '=');
    if (eq == NULL || !str_starts(text, labels_shadeform.prefix)) return false;
    *ret = (struct label){xstrndup(text, (size_t)(eq - text)), xstrdup(eq + 1)};
    return true;
}

/* False: it has no tag of gpuprov. */
static bool tags_decode(const json_t *instance, struct tags *ret) {
    GP_AUTO_LABELS struct label_list labels = {0};
    const json_t *all = json_at(instance, "tags"), *one = NULL;
    size_t i = 0;
    json_array_foreach(all, i, one) {
        struct label l;
        if (json_is_string(one) && split_tag(json_string_value(one), &l)) vec_push(&labels.list, l);
    }
    labels_read(&labels_shadeform, &labels, ret);
    return labels.list.len > 0;
}

static enum resource_state state_of(const char *status) {
    if (str_eq(status, "creating") || str_eq(status, "pending_provider") || str_eq(status, "pending"))
        return RES_PENDING;
    if (str_eq(status, "active")) return RES_RUNNING;
    if (str_eq(status, "deleted")) return RES_GONE;
    if (str_eq(status, "error")) return RES_STOPPED;
    return RES_STOPPING; /* deleting and unknown states: not gone */
}

int shade_instance_read(const json_t *j, struct resource *ret, struct gp_error *err) {
    const char *id = json_str(j, "id", ""), *status = json_str(j, "status", ""), *ip = json_str(j, "ip", "");
    const char *details = json_str(j, "status_details", ""), *cloud = json_str(j, "cloud", "");
    GP_AUTO_FREE char *region = xasprintf("%s.%s", cloud, json_str(j, "region", ""));
    int64_t port = json_int(j, "ssh_port", 22), gpus = json_int(j, "configuration.num_gpus", -1);
    struct tags tags;
    resource_init(ret, RES_INSTANCE, "shadeform");
    if (!form_word(id) || !form_word(status) || !form_word(region) || strchr(cloud, '.') != NULL)
        return gp_fail(
            err, GP_EPROTO,
            "shadeform GET /instances: an entry without the id, status, cloud and region of an instance: run "
            "the same command again");
    tags_decode(j, &tags);
    resource_set(&ret->id, id);
    resource_set(&ret->region, region);
    tags_to_resource(&tags, 0, ret);
    tags_clear(&tags);
    const char *type = json_str(j, "shade_instance_type", "");
    resource_set(&ret->instance_type, form_word(type) ? type : "");
    resource_set(&ret->public_ip, form_host(ip) ? ip : "");
    ret->ssh_port = port > 0 && port < 65536 ? (uint16_t)port : 22;
    resource_set(&ret->user, "gpuprov");
    GP_AUTO_FREE char *reason = xasprintf("%s%s%.200s", status, details[0] != '\0' ? ": " : "", details);
    str_one_line(reason);
    resource_set(&ret->state_reason, str_eq(status, "active") ? "" : reason);
    ret->state = state_of(status);
    ret->billed = ret->state != RES_GONE && !str_eq(status, "deleting"); /* documented: then no longer billed */
    ret->gpus = gpus >= 0 && gpus <= 1024 ? (int)gpus : -1;
    return 0;
}

int shade_instances(struct shade *s, const struct resource_list *known, struct resource_list *ret,
                    struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *all = NULL, *one = NULL;
    size_t i = 0;
    int r = shade_call(s, "GET", "/instances", NULL, 0, "instances", &reply, &all, err);
    if (r != 0) return r;
    json_array_foreach(all, i, one) {
        struct resource found;
        struct tags tags;
        bool ours = tags_decode(one, &tags);
        tags_clear(&tags);
        if (!ours && !account_list_knows(known, json_str(one, "id", ""))) continue;
        r = shade_instance_read(one, &found, err);
        if (r != 0) {
            resource_clear(&found);
            return r;
        }
        vec_push(&ret->list, found);
    }
    return 0;
}

static int list_claims(struct shade *s, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_KEY_CLAIMS struct key_claims all = {0};
    int r = key_claims_read(&s->claims, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        struct resource one;
        key_claim_resource(&s->claims, &all.list.items[i], &one);
        vec_push(&ret->list, one);
    }
    return r;
}

int shade_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct shade *s = shade_of(p);
    struct resource_list all = {0};
    struct gp_error why = {0};
    GP_AUTO_STRV struct strv regions = {0};
    if (req->images) return 0; /* there are none */
    bool everywhere = req->regions == NULL || req->everywhere;
    int r = shade_instances(s, req->known, &all, &why);
    if (r == 0 && !req->nodes_only) r = list_claims(s, &all, &why);
    if (req->regions != NULL) strv_copy(&regions, req->regions);
    if (everywhere) strv_add(&regions, "shadeform"); /* the account: one list shows all clouds */
    for (size_t i = 0; i < all.list.len; i++) {
        struct resource *one = &all.list.items[i];
        if (r == 0 && everywhere && one->region[0] != '\0')
            r = places_add(&regions, one->region, "shadeform GET /instances", &why);
        if (account_list_wants(req, one)) vec_push(&ret->list, *one);
        else resource_clear(one);
    }
    vec_free(&all.list);
    for (size_t i = 0; everywhere && req->known != NULL && i < req->known->list.len; i++) {
        const char *region = req->known->list.items[i].region;
        if (region[0] != '\0' && !strv_has(&regions, region)) strv_add(&regions, region);
    }
    for (size_t i = 0; req->looked != NULL && i < regions.n; i++)
        coverage_put(req->looked, "shadeform", regions.v[i], req->owner, true, r != 0 ? &why : NULL);
    if (r != 0 && err != NULL) *err = why;
    return r != 0 ? gp_wrap(err, "listing the resources of '%s'", req->owner) : 0;
}

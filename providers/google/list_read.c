// SPDX-License-Identifier: Apache-2.0
/* Decodes instances and disks of Compute Engine's lists: labels to tags, states, addresses, the deadline. Everything in
 * them is foreign. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/catalog/catalog.h"

void google_tags_decode(json_t *labels, struct tags *ret) {
    GP_AUTO_LABELS struct label_list list = {0};
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(labels, key, value) if (json_is_string(value)) labels_add(&list, key, json_string_value(value));
    labels_read(&labels_gcp, &list, ret);
}

json_t *google_tags_encode(const struct tags *t) {
    GP_AUTO_LABELS struct label_list list = {0};
    if (!labels_write(&labels_gcp, t, &list)) return NULL;
    json_t *labels = json_object();
    for (size_t i = 0; i < list.list.len; i++)
        json_object_set_new(labels, list.list.items[i].key, json_string(list.list.items[i].value));
    return labels;
}

/* A label's value has 63 characters: the first piece of a longer one is looked for, and the rest compared here. */
static void add_term(struct str *filter, const char *key, const char *value) {
    GP_AUTO_LABELS struct label_list list = {0};
    struct tags t;
    tags_init(&t);
    if (strcmp(key, "owner") == 0) resource_set(&t.owner, value);
    else if (strcmp(key, "stack") == 0) resource_set(&t.stack, value);
    else resource_set(&t.uid, value);
    labels_write(&labels_gcp, &t, &list);
    for (size_t i = 0; i < list.list.len; i++) {
        const struct label *l = &list.list.items[i];
        if (strcmp(l->key + strlen(labels_gcp.prefix), key) != 0) continue;
        str_addf(filter, "%slabels.%s=\"%s\"", filter->len > 0 ? " AND " : "", l->key, l->value);
    }
    tags_clear(&t);
}

char *google_filter(const struct google_wanted *w) {
    struct str filter = {0};
    add_term(&filter, "owner", w->owner);
    if (w->stack != NULL) add_term(&filter, "stack", w->stack);
    if (w->uid != NULL) add_term(&filter, "uid", w->uid);
    return str_steal(&filter);
}

bool google_is_wanted(const struct resource *r, const struct google_wanted *w) {
    if (r->owner[0] != '\0' && strcmp(r->owner, w->owner) != 0) return false;
    if (w->stack != NULL && r->stack[0] != '\0' && strcmp(r->stack, w->stack) != 0) return false;
    return w->uid == NULL || r->uid[0] == '\0' || strcmp(r->uid, w->uid) == 0;
}

/* --- what both kinds have --- */

static int set_place(struct resource *r, const json_t *item, const char *what, struct gp_error *err) {
    const char *zone = google_last(json_str(item, "zone", ""));
    GP_AUTO_FREE char *region = google_region_of(zone);
    GP_AUTO_FREE char *id = xasprintf("%s/%s", json_str(item, "name", ""), json_str(item, "id", ""));
    GP_AUTO_FREE char *name = google_id_name(id);
    if (name == NULL || region == NULL)
        return gp_fail(err, GP_EPROTO, "google: %s in a reply has no valid name, id and zone", what);
    resource_set(&r->id, id);
    resource_set(&r->zone, zone);
    resource_set(&r->region, region);
    if (!time_parse_utc(json_str(item, "creationTimestamp", ""), &r->created_s)) r->created_s = 0;
    return 0;
}

/* --- instances --- */

#define TOKEN_DIGITS 20 /* of a name */

char *google_instance_name(const char *uid, int slot, int attempt, const char *token) {
    return xasprintf("gpuprov-%s-%d-%d-%.*s", uid, slot, attempt, TOKEN_DIGITS, token);
}

/* The node's index within its gang, which only its name has. -1: the name is not one that its labels give it. */
static int index_of(const struct tags *t, const char *name) {
    for (int i = 0; i < t->slot_count; i++) {
        GP_AUTO_FREE char *begin = google_instance_name(t->uid, t->slot_first + i, t->attempt, "");
        const char *digits = name + strlen(begin);
        if (str_starts(name, begin) && strlen(digits) == TOKEN_DIGITS &&
            strspn(digits, "0123456789abcdef") == TOKEN_DIGITS)
            return i;
    }
    return -1;
}

static enum resource_state instance_state(const char *status) {
    static const char *const pending[] = {"PENDING", "PROVISIONING", "STAGING"};
    for (size_t i = 0; i < GP_ARRAY_LEN(pending); i++)
        if (strcmp(status, pending[i]) == 0) return RES_PENDING;
    if (strcmp(status, "RUNNING") == 0 || strcmp(status, "REPAIRING") == 0) return RES_RUNNING;
    if (strcmp(status, "TERMINATED") == 0 || strcmp(status, "SUSPENDED") == 0 || strcmp(status, "STOPPED") == 0)
        return RES_STOPPED; /* Google's word for off; its disk is billed */
    return RES_STOPPING;    /* STOPPING, SUSPENDING, DEPROVISIONING and unknown ones: not gone */
}

static void set_addresses(struct resource *r, const json_t *item) {
    const char *private = json_str(item, "networkInterfaces.0.networkIP", "");
    const char *public = json_str(item, "networkInterfaces.0.accessConfigs.0.natIP", "");
    resource_set(&r->private_ip, form_address(private) ? private : "");
    resource_set(&r->public_ip, form_address(public) ? public : "");
}

int64_t google_ends_s(const json_t *item) {
    int64_t at = 0;
    bool deletes = strcmp(json_str(item, "scheduling.instanceTerminationAction", ""), "DELETE") == 0;
    return deletes && time_parse_utc(json_str(item, "scheduling.terminationTime", ""), &at) ? at : 0;
}

/* What Google does at a deadline, as Google says it: anybody may have edited the label that names it. */
static void add_end(const struct resource *r, const json_t *item, struct str *text) {
    int64_t at = google_ends_s(item);
    char when[32];
    time_format_utc(when, sizeof when, at);
    if (at == 0) str_add(text, ": Google no longer has its deadline: 'gpuprov down' or 'gc' deletes it");
    else if (at != r->expires_s) str_addf(text, ": Google deletes it at %s", when);
}

static void set_reason(struct resource *r, const json_t *item, const char *status) {
    GP_AUTO_STR struct str text = {0};
    str_add(&text, status);
    if (json_str(item, "statusMessage", "")[0] != '\0') str_addf(&text, ": %s", json_str(item, "statusMessage", ""));
    if (r->unreadable[0] == '\0') add_end(r, item, &text);
    str_one_line(text.s);
    resource_set(&r->state_reason, text.s);
}

int google_instance_read(const json_t *item, struct resource *ret, struct gp_error *err) {
    struct tags tags;
    resource_init(ret, RES_INSTANCE, "google");
    int rc = set_place(ret, item, "an instance", err);
    if (rc != 0) return rc;
    google_tags_decode(json_at(item, "labels"), &tags);
    int index = tags.uid[0] != '\0' && tags.slot_count > 0 ? index_of(&tags, json_str(item, "name", "")) : 0;
    tags_to_resource(&tags, index >= 0 ? index : TAGS_SLOTS_MAX, ret);
    tags_clear(&tags);
    const char *status = json_str(item, "status", ""), *type = google_last(json_str(item, "machineType", ""));
    resource_set(&ret->instance_type, google_name_valid(type) ? type : "");
    set_addresses(ret, item);
    resource_set(&ret->user, "gpuprov");
    ret->state = instance_state(status);
    ret->rdma = google_cards_of(item);
    ret->billed = true; /* a deleted one is not listed */
    int64_t attached = json_int(item, "guestAccelerators.0.acceleratorCount", -1);
    const struct catalog_row *known = catalog_google_type(ret->instance_type);
    ret->gpus = attached >= 0 && attached <= 1024 ? (int)attached : known != NULL ? known->gpus : -1;
    bool spot = strcmp(json_str(item, "scheduling.provisioningModel", ""), "SPOT") == 0;
    if (ret->price_usd_per_h < 0 && attached <= 0)
        ret->price_usd_per_h = catalog_google_price(ret->instance_type, ret->region, spot);
    set_reason(ret, item, status);
    return 0;
}

int google_disk_read(const json_t *item, struct resource *ret, struct gp_error *err) {
    struct tags tags;
    resource_init(ret, RES_VOLUME, "google");
    int rc = set_place(ret, item, "a disk", err);
    if (rc != 0) return rc;
    google_tags_decode(json_at(item, "labels"), &tags);
    tags_to_resource(&tags, -1, ret);
    tags_clear(&tags);
    const char *status = json_str(item, "status", "");
    int64_t gib = 0;
    GP_AUTO_FREE char *reason = str_to_i64(json_str(item, "sizeGb", ""), 1, INT32_MAX, &gib) && form_word(status)
                                    ? xasprintf("%s, %lld GiB", status, (long long)gib)
                                    : xstrdup(form_word(status) ? status : "");
    resource_set(&ret->state_reason, reason);
    ret->state = strcmp(status, "DELETING") == 0               ? RES_STOPPING
                 : strcmp(status, "CREATING") == 0             ? RES_PENDING
                 : json_array_size(json_at(item, "users")) > 0 ? RES_RUNNING
                                                               : RES_STOPPED; /* left behind by its instance */
    ret->billed = ret->state != RES_STOPPING;
    ret->price_usd_per_h = -1;
    return 0;
}

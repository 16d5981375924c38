// SPDX-License-Identifier: Apache-2.0
/* Deletes instances, then claims, each when a list shows no instance of its uid any more. Missing resources are
 * success. Adds the tag of a host key. One thread. */
#include "base/gp_base.h"

#include "providers/shadeform/shadeform_int.h"

#include "base/form.h"
#include "providers/common/ownership.h"

static void first_error(struct gp_error *to, const struct gp_error *e) {
    if (to->code == GP_OK) *to = *e;
}

static int pass(const struct gp_error *first, struct gp_error *err) {
    if (first->code == GP_OK) return 0;
    if (err != NULL) *err = *first;
    return -(int)first->code;
}

int shade_delete_instances(struct shade *s, const struct resource_list *what, struct gp_error *err) {
    struct gp_error first = {0};
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *one = &what->list.items[i];
        GP_AUTO_REST struct rest_reply reply = {0};
        GP_AUTO_FREE char *path = xasprintf("/instances/%s/delete", one->id);
        struct gp_error e = {0};
        if (one->kind != RES_INSTANCE || one->state == RES_GONE) continue;
        if (!form_word(one->id)) gp_fail(&e, GP_EUSAGE, "shadeform: '%.80s' is not the id of an instance", one->id);
        else shade_call(s, "POST", path, NULL, REST_MISSING, NULL, &reply, NULL, &e);
        if (e.code != GP_OK) first_error(&first, &e);
    }
    return pass(&first, err);
}

static bool alive(const struct resource_list *all, const struct resource *claim) {
    for (size_t i = 0; i < all->list.len; i++) {
        const struct resource *r = &all->list.items[i];
        if (str_eq(r->uid, claim->uid) && str_eq(r->owner, claim->owner) && r->state != RES_GONE) return true;
    }
    return false;
}

int shade_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct shade *s = shade_of(p);
    struct gp_error first = {0}, e = {0};
    GP_AUTO_RESOURCES struct resource_list ours = {0}, seen = {0};
    bool keys = false;
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        struct gp_error foreign = {0};
        if (cloud_is_ours(p, r)) {
            resource_list_add(&ours, r);
            keys = keys || r->kind == RES_KEY_PAIR;
        } else {
            gp_fail(&foreign, GP_EUSAGE, "shadeform: %s belongs to '%s', not to '%s': left alone", r->id, r->owner,
                    p->owner);
            first_error(&first, &foreign);
        }
    }
    if (shade_delete_instances(s, &ours, &e) != 0) first_error(&first, &e);
    gp_error_clear(&e);
    bool read = keys && shade_instances(s, NULL, &seen, &e) == 0;
    if (keys && !read) first_error(&first, &e);
    for (size_t i = 0; read && i < ours.list.len; i++) {
        const struct resource *r = &ours.list.items[i];
        struct gp_error one = {0};
        if (r->kind != RES_KEY_PAIR || alive(&seen, r)) continue;
        if (shade_claim_ops.remove(s, r->id, &one) != 0) first_error(&first, &one);
        key_claim_ended(&s->claims, r->uid);
    }
    return pass(&first, err);
}

/* text: a tag "KEY=VALUE" or its key: one of these tags, or a further piece of its value. */
static bool replaces(const struct late_tag *tags, size_t n, const char *text) {
    for (size_t i = 0; i < n; i++) {
        GP_AUTO_FREE char *key = xasprintf("%s%s", labels_shadeform.prefix, tags[i].key);
        const char *rest = text + strlen(key);
        if (str_starts(text, key) && (*rest == '\0' || *rest == '=' || *rest == '-')) return true;
    }
    return false;
}

/* Tags are replaced as a whole: those of the moment are read first. */
static int tag_one(struct shade *s, const char *id, const struct late_tag *tags, size_t n, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply info = {0}, reply = {0};
    GP_AUTO_FREE char *read = xasprintf("/instances/%s/info", id);
    GP_AUTO_FREE char *write = xasprintf("/instances/%s/update", id);
    GP_AUTO_LABELS struct label_list labels = {0};
    struct tags t;
    json_t *one = NULL;
    size_t i = 0;
    int r = shade_call(s, "GET", read, NULL, 0, NULL, &info, NULL, err);
    if (r != 0) return r;
    tags_init(&t);
    for (size_t k = 0; k < n; k++) tags_read(&t, tags[k].key, tags[k].value);
    labels_write(&labels_shadeform, &t, &labels);
    tags_clear(&t);
    GP_AUTO_JSON json_t *body = json_pack("{s:[]}", "tags");
    json_array_foreach(json_at(info.json, "tags"), i, one) {
        if (!json_is_string(one) || !replaces(tags, n, json_string_value(one)))
            json_array_append(json_at(body, "tags"), one);
    }
    for (i = 0; i < labels.list.len; i++) {
        const struct label *l = &labels.list.items[i];
        if (replaces(tags, n, l->key))
            json_array_append_new(json_at(body, "tags"), json_sprintf("%s=%s", l->key, l->value));
    }
    return shade_call(s, "POST", write, body, 0, NULL, &reply, NULL, err);
}

int shade_tag(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
              struct gp_error *err) {
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (r->kind != RES_INSTANCE || !cloud_is_ours(p, r) || !form_word(r->id)) continue;
        int rc = tag_one(shade_of(p), r->id, tags, n, err);
        if (rc != 0) return rc;
    }
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Terminates instances, then deletes firewall rulesets and claims, each when a list shows no instance of its uid any
 * more, and a claim when no ruleset of it is left either. Missing resources are success. Renames an instance for its
 * host key. One thread. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "base/form.h"
#include "providers/common/ownership.h"

static void first_error(struct gp_error *to, const struct gp_error *e) {
    if (to->code == GP_OK) *to = *e;
}

static int terminate(struct lambda *l, const char *const *ids, size_t n, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *body = json_pack("{s:[]}", "instance_ids");
    json_t *data = NULL;
    struct gp_error e = {0}, first = {0};
    for (size_t i = 0; i < n; i++) json_array_append_new(json_at(body, "instance_ids"), json_string(ids[i]));
    int r = lambda_call(l, "POST", "/instance-operations/terminate", body, 0, &reply, &data, &e);
    if (r == 0 || (r == -GP_ENOTFOUND && n == 1)) return 0;
    if (n > 1 && (r == -GP_ENOTFOUND || r == -GP_EUSAGE)) { /* one bad id refuses all */
        for (size_t i = 0; i < n; i++) {
            struct gp_error one = {0};
            if (terminate(l, &ids[i], 1, &one) != 0) first_error(&first, &one);
        }
        if (first.code == GP_OK) return 0;
        e = first;
    }
    if (err != NULL) *err = e;
    return -(int)e.code;
}

int lambda_terminate(struct lambda *l, const struct resource_list *what, struct gp_error *err) {
    const char **ids = xcalloc(what->list.len + 1, sizeof *ids);
    size_t n = 0;
    int r = 0;
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *one = &what->list.items[i];
        if (one->kind != RES_INSTANCE || one->state == RES_GONE) continue;
        if (form_word(one->id)) ids[n++] = one->id;
        else if (r == 0) r = gp_fail(err, GP_EUSAGE, "lambda: '%.80s' is not the id of an instance", one->id);
    }
    struct gp_error e = {0};
    if (n > 0 && terminate(l, ids, n, &e) != 0 && r == 0) {
        if (err != NULL) *err = e;
        r = -(int)e.code;
    }
    free(ids);
    return r;
}

/* Whether a list still shows an instance of the claim. */
static bool alive(const struct resource_list *all, const struct resource *claim) {
    for (size_t i = 0; i < all->list.len; i++) {
        const struct resource *r = &all->list.items[i];
        if (str_eq(r->uid, claim->uid) && str_eq(r->owner, claim->owner) && r->state != RES_GONE) return true;
    }
    return false;
}

/* Deletes a claim, unless a ruleset of its stack exists: only the claim names the owner of that. */
static int delete_claim(struct lambda *l, const struct resource *claim, const struct lambda_rulesets *sets,
                        struct gp_error *err) {
    for (size_t i = 0; i < sets->list.len; i++)
        if (str_ends(sets->list.items[i].name, claim->uid)) return 0;
    key_claim_ended(&l->claims, claim->uid);
    return lambda_claim_ops.remove(l, claim->id, err);
}

int lambda_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct lambda *l = lambda_of(p);
    struct gp_error first = {0}, e = {0};
    GP_AUTO_RESOURCES struct resource_list ours = {0}, seen = {0};
    GP_AUTO_RULESETS struct lambda_rulesets sets = {0};
    size_t keys = 0, groups = 0;
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        struct gp_error foreign = {0};
        if (cloud_is_ours(p, r)) {
            resource_list_add(&ours, r);
            keys += r->kind == RES_KEY_PAIR;
            groups += r->kind == RES_GROUP;
        } else {
            gp_fail(&foreign, GP_EUSAGE, "lambda: %s belongs to '%s', not to '%s': left alone", r->id, r->owner,
                    p->owner);
            first_error(&first, &foreign);
        }
    }
    if (lambda_terminate(l, &ours, &e) != 0) first_error(&first, &e);
    gp_error_clear(&e);
    bool read = keys + groups > 0 && lambda_instances(l, NULL, &seen, &e) == 0;
    for (size_t i = 0; read && i < ours.list.len; i++) {
        const struct resource *r = &ours.list.items[i];
        struct gp_error one = {0};
        if (r->kind == RES_GROUP && !alive(&seen, r) && lambda_ruleset_delete(l, r->id, &one) != 0)
            first_error(&first, &one);
    }
    if (read && keys > 0) read = lambda_rulesets_read(l, &sets, &e) == 0;
    if (keys + groups > 0 && !read) first_error(&first, &e);
    for (size_t i = 0; read && i < ours.list.len; i++) {
        const struct resource *r = &ours.list.items[i];
        struct gp_error one = {0};
        if (r->kind == RES_KEY_PAIR && !alive(&seen, r) && delete_claim(l, r, &sets, &one) != 0)
            first_error(&first, &one);
    }
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

/* Lambda has no call that changes tags: an instance's name carries the two. */
int lambda_tag(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
               struct gp_error *err) {
    struct lambda *l = lambda_of(p);
    const char *hostkey = "", *proof = "";
    bool others = false;
    for (size_t i = 0; i < n; i++) {
        if (str_eq(tags[i].key, "hostkey")) hostkey = tags[i].value;
        else if (str_eq(tags[i].key, "proof")) proof = tags[i].value;
        else others = true;
    }
    GP_AUTO_FREE char *name = others ? NULL : lambda_name_of(hostkey, proof);
    if (name == NULL)
        return gp_fail(err, GP_EINTERNAL, "lambda: an instance's name carries a host key with its proof, nothing else");
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        GP_AUTO_REST struct rest_reply reply = {0};
        json_t *data = NULL;
        if (r->kind != RES_INSTANCE || !cloud_is_ours(p, r) || !form_word(r->id)) continue;
        GP_AUTO_FREE char *path = xasprintf("/instances/%s", r->id);
        GP_AUTO_JSON json_t *body = json_pack("{s:s}", "name", name);
        int rc = lambda_call(l, "POST", path, body, 0, &reply, &data, err);
        if (rc != 0) return rc;
    }
    return 0;
}

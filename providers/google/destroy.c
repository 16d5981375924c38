// SPDX-License-Identifier: Apache-2.0
/* Deletes instances side by side, then disks that they left behind, then rules, the claim last. Missing resources are
 * success; one still in use is kept, and list shows it. Sets late labels. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "providers/common/ownership.h"

#define AT_ONCE 16
#define LABEL_TRIES 4
#define CONSOLE_BYTES 65536

static void first_error(struct gp_error *to, const struct gp_error *e) {
    if (to->code == GP_OK) *to = *e;
}

static bool is_over(int rc) { return rc == 0 || rc == -GP_ENOTFOUND || rc == -GP_EEXISTS; }

int google_delete(struct google *g, const struct resource_list *what, struct gp_error *err) {
    size_t n = 0;
    struct rest_call *calls = xcalloc(what->list.len + 1, sizeof *calls);
    struct rest_result *results = xcalloc(what->list.len + 1, sizeof *results);
    char **urls = xcalloc(what->list.len + 1, sizeof *urls);
    struct gp_error first = {0};
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        struct gp_error e = {0};
        if (r->kind != RES_INSTANCE || r->state == RES_GONE || !cloud_is_ours(&g->base, r)) continue;
        urls[n] = google_zonal_url(g, r, "instances", "");
        if (urls[n] == NULL) {
            gp_fail(&e, GP_EPROTO, "google: '%.100s' is not an instance of a zone: delete it by hand", r->id);
        } else if (google_url_once(g, &urls[n], &e) == 0) {
            calls[n] = (struct rest_call){.what = "google instances.delete", .method = "DELETE", .url = urls[n]};
            n++;
        } else {
            free(urls[n]);
        }
        if (e.code != GP_OK) first_error(&first, &e);
    }
    if (n > 0) rest_call_many(&g->rest, calls, n, AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        if (!is_over(results[i].rc)) first_error(&first, &results[i].err);
        rest_reply_clear(&results[i].reply);
        free(urls[i]);
    }
    free(calls);
    free(results);
    free(urls);
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

static int delete_one(struct google *g, const char *what, char *url, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    struct gp_error e = {0};
    GP_AUTO_FREE char *whole = url;
    int r = google_url_once(g, &whole, &e);
    if (r == 0) r = google_call(g, what, "DELETE", whole, NULL, 0, &reply, &e);
    if (is_over(r)) return 0;
    if (err != NULL) *err = e;
    return r;
}

/* Everything of the stack that still lives, wherever it is: a rule must outlive the nodes. */
static int alive(struct google *g, const struct resource *rule, size_t *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct coverage looked = {0};
    struct list_req req = {.owner = rule->owner, .stack = rule->stack, .uid = rule->uid, .looked = &looked};
    *ret = 0;
    int r = google_list(&g->base, &req, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++)
        if (all.list.items[i].kind != RES_GROUP && all.list.items[i].state != RES_GONE) (*ret)++;
    coverage_clear(&looked);
    return r;
}

static void destroy_rules(struct google *g, const struct resource_list *what, struct gp_error *first) {
    size_t living = 1;
    bool asked = false;
    for (int claims = 0; claims <= 1; claims++)
        for (size_t i = 0; i < what->list.len; i++) {
            const struct resource *r = &what->list.items[i];
            struct gp_error e = {0};
            if (r->kind != RES_GROUP || r->state == RES_GONE || r->claim != (claims == 1) ||
                !cloud_is_ours(&g->base, r))
                continue;
            if (claims == 1 && first->code != GP_OK) continue; /* what failed needs its claim */
            if (r->unreadable[0] != '\0' || r->stack[0] == '\0') continue;
            if (!google_name_valid(r->id)) continue;
            if (!asked && alive(g, r, &living, &e) != 0) {
                first_error(first, &e);
                return;
            }
            asked = true;
            if (living > 0) return;
            strv_clear(&g->cache->members_ready);
            if (delete_one(g, "google firewalls.delete", google_url(g, "global/firewalls/%s", r->id), &e) != 0)
                first_error(first, &e);
        }
}

int google_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct google *g = google_of(p);
    struct gp_error first = {0};
    google_delete(g, what, &first);
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        struct gp_error e = {0};
        bool left = r->kind == RES_VOLUME && r->state == RES_STOPPED;
        char *disk = left ? google_zonal_url(g, r, "disks", "") : NULL;
        if (!cloud_is_ours(&g->base, r)) {
            gp_fail(&e, GP_EUSAGE, "google: %s belongs to '%s', not to '%s': left alone", r->id, r->owner,
                    g->base.owner);
            free(disk);
        } else if (disk != NULL) {
            delete_one(g, "google disks.delete", disk, &e);
        }
        if (e.code != GP_OK) first_error(&first, &e);
    }
    destroy_rules(g, what, &first);
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

/* --- labels and console --- */

static bool is_piece_of(const char *label, const char *key) {
    GP_AUTO_FREE char *whole = xasprintf("%s%s", labels_gcp.prefix, key);
    GP_AUTO_FREE char *more = xasprintf("%s-", whole);
    return strcmp(label, whole) == 0 || str_starts(label, more);
}

/* The labels with the pieces of these tags replaced. Caller frees. */
static json_t *with_tags(json_t *labels, const struct late_tag *tags, size_t n) {
    json_t *all = json_object(), *v = NULL;
    const char *k = NULL;
    struct tags t;
    tags_init(&t);
    json_object_foreach(labels, k, v) {
        bool replaced = false;
        for (size_t i = 0; i < n; i++) replaced = replaced || is_piece_of(k, tags[i].key);
        if (!replaced) json_object_set(all, k, v);
    }
    for (size_t i = 0; i < n; i++) tags_read(&t, tags[i].key, tags[i].value);
    GP_AUTO_JSON json_t *new = google_tags_encode(&t);
    if (new != NULL) json_object_update(all, new);
    tags_clear(&t);
    return all;
}

/* Labels are replaced as a whole, by the fingerprint of those that were read. */
static int tag_one(struct google *g, const struct resource *r, const struct late_tag *tags, size_t n,
                   struct gp_error *err) {
    GP_AUTO_FREE char *url = google_zonal_url(g, r, "instances", "");
    GP_AUTO_FREE char *set = google_zonal_url(g, r, "instances", "/setLabels");
    if (url == NULL || set == NULL) return 0;
    struct gp_error e = {0};
    int rc = 0;
    for (int i = 0; i < LABEL_TRIES; i++) {
        GP_AUTO_REST struct rest_reply is = {0};
        GP_AUTO_REST struct rest_reply done = {0};
        gp_error_clear(&e);
        rc = google_call(g, "google instances.get", "GET", url, NULL, 0, &is, &e);
        if (rc != 0) break;
        GP_AUTO_JSON json_t *body = json_pack("{s:o, s:s}", "labels", with_tags(json_at(is.json, "labels"), tags, n),
                                              "labelFingerprint", json_str(is.json, "labelFingerprint", ""));
        rc = google_call(g, "google instances.setLabels", "POST", set, body, 0, &done, &e);
        if (rc == 0) rc = google_wait(g, r->zone, done.json, "google instances.setLabels", NULL, &e);
        if (rc != -GP_EBUSY) break; /* else another one wrote labels meanwhile */
    }
    if (rc != 0 && err != NULL) *err = e;
    return rc;
}

int google_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                    struct gp_error *err) {
    struct google *g = google_of(p);
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *r = &what->list.items[i];
        if (r->kind != RES_INSTANCE || !cloud_is_ours(&g->base, r)) continue;
        int rc = tag_one(g, r, tags, n, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int google_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err) {
    struct google *g = google_of(p);
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *last = xasprintf("/serialPort?port=1&start=-%d", CONSOLE_BYTES);
    GP_AUTO_FREE char *url = google_zonal_url(g, machine, "instances", last);
    if (url == NULL) return gp_fail(err, GP_EUSAGE, "google: '%.100s' is not an instance of a zone", machine->id);
    int r = google_call(g, "google instances.getSerialPortOutput", "GET", url, NULL, REST_OPTIONAL, &reply, err);
    if (r != 0) return r;
    const char *text = json_str(reply.json, "contents", "");
    size_t n = strlen(text);
    str_add(ret, text + (n > CONSOLE_BYTES ? n - CONSOLE_BYTES : 0));
    return 0;
}

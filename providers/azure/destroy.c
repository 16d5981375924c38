// SPDX-License-Identifier: Apache-2.0
/* Destroys machines, then the stack's group, which removes the rest. Names are used again by later stacks, so each
 * thing is read first and left alone when its uid is another one's. A group with resources that gpuprov does not
 * create is kept. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"
#include "providers/common/ownership.h"

#define AT_ONCE 8

static void first_error(struct gp_error *to, const struct gp_error *e) {
    if (to->code == GP_OK) *to = *e;
}

static char *compute_url(const struct azure *a, const struct azure_handle *h) {
    return azure_url(a, AZURE_COMPUTE, "/resourceGroups/%s/providers/Microsoft.Compute/" AZURE_VM "/%s", h->group,
                     h->name);
}

/* --- machines --- */

/* Requests of many machines, sent together; which: index in `what` of each. */
struct batch {
    struct rest_call *calls;
    struct rest_result *results;
    size_t *which, n;
    struct strv texts;
};

static void batch_init(struct batch *b, size_t most) {
    *b = (struct batch){.calls = xcalloc(most + 1, sizeof *b->calls),
                        .results = xcalloc(most + 1, sizeof *b->results),
                        .which = xcalloc(most + 1, sizeof *b->which)};
}

static void batch_clear(struct batch *b) {
    for (size_t i = 0; i < b->n; i++) rest_reply_clear(&b->results[i].reply);
    free(b->calls);
    free(b->results);
    free(b->which);
    strv_clear(&b->texts);
}

/* Takes over url. */
static void batch_add(struct batch *b, const char *method, char *url, size_t which) {
    strv_take(&b->texts, azure_what(method, url));
    const char *what = b->texts.v[b->texts.n - 1];
    strv_take(&b->texts, url);
    b->calls[b->n] = (struct rest_call){.what = what, .method = method, .url = url, .flags = REST_MISSING};
    b->which[b->n++] = which;
}

/* Without a uid nothing tells that it is gpuprov's. */
static bool is_ours(const struct azure *a, const struct resource *r) {
    return form_uid(r->uid) && cloud_is_ours(&a->base, r);
}

static bool is_ending(const struct azure *a, const struct resource *r) {
    return r->kind == RES_INSTANCE && r->state != RES_GONE && is_ours(a, r);
}

/* Whether the machine of a reply is that of the resource. The stack's own is by its name, whatever its tags are now. */
static bool is_same(const struct azure *a, const json_t *vm, const struct resource *r) {
    struct resource there;
    bool same = azure_vm_read(a, vm, &there, NULL) == 0 &&
                (r->ours != OURS_NOT ? azure_handle_same(there.id, r->id) : strcmp(there.id, r->id) == 0);
    resource_clear(&there);
    return same;
}

static void destroy_machines(struct azure *a, const struct resource_list *what, struct gp_error *first) {
    struct batch reads, ends;
    batch_init(&reads, what->list.len);
    batch_init(&ends, what->list.len);
    for (size_t i = 0; i < what->list.len; i++) {
        GP_AUTO_AZURE_HANDLE struct azure_handle h = {0};
        const struct resource *r = &what->list.items[i];
        if (!is_ending(a, r)) continue;
        if (azure_handle_read(r->id, &h) && strcmp(h.type, AZURE_VM) == 0) {
            batch_add(&reads, "GET", compute_url(a, &h), i);
        } else {
            struct gp_error e = {0};
            gp_fail(&e, GP_EPROTO, "azure: '%.120s' is not the id of a machine: left alone", r->id);
            first_error(first, &e);
        }
    }
    rest_call_many(&a->rest, reads.calls, reads.n, AT_ONCE, reads.results);
    for (size_t i = 0; i < reads.n; i++) {
        const struct rest_result *r = &reads.results[i];
        if (r->rc != 0) first_error(first, &r->err);
        if (r->rc != 0 || r->reply.status == 404 || !is_same(a, r->reply.json, &what->list.items[reads.which[i]]))
            continue;
        char *url = rest_with_param(reads.calls[i].url, "forceDeletion", "true");
        batch_add(&ends, "DELETE", url, reads.which[i]);
    }
    rest_call_many(&a->rest, ends.calls, ends.n, AT_ONCE, ends.results);
    for (size_t i = 0; i < ends.n; i++) {
        int rc = ends.results[i].rc;
        if (rc != 0 && rc != -GP_EEXISTS) first_error(first, &ends.results[i].err); /* EEXISTS: it ends already */
    }
    batch_clear(&reads);
    batch_clear(&ends);
}

/* --- parts of a group --- */

static const char *namespace_of(const char *type) {
    bool compute = strcmp(type, AZURE_DISK) == 0 || strcmp(type, AZURE_SET) == 0;
    return compute ? "Microsoft.Compute" : "Microsoft.Network";
}

/* The group's uid is that of its parts: those that Azure makes beside a machine have no tags. */
static void destroy_part(struct azure *a, const struct azure_handle *h, struct gp_error *first) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_AZURE_GROUP struct azure_group g = {0};
    struct gp_error e = {0};
    const char *version = strcmp(h->type, AZURE_DISK) == 0  ? "2020-12-01"
                          : strcmp(h->type, AZURE_SET) == 0 ? AZURE_COMPUTE
                                                            : AZURE_NETWORK;
    GP_AUTO_FREE char *url = azure_url(a, version, "/resourceGroups/%s/providers/%s/%s/%s", h->group,
                                       namespace_of(h->type), h->type, h->name);
    int r = azure_group_get(a, h->group, &g, &e);
    if (r == 0 && (!g.exists || g.deleting || !str_eq(g.tags.uid, h->uid))) return;
    if (r == 0) r = azure_call(a, "DELETE", url, NULL, REST_MISSING, &reply, &e);
    if (r == 0) strv_clear(&a->cache->networks_ready);
    if (r != 0 && r != -GP_EEXISTS) first_error(first, &e); /* still in use: the next call removes it */
}

/* Its name follows from the uid: it is no later stack's. A machine that lives keeps its right to end itself, and its
 * group stays, because nothing lists the assignments of a group that is gone. False: it was kept for that. */
static bool destroy_grant(struct azure *a, const struct azure_handle *h, struct gp_error *first) {
    GP_AUTO_REST struct rest_reply vm = {0}, reply = {0};
    GP_AUTO_FREE char *of = azure_url(
        a, AZURE_COMPUTE, "/resourceGroups/%s/providers/Microsoft.Compute/" AZURE_VM "/%s", h->group, h->name);
    GP_AUTO_FREE char *url = azure_grant_end_url(a, h);
    struct gp_error e = {0};
    int r = azure_call(a, "GET", of, NULL, REST_MISSING, &vm, &e);
    bool lives = r == 0 && vm.status != 404 &&
                 strcasecmp(json_str(vm.json, "properties.provisioningState", ""), "Deleting") != 0;
    if (lives) return false; /* the next call, after the request to delete it */
    if (r == 0) r = azure_call(a, "DELETE", url, NULL, REST_MISSING, &reply, &e);
    if (r != 0) first_error(first, &e);
    return r == 0;
}

/* --- the group --- */

static const char *const our_types[] = {"Microsoft.Compute/virtualMachines",
                                        "Microsoft.Compute/virtualMachines/extensions",
                                        "Microsoft.Compute/disks",
                                        "Microsoft.Compute/availabilitySets",
                                        "Microsoft.Network/networkInterfaces",
                                        "Microsoft.Network/publicIPAddresses",
                                        "Microsoft.Network/networkSecurityGroups",
                                        "Microsoft.Network/virtualNetworks"};

struct content {
    struct azure *a;
    const struct resource_list *what;
    const struct resource *group;
    char foreign[160]; /* the first resource that gpuprov did not create; "" */
    bool machines;     /* a machine of the stack that is not to be destroyed */
};

static int on_content(void *ctx, const json_t *item, struct gp_error *err) {
    struct content *c = ctx;
    const char *type = json_str(item, "type", ""), *name = json_str(item, "name", "");
    bool known = false;
    (void)err;
    for (size_t i = 0; i < GP_ARRAY_LEN(our_types); i++) known = known || strcasecmp(type, our_types[i]) == 0;
    struct tags tags;
    azure_tags_decode(json_at(item, "tags"), &tags);
    bool machine = strcasecmp(type, our_types[0]) == 0;
    bool its = !machine || str_eq(tags.uid, c->group->uid);
    if ((!known || !its) && c->foreign[0] == '\0') {
        snprintf(c->foreign, sizeof c->foreign, "%.60s '%.60s'", type, name);
        str_one_line(c->foreign);
    }
    tags_clear(&tags);
    return 0;
}

/* The list of a group's resources lags behind: machines are read from their own list. */
static int look_into(struct content *c, const char *group, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list vms = {0};
    GP_AUTO_FREE char *url = azure_url(c->a, AZURE_RESOURCES, "/resourceGroups/%s/resources", group);
    int r = azure_pages(c->a, url, on_content, c, err);
    if (r == 0) r = azure_list_vms(c->a, group, &vms, err);
    for (size_t i = 0; r == 0 && i < vms.list.len; i++) {
        bool given = vms.list.items[i].state == RES_STOPPING;
        for (size_t k = 0; k < c->what->list.len; k++)
            given = given || strcmp(c->what->list.items[k].id, vms.list.items[i].id) == 0;
        c->machines = c->machines || !given;
    }
    return r;
}

static void destroy_group(struct azure *a, const struct resource_list *what, const struct resource *r,
                          const struct azure_handle *h, struct gp_error *first) {
    GP_AUTO_AZURE_GROUP struct azure_group g = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    struct content c = {.a = a, .what = what, .group = r};
    struct gp_error e = {0};
    int rc = azure_group_get(a, h->group, &g, &e);
    if (rc == 0 && (!g.exists || g.deleting || h->uid[0] == '\0' || !str_eq(g.tags.uid, h->uid)))
        return; /* gone, or a later stack's */
    if (rc == 0) rc = look_into(&c, h->group, &e);
    if (rc == -GP_ENOTFOUND) return;
    if (rc == 0 && c.foreign[0] != '\0')
        rc = gp_fail(&e, GP_EEXISTS,
                     "azure: the resource group '%s' has %s, which gpuprov did not create: move or delete it, then run "
                     "the same command again",
                     h->group, c.foreign);
    if (rc == 0 && !c.machines) {
        GP_AUTO_STR struct str url = {0};
        GP_AUTO_FREE char *base = azure_url(a, AZURE_RESOURCES, "/resourcegroups/%s", h->group);
        str_add(&url, base);
        rest_query(&url, "forceDeletionTypes", "Microsoft.Compute/virtualMachines");
        rc = azure_call(a, "DELETE", url.s, NULL, REST_MISSING, &reply, &e);
        if (rc == -GP_EEXISTS && strcmp(reply.code, "ResourceGroupDeletionBlocked") != 0) rc = 0;
        strv_clear(&a->cache->networks_ready); /* its network goes with it */
    }
    if (rc != 0) first_error(first, &e);
}

/* The whole group is to be destroyed in the same call. */
static bool with_group(const struct resource_list *what, const struct azure_handle *h) {
    GP_AUTO_FREE char *id = azure_handle_text(h->group, "", "", h->uid);
    for (size_t i = 0; i < what->list.len; i++)
        if (strcmp(what->list.items[i].id, id) == 0) return true;
    return false;
}

int azure_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct azure *a = azure_of(p);
    GP_AUTO_STRV struct strv kept = {0}; /* groups with an assignment that was not deleted */
    struct gp_error first = {0};
    destroy_machines(a, what, &first);
    for (int last = 0; last <= 1; last++) { /* groups last */
        for (size_t i = 0; i < what->list.len; i++) {
            const struct resource *r = &what->list.items[i];
            GP_AUTO_AZURE_HANDLE struct azure_handle h = {0};
            struct gp_error e = {0};
            if (r->kind == RES_INSTANCE && last == 0 && !cloud_is_ours(&a->base, r))
                gp_fail(&e, GP_EUSAGE, "azure: %s belongs to '%s', not to '%s': left alone", r->id, r->owner,
                        a->base.owner);
            if (e.code != GP_OK) first_error(&first, &e);
            if (r->kind == RES_INSTANCE || r->state == RES_GONE || !is_ours(a, r)) continue;
            if (!azure_handle_read(r->id, &h)) continue;
            if (r->kind == RES_GRANT) { /* after the request to delete its machine, before its group */
                if (last == 0 && !destroy_grant(a, &h, &first)) strv_add(&kept, h.group);
                continue;
            }
            bool whole = h.name[0] == '\0';
            if (whole && last == 1 && !strv_has(&kept, h.group)) destroy_group(a, what, r, &h, &first);
            if (whole || last == 1 || with_group(what, &h)) continue;
            bool part = r->kind == RES_GROUP || r->kind == RES_PLACEMENT || r->state == RES_STOPPED;
            if (part) destroy_part(a, &h, &first);
        }
    }
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

int azure_tag_late(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
                   struct gp_error *err) {
    struct azure *a = azure_of(p);
    int r = 0;
    for (size_t i = 0; r == 0 && i < what->list.len; i++) {
        GP_AUTO_AZURE_HANDLE struct azure_handle h = {0};
        const struct resource *one = &what->list.items[i];
        if (!is_ending(a, one) || !azure_handle_read(one->id, &h)) continue;
        GP_AUTO_FREE char *id =
            xasprintf("/resourceGroups/%s/providers/Microsoft.Compute/" AZURE_VM "/%s", h.group, h.name);
        GP_AUTO_JSON json_t *all = json_object();
        for (size_t t = 0; t < n; t++) {
            GP_AUTO_FREE char *name = xasprintf("gpuprov:%s", tags[t].key);
            json_object_set_new(all, name, json_string(tags[t].value));
        }
        r = azure_tags_merge(a, id, all, err);
    }
    return r;
}

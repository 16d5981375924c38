// SPDX-License-Identifier: Apache-2.0
/* Reads back the nodes of a launch by the names in its request. A name has 20 digits of the launch's token, so it says
 * which node of which launch a machine is; its labels may have been edited by anybody since. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "providers/common/launch/launched.h"

struct reading {
    const struct stack *stack;
    const struct intent *in;
    json_t *names;         /* of the request that are not read yet */
    const char *user_data; /* of the request; borrowed */
    struct google_made *out;
};

void google_made_clear(struct google_made *m) {
    resource_list_clear(&m->nodes);
    strv_clear(&m->late);
    strv_clear(&m->foreign);
}

/* The node's index within its gang. -1: the name is none of the launch. */
static int index_of(const struct intent *in, const char *name) {
    for (int i = 0; i < in->slot_count; i++) {
        GP_AUTO_FREE char *begin = google_instance_name(in->uid, in->slot_first + i, in->attempt, "");
        if (str_starts(name, begin)) return i;
    }
    return -1;
}

/* "": none. Borrowed. It has the host key that this request alone made. */
static const char *user_data_of(const json_t *machine) {
    const json_t *item = NULL;
    size_t i = 0;
    json_array_foreach(json_at(machine, "metadata.items"), i,
                       item) if (str_eq(json_str(item, "key", ""), "user-data")) return json_str(item, "value", "");
    return "";
}

static int take(struct reading *r, const json_t *item, struct gp_error *err) {
    const char *name = json_str(item, "name", "");
    int index = json_object_get(r->names, name) != NULL ? index_of(r->in, name) : -1;
    struct resource one;
    if (index < 0) return 0;
    int rc = google_instance_read(item, &one, err);
    if (rc != 0) {
        resource_clear(&one);
        return rc;
    }
    if (r->out->until_s > 0 && one.created_s > r->out->until_s) {
        resource_clear(&one);
        return 0;
    }
    if (google_ends_s(item) != r->in->deadline_s) strv_add(&r->out->late, name);
    launched_identify(r->in, r->stack, index, &one);
    const char *has = user_data_of(item);
    if (has[0] == '\0' || strcmp(has, r->user_data) != 0) {
        strv_add(&r->out->foreign, name);
        resource_set(&one.launch, ""); /* its label proves the launch of all runs with that token */
    }
    json_object_del(r->names, name);
    vec_push(&r->out->nodes.list, one);
    return 0;
}

static int on_page(void *ctx, const json_t *page, struct gp_error *err) {
    const json_t *item = NULL;
    size_t i = 0;
    json_array_foreach(json_at(page, "items"), i, item) {
        int rc = take(ctx, item, err);
        if (rc != 0) return rc;
    }
    return 0;
}

/* Those that no list by labels shows: labels were edited, or they do not exist. */
static int read_others(struct google *g, struct reading *r, struct gp_error *err) {
    GP_AUTO_JSON json_t *others = json_copy(r->names);
    const char *name = NULL;
    json_t *unused = NULL;
    json_object_foreach(others, name, unused) {
        GP_AUTO_REST struct rest_reply reply = {0};
        if (!google_name_valid(name)) continue;
        GP_AUTO_FREE char *url = google_url(g, "zones/%s/instances/%s", r->in->zone, name);
        int rc = google_call(g, "google instances.get", "GET", url, NULL, REST_MISSING, &reply, err);
        if (rc == 0 && reply.status != 404) rc = take(r, reply.json, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int google_read_back(struct google *g, const struct stack *stack, const struct intent *in, struct google_made *ret,
                     struct gp_error *err) {
    GP_AUTO_JSON json_t *body = NULL;
    struct google_wanted w = {.owner = stack->owner, .uid = in->uid};
    int r = json_parse(in->body, strlen(in->body), "the request in the journal", &body, err);
    if (r != 0) return r;
    GP_AUTO_JSON json_t *names = json_copy(json_at(body, "perInstanceProperties"));
    struct reading reading = {stack, in, names, user_data_of(json_at(body, "instanceProperties")), ret};
    GP_AUTO_FREE char *filter = google_filter(&w);
    GP_AUTO_FREE char *base = google_url(g, "zones/%s/instances?maxResults=" GOOGLE_PAGE, in->zone);
    GP_AUTO_FREE char *url = rest_with_param(base, "filter", filter);
    r = google_pages(g, "google instances.list", url, on_page, &reading, err);
    return r == 0 ? read_others(g, &reading, err) : r;
}

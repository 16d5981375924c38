// SPDX-License-Identifier: Apache-2.0
/* Drives one provider by hand, for tests that put faults between it and its cloud: opens it, does one
 * thing, prints one JSON object. It has no engine: what a slot returns is what is printed.
 *
 * provider_drive PROVIDER SPEC VERB [ARG]
 *   open | offers | prepare | list
 *   complete            prepares again with the listed resources, as `up` does for machines of an earlier run
 *   create [ATTEMPT]    claim, first offer, slots 0..nodes-1; on capacity the next offer, as err->scope
 *                       allows; an open intent of the journal is replayed first
 *   destroy             until the list is empty twice
 *   end ID              that resource of the list alone, once
 *   bake                an image of the node in slot 0; an open intent of the journal is replayed
 *   images | unbake     lists the images and snapshots; removes them all
 * The journal is below GPUPROV_STATE_DIR. GPUPROV_DRIVE_CANCEL_ON: cancel once that file is there. */
#include "base/gp_base.h"

#include "base/json.h"
#include "model/image.h"
#include "model/image_key.h"
#include "tests/drivers/one_stack.h"

#include <pthread.h>
#include <unistd.h>

struct drive {
    const struct provider_ops *ops;
    struct spec *spec;
    struct gp_cancel cancel;
    struct journal *journal;
    struct provider *p;
    struct stack stack;
    char *state_dir;
    json_t *out;
    atomic_bool finished;
};

/* As a person would with Ctrl-C: at the moment that the test chooses. */
static void *cancel_on_file(void *arg) {
    struct drive *d = arg;
    while (!atomic_load(&d->finished) && !fs_exists(getenv("GPUPROV_DRIVE_CANCEL_ON"))) usleep(10000);
    if (!atomic_load(&d->finished)) gp_cancel_set(&d->cancel);
    return NULL;
}

static void put_resources(struct drive *d, const struct resource_list *l) {
    json_t *all = json_array();
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        json_array_append_new(
            all, json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:b,s:b,s:s,s:f,s:s,s:s,s:I,s:i}", "kind",
                           resource_kind_name(r->kind), "id", r->id, "region", r->region, "zone", r->zone, "state",
                           resource_state_name(r->state), "slot", r->slot, "attempt", r->attempt, "claim", r->claim,
                           "billed", r->billed, "uid", r->uid, "price", r->price_usd_per_h, "public_ip", r->public_ip,
                           "host_keys", r->host_keys, "expires_s", (json_int_t)r->expires_s, "rdma", r->rdma));
        json_object_set_new(json_array_get(all, i), "reason", json_string(r->state_reason));
        json_object_set_new(json_array_get(all, i), "ends_itself", json_boolean(r->ends_itself));
        json_object_set_new(json_array_get(all, i), "ours", json_boolean(r->ours));
        json_object_set_new(json_array_get(all, i), "other_run", json_boolean(r->other_run));
        json_object_set_new(json_array_get(all, i), "launch", json_string(r->launch));
        json_object_set_new(json_array_get(all, i), "proof", json_string(r->proof));
    }
    json_object_set_new(d->out, "resources", all);
}

static void put_intents(struct drive *d) {
    struct intent_list l = {0};
    static const char *const states[] = {"open", "done", "failed", "tombstone"};
    json_t *all = json_array();
    if (journal_intents(d->journal, NULL, 15, &l, NULL) == 0)
        for (size_t i = 0; i < l.list.len; i++)
            json_array_append_new(all,
                                  json_pack("{s:s,s:s,s:s,s:s,s:i}", "kind", resource_kind_name(l.list.items[i].kind),
                                            "state", states[l.list.items[i].state], "token", l.list.items[i].token,
                                            "note", l.list.items[i].note, "attempt", l.list.items[i].attempt));
    intent_list_clear(&l);
    json_object_set_new(d->out, "intents", all);
}

static int do_list(struct drive *d, bool nodes_only, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv regions = {0};
    const struct spec_offer *o = &d->spec->offers.items[0];
    strv_copy(&regions, &o->regions);
    struct list_req req = {.owner = d->p->owner,
                           .stack = d->spec->name,
                           .regions = regions.n > 0 ? &regions : NULL,
                           .nodes_only = nodes_only};
    return d->ops->list(d->p, &req, ret, err);
}

static int do_prepare(struct drive *d, struct gp_error *err) {
    const struct spec_offer *o = &d->spec->offers.items[0];
    d->stack = one_stack(d->p, d->spec, o->regions.n > 0 ? o->regions.v[0] : "");
    struct prepare_req req = {.stack = &d->stack, .spec = d->spec};
    int r = d->ops->prepare(d->p, &req, err);
    if (r == 0) json_object_set_new(d->out, "uid", json_string(d->stack.uid));
    return r;
}

static int do_complete(struct drive *d, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = do_prepare(d, err);
    if (r == 0) r = do_list(d, false, &known, err);
    struct prepare_req req = {.stack = &d->stack, .spec = d->spec, .known = &known};
    if (r == 0) r = d->ops->prepare(d->p, &req, err);
    put_resources(d, &known);
    return r;
}

static int do_create(struct drive *d, int attempt, struct gp_error *err) {
    GP_AUTO_OFFERS struct offer_list offers = {0};
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct intent_list open = {0};
    json_t *tried = json_array();
    json_object_set_new(d->out, "tried", tried);
    int r = do_prepare(d, err);
    if (r == 0) r = d->ops->offers(d->p, d->spec, 0, &offers, err);
    if (r == 0) r = journal_intents(d->journal, d->stack.uid, 1U << INTENT_OPEN, &open, err);
    if (r != 0) return r;
    const struct intent *replay = NULL;
    for (size_t i = 0; i < open.list.len; i++)
        if (open.list.items[i].kind == RES_INSTANCE) replay = &open.list.items[i];
    struct gp_error last = {0};
    const char *skip_region = "";
    for (size_t i = 0; i < offers.list.len; i++) {
        const struct offer *o = &offers.list.items[i];
        if (strcmp(o->region, skip_region) == 0) continue;
        struct create_req req = {.stack = &d->stack,
                                 .spec = d->spec,
                                 .offer = o,
                                 .slot_count = d->spec->nodes,
                                 .attempt = attempt,
                                 .proof = one_stack_key(),
                                 .login_pubkey = "ssh-ed25519 AAAA drive",
                                 .user_data = d->ops->user_data ? "#cloud-config\n{}\n" : "",
                                 .host_key_private = "",
                                 .host_key_public = "",
                                 .replay = replay};
        gp_error_clear(&last);
        r = d->ops->create(d->p, &req, &made, &last);
        json_array_append_new(tried, json_pack("{s:s,s:s,s:s}", "zone", o->zone, "type", o->instance_type, "result",
                                               r == 0 ? "ok" : last.detail));
        if (r == 0 || r == -GP_EUNKNOWN || last.scope == GP_SCOPE_PROVIDER || last.scope == GP_SCOPE_OFFER ||
            last.scope == GP_SCOPE_NONE)
            break;
        if (last.scope == GP_SCOPE_REGION) skip_region = o->region;
        attempt++;
    }
    intent_list_clear(&open);
    put_resources(d, &made);
    if (r != 0) *err = last;
    return r;
}

static int do_destroy(struct drive *d, struct gp_error *err) {
    int empty = 0;
    int64_t deadline = clock_deadline(60000);
    while (empty < 2) {
        GP_AUTO_RESOURCES struct resource_list l = {0};
        int r = do_list(d, false, &l, err);
        if (r != 0) return r;
        size_t live = 0;
        for (size_t i = 0; i < l.list.len; i++)
            if (l.list.items[i].state != RES_GONE) live++;
        empty = live == 0 ? empty + 1 : 0;
        if (live > 0 && (r = d->ops->destroy(d->p, &l, err)) != 0) return r;
        if (clock_left_ms(deadline) == 0) return gp_fail(err, GP_EBILLED, "not gone after a minute");
        r = gp_sleep(100, &d->cancel, err);
        if (r != 0) return r;
    }
    return 0;
}

static int do_end(struct drive *d, const char *id, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list l = {0};
    GP_AUTO_RESOURCES struct resource_list one = {0};
    int r = do_list(d, false, &l, err);
    for (size_t i = 0; i < l.list.len; i++)
        if (str_eq(l.list.items[i].id, id)) resource_list_add(&one, &l.list.items[i]);
    if (r == 0 && one.list.len != 1) return gp_fail(err, GP_ENOTFOUND, "%zu resources are '%s'", one.list.len, id);
    return r == 0 ? d->ops->destroy(d->p, &one, err) : r;
}

static int do_offers(struct drive *d, struct gp_error *err) {
    GP_AUTO_OFFERS struct offer_list offers = {0};
    json_t *all = json_array();
    int r = d->ops->offers(d->p, d->spec, 0, &offers, err);
    for (size_t i = 0; i < offers.list.len; i++) {
        const struct offer *o = &offers.list.items[i];
        json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:s}", "region", o->region,
                                             "zone", o->zone, "type", o->instance_type, "image", o->image, "image_name",
                                             o->image_name, "gpu", o->gpu_model, "gpus", o->gpus, "vcpus", o->vcpus,
                                             "memory_gib", o->memory_gib, "price", o->price_usd_per_h, "price_source",
                                             o->price_source));
    }
    json_object_set_new(d->out, "offers", all);
    return r;
}

/* Of an image that fits the spec. */
static void facts_text(const struct spec *spec, struct str *out) {
    struct image_facts facts;
    image_facts_wanted(spec, &spec->image, "x86_64", &facts);
    str_put(facts.verdict, sizeof facts.verdict, "ready");
    image_facts_text(&facts, out);
}

static int do_bake(struct drive *d, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list nodes = {0}, made = {0};
    struct intent_list open = {0};
    struct resource image = {0};
    GP_AUTO_STR struct str facts = {0};
    int r = do_prepare(d, err);
    if (r == 0) r = do_list(d, false, &nodes, err);
    if (r == 0) r = journal_intents(d->journal, d->stack.uid, 1U << INTENT_OPEN, &open, err);
    facts_text(d->spec, &facts);
    struct image_req req = {.stack = &d->stack, .name = d->spec->name, .facts = facts.s};
    for (size_t i = 0; r == 0 && i < nodes.list.len; i++)
        if (nodes.list.items[i].slot == 0 && nodes.list.items[i].state != RES_GONE) req.node = &nodes.list.items[i];
    for (size_t i = 0; i < open.list.len; i++)
        if (open.list.items[i].kind == RES_IMAGE) req.replay = &open.list.items[i];
    if (r == 0 && req.node == NULL) r = gp_fail(err, GP_ENOTFOUND, "there is no node 0");
    if (r == 0) r = d->ops->images->make(d->p, &req, &image, err);
    if (r == 0) resource_list_add(&made, &image);
    resource_clear(&image);
    intent_list_clear(&open);
    put_resources(d, &made);
    return r;
}

/* Every machine of the stack gets a host key with its proof. */
static int do_prove(struct drive *d, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    int r = do_list(d, false, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++)
        if (all.list.items[i].slot >= 0 && all.list.items[i].state != RES_GONE)
            r = one_stack_prove(d->p, &all.list.items[i], err);
    put_resources(d, &all);
    return r;
}

static int do_images(struct drive *d, bool destroy, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    const struct spec_offer *o = &d->spec->offers.items[0];
    struct list_req req = {.owner = d->p->owner, .images = true, .regions = o->regions.n > 0 ? &o->regions : NULL};
    int r = d->ops->list(d->p, &req, &all, err);
    put_resources(d, &all);
    return r == 0 && destroy ? d->ops->destroy(d->p, &all, err) : r;
}

static int run(struct drive *d, const char *verb, const char *arg, struct gp_error *err) {
    GP_AUTO_PROOF_KEY struct proof_key image_key = {0};
    int r = image_key_load(d->state_dir, true, &image_key, err);
    struct provider_env env = {.cancel = &d->cancel,
                               .image_key = &image_key,
                               .journal = d->journal,
                               .state_dir = d->state_dir,
                               .owner = getenv("GPUPROV_OWNER"),
                               .spec = d->spec};
    int64_t attempt = 1;
    if (r == 0) r = d->ops->open(&env, &d->p, err);
    if (r != 0) return r;
    json_object_set_new(d->out, "owner", json_string(d->p->owner));
    json_object_set_new(d->out, "skew_s", json_integer(d->p->clock_skew_s));
    if (strcmp(verb, "open") == 0) return 0;
    if (strcmp(verb, "offers") == 0) return do_offers(d, err);
    if (strcmp(verb, "prepare") == 0) return do_prepare(d, err);
    if (strcmp(verb, "complete") == 0) return do_complete(d, err);
    if (strcmp(verb, "destroy") == 0) return do_destroy(d, err);
    if (strcmp(verb, "end") == 0) return do_end(d, arg, err);
    if (strcmp(verb, "prove") == 0) return do_prove(d, err);
    if (strcmp(verb, "bake") == 0) return do_bake(d, err);
    if (strcmp(verb, "images") == 0 || strcmp(verb, "unbake") == 0) return do_images(d, verb[0] == 'u', err);
    if (strcmp(verb, "create") == 0) {
        if (arg != NULL && !str_to_i64(arg, 1, 1000, &attempt))
            return gp_fail(err, GP_EUSAGE, "'%s' is no attempt", arg);
        return do_create(d, (int)attempt, err);
    }
    if (strcmp(verb, "list") == 0 || strcmp(verb, "nodes") == 0) {
        GP_AUTO_RESOURCES struct resource_list l = {0};
        r = do_list(d, verb[0] == 'n', &l, err);
        put_resources(d, &l);
        return r;
    }
    return gp_fail(err, GP_EUSAGE, "unknown verb '%s'", verb);
}

int main(int argc, char **argv) {
    struct drive d = {.out = json_object()};
    struct gp_error err = {0};
    if (argc < 4 || (d.ops = provider_find(argv[1])) == NULL) {
        fputs(
            "usage: provider_drive PROVIDER SPEC open|offers|prepare|complete|create|list|nodes|destroy|prove|bake|images|"
            "unbake [ATTEMPT]\n",
            stderr);
        return 2;
    }
    int r = one_stack_open(argv[2], &d.spec, &d.cancel, &d.state_dir, &d.journal, &err);
    pthread_t t = 0;
    bool timed =
        r == 0 && getenv("GPUPROV_DRIVE_CANCEL_ON") != NULL && pthread_create(&t, NULL, cancel_on_file, &d) == 0;
    if (r == 0) r = run(&d, argv[3], argc > 4 ? argv[4] : NULL, &err);
    atomic_store(&d.finished, true);
    if (timed) pthread_join(t, NULL);
    json_object_set_new(d.out, "code", json_string(gp_code_name((enum gp_code) - r)));
    json_object_set_new(d.out, "message", json_string(err.msg));
    json_object_set_new(d.out, "detail", json_string(err.detail));
    json_object_set_new(d.out, "scope", json_integer((json_int_t)err.scope));
    if (d.journal != NULL) put_intents(&d);
    GP_AUTO_FREE char *text = json_text(d.out, 0);
    puts(text);
    json_decref(d.out);
    one_stack_close(d.p, &d.stack, d.spec, &d.cancel, d.state_dir, d.journal);
    return r == 0 ? 0 : gp_exit_code((enum gp_code) - r);
}

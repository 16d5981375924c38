/* SPDX-License-Identifier: Apache-2.0 */
/* The verb bake: launches one node of the spec as a stack of its own, bootstraps and validates it, cleans it, makes an
 * image of it and destroys it. A bake that was cut continues: an image whose outcome is not known is settled first.
 * Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/hash.h"
#include "engine/images.h"
#include "engine/proof/node_run.h"
#include "engine/proof/work.h"
#include "engine/run/lock.h"
#include "engine/run/login_key.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/open_known.h"
#include "engine/stack/reconcile.h"
#include "model/image.h"
#include "model/image_key.h"
#include "validate/suite/checks.h"

#define WAIT_MS ((int64_t)2 * 3600 * 1000)
#define NAME_MAX_CHARS 40
#define SUFFIX "-bake"

void bake_result_clear(struct bake_result *r) {
    resource_clear(&r->image);
    report_clear(&r->report);
    coverage_clear(&r->looked);
    free(r->stack);
    r->stack = NULL;
}

/* --- the spec of the node --- */

/* A long name is cut, with a hash of the whole, so that two specs do not share a stack. */
char *bake_stack_name(const char *name) {
    size_t room = NAME_MAX_CHARS - strlen(SUFFIX);
    char hash[65];
    if (strlen(name) <= room) return xasprintf("%s" SUFFIX, name);
    sha256_hex(name, strlen(name), hash);
    return xasprintf("%.*s-%.8s" SUFFIX, (int)(room - 9), name, hash);
}

/* check: an id, or the key of a floor, which begins with one. */
static bool runs_alone(const char *check) {
    for (size_t i = 0; i < check_count(); i++) {
        const struct check_info *info = &check_table[i];
        size_t n = strlen(info->id);
        bool its = strncmp(check, info->id, n) == 0 && (check[n] == '\0' || check[n] == '.');
        if (its && (info->needs & NEED_PEERS)) return false;
    }
    return true;
}

static int load(const struct spec *spec, const char *form, struct spec **ret, struct gp_error *err) {
    struct spec_problems problems = {0};
    int r = spec_load_text(spec->path, form, strlen(form), NULL, ret, &problems, err);
    if (r != 0 && problems.list.len > 0)
        r = gp_fail(err, GP_EUSAGE, "%s: one node of it cannot be launched: %s", spec->path,
                    problems.list.items[0].message);
    spec_problems_clear(&problems);
    return r;
}

/* Another hash than any spec has: a user's own stack of that name and content is not taken for the bake's, which ends
 * with its destruction. */
static void mark(struct spec *bake) {
    GP_AUTO_FREE char *text = xasprintf("bake %s", bake->hash);
    sha256_hex(text, strlen(text), bake->hash);
}

static int check_providers(const struct spec *spec, struct gp_error *err) {
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct provider_ops *ops = provider_find(spec->offers.items[i].provider);
        if (ops != NULL && ops->images != NULL) continue;
        return gp_fail(err, GP_EUSAGE, "bake: no image can be made at %s: %s: remove that offer from the spec",
                       spec->offers.items[i].provider,
                       ops != NULL && ops->image_refusal != NULL ? ops->image_refusal : "it is not supported there");
    }
    return 0;
}

/* --- an image that is there --- */

/* The offers of the spec with `image: baked` name the image that fits, if there is one. */
static int find_fitting(struct engine *e, const struct spec *bake, const char *name, struct resource *ret,
                        struct gp_error *err) {
    GP_AUTO_SPEC struct spec *with = NULL;
    GP_AUTO_FREE char *form = spec_bake_form(bake, name, runs_alone);
    struct run *run = NULL;
    int r = load(bake, form, &with, err);
    if (r != 0) return r;
    free(with->image.baked);
    with->image.baked = xstrdup(BAKED_REQUIRE);
    for (size_t i = 0; i < with->offers.len; i++) {
        struct spec_image *own = &with->offers.items[i].image;
        if (own->os != NULL || own->id != NULL) own->baked = xstrdup(BAKED_REQUIRE);
    }
    r = run_open(e, with, name, &run, err);
    if (r == 0) r = run_open_offers(run, err);
    for (size_t i = 0; r == 0 && ret->id == NULL && i < with->offers.len; i++) {
        struct offer_list offers = {0};
        GP_AUTO_RESOURCES struct resource_list images = {0};
        struct provider *p = NULL;
        r = run_provider(run, with->offers.items[i].provider, &p, err);
        if (r == 0 && p->ops->offers(p, with, i, &offers, NULL) == 0 && offers.list.len > 0)
            r = images_at(run, p, &images, err);
        for (size_t k = 0; r == 0 && k < images.list.len; k++)
            if (str_eq(images.list.items[k].id, offers.list.items[0].image)) resource_copy(ret, &images.list.items[k]);
        if (r == 0) images_prove(run, p, &images);
        offer_list_clear(&offers);
    }
    run_close(run);
    return r;
}

/* --- the image of the node --- */

struct making {
    struct run *run;
    struct provider *p;
    const struct spec *spec; /* of the user */
    struct resource_list images;
};

/* Of the stack, and no other that has copies of its tags. */
static const struct resource *image_of(const struct resource_list *l, const char *uid) {
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].kind == RES_IMAGE && l->list.items[i].state != RES_GONE && l->list.items[i].ours &&
            str_eq(l->list.items[i].uid, uid))
            return &l->list.items[i];
    return NULL;
}

static int list_images(struct making *m, struct gp_error *err) {
    resource_list_clear(&m->images);
    return images_at(m->run, m->p, &m->images, err);
}

/* The node of the bake, also one that is stopped by now. */
static const struct resource *node_of(const struct run *run) {
    if (run->n_nodes > 0 && run->nodes[0].exists) return &run->nodes[0].res;
    for (size_t i = 0; i < run->others.list.len; i++) {
        const struct resource *r = &run->others.list.items[i];
        if (r->kind == RES_INSTANCE && str_eq(r->uid, run->stack.uid) && r->state != RES_GONE) return r;
    }
    return NULL;
}

static const struct spec_image *base_of(const struct spec *spec, const struct resource *node) {
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        bool here = o->regions.n == 0 || strv_has(&o->regions, node->region);
        if (here && str_eq(o->provider, node->provider)) return spec_effective(spec, i).image;
    }
    return &spec->image;
}

/* The proof is written at once: a bake that is cut later leaves an image that other machines can use. */
static void prove(struct making *m, const struct resource *image) {
    struct resource_list one = {0}; /* borrowed */
    vec_push(&one.list, *image);
    images_prove(m->run, m->p, &one);
    vec_free(&one.list);
}

static int request(struct making *m, const struct resource *node, const char *facts, const struct intent *replay,
                   struct resource *ret, struct gp_error *err) {
    struct image_req req = {
        .stack = &m->run->stack, .node = node, .name = m->spec->name, .facts = facts, .replay = replay};
    if (node != NULL)
        run_event(m->run, 0, NODE_ENDING, EVENT_START, "image", "stops the node and makes an image of it");
    int r = m->p->ops->images->make(m->p, &req, ret, err);
    if (r == 0) prove(m, ret);
    return r;
}

/* Ends the open intents of the image once its outcome is known. */
static int end_intents(struct run *run, enum intent_state state, const char *note, struct gp_error *err) {
    struct intent_list open = {0};
    int r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    for (size_t i = 0; r == 0 && i < open.list.len; i++)
        if (open.list.items[i].kind == RES_IMAGE)
            r = journal_intent_end(run->e->journal, open.list.items[i].id, state, note, err);
    intent_list_clear(&open);
    return r;
}

/* Waits until the image is available. One that failed is removed, because its snapshots are billed. */
static int wait_for(struct making *m, struct resource *image, struct gp_error *err) {
    struct run *run = m->run;
    int64_t until = clock_deadline(WAIT_MS), settle = clock_deadline(m->p->ops->settle_ms);
    while (image->state == RES_PENDING) {
        int r = gp_sleep(m->p->ops->poll_ms, &run->e->cancel, err);
        if (r == 0) r = list_images(m, err);
        if (r != 0) return r;
        const struct resource *now = image_of(&m->images, run->stack.uid);
        if (now == NULL && clock_left_ms(settle) == 0)
            return gp_fail(
                err, GP_EPROTO,
                "the image %s is no longer listed as it was made: somebody else removed it or changed its tags",
                image->id);
        if (now != NULL) resource_copy(image, now);
        if (now != NULL && now->state_reason[0] != '\0' && now->state == RES_PENDING)
            run_event(run, 0, NODE_ENDING, EVENT_PROGRESS, "image", "%s: %s", image->id, now->state_reason);
        if (image->state == RES_PENDING && clock_left_ms(until) == 0)
            return gp_fail(err, GP_ETIMEOUT,
                           "the image %s is not available after 2 h: 'gpuprov images' shows its state", image->id);
    }
    if (image->state == RES_RUNNING) {
        int r = list_images(m, err); /* with its snapshots */
        if (r == 0) images_prove(run, m->p, &m->images);
        return r == 0 ? end_intents(run, INTENT_DONE, "available", err) : r;
    }
    struct resource_list failed = {0}; /* borrowed */
    struct gp_error why = {0};
    vec_push(&failed.list, *image);
    for (size_t i = 0; i < m->images.list.len; i++) {
        const struct resource *s = &m->images.list.items[i];
        const struct resource *of = s->kind == RES_SNAPSHOT ? image_of_snapshot(&m->images, s) : NULL;
        if (of != NULL && str_eq(of->id, image->id)) vec_push(&failed.list, *s);
    }
    int r = images_destroy(run, m->p, &failed, &why);
    vec_free(&failed.list);
    if (r == 0) r = end_intents(run, INTENT_FAILED, "failed", &why);
    if (r != 0)
        return gp_fail(err, GP_EBILLED,
                       "the image %s failed (%.100s) and could not be removed: %s: run 'gpuprov images "
                       "--remove %s'",
                       image->id, image->state_reason, why.msg, image->id);
    return gp_fail(err, GP_EBOOTSTRAP,
                   "the image %s failed at the provider: %.200s; it was removed: repeat 'gpuprov bake'", image->id,
                   image->state_reason[0] != '\0' ? image->state_reason : "no reason given");
}

/* One request without a known outcome. *ret_found: something came of it, and `ret` is it. */
static int settle_request(struct making *m, const struct intent *in, struct resource *ret, bool *ret_found,
                          struct gp_error *err) {
    struct gp_error why = {0};
    int r = request(m, node_of(m->run), NULL, in, ret, &why);
    *ret_found = r == 0;
    if (r == -GP_ENOTFOUND) {
        run_event(m->run, -1, NODE_ENDING, EVENT_WARN, "image", "an earlier bake made no image: %s", why.msg);
        return journal_intent_end(m->run->e->journal, in->id, INTENT_FAILED, "nothing came of it", err);
    }
    if (r != 0 && err != NULL) *err = why;
    return r;
}

/* An earlier bake may have been cut after its request. *ret_found: the image exists, and `ret` is it. */
static int settle_earlier(struct making *m, struct resource *ret, bool *ret_found, struct gp_error *err) {
    struct run *run = m->run;
    struct intent_list open = {0};
    int r = list_images(m, err);
    if (r == 0) r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN, &open, err);
    const struct resource *there = r == 0 ? image_of(&m->images, run->stack.uid) : NULL;
    for (size_t i = 0; r == 0 && there == NULL && !*ret_found && i < open.list.len; i++)
        if (open.list.items[i].kind == RES_IMAGE) r = settle_request(m, &open.list.items[i], ret, ret_found, err);
    intent_list_clear(&open);
    if (there != NULL) {
        resource_copy(ret, there);
        prove(m, ret);
        *ret_found = true;
    }
    return r;
}

/* Opens the bake's stack as it is; run->stack.uid NULL: there is none. */
static int open_stack(struct engine *e, const struct spec *bake, struct run **ret, struct gp_error *err) {
    GP_AUTO_FINDING struct finding found = {0};
    int r = run_open_known(e, bake, NULL, ret, err);
    if (r == 0) r = run_lock(*ret, err);
    return r == 0 ? adopt_stack(*ret, &found, err) : r;
}

/* A stack of that name with machines of another spec is not this bake's. */
static int check_stack(const struct run *run, const struct spec *bake, struct gp_error *err) {
    if (node_of(run) == NULL || str_eq(run->stack.spec_hash, bake->hash)) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "stack '%s' has nodes of another spec: the spec was changed since, or it is a stack of yours: run "
                   "'gpuprov down %s', then 'gpuprov bake' again",
                   run->stack.name, run->stack.name);
}

static int provider_of(struct run *run, const struct resource *node, struct provider **ret, struct gp_error *err) {
    const char *name = node != NULL ? node->provider : run->stack.provider;
    return run_provider(run, name, ret, err);
}

static int end_node(struct engine *e, const char *name, struct gp_error *err) {
    struct down_result res = {0};
    struct down_req req = {.name = name, .yes = true};
    int r = engine_down(e, &req, &res, err);
    down_result_clear(&res);
    return r;
}

/* The node of a bake that ended between the cleaning and the request of the image. */
static bool is_cleaned(const struct run *run) {
    return node_of(run) != NULL && run->n_nodes > 0 && str_eq(run->nodes[0].rec.note, NODE_CLEANED);
}

static int finish_earlier(struct engine *e, const struct spec *spec, const struct spec *bake, struct resource *image,
                          bool *ret_found, struct gp_error *err) {
    struct making m = {.spec = spec};
    bool cleaned = false;
    int r = open_stack(e, bake, &m.run, err);
    if (r == 0 && m.run->stack.uid != NULL) {
        r = check_stack(m.run, bake, err);
        if (r == 0) r = provider_of(m.run, node_of(m.run), &m.p, err);
        if (r == 0) r = settle_earlier(&m, image, ret_found, err);
        if (r == 0 && *ret_found)
            run_event(m.run, -1, NODE_ENDING, EVENT_WARN, "image", "continues with the image %s of an earlier bake",
                      image->id);
        if (r == 0 && *ret_found) r = wait_for(&m, image, err);
        cleaned = r == 0 && !*ret_found && is_cleaned(m.run);
        if (cleaned)
            run_event(m.run, -1, NODE_ENDING, EVENT_WARN, "image",
                      "destroys the node of an earlier bake: it was cleaned, and no image was made of it");
    }
    resource_list_clear(&m.images);
    if (m.run != NULL) run_close(m.run);
    return cleaned ? end_node(e, bake->name, err) : r;
}

/* Cleans the ready node, makes the image and waits for it. */
static int make_image(struct engine *e, const struct spec *spec, const struct spec *bake, struct resource *image,
                      bool *ret_cleaned, struct gp_error *err) {
    struct making m = {.spec = spec};
    GP_AUTO_STR struct str text = {0};
    int r = open_stack(e, bake, &m.run, err);
    struct run *run = m.run;
    if (r == 0) r = check_stack(run, bake, err);
    if (r == 0 && (run->n_nodes < 1 || !run->nodes[0].exists))
        r = gp_fail(err, GP_EREACH, "the node of '%s' is gone: repeat 'gpuprov bake'", bake->name);
    if (r == 0) r = provider_of(run, &run->nodes[0].res, &m.p, err);
    if (r == 0) r = login_key_get(run, false, err);
    if (r == 0) r = work_on_nodes(run, node_run_clean, err);
    if (r == 0 && run->nodes[0].rc != 0) {
        *err = run->nodes[0].err;
        r = run->nodes[0].rc;
        gp_wrap(err, "no image was made; the next 'gpuprov bake' replaces the node");
    }
    if (r == 0) {
        *ret_cleaned = true;
        const struct run_node *n = &run->nodes[0];
        struct image_facts facts;
        image_facts_wanted(spec, base_of(bake, &n->res), n->clean.arch, &facts);
        str_put(facts.driver, sizeof facts.driver, n->clean.driver);
        str_put(facts.cuda, sizeof facts.cuda, n->clean.cuda);
        str_put(facts.verdict, sizeof facts.verdict, "ready");
        image_facts_text(&facts, &text);
        r = request(&m, &n->res, text.s, NULL, image, err);
    }
    if (r == 0) r = wait_for(&m, image, err);
    if (r == 0) run_event(run, 0, NODE_ENDING, EVENT_DONE, "image", "%s is available", image->id);
    resource_list_clear(&m.images);
    if (run != NULL) run_close(run);
    return r;
}

/* Nothing of the image is left: the next bake has nothing to continue with. */
static bool is_certain(int r) {
    return r != -GP_ECANCELLED && r != -GP_EUNKNOWN && r != -GP_ETIMEOUT && r != -GP_EBILLED;
}

/* A node that was cleaned and has no image cannot be used any more. */
static int end_useless(struct engine *e, const char *name, struct gp_error *err) {
    struct gp_error why = {0};
    if (end_node(e, name, &why) == 0) {
        gp_wrap(err, "no image was made, and the node was destroyed");
        return -(int)err->code;
    }
    *err = why;
    return gp_wrap(err, "no image was made");
}

static int bake_locked(struct engine *e, const struct bake_req *req, const struct spec *bake, struct bake_result *ret,
                       struct gp_error *err) {
    struct up_result up = {0};
    bool found = false;
    int r = finish_earlier(e, req->spec, bake, &ret->image, &found, err);
    if (r == 0 && !found && !req->again) r = find_fitting(e, bake, req->spec->name, &ret->image, err);
    ret->reused = r == 0 && !found && ret->image.id != NULL;
    if (r != 0 && found && is_certain(r)) return end_useless(e, bake->name, err);
    if (r != 0 || ret->reused) return r;
    if (!found) r = engine_up(e, bake, &up, err);
    ret->report = up.report;
    up.report = (struct report){0};
    coverage_merge(&ret->looked, &up.looked);
    up_result_clear(&up);
    bool cleaned = found;
    if (!found && r == 0) r = make_image(e, req->spec, bake, &ret->image, &cleaned, err);
    if (r == 0) return end_node(e, bake->name, err);
    return cleaned && is_certain(r) ? end_useless(e, bake->name, err) : r;
}

int engine_bake(struct engine *e, const struct bake_req *req, struct bake_result *ret, struct gp_error *err) {
    GP_AUTO_SPEC struct spec *bake = NULL;
    struct run *guard = NULL;
    ret->stack = bake_stack_name(req->spec->name);
    GP_AUTO_FREE char *form = spec_bake_form(req->spec, ret->stack, runs_alone);
    GP_AUTO_FREE char *lock = xasprintf("bake of %s", req->spec->name);
    GP_AUTO_PROOF_KEY struct proof_key key = {0};
    int r = check_providers(req->spec, err);
    if (r == 0)
        r = image_key_load(e->state_dir, true, &key, err); /* before a provider opens: images are made with it */
    if (r == 0) r = load(req->spec, form, &bake, err);
    if (r == 0) mark(bake);
    if (r == 0) r = run_open(e, NULL, NULL, &guard, err);
    if (r == 0) guard->stack.name = GP_STEAL(lock); /* no name of a stack, so the lock is no stack's */
    if (r == 0) r = run_lock(guard, err);           /* for the whole bake: a second one finds the image of the first */
    if (r == 0) r = bake_locked(e, req, bake, ret, err);
    if (guard != NULL) run_close(guard);
    return r;
}

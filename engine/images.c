/* SPDX-License-Identifier: Apache-2.0 */
/* The verb images: lists the baked images of this owner, and removes them with their snapshots. Runs in the verb's
 * thread. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/images.h"
#include "engine/run/look.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"
#include "engine/trust/aside.h"
#include "model/image.h"
#include "model/image_key.h"

#define GONE_MS (10 * 60 * 1000)

void images_result_clear(struct images_result *r) {
    resource_list_clear(&r->images);
    resource_list_clear(&r->removed);
    resource_list_clear(&r->unreadable);
    coverage_clear(&r->looked);
}

int images_at(struct run *run, struct provider *p, struct resource_list *ret, struct gp_error *err) {
    struct list_req req = {.owner = p->owner, .images = true, .everywhere = true};
    struct coverage before = {0};
    coverage_merge(&before, &run->look.covered);
    int r = look_list(run, &run->look, p, &req, ret, err);
    for (size_t i = 0; i < before.list.len; i++) { /* a place whose other resources were not read stays so */
        const struct look *l = &before.list.items[i];
        if (!l->checked) coverage_put(&run->look.covered, l->provider, l->region, l->owner, l->billed, &l->why);
    }
    coverage_clear(&before);
    return r;
}

/* The facts of a snapshot are those of its image, and which image it is the cloud states. */
static bool has_facts_of(const struct resource *image, const struct resource *snapshot) {
    return image != NULL && image->ours && str_eq(image->image, snapshot->image) && str_eq(image->uid, snapshot->uid) &&
           str_eq(image->owner, snapshot->owner);
}

static int prove_one(struct provider *p, const struct proof_key *key, const struct resource *what,
                     struct gp_error *err) {
    char proof[PROOF_SIZE];
    proof_of_image(key, what, proof);
    return p->ops->images->prove(p, what, proof, err);
}

void images_prove(struct run *run, struct provider *p, const struct resource_list *listed) {
    GP_AUTO_PROOF_KEY struct proof_key key = {0};
    struct gp_error why = {0};
    const struct resource *failed = NULL;
    if (p->ops->images->prove == NULL) return;
    if (image_key_load(run->e->state_dir, false, &key, &why) != 0 || !key.known)
        return; /* opening warned of a bad file */
    for (size_t i = 0; i < listed->list.len && failed == NULL; i++) {
        const struct resource *r = &listed->list.items[i];
        bool snapshot = r->kind == RES_SNAPSHOT && has_facts_of(image_of_snapshot(listed, r), r);
        bool image = r->kind == RES_IMAGE && r->ours;
        if ((!snapshot && !image) || r->state == RES_GONE || !str_eq(r->owner, p->owner)) continue;
        if (!proof_image_holds(&key, r) && prove_one(p, &key, r, &why) != 0) failed = r;
    }
    if (failed != NULL)
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "image",
                  "%s has no proof yet, so other machines do not use it: %s: 'gpuprov images' tries again", failed->id,
                  why.msg);
}

static bool is_image(const struct resource *r) { return r->kind == RES_IMAGE || r->kind == RES_SNAPSHOT; }

/* What `up` could not use is found as well: only resources of other kinds are left out. */
static int list_provider(struct run *run, const struct provider_ops *ops, struct resource_list *ret,
                         struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct provider *p = NULL;
    struct gp_error why = {0};
    int r = run_provider(run, ops->name, &p, &why);
    if (r != 0 && r != -GP_ECANCELLED)
        coverage_put(&run->look.covered, ops->name, "", run->e->opts.owner, ops->billed, &why);
    if (r == 0) r = images_at(run, p, &all, &why);
    if (r == 0) images_prove(run, p, &all);
    for (size_t i = 0; i < all.list.len; i++)
        if (is_image(&all.list.items[i]) && all.list.items[i].state != RES_GONE)
            resource_list_add(ret, &all.list.items[i]);
    return r == -GP_ECANCELLED ? gp_fail(err, GP_ECANCELLED, "cancelled") : 0;
}

/* One run for each provider, because owners differ by cloud. */
static int list_all(struct engine *e, struct images_result *ret, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && provider_registry[i] != NULL; i++) {
        const struct provider_ops *ops = provider_registry[i];
        struct run *run = NULL;
        if (ops->images == NULL || !look_allows(e, ops->name, "")) continue;
        r = run_open(e, NULL, NULL, &run, err);
        if (r != 0) return r;
        run->looking = true;
        r = list_provider(run, ops, &ret->images, err);
        coverage_merge(&ret->looked, &run->look.covered);
        for (size_t k = 0; k < run->look.unreadable.list.len; k++)
            resource_list_add(&ret->unreadable, &run->look.unreadable.list.items[k]);
        run_close(run);
    }
    return r;
}

/* A cloud without credentials is listed as not looked at, and is no error unless --in names it. */
static int gap(struct engine *e, const struct images_result *ret, struct gp_error *err) {
    struct coverage asked = {0};
    bool named = e->opts.only != NULL && e->opts.only->n > 0;
    for (size_t i = 0; i < ret->looked.list.len; i++) {
        const struct look *l = &ret->looked.list.items[i];
        if (l->aside) continue;
        if (l->checked || named || !provider_no_credentials(&l->why))
            coverage_put(&asked, l->provider, l->region, l->owner, l->billed, l->checked ? NULL : &l->why);
    }
    int r = look_gap_error(&asked, "images", err);
    coverage_clear(&asked);
    return r;
}

/* A place of --in without images would be left out without a word. */
static int check_places(const struct engine *e, struct gp_error *err) {
    const struct strv *only = e->opts.only;
    for (size_t i = 0; only != NULL && i < only->n; i++) {
        GP_AUTO_FREE char *name = xstrndup(only->v[i], strcspn(only->v[i], "/"));
        const struct provider_ops *ops = provider_find(name);
        if (ops == NULL || ops->images != NULL) continue;
        return gp_fail(err, GP_EUSAGE,
                       "%s: gpuprov makes no images there, so there are none to look for: remove it from --in", name);
    }
    return 0;
}

int engine_images(struct engine *e, struct images_result *ret, struct gp_error *err) {
    int r = check_places(e, err);
    if (r != 0) return r;
    r = list_all(e, ret, err);
    look_set_aside(e, false, &ret->looked);
    if (r == 0) r = gap(e, ret, err);
    return r == 0 ? look_unreadable_error(&ret->unreadable, "images", err) : r;
}

/* --- removal --- */

static const struct resource *find(const struct resource_list *l, const char *id) {
    for (size_t i = 0; i < l->list.len; i++)
        if (strcmp(l->list.items[i].id, id) == 0) return &l->list.items[i];
    return NULL;
}

/* The images of the ids and their snapshots. */
static int choose(const struct images_result *all, const struct strv *ids, struct resource_list *ret,
                  struct gp_error *err) {
    for (size_t i = 0; i < ids->n; i++) {
        const struct resource *image = find(&all->images, ids->v[i]);
        if (image == NULL)
            return gp_fail(err, GP_ENOTFOUND,
                           "there is no baked image '%.100s' of this owner: nothing was removed; 'gpuprov images' "
                           "lists them",
                           ids->v[i]);
        const struct resource *of = image->kind == RES_SNAPSHOT ? image_of_snapshot(&all->images, image) : NULL;
        if (of != NULL && !strv_has(ids, of->id)) /* a cloud keeps it as long as the image */
            return gp_fail(err, GP_EUSAGE,
                           "%s is the snapshot of the image %s: nothing was removed; 'gpuprov images --remove %s' "
                           "removes both",
                           image->id, of->id, of->id);
        if (find(ret, image->id) == NULL) resource_list_add(ret, image);
        for (size_t k = 0; image->kind == RES_IMAGE && k < all->images.list.len; k++) {
            const struct resource *s = &all->images.list.items[k];
            bool its = s->kind == RES_SNAPSHOT && image_of_snapshot(&all->images, s) == image;
            if (its && find(ret, s->id) == NULL) resource_list_add(ret, s);
        }
    }
    return 0;
}

static bool any_listed(const struct resource_list *listed, const struct resource_list *of) {
    for (size_t i = 0; i < of->list.len; i++) {
        const struct resource *r = find(listed, of->list.items[i].id);
        if (r != NULL && r->state != RES_GONE) return true;
    }
    return false;
}

int images_destroy(struct run *run, struct provider *p, const struct resource_list *what, struct gp_error *err) {
    int64_t until = clock_deadline(GONE_MS);
    int r = 0;
    for (bool there = true; there;) {
        GP_AUTO_RESOURCES struct resource_list seen = {0};
        r = p->ops->destroy(p, what, err); /* again: a cloud keeps a snapshot until it has forgotten its image */
        if (r == 0) r = images_at(run, p, &seen, err);
        if (r != 0) return r;
        there = any_listed(&seen, what);
        if (there && clock_left_ms(until) == 0)
            return gp_fail(err, p->ops->billed ? GP_EBILLED : GP_EIO, "%s is still listed: repeat this later",
                           what->list.items[0].id);
        if (there) r = gp_sleep(p->ops->billed ? p->ops->poll_ms : 100, &run->e->cancel, err);
        if (r != 0) return r;
    }
    for (size_t i = 0; r == 0 && i < what->list.len; i++)
        if (what->list.items[i].kind == RES_IMAGE)
            r = journal_resource_gone(run->e->journal, p->ops->name, what->list.items[i].kind, what->list.items[i].id,
                                      err);
    return r;
}

static int remove_at(struct engine *e, const struct provider_ops *ops, const struct resource_list *all,
                     struct images_result *ret, struct gp_error *err) {
    struct resource_list part = {0}; /* borrowed */
    struct run *run = NULL;
    struct provider *p = NULL;
    for (size_t i = 0; i < all->list.len; i++)
        if (str_eq(all->list.items[i].provider, ops->name)) vec_push(&part.list, all->list.items[i]);
    if (part.list.len == 0) return 0;
    int r = run_open(e, NULL, NULL, &run, err);
    if (r == 0) r = run_provider(run, ops->name, &p, err);
    if (r == 0) r = images_destroy(run, p, &part, err);
    for (size_t i = 0; r == 0 && i < part.list.len; i++) resource_list_add(&ret->removed, &part.list.items[i]);
    vec_free(&part.list);
    run_close(run);
    return r;
}

int engine_images_remove(struct engine *e, const struct images_req *req, struct images_result *ret,
                         struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list what = {0};
    GP_AUTO_STR struct str names = {0};
    struct gp_error first = {0};
    int r = check_places(e, err);
    if (r == 0) r = list_all(e, ret, err);
    if (r == 0) r = choose(ret, req->ids, &what, err);
    if (r != 0) return r;
    for (size_t i = 0; i < what.list.len; i++)
        str_addf(&names, "%s%s %s", names.len > 0 ? ", " : "", resource_kind_name(what.list.items[i].kind),
                 what.list.items[i].id);
    if (!req->yes && req->confirm == NULL)
        return gp_fail(err, GP_EUSAGE, "%s: nothing was removed: add --yes, or repeat this on a terminal", names.s);
    GP_AUTO_FREE char *question = xasprintf("Remove %s?", names.s);
    if (!req->yes) r = req->confirm(req->ctx, question, err);
    if (r != 0) return r;
    for (size_t i = 0; provider_registry[i] != NULL; i++) {
        struct gp_error why = {0};
        if (remove_at(e, provider_registry[i], &what, ret, &why) != 0 && first.code == GP_OK) first = why;
    }
    if (first.code != GP_OK && err != NULL) *err = first;
    return -(int)first.code;
}

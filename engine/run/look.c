/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the resources of a stack at the providers: chooses the places, separates resources with unreadable tags, and
 * records the places that were looked at. Every statement of absence or readiness depends on that record. Only the
 * watcher's poll and the search after Ctrl-C list by themselves, because they search for known ids and launches. One
 * thread at a time for one run_look. */
#include "base/gp_base.h"

#include "engine/run/look.h"

#include "base/form.h"
#include "engine/run/owner.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"
#include "engine/run/zero_price.h"
#include "model/resource_index.h"
#include "model/same_id.h"
#include "model/tags.h"

void look_clear(struct run_look *look) {
    coverage_clear(&look->covered);
    resource_list_clear(&look->unreadable);
    strv_clear(&look->scope);
    free(look->scope_provider);
    free(look->said_gaps);
    *look = (struct run_look){0};
}

/* --- --in: places that the user limits a look to --- */

bool look_allows(const struct engine *e, const char *provider, const char *region) {
    const struct strv *only = e->opts.only;
    if (only == NULL || only->n == 0) return true;
    GP_AUTO_FREE char *place = xasprintf("%s/%s", provider, region);
    bool whole = strv_has(only, provider);
    if (whole || region[0] != '\0') return whole || strv_has(only, place);
    for (size_t i = 0; i < only->n; i++) /* some region of it */
        if (str_starts(only->v[i], place)) return true;
    return false;
}

static bool limits_regions(const struct engine *e, const char *provider) {
    return e->opts.only != NULL && e->opts.only->n > 0 && !strv_has(e->opts.only, provider);
}

/* The regions of a provider that --in names. */
static void named_regions(const struct engine *e, const char *provider, struct strv *ret) {
    GP_AUTO_FREE char *prefix = xasprintf("%s/", provider);
    for (size_t i = 0; i < e->opts.only->n; i++)
        if (str_starts(e->opts.only->v[i], prefix)) strv_add(ret, e->opts.only->v[i] + strlen(prefix));
}

int look_check_places(const struct strv *places, struct gp_error *err) {
    for (size_t i = 0; i < places->n; i++) {
        const char *slash = strchr(places->v[i], '/');
        GP_AUTO_FREE char *name = xstrndup(places->v[i], strcspn(places->v[i], "/"));
        if (provider_find(name) == NULL || (slash != NULL && !form_word(slash + 1)))
            return gp_fail(err, GP_EUSAGE,
                           "'%s' is not a place: give PROVIDER or PROVIDER/REGION, such as aws or "
                           "aws/us-east-1",
                           places->v[i]);
    }
    return 0;
}

#define LEFT_OUT "LEFT-OUT" /* error detail of such a place */
#define REASON_MAX 200
#define SAY_MS 10000
#define SLOW_MS 20000 /* lists take seconds; what is billed elsewhere need not wait for longer (run->on_slow) */

int look_left_out(struct gp_error *err) {
    int r = gp_fail(err, GP_EUSAGE, "it is excluded by --in");
    str_put(err->detail, sizeof err->detail, LEFT_OUT);
    return r;
}

static void left_out(const struct run *run, struct run_look *look, const char *provider, const char *region) {
    const struct provider_ops *ops = provider_find(provider);
    struct gp_error why = {0};
    look_left_out(&why);
    coverage_put(&look->covered, provider, region, run->owner, ops == NULL || ops->billed, &why);
}

/* --- one list --- */

/* The journal's resources of this owner at this provider; ret_stack: of these, the stack's. */
static int remembered(const struct run *run, const char *provider, const struct list_req *req,
                      struct resource_list *ret, struct resource_list *ret_stack, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    int r = journal_resources(run->e->journal, NULL, &all, err);
    for (size_t i = 0; i < all.list.len; i++) {
        const struct resource *k = &all.list.items[i];
        bool its = k->state != RES_GONE && strcmp(k->provider, provider) == 0 && str_eq(k->owner, req->owner);
        if (!its || !form_uid(k->uid)) continue;
        resource_list_add(ret, k);
        if (req->stack == NULL || str_eq(k->stack, req->stack)) resource_list_add(ret_stack, k);
    }
    return r;
}

/* The journal's values replace the tags of a known id, so that changed tags cannot hide a machine or move it to
 * another slot. */
static void recognize(const struct resource_list *journal, const struct resource_index *known, struct resource *r) {
    size_t at = resource_index_find(known, r);
    if (at == RESOURCE_NOWHERE) return;
    const struct resource *k = &journal->list.items[at];
    if (resource_is_machine(k) && k->ours == OURS_NOT) return; /* hearsay: from the tags that it had once */
    resource_set(&r->owner, k->owner);
    resource_set(&r->stack, k->stack);
    resource_set(&r->uid, k->uid);
    r->slot = k->slot;
    r->attempt = k->attempt;
    r->claim = k->claim;
    r->ours = k->ours;
    if (r->expires_s == 0) r->expires_s = k->expires_s;
}

static void set_aside_same_id(struct resource *r) {
    resource_set(&r->unreadable, "it has the id of another resource");
    resource_set(&r->uid, "");
}

/* Several entries of one resource: a list of pages may have it twice, with two states. Alive counts. Takes r. */
static void keep_one(struct resource_list *l, struct resource_index *x, struct resource *r) {
    size_t at = resource_index_find(x, r);
    if (at == RESOURCE_NOWHERE) {
        resource_index_put(x, r, l->list.len);
        vec_push(&l->list, *r);
        return;
    }
    struct resource *was = &l->list.items[at];
    bool replaces = was->state == RES_GONE && r->state != RES_GONE;
    struct resource drop = replaces ? *was : *r;
    if (replaces) {
        resource_index_put(x, r, at);
        *was = *r;
    }
    resource_clear(&drop);
}

/* By uid a list shows resources with another name too. This journal has none of them under that name: either an edited
 * tag hides them, or the uid is another stack's and was copied. Nobody can tell, so they are named and left alone. */
static void set_aside_renamed(const struct list_req *req, struct resource *r) {
    bool its = req->uid != NULL && str_eq(r->uid, req->uid) && str_eq(r->owner, req->owner);
    if (!its || r->state == RES_GONE || str_eq(r->stack, req->stack)) return;
    GP_AUTO_FREE char *why = xasprintf("it has the uid of '%s' and the name '%.64s'", req->stack, r->stack);
    resource_set(&r->unreadable, why);
    resource_set(&r->uid, "");
}

/* Resources without a readable uid are kept apart; those of other owners and stacks are dropped. */
static void sort_out(struct run_look *look, const struct list_req *req, const struct resource_list *journal,
                     const char *account, struct resource_list *all, struct resource_list *ret) {
    GP_AUTO_INDEX struct resource_index known = {0}, listed = {0}, odd = {0};
    bool *same_id = same_id_of_another(journal, all);
    resource_index_fill(&known, journal);
    resource_index_fill(&listed, ret);
    resource_index_fill(&odd, &look->unreadable);
    for (size_t i = 0; i < all->list.len; i++) {
        struct resource *r = &all->list.items[i];
        recognize(journal, &known, r); /* also what belongs to another stack by the journal, whatever its tags say */
        zero_price_drop(r);
        resource_set(&r->account, account);
        r->claim = r->claim && resource_may_claim(r->kind);
        set_aside_renamed(req, r);
        if (same_id[i]) set_aside_same_id(r);
        bool mine = str_eq(r->owner, req->owner) && (req->stack == NULL || str_eq(r->stack, req->stack));
        if (r->uid[0] != '\0' && mine) keep_one(ret, &listed, r);
        else if (r->uid[0] == '\0' && r->state != RES_GONE) keep_one(&look->unreadable, &odd, r);
        else resource_clear(r);
    }
    free(same_id);
    vec_free(&all->list);
}

int look_list(const struct run *run, struct run_look *look, struct provider *p, const struct list_req *wanted,
              struct resource_list *ret, struct gp_error *err) {
    struct resource_list all = {0};
    struct coverage looked = {0};
    struct list_req req = *wanted;
    GP_AUTO_STRV struct strv regions = {0};
    GP_AUTO_RESOURCES struct resource_list known = {0}, journal = {0};
    struct gp_error why = {0};
    const char *name = p->ops->name;
    int r = remembered(run, name, wanted, &journal, &known,
                       run->ending ? NULL : &why); /* when ending, a broken journal stops nothing */
    if (r != 0 && !run->ending) {
        if (err != NULL) *err = why;
        return r;
    }
    req.looked = &looked;
    req.known = &known;
    if (limits_regions(run->e, name)) {
        named_regions(run->e, name, &regions);
        for (size_t i = 0; wanted->regions != NULL && i < wanted->regions->n; i++)
            if (!strv_has(&regions, wanted->regions->v[i])) left_out(run, look, name, wanted->regions->v[i]);
        req.regions = &regions;
        req.everywhere = false;
    }
    r = p->ops->list(p, &req, &all, &why);
    if (r != 0 && looked.list.len == 0 && r != -GP_ECANCELLED)
        coverage_put(&looked, name, "", p->owner, p->ops->billed, &why);
    if (r != -GP_ECANCELLED) coverage_merge(&look->covered, &looked);
    coverage_clear(&looked);
    sort_out(look, &req, &journal, p->account, &all, ret);
    if (r != 0 && err != NULL) *err = why;
    return r;
}

/* --- where a stack may be --- */

static void add_once(struct strv *to, const char *region) {
    if (region != NULL && region[0] != '\0' && !strv_has(to, region)) strv_add(to, region);
}

/* The spec's regions, the claim's, and those of what the journal knows, done or not. */
static int known_regions(const struct run *run, const struct run_look *look, const char *provider, struct strv *ret,
                         struct gp_error *err) {
    for (size_t k = 0; run->spec != NULL && k < run->spec->offers.len; k++) {
        const struct spec_offer *o = &run->spec->offers.items[k];
        for (size_t i = 0; strcmp(o->provider, provider) == 0 && i < o->regions.n; i++) add_once(ret, o->regions.v[i]);
    }
    if (str_eq(run->stack.provider, provider)) add_once(ret, run->stack.region);
    for (size_t i = 0; i < look->scope.n; i++)
        if (str_eq(look->scope_provider, provider)) add_once(ret, look->scope.v[i]);
    if (run->stack.uid == NULL) return 0;
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct intent_list open = {0};
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    if (r == 0)
        r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_OPEN | 1u << INTENT_TOMBSTONE, &open, err);
    for (size_t i = 0; i < known.list.len; i++)
        if (known.list.items[i].state != RES_GONE && strcmp(known.list.items[i].provider, provider) == 0)
            add_once(ret, known.list.items[i].region);
    for (size_t i = 0; i < open.list.len; i++)
        if (str_eq(open.list.items[i].provider, provider)) add_once(ret, open.list.items[i].region);
    intent_list_clear(&open);
    return r;
}

/* A claim's tag names all regions of its stack: it is written before anything is made in them. Of several
 * claims with one uid (somebody planted one) all regions count. */
static void take_scope(const struct run *run, struct run_look *look, const struct resource_list *seen,
                       const char *provider) {
    GP_AUTO_STRV struct strv all = {0};
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        GP_AUTO_STRV struct strv names = {0};
        if (!r->claim || r->state == RES_GONE || strcmp(r->provider, provider) != 0) continue;
        if (run->stack.uid != NULL && strcmp(r->uid, run->stack.uid) != 0) continue;
        if (r->unreadable[0] != '\0' || !tags_regions_split(r->regions, &names)) return;
        for (size_t k = 0; k < names.n; k++) add_once(&all, names.v[k]);
        add_once(&all, r->region);
    }
    if (all.n == 0) return;
    strv_clear(&look->scope);
    strv_copy(&look->scope, &all);
    free(look->scope_provider);
    look->scope_provider = xstrdup(provider);
}

static bool in_scope(const void *ctx, const char *region) { return strv_has(ctx, region); }

/* Whether every one of the regions was looked at; if not, *err has the reason. */
static bool all_checked(const struct coverage *covered, const char *provider, const struct strv *regions,
                        struct gp_error *err) {
    for (size_t i = 0; i < regions->n; i++) {
        const struct look *l = coverage_find(covered, provider, regions->v[i]);
        if (l != NULL && l->checked) continue;
        if (err != NULL && l != NULL) *err = l->why;
        return false;
    }
    return true;
}

/* A region that matters and is missing from the list's coverage was not looked at: the whole list failed. */
static void note_missing(struct coverage *covered, const struct provider *p, const struct strv *regions,
                         const struct gp_error *why) {
    struct gp_error silent = {0};
    gp_fail(&silent, GP_EPROTO, "%s did not list that region", p->ops->name);
    for (size_t i = 0; i < regions->n; i++)
        if (coverage_find(covered, p->ops->name, regions->v[i]) == NULL)
            coverage_put(covered, p->ops->name, regions->v[i], p->owner, p->ops->billed,
                         why->code != GP_OK ? why : &silent);
}

/* Whether any place of this provider was looked at. */
static bool any_checked(const struct coverage *covered, const char *provider) {
    for (size_t i = 0; i < covered->list.len; i++)
        if (covered->list.items[i].checked && strcmp(covered->list.items[i].provider, provider) == 0) return true;
    return false;
}

static bool is_home(const struct run *run, const char *provider) {
    return run->stack.provider == NULL || run->stack.provider[0] == '\0' || strcmp(run->stack.provider, provider) == 0;
}

bool look_is_seen(const struct run *run, const char *provider, const char *region) {
    const struct look *there = coverage_find(&run->look.covered, provider, region);
    const struct look *whole = coverage_find(&run->look.covered, provider, "");
    if (there != NULL) return there->checked;
    if (whole != NULL && !whole->checked) return false;
    for (size_t i = 0; i < run->providers.len; i++)
        if (strcmp(run->providers.items[i]->ops->name, provider) == 0) return look_allows(run->e, provider, region);
    return false;
}

/* No place of the provider counts as looked at. */
static int unseen(struct coverage *covered, const struct provider *p, const struct strv *regions,
                  const struct gp_error *why, struct gp_error *err) {
    coverage_drop(covered, p->ops->name);
    note_missing(covered, p, regions, why);
    coverage_put(covered, p->ops->name, "", p->owner, p->ops->billed, why);
    if (err != NULL) *err = *why;
    return -(int)why->code;
}

/* Lists the run's stack at the provider, in the regions of spec, claim and journal. If these may be incomplete (the
 * journal did not know the stack, its claim is not seen or may be another's), it lists every region. Fails if
 * one of the known regions, or every region, could not be looked at. look: of this provider alone. */
static int look_for_stack(const struct run *run, struct run_look *look, struct provider *p, struct resource_list *seen,
                          struct gp_error *err) {
    const char *name = p->ops->name;
    GP_AUTO_STRV struct strv regions = {0}, more = {0};
    struct gp_error why = {0};
    bool by_uid = run->ending && !run->named_only && form_uid(run->stack.uid);
    struct list_req req = {
        .owner = p->owner, .stack = run->stack.name, .regions = &regions, .uid = by_uid ? run->stack.uid : NULL};
    int r = known_regions(run, look, name, &regions, &why);
    if (r == 0) r = account_check(run, p, NULL, &why);
    if (r != 0) return unseen(&look->covered, p, &regions, &why, err);
    bool scoped = str_eq(look->scope_provider, name);
    bool partly = run->stack.uid == NULL || run->spec == NULL || regions.n == 0 || run->adopted;
    req.everywhere = !run->own_uid || (!scoped && partly);
    r = look_list(run, look, p, &req, seen, &why);
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled");
    take_scope(run, look, seen, name);
    scoped = str_eq(look->scope_provider, name);
    for (size_t i = 0; scoped && i < look->scope.n; i++)
        if (!req.everywhere && !strv_has(&regions, look->scope.v[i])) strv_add(&more, look->scope.v[i]);
    bool lost = !scoped && !req.everywhere && is_home(run, name); /* no claim where it should be */
    if (more.n > 0 || lost) {
        struct list_req rest = req;
        rest.regions = more.n > 0 ? &more : &regions;
        rest.everywhere = lost;
        r = look_list(run, look, p, &rest, seen, &why);
        if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled");
        take_scope(run, look, seen, name);
        scoped = str_eq(look->scope_provider, name);
        for (size_t i = 0; i < more.n; i++) strv_add(&regions, more.v[i]);
    }
    for (size_t i = 0; scoped && i < look->scope.n; i++) add_once(&regions, look->scope.v[i]);
    if (r == 0) r = account_check(run, p, seen, &why);
    if (r == -GP_EAUTH && p->account_is_key) {
        resource_list_clear(seen); /* of somebody else's account */
        return unseen(&look->covered, p, &regions, &why, err);
    }
    if (r == 0) gp_error_clear(&why);
    note_missing(&look->covered, p, &regions, &why);
    if (scoped && run->own_uid) coverage_forget(&look->covered, name, in_scope, &regions);
    gp_error_clear(&why);
    if (all_checked(&look->covered, name, &regions, &why) && any_checked(&look->covered, name)) return 0;
    if (why.code == GP_OK) {
        const struct look *gap = coverage_gap(&look->covered);
        if (gap != NULL) why = gap->why;
        else if (limits_regions(run->e, name)) look_left_out(&why);
        else gp_fail(&why, GP_EINTERNAL, "the provider reported no place (req->looked is empty)");
    }
    if (err != NULL) *err = why;
    return -(int)why.code;
}

/* --- events --- */

/* Without this line `up` would launch another machine and not mention this one. */
static void report_unreadable(struct run *run) {
    for (size_t i = 0; !run->ending && !run->look.said_unreadable && i < run->look.unreadable.list.len; i++) {
        const struct resource *r = &run->look.unreadable.list.items[i];
        run_event(run, -1, NODE_PLANNED, EVENT_WARN, "tags", "left alone: %s in %s: %s%s", r->id, r->region,
                  r->unreadable, r->billed ? "; it may be billed" : "");
    }
    run->look.said_unreadable = run->look.said_unreadable || run->look.unreadable.list.len > 0;
}

void look_report(struct run *run) {
    report_unreadable(run);
    GP_AUTO_STR struct str gaps = {0};
    coverage_text(&run->look.covered, false, 6, &gaps);
    if (str_eq(gaps.s, run->look.said_gaps != NULL ? run->look.said_gaps : "")) return;
    free(run->look.said_gaps);
    run->look.said_gaps = xstrdup(gaps.s);
    const struct look *gap = coverage_gap(&run->look.covered);
    if (gap == NULL) return;
    if (run->ending || run->looking) return; /* the error of these verbs has it */
    run_event(run, -1, run->ending ? NODE_ENDING : NODE_PLANNED, run->ending ? EVENT_WARN : EVENT_INFO, "look",
              "not looked at: %s: %s", gaps.s, gap->why.msg);
}

/* --- all places of a run --- */

/* Adds the journal's resources in places that could not be looked at. */
static int add_remembered(struct run *run, const char *provider, struct resource_list *seen, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    gp_error_clear(err);
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        if (k->state == RES_GONE || strcmp(k->provider, provider) != 0 || look_is_seen(run, provider, k->region))
            continue;
        resource_list_add(seen, k);
    }
    return r;
}

/* Keeps what an earlier list had in places that this list did not look at. */
static void keep_unseen(struct run *run, struct resource_list *before) {
    GP_AUTO_INDEX struct resource_index now = {0};
    resource_index_fill(&now, &run->look.unreadable);
    for (size_t i = 0; i < before->list.len; i++) {
        struct resource *r = &before->list.items[i];
        const struct look *there = coverage_find(&run->look.covered, r->provider, r->region);
        bool again = there != NULL && there->checked;
        if (again || resource_index_find(&now, r) != RESOURCE_NOWHERE) resource_clear(r);
        else vec_push(&run->look.unreadable.list, *r);
    }
    vec_free(&before->list);
}

/* The look at one provider, in a thread of its own. */
struct looking {
    const struct run *run;
    struct provider *p;
    struct run_look look; /* its own */
    struct resource_list seen;
    struct gp_error why;
    int r;
    bool came; /* it is over; set in the verb's thread */
};
struct lookings {
    struct run *run;
    struct looking *all;
    size_t n;
    int64_t began_ms;
};

/* Reads the run and changes nothing in it. */
static void look_one(void *ctx, size_t i) {
    struct looking *l = &((struct lookings *)ctx)->all[i];
    l->r = look_for_stack(l->run, &l->look, l->p, &l->seen, &l->why);
}

static void look_came(void *ctx, size_t i) { ((struct lookings *)ctx)->all[i].came = true; }

/* The threads that still list read the run, so nothing of what they read is changed here. */
static void on_waiting(void *ctx) {
    const struct lookings *o = ctx;
    struct run *run = o->run;
    GP_AUTO_STR struct str names = {0};
    char text[32];
    int64_t waited_ms = (clock_ms() - o->began_ms) / 1000 * 1000;
    for (size_t i = 0; i < o->n; i++)
        if (!o->all[i].came) str_addf(&names, "%s%s", names.len > 0 ? ", " : "", o->all[i].p->ops->name);
    duration_format(text, sizeof text, waited_ms);
    run_event(run, -1, run->ending ? NODE_ENDING : NODE_PLANNED, EVENT_PROGRESS, "look",
              "waiting for the list of %s (%s)", names.s, text);
    for (size_t i = 0; run->on_slow != NULL && waited_ms >= SLOW_MS && i < o->n; i++)
        if (o->all[i].came && o->all[i].r == 0) run->on_slow(run, o->all[i].p, &o->all[i].seen);
}

/* Moves what was found at one provider into the run. */
static void take(struct run *run, struct looking *l, struct resource_list *seen) {
    const char *name = l->p->ops->name;
    struct resource_list *unreadable = &l->look.unreadable;
    coverage_drop(&run->look.covered, name); /* the earlier look is out of date */
    coverage_merge(&run->look.covered, &l->look.covered);
    take_scope(run, &run->look, &l->seen, name);
    for (size_t i = 0; i < l->seen.list.len; i++) vec_push(&seen->list, l->seen.list.items[i]);
    vec_free(&l->seen.list);
    for (size_t i = 0; i < unreadable->list.len; i++) vec_push(&run->look.unreadable.list, unreadable->list.items[i]);
    vec_free(&unreadable->list);
    look_clear(&l->look);
}

/* Lists at all providers side by side. The results, and the first error, are taken in the providers' order. */
static int list_all(struct run *run, struct resource_list *seen, struct gp_error *err) {
    size_t n = run->providers.len;
    struct looking *all = xcalloc(n + 1, sizeof *all);
    int end = 0;
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct looking){.run = run, .p = run->providers.items[i]};
        strv_copy(&all[i].look.scope, &run->look.scope);
        if (run->look.scope_provider != NULL) all[i].look.scope_provider = xstrdup(run->look.scope_provider);
    }
    struct lookings looks = {.run = run, .all = all, .n = n, .began_ms = clock_ms()};
    pool_each_followed(n, &(struct pool_follow){look_one, look_came, on_waiting, SAY_MS}, &looks);
    for (size_t i = 0; i < n; i++) {
        struct looking *l = &all[i];
        take(run, l, seen);
        if (end != 0 || l->r == 0 || (run->ending && l->r != -GP_ECANCELLED)) continue;
        end = l->r;
        if (run->looking && end != -GP_ECANCELLED) /* the places that were read are shown as read, the rest from the
                                                      journal */
            end = add_remembered(run, l->p->ops->name, seen, &l->why);
        if (end == 0) continue;
        if (err != NULL) *err = l->why;
        end = gp_wrap(err, "could not list the resources of '%s' at %s", run->stack.name, l->p->ops->name);
    }
    free(all);
    return end;
}

int look_for_run(struct run *run, struct resource_list *seen, struct gp_error *err) {
    struct resource_list before = run->look.unreadable;
    run->look.unreadable = (struct resource_list){0};
    int r = list_all(run, seen, err);
    keep_unseen(run, &before);
    if (r == 0) look_report(run);
    return r;
}

void look_narrow(struct run *run, const struct resource_list *seen) {
    for (size_t i = 0; run->own_uid && i < run->providers.len; i++) {
        const char *name = run->providers.items[i]->ops->name;
        GP_AUTO_STRV struct strv regions = {0};
        strv_clear(&run->look.scope); /* it may be of another claim with the name */
        free(run->look.scope_provider);
        run->look.scope_provider = NULL;
        take_scope(run, &run->look, seen, name);
        if (run->look.scope_provider == NULL || known_regions(run, &run->look, name, &regions, NULL) != 0) continue;
        coverage_forget(&run->look.covered, name, in_scope, &regions);
        return; /* a stack has one claim */
    }
}

/* --- errors --- */

void look_gap_text(const struct look *gap, const char *command, struct str *reason, struct str *next) {
    size_t n = strlen(gap->why.msg), keep = n;
    for (size_t i = 0; n > REASON_MAX && i < REASON_MAX; i++) /* cut at the end of a clause, not inside a word */
        if ((gap->why.msg[i] == ':' || gap->why.msg[i] == ';') && gap->why.msg[i + 1] == ' ') keep = i;
    str_add_mem(reason, gap->why.msg, GP_MIN(keep, (size_t)REASON_MAX));
    GP_AUTO_FREE char *what = command != NULL ? xasprintf(" '%s'", command) : xstrdup("");
    if (str_eq(gap->why.detail, LEFT_OUT)) str_addf(next, "repeat%s without --in, or add the place to it", what);
    else str_addf(next, "then repeat%s, or give --in with the places to look at", what);
}

int look_gap_error(const struct coverage *looked, const char *what, struct gp_error *err) {
    GP_AUTO_STR struct str gaps = {0}, reason = {0}, next = {0};
    const struct look *gap = coverage_gap(looked);
    if (coverage_whole(looked)) return 0;
    if (gap == NULL)
        return gp_fail(err, GP_EUSAGE, "%s: no place was looked at: name another place with --in, such as --in local",
                       what);
    coverage_text(looked, false, 6, &gaps);
    look_gap_text(gap, NULL, &reason, &next);
    return gp_fail(err, gap->billed ? GP_EBILLED : gap->why.code, "%s: not looked at: %.120s%s: %s; %s", what, gaps.s,
                   gap->billed ? ", where it may still be billed" : "", reason.s, next.s);
}

int look_unreadable_error(const struct resource_list *unreadable, const char *what, struct gp_error *err) {
    GP_AUTO_STR struct str ids = {0};
    const struct resource *first = NULL;
    for (size_t i = 0; i < unreadable->list.len; i++) {
        const struct resource *r = &unreadable->list.items[i];
        if (!r->billed) continue;
        if (first == NULL) first = r;
        str_addf(&ids, "%s%s", ids.len > 0 ? ", " : "", r->id);
    }
    if (first == NULL) return 0;
    return gp_fail(err, GP_EBILLED,
                   "%s: left alone: %.200s in %s: its stack is not known (%s), and it may be billed: "
                   "check it in the cloud's console",
                   what, ids.s, first->region, first->unreadable);
}

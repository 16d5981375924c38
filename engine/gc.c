/* SPDX-License-Identifier: Apache-2.0 */
/* The verb gc: destroys resources past their deadline, and those that a `down` could not settle, in every region of
 * every provider that opens. Touches only resources with this owner's tag. */
#include "base/gp_base.h"

#include "engine/engine.h"
#include "engine/internal.h"

#include "engine/gc/gc_clock.h"
#include "engine/gc/gc_fate.h"
#include "engine/images.h"
#include "engine/run/ending.h"
#include "engine/run/lock.h"
#include "engine/run/look.h"
#include "engine/run/notify.h"
#include "engine/run/owner.h"
#include "engine/run/pool.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"
#include "engine/stack/adopt.h"
#include "engine/stack/cost.h"
#include "engine/stack/forget.h"
#include "engine/stack/open_known.h"
#include "engine/stack/reach.h"
#include "engine/stack/teardown.h"
#include "engine/tidy.h"
#include "engine/trust/aside.h"
#include "engine/trust/proof_key.h"
#include "engine/trust/trust.h"
#include "model/image.h"

#define TOMBSTONE_MIN_AGE_S 3600 /* after this and its deadline a launch can create nothing */

static bool alive(const struct resource *r) { return r->state != RES_GONE; }

#define FRESH_MS 10000 /* an older list is read again before anything is destroyed by it */
#define SAY_MS 10000

struct sweeps;

/* One provider's resources, and the tombstones. */
struct sweep {
    struct engine *e;
    const struct sweeps *among; /* the lists of all providers: a stack may be at several */
    const struct provider_ops *ops;
    const char *owner;  /* NULL: the provider's own */
    struct run *run;    /* one each, because owners differ by cloud. Its look: the places looked at */
    struct provider *p; /* NULL: it did not open, because of `why` */
    struct gp_error why;
    bool came; /* the list is here. Until then only its thread reads and writes what is above and below */
    struct resource_list all;
    int listed; /* the list's result */
    int64_t listed_ms;
    struct intent_list stones;
    struct gc_time time;
    struct strv held; /* what is past its deadline by one of two clocks only */
    bool held_billed;
    struct strv done;        /* groups that were swept already, as "UID/STACK" */
    struct gc_result result; /* of these */
    struct gp_error failed;  /* the first error of these */
};
struct sweeps {
    VEC_OF(struct sweep) list;
    struct gc_clocks *clocks;
    bool dry_run;
    int64_t began_ms;
};

static bool of_uid(const struct resource *r, const char *uid) { return alive(r) && strcmp(r->uid, uid) == 0; }

/* Opens the other providers of the stack's resources in the journal. */
static int open_its_others(struct run *run, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; r == 0 && i < known.list.len; i++)
        if (alive(&known.list.items[i])) r = ending_provider(run, known.list.items[i].provider, err);
    return r;
}

#define FARTHEST_S ((int64_t)31 * 86400) /* limits.ttl and extend allow 30 days */

/* What the tags of machines tell of the stack's deadline. */
struct told {
    bool key;          /* the login key is at hand, which tells whether the stack wrote them */
    bool member;       /* machines are the stack's, by this journal or by their proof */
    int64_t moved_s;   /* the journal's, or a later one: the latest proven; without the key the earliest of all nodes */
    int64_t proven_s;  /* the latest proven one; 0: none. A former one may have been put back */
    int64_t claimed_s; /* without the key: the latest of machines that may be the stack's; 0: none */
};

static void hear(struct sweep *w, struct run *run, const struct stack *s, const struct resource *r, struct told *t) {
    bool proven = t->key && trust_deadline(run, r), sane = r->expires_s <= w->time.later_s + FARTHEST_S;
    if (r->ours == OURS_NOT) { /* the stack wrote that deadline, whoever has it, or may have */
        if (proven && sane) t->proven_s = GP_MAX(t->proven_s, r->expires_s);
        if (!t->key && sane) t->claimed_s = GP_MAX(t->claimed_s, r->expires_s);
        return;
    }
    bool moved = r->expires_s > s->expires_s && sane && (proven || !t->key);
    int64_t one_s = moved ? r->expires_s : s->expires_s;
    bool first = !t->member;
    t->member = true;
    if (first || (t->key ? one_s > t->moved_s : one_s < t->moved_s)) t->moved_s = one_s;
    if (proven) t->proven_s = GP_MAX(t->proven_s, r->expires_s);
}

static bool is_of(const struct resource *r, const struct stack *s) {
    return str_eq(r->uid, s->uid) && str_eq(r->stack, s->name) && str_eq(r->owner, s->owner);
}

/* Another controller with the key may have launched a node since, or moved the deadline: proofs tell. The machines
 * of the lists are marked accordingly. */
static struct told hear_all(struct sweep *w, const struct stack *s) {
    struct told t = {0};
    struct run *run = NULL;
    const char *saved = w->e->opts.owner; /* alone: threads that list read the other options */
    w->e->opts.owner = s->owner;
    bool open = run_open_remembered(w->e, NULL, s->name, &run, NULL) == 0, asked = false;
    for (size_t k = 0; open && k < w->among->list.len; k++) {
        const struct resource_list *all = &w->among->list.items[k].all;
        if (!w->among->list.items[k].came) continue;
        for (size_t i = 0; i < all->list.len; i++) {
            struct resource *r = &all->list.items[i];
            bool tells = is_of(r, s) && (r->proof[0] != '\0' || r->deadline[0] != '\0');
            if (!resource_is_machine(r) || !of_uid(r, s->uid) || (r->ours == OURS_NOT && !tells)) continue;
            if (!asked) t.key = run_has_proof_key(run); /* its agent may prompt, so only where it counts */
            asked = true;
            trust_machine(run, r);
            hear(w, run, s, r, &t);
        }
    }
    run_close(run);
    w->e->opts.owner = saved;
    return t;
}

static bool is_listed(const struct sweeps *among, const struct resource *r) {
    for (size_t k = 0; k < among->list.len; k++)
        if (among->list.items[k].came && resource_list_has(&among->list.items[k].all, r)) return true;
    return false;
}

/* Whether this journal has machines of the stack alive that no list shows. */
static int has_others(const struct sweep *w, const struct stack *s, bool *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    int r = journal_resources(w->e->journal, s->uid, &known, err);
    for (size_t i = 0; i < known.list.len; i++)
        if (alive(&known.list.items[i]) && resource_is_machine(&known.list.items[i]) &&
            !is_listed(w->among, &known.list.items[i]))
            *ret = true;
    return r;
}

/* Whether this journal decides about the stack, and by which deadline. Of one whose nodes it has only adopted its own
 * deadline may come from an edited tag, so a proven one counts, and without the login key each machine's own tag. */
static int judge_known(struct sweep *w, const struct stack *s, struct gc_group *ret, struct gp_error *err) {
    bool launched = false, others = false;
    int r = trust_launched_here(w->e->journal, s->uid, &launched, err);
    if (r == 0 && launched) r = has_others(w, s, &others, err);
    if (r != 0) return r;
    struct told t = hear_all(w, s);
    ret->keyless = !t.key;
    ret->launched = launched;
    ret->adopted = !launched && t.key && t.member;
    /* another name or owner with its uid is a copy, which ends no more than itself */
    if ((!launched && !ret->adopted) || !str_eq(s->name, ret->of->stack) || !str_eq(s->owner, ret->of->owner)) return 0;
    /* its machines are at another place, and may have a later deadline: gc_journal looks at all of them */
    if (launched && !t.member && others) return 0;
    ret->claimed_s = t.claimed_s;
    if (launched) ret->known_s = GP_MAX(t.member ? t.moved_s : s->expires_s, t.proven_s);
    else if (t.proven_s > 0) ret->known_s = GP_MAX(t.proven_s, s->expires_s);
    return 0;
}

/* Finds the group's stack in the journal. */
static int know(struct sweep *w, const struct resource *of, struct gc_group *ret, struct gp_error *err) {
    struct stack_list all = {0};
    int r = journal_stacks(w->e->journal, &all, err);
    *ret = (struct gc_group){
        .all = &w->all, .of = of, .stones = &w->stones, .complete = coverage_whole(&w->run->look.covered)};
    for (size_t i = 0; r == 0 && i < all.list.len; i++)
        if (str_eq(all.list.items[i].uid, of->uid)) r = judge_known(w, &all.list.items[i], ret, err);
    stack_list_clear(&all);
    return r;
}

/* Whether a list shows one of them alive, or does not have its place. */
static bool any_left(const struct sweep *w, const struct resource_list *seen, const struct resource_list *of) {
    for (size_t i = 0; i < of->list.len; i++) {
        const struct resource *r = &of->list.items[i];
        if (!look_is_seen(w->run, r->provider, r->region)) return true;
        for (size_t k = 0; k < seen->list.len; k++)
            if (resource_same(&seen->list.items[k], r) && alive(&seen->list.items[k])) return true;
    }
    return false;
}

/* Destroys these resources and leaves the rest of their stack; waits until they are gone. */
static int end_some(struct sweep *w, const struct resource_list *what, struct gp_error *err) {
    int64_t until = clock_deadline(w->run->end_ms);
    int quiet = 0; /* lists in a row without them */
    for (size_t i = 0; i < what->list.len; i++)
        run_event(w->run, -1, NODE_ENDING, EVENT_START, "destroy", "%s %s, and nothing else of '%s'",
                  resource_kind_name(what->list.items[i].kind), what->list.items[i].id, what->list.items[i].stack);
    int r = w->p->ops->destroy(w->p, what, err);
    while (r == 0 && quiet < 2) {
        GP_AUTO_RESOURCES struct resource_list seen = {0};
        struct list_req req = {.owner = w->p->owner};
        r = gp_sleep(run_pause_ms(w->run), &w->e->cancel, err);
        if (r == 0) r = look_list(w->run, &w->run->look, w->p, &req, &seen, err);
        quiet = any_left(w, &seen, what) ? 0 : quiet + 1;
        if (r == 0 && quiet == 0 && clock_left_ms(until) == 0)
            r = gp_fail(err, GP_EBILLED, "%s does not terminate: check it in the cloud's console",
                        what->list.items[0].id);
    }
    for (size_t i = 0; r == 0 && i < what->list.len; i++)
        r = journal_resource_gone(w->e->journal, what->list.items[i].provider, what->list.items[i].kind,
                                  what->list.items[i].id, err);
    return r;
}

static int judge(struct sweep *w, const struct resource *of, struct gc_group *group, struct gc_fate *now,
                 struct gc_fate *later, struct gp_error *err) {
    bool owned = of->uid[0] != '\0';
    int r = know(w, of, group, err);
    if (r != 0) return r;
    if (owned) gc_fate_find(group, w->time.now_s, now);
    if (owned) gc_fate_find(group, w->time.later_s, later);
    return 0;
}

/* By the journal as it is under the lock: an `extend` may have moved the deadline since the list. */
static int is_still_over(struct sweep *w, const struct resource *of, struct gc_group *group, bool *ret,
                         struct gp_error *err) {
    struct gc_fate now = {0}, later = {0};
    int r = judge(w, of, group, &now, &later, err);
    *ret = r == 0 && now.whole;
    vec_free(&now.some.list);
    vec_free(&later.some.list);
    return r;
}

/* Destroys the resources with this uid, even if the stack's name has another uid by now: at all its providers if this
 * journal launched it. Else only what was listed and judged, because its owner may launch more of it meanwhile.
 * *ret_over false: another gpuprov has moved the deadline, and nothing was destroyed. */
static int end_uid(struct sweep *w, const struct resource *of, struct gc_group *group, bool *ret_over,
                   struct down_result *ret, struct gp_error *err) {
    struct run *run = NULL;
    struct provider *p = NULL;
    GP_AUTO_STRV struct strv judged = {0};
    int r = run_open(w->e, NULL, of->stack, &run, err);
    if (r != 0) return r;
    run->ending = true;
    for (size_t i = 0; i < w->all.list.len; i++)
        if (gc_fate_in_group(&w->all.list.items[i], of)) strv_add(&judged, w->all.list.items[i].id);
    if (!group->launched) run->only = &judged;
    run->named_only = !group->launched; /* what has its uid and another name is a group of its own */
    free(run->owner);
    run->owner = xstrdup(of->owner);
    run->stack.owner = xstrdup(of->owner);
    run->stack.uid = xstrdup(of->uid);
    run->stack.provider = xstrdup(of->provider);
    r = run_provider(run, of->provider, &p, err);
    if (r == 0 && group->launched) r = open_its_others(run, err);
    if (r == 0) r = run_lock(run, err);
    if (r == 0) r = is_still_over(w, of, group, ret_over, err);
    bool ends = r == 0 && *ret_over;
    if (ends) run_lock_destroys(run);
    bool tell = ends && notify_open(run); /* before the journal forgets its spec */
    if (ends) r = teardown(run, ret, err);
    if (tell) notify_ended(run, r, err, ret->destroyed);
    run_close(run);
    return r;
}

/* One stack: kept, destroyed as a whole, or some of it. Only resources that are gone count as ended. */
static int sweep_uid(struct sweep *w, const struct resource *of, bool dry_run, struct gc_result *ret,
                     struct gp_error *err) {
    struct gc_group group = {0};
    struct gc_fate now = {0}, later = {0};
    struct down_result down = {0};
    bool over = true;
    int r = judge(w, of, &group, &now, &later, err);
    if (r != 0) return r;
    if (now.whole && !dry_run) r = end_uid(w, of, &group, &over, &down, err);
    else if (now.some.list.len > 0 && !dry_run) r = end_some(w, &now.some, err);
    now.whole = now.whole && over;
    later.whole = later.whole && over;
    for (size_t i = 0; i < w->all.list.len; i++) {
        const struct resource *res = &w->all.list.items[i];
        if (!gc_fate_in_group(res, of)) continue;
        bool ends = now.whole || resource_list_has(&now.some, res),
             held = !ends && (later.whole || resource_list_has(&later.some, res));
        if (held) strv_add(&w->held, res->id);
        w->held_billed = w->held_billed || (held && res->billed);
        struct resource shown = *res; /* with the deadline that decides: its tag may have another */
        if (!ends && group.known_s > 0) shown.expires_s = group.known_s;
        resource_list_add(ends && r == 0 && !resource_list_has(&down.left, res) ? &ret->ended : &ret->kept, &shown);
    }
    vec_free(&now.some.list);
    vec_free(&later.some.list);
    down_result_clear(&down);
    return r;
}

/* Closes the tombstones of launches that have no resources and can create none any more. */
static int clear_tombstones(struct sweep *w, struct gp_error *err) {
    int r = 0;
    for (size_t k = 0; r == 0 && k < w->stones.list.len; k++) {
        const struct intent *stone = &w->stones.list.items[k];
        int64_t until = GP_MAX(stone->created_s + TOMBSTONE_MIN_AGE_S, stone->deadline_s);
        bool there = false, machine = stone->kind == RES_INSTANCE; /* a claim with its uid may be anybody's */
        for (size_t i = 0; i < w->all.list.len; i++) {
            const struct resource *one = &w->all.list.items[i];
            there = there || (of_uid(one, stone->uid) && (!machine || resource_is_machine(one)));
        }
        bool looked = str_eq(stone->provider, w->p->ops->name) && account_launched(w->p, stone) &&
                      look_is_seen(w->run, stone->provider, stone->region);
        if (!there && looked && w->time.now_s >= until)
            r = journal_intent_end(w->e->journal, stone->id, INTENT_FAILED, "nothing came of it", err);
    }
    return r;
}

/* A list that fails is reported at the end, with all other places; the listed resources are swept anyway. */
static void list_it(struct sweep *w) {
    struct list_req req = {.owner = w->p->owner, .stack = NULL, .regions = NULL};
    resource_list_clear(&w->all);
    w->listed = look_list(w->run, &w->run->look, w->p, &req, &w->all, NULL);
    w->listed_ms = clock_ms();
}

/* "5h ahead of", as the cloud's clock is seen from this machine. */
static void skew_text(const struct sweep *w, char *out, size_t size) {
    char by[32];
    int64_t s = w->p->clock_skew_s;
    duration_format(by, sizeof by, llabs(s) * 1000);
    snprintf(out, size, "%s %s", by, s > 0 ? "ahead of" : "behind");
}

/* Reads the clocks once they are known: after the list. */
static void tell_time(struct sweep *w, const struct gc_clocks *clocks) {
    const char *name = w->ops->name;
    int64_t skew_s = w->p->clock_skew_s;
    char skew[48];
    w->time = gc_time_of(clocks, name, skew_s, clock_wall_s());
    if (llabs(skew_s) <= GC_CLOCKS_AGREE_S) return;
    skew_text(w, skew, sizeof skew);
    run_event(w->run, -1, NODE_PLANNED, EVENT_WARN, "clock", "%s: its clock is %s this machine's: %s", name, skew,
              gc_clock_is_sure(clocks, name, skew_s)
                  ? "another cloud's agrees with it, so deadlines are compared with it"
                  : "a deadline counts as passed only when it is by both; correct this machine's clock");
}

static int held_error(const struct sweep *w, struct gp_error *err) {
    if (w->held.n == 0) return 0;
    char skew[48];
    skew_text(w, skew, sizeof skew);
    GP_AUTO_FREE char *ids = strv_join(&w->held, ", ");
    return gp_fail(
        err, w->held_billed ? GP_EBILLED : GP_EENV,
        "%s: kept: %.200s: past the deadline by one clock, but the cloud's is %s this machine's, and no other "
        "cloud confirms either: correct this machine's clock and repeat 'gpuprov gc'",
        w->ops->name, ids, skew);
}

/* Another provider's turn may have been long. */
static int refresh(struct sweep *w, bool dry_run, struct gp_error *err) {
    if (!dry_run && clock_ms() - w->listed_ms > FRESH_MS) list_it(w);
    return w->listed == -GP_ECANCELLED ? gp_fail(err, GP_ECANCELLED, "cancelled") : 0;
}

static int read_stones(struct sweep *w, struct gp_error *err) {
    intent_list_clear(&w->stones);
    return journal_intents(w->e->journal, NULL, 1u << INTENT_TOMBSTONE, &w->stones, err);
}

static void keep_first(struct gp_error *first, const struct gp_error *why) {
    if (first->code == GP_OK) *first = *why;
}

/* early: the lists of other clouds are not here yet, so only stacks that cannot be there. */
static void sweep_groups(struct sweep *w, bool early) {
    for (size_t i = 0; i < w->all.list.len; i++) {
        const struct resource *res = &w->all.list.items[i];
        GP_AUTO_FREE char *key = xasprintf("%s/%s", res->uid, res->stack);
        if (!alive(res) || strv_has(&w->done, key)) continue;
        if (early && reach_elsewhere(w->e, res->uid, w->ops->name)) continue;
        strv_add(&w->done, key);
        struct gp_error why = {0};
        if (sweep_uid(w, res, w->among->dry_run, &w->result, &why) != 0) keep_first(&w->failed, &why);
    }
}

static int sweep(struct sweep *w, const struct gc_clocks *clocks, bool dry_run, struct gp_error *err) {
    struct gp_error why = {0};
    int r = refresh(w, dry_run, err);
    if (r != 0) return r;
    if (read_stones(w, &why) != 0) keep_first(&w->failed, &why);
    tell_time(w, clocks);
    sweep_groups(w, false);
    gp_error_clear(&why);
    if (held_error(w, &why) != 0) keep_first(&w->failed, &why);
    bool whole = coverage_whole(&w->run->look.covered); /* only then absence is certain */
    if (w->failed.code == GP_OK) return !dry_run && whole ? clear_tombstones(w, err) : 0;
    if (err != NULL) *err = w->failed;
    return -(int)w->failed.code;
}

/* An image whose tags somebody edited may be that of any snapshot there. */
static bool has_image(const struct resource_list *l, const struct resource_list *unreadable,
                      const struct resource *snapshot) {
    if (image_of_snapshot(l, snapshot) != NULL) return true;
    for (size_t i = 0; i < unreadable->list.len; i++)
        if (unreadable->list.items[i].kind == RES_IMAGE && str_eq(unreadable->list.items[i].region, snapshot->region))
            return true;
    return false;
}

/* Tags alone never make something useless: others in the account can write them. An image that failed takes its
 * snapshots with it. */
static bool is_useless(const struct resource_list *l, const struct resource_list *unreadable,
                       const struct resource *r) {
    bool image = r->kind == RES_IMAGE;
    const struct resource *of = image ? r : image_of_snapshot(l, r);
    if (of != NULL) return of->ours && of->state == RES_STOPPED;
    return !image && r->ours && r->state != RES_PENDING && !has_image(l, unreadable, r);
}

/* Baked images have no deadline. Those that failed, and snapshots whose image is gone, are of no use. */
static int sweep_images(struct run *run, struct provider *p, bool dry_run, struct gc_result *ret,
                        struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct resource_list useless = {0}; /* borrowed */
    if (p->ops->images == NULL) return 0;
    int r = images_at(run, p, &all, err);
    for (size_t i = 0; r == 0 && i < all.list.len; i++) {
        const struct resource *one = &all.list.items[i];
        if (is_useless(&all, &run->look.unreadable, one)) vec_push(&useless.list, *one);
        else if (alive(one)) resource_list_add(&ret->kept, one);
    }
    if (r == 0 && useless.list.len > 0 && !dry_run) r = images_destroy(run, p, &useless, err);
    for (size_t i = 0; i < useless.list.len; i++)
        resource_list_add(r == 0 ? &ret->ended : &ret->kept, &useless.list.items[i]);
    vec_free(&useless.list);
    return r;
}

static int gc_provider(struct sweep *w, const struct gc_clocks *clocks, bool dry_run, struct gc_result *ret,
                       struct gp_error *err) {
    struct gp_error why = {0};
    int r = sweep(w, clocks, dry_run, err);
    for (size_t i = 0; i < w->result.ended.list.len; i++) vec_push(&ret->ended.list, w->result.ended.list.items[i]);
    for (size_t i = 0; i < w->result.kept.list.len; i++) vec_push(&ret->kept.list, w->result.kept.list.items[i]);
    vec_free(&w->result.ended.list); /* moved */
    vec_free(&w->result.kept.list);
    if (r != -GP_ECANCELLED && sweep_images(w->run, w->p, dry_run, ret, &why) != 0 && r == 0) {
        r = -(int)why.code;
        if (err != NULL) *err = why;
    }
    return r;
}

/* Opens the provider and lists what is there. In a thread of its own: providers are slow and independent. */
static void look_one(void *ctx, size_t i) {
    struct sweeps *all = ctx;
    struct sweep *w = &all->list.items[i];
    if (run_provider(w->run, w->ops->name, &w->p, &w->why) == 0) list_it(w);
}

/* As soon as its list is here: a cloud that is slow, or means harm, keeps no machine elsewhere alive. The rest needs
 * the other lists: a stack that may be at several clouds, and a clock that only another cloud can confirm. */
static void list_came(void *ctx, size_t i) {
    struct sweeps *all = ctx;
    struct sweep *w = &all->list.items[i];
    w->came = true;
    if (w->p == NULL) return;
    int64_t skew_s = w->p->clock_skew_s;
    gc_clocks_add(all->clocks, w->ops->name, skew_s);
    if (all->dry_run || gp_cancelled(&w->e->cancel) || !gc_clock_is_sure(all->clocks, w->ops->name, skew_s)) return;
    if (refresh(w, false, NULL) != 0 || read_stones(w, NULL) != 0) return;
    w->time = gc_time_of(all->clocks, w->ops->name, w->p->clock_skew_s, clock_wall_s());
    sweep_groups(w, true);
}

static void say_waiting(void *ctx) {
    const struct sweeps *all = ctx;
    GP_AUTO_STR struct str names = {0};
    char waited[32];
    for (size_t i = 0; i < all->list.len; i++)
        if (!all->list.items[i].came) str_addf(&names, "%s%s", names.len > 0 ? ", " : "", all->list.items[i].ops->name);
    duration_format(waited, sizeof waited, (clock_ms() - all->began_ms) / 1000 * 1000);
    run_event(all->list.items[0].run, -1, NODE_PLANNED, EVENT_PROGRESS, "look", "waiting for the list of %s (%s)",
              names.s, waited);
}

static int sweep_add(struct engine *e, const struct provider_ops *ops, const char *owner, struct sweeps *to,
                     struct gp_error *err) {
    struct sweep w = {.e = e, .among = to, .ops = ops, .owner = owner};
    int r = run_open(e, NULL, NULL, &w.run, err);
    if (r != 0) return r;
    w.run->ending = true;
    if (owner != NULL) {
        free(w.run->owner);
        w.run->owner = xstrdup(owner);
    }
    vec_push(&to->list, w);
    return 0;
}

/* Sweeps one provider by its list. One that did not open is recorded as not looked at. The owners that were looked for
 * there are added to `seen`. */
static int gc_one(struct sweep *w, const struct gc_clocks *clocks, bool dry_run, struct gc_result *ret,
                  struct owners_seen *seen, struct gp_error *err) {
    struct run *run = w->run;
    int r = 0;
    if (w->p != NULL) {
        owners_seen_add(seen, w->p);
        r = gc_provider(w, clocks, dry_run, ret, err);
    } else if (w->why.code != GP_ECANCELLED) {
        coverage_put(&run->look.covered, w->ops->name, "", w->e->opts.owner, w->ops->billed, &w->why);
    } else {
        r = gp_fail(err, GP_ECANCELLED, "%s", w->why.msg);
    }
    look_report(run);
    if (w->owner == NULL) coverage_merge(&ret->looked, &run->look.covered);
    else coverage_add_gaps(&ret->looked, &run->look.covered);
    for (size_t i = 0; i < run->look.unreadable.list.len; i++)
        resource_list_add(&ret->unreadable, &run->look.unreadable.list.items[i]);
    return r;
}

/* All providers are listed at once, and swept one after the other: what needs no other list as soon as its own is here,
 * the rest in their order. Returns how many opened. */
static int gc_all(struct sweeps *all, bool dry_run, struct gc_result *ret, struct owners_seen *seen,
                  struct gp_error *first) {
    int opened = 0;
    const struct pool_follow follow = {look_one, list_came, say_waiting, SAY_MS};
    all->dry_run = dry_run;
    all->began_ms = clock_ms();
    pool_each_followed(all->list.len, &follow, all);
    for (size_t i = 0; i < all->list.len; i++) {
        struct sweep *w = &all->list.items[i];
        struct gp_error why = {0};
        opened += w->p != NULL;
        if (gc_one(w, all->clocks, dry_run, ret, seen, &why) != 0 && first->code == GP_OK) *first = why;
        intent_list_clear(&w->stones);
        strv_clear(&w->held);
        strv_clear(&w->done);
        gc_result_clear(&w->result);
        run_close(w->run);
    }
    for (size_t i = 0; i < all->list.len; i++) resource_list_clear(&all->list.items[i].all);
    vec_free(&all->list);
    return opened;
}

/* Fails if the result is incomplete: places that were not looked at, billed resources with unreadable tags. */
static int gc_verdict(const struct gc_result *ret, struct gp_error *err) {
    int r = look_gap_error(&ret->looked, "gc", err);
    return r == 0 ? look_unreadable_error(&ret->unreadable, "gc", err) : r;
}

int engine_gc(struct engine *e, const char *provider, bool dry_run, struct gc_result *ret, struct gp_error *err) {
    struct gp_error first = {0};
    struct owners_seen seen = {0};
    struct gc_clocks clocks = {0};
    struct sweeps own = {.clocks = &clocks}, others = {.clocks = &clocks};
    int r = 0;
    if (dry_run) e->notifies = false; /* it only looks */
    for (size_t i = 0; r == 0 && provider_registry[i] != NULL; i++) {
        const struct provider_ops *ops = provider_registry[i];
        if (provider != NULL ? strcmp(provider, ops->name) != 0 : ops->lent) continue;
        if (provider != NULL || look_allows(e, ops->name, "")) r = sweep_add(e, ops, NULL, &own, &first);
    }
    int asked = gc_all(&own, dry_run, ret, &seen, &first);
    const struct provider_ops *ops = NULL;
    const char *owner = NULL;
    bool more = r == 0 && e->opts.owner == NULL && !gp_cancelled(&e->cancel);
    for (size_t i = 0; more && r == 0 && owners_seen_next(&seen, &i, &ops, &owner);) {
        struct gp_error why = {0};
        r = sweep_add(e, ops, owner, &others, &why);
        if (r != 0 && first.code == GP_OK) first = why;
    }
    gc_all(&others, dry_run, ret, NULL, &first);
    owners_seen_clear(&seen);
    if (asked > 0 && !dry_run && !gp_cancelled(&e->cancel)) {
        struct gp_error why = {0};
        if (gc_journal(e, provider, &clocks, ret, &why) != 0 && first.code == GP_OK) first = why;
    }
    vec_free(&clocks.list);
    if (!dry_run) engine_tidy(e);
    if (provider == NULL) look_set_aside(e, false, &ret->looked);
    struct gp_error gap = {0};
    if (gc_verdict(ret, &gap) != 0 && (first.code == GP_OK || gap.code == GP_EBILLED) && first.code != GP_ECANCELLED)
        first = gap;
    if (first.code == GP_OK && asked == 0) return gp_fail(err, GP_EENV, "no provider could be queried");
    if (err != NULL) *err = first;
    return -(int)first.code;
}

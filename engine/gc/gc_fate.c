/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what gc destroys (gc_fate.h). Pure; any thread. */
#include "base/gp_base.h"

#include "engine/gc/gc_fate.h"

#include "engine/stack/forget.h"

bool gc_fate_in_group(const struct resource *r, const struct resource *of) {
    /* several stack names may have one uid in their tags, so both are compared */
    return r->state != RES_GONE && strcmp(r->uid, of->uid) == 0 && strcmp(r->stack, of->stack) == 0;
}

static bool is_over(const struct resource *r, int64_t now_s) { return r->expires_s > 0 && now_s >= r->expires_s; }

/* A tombstone is the record of a launch of this journal that `down` could not settle. Another run's launch may have the
 * same uid, slots and attempt: the launch's own proof is in the request that was sent. A run with the same login key
 * has that too, and then another deadline, and soon a proof of the machine, which nobody gives to a machine of a lost
 * reply. */
static bool is_buried(const struct gc_group *g, const struct resource *r) {
    bool launched = r->kind == RES_INSTANCE && r->launch[0] != '\0' && r->proof[0] == '\0';
    for (size_t k = 0; launched && k < g->stones->list.len; k++) {
        const struct intent *s = &g->stones->list.items[k];
        bool its = str_eq(s->uid, r->uid) && str_eq(s->note, FORGET_NOTE) && r->slot >= s->slot_first &&
                   r->slot < s->slot_first + s->slot_count && r->attempt == s->attempt;
        if (its && r->expires_s == s->deadline_s && strstr(s->body, r->launch) != NULL) return true;
    }
    return false;
}

/* Without the login key another controller's machine cannot be told from a copy. One that states a later deadline keeps
 * the claim and the rest, and has its own. */
static void of_launched(const struct gc_group *g, int64_t now_s, struct gc_fate *ret) {
    bool over = g->known_s > 0 && now_s >= g->known_s, waits = g->claimed_s > now_s;
    ret->whole = over && !waits;
    for (size_t i = 0; !ret->whole && i < g->all->list.len; i++) {
        const struct resource *r = &g->all->list.items[i];
        if (!gc_fate_in_group(r, g->of) || !resource_is_machine(r)) continue;
        bool perhaps = g->keyless && r->proof[0] != '\0';
        bool ends = r->ours != OURS_NOT ? over : is_over(r, now_s) && (over || !perhaps);
        if (ends) vec_push(&ret->some.list, *r);
    }
}

/* Whether the stack's deadline counts for it, and not its own. */
static bool is_member(const struct gc_group *g, const struct resource *r) {
    return g->adopted && resource_is_machine(r) && r->ours != OURS_NOT;
}

static bool ends(const struct gc_group *g, const struct resource *r, int64_t now_s) {
    if (is_member(g, r)) return g->known_s > 0 && now_s >= g->known_s;
    return is_over(r, now_s) || is_buried(g, r);
}

static bool waits(const struct gc_group *g, const struct resource *r, int64_t now_s) {
    return !ends(g, r, now_s) && (is_member(g, r) || r->expires_s > 0);
}

static void one_by_one(const struct gc_group *g, int64_t now_s, struct gc_fate *ret) {
    bool waiting = false, over = false, machines = false;
    for (size_t i = 0; i < g->all->list.len; i++) {
        const struct resource *r = &g->all->list.items[i];
        if (!gc_fate_in_group(r, g->of)) continue;
        machines = machines || resource_is_machine(r);
        waiting = waiting || waits(g, r, now_s);
        over = over || ends(g, r, now_s);
    }
    ret->whole = g->complete && over && !waiting;
    for (size_t i = 0; !ret->whole && i < g->all->list.len; i++) {
        const struct resource *r = &g->all->list.items[i];
        bool alone = resource_is_machine(r) || (!machines && !r->claim);
        if (gc_fate_in_group(r, g->of) && alone && ends(g, r, now_s)) vec_push(&ret->some.list, *r);
    }
}

void gc_fate_find(const struct gc_group *g, int64_t now_s, struct gc_fate *ret) {
    if (g->launched) of_launched(g, now_s, ret);
    else one_by_one(g, now_s, ret);
}

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

/* A tombstone is the record of a launch of this journal that `down` could not settle. */
static bool is_buried(const struct gc_group *g, const struct resource *r) {
    for (size_t k = 0; r->kind == RES_INSTANCE && k < g->stones->list.len; k++) {
        const struct intent *s = &g->stones->list.items[k];
        if (str_eq(s->uid, r->uid) && str_eq(s->note, FORGET_NOTE) && r->slot >= s->slot_first &&
            r->slot < s->slot_first + s->slot_count && r->attempt == s->attempt)
            return true;
    }
    return false;
}

static bool has_stone(const struct gc_group *g) {
    for (size_t k = 0; k < g->stones->list.len; k++)
        if (str_eq(g->stones->list.items[k].uid, g->of->uid) && str_eq(g->stones->list.items[k].note, FORGET_NOTE))
            return true;
    return false;
}

static void of_known(const struct gc_group *g, int64_t now_s, struct gc_fate *ret) {
    ret->whole = g->known_s > 0 && now_s >= g->known_s;
    for (size_t i = 0; !ret->whole && i < g->all->list.len; i++) {
        const struct resource *r = &g->all->list.items[i];
        bool unproven = resource_is_machine(r) && r->ours == OURS_NOT;
        if (gc_fate_in_group(r, g->of) && unproven && is_over(r, now_s)) vec_push(&ret->some.list, *r);
    }
}

/* machines: else everything that is no machine. A machine without a readable deadline ends with the last of the others;
 * a claim ends with the stack. */
static void of_others(const struct gc_group *g, bool machines, int64_t now_s, struct gc_fate *ret) {
    size_t waiting = 0, over = 0, buried = 0, n = 0;
    for (size_t i = 0; i < g->all->list.len; i++) {
        const struct resource *r = &g->all->list.items[i];
        if (!gc_fate_in_group(r, g->of) || resource_is_machine(r) != machines) continue;
        bool ends = is_over(r, now_s), stone = is_buried(g, r);
        n++;
        over += ends;
        buried += stone;
        waiting += r->expires_s > 0 && !ends;
        if ((ends || stone) && !r->claim) vec_push(&ret->some.list, *r);
    }
    ret->whole = (waiting == 0 && over > 0) || (has_stone(g) && buried == n) || (!machines && has_stone(g));
}

void gc_fate_find(const struct gc_group *g, int64_t now_s, struct gc_fate *ret) {
    bool machines = false;
    for (size_t i = 0; i < g->all->list.len; i++)
        machines = machines ||
                   (gc_fate_in_group(&g->all->list.items[i], g->of) && resource_is_machine(&g->all->list.items[i]));
    if (g->known) of_known(g, now_s, ret);
    else of_others(g, machines, now_s, ret);
    if (g->shared && !g->known) ret->whole = false; /* the whole is everything with the uid */
    if (ret->whole) vec_free(&ret->some.list);
}

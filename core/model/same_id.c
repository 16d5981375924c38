/* SPDX-License-Identifier: Apache-2.0 */
/* Resources of different kinds with one id (same_id.h). Pure. */
#include "base/gp_base.h"

#include "model/same_id.h"

#define KINDS (RES_KIND_MAX + 1)

/* All that has one id, by kind. */
struct namesakes {
    const char *id;      /* borrowed */
    bool journal[KINDS]; /* the journal has one of that kind */
    bool listed[KINDS];  /* the cloud has */
    size_t first[KINDS]; /* the first of these in the list */
};

static int by_id(const void *a, const void *b) {
    const struct resource *const *l = a, *const *r = b;
    int c = strcmp((*l)->id, (*r)->id);
    return c != 0 ? c : (*l > *r) - (*l < *r); /* in the order of the list */
}

/* Borrowed pointers; caller frees. */
static const struct resource **sorted(const struct resource_list *l) {
    const struct resource **ret = xcalloc(l->list.len + 1, sizeof *ret);
    for (size_t i = 0; i < l->list.len; i++) ret[i] = &l->list.items[i];
    if (l->list.len > 0) qsort(ret, l->list.len, sizeof *ret, by_id);
    return ret;
}

/* Clouds choose the ids of networks, but users choose those of key pairs. */
static bool yields(const struct namesakes *n, enum resource_kind its, size_t at, enum resource_kind other) {
    bool chosen = its == RES_KEY_PAIR, chosen_other = other == RES_KEY_PAIR;
    return chosen != chosen_other ? chosen : n->first[other] < at;
}

static bool is_of_another(const struct namesakes *n, const struct resource *r, size_t at) {
    bool known = n->journal[r->kind];
    if (resource_is_machine(r)) return false;
    for (int k = 0; k < KINDS; k++) {
        if (k == (int)r->kind) continue;
        struct resource other = {.kind = (enum resource_kind)k};
        if (n->journal[k] && !known) return true;
        if (n->listed[k] && resource_is_machine(&other)) return true;
        if (n->listed[k] && !known && yields(n, r->kind, at, (enum resource_kind)k)) return true;
    }
    return false;
}

bool *same_id_of_another(const struct resource_list *journal, const struct resource_list *listed) {
    bool *ret = xcalloc(listed->list.len + 1, sizeof *ret);
    const struct resource **known = sorted(journal), **all = sorted(listed);
    size_t j = 0;
    for (size_t a = 0, b = 0; a < listed->list.len; a = b) {
        struct namesakes n = {.id = all[a]->id};
        for (; j < journal->list.len && strcmp(known[j]->id, n.id) < 0; j++) continue;
        for (; j < journal->list.len && strcmp(known[j]->id, n.id) == 0; j++) n.journal[known[j]->kind] = true;
        for (b = a; b < listed->list.len && strcmp(all[b]->id, n.id) == 0; b++) {
            if (!n.listed[all[b]->kind]) n.first[all[b]->kind] = (size_t)(all[b] - listed->list.items);
            n.listed[all[b]->kind] = true;
        }
        for (size_t i = a; i < b; i++) {
            size_t at = (size_t)(all[i] - listed->list.items);
            ret[at] = is_of_another(&n, all[i], at);
        }
    }
    free(known);
    free(all);
    return ret;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Where a resource stands in a list. Pure. */
#include "base/gp_base.h"

#include "model/resource_index.h"

#include <search.h>

struct place {
    const char *provider, *id; /* borrowed */
    enum resource_kind kind;
    size_t at;
};

static int compare(const void *a, const void *b) {
    const struct place *l = a, *r = b;
    int c = strcmp(l->id, r->id);
    if (c == 0) c = strcmp(l->provider, r->provider);
    return c != 0 ? c : (l->kind > r->kind) - (l->kind < r->kind);
}

void resource_index_put(struct resource_index *x, const struct resource *r, size_t at) {
    struct place *p = xcalloc(1, sizeof *p);
    *p = (struct place){.provider = r->provider, .id = r->id, .kind = r->kind, .at = at};
    struct place **node = tsearch(p, &x->root, compare);
    if (node == NULL) out_of_memory();
    if (*node == p) return;
    **node = *p; /* the strings of the former one may be freed */
    free(p);
}

void resource_index_fill(struct resource_index *x, const struct resource_list *l) {
    for (size_t i = 0; i < l->list.len; i++) resource_index_put(x, &l->list.items[i], i);
}

size_t resource_index_find(const struct resource_index *x, const struct resource *r) {
    struct place key = {.provider = r->provider, .id = r->id, .kind = r->kind};
    struct place *const *node = tfind(&key, &x->root, compare);
    return node != NULL ? (*node)->at : RESOURCE_NOWHERE;
}

void resource_index_clear(struct resource_index *x) {
    tdestroy(x->root, free);
    x->root = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Where a resource stands in a list, without a search of the whole list: clouds may reply with very long ones. Borrows
 * the strings of the list. A balanced tree (tsearch of POSIX): nobody can choose names that make it slow. */
#ifndef GP_MODEL_RESOURCE_INDEX_H
#define GP_MODEL_RESOURCE_INDEX_H

#include "model/stack.h"

#define RESOURCE_NOWHERE SIZE_MAX

struct resource_index {
    void *root;
};
/* Of all resources of the list; of two that are resource_same() the last counts. */
void resource_index_fill(struct resource_index *x, const struct resource_list *l);
/* r stands at `at` now. The index borrows its strings. */
void resource_index_put(struct resource_index *x, const struct resource *r, size_t at);
/* The place of the resource that is resource_same(); RESOURCE_NOWHERE: none. */
size_t resource_index_find(const struct resource_index *x, const struct resource *r);
void resource_index_clear(struct resource_index *x);
#define GP_AUTO_INDEX GP_CLEANUP(resource_index_clear)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Selects resources of a list of the whole account. */
#include "base/gp_base.h"

#include "providers/common/account_list.h"

bool account_list_knows(const struct resource_list *known, const char *id) {
    for (size_t i = 0; known != NULL && i < known->list.len; i++)
        if (str_eq(known->list.items[i].id, id)) return true;
    return false;
}

bool account_list_wants(const struct list_req *req, const struct resource *r) {
    bool here = req->regions == NULL || req->everywhere || r->region[0] == '\0' || strv_has(req->regions, r->region);
    if (account_list_knows(req->known, r->id)) return true;
    if (!here) return false;
    if (r->uid[0] == '\0' || r->owner[0] == '\0') return r->owner[0] == '\0' || str_eq(r->owner, req->owner);
    if (!str_eq(r->owner, req->owner)) return false;
    return req->stack == NULL || str_eq(r->stack, req->stack) || (req->uid != NULL && str_eq(r->uid, req->uid));
}

void account_list_take(struct resource_list *all, const char *region, const char *uid, struct resource_list *ret) {
    for (size_t i = 0; i < all->list.len; i++) {
        struct resource *one = &all->list.items[i];
        if (str_eq(one->uid, uid) && str_eq(one->region, region)) vec_push(&ret->list, *one);
        else resource_clear(one);
    }
    vec_free(&all->list);
}

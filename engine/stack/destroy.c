/* SPDX-License-Identifier: Apache-2.0 */
/* Requests the destruction of listed resources, by provider and layer. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/stack/destroy.h"

#include "engine/run/look.h"
#include "engine/run/owner.h"
#include "engine/run/run_event.h"

bool destroy_is_ours(const struct run *run, const struct resource *r) {
    bool its = run->stack.uid != NULL && strcmp(r->uid, run->stack.uid) == 0;
    return its && (run->only == NULL || strv_has(run->only, r->id));
}

static bool provider_is_seen(const struct run *run, const char *name) {
    for (size_t i = 0; i < run->look.covered.list.len; i++)
        if (!run->look.covered.list.items[i].checked && strcmp(run->look.covered.list.items[i].provider, name) == 0)
            return false;
    return true;
}

bool destroy_claim_may_go(const struct run *run, const struct resource *claim) {
    return look_is_seen(run, claim->provider, claim->region) && provider_is_seen(run, claim->provider);
}

static bool in_layer(const struct resource *r, enum destroy_layer layer) {
    if (resource_is_machine(r)) return layer == DESTROY_MACHINES && r->state != RES_STOPPING;
    return layer == (r->claim ? DESTROY_CLAIM : DESTROY_OTHERS);
}

/* Of a resource that the journal has and the last list has not: a list that could not be read says nothing of it. */
static const char *why_unlisted(const struct run *run, const struct resource *r) {
    return look_is_seen(run, r->provider, r->region) ? ", which is no longer listed"
                                                     : ", from the journal: its place could not be listed";
}

static void ask_once(struct run *run, const struct resource *r, struct destroy_asked *asked) {
    bool host = r->kind == RES_HOST;
    if (strv_has(&asked->ids, r->id)) return;
    strv_add(&asked->ids, r->id);
    asked->released += host;
    run_event(run, resource_is_machine(r) ? r->slot : -1, NODE_ENDING, EVENT_START, host ? "release" : "destroy",
              "%s %s%s", resource_kind_name(r->kind), r->id, asked->unlisted ? why_unlisted(run, r) : "");
}

int destroy_layer(struct run *run, const struct resource_list *seen, enum destroy_layer layer,
                  struct destroy_asked *asked, struct gp_error *err) {
    int worst = 0;
    asked->refused = 0;
    gp_error_clear(&asked->refusal);
    for (size_t i = 0; i < run->providers.len; i++) {
        struct provider *p = run->providers.items[i];
        struct resource_list part = {0};
        for (size_t k = 0; k < seen->list.len; k++) {
            const struct resource *r = &seen->list.items[k];
            if (r->state == RES_GONE || !destroy_is_ours(run, r) || !in_layer(r, layer) ||
                strcmp(r->provider, p->ops->name) != 0 || !account_has(p, r) ||
                (layer == DESTROY_CLAIM && !destroy_claim_may_go(run, r)))
                continue;
            vec_push(&part.list, *r); /* borrowed: only the array is freed */
            ask_once(run, r, asked);
        }
        struct gp_error why = {0};
        int r = part.list.len > 0 ? p->ops->destroy(p, &part, &why) : 0;
        int requested = (int)part.list.len;
        vec_free(&part.list);
        bool blind = run->ending && r != -GP_ECANCELLED && !provider_is_seen(run, p->ops->name);
        if (r != 0 && blind) {
            if (asked->refused == 0) asked->refusal = why;
            asked->refused += requested;
        }
        if (r != 0 && worst == 0 && !blind) {
            worst = r;
            if (err != NULL) *err = why;
        }
    }
    return worst;
}

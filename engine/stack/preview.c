/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what `down` would destroy. Runs in the verb's thread, after reconcile(). */
#include "base/gp_base.h"

#include "engine/stack/preview.h"

#include "engine/run/look.h"
#include "engine/run/run_node.h"

int preview_list(struct run *run, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i].exists) resource_list_add(ret, &run->nodes[i].res);
    for (size_t i = 0; i < run->others.list.len; i++)
        if (run->others.list.items[i].state != RES_GONE) resource_list_add(ret, &run->others.list.items[i]);
    int r = run->stack.uid == NULL ? 0 : journal_resources(run->e->journal, run->stack.uid, &known, err);
    for (size_t i = 0; i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        bool unseen = k->state != RES_GONE && !look_is_seen(run, k->provider, k->region);
        if (unseen && !resource_list_has(ret, k)) resource_list_add(ret, k);
    }
    return r;
}

/* Regions do not count: moving a spec to another region is an edit, and `down` finds the stack where it was. */
static bool has_offer(const struct spec *spec, const struct resource *r) {
    for (size_t i = 0; i < spec->offers.len; i++)
        if (str_eq(spec->offers.items[i].provider, r->provider)) return true;
    return false;
}

char *preview_other_places(const struct run *run, const struct resource_list *l, const struct spec *spec) {
    GP_AUTO_STRV struct strv done = {0};
    GP_AUTO_STR struct str out = {0};
    if (str_eq(run->stack.spec_hash, spec->hash)) return NULL;
    for (size_t i = 0; i < l->list.len; i++) {
        const struct resource *r = &l->list.items[i];
        GP_AUTO_FREE char *place = xasprintf("%s %s", r->provider, r->region);
        if (has_offer(spec, r) || strv_has(&done, place)) continue;
        strv_add(&done, place);
        int nodes = 0;
        for (size_t k = i; k < l->list.len; k++) {
            const struct resource *n = &l->list.items[k];
            nodes += resource_is_machine(n) && str_eq(n->provider, r->provider) && str_eq(n->region, r->region);
        }
        str_addf(&out, "%s%s (%d node%s)", out.len > 0 ? ", " : "", place, nodes, nodes == 1 ? "" : "s");
    }
    return out.len > 0 ? str_steal(&out) : NULL;
}

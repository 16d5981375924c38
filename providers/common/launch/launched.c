// SPDX-License-Identifier: Apache-2.0
/* Which machines of a list a launch made (launched.h). */
#include "base/gp_base.h"

#include "providers/common/launch/launched.h"

#include "base/str.h"

int launched_need_key(const struct proof_key *key, struct gp_error *err) {
    if (key != NULL && key->known) return 0;
    return gp_fail(err, GP_EINTERNAL, "a launch without the stack's proof key: report this as a bug");
}

void launched_identify(const struct intent *in, const struct stack *stack, int index, struct resource *r) {
    resource_set(&r->owner, stack->owner);
    resource_set(&r->stack, stack->name);
    resource_set(&r->uid, in->uid);
    resource_set(&r->spec_hash, in->spec_hash);
    resource_set(&r->unreadable, "");
    r->slot_first = in->slot_first;
    r->slot_count = in->slot_count;
    r->slot = in->slot_first + index;
    r->attempt = in->attempt;
    r->expires_s = in->deadline_s;
    r->claim = false;
}

bool launched_claims(const struct intent *in, const struct resource *r) {
    return r->kind == RES_INSTANCE && str_eq(r->uid, in->uid) && r->attempt == in->attempt &&
           r->slot >= in->slot_first && r->slot < in->slot_first + in->slot_count;
}

bool launched_proven(const struct proof_key *key, const struct intent *in, const struct resource *r) {
    return launched_claims(in, r) && r->slot_first == in->slot_first && r->slot_count == in->slot_count &&
           proof_launch_holds(key, r);
}

static void take(const struct resource *r, bool other_run, struct resource_list *ret) {
    struct resource copy = {0};
    resource_copy(&copy, r);
    copy.ours = other_run ? OURS_PROVEN : OURS_LAUNCHED;
    copy.other_run = other_run;
    vec_push(&ret->list, copy);
}

/* NULL: none, or several: then ids names them. */
static const struct resource *only_one(const struct proof_key *key, const struct intent *in, int slot,
                                       const struct resource_list *seen, struct str *ids) {
    const struct resource *one = NULL;
    size_t n = 0;
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        if (r->slot != slot || !launched_proven(key, in, r)) continue;
        if (proof_machine_holds(key, r)) return r; /* no copy has it: it names the machine */
        if (n == 1) str_addf(ids, "%s%s", ids->len > 0 ? ", " : "", one->id);
        if (n >= 1) str_addf(ids, ", %s", r->id);
        one = r;
        n++;
    }
    return n == 1 ? one : NULL;
}

int launched_pick(const struct proof_key *key, const struct intent *in, const struct resource_list *seen,
                  struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_STR struct str ids = {0};
    GP_AUTO_RESOURCES struct resource_list found = {0};
    for (int slot = in->slot_first; slot < in->slot_first + in->slot_count; slot++) {
        const struct resource *r = only_one(key, in, slot, seen, &ids);
        if (r != NULL) take(r, false, &found);
    }
    if (ids.len > 0)
        return gp_fail(
            err, GP_EUNKNOWN,
            "%s: %.200s have the tags of one launch of nodes %d..%d, so one of them is a copy: terminate the "
            "copy at the cloud, or run 'gpuprov down', which terminates all of them",
            in->provider, ids.s, in->slot_first, in->slot_first + in->slot_count - 1);
    for (size_t i = 0; i < found.list.len; i++) vec_push(&ret->list, found.list.items[i]);
    vec_free(&found.list);
    return 0;
}

static const struct resource *with_own_proof(const struct proof_key *key, const struct intent *in, int slot,
                                             const struct resource_list *seen) {
    for (size_t i = 0; i < seen->list.len; i++) {
        const struct resource *r = &seen->list.items[i];
        bool live = r->state != RES_GONE && r->state != RES_STOPPING;
        if (live && r->slot == slot && launched_claims(in, r) && proof_machine_holds(key, r)) return r;
    }
    return NULL;
}

static int not_proven(const struct intent *in, const char *stack, struct gp_error *err) {
    char nodes[48];
    bool one = in->slot_count == 1;
    if (one) snprintf(nodes, sizeof nodes, "node %d", in->slot_first);
    else snprintf(nodes, sizeof nodes, "nodes %d..%d", in->slot_first, in->slot_first + in->slot_count - 1);
    int r = gp_fail(err, GP_EREACH,
                    "%s: another run launched %s at %s and %s not proven %s yet: repeat 'gpuprov up' when that run has "
                    "finished; if it was cut, run 'gpuprov down %s' first",
                    nodes, one ? "it" : "them", in->provider, one ? "it has" : "they have",
                    one ? "itself" : "themselves", stack);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = GP_SCOPE_NONE;
        str_put(err->detail, sizeof err->detail, "launched by another run");
    }
    return r;
}

int launched_by_other_run(const struct proof_key *key, const struct intent *in, const char *stack,
                          const struct resource_list *seen, struct resource_list *ret, struct gp_error *err) {
    for (int slot = in->slot_first; slot < in->slot_first + in->slot_count; slot++)
        if (with_own_proof(key, in, slot, seen) == NULL) return not_proven(in, stack, err);
    for (int slot = in->slot_first; slot < in->slot_first + in->slot_count; slot++)
        take(with_own_proof(key, in, slot, seen), true, ret);
    return 0;
}

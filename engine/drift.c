/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what was listed with what this journal has of the launch. The verb's thread. */
#include "base/gp_base.h"

#include "engine/drift.h"

#include "base/form.h"
#include "base/json.h"
#include "engine/run/run_node.h"

#define SAME_TIME_S 60 /* rounding */

/* Takes over `before` and `after`. */
static void add(struct plan_changes *to, const struct resource *r, enum change_action action, const char *key,
                char *before, char *after, const char *reason) {
    bool node = resource_is_machine(r);
    struct plan_change c = {.action = action,
                            .resource = xstrdup(node ? "node" : resource_kind_name(r->kind)),
                            .id = xstrdup(r->id),
                            .node = node ? r->slot : -1,
                            .key = xstrdup(key),
                            .before = before,
                            .after = after,
                            .reason = xstrdup(reason)};
    vec_push(&to->list, c);
}

/* --- rules of a group --- */

/* The networks that may open SSH to nodes of the group. */
struct wanted {
    struct strv from;
    bool own;  /* also this controller's public address, which is not read for this */
    bool sure; /* every network of `from` is in the group's own region */
};

static bool may_be_in(const struct spec_offer *o, const struct resource *group) {
    return str_eq(o->provider, group->provider) && (o->regions.n == 0 || strv_has(&o->regions, group->region));
}

static void wanted_of(const struct spec *spec, const struct resource *group, struct wanted *ret) {
    ret->sure = true;
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct strv *from = spec_effective(spec, i).ssh_from;
        if (!may_be_in(&spec->offers.items[i], group)) continue;
        ret->sure = ret->sure && (spec->offers.len == 1 || spec->offers.items[i].regions.n > 0);
        ret->own = ret->own || from->n == 0;
        for (size_t k = 0; k < from->n; k++) strv_add(&ret->from, from->v[k]);
    }
}

static const char *ssh_source(const char *rule) {
    static const char ssh[] = "tcp 22 ";
    return str_starts(rule, ssh) ? rule + sizeof ssh - 1 : NULL;
}

static bool is_one_address(const char *cidr) { return str_ends(cidr, "/32") || str_ends(cidr, "/128"); }

static bool is_wanted(const struct wanted *w, const char *rule) {
    const char *source = ssh_source(rule);
    for (size_t i = 0; source != NULL && i < w->from.n; i++)
        if (form_same_network(source, w->from.v[i])) return true;
    return source != NULL && w->own && is_one_address(source); /* it may be this controller's */
}

static bool has_rule(const struct strv *rules, const char *network) {
    for (size_t i = 0; i < rules->n; i++) {
        const char *source = ssh_source(rules->v[i]);
        if (source != NULL && form_same_network(source, network)) return true;
    }
    return false;
}

static void compare_rules(const struct spec *spec, const struct resource *group, struct plan_changes *to) {
    GP_AUTO_STRV struct strv rules = {0};
    struct wanted w = {0};
    if (group->ingress[0] == '\0') return;
    if (!str_eq(group->ingress, "none")) strv_split(&rules, group->ingress, "\n");
    wanted_of(spec, group, &w);
    for (size_t i = 0; i < rules.n; i++)
        if (!is_wanted(&w, rules.v[i]))
            add(to, group, CHANGE_REPAIR, "ingress", xstrdup(rules.v[i]), NULL,
                "access.ssh_from does not list it: 'up' revokes the rule");
    for (size_t i = 0; w.sure && i < w.from.n; i++)
        if (!has_rule(&rules, w.from.v[i]))
            add(to, group, CHANGE_REPAIR, "ingress", NULL, xasprintf("tcp 22 %s", w.from.v[i]),
                "access.ssh_from lists it: 'up' adds the rule");
    strv_clear(&w.from);
}

/* A spec with another access is applied as a change of the spec. */
static bool has_access_of_stack(const struct run *run) {
    bool same = str_eq(run->stack.spec_hash, run->spec->hash), changed = run->changes.list.len > 0;
    for (size_t i = 0; i < run->changes.list.len; i++)
        if (run->changes.list.items[i].effect == SPEC_ACCESS) return false;
    return same || changed;
}

/* --- nodes --- */

static char *time_text(int64_t wall_s) {
    char when[40];
    time_format_utc(when, sizeof when, wall_s);
    return xstrdup(when);
}

static void compare_deadline(const struct run *run, const struct resource *r, struct plan_changes *to) {
    int64_t ours = run->stack.expires_s;
    if (r->kind != RES_INSTANCE || r->expires_s == 0 || ours == 0 || llabs(r->expires_s - ours) <= SAME_TIME_S) return;
    add(to, r, CHANGE_REFUSE, "tag expires", time_text(r->expires_s), time_text(ours),
        "changed by hand: the node keeps its own deadline, and this journal's counts; a 'gpuprov gc' without the "
        "journal uses the tag: 'gpuprov extend' writes it again");
}

static void compare_host_key(const struct run_node *n, struct plan_changes *to) {
    const struct provider_ops *ops = provider_find(n->res.provider);
    char pinned[80];
    bool comparable = n->res.kind == RES_INSTANCE && n->rec.phase == NODE_READY && n->rec.host_key != NULL &&
                      n->rec.host_key[0] != '\0' && n->res.host_keys[0] != '\0';
    if (!comparable || ops == NULL || ssh_key_fingerprint(n->rec.host_key, pinned, sizeof pinned, NULL) != 0) return;
    if (strstr(n->res.host_keys, pinned) != NULL || strstr(n->res.host_keys, n->rec.host_key) != NULL) return;
    bool tag = ops->tag != NULL && ops->key_rotation;
    add(to, &n->res, tag ? CHANGE_REPAIR : CHANGE_REFUSE, tag ? "tag hostkey" : "host key", xstrdup(n->res.host_keys),
        xstrdup(pinned),
        tag ? "the node's own key is pinned: 'up' writes its fingerprint again"
            : "gpuprov accepts only the pinned key: 'gpuprov down' and 'gpuprov up' replace the node");
}

/* The offer of the launch that made the node; NULL: unknown. New reference. */
static json_t *offer_of(const struct intent_list *made, const struct run_node *n) {
    json_t *j = NULL;
    for (size_t i = 0; i < made->list.len; i++) {
        const struct intent *in = &made->list.items[i];
        bool its = in->kind == RES_INSTANCE && str_eq(in->provider, n->res.provider) && in->attempt == n->res.attempt &&
                   n->slot >= in->slot_first && n->slot < in->slot_first + in->slot_count;
        if (its && in->offer != NULL && j == NULL &&
            json_parse(in->offer, strlen(in->offer), "the offer of a launch", &j, NULL) != 0)
            j = NULL;
    }
    return j;
}

static void compare_machine(const struct intent_list *made, const struct run_node *n, struct plan_changes *to) {
    static const char reason[] = "changed by hand: 'gpuprov down' and 'gpuprov up' replace the node";
    GP_AUTO_JSON json_t *offer = offer_of(made, n);
    const char *type = json_str(offer, "instance_type", ""), *market = json_str(offer, "market", "");
    const struct resource *r = &n->res;
    if (type[0] != '\0' && r->instance_type[0] != '\0' && !str_eq(type, r->instance_type))
        add(to, r, CHANGE_REFUSE, "type", xstrdup(r->instance_type), xstrdup(type), reason);
    if (market[0] != '\0' && r->market[0] != '\0' && !str_eq(market, r->market))
        add(to, r, CHANGE_REFUSE, "market", xstrdup(r->market), xstrdup(market), reason);
}

/* Resources of this journal whose tags do not decode any more. */
static void add_unreadable(const struct run *run, const struct resource_list *known, struct plan_changes *to) {
    for (size_t i = 0; i < run->look.unreadable.list.len; i++) {
        const struct resource *r = &run->look.unreadable.list.items[i];
        for (size_t k = 0; k < known->list.len; k++) {
            const struct resource *ours = &known->list.items[k];
            if (!str_eq(ours->provider, r->provider) || !str_eq(ours->id, r->id)) continue;
            add(to, ours, CHANGE_REFUSE, "tags", xstrdup(r->unreadable), NULL,
                "changed by hand: gpuprov neither uses nor destroys it until the tags are restored at the cloud");
            break;
        }
    }
}

int drift_find(const struct run *run, struct plan_changes *ret, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list known = {0};
    struct intent_list made = {0};
    if (run->stack.uid == NULL) return 0;
    int r = journal_resources(run->e->journal, run->stack.uid, &known, err);
    if (r == 0) r = journal_intents(run->e->journal, run->stack.uid, 1u << INTENT_DONE, &made, err);
    for (int i = 0; r == 0 && i < run->n_nodes; i++) {
        if (!run->nodes[i].exists) continue;
        compare_deadline(run, &run->nodes[i].res, ret);
        compare_host_key(&run->nodes[i], ret);
        compare_machine(&made, &run->nodes[i], ret);
    }
    bool rules = r == 0 && run->spec != NULL && run_any_exists(run) && has_access_of_stack(run);
    for (size_t i = 0; rules && i < run->others.list.len; i++) {
        const struct resource *group = &run->others.list.items[i];
        if (group->kind == RES_GROUP && group->state != RES_GONE && str_eq(group->uid, run->stack.uid))
            compare_rules(run->spec, group, ret);
    }
    if (r == 0) add_unreadable(run, &known, ret);
    intent_list_clear(&made);
    return r;
}

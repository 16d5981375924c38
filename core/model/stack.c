/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks, resources and phases as plain data: copies, names, legal moves. No I/O. Any thread. */
#include "base/gp_base.h"

#include "model/stack.h"

void stack_clear(struct stack *s) {
    free(s->owner);
    free(s->name);
    free(s->uid);
    free(s->spec_hash);
    free(s->unit);
    free(s->provider);
    free(s->region);
    *s = (struct stack){0};
}

void stack_copy(struct stack *to, const struct stack *from) {
    if (to == from) return;
    stack_clear(to);
    *to = *from;
    to->owner = xstrdup(from->owner);
    to->name = xstrdup(from->name);
    to->uid = xstrdup(from->uid);
    to->spec_hash = xstrdup(from->spec_hash);
    to->unit = xstrdup(from->unit);
    to->provider = xstrdup(from->provider);
    to->region = xstrdup(from->region);
}

static bool name_index(const char *const *names, size_t n, const char *name, size_t *ret) {
    for (size_t i = 0; name != NULL && i < n; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *ret = i;
        return true;
    }
    return false;
}

static const char *const kind_names[RES_KIND_MAX + 1] = {
    [RES_INSTANCE] = "instance",     [RES_GROUP] = "group",       [RES_KEY_PAIR] = "key-pair",
    [RES_VOLUME] = "volume",         [RES_HOLDER] = "holder",     [RES_HOST] = "host",
    [RES_IMAGE] = "image",           [RES_SNAPSHOT] = "snapshot", [RES_PLACEMENT] = "placement-group",
    [RES_ADDRESS] = "address",       [RES_NETWORK] = "network",   [RES_SUBNET] = "subnet",
    [RES_NIC] = "network-interface", [RES_GRANT] = "grant",
};

const char *resource_kind_name(enum resource_kind k) { return (size_t)k <= RES_KIND_MAX ? kind_names[k] : "unknown"; }

bool resource_kind_parse(const char *name, enum resource_kind *ret) {
    size_t i = 0;
    if (!name_index(kind_names, GP_ARRAY_LEN(kind_names), name, &i)) return false;
    *ret = (enum resource_kind)i;
    return true;
}

static const char *const state_names[RES_GONE + 1] = {
    [RES_PENDING] = "pending", [RES_RUNNING] = "running", [RES_STOPPING] = "stopping",
    [RES_STOPPED] = "stopped", [RES_GONE] = "gone",
};

const char *resource_state_name(enum resource_state s) { return (size_t)s <= RES_GONE ? state_names[s] : "unknown"; }

bool resource_state_parse(const char *name, enum resource_state *ret) {
    size_t i = 0;
    if (!name_index(state_names, GP_ARRAY_LEN(state_names), name, &i)) return false;
    *ret = (enum resource_state)i;
    return true;
}

/* Every owned string of a resource, shared by init, clear and copy. */
static const size_t resource_strings[] = {
    offsetof(struct resource, provider),     offsetof(struct resource, region),
    offsetof(struct resource, zone),         offsetof(struct resource, id),
    offsetof(struct resource, owner),        offsetof(struct resource, stack),
    offsetof(struct resource, uid),          offsetof(struct resource, spec_hash),
    offsetof(struct resource, state_reason), offsetof(struct resource, instance_type),
    offsetof(struct resource, private_ip),   offsetof(struct resource, public_ip),
    offsetof(struct resource, dial_socket),  offsetof(struct resource, user),
    offsetof(struct resource, host_keys),    offsetof(struct resource, bastion),
    offsetof(struct resource, login_key),    offsetof(struct resource, known_hosts),
    offsetof(struct resource, regions),      offsetof(struct resource, unreadable),
    offsetof(struct resource, account),      offsetof(struct resource, image),
    offsetof(struct resource, unit),         offsetof(struct resource, ingress),
    offsetof(struct resource, market),       offsetof(struct resource, launch),
    offsetof(struct resource, proof),        offsetof(struct resource, deadline),
    offsetof(struct resource, snapshots),    offsetof(struct resource, of_image),
};

static char **string_of(struct resource *r, size_t i) { return (char **)(void *)((char *)r + resource_strings[i]); }

void resource_init(struct resource *r, enum resource_kind kind, const char *provider) {
    *r = (struct resource){.kind = kind, .slot = -1, .slot_first = -1, .price_usd_per_h = -1, .rdma = -1, .gpus = -1};
    for (size_t i = 0; i < GP_ARRAY_LEN(resource_strings); i++) *string_of(r, i) = xstrdup("");
    resource_set(&r->provider, provider);
}

void resource_fill(struct resource *r) {
    for (size_t i = 0; i < GP_ARRAY_LEN(resource_strings); i++)
        if (*string_of(r, i) == NULL) *string_of(r, i) = xstrdup("");
}

void resource_set(char **field, const char *value) {
    char *copy = xstrdup(value != NULL ? value : "");
    free(*field);
    *field = copy;
}

void resource_clear(struct resource *r) {
    for (size_t i = 0; i < GP_ARRAY_LEN(resource_strings); i++) free(*string_of(r, i));
    *r = (struct resource){.slot = -1, .slot_first = -1, .price_usd_per_h = -1, .rdma = -1, .gpus = -1};
}

void resource_copy(struct resource *to, const struct resource *from) {
    if (to == from) return;
    struct resource copy = *from;
    for (size_t i = 0; i < GP_ARRAY_LEN(resource_strings); i++) {
        char **s = string_of(&copy, i);
        *s = xstrdup(*s != NULL ? *s : "");
    }
    resource_clear(to);
    *to = copy;
}

void resource_list_add(struct resource_list *to, const struct resource *r) {
    struct resource copy = {0};
    resource_copy(&copy, r);
    vec_push(&to->list, copy);
}

bool resource_same(const struct resource *a, const struct resource *b) {
    return a->kind == b->kind && strcmp(a->id, b->id) == 0 && strcmp(a->provider, b->provider) == 0;
}

bool resource_list_has(const struct resource_list *l, const struct resource *r) {
    for (size_t i = 0; i < l->list.len; i++)
        if (resource_same(&l->list.items[i], r)) return true;
    return false;
}

bool resource_may_claim(enum resource_kind k) { return k == RES_GROUP || k == RES_KEY_PAIR || k == RES_HOLDER; }

bool resource_is_machine(const struct resource *r) { return r->kind == RES_INSTANCE || r->kind == RES_HOST; }

void resource_list_clear(struct resource_list *l) {
    for (size_t i = 0; i < l->list.len; i++) resource_clear(&l->list.items[i]);
    vec_free(&l->list);
}

static const char *const phase_names[NODE_PHASE_MAX + 1] = {
    [NODE_PLANNED] = "planned", [NODE_LAUNCHING] = "launch",
    [NODE_REACHING] = "reach",  [NODE_BOOTSTRAPPING] = "bootstrap",
    [NODE_CHECKING] = "check",  [NODE_WAITING] = "wait",
    [NODE_GANG] = "gang",       [NODE_READY] = "ready",
    [NODE_FAILED] = "failed",   [NODE_ENDING] = "ending",
    [NODE_GONE] = "gone",
};

const char *node_phase_name(enum node_phase p) { return (size_t)p <= NODE_PHASE_MAX ? phase_names[p] : "unknown"; }

bool node_phase_parse(const char *name, enum node_phase *ret) {
    size_t i = 0;
    if (!name_index(phase_names, GP_ARRAY_LEN(phase_names), name, &i)) return false;
    *ret = (enum node_phase)i;
    return true;
}

bool node_phase_legal(enum node_phase from, enum node_phase to) {
    if ((size_t)from > NODE_PHASE_MAX || (size_t)to > NODE_PHASE_MAX) return false;
    if (from == NODE_GONE) return to == NODE_GONE;
    if (to == NODE_FAILED || to == NODE_ENDING || to == NODE_GONE) return true;
    if (from == NODE_FAILED) return to == NODE_LAUNCHING;
    return to >= from;
}

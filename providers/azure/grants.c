// SPDX-License-Identifier: Apache-2.0
/* The right of a node to delete itself at its deadline: an assignment of the offer's role to the managed identity of
 * the virtual machine, in the scope of that machine alone. Its name follows from the stack and the machine, so that a
 * repeated request is the same one. It counts only as Azure returns it afterwards. One thread. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/clock.h"
#include "base/hash.h"
#include "providers/common/intents.h"
#include "providers/common/launch/settle.h"

#define AT_ONCE 8
#define READ_MS 5000
#define RESEND_MS 1000 /* of a request whose reply was lost */
#define ADVICE_GRANT "docs/azure.md, 'End of a node', has the rights that gpuprov needs for that"

/* --- names and contents --- */

char *azure_grant_name(const struct azure *a, const char *uid, const char *vm) {
    unsigned char h[SHA256_BYTES];
    GP_AUTO_FREE char *text = xasprintf("gpuprov role assignment %s %s %s", a->subscription, uid, vm);
    for (char *p = text; *p != '\0'; p++) *p = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
    sha256_bytes(text, strlen(text), h);
    h[6] = (unsigned char)((h[6] & 0x0f) | 0x80); /* a UUID of version 8, whose bits are the writer's own */
    h[8] = (unsigned char)((h[8] & 0x3f) | 0x80);
    return xasprintf("%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", h[0], h[1], h[2], h[3],
                     h[4], h[5], h[6], h[7], h[8], h[9], h[10], h[11], h[12], h[13], h[14], h[15]);
}

static char *role_id(const struct azure *a, const char *role) {
    return xasprintf("/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/%s", a->subscription, role);
}

static char *grant_url(const struct azure *a, const char *group, const char *vm, const char *name) {
    return azure_url(a, AZURE_AUTHORIZATION,
                     "/resourceGroups/%s/providers/Microsoft.Compute/" AZURE_VM
                     "/%s/providers/Microsoft.Authorization/" AZURE_GRANT "/%s",
                     group, vm, name);
}

char *azure_grants_url(const struct azure *a, const char *group) {
    return azure_url(a, AZURE_AUTHORIZATION, "/resourceGroups/%s/providers/Microsoft.Authorization/" AZURE_GRANT,
                     group);
}

/* The id of a role definition may be that of the tenant or of a subscription: its last part decides. */
static bool is_role(const char *id, const char *role) {
    const char *last = strrchr(id, '/');
    return last != NULL && azure_is_guid(role) && strcasecmp(last + 1, role) == 0;
}

const char *azure_vm_principal(const json_t *vm) {
    const char *id = json_str(vm, "identity.principalId", "");
    return str_starts(json_str(vm, "identity.type", ""), "SystemAssigned") && azure_is_guid(id) ? id : "";
}

const char *azure_vm_role(const json_t *vm) {
    const char *role = json_string_value(json_object_get(json_at(vm, "tags"), AZURE_ROLE_TAG));
    return role != NULL && azure_is_guid(role) ? role : "";
}

bool azure_grant_is(const struct azure *a, const json_t *item, const char *group, const char *vm, const char *principal,
                    const char *role) {
    GP_AUTO_FREE char *in = NULL, *type = NULL, *name = NULL;
    return principal[0] != '\0' && strcasecmp(json_str(item, "properties.principalId", ""), principal) == 0 &&
           is_role(json_str(item, "properties.roleDefinitionId", ""), role) &&
           json_str(item, "properties.condition", "")[0] == '\0' &&
           azure_id_split(a, json_str(item, "properties.scope", ""), &in, &type, &name) &&
           strcasecmp(type, "Microsoft.Compute/" AZURE_VM) == 0 && strcasecmp(in, group) == 0 &&
           strcasecmp(name, vm) == 0;
}

/* --- the role --- */

static const char *const needed[] = {"Microsoft.Compute/virtualMachines/read",
                                     "Microsoft.Compute/virtualMachines/delete"};

/* Whether the actions of a role definition are exactly those that a node needs. *why: static. */
static bool fits(const json_t *definition, const char **why) {
    unsigned seen = 0;
    size_t i = 0, k = 0;
    json_t *p = NULL, *action = NULL;
    *why = "it allows more than Microsoft.Compute/virtualMachines/read and /delete";
    json_array_foreach(json_at(definition, "properties.permissions"), i, p) {
        if (json_array_size(json_object_get(p, "dataActions")) > 0) return false;
        json_array_foreach(json_object_get(p, "actions"), k, action) {
            const char *text = json_is_string(action) ? json_string_value(action) : "";
            unsigned bit = 0;
            for (size_t n = 0; n < GP_ARRAY_LEN(needed); n++)
                if (strcasecmp(text, needed[n]) == 0) bit = 1u << n;
            if (bit == 0) return false;
            seen |= bit;
        }
        if (json_array_size(json_object_get(p, "notActions")) > 0) seen = 0;
    }
    *why = "it does not allow Microsoft.Compute/virtualMachines/read and /delete";
    return seen == (1u << GP_ARRAY_LEN(needed)) - 1;
}

int azure_role_check(struct azure *a, const char *role, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    const char *why = NULL;
    if (strv_has(&a->roles_ok, role)) return 0;
    GP_AUTO_FREE char *url =
        azure_url(a, AZURE_AUTHORIZATION, "/providers/Microsoft.Authorization/roleDefinitions/%s", role);
    int r = azure_call(a, "GET", url, NULL, 0, &reply, err);
    if (r != 0) return gp_wrap(err, "the role %s of the nodes cannot be read (" ADVICE_GRANT ")", role);
    if (!fits(reply.json, &why))
        return gp_fail(err, GP_EUSAGE,
                       "azure: the role %s does not fit nodes: %s; give the one that 'gpuprov providers azure --policy "
                       "--node' prints",
                       role, why);
    strv_add(&a->roles_ok, role);
    return 0;
}

/* --- one assignment --- */

enum step { READ_VM, PUT_GRANT, READ_GRANT, GRANTED, REFUSED };

struct grant {
    struct resource *vm;           /* borrowed */
    struct azure_handle h;         /* of it */
    char *name, *principal, *role; /* GUIDs; principal and role NULL until the machine was read */
    char *url, *what, *vm_url, *vm_what, *body;
    struct intent in;
    struct resource made;
    bool intended; /* the intent is in the journal */
    bool accepted; /* Azure answered that the assignment exists */
    bool maybe;    /* the reply of a request was lost: it may exist, whatever later ones returned */
    enum step step;
    struct gp_error err;     /* why it has no right yet */
    struct gp_error refusal; /* of a request; the assignment is read once nevertheless */
};

struct granting {
    struct azure *a;
    const struct stack *stack;
    const struct spec *spec;
    char *region; /* of the group */
    VEC_OF(struct grant) list;
};

static void granting_clear(struct granting *g) {
    for (size_t i = 0; i < g->list.len; i++) {
        struct grant *t = &g->list.items[i];
        azure_handle_clear(&t->h);
        free(t->name);
        free(t->principal);
        free(t->role);
        free(t->url);
        free(t->what);
        free(t->vm_url);
        free(t->vm_what);
        free(t->body);
        intent_clear(&t->in);
        resource_clear(&t->made);
    }
    vec_free(&g->list);
    free(g->region);
}

static void refuse(struct grant *t, enum gp_code code, const char *text) {
    gp_error_clear(&t->err);
    gp_fail(&t->err, code, "azure: %s", text);
    t->step = REFUSED;
}

/* The roles of the spec: the tag of a machine alone does not choose one. */
static bool in_spec(const struct spec *spec, const char *role) {
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        if (str_eq(o->provider, "azure") && o->role != NULL && strcasecmp(o->role, role) == 0) return true;
    }
    return false;
}

static int intend(struct granting *g, struct grant *t, struct gp_error *err) {
    struct azure *a = g->a;
    GP_AUTO_FREE char *definition = role_id(a, t->role);
    GP_AUTO_JSON json_t *body = json_pack("{s:{s:s,s:s,s:s,s:s}}", "properties", "roleDefinitionId", definition,
                                          "principalId", t->principal, "principalType", "ServicePrincipal",
                                          "description", "gpuprov: the node deletes itself at its deadline");
    t->body = json_text_exact(body, 0);
    resource_init(&t->made, RES_GRANT, "azure");
    resource_set(&t->made.region, g->region);
    resource_set(&t->made.owner, g->stack->owner);
    resource_set(&t->made.stack, g->stack->name);
    resource_set(&t->made.uid, g->stack->uid);
    resource_set(&t->made.spec_hash, g->stack->spec_hash);
    resource_set(&t->made.account, a->subscription);
    free(t->made.id);
    t->made.id = azure_handle_text(t->h.group, AZURE_GRANT, t->h.name, t->h.uid);
    t->made.expires_s = g->stack->expires_s;
    t->made.state = RES_RUNNING;
    t->made.price_usd_per_h = 0;
    cloud_intent_thing(g->stack, "azure", g->region, RES_GRANT, t->name, t->body, &t->in);
    int r = journal_intent(a->journal, &t->in, err);
    t->intended = r == 0;
    return r;
}

/* Of a request that may be sent again, until the right's time is over. */
static bool may_heal(const struct gp_error *e) {
    return e->code == GP_ETHROTTLED || e->code == GP_EPROTO || e->code == GP_EENDPOINT || e->code == GP_EREACH ||
           e->code == GP_ETIMEOUT || e->code == GP_ELOST || e->code == GP_EUNKNOWN;
}

static void machine_read(struct granting *g, struct grant *t, const struct rest_result *res) {
    struct gp_error e = {0};
    const json_t *vm = res->reply.json;
    if (res->rc != 0 || res->reply.status == 404) {
        if (res->rc == 0) refuse(t, GP_ENOTFOUND, "the machine was deleted while it started");
        else t->err = res->err;
        if (res->rc != 0 && !may_heal(&res->err)) t->step = REFUSED;
        return;
    }
    const char *principal = azure_vm_principal(vm), *role = azure_vm_role(vm);
    if (role[0] == '\0' || !in_spec(g->spec, role)) {
        refuse(t, GP_EUSAGE, "the machine was not launched with the role of the spec");
    } else if (principal[0] == '\0') {
        gp_error_clear(&t->err);
        gp_fail(&t->err, GP_EPROTO, "azure: the machine has no managed identity yet");
    } else {
        if (azure_role_check(g->a, role, &e) != 0) {
            t->err = e;
            if (!may_heal(&e)) t->step = REFUSED;
            return;
        }
        t->principal = xstrdup(principal);
        t->role = xstrdup(role);
        t->step = PUT_GRANT;
        if (intend(g, t, &e) == 0) return;
        t->err = e;
        t->step = REFUSED;
    }
}

/* A new identity reaches all parts of Azure within minutes: until then its assignment is refused as that of an unknown
 * principal. A refusal proves nothing of an earlier request whose reply was lost: then the assignment is read. */
static void put_done(struct grant *t, const struct rest_result *res) {
    if (res->rc == 0) {
        t->accepted = true;
        t->step = READ_GRANT;
        return;
    }
    t->err = res->err;
    t->maybe = t->maybe || res->rc == -GP_EUNKNOWN; /* the same request settles it */
    if (may_heal(&res->err) || strcmp(res->reply.code, "PrincipalNotFound") == 0) return;
    bool may_exist = t->maybe || strcmp(res->reply.code, "RoleAssignmentExists") == 0;
    t->step = may_exist ? READ_GRANT : REFUSED;
    t->refusal = res->err;
}

static void grant_read(struct granting *g, struct grant *t, const struct rest_result *res) {
    bool there = res->rc == 0 && res->reply.status != 404;
    gp_error_clear(&t->err);
    if (there && azure_grant_is(g->a, res->reply.json, t->h.group, t->h.name, t->principal, t->role)) {
        t->accepted = true;
        t->step = GRANTED;
    } else if (there) {
        refuse(t, GP_EPROTO, "the role assignment that was read back is not the one that was requested");
    } else if (t->refusal.code != GP_OK) {
        t->err = t->refusal;
        t->step = REFUSED;
    } else if (res->rc != 0) {
        t->err = res->err;
    } else {
        gp_fail(&t->err, GP_EPROTO, "%s: Azure does not return it", t->what);
    }
}

/* One request for each that is not decided, side by side. Returns the pause before the next. */
static int64_t advance(struct granting *g) {
    size_t n = 0, left = g->list.len;
    int64_t pause = READ_MS;
    struct rest_call *calls = xcalloc(left + 1, sizeof *calls);
    struct rest_result *results = xcalloc(left + 1, sizeof *results);
    struct grant **of = xcalloc(left + 1, sizeof(struct grant *));
    for (size_t i = 0; i < left; i++) {
        struct grant *t = &g->list.items[i];
        if (t->step == GRANTED || t->step == REFUSED) continue;
        bool vm = t->step == READ_VM, put = t->step == PUT_GRANT;
        calls[n] = (struct rest_call){.what = vm ? t->vm_what : t->what,
                                      .method = put ? "PUT" : "GET",
                                      .url = vm ? t->vm_url : t->url,
                                      .body = put ? t->body : NULL,
                                      .flags = put ? REST_ONCE : REST_MISSING};
        of[n++] = t;
    }
    rest_call_many(&g->a->rest, calls, n, AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        enum step before = of[i]->step;
        if (before == READ_VM) machine_read(g, of[i], &results[i]);
        else if (before == PUT_GRANT) put_done(of[i], &results[i]);
        else grant_read(g, of[i], &results[i]);
        int64_t own = results[i].rc == -GP_EUNKNOWN ? RESEND_MS : READ_MS;
        pause = GP_MIN(pause, of[i]->step != before ? 0 : azure_retry_ms(&results[i].reply.headers, own));
        rest_reply_clear(&results[i].reply);
    }
    free(calls);
    free(results);
    free(of);
    return pause;
}

static bool is_open(const struct granting *g) {
    for (size_t i = 0; i < g->list.len; i++)
        if (g->list.items[i].step != GRANTED && g->list.items[i].step != REFUSED) return true;
    return false;
}

/* Ends its intent, and marks the machine. An assignment that exists is recorded, whether or not it can be read. While
 * it may exist, the intent stays open: a list of the assignments settles it. */
static int grant_end(struct granting *g, struct grant *t, struct gp_error *err) {
    struct gp_error e = t->err;
    int r = t->step == GRANTED ? 0 : e.code != GP_OK ? -(int)e.code : gp_fail(&e, GP_ECANCELLED, "cancelled");
    bool exists = t->accepted;
    if (t->intended && (exists || (t->step == REFUSED && !t->maybe))) {
        struct gp_error j = {0};
        int done = cloud_thing_created(g->a->journal, &t->in, exists ? 0 : r, &t->made, &e, &j);
        if (exists && done == 0) done = cloud_thing_settle(g->a->journal, &t->made, t->name, &j);
        if (exists && done != 0 && r == 0) {
            r = done;
            e = j;
        }
    }
    t->vm->ends_itself = r == 0;
    if (r == 0) return 0;
    if (err != NULL) *err = e;
    return gp_wrap(err, "node %d may not delete itself (" ADVICE_GRANT ")", t->vm->slot);
}

/* The group's tag makes later lists look for assignments. It is written before the first one is requested. */
static int announce(struct azure *a, const char *group, const char *role, struct gp_error *err) {
    GP_AUTO_FREE char *id = xasprintf("/resourcegroups/%s", group);
    GP_AUTO_JSON json_t *tags = json_pack("{s:s}", AZURE_ROLE_TAG, role);
    return azure_tags_merge(a, id, tags, err);
}

static int granting_begin(struct granting *g, struct resource_list *machines, struct gp_error *err) {
    struct azure *a = g->a;
    GP_AUTO_AZURE_GROUP struct azure_group group = {0};
    GP_AUTO_FREE char *name = azure_group_name(g->stack->owner, g->stack->name);
    int r = azure_group_get(a, name, &group, err);
    if (r == 0 && (!group.exists || !str_eq(group.tags.uid, g->stack->uid)))
        r = gp_fail(err, GP_ENOTFOUND, "azure: the resource group '%s' of the stack is not there", name);
    if (r == 0 && !group.grants) r = announce(a, name, "yes", err);
    if (r != 0) return r;
    g->region = xstrdup(group.region);
    for (size_t i = 0; i < machines->list.len; i++) {
        struct resource *vm = &machines->list.items[i];
        struct grant t = {.vm = vm};
        if (vm->kind != RES_INSTANCE || vm->ends_itself || vm->state == RES_GONE || !str_eq(vm->uid, g->stack->uid) ||
            !str_eq(vm->provider, "azure") || !azure_handle_read(vm->id, &t.h)) {
            azure_handle_clear(&t.h);
            continue;
        }
        t.name = azure_grant_name(a, t.h.uid, t.h.name);
        t.url = grant_url(a, t.h.group, t.h.name, t.name);
        t.what = azure_what("PUT", t.url);
        t.vm_url = azure_url(a, AZURE_COMPUTE, "/resourceGroups/%s/providers/Microsoft.Compute/" AZURE_VM "/%s",
                             t.h.group, t.h.name);
        t.vm_what = azure_what("GET", t.vm_url);
        resource_init(&t.made, RES_GRANT, "azure");
        resource_clear(&t.made);
        vec_push(&g->list, t);
    }
    return 0;
}

int azure_grants_make(struct azure *a, const struct stack *stack, const struct spec *spec,
                      struct resource_list *machines, struct gp_error *err) {
    struct granting g = {.a = a, .stack = stack, .spec = spec};
    int64_t until = clock_deadline(a->role_wait_ms);
    int r = granting_begin(&g, machines, err);
    while (r == 0 && is_open(&g)) {
        int64_t pause = advance(&g), left = clock_left_ms(until);
        if (!is_open(&g) || pause == 0) continue;
        if (left == 0 || gp_sleep(GP_MIN(pause, left), a->cancel, NULL) != 0) break;
    }
    for (size_t i = 0; i < g.list.len; i++) {
        struct gp_error e = {0};
        int one = r == 0 ? grant_end(&g, &g.list.items[i], &e) : 0;
        if (one == 0 || r != 0) continue;
        r = one;
        if (err != NULL) *err = e;
        for (size_t k = i + 1; k < g.list.len; k++) (void)grant_end(&g, &g.list.items[k], NULL);
        break;
    }
    granting_clear(&g);
    return r;
}

/* --- a launch --- */

static int skip_item(void *ctx, const json_t *item, struct gp_error *err) {
    (void)ctx, (void)item, (void)err;
    return 0;
}

/* Without the right to these calls nothing is launched that would count on them. */
int azure_grants_begin(struct azure *a, const struct stack *s, const char *role, struct gp_error *err) {
    GP_AUTO_FREE char *group = azure_group_name(s->owner, s->name);
    GP_AUTO_FREE char *url = azure_grants_url(a, group);
    int r = azure_role_check(a, role, err);
    if (r == 0) r = azure_pages(a, url, skip_item, NULL, err);
    if (r == 0) r = announce(a, group, role, err);
    if (r != 0 && err != NULL && err->scope != GP_SCOPE_NONE) err->scope = GP_SCOPE_OFFER;
    return r != 0 ? gp_wrap(err, "the nodes would not end themselves (" ADVICE_GRANT ")") : 0;
}

/* The spec accepts nodes that only gc ends: then the missing right is a warning. */
bool azure_grants_may_lack(const struct azure *a, const struct spec *spec, const struct gp_error *why) {
    if (spec->unattended != UNATTENDED_ACCEPT || why->code == GP_ECANCELLED) return false;
    event_emit(a->sink, -1, NODE_LAUNCHING, EVENT_WARN, "deadline", "only 'gpuprov gc' ends nodes at azure: %s",
               why->msg);
    return true;
}

/* Ends the open intents of assignments that are listed: their requests have a known outcome now. */
static int settle_listed(struct azure *a, const struct prepare_req *req, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        GP_AUTO_AZURE_HANDLE struct azure_handle h = {0};
        if (k->kind != RES_GRANT || k->state == RES_GONE || !str_eq(k->provider, "azure") ||
            !str_eq(k->uid, req->stack->uid) || !azure_handle_read(k->id, &h))
            continue;
        GP_AUTO_FREE char *name = azure_grant_name(a, h.uid, h.name);
        r = cloud_thing_settle(a->journal, k, name, err);
    }
    return r;
}

/* Machines of a launch that was cut: the right that they were to have. */
int azure_grants_complete(struct azure *a, const struct prepare_req *req, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list late = {0};
    struct gp_error e = {0};
    bool wanted = false;
    for (size_t i = 0; i < req->spec->offers.len; i++) {
        const struct spec_offer *o = &req->spec->offers.items[i];
        wanted = wanted || (str_eq(o->provider, "azure") && o->role != NULL);
    }
    for (size_t i = 0; wanted && i < req->known->list.len; i++) {
        const struct resource *k = &req->known->list.items[i];
        bool lives = k->state == RES_RUNNING || k->state == RES_PENDING;
        if (k->kind == RES_INSTANCE && lives && !k->ends_itself && str_eq(k->provider, "azure"))
            resource_list_add(&late, k);
    }
    int r = settle_listed(a, req, err);
    if (r != 0 || late.list.len == 0) return r;
    r = azure_grants_make(a, req->stack, req->spec, &late, &e);
    for (size_t i = 0; i < late.list.len; i++)
        for (size_t k = 0; k < req->known->list.len; k++)
            if (strcmp(late.list.items[i].id, req->known->list.items[k].id) == 0)
                req->known->list.items[k].ends_itself = late.list.items[i].ends_itself;
    if (r == 0 || azure_grants_may_lack(a, req->spec, &e)) return 0;
    if (err != NULL) *err = e;
    return r;
}

/* --- the end --- */

char *azure_grant_end_url(const struct azure *a, const struct azure_handle *h) {
    GP_AUTO_FREE char *name = azure_grant_name(a, h->uid, h->name);
    return grant_url(a, h->group, h->name, name);
}

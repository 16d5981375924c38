/* SPDX-License-Identifier: Apache-2.0 */
/* Frees the results of the verbs. */
#include "base/gp_base.h"

#include "engine/engine.h"

void plan_changes_clear(struct plan_changes *c) {
    for (size_t i = 0; i < c->list.len; i++) {
        const struct plan_change *x = &c->list.items[i];
        char *all[] = {x->resource, x->id, x->key, x->before, x->after, x->reason};
        for (size_t k = 0; k < GP_ARRAY_LEN(all); k++) free(all[k]);
    }
    vec_free(&c->list);
}

void stack_view_clear(struct stack_view *v) {
    stack_clear(&v->stack);
    free(v->phase);
    free(v->ends);
    for (size_t i = 0; i < v->nodes.len; i++) {
        struct node_view *n = &v->nodes.items[i];
        free(n->id);
        free(n->place);
        free(n->type);
        free(n->address);
        free(n->state);
        free(n->verdict);
    }
    vec_free(&v->nodes);
    resource_list_clear(&v->others);
    strv_clear(&v->notes);
    resource_list_clear(&v->unreadable);
    plan_changes_clear(&v->drift);
    coverage_clear(&v->looked);
    intent_list_clear(&v->unknown);
    *v = (struct stack_view){0};
}

void stack_view_list_clear(struct stack_view_list *l) {
    for (size_t i = 0; i < l->list.len; i++) stack_view_clear(&l->list.items[i]);
    vec_free(&l->list);
    coverage_clear(&l->looked);
    resource_list_clear(&l->images);
    resource_list_clear(&l->unreadable);
}

void up_result_clear(struct up_result *r) {
    stack_view_clear(&r->view);
    report_clear(&r->report);
    coverage_clear(&r->looked);
    *r = (struct up_result){0};
}

void extend_result_clear(struct extend_result *r) {
    free(r->stack);
    free(r->ends);
    *r = (struct extend_result){0};
}

static void state_clear(struct plan_state *s) {
    free(s->owner);
    free(s->uid);
    free(s->spec_hash);
    for (size_t i = 0; i < s->nodes.len; i++) {
        free(s->nodes.items[i].id);
        free(s->nodes.items[i].phase);
        free(s->nodes.items[i].place);
        free(s->nodes.items[i].type);
    }
    vec_free(&s->nodes);
    strv_clear(&s->extras);
}

void plan_clear(struct plan *p) {
    for (size_t i = 0; i < p->items.len; i++) {
        free(p->items.items[i].what);
        free(p->items.items[i].why);
    }
    vec_free(&p->items);
    offer_list_clear(&p->offers);
    coverage_clear(&p->looked);
    strv_clear(&p->notes);
    spec_changes_clear(&p->spec_changes);
    free(p->ends);
    plan_changes_clear(&p->resource_changes);
    state_clear(&p->state);
    *p = (struct plan){0};
}

void down_result_clear(struct down_result *r) {
    resource_list_clear(&r->left);
    resource_list_clear(&r->unreadable);
    coverage_clear(&r->looked);
    strv_clear(&r->asked);
    resource_list_clear(&r->would);
    free(r->elsewhere);
    free(r->owner);
    *r = (struct down_result){0};
}

void gc_result_clear(struct gc_result *r) {
    resource_list_clear(&r->ended);
    resource_list_clear(&r->kept);
    resource_list_clear(&r->unreadable);
    coverage_clear(&r->looked);
    *r = (struct gc_result){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The stacks of a unit that left its folder. Verb's thread. */
#include "base/gp_base.h"

#include "unit.h"

void unit_keep_worst(struct gp_error *worst, const struct gp_error *one) {
    int code = gp_exit_code(one->code), before = gp_exit_code(worst->code);
    if (one->code != GP_OK && (worst->code == GP_OK || gp_exit_worst(code, before) != before)) *worst = *one;
}

void unit_left_clear(struct unit_left *l) {
    vec_free(&l->list);
    stack_view_list_clear(&l->all);
}

static bool is_wanted(const struct unit_folder *u, const char *name) {
    for (size_t i = 0; i < u->files.len; i++)
        if (str_eq(u->files.items[i].spec->name, name)) return true;
    return false;
}

int unit_find_left(struct engine *e, const struct unit_folder *u, struct unit_left *ret, struct gp_error *err) {
    int r = engine_status(e, NULL, NULL, true, &ret->all, err);
    for (size_t i = 0; i < ret->all.list.len; i++) {
        const struct stack_view *v = &ret->all.list.items[i];
        bool ours = v->stack.uid != NULL && v->stack.name != NULL && str_eq(v->stack.unit, u->name) &&
                    str_eq(v->stack.owner, e->opts.owner);
        if (ours && !is_wanted(u, v->stack.name)) vec_push(&ret->list, v);
    }
    return r;
}

void unit_show_left(const struct unit_left *l, FILE *to) {
    for (size_t i = 0; i < l->list.len; i++) {
        const struct stack_view *v = l->list.items[i];
        fprintf(to, "  - destroy stack %s (%zu node%s): no spec of the folder has its name\n", v->stack.name,
                v->nodes.len, v->nodes.len == 1 ? "" : "s");
    }
}

json_t *unit_left_json(const struct unit_left *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) {
        json_t *j = json_object();
        json_object_set_new(j, "action", json_string("destroy"));
        json_object_set_new(j, "reason", json_string("no spec of the folder has its name"));
        json_object_set_new(j, "stack", stack_view_json(l->list.items[i]));
        json_array_append_new(list, j);
    }
    return list;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov status [STACK|SPEC]: prints nodes, verdicts, price so far, deadline, of one stack or of all. */
#include "base/gp_base.h"

#include "show/image_show.h"

struct opts {
    bool offline;
    const char *in;
};
static const struct opt options[] = {{.name = "offline",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, offline),
                                      .help = "show this machine's journal, query no provider"},
                                     PLACES_ROW(struct opts, in),
                                     {0}};

static void show_json(struct invocation *inv, const struct stack_view_list *l, int r, const struct gp_error *err) {
    const struct opts *o = inv->opts;
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) json_array_append_new(list, stack_view_json(&l->list.items[i]));
    json_t *j = json_pack("{s:o, s:b}", "stacks", list, "remembered", (int)o->offline);
    if (inv->n_args == 0 && !o->offline) json_object_set_new(j, "looked", looked_json(&l->looked));
    if (inv->n_args == 0 && !o->offline) json_object_set_new(j, "images", images_json(&l->images));
    if (inv->n_args == 0 && !o->offline) json_object_set_new(j, "unreadable", resources_json(&l->unreadable));
    if (r != 0) result_error(inv, j, err);
    print_json(j);
}

static void show(struct invocation *inv, const struct stack_view_list *l, int r, const struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (inv->common->json) {
        show_json(inv, l, r, err);
        return;
    }
    bool owners = false;
    for (size_t i = 1; i < l->list.len; i++)
        owners = owners || !str_eq(l->list.items[i].stack.owner, l->list.items[0].stack.owner);
    for (size_t i = 0; i < l->list.len; i++) {
        if (i > 0) putchar('\n');
        if (owners) printf("owner %s:\n", l->list.items[i].stack.owner);
        show_stack(&l->list.items[i], stdout);
    }
    if (l->images.list.len > 0) puts("baked images:");
    show_images(&l->images, stdout);
    show_unreadable(&l->unreadable, stdout);
    if (l->list.len == 0)
        puts(o->offline ? "the journal has no stacks; no provider was queried" : "no stack was found");
    if (l->list.len == 0 || (l->looked.list.len > 0 && !coverage_whole(&l->looked))) show_looked(&l->looked, stdout);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_SPEC struct spec *spec = NULL;
    const char *name = NULL;
    int r = 0;
    if ((r = app_places(inv, o->in, err)) != 0) return r;
    if (inv->n_args == 1 && (r = app_target(inv, inv->args[0], &spec, &name, err)) != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    struct stack_view_list list = {0};
    r = engine_status(e, name, spec, !o->offline, &list, err);
    /* A name that neither a provider nor the journal has is a typing error. The stack of a spec may not exist yet. */
    bool known =
        list.list.len > 0 && (list.list.items[0].stack.uid != NULL || list.list.items[0].unreadable.list.len > 0);
    bool slip = name != NULL && spec == NULL && !known;
    if (r == 0 && slip) {
        GP_AUTO_STR struct str looked = {0};
        if (list.list.len > 0) coverage_text(&list.list.items[0].looked, true, 6, &looked);
        r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s' in the journal%s%s; 'gpuprov status' lists the stacks",
                    name, looked.len > 0 ? " or at " : "", looked.len > 0 ? looked.s : "");
    }
    if (!slip && (r == 0 || list.list.len > 0)) show(inv, &list, r, err);
    stack_view_list_clear(&list);
    return r;
}

const struct verb verb_status = {
    .name = "status",
    .argspec = "[STACK|SPEC]",
    .help = "prints nodes, verdicts, price so far, deadline",
    .details = VERB_TARGET_DETAILS
    "  Without a name: every stack of this machine's journal, and every other one that the tags at the\n"
    "  providers name. Places that could not be searched are listed; the exit code is 8 if a stack may\n"
    "  be billed there. A cloud for which this machine has no credentials is only listed.\n",
    .examples = "  gpuprov status                     # every stack\n"
                "  gpuprov status try                 # one stack, compared with the provider\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov images [ID...]: lists the baked images; --remove removes those of the ids with their snapshots. */
#include "base/gp_base.h"

#include "cmd/ask/confirm.h"
#include "show/image_show.h"

struct opts {
    bool remove, yes;
    const char *in;
};
static const struct opt options[] = {{.name = "remove",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, remove),
                                      .help = "remove the images ID..., with their snapshots"},
                                     YES_ROW(struct opts, yes),
                                     PLACES_ROW(struct opts, in),
                                     {0}};

struct question {
    struct engine *e;
};

static int confirm(void *ctx, const char *question, struct gp_error *err) {
    struct question *q = ctx;
    return confirm_ask(q->e, question, err);
}

static void show(struct invocation *inv, const struct images_result *res, bool removing, int r,
                 const struct gp_error *err) {
    if (inv->common->json) {
        json_t *j = json_pack("{s:o, s:o, s:o}", removing ? "removed" : "images",
                              images_json(removing ? &res->removed : &res->images), "unreadable",
                              resources_json(&res->unreadable), "looked", looked_json(&res->looked));
        if (r != 0) result_error(inv, j, err);
        print_json(j);
        return;
    }
    if (removing) {
        for (size_t i = 0; i < res->removed.list.len; i++)
            printf("removed %s %s\n", resource_kind_name(res->removed.list.items[i].kind),
                   res->removed.list.items[i].id);
        return;
    }
    show_images(&res->images, stdout);
    show_unreadable(&res->unreadable, stdout);
    if (res->images.list.len == 0 && res->looked.list.len > 0)
        puts("no baked image was found; 'gpuprov bake SPEC' makes one");
    show_looked(&res->looked, stdout);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct engine *e = NULL;
    GP_AUTO_STRV struct strv ids = {0};
    if (!o->remove && inv->n_args > 0)
        return gp_fail(err, GP_EUSAGE, "images lists all images; to remove '%.100s', add --remove", inv->args[0]);
    if (o->remove && inv->n_args == 0)
        return gp_fail(err, GP_EUSAGE, "--remove needs the ids of images; 'gpuprov images' lists them");
    for (int i = 0; i < inv->n_args; i++) strv_add(&ids, inv->args[i]);
    int r = app_places(inv, o->in, err);
    if (r == 0) r = app_engine(inv, &e, err);
    if (r != 0) return r;
    struct images_result res = {0};
    struct question q = {e};
    struct images_req req = {.ids = &ids, .yes = o->yes, .ctx = &q};
    if (confirm_can_ask(inv)) req.confirm = confirm;
    r = o->remove ? engine_images_remove(e, &req, &res, err) : engine_images(e, &res, err);
    show(inv, &res, o->remove, r, err);
    images_result_clear(&res);
    return r;
}

const struct verb verb_images = {
    .name = "images",
    .argspec = "[--remove ID...]",
    .help = "lists the baked images, or removes them with their snapshots",
    .details = "  On a terminal --remove waits for a yes; elsewhere it needs --yes. An image that\n"
               "  local nodes were made from cannot be removed before them; instances of a cloud\n"
               "  go on without theirs.\n",
    .examples = "  gpuprov images\n"
                "  gpuprov images --json --in aws/us-east-1\n"
                "  gpuprov images --remove --yes ami-0123456789abcdef0\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 64,
};

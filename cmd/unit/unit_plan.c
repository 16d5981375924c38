/* SPDX-License-Identifier: Apache-2.0 */
/* plan DIR: the plans of all specs of a folder, one after another. Verb's thread. */
#include "base/gp_base.h"

#include "unit.h"

#include "cmd/show/plan_show.h"

/* The plan of one file, and what there is to print of it. */
struct one {
    const struct unit_file *file;
    struct plan plan;
    struct gp_error err;
};
struct result {
    struct unit_folder folder;
    struct one *all;
    struct unit_left left;
    struct gp_error left_err;
    bool prune, changes;
};

static void show_json(struct invocation *inv, const struct result *x, const struct gp_error *worst) {
    json_t *stacks = json_array(), *skipped = json_array();
    for (size_t i = 0; i < x->folder.files.len; i++) {
        const struct one *o = &x->all[i];
        bool failed = o->err.code != GP_OK;
        json_t *j = failed && o->plan.ends == NULL ? json_object() : plan_json(o->file->spec, &o->plan);
        json_object_set_new(j, "stack", json_string(o->file->spec->name));
        json_object_set_new(j, "file", json_any_text(o->file->path));
        if (failed) json_object_set_new(j, "error", error_json(&o->err));
        json_array_append_new(stacks, j);
    }
    for (size_t i = 0; i < x->folder.skipped.n; i++)
        json_array_append_new(skipped, json_any_text(x->folder.skipped.v[i]));
    json_t *j =
        json_pack("{s:o, s:o, s:b, s:o, s:o}", "folder", json_any_text(x->folder.dir), "unit",
                  json_any_text(x->folder.name), "changes", (int)x->changes, "stacks", stacks, "skipped", skipped);
    json_object_set_new(j, "prune", x->prune ? unit_left_json(&x->left) : json_null());
    if (worst->code != GP_OK) result_error(inv, j, worst);
    print_json(j);
}

static void show_one(const struct one *o, bool markdown) {
    GP_AUTO_STR struct str text = {0};
    const struct spec *spec = o->file->spec;
    bool planned = o->plan.ends != NULL;
    if (markdown && planned) plan_markdown(spec, &o->plan, o->file->path, &text);
    else if (markdown) plan_markdown_error(spec->name, &o->err, &(struct strv){0}, &text);
    else printf("%s:\n", o->file->path);
    if (text.s != NULL) printf("%s\n", text.s);
    if (!markdown && planned) plan_show(spec, &o->plan, stdout);
    if (!markdown && o->err.code != GP_OK) printf("  the plan failed: %s\n", o->err.msg);
    if (!markdown) putchar('\n');
}

static void show_skipped(const struct result *x, bool markdown) {
    if (markdown || x->folder.skipped.n == 0) return;
    fputs("left out, as no specs:", stdout);
    for (size_t i = 0; i < x->folder.skipped.n; i++) {
        GP_AUTO_FREE char *path = xstrdup(x->folder.skipped.v[i]);
        str_one_line(path);
        printf("%s %s", i > 0 ? "," : "", path);
    }
    putchar('\n');
}

static void show_left(const struct result *x, bool markdown) {
    GP_AUTO_STR struct str text = {0};
    if (!x->prune) return;
    if (!markdown) {
        printf("stacks of the unit '%s' that are no longer in %s:%s\n", x->folder.name, x->folder.dir,
               x->left.list.len == 0 ? " none" : "");
        unit_show_left(&x->left, stdout);
        return;
    }
    if (x->left.list.len > 0)
        str_add(&text, "### gpuprov: stacks that left the folder\n\n| action | stack |\n|---|---|\n");
    for (size_t i = 0; i < x->left.list.len; i++) {
        str_add(&text, "| destroy | ");
        markdown_code(&text, x->left.list.items[i]->stack.name);
        str_add(&text, " |\n");
    }
    if (x->left_err.code != GP_OK) {
        str_add(&text, "\n**Not every place could be searched for such stacks:** ");
        markdown_code(&text, x->left_err.msg);
        str_add(&text, "\n");
    }
    if (text.s != NULL) fputs(text.s, stdout);
}

static void show(struct invocation *inv, const struct result *x, bool markdown, const struct gp_error *worst) {
    size_t changed = 0, failed = 0;
    if (inv->common->json) {
        show_json(inv, x, worst);
        return;
    }
    for (size_t i = 0; i < x->folder.files.len; i++) {
        show_one(&x->all[i], markdown);
        changed += x->all[i].plan.changes;
        failed += x->all[i].err.code != GP_OK;
    }
    show_skipped(x, markdown);
    show_left(x, markdown);
    if (markdown) return;
    printf("%s: %zu spec%s, %zu with changes", x->folder.dir, x->folder.files.len, x->folder.files.len == 1 ? "" : "s",
           changed);
    if (failed > 0) printf(", %zu failed", failed);
    if (x->prune) printf(", %zu stack%s to destroy", x->left.list.len, x->left.list.len == 1 ? "" : "s");
    putchar('\n');
}

static void plan_one(struct engine *e, struct one *o) {
    int r = engine_plan(e, o->file->spec, &o->plan, &o->err);
    if (r == 0 && !o->plan.changes)
        (void)look_gap_error(&o->plan.looked, "nothing to do in the places looked at", &o->err);
}

int unit_plan(struct invocation *inv, const char *dir, bool prune, bool markdown, struct gp_error *err) {
    struct result x = {.prune = prune};
    struct gp_error worst = {0};
    struct engine *e = NULL;
    int r = unit_open(inv, dir, prune, &x.folder, err);
    if (r == 0) r = app_engine(inv, &e, err);
    if (r != 0) {
        GP_AUTO_STR struct str text = {0};
        if (markdown) plan_markdown_error(dir, err, &inv->app->problems, &text);
        if (text.s != NULL) fputs(text.s, stdout);
        unit_folder_clear(&x.folder);
        return r;
    }
    e->opts.unit = x.folder.name;
    x.all = xcalloc(x.folder.files.len, sizeof *x.all);
    for (size_t i = 0; i < x.folder.files.len && worst.code != GP_ECANCELLED; i++) {
        struct one *o = &x.all[i];
        o->file = &x.folder.files.items[i];
        plan_one(e, o);
        x.changes = x.changes || o->plan.changes;
        struct gp_error named = o->err;
        if (named.code != GP_OK) gp_wrap(&named, "%s", o->file->path);
        unit_keep_worst(&worst, &named);
        if (o->err.code == GP_ECANCELLED) worst = o->err;
    }
    if (prune && worst.code != GP_ECANCELLED) {
        (void)unit_find_left(e, &x.folder, &x.left, &x.left_err);
        unit_keep_worst(&worst, &x.left_err);
    }
    x.changes = x.changes || x.left.list.len > 0;
    if (worst.code != GP_ECANCELLED) show(inv, &x, markdown, &worst);
    inv->exit_code = x.changes ? 2 : 0;
    e->opts.unit = NULL;
    for (size_t i = 0; i < x.folder.files.len; i++) plan_clear(&x.all[i].plan);
    free(x.all);
    unit_left_clear(&x.left);
    unit_folder_clear(&x.folder);
    *err = worst;
    return -(int)worst.code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov plan [SPEC|DIR]: prints the changes that `up` would make, their price per hour, and who enforces the
 * deadline. Exits 2 if there are changes. */
#include "base/gp_base.h"

#include "show/plan_show.h"
#include "unit/unit.h"

#include "engine/plan_file.h"

struct opts {
    bool accept_new_host_key, markdown, prune;
    const char *out;
};
static const struct opt options[] = {{.name = "out",
                                      .letter = 'o',
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, out),
                                      .arg = "FILE",
                                      .help = "write the plan to FILE (0600): 'gpuprov up FILE' does exactly that"},
                                     {.name = "markdown",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, markdown),
                                      .help = "the plan as Markdown, for a comment on a pull request"},
                                     {.name = "prune",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, prune),
                                      .help = "DIR: also list stacks of its unit that are no longer in it"},
                                     {.name = "accept-new-host-key",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, accept_new_host_key),
                                      .help = "ssh: plan with hosts whose key 'gpuprov up' would accept, too"},
                                     {0}};

static void show_markdown_error(const struct invocation *inv, const char *what, const struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_STR struct str text = {0};
    if (!o->markdown) return;
    plan_markdown_error(what, err, &inv->app->problems, &text);
    fputs(text.s, stdout);
}

static void show(struct invocation *inv, const struct spec *spec, const struct plan *plan, int r,
                 const struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (inv->common->json) {
        json_t *j = plan_json(spec, plan);
        if (o->out != NULL) json_object_set_new(j, "plan_file", r == 0 ? json_any_text(o->out) : json_null());
        if (r != 0) result_error(inv, j, err);
        print_json(j);
    } else if (o->markdown) {
        GP_AUTO_STR struct str text = {0};
        plan_markdown(spec, plan, spec->path, &text);
        fputs(text.s, stdout);
        if (r != 0) show_markdown_error(inv, spec->name, err);
    } else {
        plan_show(spec, plan, stdout);
        GP_AUTO_FREE char *out = xstrdup(o->out);
        if (out != NULL) str_one_line(out);
        if (out != NULL && r == 0) printf("the plan is in %s: 'gpuprov up %s' does exactly that\n", out, out);
    }
}

static int plan_one(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const char *arg = inv->n_args > 0 ? inv->args[0] : NULL;
    GP_AUTO_SPEC struct spec *spec = NULL;
    if (o->prune) return gp_fail(err, GP_EUSAGE, "plan: --prune takes a folder of specs");
    GP_AUTO_FREE char *unit = NULL;
    int r = app_spec_secrets(inv, arg, &spec, err);
    struct engine *e = NULL;
    if (r == 0) r = unit_of_spec(arg != NULL ? arg : spec->path, &unit, err);
    if (r == 0) r = app_engine(inv, &e, err);
    struct plan plan = {0};
    if (r == 0) {
        e->opts.unit = unit;
        r = engine_plan(e, spec, &plan, err);
        e->opts.unit = NULL;
    }
    if (r != 0) {
        show_markdown_error(inv, spec != NULL ? spec->name : arg != NULL ? arg : "gpuprov.yaml", err);
        return r;
    }
    inv->exit_code = plan.changes ? 2 : 0;
    if (!plan.changes) r = look_gap_error(&plan.looked, "nothing to do in the places looked at", err);
    if (r == 0 && o->out != NULL)
        r = plan_file_write(o->out, arg != NULL && strcmp(arg, "-") == 0 ? NULL : spec->path, unit, spec, &plan, err);
    show(inv, spec, &plan, r, err);
    plan_clear(&plan);
    return r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    if (o->markdown && inv->common->json) return gp_fail(err, GP_EUSAGE, "plan: give --json or --markdown, not both");
    if (inv->n_args == 0 || !unit_is_folder(inv->args[0])) return plan_one(inv, err);
    if (o->out != NULL)
        return gp_fail(err, GP_EUSAGE, "plan: -o takes one spec, and '%s' is a folder: plan its files one by one",
                       inv->args[0]);
    return unit_plan(inv, inv->args[0], o->prune, o->markdown, err);
}

const struct verb verb_plan = {
    .name = "plan",
    .argspec = "[SPEC|DIR]",
    .help = "lists the changes 'up' would make and their price; exit 2 on changes",
    .details = VERB_SPEC_DETAILS VERB_FOLDER_DETAILS,
    .examples = "  gpuprov plan gpuprov.yaml\n"
                "  gpuprov plan --json gpuprov.yaml   # exit code 2: there are changes\n"
                "  gpuprov plan -o llm.plan gpuprov.yaml   # 'gpuprov up llm.plan' does exactly that\n"
                "  gpuprov plan --prune specs/        # every spec of a folder, and stacks that left it\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};

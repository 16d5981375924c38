/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov checks [NAME]: prints the check table, or the section of one check. */
#include "base/gp_base.h"

#include "app.h"

#include "software/software.h"
#include "validate/validate.h"

struct opts {
    bool markdown, models, software;
};
static const struct opt options[] = {{.name = "markdown",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, markdown),
                                      .help = "print the table as docs/checks.md has it"},
                                     {.name = "models",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, models),
                                      .help = "print the figures of each GPU model as docs/gpu-models.md has them"},
                                     {.name = "software",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, software),
                                      .help = "print the versions that fit together as docs/software.md has them"},
                                     {0}};

static const char *level_name(enum check_level l) {
    switch (l) {
    case CHECK_NODE: return "node";
    case CHECK_GPU: return "gpu";
    case CHECK_GANG: return "gang";
    }
    return "?";
}

static int print_one(struct invocation *inv, const char *id, struct gp_error *err) {
    const char *names[64] = {NULL};
    for (size_t i = 0; i < check_count() && i + 1 < GP_ARRAY_LEN(names); i++) names[i] = check_table[i].id;
    const struct check_info *c = check_find(id);
    const char *near = c == NULL ? str_closest(id, names) : NULL;
    if (c == NULL && near != NULL)
        return gp_fail(err, GP_EUSAGE, "there is no check '%s'; did you mean '%s'?", id, near);
    if (c == NULL) return gp_fail(err, GP_EUSAGE, "there is no check '%s'; 'gpuprov checks' lists them", id);
    GP_AUTO_FREE char *text = check_markdown(c);
    if (inv->common->json) print_text(inv, "markdown", text);
    else show_markdown(text, stdout);
    return 0;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (inv->n_args > 0 && (o->markdown || o->models || o->software))
        return gp_fail(err, GP_EUSAGE, "a page is printed whole: omit '%s'", inv->args[0]);
    if (inv->n_args > 0) return print_one(inv, inv->args[0], err);
    if (o->markdown) {
        GP_AUTO_FREE char *text = checks_markdown();
        print_text(inv, "markdown", text);
        return 0;
    }
    if (o->models) {
        GP_AUTO_FREE char *text = models_markdown();
        print_text(inv, "markdown", text);
        return 0;
    }
    if (o->software) {
        GP_AUTO_FREE char *text = software_markdown();
        print_text(inv, "markdown", text);
        return 0;
    }
    json_t *list = json_array();
    struct table t = {0};
    table_head(&t, "check", "level", "seconds", "required", "finds", NULL);
    for (const struct check_info *c = check_table; c->id != NULL; c++) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", check_stated(c, GPUS_USUAL) + c->longer);
        table_row(&t, c->id, level_name(c->level), seconds,
                  c->core       ? "always"
                  : c->required ? "yes"
                                : "no",
                  c->finds, NULL);
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:b, s:s}", "id", c->id, "level", level_name(c->level),
                                              "seconds", check_stated(c, GPUS_USUAL) + c->longer, "required",
                                              (int)c->required, "finds", c->finds));
    }
    if (inv->common->json) print_json(json_pack("{s:O}", "checks", list));
    else table_print(&t, stdout);
    json_decref(list);
    table_clear(&t);
    return 0;
}

const struct verb verb_checks = {
    .name = "checks",
    .argspec = "[NAME]",
    .help = "lists the checks of a validation, or explains one",
    .details = "  required: yes: where the check applies and fits the time; always: 'up' never leaves it out for\n"
               "  lack of time; no: only if 'validate.require' names it. 'gpuprov checks NAME' lists what it needs.\n",
    .examples = "  gpuprov checks\n"
                "  gpuprov checks gpu.memory       # what one check does\n"
                "  gpuprov checks --models         # figures and limits of each GPU model\n"
                "  gpuprov checks --software       # drivers, CUDA and wheels that fit together\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_PLAIN,
};

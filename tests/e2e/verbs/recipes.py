# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/how-it-works.md, "How to add something", followed for dummies named `recipe`: which
files each adds and which rows. test_recipes.py applies them to a copy of the tree."""
import re


class Recipe:
    """new: {path: text}; rows: {path: [(pattern, text)]}: text goes behind the first match of pattern."""

    def __init__(self, rows, new=None):
        self.new, self.rows = new or {}, rows

    def apply(self, root):
        for path, text in self.new.items():
            assert not (root / path).exists(), f"{path} is there already"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        for path, edits in self.rows.items():
            text = (root / path).read_text()
            for pattern, row in edits:
                m = re.search(pattern, text, re.M)
                assert m, f"{path} has no place for the row: nothing matches {pattern!r}"
                text = text[:m.end()] + row + text[m.end():]
            (root / path).write_text(text)


PROVIDER = r'''/* SPDX-License-Identifier: Apache-2.0 */
/* A provider with one offer and no machines. */
#include "base/gp_base.h"

#include "providers/provider.h"

struct recipe_provider {
    struct provider base;
};

static int recipe_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    (void)err;
    struct recipe_provider *r = xcalloc(1, sizeof *r);
    r->base.ops = &provider_recipe;
    r->base.owner = xstrdup(env->owner != NULL ? env->owner : "me");
    *ret = &r->base;
    return 0;
}

static void recipe_close(struct provider *p) {
    if (p == NULL) return;
    free(p->owner);
    free(p);
}

static int recipe_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                         struct gp_error *err) {
    (void)p, (void)err;
    struct offer o = {.spec_index = index,
                      .provider = xstrdup("recipe"),
                      .region = xstrdup("kitchen"),
                      .zone = xstrdup(""),
                      .instance_type = xstrdup("pan"),
                      .market = MARKET_ON_DEMAND,
                      .image = xstrdup(""),
                      .image_name = xstrdup("none"),
                      .subnet = xstrdup(""),
                      .gpu_model = xstrdup(""),
                      .price_usd_per_h = 0.25,
                      .price_source = xstrdup("made up"),
                      .max_count = spec->nodes};
    vec_push(&ret->list, o);
    return 0;
}

static int recipe_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    (void)p, (void)req;
    return gp_fail(err, GP_ECAPACITY, "the kitchen is closed");
}

static int recipe_create(struct provider *p, const struct create_req *req, struct resource_list *ret,
                         struct gp_error *err) {
    (void)p, (void)req, (void)ret;
    return gp_fail(err, GP_ECAPACITY, "the kitchen is closed");
}

static int recipe_list(struct provider *p, const struct list_req *req, struct resource_list *ret,
                       struct gp_error *err) {
    (void)p, (void)ret, (void)err;
    if (req->looked != NULL) coverage_put(req->looked, "recipe", "kitchen", req->owner, false, NULL);
    return 0;
}

static int recipe_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    (void)p, (void)what, (void)err;
    return 0;
}

static const struct spec_provider_key keys[] = {{0}};
static const struct spec_provider spec = {.name = "recipe", .doc = "a kitchen", .keys = keys};

const struct provider_ops provider_recipe = {
    .name = "recipe",
    .spec = &spec,
    .summary = "a provider by the recipe",
    .ends = ENDS_SERVER,
    .image_refusal = "a pan has no image",
    .policy_refusal = "everybody may cook",
    .poll_ms = 1000,
    .boot_timeout_ms = 1000,
    .unique_claim = true,
    .open = recipe_open,
    .close = recipe_close,
    .offers = recipe_offers,
    .prepare = recipe_prepare,
    .create = recipe_create,
    .list = recipe_list,
    .destroy = recipe_destroy,
};
'''

STARTER = """name: train

offers:
  - provider: recipe
"""

PROVIDER_PAGE = """# The recipe provider

This page describes a kitchen. It is for people who cook.
"""

STEP = r'''# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# A file that says that the recipe was followed.
probe() {
    [ -e "$HOME/recipe-was-here" ] || return 10
}
apply() {
    touch "$HOME/recipe-was-here"
}
verify() {
    [ -e "$HOME/recipe-was-here" ] || fail 'recipe-was-here is missing'
}
'''

CHECK = r'''/* SPDX-License-Identifier: Apache-2.0 */
/* host.recipe: one and one. */
#include "base/gp_base.h"

#include "validate/agent/checks/host/host.h"

void recipe_run(struct check_ctx *c, struct agent_result *r) {
    (void)c;
    agent_metric(r, "sum", 2);
    agent_say(r, "one and one is two");
}
'''

CHECK_ROW = r'''{.id = "host.recipe",
 .level = CHECK_NODE,
 .seconds = 1,
 .required = true,
 .core = true,
 .finds = "arithmetic that fails",
 .how = "adds one and one",
 .suggestion = "replace the node",
 .metrics = {{.name = "sum", .unit = "items", .fail = 1.5, .degraded = -1, .source = "own: arithmetic"}}},
'''

FORM = r'''/* SPDX-License-Identifier: Apache-2.0 */
/* A report in one line. */
#include "base/gp_base.h"

#include "report_forms.h"

static int write_recipe(const struct report *r, const struct report_style *style, struct str *out,
                        struct gp_error *err) {
    (void)style, (void)err;
    str_addf(out, "recipe of %s\n", r->stack);
    return 0;
}

const struct report_ops report_form_recipe = {.name = "recipe", .extension = "rcp", .write = write_recipe};
'''

EXPORT = r'''/* SPDX-License-Identifier: Apache-2.0 */
/* A stack in one line. */
#include "base/gp_base.h"

#include "export_forms.h"

static int write_recipe(const struct export_stack *s, struct str *out, struct gp_error *err) {
    (void)err;
    str_addf(out, "recipe of %s\n", s->name);
    return 0;
}

const struct export_form export_form_recipe = {.name = "recipe", .write = write_recipe};
'''

VERB = r'''/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov recipe WORD: prints WORD. */
#include "base/gp_base.h"

#include "app.h"

static int run(struct invocation *inv, struct gp_error *err) {
    (void)err;
    if (inv->common->json) print_json(json_pack("{s:s}", "word", inv->args[0]));
    else printf("the word is %s\n", inv->args[0]);
    return 0;
}

const struct verb verb_recipe = {
    .name = "recipe",
    .argspec = "WORD",
    .help = "prints a word",
    .examples = "  gpuprov recipe egg\n",
    .run = run,
    .min_args = 1,
    .max_args = 1,
    .flags = VERB_PLAIN,
};
'''

MODEL_ROWS = "model\trecipe9\tRecipe 9\nname\trecipe9\tRecipe 9\nspec\trecipe9\tds\tmemory_gib=7\n"

BRANCH_ROW = '    {"999", "999.10.01", "13.5", 75, 121, false, true, NULL, NULL, "the recipe of the tests"},\n'

KEY_ROW = r'''
    {.name = "recipe", .type = SPEC_INT, .offset = offsetof(struct spec, recipe), .def = "3",
     .doc = "how many eggs", .example = "4", .min = 1, .max = 9},'''

# By the first column of the table.
RECIPES = {
    "a provider": Recipe(
        new={"providers/recipe/recipe.c": PROVIDER, "docs/recipe.md": PROVIDER_PAGE, "templates/init/recipe.yaml": STARTER},
        rows={"providers/provider.h": [(r"row\(aws\)", " row(recipe)")],
              "docs/providers.md": [(r"^\| \[`aws`\].*\n", "| [`recipe`](recipe.md) | a kitchen | the provider |\n")]}),
    "a bootstrap step": Recipe(
        new={"templates/bootstrap/recipe.sh": STEP},
        rows={"bootstrap/steps.c": [(r'^ *\{\.name = "agent".*\n', '    {.name = "recipe", .file = "recipe"},\n')]}),
    "a check": Recipe(
        new={"validate/agent/checks/host/host_recipe.c": CHECK},
        rows={"validate/suite/rows/host.inc": [(r"^/\* Rows of .*\n", CHECK_ROW)],
              "validate/agent/checks/host/host_checks.c": [
                  (r"host_checks\[\] = \{\n", '    {.id = "host.recipe", .run = recipe_run},\n')],
              "validate/agent/checks/host/host.h": [
                  (r"^void disk_run.*\n", "void recipe_run(struct check_ctx *c, struct agent_result *r);\n")]}),
    "a GPU model, or a figure of one": Recipe(
        rows={"validate/suite/gpu_models.tsv": [(r"\Z", MODEL_ROWS)]}),
    "a driver branch, CUDA, cuDNN, NCCL, system or kernel": Recipe(
        rows={"core/software/table.c": [(r"software_branches\[\] = \{\n", BRANCH_ROW)]}),
    "a form of the report": Recipe(
        new={"core/output/report_recipe.c": FORM},
        rows={"core/output/report_forms.h": [(r"next\(html\)", " \\\n    next(recipe)")]}),
    "a form of an export": Recipe(
        new={"core/output/export_recipe.c": EXPORT},
        rows={"core/output/export_forms.h": [(r"next\(terraform\)", " next(recipe)")]}),
    "a verb": Recipe(
        new={"cmd/verb_recipe.c": VERB},
        rows={"cmd/verbs.h": [(r"row\(version\)", " \\\n    row(recipe)")]}),
    "a key of the spec": Recipe(
        rows={"core/spec/spec.h": [(r"^struct spec \{\n", "    int recipe;\n")],
              "core/spec/spec_tables.c": [(r"root_fields\[\] = \{", KEY_ROW)]}),
}

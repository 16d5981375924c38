/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov bake [SPEC]: makes an image of one bootstrapped and validated node of the spec. */
#include "base/gp_base.h"

#include "cmd/ask/confirm.h"
#include "show/image_show.h"
#include "show/plan_show.h"
#include "show/reports.h"

#include <unistd.h>

struct opts {
    bool yes, again;
    int64_t lock_timeout_ms;
};
static const struct opt options[] = {YES_ROW(struct opts, yes),
                                     {.name = "again",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, again),
                                      .help = "make another image although one that fits exists"},
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     {0}};

struct approval {
    struct invocation *inv;
    struct app_work *work;
    char *stack; /* of the node */
};

/* The plan is that of one node in a stack of its own; the spec of that stack has the same other texts as the user's. */
static int approve(void *ctx, const struct plan *plan, struct gp_error *err) {
    struct approval *a = ctx;
    struct invocation *inv = a->inv;
    const struct opts *o = inv->opts;
    bool ask = plan->changes && !o->yes && confirm_can_ask(inv);
    if (inv->common->json && plan->changes && !o->yes && isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1)
        return gp_fail(err, GP_EUSAGE, "--json requests no confirmation on a terminal: add --yes");
    if (inv->common->json || !plan->changes || (inv->common->quiet && !ask)) return 0;
    app_progress_end(a->work->e, &a->work->p);
    struct spec one = *a->work->spec; /* borrows everything */
    one.name = a->stack;
    one.nodes = 1;
    plan_show(&one, plan, stderr);
    int r = 0;
    if (ask) {
        GP_AUTO_FREE char *question = xasprintf("Launch one node and bake an image for '%s'?", a->work->spec->name);
        r = confirm_ask(a->work->e, question, err);
    }
    return r == 0 ? app_progress(inv, a->work->e, a->stack, 1, &a->work->p, err) : r;
}

static void show(struct invocation *inv, const struct bake_result *res, int r, const struct gp_error *err) {
    bool made = res->image.id != NULL && res->image.state == RES_RUNNING;
    if (inv->common->json) {
        json_t *j = json_object();
        json_object_set_new(j, "image", made ? image_json(&res->image) : json_null());
        json_object_set_new(j, "reused", json_boolean(made && res->reused));
        json_object_set_new(j, "stack", json_string(res->stack));
        json_object_set_new(j, "report", res->report.nodes.len > 0 ? report_to_json(&res->report) : json_null());
        if (r != 0) result_error(inv, j, err);
        print_json(j);
        return;
    }
    if (res->report.nodes.len > 0 && err->code != GP_ECANCELLED) {
        GP_AUTO_STR struct str text = {0};
        const struct report_style style = output_style(stdout);
        report_brief(&res->report, &style, &text);
        fputs(text.s, stdout);
    }
    if (!made) return;
    GP_AUTO_RESOURCES struct resource_list one = {0};
    resource_list_add(&one, &res->image);
    show_images(&one, stdout);
    if (res->reused) puts("nothing to do: this image fits the spec; --again makes another one");
    else puts("'image: baked' in a spec uses it");
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    app_lock_timeout(inv, o->lock_timeout_ms);
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, true, &w, err);
    if (r != 0) return r;
    struct bake_req req = {.spec = w.spec, .again = o->again};
    struct bake_result res = {0};
    struct approval a = {.inv = inv, .work = &w, .stack = bake_stack_name(w.spec->name)};
    w.e->approve = approve;
    w.e->approve_ctx = &a;
    r = engine_bake(w.e, &req, &res, err);
    w.e->approve = NULL;
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    show(inv, &res, r, err);
    bake_result_clear(&res);
    free(a.stack);
    return r;
}

const struct verb verb_bake = {
    .name = "bake",
    .argspec = "[SPEC]",
    .help = "makes an image of one bootstrapped and validated node",
    .details = VERB_SPEC_DETAILS
    "  It launches one node of the spec on demand, as the stack NAME-bake, bootstraps and validates it,\n"
    "  removes identity, logins and secrets from it, makes an image and destroys the node. A spec with\n"
    "  'image: baked' uses the newest image that fits. If an image fits already, nothing is launched.\n"
    "  A failed node stays: 'gpuprov bake' continues with it, 'gpuprov down NAME-bake' destroys it.\n",
    .examples = "  gpuprov bake gpuprov.yaml\n"
                "  gpuprov bake --again --yes gpuprov.yaml   # with today's packages\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov gc [PROVIDER]: finds and ends what outlived its deadline, in every region. */
#include "base/gp_base.h"

#include "app.h"

#include "providers/provider.h"

struct opts {
    bool dry_run;
};
static const struct opt options[] = {
    {.name = "dry-run", .letter = 'n', .type = OPT_FLAG, .offset = offsetof(struct opts, dry_run),
     .help = "only lists what would be ended"},
    {0}};

static int check_provider(const char *name, struct gp_error *err) {
    if (provider_find(name) != NULL) return 0;
    GP_AUTO_STRV struct strv names = {0};
    for (size_t i = 0; provider_registry[i] != NULL; i++)
        strv_add(&names, provider_registry[i]->name);
    GP_AUTO_FREE char *list = strv_join(&names, ", ");
    return gp_fail(err, GP_EUSAGE, "unknown provider '%s'; there are: %s", name, list);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const char *provider = inv->n_args == 1 ? inv->args[0] : NULL;
    int r = 0;
    if (provider != NULL && (r = check_provider(provider, err)) != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    struct progress *p = NULL;
    if ((r = app_progress(inv, e, "gc", 0, &p, err)) != 0) return r;
    struct gc_result res = {0};
    r = engine_gc(e, provider, o->dry_run, &res, err);
    app_progress_end(e, &p);
    if (inv->common->json) {
        json_t *j = json_pack("{s:b, s:o, s:o}", "dry_run", (int)o->dry_run, "ended",
                              resources_json(&res.ended), "kept", resources_json(&res.kept));
        if (r != 0) result_error(inv, j, err);
        print_json(j);
    } else {
        if (res.ended.list.len > 0) show_resources(&res.ended, stdout);
        printf("gc: %zu %s, %zu %s\n", res.ended.list.len,
               o->dry_run ? "would be ended" : "ended", res.kept.list.len,
               r == 0 ? "within their deadline" : "still there");
    }
    gc_result_clear(&res);
    return r;
}

const struct verb verb_gc = {
    .name = "gc",
    .argspec = "[PROVIDER]",
    .help = "finds and ends what outlived its deadline, in every region",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};

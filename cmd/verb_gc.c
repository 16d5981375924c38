/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov gc [PROVIDER]: finds and destroys resources past their deadline, in every region. */
#include "base/gp_base.h"

#include "app.h"

#include "providers/provider.h"

struct opts {
    bool dry_run;
    int64_t lock_timeout_ms;
    const char *in;
};
static const struct opt options[] = {{.name = "dry-run",
                                      .letter = 'n',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, dry_run),
                                      .help = "only list what would be destroyed"},
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     PLACES_ROW(struct opts, in),
                                     {0}};

static int check_provider(const char *name, struct gp_error *err) {
    if (provider_find(name) != NULL) return 0;
    GP_AUTO_STRV struct strv names = {0};
    for (size_t i = 0; provider_registry[i] != NULL; i++) strv_add(&names, provider_registry[i]->name);
    GP_AUTO_FREE char *list = strv_join(&names, ", ");
    return gp_fail(err, GP_EUSAGE, "unknown provider '%s'; known: %s", name, list);
}

static void show_part(const char *title, const struct resource_list *l) {
    if (l->list.len == 0) return;
    printf("%s:\n", title);
    show_stacks_of(l, stdout);
}

static void show(struct invocation *inv, const struct gc_result *res, bool dry_run, int r, const struct gp_error *err) {
    if (inv->common->json) {
        json_t *j =
            json_pack("{s:b, s:o, s:o, s:o, s:o, s:b}", "dry_run", (int)dry_run, "ended", resources_json(&res->ended),
                      "kept", resources_json(&res->kept), "unreadable", resources_json(&res->unreadable), "looked",
                      looked_json(&res->looked), "complete", (int)(r == 0 && coverage_whole(&res->looked)));
        if (r != 0) result_error(inv, j, err);
        print_json(j);
        return;
    }
    show_part(dry_run ? "would be destroyed" : "destroyed (with the state before)", &res->ended);
    show_part("kept", &res->kept);
    show_unreadable(&res->unreadable, stdout);
    printf("gc: %zu %s, %zu %s%s\n", res->ended.list.len, dry_run ? "would be destroyed" : "destroyed",
           res->kept.list.len, r == 0 ? "within their deadline" : "seen and kept",
           coverage_whole(&res->looked) ? "" : "; other places are not known");
    show_looked(&res->looked, stdout);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const char *provider = inv->n_args == 1 ? inv->args[0] : NULL;
    struct engine *e = NULL;
    struct progress *p = NULL;
    int r = provider != NULL ? check_provider(provider, err) : 0;
    app_lock_timeout(inv, o->lock_timeout_ms);
    if (r == 0) r = app_places(inv, o->in, err);
    if (r == 0) r = app_engine(inv, &e, err);
    if (r == 0) r = app_progress(inv, e, "gc", 0, &p, err);
    if (r != 0) return r;
    struct gc_result res = {0};
    r = engine_gc(e, provider, o->dry_run, &res, err);
    app_progress_end(e, &p);
    show(inv, &res, o->dry_run, r, err);
    gc_result_clear(&res);
    return r;
}

const struct verb verb_gc = {
    .name = "gc",
    .argspec = "[PROVIDER]",
    .help = "finds and destroys resources past their deadline, in every region",
    .examples = "  gpuprov gc --dry-run               # only list what is past its deadline\n"
                "  gpuprov gc --in aws/us-east-1\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_NOTIFIES | VERB_ENDS,
};

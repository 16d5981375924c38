/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov down STACK|SPEC: destroys everything the stack owns and verifies that it is gone. */
#include "base/gp_base.h"

#include "app.h"
#include "cmd/ask/confirm.h"

#include "base/json.h"

static void show_count(int n, const char *what, const char *how, bool *first) {
    if (n > 0) printf("%s%d %s%s %s", *first ? "" : ", ", n, what, n == 1 ? "" : "s", how);
    *first = *first && n == 0;
}

/* true: every place was looked at and nothing is left; false: something is left; null: not known. */
static json_t *gone_json(const struct down_result *res, int r) {
    if (res->left.list.len > 0) return json_false();
    bool billed = false;
    for (size_t i = 0; i < res->unreadable.list.len; i++) billed = billed || res->unreadable.list.items[i].billed;
    return r == 0 && !billed && coverage_whole(&res->looked) ? json_true() : json_null();
}

static void show_json(struct invocation *inv, const char *name, const struct down_result *res, int r,
                      const struct gp_error *err) {
    json_t *j =
        json_pack("{s:s, s:o, s:i, s:i, s:o, s:o, s:o, s:o}", "stack", name, "owner",
                  res->owner != NULL ? json_any_text(res->owner) : json_null(), "destroyed", res->destroyed, "released",
                  res->released, "left", resources_json(&res->left), "unreadable", resources_json(&res->unreadable),
                  "looked", looked_json(&res->looked), "gone", gone_json(res, r));
    if (r != 0) result_error(inv, j, err);
    print_json(j);
}

static void show_ended(const char *name, const struct down_result *res) {
    if (res->left.list.len == 0 && res->destroyed + res->released == 0) {
        printf("%s: nothing was found\n", name);
        return;
    }
    bool first = true;
    printf("%s: ", name);
    show_count(res->destroyed, "resource", "destroyed", &first);
    show_count(res->released, "host", "released", &first);
    if (first) printf("nothing could be destroyed yet");
    printf(res->left.list.len > 0 ? "; the above is left and not billed: 'gpuprov gc' destroys it\n"
                                  : ", nothing is left\n");
}

static void show(struct invocation *inv, const char *name, const struct down_result *res, int r,
                 const struct gp_error *err) {
    if (inv->common->json) {
        show_json(inv, name, res, r, err);
        return;
    }
    if (res->left.list.len > 0) show_resources(&res->left, stdout);
    show_unreadable(&res->unreadable, stdout);
    if (r == 0) show_ended(name, res);
    show_looked(&res->looked, stdout);
}

/* Hosts that existed before go back as they are. */
static bool all_lent(const struct resource_list *l) {
    for (size_t i = 0; i < l->list.len; i++)
        if (l->list.items[i].kind != RES_HOST) return false;
    return true;
}

static void show_dry_run(struct invocation *inv, const char *name, const struct down_result *res, int r,
                         const struct gp_error *err) {
    if (inv->common->json) {
        json_t *j = json_pack("{s:s, s:o, s:b, s:o, s:o, s:o, s:o}", "stack", name, "owner",
                              res->owner != NULL ? json_any_text(res->owner) : json_null(), "dry_run", 1,
                              "would_be_destroyed", resources_json(&res->would), "elsewhere",
                              res->elsewhere != NULL ? json_any_text(res->elsewhere) : json_null(), "unreadable",
                              resources_json(&res->unreadable), "looked", looked_json(&res->looked));
        if (r != 0) result_error(inv, j, err);
        print_json(j);
        return;
    }
    if (res->would.list.len > 0) {
        puts(all_lent(&res->would) ? "would be released:" : "would be destroyed:");
        show_stacks_of(&res->would, stdout);
    } else if (r == 0) {
        printf("%s: nothing was found\n", name);
    }
    if (res->elsewhere != NULL)
        printf("this spec has no offer at %s: without --yes, 'down' requests a confirmation for that\n",
               res->elsewhere);
    show_unreadable(&res->unreadable, stdout);
    show_looked(&res->looked, stdout);
}

struct opts {
    bool dry_run, yes;
    int64_t lock_timeout_ms;
    const char *in;
};
static const struct opt options[] = {{.name = "dry-run",
                                      .letter = 'n',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, dry_run),
                                      .help = "only list what would be destroyed"},
                                     YES_ROW(struct opts, yes),
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     PLACES_ROW(struct opts, in),
                                     {0}};

struct question {
    struct invocation *inv;
    struct app_work *w;
};

/* Progress pauses: its live area and the question would overwrite each other. */
static int confirm(void *ctx, const char *question, struct gp_error *err) {
    struct question *q = ctx;
    app_progress_end(q->w->e, &q->w->p);
    int r = confirm_ask(q->w->e, question, err);
    return r == 0 ? app_progress(q->inv, q->w->e, q->w->name, 0, &q->w->p, err) : r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_WORK struct app_work w = {0};
    app_lock_timeout(inv, o->lock_timeout_ms);
    int r = app_places(inv, o->in, err);
    if (r == 0) r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    struct question q = {inv, &w};
    struct down_req req = {.name = w.name, .spec = w.spec, .dry_run = o->dry_run, .yes = o->yes, .ctx = &q};
    if (confirm_can_ask(inv)) req.confirm = confirm;
    struct down_result res = {0};
    r = engine_down(w.e, &req, &res, err);
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    if (o->dry_run) show_dry_run(inv, w.name, &res, r, err);
    else show(inv, w.name, &res, r, err);
    down_result_clear(&res);
    return r;
}

const struct verb verb_down = {
    .name = "down",
    .argspec = "STACK|SPEC",
    .help = "destroys everything the stack owns and verifies that it is gone",
    .details = VERB_TARGET_DETAILS
    "  The result names the places that were looked at. If one of them could not be read and something\n"
    "  there may be billed, the exit code is 8. A SPEC without an offer where the stack has something\n"
    "  is asked about on a terminal, and refused elsewhere, unless it is the spec of the launch.\n",
    .examples = "  gpuprov down --dry-run try         # list what would be destroyed\n"
                "  gpuprov down try-local\n"
                "  gpuprov down gpuprov.yaml          # works without a journal: the tags name the resources\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .flags = VERB_NOTIFIES | VERB_ENDS,
};

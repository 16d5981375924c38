/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov down STACK|SPEC: destroys everything the stack owns and proves that it is gone. */
#include "base/gp_base.h"

#include "app.h"

static void show_count(int n, const char *what, const char *how, bool *first) {
    if (n > 0) printf("%s%d %s%s %s", *first ? "" : ", ", n, what, n == 1 ? "" : "s", how);
    *first = *first && n == 0;
}

static void show(struct invocation *inv, const char *name, const struct down_result *res, int r,
                 const struct gp_error *err) {
    if (inv->common->json) {
        json_t *j = json_pack("{s:s, s:i, s:i, s:o, s:b}", "stack", name, "destroyed",
                              res->destroyed, "released", res->released, "left", resources_json(&res->left), "gone",
                              (int)(r == 0 && res->left.list.len == 0));
        if (r != 0) result_error(inv, j, err);
        print_json(j);
        return;
    }
    if (res->left.list.len > 0) show_resources(&res->left, stdout);
    if (r != 0) return;
    if (res->left.list.len == 0 && res->destroyed + res->released == 0) {
        printf("%s: nothing was there\n", name);
        return;
    }
    bool first = true;
    printf("%s: ", name);
    show_count(res->destroyed, "resource", "ended", &first);
    show_count(res->released, "host", "released", &first);
    if (first) printf("nothing could be ended yet");
    printf(res->left.list.len > 0 ? "; the above is left and not billed: 'gpuprov gc' ends it\n"
                                  : ", nothing is left\n");
}

static int run(struct invocation *inv, struct gp_error *err) {
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    struct down_result res = {0};
    r = engine_down(w.e, w.name, w.spec, &res, err);
    app_progress_end(w.e, &w.p);
    show(inv, w.name, &res, r, err);
    down_result_clear(&res);
    return r;
}

const struct verb verb_down = {
    .name = "down",
    .argspec = "STACK|SPEC",
    .help = "destroys everything the stack owns and proves that it is gone",
    .run = run,
    .min_args = 1,
    .max_args = 1,
};

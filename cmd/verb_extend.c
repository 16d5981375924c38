/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov extend STACK|SPEC TIME: moves the deadline of a stack with nodes. */
#include "base/gp_base.h"

#include "app.h"

#include "base/json.h"

struct opts {
    int64_t lock_timeout_ms;
};
static const struct opt options[] = {LOCK_ROW(struct opts, lock_timeout_ms), {0}};

/* "2h" is from now on, "+2h" is added to the present deadline. */
static int read_time(const char *text, struct extend_req *req, struct gp_error *err) {
    req->add = text[0] == '+';
    if (duration_parse(text + req->add, &req->by_ms) && req->by_ms >= 1000) return 0;
    return gp_fail(err, GP_EUSAGE, "'%.40s' is not a time: write 2h for two hours from now, or +2h for two hours more",
                   text);
}

static void show(struct invocation *inv, const struct extend_result *res, int r, const struct gp_error *err) {
    char was[40], now[40], left[32];
    if (inv->common->json) {
        json_t *j = json_pack("{s:s, s:o, s:o, s:b, s:o, s:o}", "stack", res->stack, "was", time_json(res->was_s),
                              "expires", time_json(res->expires_s), "moved", (int)(r == 0), "ends",
                              res->ends != NULL ? json_string(res->ends) : json_null(), "max_usd",
                              res->max_usd < 0 ? json_null() : json_real(res->max_usd));
        if (r != 0) result_error(inv, j, err);
        print_json(j);
        return;
    }
    if (r != 0) return;
    time_format_utc(was, sizeof was, res->was_s);
    time_format_utc(now, sizeof now, res->expires_s);
    duration_format(left, sizeof left, res->left_s * 1000);
    printf("%s: the deadline is %s now, %s from now; it was %s%s", res->stack, now, left, was,
           res->expires_s < res->was_s ? ": the nodes end earlier than before" : "");
    if (res->ends != NULL && ends_text(res->ends)[0] != '\0') printf(" (%s)", ends_text(res->ends));
    printf("\n");
    if (res->max_usd >= 0.005) printf("worst case until the deadline: %.2f USD\n", res->max_usd);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct extend_req req = {0};
    struct extend_result res = {.max_usd = -1};
    GP_AUTO_WORK struct app_work w = {0};
    int r = read_time(inv->args[1], &req, err);
    app_lock_timeout(inv, o->lock_timeout_ms);
    if (r == 0) r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    req.name = w.name;
    req.spec = w.spec;
    r = engine_extend(w.e, &req, &res, err);
    if (w.p != NULL) app_progress_end(w.e, &w.p);
    if (res.stack != NULL) show(inv, &res, r, err);
    extend_result_clear(&res);
    return r;
}

const struct verb verb_extend = {
    .name = "extend",
    .argspec = "STACK|SPEC TIME",
    .help = "moves the deadline of a stack's nodes: 2h from now, or +2h more",
    .details = VERB_TARGET_DETAILS
    "  TIME is from now on: after 'extend try 2h' the nodes end two hours from now. With a '+' it is\n"
    "  added to the present deadline. A deadline may become earlier. At most 30 days from now.\n"
    "  It moves on the nodes, in the tags, then in the journal. If it is cut, the earlier deadline\n"
    "  counts, 'status' reports that, and 'extend' again sets all. If a node does not take the new\n"
    "  deadline, it moves nowhere. limits.max_cost is checked for the longer life.\n",
    .examples = "  gpuprov extend try 2h              # the nodes end two hours from now\n"
                "  gpuprov extend try +30m            # half an hour later than now planned\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 2,
    .max_args = 2,
    .flags = VERB_NOTIFIES,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov logs STACK[/N]: prints the events of a stack or a node, newest last, and follows them; or the output of a
 * step of a node. */
#include "base/gp_base.h"

#include "app.h"
#include "show/job_show.h"

#include "base/json.h"

struct opts {
    bool follow, job;
    const char *step;
};
static const struct opt options[] = {{.name = "follow",
                                      .letter = 'f',
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, follow),
                                      .help = "print new events too, until no gpuprov works on the stack, or Ctrl-C"},
                                     {.name = "step",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, step),
                                      .arg = "NAME",
                                      .help = "print what this bootstrap step of the node has printed"},
                                     {.name = "job",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, job),
                                      .help = "print the log of the newest job; with --follow until the job ends"},
                                     {0}};

static int step_output(struct invocation *inv, const char *name, int slot, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct engine *e = NULL;
    GP_AUTO_STR struct str text = {0};
    if (slot < 0) return gp_fail(err, GP_EUSAGE, "--step needs one node: give '%s/0', for example", name);
    if (o->follow)
        return gp_fail(err, GP_EUSAGE, "--follow and --step exclude each other: --step prints the output so far");
    int r = app_engine(inv, &e, err);
    if (r == 0) r = engine_step_output(e, name, slot, o->step, &text, err);
    if (r != 0) return r;
    if (inv->common->json)
        print_json(json_pack("{s:s, s:i, s:s, s:o}", "stack", name, "node", slot, "step", o->step, "output",
                             json_any_text(text.s != NULL ? text.s : "")));
    else if (text.len > 0) printf("%s%s", text.s, str_ends(text.s, "\n") ? "" : "\n");
    return 0;
}

/* The log of one node, or of all: those that are whole one after the other, while they grow line by line. */
static int job_log(struct invocation *inv, const char *name, int slot, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct engine *e = NULL;
    struct job_result res = {0};
    struct job_printer printer = {.inv = inv, .one = slot >= 0};
    struct job_opts opts = {.slot = slot, .follow = o->follow};
    if (o->step != NULL) return gp_fail(err, GP_EUSAGE, "--job and --step exclude each other");
    job_print_to(&printer, &opts);
    int r = app_engine(inv, &e, err);
    if (r == 0) r = engine_job_log(e, name, NULL, &opts, &res, err);
    if (r == 0) job_show_result(inv, name, &res, NULL, r, err);
    job_result_clear(&res);
    return r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_FREE char *name = NULL;
    int slot = -1;
    int r = app_stack_slot(inv, inv->args[0], &name, &slot, NULL, err);
    if (r != 0) return r;
    if (o->job) return job_log(inv, name, slot, err);
    if (o->step != NULL) return step_output(inv, name, slot, err);
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    return engine_logs(e, name, slot, stdout, inv->common->json, o->follow, err);
}

const struct verb verb_logs = {
    .name = "logs",
    .argspec = "STACK|SPEC[/N]",
    .help = "prints the events of a stack or of one node, the output of a step, or the log of a job",
    .details = VERB_TARGET_DETAILS
    "  The output of a step that failed was kept on this machine, and is for 30 days after its nodes;\n"
    "  any other is read from the node, which keeps the first MiB and the last 64 KiB. Escape sequences\n"
    "  of terminals are left out.\n",
    .examples = "  gpuprov logs try                   # every event of the stack\n"
                "  gpuprov logs -f try                # and those that come\n"
                "  gpuprov logs --step data try/1     # the output of a step on node 1\n"
                "  gpuprov logs --job -f try/1        # the log of the job on node 1, while it runs\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
};

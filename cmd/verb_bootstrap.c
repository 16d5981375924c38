/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov bootstrap: applies the missing steps of a spec on existing nodes, or on the machines of a hosts file. With
 * --dry-run it only lists them, and with --print-script it prints one. */
#include "base/gp_base.h"

#include "app.h"
#include "base/json.h"

struct opts {
    const char *hosts, *only, *from, *script, *os;
    bool dry_run, accept_new_host_key;
    int64_t lock_timeout_ms;
};
static const struct opt options[] = {{.name = "hosts",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, hosts),
                                      .arg = "FILE",
                                      .help = "the machines of a hosts file, without a stack"},
                                     {.name = "only",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, only),
                                      .arg = "STEPS",
                                      .help = "only these steps, comma-separated"},
                                     {.name = "from",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, from),
                                      .arg = "STEP",
                                      .help = "this step and the later ones"},
                                     {.name = "dry-run",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, dry_run),
                                      .help = "list the steps that each node needs; exit 2 if there are some"},
                                     {.name = "print-script",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, script),
                                      .arg = "STEP",
                                      .help = "print a step of SPEC as an sh script: sh SCRIPT probe|apply|verify"},
                                     {.name = "os",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, os),
                                      .arg = "SYSTEM",
                                      .help = "--print-script: the system of the node, such as ubuntu-24.04"},
                                     {.name = "accept-new-host-key",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, accept_new_host_key),
                                      .help = "--hosts: accept and store keys that are in no known_hosts file"},
                                     LOCK_ROW(struct opts, lock_timeout_ms),
                                     {0}};

static json_t *done_json(const struct bootstrapped *done, bool dry_run) {
    json_t *nodes = json_array();
    for (size_t i = 0; i < done->nodes.len; i++) {
        const struct bootstrapped_node *n = &done->nodes.items[i];
        json_t *steps = json_array();
        for (size_t k = 0; k < n->steps.n; k++) json_array_append_new(steps, json_any_text(n->steps.v[k]));
        json_t *one = json_pack("{s:i, s:o}", "node", n->slot, "steps", steps);
        if (n->error != NULL) json_object_set_new(one, "error", json_any_text(n->error));
        json_array_append_new(nodes, one);
    }
    return json_pack("{s:s, s:b, s:b, s:o}", "stack", done->stack, "dry_run", dry_run, "changes", done->changes,
                     "nodes", nodes);
}

static void show(const struct bootstrapped *done, bool dry_run, bool stack) {
    for (size_t i = 0; i < done->nodes.len; i++) {
        const struct bootstrapped_node *n = &done->nodes.items[i];
        if (n->error != NULL) continue; /* the verb's error, or progress */
        GP_AUTO_FREE char *names = strv_join(&n->steps, ", ");
        if (n->steps.n == 0) printf("%s/%d: nothing to do\n", done->stack, n->slot);
        else printf("%s/%d: %s: %s\n", done->stack, n->slot, dry_run ? "would apply" : "applied", names);
    }
    if (done->changes && !dry_run && stack)
        printf("changed nodes are no longer validated: run 'gpuprov validate %s'\n", done->stack);
}

static int print_script(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_SPEC struct spec *spec = NULL;
    GP_AUTO_STR struct str text = {0};
    if (o->hosts != NULL || o->only != NULL || o->from != NULL || o->dry_run)
        return gp_fail(err, GP_EUSAGE, "--print-script takes only a SPEC");
    if (inv->n_args > 0 && !arg_is_spec(inv->args[0]))
        return gp_fail(err, GP_EUSAGE, "--print-script takes a SPEC, not the name of a stack: '%s'", inv->args[0]);
    int r = app_spec(inv, inv->n_args > 0 ? inv->args[0] : NULL, &spec, err);
    if (r == 0) r = engine_step_script(spec, o->script, o->os, &text, err);
    if (r == 0) print_text(inv, "script", text.s);
    return r;
}

static int on_hosts(struct invocation *inv, const struct bootstrap_opts *what, struct bootstrapped *ret,
                    struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_WORK struct app_work w = {0};
    if (inv->n_args > 0 && !arg_is_spec(inv->args[0]))
        return gp_fail(err, GP_EUSAGE, "--hosts takes a SPEC, not the name of a stack: '%s'", inv->args[0]);
    int r = app_begin(inv, true, &w, err);
    if (r != 0) return r;
    r = engine_bootstrap_hosts(w.e, o->hosts, w.spec, what, ret, err);
    app_progress_end(w.e, &w.p);
    return r;
}

static int on_stack(struct invocation *inv, const struct bootstrap_opts *what, struct bootstrapped *ret,
                    struct gp_error *err) {
    GP_AUTO_WORK struct app_work w = {0};
    int r = app_begin(inv, false, &w, err);
    if (r != 0) return r;
    r = engine_bootstrap(w.e, w.name, w.spec, what, ret, err);
    app_progress_end(w.e, &w.p);
    return r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (o->script != NULL) return print_script(inv, err);
    if (o->os != NULL)
        return gp_fail(err, GP_EUSAGE, "--os is for --print-script only: gpuprov reads the system of each node itself");
    inv->app->engine_opts.scratch = o->hosts != NULL;
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    app_lock_timeout(inv, o->lock_timeout_ms);
    struct bootstrap_opts what = {.from = o->from, .dry_run = o->dry_run};
    if (o->only != NULL && o->from != NULL)
        return gp_fail(err, GP_EUSAGE, "--only and --from exclude each other: give one of them");
    if (o->only != NULL) strv_split(&what.only, o->only, ",");
    if (o->only != NULL && what.only.n == 0) /* such as "$A,$B" of empty variables: not every step */
        return gp_fail(err, GP_EUSAGE, "--only '%.40s' names no step: write --only STEP,STEP", o->only);
    struct bootstrapped done = {0};
    int r = o->hosts != NULL ? on_hosts(inv, &what, &done, err) : on_stack(inv, &what, &done, err);
    if (r == 0 && o->dry_run && done.changes) inv->exit_code = 2;
    if (done.nodes.len > 0 && inv->common->json) {
        json_t *j = done_json(&done, o->dry_run);
        if (r != 0) result_error(inv, j, err);
        print_json(j);
    } else if (done.nodes.len > 0) {
        show(&done, o->dry_run, o->hosts == NULL);
    }
    bootstrapped_clear(&done);
    strv_clear(&what.only);
    return r;
}

const struct verb verb_bootstrap = {
    .name = "bootstrap",
    .argspec = "[STACK|SPEC]",
    .help = "applies the missing steps of a spec on existing nodes; launches nothing",
    .details =
        VERB_TARGET_DETAILS "  Nodes that it changes must be validated again: gpuprov validate STACK.\n"
                            "  After a complete run an edited SPEC is the stack's.\n"
                            "  With --hosts the machines of FILE take the place of the spec's nodes and offers.\n",
    .examples = "  gpuprov bootstrap --dry-run gpuprov.yaml            # after an edit: what is missing where\n"
                "  gpuprov bootstrap try --only packages\n"
                "  gpuprov bootstrap --hosts hosts.yaml gpuprov.yaml\n"
                "  gpuprov bootstrap --print-script packages gpuprov.yaml >packages.sh\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov check [SPEC]: decodes and checks a spec, and reads its secrets and the files that it names. Contacts no
 * provider. */
#include "base/gp_base.h"

#include "app.h"
#include "cmd/show/software_show.h"

#include "validate/validate.h"

struct opts {
    bool explain;
};
static const struct opt options[] = {{.name = "explain",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, explain),
                                      .help = "print the GPU software that nodes get, and why each version was chosen"},
                                     {0}};

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_SPEC struct spec *spec = NULL;
    if (inv->n_args > 0 && check_find(inv->args[0]) != NULL)
        return gp_fail(err, GP_EUSAGE, "'%s' is a check of nodes, not a spec: 'gpuprov checks %s' explains it",
                       inv->args[0], inv->args[0]);
    int r = app_spec_secrets(inv, inv->n_args > 0 ? inv->args[0] : NULL, &spec, err);
    if (r != 0) return r;
    struct validate_plan plan = {0};
    r = engine_preflight(NULL, spec, &plan, err);
    if (r != 0) {
        validate_plan_clear(&plan);
        return gp_wrap(err, "%s", spec->path);
    }
    GP_AUTO_FREE char *note = spec_job_too_long(&spec->job, spec->ttl_ms);
    size_t checks = plan.node_checks.len + plan.gang_checks.len;
    if (inv->common->json) {
        json_t *left = json_array();
        for (size_t i = 0; i < plan.left_out.n; i++) json_array_append_new(left, json_string(plan.left_out.v[i]));
        json_t *notes = json_array();
        if (note != NULL) json_array_append_new(notes, json_string(note));
        json_t *j = json_pack("{s:b, s:s, s:i, s:s, s:i, s:o, s:o}", "ok", 1, "name", spec->name, "nodes", spec->nodes,
                              "hash", spec->hash, "checks", (int)checks, "left_out", left, "notes", notes);
        if (o->explain) json_object_set_new(j, "software", software_json(spec));
        print_json(j);
    } else {
        printf("%s: ok: stack '%s', %d node%s, %zu of %zu checks%s\n", spec->path, spec->name, spec->nodes,
               spec->nodes == 1 ? "" : "s", checks, check_count(),
               plan.left_out.n > 0 ? " (--json has the reasons for the others)" : "");
        if (note != NULL) printf("note: %s\n", note);
        if (o->explain) software_show(spec, stdout);
    }
    validate_plan_clear(&plan);
    return 0;
}

const struct verb verb_check = {
    .name = "check",
    .argspec = "[SPEC]",
    .help = "checks a spec, its secrets and its files; contacts no provider",
    .details = VERB_SPEC_DETAILS,
    .examples = "  gpuprov check gpuprov.yaml\n"
                "  gpuprov check gpuprov.yaml --explain   # which driver, CUDA and wheels its nodes get\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_PLAIN,
};

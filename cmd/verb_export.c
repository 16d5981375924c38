/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov export FORM STACK: prints the nodes of a stack as a file of another program. */
#include "base/gp_base.h"

#include "app.h"

#include "base/fs.h"
#include "base/json.h"
#include "output/export_forms.h"

struct opts {
    bool unproven;
    const char *output;
};
static const struct opt options[] = {{.name = "output",
                                      .letter = 'o',
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, output),
                                      .arg = "FILE",
                                      .help = "write to FILE, whole or not at all, instead of stdout"},
                                     {.name = "unproven",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, unproven),
                                      .help = "export nodes that are not ready, too"},
                                     {0}};

static int unknown_form(const char *word, struct gp_error *err) {
    const char *names[32] = {NULL};
    for (size_t i = 0; export_forms[i] != NULL && i + 1 < GP_ARRAY_LEN(names); i++) names[i] = export_forms[i]->name;
    const char *near = str_closest(word, names);
    if (near != NULL) return gp_fail(err, GP_EUSAGE, "unknown form '%.60s'; did you mean '%s'?", word, near);
    return gp_fail(err, GP_EUSAGE, "unknown form '%.60s'; known: " EXPORT_FORMS, word);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    const struct export_form *form = export_form(inv->args[0]);
    if (form == NULL) return unknown_form(inv->args[0], err);
    if (o->output != NULL && inv->common->json)
        return gp_fail(err, GP_EUSAGE, "--output and --json exclude each other: --json prints the text on stdout");
    GP_AUTO_SPEC struct spec *spec = NULL;
    GP_AUTO_FREE char *exe = NULL;
    GP_AUTO_EXPORT struct export_stack stack = {0};
    GP_AUTO_STR struct str text = {.max = EXPORT_TEXT_MAX};
    const char *name = NULL;
    struct engine *e = NULL;
    int r = app_target(inv, inv->args[1], &spec, &name, err);
    if (r == 0) r = app_self_exe(&exe, err);
    if (r == 0) r = app_engine(inv, &e, err);
    if (r == 0) r = engine_export(e, name, exe, &stack, err);
    if (r == 0) r = export_write(&stack, form, o->unproven, &text, err);
    if (r != 0) return r;
    const char *s = text.s != NULL ? text.s : "";
    if (o->output != NULL && strcmp(o->output, "-") != 0) return fs_write_output(o->output, s, text.len, 0644, err);
    print_text(inv, form->name, s);
    return 0;
}

const struct verb verb_export = {
    .name = "export",
    .argspec = "FORM STACK|SPEC",
    .help = "prints the nodes of a stack for Ansible, Slurm, MPI, Terraform or OpenSSH",
    .details =
        VERB_TARGET_DETAILS "  FORM is one of these; docs/ci.md describes each:\n"
                            "    ansible     an inventory, group gpuprov_STACK\n"
                            "    gres        the GPUs of the nodes for gres.conf of Slurm\n"
                            "    hostfile    lines 'ADDRESS slots=GPUS' for mpirun on a node\n"
                            "    slurm       lines NodeName= and PartitionName= for slurm.conf\n"
                            "    ssh_config  hosts STACK-N for ssh, as 'gpuprov ssh STACK --config' prints it\n"
                            "    terraform   a local value and an output gpuprov_STACK, for a file NAME.tf.json\n"
                            "  Only ready nodes are exported, by ssh_config all of them.\n",
    .examples = "  gpuprov export ansible try -o hosts.yaml && ansible all -i hosts.yaml -m ping\n"
                "  gpuprov export hostfile try -o hosts.txt\n"
                "  gpuprov export terraform try -o gpuprov.tf.json\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 2,
    .max_args = 2,
};

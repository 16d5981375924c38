/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov ssh STACK|SPEC[/N] [-- CMD...]: runs the user's OpenSSH with a generated config. --config prints the config
 * for scp, rsync and editors. */
#include "base/gp_base.h"

#include "app.h"

#include "base/fs.h"
#include "base/json.h"

struct opts {
    bool config;
};
static const struct opt options[] = {{.name = "config",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, config),
                                      .help = "print an OpenSSH config of all nodes (hosts STACK-N), connect to none"},
                                     {0}};

static int print_config(const char *path, bool json, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int r = fs_read(path, (size_t)4 << 20, &text, err);
    if (r != 0) return r;
    if (json)
        print_json_exact(json_pack("{s:o, s:o}", "path", json_any_text(path), "config",
                                   json_any_text(text.s != NULL ? text.s : "")));
    else fputs(text.s != NULL ? text.s : "", stdout);
    return 0;
}

/* ssh itself would only report that the name cannot be resolved. */
static int check_slot(const char *path, const char *name, int slot, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int r = fs_read(path, (size_t)4 << 20, &text, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *line = xasprintf("Host %s-%d\n", name, slot);
    if (text.s != NULL && strstr(text.s, line) != NULL) return 0;
    return gp_fail(err, GP_ENOTFOUND,
                   "'%s' has no node %d with an SSH address; 'gpuprov status %s' "
                   "lists the nodes",
                   name, slot, name);
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_FREE char *name = NULL, *exe = NULL, *path = NULL;
    GP_AUTO_SPEC struct spec *spec = NULL;
    int slot = -1;
    if (inv->common->json && !o->config)
        return gp_fail(err, GP_EUSAGE, "--json needs --config: the output of ssh is the node's own");
    if (o->config && inv->n_rest > 0)
        return gp_fail(err, GP_EUSAGE, "--config connects to no node: omit '-- %s'", inv->rest[0]);
    int r = app_stack_slot(inv, inv->args[0], &name, &slot, &spec, err);
    if (r != 0 || (r = app_self_exe(&exe, err)) != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    if ((r = engine_ssh_config(e, spec, name, exe, &path, err)) != 0) return r;
    if (o->config) return print_config(path, inv->common->json, err);
    if ((r = check_slot(path, name, slot < 0 ? 0 : slot, err)) != 0) return r;
    struct strv argv = {0};
    strv_add(&argv, "ssh");
    strv_add(&argv, "-F");
    strv_add(&argv, path);
    strv_take(&argv, xasprintf("%s-%d", name, slot < 0 ? 0 : slot));
    if (inv->n_rest > 0) strv_add(&argv, "--");
    for (int i = 0; i < inv->n_rest; i++) strv_add(&argv, inv->rest[i]);
    inv->exec_argv = argv.v;
    return 0;
}

const struct verb verb_ssh = {
    .name = "ssh",
    .argspec = "STACK|SPEC[/N] [-- CMD...]",
    .help = "runs your OpenSSH with a generated config",
    .details = VERB_TARGET_DETAILS
    "  Without N: node 0. The exit code is the command's (255: an error of ssh). As with ssh, the\n"
    "  node's shell parses CMD: quote it once more, 'gpuprov ssh llm -- \"cd /data && ls\"'.\n"
    "  For scp, rsync and editors:\n"
    "    gpuprov ssh STACK --config >cfg; scp -F cfg file STACK-0:\n",
    .examples = "  gpuprov ssh try                    # a shell on node 0\n"
                "  gpuprov ssh try/1 -- nvidia-smi    # one command on node 1\n"
                "  gpuprov ssh try --config >cfg && rsync -e \"ssh -F cfg\" -a data try-0:\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .flags = VERB_REST,
};

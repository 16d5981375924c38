/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov init [FILE]: writes a commented starter spec, or Slurm's hooks. Never overwrites a file. */
#include "base/gp_base.h"

#include "app.h"

#include "base/fs.h"
#include "base/json.h"
#include "providers/provider.h"
#include "templates/templates.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct opts {
    int provider;
    const char *slurm;
};
#define OR_NAME(name) "|" #name
static const struct opt options[] = {{.name = "provider",
                                      .letter = 'p',
                                      .type = OPT_ENUM,
                                      .offset = offsetof(struct opts, provider),
                                      .arg = &(PROVIDER_ROWS(OR_NAME))[1],
                                      .help = "provider of the starter spec (default local)"},
                                     {.name = "slurm",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, slurm),
                                      .arg = "DIR",
                                      .help = "write Slurm's healthcheck.sh and prolog.sh to DIR instead"},
                                     {0}};

static const char head[] = "# A gpuprov spec. 'gpuprov check FILE' checks it, 'gpuprov plan FILE' lists the changes,\n"
                           "# 'gpuprov up FILE' launches and validates the nodes, 'gpuprov down FILE' destroys them.\n"
                           "# All keys: 'gpuprov schema', docs/spec.md.\n"
                           "apiVersion: gpuprov/v1\n";

static int write_new(const char *path, const char *text, size_t n, mode_t mode, struct gp_error *err) {
    GP_AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0 && errno == EEXIST) return gp_fail(err, GP_EEXISTS, "'%s' exists already; give another name", path);
    if (fd < 0 && errno == ENOENT)
        return gp_fail(err, GP_ENOTFOUND, "could not write '%s': its folder does not exist; create it first", path);
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "could not write '%s'", path);
    int e = fs_write_all(fd, text, n);
    if (e == 0) return 0;
    unlink(path);
    return gp_fail_errno(err, GP_EIO, -e, "could not write '%s'", path);
}

/* A second run, or one after a failure in the middle: files with this very content stay. */
static int write_same(const char *path, const struct template_file *f, struct gp_error *err) {
    GP_AUTO_STR struct str have = {0};
    if (fs_read(path, f->size, &have, NULL) == 0 && have.len == f->size && memcmp(have.s, f->data, f->size) == 0)
        return 0;
    if (!fs_exists(path)) return write_new(path, (const char *)f->data, f->size, 0755, err);
    return gp_fail(err, GP_EEXISTS,
                   "'%s' exists already with other content (yours, or an earlier version's): move it away, or give "
                   "another folder",
                   path);
}

static int write_slurm(struct invocation *inv, const char *dir, struct gp_error *err) {
    static const char *const names[] = {"healthcheck.sh", "prolog.sh"};
    GP_AUTO_JSON json_t *written = json_array();
    int r = fs_mkdirs(dir, 0755, err);
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(names); i++) {
        GP_AUTO_FREE char *from = xasprintf("slurm/%s", names[i]), *to = fs_join(dir, names[i]);
        const struct template_file *f = template_find(from);
        if (f == NULL) return gp_fail(err, GP_EINTERNAL, "%s is missing from this build", from);
        r = write_same(to, f, err);
        json_array_append_new(written, json_any_text(to));
    }
    if (r != 0) return r;
    if (inv->common->json) print_json(json_pack("{s:O}", "written", written));
    else
        printf(
            "wrote %s/healthcheck.sh and %s/prolog.sh; next: add them to slurm.conf; their comments have the lines\n",
            dir, dir);
    return 0;
}

static int add_template(struct str *out, const char *name, struct gp_error *err) {
    GP_AUTO_FREE char *path = xasprintf("init/%s.yaml", name);
    const struct template_file *f = template_find(path);
    if (f == NULL) return gp_fail(err, GP_EINTERNAL, "%s is missing from this build", path);
    str_add_mem(out, f->data, f->size);
    return 0;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    if (o->slurm != NULL && inv->n_args > 0)
        return gp_fail(err, GP_EUSAGE, "--slurm DIR writes no spec; omit '%s'", inv->args[0]);
    if (o->slurm != NULL) return write_slurm(inv, o->slurm, err);
    const char *path = inv->n_args == 1 ? inv->args[0] : "gpuprov.yaml";
    const struct provider_ops *of = provider_registry[o->provider];
    bool with_hosts = of == &provider_ssh;
    GP_AUTO_STR struct str text = {0}, hosts = {0};
    str_add(&text, head);
    int r = add_template(&text, of->name, err);
    if (r == 0 && with_hosts) r = add_template(&hosts, "hosts", err);
    if (r == 0 && strcmp(path, "-") == 0) {
        print_text(inv, "spec", text.s);
        return 0;
    }
    if (r == 0) r = write_new(path, text.s, text.len, 0644, err);
    if (r != 0) return r;
    /* An existing hosts file is the user's and stays as it is. */
    GP_AUTO_FREE char *hosts_path = NULL;
    if (with_hosts) hosts_path = fs_relative_to(path, "hosts.yaml");
    if (hosts_path != NULL && fs_exists(hosts_path)) {
        free(hosts_path);
        hosts_path = NULL;
    }
    if (hosts_path != NULL && (r = write_new(hosts_path, hosts.s, hosts.len, 0644, err)) != 0) return r;
    if (inv->common->json)
        print_json(json_pack("{s:o, s:o}", "written", json_any_text(path), "hosts", json_any_text(hosts_path)));
    else if (hosts_path != NULL)
        printf("wrote %s and %s; next: list your machines in %s, then gpuprov plan %s\n", path, hosts_path, hosts_path,
               path);
    else printf("wrote %s; next: gpuprov plan %s, gpuprov up %s\n", path, path, path);
    return 0;
}

const struct verb verb_init = {
    .name = "init",
    .argspec = "[FILE]",
    .help = "writes a commented starter spec (gpuprov.yaml; '-' is stdout)",
    .examples = "  gpuprov init                       # gpuprov.yaml with two nodes on this machine\n"
                "  gpuprov init h100.yaml -p aws      # a starter for EC2\n"
                "  gpuprov init - -p lambda           # prints the one for Lambda Cloud\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
    .flags = VERB_PLAIN,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* The table of steps and the scripts made from it. No I/O; the node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/hash.h"
#include "templates/templates.h"

#define CLOUD_INIT_S 600
#define ENDS_WITHIN "600" /* seconds: Azure states up to 10 minutes for a new role assignment */

static int64_t seconds_left(const struct boot *b, const struct boot_item *it) {
    int64_t left = clock_left_ms(b->req->deadline_ms) / 1000;
    if (it->seconds > 0 && it->seconds < left) left = it->seconds;
    return left > 10 ? left - 10 : 1; /* a late step reports its timeout itself before it is killed */
}

void boot_var(struct str *out, const char *name, const char *value) {
    str_addf(out, "%s=", name);
    str_add_shquoted(out, value ? value : "");
    str_addc(out, '\n');
}

static void boot_var_i64(struct str *out, const char *name, int64_t value) {
    str_addf(out, "%s=%lld\n", name, (long long)value);
}

static bool want_cloud_init(const struct boot *b) { return b->req->wait_cloud_init; }
static bool want_deadline(const struct boot *b) { return b->req->ends_itself; }
static bool want_packages(const struct boot *b) { return b->req->spec->packages.n > 0; }
static bool want_steps(const struct boot *b) { return b->req->spec->steps.len > 0; }
static bool want_files(const struct boot *b) { return b->req->spec->storage.files.len > 0; }
static bool want_limits(const struct boot *b) {
    const struct spec_node_limits *l = &b->req->spec->storage.limits;
    return l->memlock || l->nofile || l->hugepages;
}

static void cloud_init_vars(const struct boot *b GP_UNUSED, const struct boot_item *it GP_UNUSED, struct str *out) {
    boot_var_i64(out, "LONGEST", CLOUD_INIT_S);
}

static void deadline_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    struct deadline_req req = {.uid = b->req->uid,
                               .expires_s = b->req->expires_s,
                               .ttl_s = b->req->ttl_s,
                               .idle_s = b->req->idle_s,
                               .controller_s = b->req->controller_s,
                               .end_script = b->req->end_script};
    GP_AUTO_STR struct str line = {0};
    struct gp_error err = {0};
    /* fails only without a deadline: then nothing is installed, and verify fails */
    boot_var(out, "INSTALL", template_deadline(&req, &line, &err) == 0 ? line.s : "false");
    boot_var(out, "ENDS_WITHIN", b->req->end_script != NULL ? ENDS_WITHIN : "");
}

static void packages_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    GP_AUTO_FREE char *list = strv_join(&b->req->spec->packages, " ");
    boot_var(out, "PACKAGES", list);
}

static void step_vars(const struct boot *b GP_UNUSED, const struct boot_item *it, struct str *out) {
    boot_var(out, "RUN", it->user->run);
    boot_var(out, "CHECK", it->user->check);
    boot_var(out, "HASH", it->hash);
    boot_var(out, "MARK", it->id);
}

static void driver_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    boot_var(out, "IMAGE", b->req->image_name ? b->req->image_name : "of this node");
}

static void agent_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    GP_AUTO_STR struct str list = {0};
    for (size_t i = 0; i < b->n_agents; i++)
        str_addf(&list, "%s%s:%s", i ? " " : "", b->agents[i].name, b->agents[i].blob.sha256);
    boot_var(out, "ARCH", BOOT_ARCH);
    boot_var(out, "AGENTS", list.s);
}

#define GPU_STEP(step, sh, when) \
    { .name = (step), .file = "gpu/" sh, .packages = true, .wanted = (when), .vars = boot_driver_vars }
#define DRIVER_STEP(step, sh, when) \
    { .name = (step), .file = "gpu/" sh, .packages = true, .machine = true, .wanted = (when), .vars = boot_driver_vars }
const struct boot_step boot_steps[] = {
    {.name = "cloud-init",
     .file = "cloud-init",
     .machine = true,
     .first = true,
     .wanted = want_cloud_init,
     .vars = cloud_init_vars},
    {.name = "package-locks",
     .file = "os/package-locks",
     .machine = true,
     .seconds = 1200, /* an upgrade that runs may take long to stop */
     .wanted = boot_want_package_locks},
    {.name = "clock", .file = "os/clock", .machine = true, .seconds = 60, .vars = boot_clock_vars},
    {.name = "deadline", .file = "deadline", .machine = true, .wanted = want_deadline, .vars = deadline_vars},
    {.name = "packages", .file = "packages", .packages = true, .wanted = want_packages, .vars = packages_vars},
    DRIVER_STEP("secure-boot", "secure-boot", boot_wants_driver),
    DRIVER_STEP("kernel-headers", "kernel-headers", boot_wants_driver),
    DRIVER_STEP("nouveau-off", "nouveau-off", boot_wants_driver),
    GPU_STEP("driver-repo", "driver-repo", boot_wants_repo),
    {.name = "driver",
     .file = "gpu/driver",
     .packages = true,
     .machine = true,
     .new_facts = true,
     .wanted = boot_wants_driver,
     .vars = boot_driver_vars},
    DRIVER_STEP("persistence", "persistence", boot_wants_driver),
    DRIVER_STEP("fabric-manager", "of-version", boot_wants_fabric),
    DRIVER_STEP("imex", "of-version", boot_wants_imex),
    GPU_STEP("cuda", "libraries", boot_wants_cuda),
    GPU_STEP("cudnn", "libraries", boot_wants_cudnn),
    GPU_STEP("nccl", "libraries", boot_wants_nccl),
    {.name = "efa",
     .file = "fabric/efa",
     .packages = true,
     .machine = true,
     .seconds = 1800,
     .wanted = boot_wants_efa,
     .vars = boot_fabric_vars},
    {.name = "gpu-rdma", .file = "fabric/rdma", .machine = true, .wanted = boot_wants_rdma, .vars = boot_fabric_vars},
    GPU_STEP("holds", "holds", boot_wants_holds),
    {.name = "limits",
     .file = "storage/limits",
     .wanted = want_limits,
     .vars = boot_limits_vars,
     .apply = boot_limits_set},
    {.name = "disks",
     .file = "storage/disks",
     .packages = true,
     .machine = true,
     .seconds = 1800,
     .wanted = boot_mounts_disks,
     .vars = boot_mounts_vars},
    {.name = "shares",
     .file = "storage/shares",
     .packages = true,
     .machine = true,
     .seconds = 600,
     .wanted = boot_mounts_shares,
     .vars = boot_mounts_vars},
    {.name = "buckets",
     .file = "storage/buckets",
     .packages = true,
     .machine = true,
     .seconds = 900,
     .secrets = true,
     .wanted = boot_mounts_buckets,
     .vars = boot_mounts_vars},
    {.name = "files", .file = "storage/files", .wanted = want_files, .vars = boot_files_vars, .apply = boot_files_put},
    {.name = "python",
     .file = "python/python",
     .packages = true,
     .seconds = 900,
     .wanted = want_python,
     .vars = python_vars},
    {.name = "python-venv", .file = "python/venv", .seconds = 900, .wanted = want_python, .vars = python_vars},
    {.name = "torch",
     .file = "python/torch",
     .secrets = true,
     .seconds = 3600,
     .wanted = want_python_torch,
     .vars = python_torch_vars},
    {.name = "python-packages",
     .file = "python/packages",
     .secrets = true,
     .seconds = 3600,
     .wanted = want_python_packages,
     .vars = python_packages_vars},
    {.name = "container-engine",
     .file = "container/engine",
     .packages = true,
     .machine = true,
     .seconds = 900,
     .wanted = boot_want_container,
     .vars = boot_engine_vars},
    {.name = "container-toolkit",
     .file = "container/toolkit",
     .packages = true,
     .machine = true,
     .seconds = 900,
     .wanted = boot_want_toolkit,
     .vars = boot_toolkit_vars},
    {.name = "container-cdi",
     .file = "container/cdi",
     .machine = true,
     .seconds = 300,
     .wanted = boot_want_toolkit,
     .vars = boot_toolkit_vars},
    {.name = "images",
     .file = "container/images",
     .machine = true,
     .secrets = true,
     .wanted = boot_want_images,
     .vars = boot_images_vars},
    {.name = NULL, .file = "step", .secrets = true, .wanted = want_steps, .vars = step_vars},
    {.name = "driver-check", .file = "driver", .wanted = boot_wants_driver_look, .vars = driver_vars},
    {.name = "agent", .file = "agent", .vars = agent_vars, .apply = boot_agents_put},
    {.file = NULL},
};

void boot_hash(char dst[65], const char *const *parts) {
    GP_AUTO_STR struct str all = {0};
    for (; *parts; parts++) str_add_mem(&all, *parts, strlen(*parts) + 1); /* the NUL separates the parts */
    sha256_hex(all.s, all.len, dst);
}

void boot_step_id(const char *name, bool user, char id[64]) {
    char hash[65], *p = id;
    boot_hash(hash, (const char *const[]){name, user ? "user" : "table", NULL});
    for (const char *c = name; *c && p < id + 40; c++)
        *p++ = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ? *c : '_';
    snprintf(p, 10, "-%.8s", hash);
}

static void item_add(struct boot *b, const struct boot_step *step, const struct spec_step *user) {
    struct boot_item it = {.step = step, .user = user, .name = user ? user->name : step->name, .probe = -1};
    boot_step_id(it.name, user != NULL, it.id);
    it.seconds = user ? (int)(user->timeout_ms / 1000) : step->seconds;
    it.tries = GP_MAX(user ? user->tries : step->tries, 1);
    GP_AUTO_STR struct str vars = {0};
    if (!user && step->vars) step->vars(b, &it, &vars);
    boot_hash(it.hash, user ? (const char *const[]){user->run, user->check, NULL}
                            : (const char *const[]){step->file, vars.s ? vars.s : "", NULL});
    vec_push(&b->items, it);
}

static void items_clear(struct boot *b) {
    for (size_t i = 0; i < b->items.len; i++) {
        free(b->items.items[i].why);
        free(b->items.items[i].warning);
    }
    vec_free(&b->items);
}

int boot_items_make(struct boot *b, struct gp_error *err) {
    const struct spec *spec = b->req->spec;
    items_clear(b); /* again, after the first steps have changed the node */
    int rc = boot_software_make(b, err);
    if (!rc) rc = boot_files_load(b, err);
    if (rc) return rc;
    for (const struct boot_step *s = boot_steps; s->file; s++) {
        if ((s->machine && b->req->container) || (s->wanted && !s->wanted(b))) continue;
        if (s->name) {
            item_add(b, s, NULL);
            continue;
        }
        for (size_t i = 0; i < spec->steps.len; i++) item_add(b, s, &spec->steps.items[i]);
    }
    boot_pick(b);
    return boot_agents_load(b, err);
}

void boot_clear(struct boot *b) {
    boot_software_clear(b);
    items_clear(b);
    boot_files_drop(b);
    free(b->cache);
    strv_clear(&b->changed);
    boot_facts_clear(&b->facts);
}

int boot_file(const char *file, struct str *out, struct gp_error *err) {
    GP_AUTO_FREE char *name = xasprintf("bootstrap/%s.sh", file);
    const struct template_file *f = template_find(name);
    if (!f) return gp_fail(err, GP_EINTERNAL, "template '%s' is not in this program", name);
    str_add_mem(out, f->data, f->size);
    str_addc(out, '\n');
    return 0;
}

void boot_secrets(const struct boot *b, struct str *out) {
    GP_AUTO_STR struct str names = {0};
    for (size_t i = 0; i < b->req->n_secrets; i++) {
        const char *env = b->req->secrets[i].env;
        str_addf(out, "export GPUPROV_SECRET_");
        boot_var(out, env, secret_reveal(&b->req->secrets[i].value));
        str_addf(&names, "%s%s", i > 0 ? " " : "", env);
    }
    str_add(out, "export ");
    boot_var(out, "GPUPROV_SECRETS", names.s);
}

int boot_item_script(const struct boot *b, const struct boot_item *it, const char *tail, struct str *out,
                     struct gp_error *err) {
    const struct bootstrap_req *req = b->req;
    const char *refusal = req->packages_refusal && *req->packages_refusal ? req->packages_refusal
                                                                          : "packages cannot be installed on this node";
    if (it->step->packages) boot_var(out, "REFUSAL", req->packages_allowed ? "" : refusal);
    boot_var_i64(out, "BUDGET", seconds_left(b, it));
    if (it->step->vars) it->step->vars(b, it, out);
    int rc = 0;
    if (it->step->packages && b->cache) {
        boot_var(out, "CACHE", b->cache);
        rc = boot_file("run/cache", out, err);
    }
    if (!rc) rc = boot_file(it->step->file, out, err);
    str_add(out, tail);
    return rc;
}

int boot_probe_script(const struct boot *b, struct str *out, struct gp_error *err) {
    str_add(out, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = boot_file("run/lib", out, err);
    bool packages = false;
    for (size_t i = 0; i < b->items.len; i++) packages |= b->items.items[i].step->packages;
    if (!rc && packages) rc = boot_file("run/pkg", out, err);
    for (size_t i = 0; i < b->items.len && !rc; i++) {
        const struct boot_item *it = &b->items.items[i];
        str_add(out, "(\n");
        if (it->step->secrets) boot_secrets(b, out);
        rc = boot_item_script(b, it, "probe\n)\n", out, err);
        str_addf(out, "printf '::probe %zu %%s\\n' $?\n", i);
    }
    if (!rc && out->truncated) return gp_fail(err, GP_EUSAGE, "the steps of the spec are too long");
    return rc;
}

static void probe_line(struct boot *b, char *line, char **why, char **warning) {
    if (str_starts(line, "::error ")) {
        free(*why);
        *why = xstrdup(line + 8);
    } else if (str_starts(line, "::warn ")) {
        free(*warning);
        *warning = xstrdup(line + 7);
    } else if (str_starts(line, "::probe ")) {
        char *status = strchr(line + 8, ' ');
        int64_t i = 0, rc = 0;
        if (status) *status++ = '\0';
        if (!status || !str_to_i64(line + 8, 0, (int64_t)b->items.len - 1, &i) || !str_to_i64(status, 0, 255, &rc))
            return;
        struct boot_item *it = &b->items.items[i];
        free(it->why);
        free(it->warning);
        it->probe = (int)rc;
        it->why = GP_STEAL(*why);
        it->warning = GP_STEAL(*warning);
    }
}

void boot_probe_parse(struct boot *b, const char *text, size_t n) {
    GP_AUTO_FREE char *why = NULL;
    GP_AUTO_FREE char *warning = NULL;
    GP_AUTO_FREE char *copy = xstrndup(text, n);
    for (size_t i = 0; i < b->items.len; i++) b->items.items[i].probe = -1;
    for (char *save = NULL, *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        probe_line(b, line, &why, &warning);
}

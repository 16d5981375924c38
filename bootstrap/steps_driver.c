/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the driver and of the libraries above it: which are wanted on a node, by its facts and the solver's
 * answer, and the variables of their scripts (templates/bootstrap/gpu/). No I/O; the node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "software/software.h"

#define NVIDIA_REPOSITORIES "https://developer.download.nvidia.com/compute/cuda/repos"
#define KEY_MARK "#sha256="
#define RPM_KEY_FILE "D42D0685.pub"
#define RHEL10_KEY_FILE "CDF6BA43.pub"
#define RPM_KEY "27e46a2d43e125859fb8a62c3b75bf798aeb95fa6f7d9bf790c1167ed9a0b39c"

struct boot_software {
    struct software_set set;
    bool install; /* the driver is ours to install; false: it is only looked at */
    struct strv pin, driver, cuda, cudnn, nccl;
    char *libraries; /* of all libraries */
};

/* Of the package cuda-keyring_1.1-1_all.deb of each system: GoogleCloudPlatform/compute-gpu-installation pins the same.
 * rpm systems have no such package, but the key D42D0685.pub of rhel8's folder, which several public CI scripts pin.
 * RHEL 10 has another key, whose hash is not known here: it needs a source with a written hash. AlmaLinux's package
 * almalinux-release-nvidia-driver has the name of its file. */
static const struct {
    const char *repository, *sha256;
} keyrings[] = {{"ubuntu2004", "cf5ca9853118b9fb2b78dd2708786e1eb5ab14e39d8738539281429428eb4efe"},
                {"ubuntu2204", "d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df"},
                {"ubuntu2404", "d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba"},
                {"debian12", "e7f219eab6fe4819cdb5c15b98233dc3420302d9c00883219cd3d896857cf48d"},
                {"debian13", "dd28f1f6ba0038180d6b23f846cefca1e3de4c9327751665241370bacea452a1"},
                {"rhel8", RPM_KEY},
                {"rhel9", RPM_KEY},
                {"amzn2023", RPM_KEY}};

void boot_software_clear(struct boot *b) {
    struct boot_software *s = b->software;
    if (!s) return;
    software_set_clear(&s->set);
    strv_clear(&s->pin);
    strv_clear(&s->driver);
    strv_clear(&s->cuda);
    strv_clear(&s->cudnn);
    strv_clear(&s->nccl);
    free(s->libraries);
    free(s);
    b->software = NULL;
}

static bool is_auto(const char *wish) { return wish == NULL || strcmp(wish, "auto") == 0; }

/* A driver that is loaded and fits is left alone where the spec names no other. */
static void keep_loaded(const struct boot *b, struct software_wish *w, char branch[32]) {
    const struct boot_facts *f = &b->facts;
    if (!f->driver[0] || !is_auto(w->driver)) return;
    struct software_wish kept = *w;
    GP_AUTO_SOFTWARE_SET struct software_set set = {0};
    snprintf(branch, 32, "%.*s", (int)strcspn(f->driver, "."), f->driver);
    kept.driver = branch;
    if (is_auto(w->flavour)) kept.flavour = f->driver_open ? "open" : "proprietary";
    if (software_solve(&kept, &set, NULL) == 0) *w = kept;
}

static struct software_wish wish_of(const struct boot *b, bool launched, size_t runtime, char branch[32]) {
    const struct boot_facts *f = &b->facts;
    struct software_wish w = spec_software_wish(b->req->spec, 0, launched, runtime);
    w.os = f->os[0] ? f->os : NULL;
    w.kernel = f->kernel[0] ? f->kernel : NULL;
    w.torch = "none";
    if (f->n_gpus > 0) {
        (void)software_gpu_pci(f->gpus[0].device, &w.gpu);
        w.gpus = f->n_gpus;
    }
    /* NVLink 5's switches are no PCI devices of the node */
    w.nvswitches = f->n_nvswitches > 0 || w.gpu.nvswitch != 1 ? f->n_nvswitches : -1;
    if (str_eq(w.driver, "none")) {
        if (f->driver[0]) w.loaded = f->driver;
        return w;
    }
    keep_loaded(b, &w, branch);
    return w;
}

/* Of the node; without one, when a script is printed, of the stack. */
static const char *label(const struct boot *b) { return b->link ? b->link->target.label : b->req->stack; }

static int clash(const struct boot *b, const struct software_clashes *c, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    for (size_t i = 0; i < c->n && i < 2; i++) str_addf(&text, "%s%s", i ? "; " : "", c->at[i].facts);
    if (c->n == 0) str_add(&text, "no set of driver and libraries fits this node");
    if (c->n > 0 && c->at[0].nearest[0])
        str_addf(&text, "; the nearest set that works here: %s: change bootstrap.driver or the image",
                 c->at[0].nearest);
    return gp_fail(err, GP_EBOOTSTRAP, "%s: %s", label(b), text.s);
}

static int solve(const struct boot *b, const struct software_wish *w, struct software_set *set, struct gp_error *err) {
    struct software_clashes clashes = {0};
    return software_solve(w, set, &clashes) == 0 ? 0 : clash(b, &clashes, err);
}

static void add_cuda(const struct boot *b, const struct software_set *set, struct strv *to) {
    const char *wish = b->req->spec->software.cuda.version;
    bool runtime = is_auto(wish) || b->req->spec->software.cuda.runtime.n > 0;
    software_packages(set, runtime ? SOFTWARE_PART_CUDA_RUNTIME : SOFTWARE_PART_CUDA_TOOLKIT, to);
}

static void add_packages(const struct boot *b, struct boot_software *s) {
    software_packages(&s->set, SOFTWARE_PART_PIN, &s->pin);
    software_packages(&s->set, SOFTWARE_PART_DRIVER, &s->driver);
    add_cuda(b, &s->set, &s->cuda);
    GP_AUTO_STRV struct strv cudnn = {0};
    software_packages(&s->set, SOFTWARE_PART_CUDNN, &cudnn);
    for (size_t i = 0; i < cudnn.n; i++) {
        GP_AUTO_FREE char *exact =
            s->set.cudnn_package[0] ? xasprintf("%s=%s-1", cudnn.v[i], s->set.cudnn_package) : xstrdup(cudnn.v[i]);
        strv_add(&s->cudnn, exact);
    }
    software_packages(&s->set, SOFTWARE_PART_NCCL, &s->nccl);
}

static bool installs(const struct boot_software *s) {
    return s && (s->install || s->cuda.n > 0 || s->cudnn.n > 0 || s->nccl.n > 0);
}

/* launched: the machine is ours, so that every part of the set is wanted unless the spec says `none`. */
static int software_make(struct boot *b, bool launched, struct gp_error *err) {
    const struct spec *spec = b->req->spec;
    char branch[32] = "";
    struct boot_software *s = b->software = xcalloc(1, sizeof *s);
    struct software_wish w = wish_of(b, launched, 0, branch);
    int rc = solve(b, &w, &s->set, err);
    if (rc) return rc;
    s->install = !str_eq(w.driver, "none");
    add_packages(b, s);
    for (size_t i = 1; i < spec->software.cuda.runtime.n && !rc; i++) {
        GP_AUTO_SOFTWARE_SET struct software_set more = {0};
        struct software_wish other = wish_of(b, launched, i, branch);
        rc = solve(b, &other, &more, err);
        if (!rc) add_cuda(b, &more, &s->cuda);
    }
    GP_AUTO_FREE char *cuda = strv_join(&s->cuda, " ");
    GP_AUTO_FREE char *cudnn = strv_join(&s->cudnn, " ");
    GP_AUTO_FREE char *nccl = strv_join(&s->nccl, " ");
    s->libraries = xasprintf("%s %s %s", cuda, cudnn, nccl);
    if (!rc && installs(s) && !s->set.os_family[0])
        return gp_fail(err, GP_EBOOTSTRAP,
                       "%s: NVIDIA has no packages for its operating system %s: choose an image of another, or write "
                       "bootstrap.driver: none",
                       label(b), b->facts.os[0] ? b->facts.os : "(it does not name itself)");
    return rc;
}

int boot_software_make(struct boot *b, struct gp_error *err) {
    const struct spec *spec = b->req->spec;
    boot_software_clear(b);
    /* a container has the driver of its host; image_name is "" for machines that existed before; where no package may
     * be installed, nobody asked for one */
    bool launched = b->req->image_name && b->req->image_name[0] && b->req->packages_allowed && spec->gpu.count > 0;
    launched &= !b->req->container && b->facts.n_gpus > 0 && !str_eq(spec->software.driver.branch, "none");
    bool found = b->facts.driver[0] && !b->facts.driver_ours; /* of the image; ours may lack its libraries yet */
    if (!spec_software_written(spec) && (!launched || found)) return 0;
    return software_make(b, launched, err);
}

int boot_software_by_spec(struct boot *b, struct gp_error *err) {
    boot_software_clear(b);
    if (b->facts.os[0]) return software_make(b, true, err);
    return gp_fail(err, GP_EUSAGE,
                   "%s: which packages are installed depends on the operating system: add --os ubuntu-24.04 or another",
                   label(b));
}

/* --- which steps --- */

bool boot_wants_driver(const struct boot *b) { return b->software && b->software->install; }
bool boot_wants_driver_look(const struct boot *b) { return b->req->spec->gpu.count > 0 && !boot_wants_driver(b); }
bool boot_wants_repo(const struct boot *b) {
    const struct boot_software *s = b->software;
    if (!installs(s) || !s->set.repository[0]) return false;
    return !str_eq(s->set.at[SOFTWARE_SOURCE].text, "distro") || s->cuda.n + s->cudnn.n + s->nccl.n > 0;
}
bool boot_wants_fabric(const struct boot *b) {
    return boot_wants_driver(b) && b->software->set.fabric_manager[0] && str_eq(b->software->set.fabric.text, "yes");
}
bool boot_wants_imex(const struct boot *b) { return boot_wants_driver(b) && b->software->set.imex.text[0]; }
bool boot_wants_cuda(const struct boot *b) { return b->software && b->software->cuda.n > 0; }
bool boot_wants_cudnn(const struct boot *b) { return b->software && b->software->cudnn.n > 0; }
bool boot_wants_nccl(const struct boot *b) { return b->software && b->software->nccl.n > 0; }
bool boot_wants_holds(const struct boot *b) { return installs(b->software); }

/* --- their variables --- */

static void join_var(struct str *out, const char *name, const struct strv *v) {
    GP_AUTO_FREE char *text = strv_join(v, " ");
    boot_var(out, name, text);
}

/* The repository's address, that of its key, and the key's hash: pinned here or written behind a mirror's address. */
static void repo_vars(const struct boot *b, struct str *out) {
    const struct software_set *set = &b->software->set;
    const char *source = b->req->spec->software.driver.source;
    bool mirror = source && str_starts(source, "http");
    GP_AUTO_FREE char *base = xstrdup(mirror ? source : NVIDIA_REPOSITORIES);
    const char *sha256 = "";
    char *mark = strstr(base, KEY_MARK);
    for (size_t i = 0; i < GP_ARRAY_LEN(keyrings); i++)
        if (str_eq(keyrings[i].repository, set->repository)) sha256 = keyrings[i].sha256;
    if (mark) {
        *mark = '\0';
        sha256 = mark + strlen(KEY_MARK);
    }
    for (size_t n = strlen(base); n > 0 && base[n - 1] == '/'; n--) base[n - 1] = '\0';
    GP_AUTO_FREE char *url = xasprintf("%s/%s/x86_64", base, set->repository);
    bool apt = str_eq(set->os_family, "apt");
    const char *rpm_key = str_eq(set->repository, "rhel10") ? RHEL10_KEY_FILE : RPM_KEY_FILE;
    GP_AUTO_FREE char *key = apt    ? xasprintf("%s/cuda-keyring_1.1-1_all.deb", url)
                             : mark ? xasprintf("%s/%s", url, rpm_key)
                                    : xasprintf("%s/rhel8/x86_64/" RPM_KEY_FILE, base);
    boot_var(out, "URL", url);
    boot_var(out, "KEY", key);
    boot_var(out, "KEY_SHA256", sha256);
    boot_var(out, "REPO", set->repository);
}

static void service_vars(struct str *out, const char *package, const char *unit, const char *program,
                         const char *need) {
    boot_var(out, "PACKAGE", package);
    boot_var(out, "UNIT", unit);
    boot_var(out, "PROGRAM", program);
    boot_var(out, "NEED", need);
}

static void library_vars(const struct strv *packages, const char *look, struct str *out) {
    join_var(out, "PACKAGES", packages);
    boot_var(out, "LOOK", look);
}

void boot_driver_vars(const struct boot *b, const struct boot_item *it, struct str *out) {
    const struct boot_software *s = b->software;
    const struct software_set *set = &s->set;
    const char *name = it->step->name;
    char stream[32];
    struct gp_error ignored = {0}; /* a file that this program lacks is found by the step's own file */
    boot_var(out, "BRANCH", set->at[SOFTWARE_DRIVER].text);
    boot_var(out, "EXACT", set->driver_exact);
    boot_var(out, "MINIMUM", s->install ? set->driver_minimum : "");
    boot_var(out, "FLAVOUR", set->at[SOFTWARE_FLAVOUR].text);
    join_var(out, "DRIVER", &s->driver);
    boot_var(out, "LIBRARIES", s->libraries);
    if (str_eq(name, "driver-repo")) repo_vars(b, out);
    if (str_eq(name, "driver")) {
        software_module_stream(set, stream, sizeof stream);
        join_var(out, "PIN", &s->pin);
        boot_var(out, "STREAM", stream);
        boot_var(out, "REPLACE", b->req->spec->software.driver.replace ? "yes" : "");
    }
    if (str_eq(name, "fabric-manager")) {
        GP_AUTO_STRV struct strv nvlsm = {0};
        software_packages(set, SOFTWARE_PART_NVLSM, &nvlsm);
        service_vars(out, set->fabric_manager, "nvidia-fabricmanager", "nv-fabricmanager",
                     "without it CUDA fails with error 802 on a node with NVSwitches");
        join_var(out, "NVLSM", &nvlsm);
    }
    if (str_eq(name, "imex")) {
        service_vars(out, set->imex.text, "nvidia-imex", "nvidia-imex",
                     "without it GPUs of other nodes cannot be reached over NVLink");
        boot_var(out, "NVLSM", "");
    }
    GP_AUTO_FREE char *cuda = xasprintf("/usr/local/cuda-%s", set->at[SOFTWARE_CUDA].text);
    if (str_eq(name, "cuda")) library_vars(&s->cuda, cuda, out);
    if (str_eq(name, "cudnn")) library_vars(&s->cudnn, "libcudnn.so.9", out);
    if (str_eq(name, "nccl")) library_vars(&s->nccl, "libnccl.so.2", out);
    (void)boot_file("gpu/lib", out, &ignored);
}

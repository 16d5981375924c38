/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the steps of Python: interpreter, virtual environment, PyTorch, packages. No I/O; the node's own
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "software/software.h"

static const struct spec_python *python_of(const struct boot *b) { return &b->req->spec->python; }

bool want_python(const struct boot *b) { return python_of(b)->wanted; }

bool want_python_packages(const struct boot *b) {
    return python_of(b)->packages.n > 0 || python_of(b)->requirements != NULL;
}

/* A file that is a part of another one; it is in this program. */
static void part(const char *file, struct str *out) {
    struct gp_error err = {0};
    if (boot_file(file, out, &err) != 0) str_addf(out, "fail 'internal error: %s'\n", err.msg);
}

void python_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    const struct spec_python *p = python_of(b);
    boot_var(out, "VERSION", p->version);
    boot_var(out, "VENV", p->venv ? p->venv : SPEC_PYTHON_VENV);
    part("python/common", out);
}

static void pip_vars(const struct boot *b, struct str *out) {
    boot_var(out, "INDEX", python_of(b)->index);
    boot_var(out, "AUTH", python_of(b)->index_auth);
    part("python/pip", out);
}

void python_packages_vars(const struct boot *b, const struct boot_item *it, struct str *out) {
    const struct spec_python *p = python_of(b);
    GP_AUTO_FREE char *list = strv_join(&p->packages, "\n");
    python_vars(b, it, out);
    pip_vars(b, out);
    boot_var(out, "PACKAGES", list);
    boot_var(out, "REQUIREMENTS", p->requirements);
    boot_var(out, "KEEP", spec_python_torch(p) ? "torch" : "");
}

/* --- torch --- */

bool want_python_torch(const struct boot *b) { return spec_python_torch(python_of(b)); }

/* The GPU of this node: by its PCI id, else by the spec's name. False: not known. */
static bool gpu_of(const struct boot *b, struct software_gpu *ret) {
    const char *model = b->req->spec->gpu.model;
    if (b->facts.n_gpus > 0 && software_gpu_pci(b->facts.gpus[0].device, ret)) return true;
    return model && software_gpu_named(model, ret);
}

/* The tables may be older than a release of PyTorch. */
static bool torch_known(const char *wish) {
    struct software_wish only = {.driver = "none", .cuda = "none", .cudnn = "none", .nccl = "none", .torch = wish};
    GP_AUTO_SOFTWARE_SET struct software_set set = {0};
    return software_solve(&only, &set, NULL) == 0;
}

/* The facts, and the driver that is loaded or that an earlier step installs. */
static struct software_wish torch_wish(const struct boot *b, const char *torch) {
    const struct boot_facts *f = &b->facts;
    struct software_wish w = spec_software_wish(b->req->spec, 0, boot_wants_driver(b), 0);
    w.gpus = GP_MAX(GP_MAX(f->n_gpus, b->req->spec->gpu.count), 1);
    w.nvswitches = -1;
    w.os = f->os[0] ? f->os : NULL;
    w.kernel = f->kernel[0] ? f->kernel : NULL;
    w.cuda = w.cudnn = w.nccl = "none";
    w.torch = torch;
    if (boot_wants_driver(b)) return w;
    w.driver = "none";
    w.flavour = w.source = NULL;
    w.loaded = f->driver[0] ? f->driver : NULL;
    return w;
}

/* Fills the version ("": the newest) and the build. On a node without GPUs the CPU's. why: why none fits. */
static void choose_torch(const struct boot *b, struct str *version, struct str *tag, struct str *why) {
    const char *wish = want_python_torch(b) ? python_of(b)->torch : "auto"; /* printed for a spec without torch */
    if (b->facts.n_gpus == 0 && b->req->spec->gpu.count == 0 && !b->facts.nvidia) {
        str_add(tag, "cpu");
        str_add(version, str_eq(wish, "auto") ? "" : wish);
        return;
    }
    bool known = torch_known(wish);
    struct software_wish w = torch_wish(b, known ? wish : "auto");
    if (!gpu_of(b, &w.gpu)) {
        str_add(why, "the build of torch depends on the GPU, and this GPU is not known: set 'gpu' in the spec");
        return;
    }
    GP_AUTO_SOFTWARE_SET struct software_set set = {0};
    struct software_clashes clashes = {0};
    if (software_solve(&w, &set, &clashes) != 0) {
        const struct software_clash *c = &clashes.at[0];
        str_addf(why, "no build of torch fits: %s%s%s", c->facts, c->nearest[0] ? "; the nearest set that works: " : "",
                 c->nearest);
        return;
    }
    const char *text = known ? set.at[SOFTWARE_TORCH].text : wish;
    str_add(tag, set.torch_tag);
    str_add_mem(version, text, strcspn(text, "+"));
}

void python_torch_vars(const struct boot *b, const struct boot_item *it, struct str *out) {
    const struct spec_python *p = python_of(b);
    GP_AUTO_STR struct str version = {0}, tag = {0}, why = {0};
    choose_torch(b, &version, &tag, &why);
    python_vars(b, it, out);
    pip_vars(b, out);
    boot_var(out, "WANT", version.s);
    boot_var(out, "TAG", tag.s);
    boot_var(out, "WHY", why.s);
    boot_var(out, "TORCH_INDEX", p->torch_index ? p->torch_index : SPEC_PYTHON_TORCH_INDEX);
}

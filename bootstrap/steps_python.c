/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the steps of Python: interpreter, virtual environment, packages. No I/O; the node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

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

/* The names of the secrets only: their values are in the environment. */
static void pip_vars(const struct boot *b, struct str *out) {
    GP_AUTO_STR struct str names = {0};
    for (size_t i = 0; i < b->req->n_secrets; i++) str_addf(&names, "%s%s", i ? " " : "", b->req->secrets[i].env);
    boot_var(out, "INDEX", python_of(b)->index);
    boot_var(out, "AUTH", python_of(b)->index_auth);
    boot_var(out, "SECRETS", names.s);
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

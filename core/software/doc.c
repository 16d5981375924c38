/* SPDX-License-Identifier: Apache-2.0 */
/* Generates docs/software.md from the tables. No I/O. Any thread. */
#include "base/gp_base.h"

#include "software/rows.h"

static const char intro[] =
    "# GPU software that fits together\n\n"
    "<!-- Generated from the tables in core/software/ by `make docs`. Do not edit. -->\n\n"
    "This page lists the versions that gpuprov knows, the rules between them and the source of each. It is for people\n"
    "who choose versions in `bootstrap`. `gpuprov check SPEC --explain` prints the set for a spec, and the reason for\n"
    "each value. A spec that wishes a combination that cannot work is refused with line and column.\n";

static void cell(struct str *out, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|') str_addc(out, '\\');
        str_addc(out, *text);
    }
}

static void source(struct str *out, const char *text) {
    str_add(out, " | ");
    cell(out, text);
    str_add(out, " |\n");
}

static void cc(struct str *out, int v) { str_addf(out, "%d.%d", v / 10, v % 10); }

static void drivers(struct str *out) {
    str_add(out, "\n## Driver branches\n\n| branch | first version | CUDA without limits | compute capability | kernel "
                 "modules | kind, updates until | source |\n|---|---|---|---|---|---|---|\n");
    for (const struct branch_row *b = software_branches; b->name != NULL; b++) {
        str_addf(out, "| %s | %s | %s | ", b->name, b->first, b->cuda);
        cc(out, b->cc_min);
        str_add(out, " to ");
        cc(out, b->cc_max);
        str_addf(out, " | %s", b->open && b->proprietary ? "open, proprietary" : b->open ? "open" : "proprietary");
        str_addf(out, " | %s%s%s", b->kind != NULL ? b->kind : "", b->ends != NULL ? ", " : "",
                 b->ends != NULL ? b->ends : "");
        source(out, b->source);
    }
    str_add(out, "\n## Kernels\n\nKernels that a branch does not build for, or only from some version on. Other "
                 "combinations have no known failure. A row with three numbers counts "
                 "within that series.\n\n| kernel from | branch | builds from | source |\n"
                 "|---|---|---|---|\n");
    for (const struct kernel_row *k = software_kernels; k->name != NULL; k++) {
        str_addf(out, "| %s | %s | %s", k->name, k->branch, k->fixed != NULL ? k->fixed : "no version");
        source(out, k->source);
    }
}

static void systems(struct str *out) {
    str_add(out,
            "\n## Systems\n\nRocky Linux, AlmaLinux, Oracle Linux and CentOS Stream count as RHEL.\n\n"
            "| system | packages | NVIDIA's repository | branches there | CUDA there | branches of the distribution | "
            "glibc | Python | source |\n|---|---|---|---|---|---|---|---|---|\n");
    for (const struct os_row *o = software_systems; o->name != NULL; o++) {
        bool none = o->repository[0] == '\0';
        str_addf(out, "| %s | %s | %s | ", o->name, o->family, none ? "none" : o->repository);
        if (none) str_add(out, " | ");
        else {
            str_addf(out, "%s %s%s | ", o->branch_min, o->branch_max != NULL ? "to " : "and later",
                     o->branch_max != NULL ? o->branch_max : "");
            bool open = software_version_compare(o->cuda_max, "13.99") == 0;
            str_addf(out, "%s %s%s", o->cuda_min, open ? "and later" : "to ", open ? "" : o->cuda_max);
        }
        str_addf(out, " | %s | %s | %s", o->distro[0] != '\0' ? o->distro : "none", o->glibc, o->python);
        source(out, o->source);
    }
}

static void libraries(struct str *out) {
    str_add(out, "\n## CUDA\n\n| CUDA | driver with all features | driver at least | compute capability | source |\n"
                 "|---|---|---|---|---|\n");
    for (const struct cuda_row *c = software_cudas; c->name != NULL; c++) {
        str_addf(out, "| %s | %s | %s | ", c->name, c->driver, c->driver_min);
        cc(out, c->cc_min);
        str_add(out, " to ");
        cc(out, c->cc_max);
        source(out, c->source);
    }
    str_add(out,
            "\n## cuDNN\n\n| cuDNN | package | for CUDA | compute capability from | source |\n|---|---|---|---|---|\n");
    for (const struct cudnn_row *c = software_cudnns; c->name != NULL; c++) {
        str_addf(out, "| %s | %s | %d.x | ", c->name, c->package, c->cuda_major);
        cc(out, c->cc_min);
        source(out, c->source);
    }
    str_add(out, "\n## NCCL\n\n| NCCL | built with CUDA | compute capability | source |\n|---|---|---|---|\n");
    for (const struct nccl_row *c = software_nccls; c->name != NULL; c++) {
        str_addf(out, "| %s | %s | ", c->name, c->cuda);
        cc(out, c->cc_min);
        str_add(out, " to ");
        cc(out, c->cc_max);
        source(out, c->source);
    }
}

static void torches(struct str *out) {
    str_add(out,
            "\n## PyTorch\n\nBuilds for Linux on x86_64, at `https://download.pytorch.org/whl/TAG`. A wheel has its "
            "own CUDA, cuDNN and NCCL: only the driver matters.\n\n| PyTorch | tag | driver at least | compute "
            "capabilities | glibc | Python from | source |\n|---|---|---|---|---|---|---|\n");
    for (const struct torch_row *t = software_torches; t->name != NULL; t++) {
        str_addf(out, "| %s | %s | %s | ", t->name, t->tag, t->driver_min);
        for (size_t i = 0; i < GP_ARRAY_LEN(t->cc) && t->cc[i] != 0; i++) {
            str_add(out, i == 0 ? "" : ", ");
            cc(out, t->cc[i]);
        }
        str_addf(out, "%s | %s | %s", t->ptx != 0 ? " and PTX" : "", t->glibc, t->python);
        source(out, t->source);
    }
}

static void frameworks(struct str *out) {
    str_add(out, "\n## Other frameworks\n\nPackages of `python.packages` that are judged, up to the version in the "
                 "table.\n\n| package | up to | compute capability | driver at least | PyTorch below | source |\n"
                 "|---|---|---|---|---|---|\n");
    for (const struct framework_row *f = software_frameworks; f->name != NULL; f++) {
        str_addf(out, "| %s | %s | ", f->name, software_version_is(f->version, "999") ? "any" : f->version);
        if (f->cc_max != 0) {
            cc(out, f->cc_min);
            str_add(out, " to ");
            cc(out, f->cc_max);
        }
        str_addf(out, " | %s | %s", f->driver_min != NULL ? f->driver_min : "",
                 f->torch_below != NULL ? f->torch_below : "");
        source(out, f->source);
    }
}

char *software_markdown(void) {
    struct str out = {0};
    str_add(&out, intro);
    str_add(&out, "\n## Rules\n\n| rule | requirement |\n|---|---|\n");
    for (const struct rule *r = software_rules; r->id != NULL; r++) str_addf(&out, "| %s | %s |\n", r->id, r->doc);
    drivers(&out);
    libraries(&out);
    torches(&out);
    frameworks(&out);
    systems(&out);
    return str_steal(&out);
}

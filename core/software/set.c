/* SPDX-License-Identifier: Apache-2.0 */
/* The answer in words: each value with its reason, and the facts that steps need. Pure; any thread. */
#include "base/gp_base.h"

#include "software/rows.h"

void software_set_clear(struct software_set *s) {
    strv_clear(&s->notes);
    *s = (struct software_set){0};
}

static void copy(char *dst, size_t n, const char *text) { snprintf(dst, n, "%s", text != NULL ? text : ""); }
#define COPY(dst, text) copy(dst, sizeof(dst), text)

/* The reason why a value stands: what was wished, or the rules that ruled out newer rows. */
static void reason(const struct world *w, const struct pick *p, enum software_key k, struct software_value *v) {
    GP_AUTO_STR struct str out = {.max = sizeof v->why - 1};
    const char *wished = software_text(w->wish, k);
    if (software_get(p, k) == NULL) {
        if (wished != NULL && strcmp(wished, "none") == 0) str_add(&out, "it is left alone");
        else if ((k == SOFTWARE_CUDNN || k == SOFTWARE_NCCL) && wished == NULL && p->cuda == NULL)
            str_add(&out, "it is for a CUDA, and none is installed");
        else if (k >= SOFTWARE_CUDA) str_add(&out, "no version of the table fits");
        else str_add(&out, "there is nothing to install, because the driver is left alone");
        COPY(v->why, out.s);
        return;
    }
    if (k == SOFTWARE_DRIVER && w->wish->loaded != NULL) {
        COPY(v->why, "it is loaded and stays");
        return;
    }
    if (software_is_fixed(w->wish, k)) {
        COPY(v->why, "the spec has it");
        return;
    }
    str_add(&out, k == SOFTWARE_FLAVOUR || k == SOFTWARE_SOURCE ? "preferred" : "the newest that fits");
    /* The nearest of the newer rows that were passed over, and why. */
    const void *passed = NULL, *row = NULL;
    for (size_t i = 0; (row = software_row(k, i)) != software_get(p, k); i++)
        if (strcmp(software_row_name(row), software_row_name(software_get(p, k))) != 0) passed = row;
    if (passed != NULL) {
        char name[96], why[200] = "";
        struct pick q = *p;
        software_put(&q, k, passed);
        for (const struct rule *r = software_rules; r->id != NULL && why[0] == '\0'; r++)
            if ((r->keys & BIT(k)) != 0 && software_applies(r, w, &q) && !r->holds(w, &q))
                r->why(w, &q, why, sizeof why);
        software_name(w, &q, k, name, sizeof name);
        if (why[0] != '\0') str_addf(&out, "; not %s, because %s", name, why);
        else if (k == SOFTWARE_CUDA && p->branch != NULL)
            str_addf(&out, "; driver %s runs CUDA up to %s with all features", p->branch->name, p->branch->cuda);
    }
    COPY(v->why, out.s);
}

static void fill_fabric(const struct world *w, const struct pick *p, struct software_set *ret) {
    const struct software_wish *wish = w->wish;
    int there = wish->nvswitches > 0 ? 1 : wish->nvswitches == 0 ? 0 : wish->gpu.nvswitch;
    if (wish->nvswitches < 0 && wish->gpus == 1 && there != 1) there = 0;
    bool driver = p->branch != NULL;
    /* A host of an NVL72 has its switches in trays of their own, which run NVLSM. */
    ret->nvlsm = driver && there == 1 && wish->gpu.nvswitch == 1 && wish->gpu.cc >= 100;
    COPY(ret->fabric.text, !driver || there == 0 ? "no" : there == 1 ? "yes" : "if an NVSwitch is found");
    COPY(ret->fabric.why, !driver      ? "the driver is left alone"
                          : there == 0 ? "the node has no NVSwitch"
                          : ret->nvlsm
                              ? "the GPUs talk through NVSwitch; without it and NVLSM CUDA fails with error 802"
                          : there == 1 ? "the GPUs talk through NVSwitch; without it CUDA fails with error 802"
                                       : "SXM boards of this GPU have an NVSwitch, PCIe boards have none");
    if (driver && there != 0) {
        bool one_name = software_version_compare(p->branch->name, "580") >= 0;
        bool apt = strcmp(ret->os_family, "dnf") != 0;
        if (IS_DISTRO(p))
            snprintf(ret->fabric_manager, sizeof ret->fabric_manager, "nvidia-fabricmanager-%s", p->branch->name);
        else if (one_name) COPY(ret->fabric_manager, "nvidia-fabricmanager");
        else if (apt)
            snprintf(ret->fabric_manager, sizeof ret->fabric_manager, "nvidia-fabricmanager-%s", p->branch->name);
        else COPY(ret->fabric_manager, "nvidia-fabric-manager");
    }
    bool imex = driver && wish->gpu.nvl72;
    if (imex && software_version_compare(p->branch->name, "580") >= 0) COPY(ret->imex.text, "nvidia-imex");
    else if (imex) snprintf(ret->imex.text, sizeof ret->imex.text, "nvidia-imex-%s", p->branch->name);
    COPY(ret->imex.why, imex ? "the NVLink of an NVL72 reaches other nodes; IMEX has exactly the driver's version"
                             : "the NVLink does not leave the node");
}

static void fill_notes(const struct world *w, const struct pick *p, struct software_set *ret) {
    if (p->branch != NULL && p->branch->ends != NULL) {
        GP_AUTO_FREE char *text = xasprintf("NVIDIA's updates of driver %s (%s) end in %s", p->branch->name,
                                            p->branch->kind, p->branch->ends);
        strv_add(&ret->notes, text);
    }
    if (p->cuda != NULL && p->branch != NULL && software_version_compare(p->cuda->name, p->branch->cuda) > 0) {
        GP_AUTO_FREE char *text =
            xasprintf("CUDA %s on driver %s works by minor version compatibility: PTX and newer functions need driver "
                      "%s or later",
                      p->cuda->name, p->branch->name, p->cuda->driver);
        strv_add(&ret->notes, text);
    }
    if (p->torch != NULL && w->os != NULL && w->wish->python == NULL &&
        software_version_compare(w->os->python, p->torch->python) < 0) {
        GP_AUTO_FREE char *text = xasprintf("PyTorch %s needs Python %s or later, and %s has %s: set the version of "
                                            "Python",
                                            p->torch->name, p->torch->python, w->os->name, w->os->python);
        strv_add(&ret->notes, text);
    }
}

void software_fill(const struct world *w, const struct pick *p, struct software_set *ret) {
    *ret = (struct software_set){0};
    for (int k = 0; k < SOFTWARE_KEYS; k++) {
        const void *row = software_get(p, (enum software_key)k);
        COPY(ret->at[k].text, row != NULL ? software_row_name(row) : "");
        reason(w, p, (enum software_key)k, &ret->at[k]);
    }
    if (w->os != NULL) {
        COPY(ret->os_family, w->os->family);
        COPY(ret->repository, w->os->repository);
    }
    COPY(ret->driver_exact, w->driver_exact);
    if (p->branch != NULL) {
        bool none = false;
        const char *source = NULL, *fixed = NULL;
        if (w->wish->kernel != NULL) fixed = software_kernel_needs(w->wish->kernel, p->branch->name, &none, &source);
        COPY(ret->driver_minimum, fixed != NULL ? fixed : p->branch->first);
    }
    if (p->cuda != NULL) {
        COPY(ret->cuda_tag, p->cuda->name);
        ret->cuda_tag[2] = '-';
    }
    if (p->cudnn != NULL) COPY(ret->cudnn_package, p->cudnn->package);
    if (p->nccl != NULL) COPY(ret->nccl_cuda, p->nccl->cuda);
    if (p->torch != NULL) COPY(ret->torch_tag, p->torch->tag);
    COPY(ret->toolkit.text, "1.18.0");
    COPY(ret->toolkit.why, "the first that lets containers of newer CUDA run on older drivers (enable-cuda-compat)");
    fill_fabric(w, p, ret);
    fill_notes(w, p, ret);
}

static void line(struct str *out, const char *name, const struct software_value *v, const char *more) {
    GP_AUTO_FREE char *text = xasprintf("%s%s", v->text[0] != '\0' ? v->text : "-", more);
    str_addf(out, "  %-17s %-23s %s\n", name, text, v->why);
}

/* What follows a value: the rest of the exact version of a driver that was wished, the tag of a wheel. */
static const char *more_of(const struct software_set *s, enum software_key k, const char *tag) {
    const char *branch = s->at[SOFTWARE_DRIVER].text;
    if (k == SOFTWARE_DRIVER && branch[0] != '\0' && str_starts(s->driver_exact, branch))
        return s->driver_exact + strlen(branch);
    return k == SOFTWARE_TORCH ? tag : "";
}

char *software_explain(const struct software_set *s) {
    struct str out = {0};
    GP_AUTO_FREE char *tag = xasprintf("%s%s", s->torch_tag[0] != '\0' ? "+" : "", s->torch_tag);
    for (int k = 0; k < SOFTWARE_KEYS; k++)
        line(&out, software_key_name((enum software_key)k), &s->at[k], more_of(s, (enum software_key)k, tag));
    line(&out, "fabric manager", &s->fabric, "");
    line(&out, "IMEX", &s->imex, "");
    line(&out, "container toolkit", &s->toolkit, "");
    for (size_t i = 0; i < s->notes.n; i++) str_addf(&out, "  note: %s\n", s->notes.v[i]);
    return str_steal(&out);
}

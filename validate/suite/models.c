/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups in the GPU model table, which gpu_models.awk makes from gpu_models.tsv at build time. Does not judge
 * (limits.h does). Pure; any thread. */
#include "base/gp_base.h"

#include "models.h"

#include "base/str.h"
#include "checks.h"

#include <ctype.h>

struct model_source {
    const char *key, *title;
};
struct model_how {
    enum gpu_how kind;
    const char *text;
};
struct gpu_model {
    const char *id, *name;
    int like; /* the model whose figures it uses when it has none; -1: none */
};
struct model_pci {
    int model;
    unsigned device, subsystem;
};
struct model_name {
    int model;
    const char *text;
};
struct model_spec {
    int model, source;
    const char *key;
    double value;
};
struct model_figure {
    int model, source, how;
    bool is_floor;
    const char *check, *metric, *unit;
    double value;
    int gpus;
    int64_t bytes;
    int nvls; /* -1: either */
    bool nvlink;
};
#include "gen/gpu_models.inc"

static int index_of(const struct gpu_model *m) { return (int)(m - models); }

const struct gpu_model *gpu_model_at(size_t i) { return i < GP_ARRAY_LEN(models) ? &models[i] : NULL; }

const struct gpu_model *gpu_model_like(const struct gpu_model *m) { return m->like < 0 ? NULL : &models[m->like]; }

const struct gpu_model *gpu_model_find(unsigned device, unsigned subsystem) {
    const struct gpu_model *any = NULL;
    for (size_t i = 0; i < GP_ARRAY_LEN(pci_ids); i++) {
        const struct model_pci *p = &pci_ids[i];
        if (p->device != device) continue;
        if (p->subsystem != 0 && p->subsystem == subsystem) return &models[p->model];
        if (p->subsystem == 0) any = &models[p->model];
    }
    return any;
}

const char *gpu_model_name(const struct gpu_model *m) { return m->name; }

const char *gpu_model_id(const struct gpu_model *m) { return m->id; }

const struct gpu_model *gpu_model_by_id(const char *id) {
    for (size_t i = 0; i < GP_ARRAY_LEN(models); i++)
        if (str_eq(models[i].id, id)) return &models[i];
    return NULL;
}

/* --- names --- */

/* A name without the ignored parts (models.h), at most n - 1 characters. */
static void bare(char *dst, size_t n, const char *text) {
    static const char *const words[] = {"nvidia", "tesla", "geforce"};
    size_t len = 0;
    for (const char *p = text; *p && len + 1 < n; p++)
        if (isalnum((unsigned char)*p)) dst[len++] = (char)tolower((unsigned char)*p);
    dst[len] = 0;
    for (size_t i = 0; i < GP_ARRAY_LEN(words); i++) {
        size_t skip = strlen(words[i]);
        if (str_starts(dst, words[i])) memmove(dst, dst + skip, len - skip + 1);
        len = strlen(dst);
    }
}

#define NAME_MAX_LEN 80

static bool same_name(const char *wanted, const char *text) {
    char b[NAME_MAX_LEN];
    bare(b, sizeof b, text);
    return *wanted && str_eq(wanted, b);
}

const char *gpu_model_alias(const struct gpu_model *m, size_t i) {
    for (size_t k = 0; k < GP_ARRAY_LEN(names); k++)
        if (names[k].model == index_of(m) && i-- == 0) return names[k].text;
    return NULL;
}

bool gpu_model_is(const struct gpu_model *m, const char *text) {
    char wanted[NAME_MAX_LEN];
    bare(wanted, sizeof wanted, text);
    if (same_name(wanted, m->name) || same_name(wanted, m->id)) return true;
    const char *alias = NULL;
    for (size_t i = 0; (alias = gpu_model_alias(m, i)) != NULL; i++)
        if (same_name(wanted, alias)) return true;
    return false;
}

const struct gpu_model *gpu_model_named(const char *text) {
    for (size_t i = 0; i < GP_ARRAY_LEN(models); i++)
        if (gpu_model_is(&models[i], text)) return &models[i];
    return NULL;
}

/* --- data sheet --- */

double gpu_model_spec(const struct gpu_model *m, const char *name) {
    for (; m; m = gpu_model_like(m))
        for (size_t i = 0; i < GP_ARRAY_LEN(specs); i++)
            if (specs[i].model == index_of(m) && str_eq(specs[i].key, name)) return specs[i].value;
    return -1;
}

/* Rate of a PCIe link in one direction after its line code: generation 3 has 8 GT/s with 128/130. */
static double pcie_limit(const struct gpu_model *m) {
    double c2c = gpu_model_spec(m, "c2c_gb_per_s"); /* in its place */
    if (c2c > 0) return c2c;
    double gen = gpu_model_spec(m, "pcie_gen"), width = gpu_model_spec(m, "pcie_width");
    double lane = 8.0 / 8 * 128 / 130; /* GB/s; each generation doubles it */
    for (int g = 3; g < (int)gen; g++) lane *= 2;
    return gen < 3 || width <= 0 ? -1 : lane * width;
}

/* Between GPUs: NVLink where it joins all of them, else PCIe. */
static double link_limit(const struct gpu_model *m, const struct gpu_figure_key *key) {
    double nvlink = gpu_model_spec(m, "nvlink_gb_per_s");
    bool bridge = gpu_model_spec(m, "nvlink_bridge") > 0;
    bool joined = key->gpus <= gpu_model_spec(m, "nvlink_gpus") && (!bridge || key->nvlink);
    return nvlink > 0 && joined ? nvlink : pcie_limit(m);
}

/* "": the data sheet says nothing of this figure. */
static const char *sheet_of(const struct gpu_figure_key *key) {
    const struct check_info *check = check_find(key->check);
    const struct check_metric_info *figure = check != NULL ? check_info_metric(check, key->metric) : NULL;
    return figure != NULL && figure->sheet != NULL ? figure->sheet : "";
}

double gpu_model_limit(const struct gpu_model *m, const struct gpu_figure_key *key) {
    const char *sheet = sheet_of(key);
    if (str_eq(sheet, "pcie")) return pcie_limit(m);
    if (str_eq(sheet, "link")) return link_limit(m, key);
    return gpu_model_spec(m, sheet);
}

bool gpu_figure_plausible(const struct gpu_model *m, const struct gpu_figure_key *key, double value, char *why,
                          size_t why_size) {
    double limit = gpu_model_limit(m, key);
    double share = value / limit;
    if (limit <= 0 || (share >= 0.5 && share <= (key->nvls ? 1.25 : 1.0))) return true;
    snprintf(why, why_size,
             "%s %s of %.6g is %.3g %% of the data sheet's maximum for the %s (%.6g): a limit derived from it would %s",
             key->check, key->metric, value, share * 100, m->name, limit,
             share < 0.5 ? "pass every broken GPU" : "fail every sound GPU");
    return false;
}

/* --- measured figures --- */

static bool applies(const struct model_figure *f, const struct gpu_figure_key *key) {
    return str_eq(f->check, key->check) && str_eq(f->metric, key->metric) && (f->gpus == 0 || f->gpus == key->gpus) &&
           (f->bytes == 0 || f->bytes <= key->bytes) && (f->nvls < 0 || (f->nvls > 0) == key->nvls) &&
           (!f->nvlink || key->nvlink);
}

/* Negative: it judges nothing. */
static void limits_of_row(const struct model_figure *f, double *ret_fail, double *ret_degraded) {
    static const double shares[][2] = {[GPU_HOW_SAME] = {0.8, 0.9}, [GPU_HOW_BELOW] = {0.9, 1}};
    bool best = hows[f->how].kind == GPU_HOW_BEST;
    *ret_fail = best ? -1 : f->value * (f->is_floor ? 1 : shares[hows[f->how].kind][0]);
    *ret_degraded = best ? -1 : f->value * (f->is_floor ? 1.05 : shares[hows[f->how].kind][1]);
}

bool gpu_model_figure(const struct gpu_model *m, const struct gpu_figure_key *key, struct gpu_figure *ret) {
    const struct model_figure *best = NULL;
    for (; m && !best; m = gpu_model_like(m))
        for (size_t i = 0; i < GP_ARRAY_LEN(figures); i++) {
            const struct model_figure *f = &figures[i];
            bool rates = hows[f->how].kind != GPU_HOW_BEST;
            if (f->model == index_of(m) && rates && applies(f, key) && (!best || f->bytes > best->bytes)) best = f;
        }
    if (!best) return false;
    double share = key->pcie > 0 && key->pcie < 1 && str_eq(sheet_of(key), "pcie") ? key->pcie : 1;
    *ret = (struct gpu_figure){.measured = best->is_floor ? -1 : best->value * share, .how = hows[best->how].text};
    limits_of_row(best, &ret->fail, &ret->degraded);
    ret->fail *= share;
    ret->degraded *= share;
    ret->source = sources[best->source].title;
    return true;
}

bool gpu_row_at(size_t i, struct gpu_row *ret) {
    if (i >= GP_ARRAY_LEN(figures)) return false;
    const struct model_figure *f = &figures[i];
    *ret = (struct gpu_row){.model = &models[f->model],
                            .check = f->check,
                            .metric = f->metric,
                            .unit = f->unit,
                            .source = sources[f->source].title,
                            .how = hows[f->how].text,
                            .kind = hows[f->how].kind,
                            .value = f->value,
                            .is_floor = f->is_floor,
                            .gpus = f->gpus,
                            .nvls = f->nvls,
                            .bytes = f->bytes,
                            .nvlink = f->nvlink};
    limits_of_row(f, &ret->fail, &ret->degraded);
    return true;
}

bool gpu_spec_at(size_t i, struct gpu_spec_row *ret) {
    if (i >= GP_ARRAY_LEN(specs)) return false;
    const struct model_spec *s = &specs[i];
    *ret = (struct gpu_spec_row){&models[s->model], s->key, sources[s->source].title, s->value};
    return true;
}

bool gpu_pci_at(size_t i, const struct gpu_model **ret, unsigned *ret_device, unsigned *ret_subsystem) {
    if (i >= GP_ARRAY_LEN(pci_ids)) return false;
    *ret = &models[pci_ids[i].model];
    *ret_device = pci_ids[i].device;
    *ret_subsystem = pci_ids[i].subsystem;
    return true;
}

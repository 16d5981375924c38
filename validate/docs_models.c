/* SPDX-License-Identifier: Apache-2.0 */
/* Makes docs/gpu-models.md from the GPU model table: data sheets, measured figures and their sources. Pure; any
 * thread. */
#include "base/gp_base.h"

#include "base/str.h"
#include "validate/suite/models.h"
#include "validate/validate.h"

static const char intro[] =
    "# GPU models\n\n"
    "This page lists the GPU models of the table: data sheet, measured figures, sources. It is for people who judge a "
    "rate. Generated\n"
    "from `validate/suite/gpu_models.tsv` (`gpuprov checks --models`): do not edit.\n\n"
    "A GPU is identified by its PCI id, never by its name. A rate under 80 % of the measured figure fails its check, "
    "under 90 % it is\n"
    "degraded. If the figure is from a program that sound GPUs exceed, these limits are 90 % and 100 %. If only a "
    "limit was published,\n"
    "a rate below it fails, and a rate within 5 % above it is degraded. The best of many shapes rates nothing, "
    "because a check measures\n"
    "one fixed shape: such a figure is listed without limits. A figure that is not listed is *unrated*: no source "
    "has published it.\n\n"
    "The letter after each source names the way it was measured (see the end of the page). A test walks all rows: "
    "each published\n"
    "figure passes its own limit, and 60 % of it does not.\n\n"
    "A test compares every figure with the data sheet: at least half of it, at most all of it, with NVLS a quarter "
    "more, because\n"
    "bus bandwidth counts a ring's traffic. The test also finds the wrong entries of other tables when they are "
    "planted.\n\n"
    "A GPU that is not in the table is not refused. Its counters, its results and its peers decide, and your own "
    "fleet's figures\n"
    "if you calibrate ([validation](validation.md)).\n";

static void add_ids(struct str *s, const struct gpu_model *m) {
    const struct gpu_model *whose = NULL;
    unsigned device = 0, subsystem = 0;
    const char *sep = "";
    for (size_t i = 0; gpu_pci_at(i, &whose, &device, &subsystem); i++) {
        if (whose != m) continue;
        str_addf(s, "%s10de:%04x", sep, device);
        if (subsystem) str_addf(s, " with subsystem %04x", subsystem);
        sep = ", ";
    }
}

static void add_glance_value(struct str *s, const struct gpu_model *m, const char *name) {
    double v = gpu_model_spec(m, name);
    bool bridge = str_eq(name, "nvlink_gb_per_s") && gpu_model_spec(m, "nvlink_bridge") > 0;
    if (v < 0) str_add(s, " - |");
    else str_addf(s, " %.6g%s |", v, bridge ? " b" : "");
}

static void add_glance(struct str *s) {
    static const char *const keys[] = {"memory_gib",  "memory_gb_per_s", "fp32_tflops", "tf32_tflops",
                                       "bf16_tflops", "fp16_tflops",     "fp8_tflops",  "nvlink_gb_per_s",
                                       "pcie_gen",    "pcie_width",      "tdp_w"};
    const struct gpu_model *m = NULL;
    str_add(s, "\n## Data sheets\n\nDense rates in TFLOP/s; NVLink in GB/s, all links in one "
               "direction (b: only with a bridge).\n\n"
               "| model | PCI id | GB | GB/s | fp32 | tf32 | bf16 | fp16 | fp8 | NVLink | "
               "PCIe gen | lanes | W |\n"
               "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; (m = gpu_model_at(i)) != NULL; i++) {
        str_addf(s, "| [%s](#%s) | ", gpu_model_name(m), gpu_model_id(m));
        add_ids(s, m);
        str_add(s, " |");
        for (size_t k = 0; k < GP_ARRAY_LEN(keys); k++) add_glance_value(s, m, keys[k]);
        str_addc(s, '\n');
    }
}

static void add_when(struct str *s, const struct gpu_row *r) {
    const char *sep = "";
    if (r->gpus) {
        str_addf(s, "%d GPUs", r->gpus);
        sep = ", ";
    }
    if (r->bytes) {
        bool gib = r->bytes >= (int64_t)1 << 30;
        str_addf(s, "%s%lld %s and more", sep, (long long)(r->bytes >> (gib ? 30 : 20)), gib ? "GiB" : "MiB");
        sep = ", ";
    }
    if (r->nvls >= 0) {
        str_addf(s, "%s%s NVLS", sep, r->nvls ? "with" : "without");
        sep = ", ";
    }
    if (r->nvlink) {
        str_addf(s, "%sover NVLink", sep);
        sep = ", ";
    }
    if (!*sep) str_add(s, "always");
}

/* The letter of a way to measure, in the list at the end; new ones are added. */
static char how_letter(struct strv *hows, const char *text) {
    for (size_t i = 0; i < hows->n; i++)
        if (str_eq(hows->v[i], text)) return (char)('a' + i);
    strv_add(hows, text);
    return (char)('a' + hows->n - 1);
}

/* The number of a source in the list at the end; new ones are added. */
static size_t source_number(struct strv *sources, const char *title) {
    for (size_t i = 0; i < sources->n; i++)
        if (str_eq(sources->v[i], title)) return i + 1;
    strv_add(sources, title);
    return sources->n;
}

static void add_figures(struct str *s, const struct gpu_model *m, struct strv *sources, struct strv *hows) {
    struct gpu_row r;
    bool any = false;
    for (size_t i = 0; gpu_row_at(i, &r); i++) {
        if (r.model != m) continue;
        if (!any)
            str_add(s, "\n| figure | unit | measured | fails under | degraded under | when | source |\n"
                       "|---|---|---|---|---|---|---|\n");
        any = true;
        str_addf(s, "| %s.%s | %s | ", r.check, r.metric, r.unit);
        str_addf(s, r.is_floor ? "- | " : "%.5g | ", r.value);
        str_addf(s, r.fail < 0 ? "- | - | " : "%.5g | %.5g | ", r.fail, r.degraded);
        add_when(s, &r);
        str_addf(s, " | [%zu] %c |\n", source_number(sources, r.source), how_letter(hows, r.how));
    }
    if (!any && !gpu_model_like(m)) str_add(s, "\nNo measured figures are known: all its rates are unrated.\n");
}

static void add_model(struct str *s, const struct gpu_model *m, struct strv *sources, struct strv *hows) {
    GP_AUTO_STRV struct strv said = {0};
    struct gpu_spec_row spec;
    const char *alias = NULL;
    str_addf(s, "\n## %s\n\n<a id=\"%s\"></a>PCI ", gpu_model_name(m), gpu_model_id(m));
    add_ids(s, m);
    for (size_t i = 0; (alias = gpu_model_alias(m, i)) != NULL; i++)
        str_addf(s, "%s%s", i ? ", " : "; also called ", alias);
    str_add(s, ". Data sheet:");
    for (size_t i = 0; gpu_spec_at(i, &spec); i++)
        if (spec.model == m) {
            size_t number = source_number(sources, spec.source);
            GP_AUTO_FREE char *text = xasprintf("[%zu]", number);
            if (!strv_has(&said, text)) strv_add(&said, text);
        }
    GP_AUTO_FREE char *list = strv_join(&said, ", ");
    const struct gpu_model *like = gpu_model_like(m);
    str_addf(s, " %s.\n", said.n ? list : "as below");
    if (like)
        str_addf(s,
                 "\nFigures not listed here are those of the "
                 "[%s](#%s).\n",
                 gpu_model_name(like), gpu_model_id(like));
    add_figures(s, m, sources, hows);
}

char *models_markdown(void) {
    GP_AUTO_STR struct str s = {0};
    GP_AUTO_STRV struct strv sources = {0};
    GP_AUTO_STRV struct strv hows = {0};
    const struct gpu_model *m = NULL;
    str_add(&s, intro);
    add_glance(&s);
    for (size_t i = 0; (m = gpu_model_at(i)) != NULL; i++) add_model(&s, m, &sources, &hows);
    str_add(&s, "\n## Sources\n\n");
    for (size_t i = 0; i < sources.n; i++) str_addf(&s, "%s[%zu] %s\n", i ? "\n" : "", i + 1, sources.v[i]);
    str_add(&s, "\n## How the figures were measured\n\n");
    for (size_t i = 0; i < hows.n; i++) str_addf(&s, "%s%c: %s\n", i ? "\n" : "", (char)('a' + i), hows.v[i]);
    return str_steal(&s);
}

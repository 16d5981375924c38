/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, writes and makes the baseline's file; baseline_judge.c judges by it. Any thread. If two processes calibrate
 * into one file at once, the file of the last one stays, whole. */
#include "base/gp_base.h"

#include "validate/baseline.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/stats.h"
#include "validate/samples.h"
#include "validate/suite/models.h"

#include <math.h>

#define BASELINE_SCHEMA "gpuprov/baseline/v1"
#define BASELINE_MAX_BYTES ((size_t)4 << 20)

static void figure_clear(struct baseline_figure *f) {
    free(f->model);
    free(f->driver);
    free(f->check);
    free(f->metric);
    free(f->unit);
    free(f->by);
    free(f->date);
    *f = (struct baseline_figure){0};
}

void baseline_clear(struct baseline *b) {
    for (size_t i = 0; i < b->figures.len; i++) figure_clear(&b->figures.items[i]);
    vec_free(&b->figures);
    free(b->path);
    *b = (struct baseline){0};
}

static bool same(const struct baseline_figure *a, const struct baseline_figure *b) {
    return str_eq(a->model, b->model) && str_eq(a->driver, b->driver) && str_eq(a->check, b->check) &&
           str_eq(a->metric, b->metric) && str_eq(a->by, b->by) && a->gpus == b->gpus;
}

/* Replaces the same figure, or appends. */
static void put(struct baseline *b, struct baseline_figure f) {
    for (size_t i = 0; i < b->figures.len; i++) {
        if (!same(&b->figures.items[i], &f)) continue;
        figure_clear(&b->figures.items[i]);
        b->figures.items[i] = f;
        return;
    }
    vec_push(&b->figures, f);
}

/* --- a valid figure --- */

static const struct check_metric_info *known_metric(const struct baseline_figure *f) {
    const struct check_info *info = check_find(f->check);
    for (size_t i = 0; info && i < GP_ARRAY_LEN(info->metrics) && info->metrics[i].name; i++)
        if (str_eq(info->metrics[i].name, f->metric)) return &info->metrics[i];
    return NULL;
}

/* Allows for NVLS: the file does not record whether NCCL used it. */
static bool plausible(const struct baseline_figure *f, char *why, size_t n) {
    const struct gpu_model *m = gpu_model_by_id(f->model);
    struct gpu_figure_key key = {.check = f->check, .metric = f->metric, .gpus = f->gpus, .nvls = true, .nvlink = true};
    bool one_host = !m || f->gpus <= 8 || f->gpus <= gpu_model_spec(m, "nvlink_gpus");
    return !m || !one_host || gpu_figure_plausible(m, &key, f->median, why, n);
}

static int check_figure(const struct baseline *b, const struct baseline_figure *f, struct gp_error *err) {
    const struct check_metric_info *m = known_metric(f);
    char why[400] = "";
    if (!m) return gp_fail(err, GP_EUSAGE, "no check of this gpuprov has the figure %s.%s", f->check, f->metric);
    if (!str_eq(m->unit, f->unit))
        return gp_fail(err, GP_EUSAGE, "%s.%s: the unit is %s, not '%s'", f->check, f->metric, m->unit, f->unit);
    if (!(f->median > 0) || !(f->mad >= 0) || !isfinite(f->median) || !isfinite(f->mad) || f->n < 1)
        return gp_fail(err, GP_EUSAGE, "%s.%s of %s has no median of measured values", f->check, f->metric, f->model);
    if (!plausible(f, why, sizeof why)) return gp_fail(err, GP_EUSAGE, "%s", why);
    for (size_t i = 0; i < b->figures.len; i++)
        if (&b->figures.items[i] != f && same(&b->figures.items[i], f))
            return gp_fail(err, GP_EUSAGE, "%s.%s of %s occurs twice", f->check, f->metric, f->model);
    return 0;
}

/* --- the file --- */

static int read_figure(const json_t *j, struct baseline *b, struct gp_error *err) {
    struct baseline_figure f = {.model = xstrdup(json_str(j, "model", "")),
                                .driver = xstrdup(json_str(j, "driver", "")),
                                .check = xstrdup(json_str(j, "check", "")),
                                .metric = xstrdup(json_str(j, "metric", "")),
                                .unit = xstrdup(json_str(j, "unit", "")),
                                .by = xstrdup(json_str(j, "by", "")),
                                .date = xstrdup(json_str(j, "date", "")),
                                .gpus = (int)json_int(j, "gpus", 0),
                                .n = json_int(j, "n", 0),
                                .median = json_num(j, "median", NAN),
                                .mad = json_num(j, "mad", NAN)};
    vec_push(&b->figures, f); /* first, so that it is freed whatever follows */
    if (!*f.model || !*f.driver) return gp_fail(err, GP_EUSAGE, "a figure has no model or no driver");
    return check_figure(b, &b->figures.items[b->figures.len - 1], err);
}

static int read_all(const json_t *j, struct baseline *b, struct gp_error *err) {
    const char *schema = json_str(j, "schema", "");
    if (!str_eq(schema, BASELINE_SCHEMA))
        return gp_fail(err, GP_EUSAGE, "it is not a baseline of this version (schema '%s', expected '%s')", schema,
                       BASELINE_SCHEMA);
    const json_t *figures = json_at(j, "figures");
    if (!json_is_array(figures)) return gp_fail(err, GP_EUSAGE, "it has no list of figures");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(figures); i++)
        rc = read_figure(json_array_get(figures, i), b, err);
    return rc;
}

int baseline_load(const char *path, struct baseline *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *j = NULL;
    GP_CLEANUP(baseline_clear) struct baseline b = {.path = xstrdup(path)};
    int rc = fs_read(path, BASELINE_MAX_BYTES, &text, err);
    if (rc < 0) return gp_wrap(err, "the baseline");
    rc = json_parse(text.s ? text.s : "", text.len, "the baseline", &j, err);
    if (rc == 0) rc = read_all(j, &b, err);
    else if (err) err->code = GP_EUSAGE;
    if (rc < 0) return gp_wrap(err, "the baseline '%s' ('gpuprov validate STACK --calibrate' writes one)", path);
    *ret = b;
    b = (struct baseline){0};
    return 0;
}

int baseline_save(const struct baseline *b, const char *path, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = json_object();
    json_t *figures = json_array();
    json_object_set_new(j, "schema", json_string(BASELINE_SCHEMA));
    for (size_t i = 0; i < b->figures.len; i++) {
        const struct baseline_figure *f = &b->figures.items[i];
        json_t *one = json_object();
        json_object_set_new(one, "model", json_any_text(f->model));
        json_object_set_new(one, "driver", json_any_text(f->driver));
        json_object_set_new(one, "check", json_any_text(f->check));
        json_object_set_new(one, "metric", json_any_text(f->metric));
        json_object_set_new(one, "unit", json_any_text(f->unit));
        if (*f->by) json_object_set_new(one, "by", json_any_text(f->by));
        if (f->gpus) json_object_set_new(one, "gpus", json_integer(f->gpus));
        json_object_set_new(one, "n", json_integer(f->n));
        json_object_set_new(one, "median", json_real(f->median));
        json_object_set_new(one, "mad", json_real(f->mad));
        json_object_set_new(one, "date", json_any_text(f->date));
        json_array_append_new(figures, one);
    }
    json_object_set_new(j, "figures", figures);
    GP_AUTO_FREE char *text = json_text(j, 2);
    GP_AUTO_FREE char *line = xasprintf("%s\n", text);
    int rc = fs_write_output(path, line, strlen(line), 0644, err);
    return rc < 0 ? gp_wrap(err, "the baseline") : 0;
}

/* --- calibration --- */

static int refuse(const struct report_node *rn, const struct check_result *c, const char *stack, struct gp_error *err) {
    bool unknown = c->verdict == VERDICT_SKIPPED && c->required;
    if (c->verdict == VERDICT_PASS || (c->verdict == VERDICT_SKIPPED && !unknown)) return 0;
    GP_AUTO_FREE char *who = rn ? xasprintf("%s/%d", stack, rn->slot) : xstrdup(stack);
    return gp_fail(err, GP_EVALIDATE,
                   "%s: %s: %s: %s: a baseline needs sound nodes only, so none was "
                   "written",
                   who, c->check, verdict_name(c->verdict), c->message);
}

static int all_sound(const struct report *r, struct gp_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < r->nodes.len; i++)
        for (size_t k = 0; rc == 0 && k < r->nodes.items[i].checks.len; k++)
            rc = refuse(&r->nodes.items[i], &r->nodes.items[i].checks.items[k], r->stack, err);
    for (size_t k = 0; rc == 0 && k < r->gang.len; k++) rc = refuse(NULL, &r->gang.items[k], r->stack, err);
    if (rc == 0 && !r->ready)
        rc = gp_fail(err, GP_EVALIDATE, "%s is not ready: a baseline needs sound nodes only, so none was written",
                     r->stack);
    return rc;
}

static bool alike(const struct sample *a, const struct sample *b) {
    return a->metric == b->metric && a->gpus == b->gpus && str_eq(a->model, b->model) && str_eq(a->driver, b->driver) &&
           str_eq(a->by, b->by);
}

/* The figure of all samples with the key of the i-th. */
static struct baseline_figure figure_of(const struct samples *all, size_t i, const char *date) {
    const struct sample *one = &all->list.items[i];
    GP_AUTO_FREE double *v = xcalloc(all->list.len, sizeof *v);
    size_t n = 0;
    for (size_t k = 0; k < all->list.len; k++)
        if (alike(&all->list.items[k], one)) v[n++] = all->list.items[k].value;
    double median = stats_median(v, n);
    return (struct baseline_figure){.model = xstrdup(one->model),
                                    .driver = xstrdup(one->driver),
                                    .check = xstrdup(one->info->id),
                                    .metric = xstrdup(one->metric->name),
                                    .unit = xstrdup(one->metric->unit),
                                    .by = xstrdup(one->by),
                                    .date = xstrdup(date),
                                    .gpus = one->gpus,
                                    .n = (int64_t)n,
                                    .median = median,
                                    .mad = stats_mad(v, n, median)};
}

static bool is_first(const struct samples *all, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (alike(&all->list.items[k], &all->list.items[i])) return false;
    return true;
}

/* The new figures alone, each valid. */
static int gather(const struct samples *all, int64_t when_s, struct baseline *ret, struct gp_error *err) {
    char date[32];
    time_format_utc(date, sizeof date, when_s);
    date[10] = 0; /* only the day */
    for (size_t i = 0; i < all->list.len; i++) {
        const struct sample *one = &all->list.items[i];
        if (!*one->model || !*one->driver)
            return gp_fail(err, GP_EVALIDATE,
                           "%s.%s: gpu.presence did not report the GPU's model and driver, so no baseline was written",
                           one->info->id, one->metric->name);
        if (!is_first(all, i)) continue;
        vec_push(&ret->figures, figure_of(all, i, date));
        int rc = check_figure(ret, &ret->figures.items[ret->figures.len - 1], err);
        if (rc < 0) return gp_wrap(err, "no baseline was written");
    }
    return 0;
}

int baseline_calibrate(struct baseline *b, struct report *r, size_t *ret_figures, struct gp_error *err) {
    GP_AUTO_SAMPLES struct samples all = {0};
    GP_CLEANUP(baseline_clear) struct baseline made = {0};
    int rc = all_sound(r, err);
    if (rc < 0) return rc;
    samples_all(&all, r);
    if (!all.list.len)
        return gp_fail(err, GP_EUSAGE,
                       "%s: no check of this run measured a rate of GPUs, so no baseline was written: calibrate nodes "
                       "with GPUs; if these have some, give the checks more time",
                       r->stack);
    rc = gather(&all, r->started_s, &made, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < made.figures.len; i++) put(b, made.figures.items[i]);
    *ret_figures = made.figures.len;
    made.figures.len = 0; /* b owns them now */
    return 0;
}

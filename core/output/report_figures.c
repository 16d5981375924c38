/* SPDX-License-Identifier: Apache-2.0 */
/* The plots of a report, from its checks' data. It depends on the shapes of data (per GPU, per message size,
 * per step, over time), not on the checks: every check with data of such a shape is drawn. Pure. */
#include "base/gp_base.h"

#include "report_figures.h"

#include "base/json.h"
#include "base/stats.h"
#include "report_parts.h"

#include <math.h>

static double number(const json_t *j) { return json_is_number(j) ? json_number_value(j) : NAN; }

/* --- one figure of one check, all GPUs of all nodes --- */

static const struct check_result *find(const struct report_node *n, const char *check) {
    for (size_t i = 0; i < n->checks.len; i++)
        if (str_eq(n->checks.items[i].check, check)) return &n->checks.items[i];
    return NULL;
}

static void add_gpu_bars(const struct report *r, const char *check, const struct metric *m, struct plot_bars *p) {
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct check_result *c = find(&r->nodes.items[i], check);
        const json_t *g = NULL;
        for (size_t k = 0; c != NULL && (g = check_gpu(c, k)) != NULL; k++) {
            double v = number(json_object_get(json_object_get(g, "metrics"), m->name));
            if (!isfinite(v)) continue;
            struct plot_bar bar = {.value = v};
            struct metric own = *m;
            own.value = v;
            bar.bad = !metric_holds(&own);
            snprintf(bar.label, sizeof bar.label, "%d gpu %lld", r->nodes.items[i].slot,
                     (long long)json_integer_value(json_object_get(g, "gpu")));
            vec_push(&p->bars, bar);
        }
    }
}

/* Rates and other figures with a limit or reference; counts such as wrong words are not drawn. */
static bool is_rate(const struct metric *m) {
    return (m->has_floor && !m->ceiling && m->floor > 0) || m->measured > 0 || m->unrated;
}

static void gpu_rates(const struct report *r, const struct check_result *c, struct str *out) {
    for (size_t i = 0; i < c->metrics.len; i++) {
        const struct metric *m = &c->metrics.items[i];
        if (!is_rate(m)) continue;
        GP_AUTO_FREE char *title = xasprintf("%s: %s", c->check, m->name);
        struct plot_bars p = {.title = title,
                              .unit = report_text_of(m->unit),
                              .measured = m->measured,
                              .floor = m->has_floor ? m->floor : 0,
                              .ceiling = m->ceiling};
        add_gpu_bars(r, c->check, m, &p);
        plot_bars_svg(&p, out);
        plot_bars_clear(&p);
    }
}

static bool drawn_before(const struct report *r, size_t node, const char *check) {
    for (size_t i = 0; i < node; i++)
        if (find(&r->nodes.items[i], check) != NULL) return true;
    return false;
}

/* --- bus bandwidth over message size, one plot per operation, one line per type --- */

static struct plot_series *series_of(struct plot *p, const char *label) {
    for (size_t i = 0; i < p->series.len; i++)
        if (strncmp(p->series.items[i].label, label, sizeof p->series.items[i].label - 1) == 0)
            return &p->series.items[i];
    return plot_add(p, label);
}

static void busbw_of(const struct check_result *c, const char *op, struct str *out) {
    GP_AUTO_FREE char *title = xasprintf("%s: %s", c->check, op);
    struct plot p = {.title = title,
                     .x_label = "message size",
                     .y_label = "bus bandwidth, GB/s",
                     .log_x = true,
                     .log_y = true,
                     .level = NAN};
    const json_t *sizes = json_object_get(c->data, "sizes");
    for (size_t i = 0; i < json_array_size(sizes); i++) {
        const json_t *s = json_array_get(sizes, i);
        if (!str_eq(json_str(s, "op", ""), op)) continue;
        double bytes = json_num(s, "bytes", NAN), rate = json_num(s, "busbw", NAN);
        if (bytes > 0 && rate > 0) plot_point(series_of(&p, json_str(s, "type", "")), bytes, rate);
    }
    plot_lines(&p, out);
    plot_clear(&p);
}

static void busbw(const struct check_result *c, struct str *out) {
    GP_AUTO_STRV struct strv ops = {0};
    const json_t *sizes = json_object_get(c->data, "sizes");
    for (size_t i = 0; i < json_array_size(sizes); i++) {
        const char *op = json_str(json_array_get(sizes, i), "op", "");
        if (!strv_has(&ops, op)) strv_add(&ops, op);
    }
    for (size_t i = 0; i < ops.n; i++) busbw_of(c, ops.v[i], out);
}

/* --- training --- */

static void loss(const struct check_result *c, struct str *out) {
    const json_t *curve = json_object_get(c->data, "loss_curve");
    if (curve == NULL) curve = json_object_get(c->data, "losses");
    double stride = (double)json_int(c->data, "loss_curve_stride", 1);
    double steps = (double)json_int(c->data, "steps", 0);
    const struct metric *m = check_metric(c, "loss");
    GP_AUTO_FREE char *title = xasprintf("%s: loss", c->check);
    struct plot p = {.title = title, .x_label = "step", .y_label = "loss, nats", .level = NAN};
    if (m != NULL && m->has_floor) {
        p.level = m->floor;
        p.level_label = "must end below";
    }
    struct plot_series *s = plot_add(&p, "loss");
    for (size_t i = 0; i < json_array_size(curve); i++) {
        double at = (double)i * stride;
        plot_point(s, steps > 0 ? fmin(at, steps - 1) : at, number(json_array_get(curve, i)));
    }
    plot_lines(&p, out);
    plot_clear(&p);
}

static double median_of(const json_t *list) {
    GP_AUTO_FREE double *v = xcalloc(json_array_size(list) + 1, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        double x = number(json_array_get(list, i));
        if (isfinite(x)) v[n++] = x;
    }
    return n ? stats_median(v, n) : NAN;
}

/* Differences between ranks: a rank 1.5 times as slow as the median is marked. */
static void ranks(const struct check_result *c, const char *member, const char *what, const char *unit, bool rate,
                  struct str *out) {
    const json_t *list = json_object_get(c->data, member);
    GP_AUTO_FREE char *title = xasprintf("%s: %s", c->check, what);
    double middle = median_of(list);
    struct plot_bars p = {.title = title, .unit = unit, .ceiling = !rate, .floor = rate ? middle / 1.5 : middle * 1.5};
    if (!isfinite(p.floor)) return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct plot_bar bar = {.value = number(json_array_get(list, i))};
        if (!isfinite(bar.value)) continue;
        bar.bad = rate ? bar.value < p.floor : bar.value > p.floor;
        snprintf(bar.label, sizeof bar.label, "rank %zu", i);
        vec_push(&p.bars, bar);
    }
    plot_bars_svg(&p, out);
    plot_bars_clear(&p);
}

/* The distribution of the steps' times. */
static void step_spread(const struct check_result *c, struct str *out) {
    static const double parts[] = {0, 10, 50, 90, 100};
    const json_t *list = json_object_get(c->data, "step_ms_0_10_50_90_100");
    GP_AUTO_FREE char *title = xasprintf("%s: spread of the time per step", c->check);
    struct plot p = {.title = title, .x_label = "% of the steps, quickest first", .y_label = "ms", .level = NAN};
    struct plot_series *s = plot_add(&p, "");
    for (size_t i = 0; i < GP_ARRAY_LEN(parts) && i < json_array_size(list); i++)
        plot_point(s, parts[i], number(json_array_get(list, i)));
    plot_lines(&p, out);
    plot_clear(&p);
}

/* Every step's time, where a check reports it. */
static void step_times(const struct check_result *c, struct str *out) {
    const json_t *list = json_object_get(c->data, "step_ms");
    GP_AUTO_FREE char *title = xasprintf("%s: time per step", c->check);
    struct plot p = {.title = title, .x_label = "step", .y_label = "ms", .level = NAN};
    struct plot_series *s = plot_add(&p, "");
    for (size_t i = 0; i < json_array_size(list); i++) plot_point(s, (double)i, number(json_array_get(list, i)));
    plot_lines(&p, out);
    plot_clear(&p);
}

/* --- samples over time: data.gpus[].samples [{"t_ms" or "t", figure: value, ...}] --- */

static double time_of(const json_t *sample, size_t i) {
    if (json_object_get(sample, "t_ms") != NULL) return json_num(sample, "t_ms", NAN) / 1000;
    return json_num(sample, "t", (double)i);
}

static void samples_of(const struct report_node *n, const struct check_result *c, const char *figure, struct str *out) {
    GP_AUTO_FREE char *title = xasprintf("%s on node %d: %s", c->check, n->slot, figure);
    struct plot p = {.title = title, .x_label = "s", .y_label = figure, .level = NAN};
    const json_t *g = NULL;
    for (size_t k = 0; (g = check_gpu(c, k)) != NULL; k++) {
        char name[32];
        snprintf(name, sizeof name, "gpu %lld", (long long)json_integer_value(json_object_get(g, "gpu")));
        struct plot_series *s = plot_add(&p, name);
        const json_t *list = json_object_get(g, "samples");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *at = json_array_get(list, i);
            plot_point(s, time_of(at, i), number(json_object_get(at, figure)));
        }
    }
    plot_lines(&p, out);
    plot_clear(&p);
}

static void samples(const struct report_node *n, const struct check_result *c, struct str *out) {
    json_t *first = json_array_get(json_object_get(check_gpu(c, 0), "samples"), 0);
    const char *figure = NULL;
    json_t *value = NULL;
    json_object_foreach(first, figure, value) {
        if (json_is_number(value) && strcmp(figure, "t") != 0 && strcmp(figure, "t_ms") != 0)
            samples_of(n, c, figure, out);
    }
}

static void of_all(const struct check_result *c, struct str *out) {
    busbw(c, out);
    loss(c, out);
    step_times(c, out);
    step_spread(c, out);
    ranks(c, "gradient_ms_per_rank", "median gradient time per rank", "ms", false, out);
    ranks(c, "tokens_per_s_per_rank", "rate per rank", "tokens/s", true, out);
}

void report_figures(const struct report *r, struct str *out) {
    for (size_t i = 0; i < r->nodes.len; i++)
        for (size_t k = 0; k < r->nodes.items[i].checks.len; k++) {
            const struct check_result *c = &r->nodes.items[i].checks.items[k];
            if (!drawn_before(r, i, c->check)) gpu_rates(r, c, out);
        }
    for (size_t k = 0; k < r->gang.len; k++) of_all(&r->gang.items[k], out);
    /* A single machine reports its GPUs' joint results among its own checks. */
    for (size_t i = 0; r->gang.len == 0 && i < r->nodes.len; i++)
        for (size_t k = 0; k < r->nodes.items[i].checks.len; k++) of_all(&r->nodes.items[i].checks.items[k], out);
    for (size_t i = 0; i < r->nodes.len; i++)
        for (size_t k = 0; k < r->nodes.items[i].checks.len; k++)
            samples(&r->nodes.items[i], &r->nodes.items[i].checks.items[k], out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Plots as inline SVG: lines over linear or logarithmic axes, and bars with marks. Colours come from the
 * page's style sheet by class (s0 to s7, axis, grid, level), so light and dark themes need no code here. Pure. */
#include "base/gp_base.h"

#include "report_parts.h"

#include <math.h>

enum {
    PLOT_W = 620,
    PLOT_H = 260,
    LEFT = 64,
    RIGHT = 16,
    TOP = 14,
    BOTTOM = 44,
    CHAR_W = 7, /* a character of the page's 12 px, rounded up */
    LEGEND_H = 18,
    TICKS = 6,
    COLOURS = 8,
    DOTS_MAX = 100,
    BAR_H = 20,
    BAR_LEFT = 92,
    BAR_RIGHT = 82,
    BARS_MAX = 64
};

void plot_clear(struct plot *p) {
    for (size_t i = 0; i < p->series.len; i++) vec_free(&p->series.items[i].points);
    vec_free(&p->series);
    *p = (struct plot){0};
}

struct plot_series *plot_add(struct plot *p, const char *label) {
    struct plot_series s = {0};
    str_put(s.label, sizeof s.label, label);
    vec_push(&p->series, s);
    return &p->series.items[p->series.len - 1];
}

void plot_point(struct plot_series *s, double x, double y) {
    struct plot_point at = {x, y};
    if (isfinite(x) && isfinite(y)) vec_push(&s->points, at);
}

/* --- axes --- */

struct axis {
    double low, high;
    bool log, bytes;
    double from, to; /* pixels */
};

static double place(const struct axis *a, double v) {
    double low = a->log ? log2(a->low) : a->low, high = a->log ? log2(a->high) : a->high;
    double at = a->log ? log2(fmax(v, a->low)) : v;
    return a->from + (at - low) / (high - low) * (a->to - a->from);
}

static void include_value(struct axis *a, double v, bool *first) {
    if (a->log && v <= 0) return;
    a->low = *first ? v : fmin(a->low, v);
    a->high = *first ? v : fmax(a->high, v);
    *first = false;
}

/* 1, 2 or 5 times a power of ten. */
static double step_of(double span, int ticks) {
    double raw = span / ticks, ten = pow(10, floor(log10(raw)));
    double part = raw / ten;
    return (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * ten;
}

static void round_axis(struct axis *a, bool from_zero) {
    if (a->log) {
        double base = a->bytes ? 2 : 10;
        a->low = pow(base, floor(log(a->low) / log(base) + 1e-9));
        a->high = pow(base, ceil(log(a->high) / log(base) - 1e-9));
        if (a->high <= a->low) a->high = a->low * base;
        return;
    }
    if (from_zero && a->low > 0) a->low = 0;
    if (a->high <= a->low) a->high = a->low + 1;
    double step = step_of(a->high - a->low, TICKS);
    if (from_zero) a->low = floor(a->low / step) * step;
    a->high = from_zero ? ceil(a->high / step - 1e-9) * step : a->high;
}

static void byte_text(char *dst, size_t n, double v) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    for (; v >= 1024 && u + 1 < GP_ARRAY_LEN(units); u++) v /= 1024;
    snprintf(dst, n, "%.4g %s", v, units[u]);
}

static void tick_text(char *dst, size_t n, const struct axis *a, double v) {
    if (a->bytes) {
        byte_text(dst, n, v);
        return;
    }
    if (fabs(v) < (a->high - a->low) * 1e-9) v = 0; /* no "-0" */
    char text[STR_FIGURE];
    static const char *const names[] = {"", " k", " M", " G", " T"};
    size_t name = 0;
    if (fabs(v) >= 1e6)
        for (; fabs(v) >= 1000 && name + 1 < GP_ARRAY_LEN(names); name++) v /= 1000;
    snprintf(dst, n, "%s%s", str_figure(text, v), names[name]);
}

/* Tick i of an axis; false past its end. */
static bool tick(const struct axis *a, int i, double *ret) {
    if (a->log) {
        double base = a->bytes ? 2 : 10;
        double decades = log(a->high / a->low) / log(base);
        *ret = a->low * pow(base, i * fmax(1, ceil(decades / TICKS)));
    } else {
        double step = step_of(a->high - a->low, TICKS);
        *ret = (ceil(a->low / step - 1e-9) + i) * step;
    }
    return *ret <= a->high + (a->high - a->low) * 1e-9;
}

/* --- lines --- */

static void open_svg(struct str *out, const char *title, double w, double h) {
    str_addf(out, "<figure><figcaption>");
    report_escape(out, title);
    str_addf(out, "</figcaption><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", w, h);
    report_escape(out, title);
    str_add(out, "\">");
}

static void text_at(struct str *out, double x, double y, const char *anchor, const char *text) {
    str_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    report_escape(out, text);
    str_add(out, "</text>");
}

static void draw_axes(const struct plot *p, const struct axis *x, const struct axis *y, struct str *out) {
    char text[48];
    double v = 0;
    for (int i = 0; tick(y, i, &v); i++) {
        double at = place(y, v);
        tick_text(text, sizeof text, y, v);
        str_addf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", x->from, at, x->to);
        text_at(out, x->from - 6, at + 4, "end", text);
    }
    for (int i = 0; tick(x, i, &v); i++) {
        double at = place(x, v);
        tick_text(text, sizeof text, x, v);
        str_addf(out, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/>", at, y->from);
        text_at(out, at, y->from + 17, "middle", text);
    }
    str_addf(out, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>", x->from, y->from, x->to);
    text_at(out, (x->from + x->to) / 2, y->from + 36, "middle", p->x_label);
    str_addf(out, "<text transform=\"translate(13 %.1f) rotate(-90)\" text-anchor=\"middle\">", (y->from + y->to) / 2);
    report_escape(out, p->y_label);
    str_add(out, "</text>");
}

static void draw_series(const struct plot_series *s, size_t i, bool dots, const struct axis *x, const struct axis *y,
                        struct str *out) {
    if (s->points.len == 0) return;
    str_addf(out, "<path class=\"line s%zu\" d=\"", i % COLOURS);
    for (size_t k = 0; k < s->points.len; k++)
        str_addf(out, "%c%.1f %.1f", k == 0 ? 'M' : 'L', place(x, s->points.items[k].x),
                 place(y, s->points.items[k].y));
    str_add(out, "\"/>");
    if (!dots) return;
    for (size_t k = 0; k < s->points.len; k++) {
        char vx[48], vy[48];
        const struct plot_point *at = &s->points.items[k];
        tick_text(vx, sizeof vx, x, at->x);
        report_figure(vy, sizeof vy, at->y);
        str_addf(out, "<circle class=\"dot s%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"><title>", i % COLOURS,
                 place(x, at->x), place(y, at->y));
        report_escape(out, s->label);
        str_addf(out, "%s%s: %s</title></circle>", s->label[0] != '\0' ? ", " : "", vx, vy);
    }
}

/* Names of the series, as many in a line as fit. Returns its height. */
static double draw_legend(const struct plot *p, struct str *out) {
    double x = LEFT, y = TOP;
    if (p->series.len < 2) return 0;
    for (size_t i = 0; i < p->series.len; i++) {
        double w = 26 + CHAR_W * (double)strlen(p->series.items[i].label);
        if (x + w > PLOT_W && x > LEFT) {
            x = LEFT;
            y += LEGEND_H;
        }
        str_addf(out, "<path class=\"line s%zu\" d=\"M%.1f %.1fh14\"/>", i % COLOURS, x, y - 4);
        text_at(out, x + 18, y, "start", p->series.items[i].label);
        x += w;
    }
    return y - TOP + LEGEND_H;
}

void plot_lines(const struct plot *p, struct str *out) {
    struct axis x = {.log = p->log_x, .bytes = p->log_x, .from = LEFT, .to = PLOT_W - RIGHT};
    struct axis y = {.log = p->log_y};
    bool first_x = true, first_y = true;
    size_t points = 0;
    for (size_t i = 0; i < p->series.len; i++)
        for (size_t k = 0; k < p->series.items[i].points.len; k++, points++) {
            include_value(&x, p->series.items[i].points.items[k].x, &first_x);
            include_value(&y, p->series.items[i].points.items[k].y, &first_y);
        }
    if (first_x || first_y) return;
    if (isfinite(p->level) && p->level_label != NULL) include_value(&y, p->level, &first_y);
    round_axis(&x, false);
    round_axis(&y, true);
    GP_AUTO_STR struct str legend = {0};
    double used = draw_legend(p, &legend);
    y.to = TOP + used;
    y.from = y.to + PLOT_H - TOP - BOTTOM;
    open_svg(out, p->title, PLOT_W, y.from + BOTTOM);
    if (legend.len > 0) str_add_mem(out, legend.s, legend.len);
    draw_axes(p, &x, &y, out);
    if (isfinite(p->level) && p->level_label != NULL) {
        double at = place(&y, p->level);
        str_addf(out, "<path class=\"level\" d=\"M%.1f %.1fH%.1f\"/>", x.from, at, x.to);
        text_at(out, x.to - 2, at - 5, "end", p->level_label);
    }
    for (size_t i = 0; i < p->series.len; i++) draw_series(&p->series.items[i], i, points <= DOTS_MAX, &x, &y, out);
    str_add(out, "</svg></figure>\n");
}

/* --- bars --- */

void plot_bars_clear(struct plot_bars *p) {
    vec_free(&p->bars);
    *p = (struct plot_bars){0};
}

static int by_value(const void *a, const void *b) {
    double x = ((const struct plot_bar *)a)->value, y = ((const struct plot_bar *)b)->value;
    return x < y ? -1 : x > y;
}

static int by_value_down(const void *a, const void *b) { return by_value(b, a); }

static void mark(struct str *out, const char *class, const char *name, double at, double h, double v) {
    char text[48];
    report_figure(text, sizeof text, v);
    str_addf(out, "<path class=\"%s\" d=\"M%.1f 0V%.1f\"><title>", class, at, h);
    report_escape(out, name);
    str_addf(out, " %s</title></path>", text);
}

static void caption_of(const struct plot_bars *p, size_t shown, struct str *out) {
    char text[48];
    report_escape(out, p->title);
    str_add(out, " <small>");
    report_escape(out, p->unit);
    if (p->floor > 0) {
        report_figure(text, sizeof text, p->floor);
        str_addf(out, " &middot; <i class=\"key floor\"></i>%s %s", p->ceiling ? "at most" : "at least", text);
    }
    if (p->measured > 0) {
        report_figure(text, sizeof text, p->measured);
        str_addf(out, " &middot; <i class=\"key measured\"></i>this model reaches %s", text);
    }
    if (p->floor <= 0 && p->measured <= 0) str_add(out, " &middot; unrated");
    if (shown < p->bars.len)
        str_addf(out, " &middot; the %zu %s of %zu", shown, p->ceiling ? "highest" : "lowest", p->bars.len);
    str_add(out, "</small>");
}

void plot_bars_svg(const struct plot_bars *p, struct str *out) {
    if (p->bars.len == 0) return;
    size_t n = GP_MIN(p->bars.len, (size_t)BARS_MAX), bytes = p->bars.len * sizeof *p->bars.items;
    struct plot_bar *bars = xmalloc(bytes);
    memcpy(bars, p->bars.items, bytes);
    if (n < p->bars.len) qsort(bars, p->bars.len, sizeof *bars, p->ceiling ? by_value_down : by_value);
    double top = fmax(p->measured, p->floor);
    for (size_t i = 0; i < n; i++) top = fmax(top, bars[i].value);
    if (!(top > 0)) top = 1;
    double span = PLOT_W - BAR_LEFT - BAR_RIGHT, h = (double)n * BAR_H;
    str_add(out, "<figure><figcaption>");
    caption_of(p, n, out);
    str_addf(out, "</figcaption><svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", PLOT_W, h);
    report_escape(out, p->title);
    str_add(out, "\">");
    for (size_t i = 0; i < n; i++) {
        double y = (double)i * BAR_H, w = fmax(bars[i].value, 0) / top * span;
        char text[48];
        report_figure(text, sizeof text, bars[i].value);
        text_at(out, BAR_LEFT - 8, y + 14, "end", bars[i].label);
        str_addf(out, "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>",
                 bars[i].bad ? "bar bad" : "bar", BAR_LEFT, y + 3, w, BAR_H - 6);
        text_at(out, PLOT_W - 6, y + 14, "end", text);
    }
    if (p->measured > 0)
        mark(out, "measured", "this model reaches", BAR_LEFT + p->measured / top * span, h, p->measured);
    if (p->floor > 0)
        mark(out, "floor", p->ceiling ? "at most" : "at least", BAR_LEFT + p->floor / top * span, h, p->floor);
    str_add(out, "</svg></figure>\n");
    free(bars);
}

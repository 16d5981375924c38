/* SPDX-License-Identifier: Apache-2.0 */
/* Inside core/output: functions that the report writers share. Pure; any thread. */
#ifndef GP_OUTPUT_REPORT_PARTS_H
#define GP_OUTPUT_REPORT_PARTS_H

#include "base/str.h"
#include "model/report.h"

const char *report_text_of(const char *s); /* "" for NULL */
/* Four significant digits, never an exponent: 46.41, 58750, 0.007; "not measured" for NaN. */
void report_figure(char *dst, size_t n, double v);
/* The unit in readable form: a share is a plain number. */
const char *report_unit(const struct metric *m);

/* --- checks that are shown in one line --- */
/* True if the check over all nodes stands for this node's share of it: its verdict is the same or a worse one. Then
 * the share is not shown for each node. */
bool report_told_together(const struct report *r, const struct check_result *c);
/* Checks that did not run for the same reason are one line. Returns how many checks the line of list[i] stands for: 1:
 * only itself; 0: an earlier line has it. */
size_t report_alike(const struct check_result *list, size_t n, size_t i);
/* Appends the names of those checks: "gpu.memory, gpu.p2p". */
void report_alike_names(const struct check_result *list, size_t n, size_t i, struct str *out);
/* Appends its message, with the number of required checks: "did not run: step 'data': ended with status 1 [4
 * required]". */
void report_alike_text(const struct check_result *list, size_t n, size_t i, struct str *out);

/* A bar of a metric with a limit above zero, with a mark at the limit. */
bool report_bar_fits(const struct metric *m);
/* width columns; blanks where no bar fits. */
void report_bar(struct str *out, const struct metric *m, size_t width, bool colour, bool utf8);

/* --- for HTML and XML --- */
/* Text as content or attribute value: & < > " ' escaped; characters that XML 1.0 does not allow become U+FFFD. */
void report_escape(struct str *out, const char *text);

/* --- plots: inline SVG, each one complete <svg> element; the page's style sheet gives the colours --- */
struct plot_point {
    double x, y;
};
struct plot_series {
    char label[64];
    VEC_OF(struct plot_point) points;
};
struct plot {
    const char *title, *x_label, *y_label;
    bool log_x, log_y;
    VEC_OF(struct plot_series) series;
    double level; /* a horizontal line: a limit, a reference; NaN: none */
    const char *level_label;
};
void plot_clear(struct plot *p);
struct plot_series *plot_add(struct plot *p, const char *label); /* valid until the next plot_add */
void plot_point(struct plot_series *s, double x, double y);      /* ignores values that are not finite */
/* Lines over x. Nothing when there are no points. */
void plot_lines(const struct plot *p, struct str *out);

struct plot_bar {
    char label[64];
    double value;
    bool bad;
};
struct plot_bars {
    const char *title, *unit;
    VEC_OF(struct plot_bar) bars;
    double measured, floor; /* marks; <= 0: not known */
    bool ceiling;           /* floor is a limit from above */
};
void plot_bars_clear(struct plot_bars *p);
void plot_bars_svg(const struct plot_bars *p, struct str *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the report writers: readable figures, bars, escaping. Pure; any thread. */
#include "base/gp_base.h"

#include "report_parts.h"

#include <math.h>

const char *report_text_of(const char *s) { return s != NULL ? s : ""; }

void report_figure(char *dst, size_t n, double v) {
    char text[STR_FIGURE];
    str_put(dst, n, str_figure(text, v));
}

/* A share is a plain number: "efficiency 0.68". */
const char *report_unit(const struct metric *m) {
    const char *unit = report_text_of(m->unit);
    return strcmp(unit, "ratio") == 0 ? "" : unit;
}

/* --- checks that are shown in one line --- */

bool report_told_together(const struct report *r, const struct check_result *c) {
    for (size_t i = 0; i < r->gang.len; i++)
        if (str_eq(r->gang.items[i].check, c->check)) return r->gang.items[i].verdict >= c->verdict;
    return false;
}

static bool alike(const struct check_result *a, const struct check_result *b) {
    bool ran = a->verdict != VERDICT_SKIPPED && !str_eq(a->code, "did_not_run");
    return !ran && a->verdict == b->verdict && a->metrics.len + b->metrics.len == 0 && str_eq(a->code, b->code) &&
           str_eq(a->message, b->message) && str_eq(a->suggestion, b->suggestion);
}

size_t report_alike(const struct check_result *list, size_t n, size_t i) {
    size_t count = 1;
    for (size_t k = 0; k < i; k++)
        if (alike(&list[i], &list[k])) return 0;
    for (size_t k = i + 1; k < n; k++) count += alike(&list[i], &list[k]);
    return count;
}

void report_alike_names(const struct check_result *list, size_t n, size_t i, struct str *out) {
    str_add(out, report_text_of(list[i].check));
    for (size_t k = i + 1; k < n; k++)
        if (alike(&list[i], &list[k])) str_addf(out, ", %s", report_text_of(list[k].check));
}

void report_alike_text(const struct check_result *list, size_t n, size_t i, struct str *out) {
    size_t count = 1, required = list[i].required;
    for (size_t k = i + 1; k < n; k++) {
        if (!alike(&list[i], &list[k])) continue;
        count++;
        required += list[k].required;
    }
    str_add(out, report_text_of(list[i].message));
    if (required == 0 || list[i].verdict == VERDICT_PASS) return;
    if (count == 1) str_add(out, " [required]");
    else str_addf(out, " [%zu required]", required);
}

/* --- bars --- */

struct glyphs {
    const char *full, *empty, *mark_full, *mark_empty;
};
static const struct glyphs box = {"\xe2\x94\x81", "\xe2\x94\x80", "\xe2\x95\x8b", "\xe2\x94\xbc"};
static const struct glyphs ascii = {"=", "-", "#", "|"};

bool report_bar_fits(const struct metric *m) {
    return m->has_floor && m->floor > 0 && isfinite(m->floor) && isfinite(m->value) && m->value >= 0;
}

/* The whole bar is the largest of value, limit and the model's reference, so that a mark inside the
 * filled part means "above the floor". */
void report_bar(struct str *out, const struct metric *m, size_t width, bool colour, bool utf8) {
    if (!report_bar_fits(m)) {
        for (size_t i = 0; i < width; i++) str_addc(out, ' ');
        return;
    }
    const struct glyphs *g = utf8 ? &box : &ascii;
    double top = fmax(fmax(m->value, m->floor), isfinite(m->measured) ? m->measured : 0);
    size_t filled = (size_t)lround(m->value / top * (double)width);
    size_t mark = GP_MIN((size_t)(m->floor / top * (double)width), width - 1);
    /* Rounding must not move a value to the other side of its mark. */
    if (m->value >= m->floor) filled = GP_MAX(filled, mark + 1);
    else filled = GP_MIN(filled, mark);
    if (colour) str_add(out, metric_holds(m) ? "\033[32m" : "\033[31m");
    for (size_t i = 0; i < width; i++) {
        bool full = i < filled;
        if (i == mark) str_add(out, full ? g->mark_full : g->mark_empty);
        else str_add(out, full ? g->full : g->empty);
    }
    if (colour) str_add(out, "\033[0m");
}

/* --- escaping --- */

/* Length of a UTF-8 character that XML 1.0 allows and that steers no terminal; 0: not one. */
static size_t xml_char(const char *s) {
    uint32_t c = 0;
    size_t len = str_utf8(s, strnlen(s, 4), &c);
    bool blank = c == '\t' || c == '\n' || c == '\r';
    return c == 0xfffe || c == 0xffff || (str_steers(c) && !blank) ? 0 : len;
}

void report_escape(struct str *out, const char *text) {
    for (const char *s = report_text_of(text); *s != '\0';) {
        size_t n = xml_char(s);
        switch (n == 1 ? *s : 0) {
        case '&': str_add(out, "&amp;"); break;
        case '<': str_add(out, "&lt;"); break;
        case '>': str_add(out, "&gt;"); break;
        case '"': str_add(out, "&quot;"); break;
        case '\'': str_add(out, "&#39;"); break;
        default:
            if (n == 0) str_add(out, "\xef\xbf\xbd");
            else str_add_mem(out, s, n);
        }
        s += n == 0 ? 1 : n;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A validation report as text: per node and for the gang, each figure with its limit, the limit's
 * source and a bar. Lines are broken to a width. Judges nothing. Pure; any thread. */
#include "base/gp_base.h"

#include "report_forms.h"

#include "base/clock.h"
#include "report_parts.h"
#include "width.h"

#include <math.h>

static const char *verdict_colour(enum verdict v) {
    switch (v) {
    case VERDICT_PASS: return "\033[32m";
    case VERDICT_DEGRADED: return "\033[33m";
    case VERDICT_SKIPPED: return "\033[2m";
    case VERDICT_ERROR:
    case VERDICT_FAIL: return "\033[31m";
    }
    return "";
}

static void paint(struct str *out, bool colour, const char *code, const char *text, size_t width) {
    if (colour) str_add(out, code);
    text_pad(out, text, width);
    if (colour) str_add(out, "\033[0m");
}

enum { NAME_COLUMN = 12 }; /* of a check's name, and of its figures below it */

/* The layout: the width to break lines at (0: never), and the column of the text. */
struct layout {
    bool colour, utf8;
    size_t width, name_width, indent, bar;
};

static void add_value(const struct metric *m, struct str *out) {
    char v[48];
    report_figure(v, sizeof v, m->value);
    const char *unit = isfinite(m->value) ? report_unit(m) : "";
    str_addf(out, "%s%s%s", v, unit[0] ? " " : "", unit);
}

static void add_blanks(struct str *out, size_t n) {
    while (n-- > 0) str_addc(out, ' ');
}

/* Text from column `at` on, broken between words at `width` (0: never); further lines begin at
 * `indent`. */
static void add_wrapped(struct str *out, size_t at, size_t indent, size_t width, const char *text) {
    GP_AUTO_STR struct str clean = {0};
    text_fit(&clean, text, SIZE_MAX);
    size_t column = at;
    const char *s = clean.s != NULL ? clean.s : "";
    /* On a very narrow terminal a broken line would be only indent. */
    if (width < indent + 20) width = 0;
    while (*s != '\0') {
        size_t blanks = strspn(s, " "), n = strcspn(s + blanks, " ");
        GP_AUTO_FREE char *word = xstrndup(s + blanks, n);
        size_t w = text_width(word);
        if (width > 0 && column + blanks + w > width && column > indent && n > 0) {
            str_addc(out, '\n');
            add_blanks(out, indent);
            column = indent;
            blanks = 0;
        }
        add_blanks(out, blanks);
        str_add(out, word);
        column += blanks + w;
        s += strspn(s, " ") + n;
    }
    str_addc(out, '\n');
}

/* "at least 1.2 (spec)": the limit of a figure and its source. */
static void limit_text(const struct metric *m, struct str *out) {
    char v[48];
    if (m->unrated) {
        str_add(out, "unrated: no reference figure for this GPU is known");
        return;
    }
    if (!m->has_floor) return;
    report_figure(v, sizeof v, m->floor);
    str_addf(out, "%s %s%s%s", m->ceiling ? "at most" : "at least", v, report_unit(m)[0] != '\0' ? " " : "",
             report_unit(m));
    const char *source = report_text_of(m->source);
    /* "own" is the tables' word for a limit of gpuprov's own. */
    bool own = str_starts(source, "own: ");
    if (source[0] != '\0') str_addf(out, " (%s%s)", own ? "gpuprov: " : "", own ? source + 5 : source);
}

/* Columns of a bar that leave room for the text beside it. */
static size_t bar_width(size_t width) {
    return width == 0 || width >= 120 ? 24 : width >= 100 ? 16 : width >= 80 ? 10 : 0;
}

struct columns {
    size_t name, value;
    bool bar; /* at least one figure has a limit that a bar can show */
};

static struct columns columns_of(const struct check_result *c) {
    struct columns w = {0};
    for (size_t i = 0; i < c->metrics.len; i++) {
        const struct metric *m = &c->metrics.items[i];
        GP_AUTO_STR struct str value = {0};
        add_value(m, &value);
        w.name = GP_MAX(w.name, text_width(report_text_of(m->name)));
        w.value = GP_MAX(w.value, text_width(value.s));
        w.bar = w.bar || report_bar_fits(m);
    }
    return w;
}

/* One line per figure: name, value, bar, limit, each in its column. */
static void add_metric(const struct metric *m, const struct columns *w, const struct layout *at, struct str *out) {
    GP_AUTO_STR struct str value = {0}, limit = {0};
    add_value(m, &value);
    limit_text(m, &limit);
    add_blanks(out, NAME_COLUMN);
    text_pad(out, report_text_of(m->name), w->name);
    str_add(out, "  ");
    if (limit.len == 0) {
        text_fit(out, value.s, SIZE_MAX);
        str_addc(out, '\n');
        return;
    }
    text_pad(out, value.s, w->value);
    str_add(out, "  ");
    size_t column = NAME_COLUMN + w->name + 2 + w->value + 2;
    if (w->bar && at->bar > 0) {
        report_bar(out, m, at->bar, at->colour, at->utf8);
        str_add(out, "  ");
        column += at->bar + 2;
    }
    add_wrapped(out, column, column, at->width, limit.s);
}

static void add_metrics(const struct check_result *c, const struct layout *at, struct str *out) {
    struct columns w = columns_of(c);
    for (size_t i = 0; i < c->metrics.len; i++) add_metric(&c->metrics.items[i], &w, at, out);
}

/* The checks of a node or of the gang. */
struct checks {
    const struct check_result *items;
    size_t len;
};

/* "  pass      host.cores  2 of 2 cores usable", or "  skipped   8 checks    the spec has no gpu: gpu.memory, ...". */
static void add_head(const struct checks *list, size_t i, size_t alike, const struct layout *at, struct str *out) {
    const struct check_result *c = &list->items[i];
    GP_AUTO_STR struct str said = {0}, name = {0};
    if (alike > 1) str_addf(&name, "%zu checks", alike);
    else str_add(&name, report_text_of(c->check));
    report_alike_text(list->items, list->len, i, &said);
    if (alike > 1) {
        str_add(&said, ": ");
        report_alike_names(list->items, list->len, i, &said);
    }
    str_add(out, "  ");
    paint(out, at->colour, verdict_colour(c->verdict), verdict_name(c->verdict), NAME_COLUMN - 2);
    text_pad(out, name.s, at->name_width);
    str_add(out, "  ");
    add_wrapped(out, at->indent, at->indent, at->width, said.s);
    if (c->verdict == VERDICT_PASS || report_text_of(c->suggestion)[0] == '\0') return;
    GP_AUTO_FREE char *line = xasprintf("do: %s", c->suggestion);
    add_blanks(out, at->indent);
    add_wrapped(out, at->indent, at->indent + 4, at->width, line);
}

/* With those after it that did not run for the same reason. */
static void add_check(const struct checks *list, size_t i, const struct layout *at, struct str *out) {
    size_t alike = report_alike(list->items, list->len, i);
    if (alike == 0) return;
    add_head(list, i, alike, at, out);
    add_metrics(&list->items[i], at, out);
}

static size_t widest(const struct check_result *c, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++) width = GP_MAX(width, text_width(report_text_of(c[i].check)));
    return width;
}

static size_t widest_of_all(const struct report *r) {
    size_t width = widest(r->gang.items, r->gang.len, 8);
    for (size_t i = 0; i < r->nodes.len; i++)
        width = widest(r->nodes.items[i].checks.items, r->nodes.items[i].checks.len, width);
    return width;
}

static struct layout layout_of(const struct report *r, const struct report_style *style) {
    size_t names = widest_of_all(r);
    return (struct layout){.colour = style->colour,
                           .utf8 = style->utf8,
                           .width = style->width,
                           .name_width = names,
                           .indent = NAME_COLUMN + names + 2,
                           .bar = bar_width(style->width)};
}

/* The ASCII form of a text: an ellipsis becomes '~', any other character '?'. */
static void add_plain(struct str *out, const struct str *text, bool utf8) {
    if (utf8) {
        str_add_mem(out, text->s, text->len);
        return;
    }
    for (const char *s = text->s; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x80) {
            str_addc(out, *s);
            continue;
        }
        str_addc(out, str_starts(s, "\xe2\x80\xa6") ? '~' : '?');
        while (((unsigned char)s[1] & 0xc0) == 0x80) s++;
    }
}

static void add_part(struct str *line, const char *before, const char *part) {
    if (report_text_of(part)[0] != '\0') str_addf(line, "%s%s", before, part);
}

/* "llm/1  READY  aws us-east-2a, 10.0.0.1, host ip-10-0-0-1, i-1". */
static void add_node_head(const struct report *r, const struct report_node *n, bool colour, struct str *out) {
    GP_AUTO_FREE char *name = xasprintf("%s/%d", report_text_of(r->stack), n->slot);
    text_fit(out, name, SIZE_MAX);
    str_add(out, "  ");
    const char *word = n->ready ? "READY" : "NOT READY";
    paint(out, colour, n->ready ? "\033[32m" : "\033[31m", word, strlen(word));
    GP_AUTO_STR struct str rest = {0};
    add_part(&rest, "  ", n->place);
    add_part(&rest, ", ", n->address);
    add_part(&rest, ", host ", n->host);
    if (!str_eq(n->id, n->host)) add_part(&rest, ", ", n->id);
    add_part(&rest, ", image ", n->image);
    if (rest.s != NULL) text_fit(out, rest.s, SIZE_MAX);
}

static bool held(const struct check_result *c) {
    return c->verdict == VERDICT_PASS || (c->verdict == VERDICT_SKIPPED && !c->required);
}

/* "2 pass, 3 skipped"; without the checks that are shown for all nodes together (NULL: none). */
static void add_counts(const struct checks *list, const struct report *together, struct str *out) {
    size_t counts[VERDICT_FAIL + 1] = {0};
    for (size_t k = 0; k < list->len; k++)
        if (together == NULL || !report_told_together(together, &list->items[k])) counts[list->items[k].verdict]++;
    const char *sep = "";
    for (int v = VERDICT_PASS; v <= VERDICT_FAIL; v++) {
        if (counts[v] == 0) continue;
        str_addf(out, "%s%zu %s", sep, counts[v], verdict_name((enum verdict)v));
        sep = ", ";
    }
}

/* All figures of a check in one line: "loss 1.421 nats, tokens_per_s 58750 tokens/s". */
static void add_figures(const struct check_result *c, const struct layout *at, struct str *out) {
    GP_AUTO_STR struct str line = {0};
    for (size_t m = 0; m < c->metrics.len; m++) {
        str_addf(&line, "%s%s ", m > 0 ? ", " : "", report_text_of(c->metrics.items[m].name));
        add_value(&c->metrics.items[m], &line);
    }
    if (line.len == 0) return;
    add_blanks(out, at->indent);
    add_wrapped(out, at->indent, at->indent, at->width, line.s);
}

/* No check ran, all for one reason: "18 checks did not run: step 'data': ended with status 3". */
static bool none_ran(const struct checks *list) {
    return list->len > 0 && str_eq(list->items[0].code, "did_not_run") &&
           report_alike(list->items, list->len, 0) == list->len;
}

static void add_none_ran(const struct checks *list, const char *before, size_t column, const struct layout *at,
                         struct str *out) {
    GP_AUTO_FREE char *line =
        xasprintf("%s%zu check%s %s", before, list->len, list->len == 1 ? "" : "s", list->items[0].message);
    add_wrapped(out, column, 12, at->width, line);
}

static void brief(const struct report *r, const struct report_style *style, struct str *out) {
    struct layout at = layout_of(r, style);
    bool colour = style->colour;
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct report_node *n = &r->nodes.items[i];
        GP_AUTO_FREE char *name = xasprintf("%s/%d", report_text_of(r->stack), n->slot);
        const struct checks list = {n->checks.items, n->checks.len};
        text_fit(out, name, SIZE_MAX);
        str_add(out, "  ");
        paint(out, colour, n->ready ? "\033[32m" : "\033[31m", n->ready ? "READY" : "NOT READY", n->ready ? 5 : 9);
        str_add(out, "  ");
        if (none_ran(&list)) {
            add_none_ran(&list, "", text_width(name) + 2 + (n->ready ? 5 : 9) + 2, &at, out);
            continue;
        }
        add_counts(&list, r, out);
        str_addc(out, '\n');
        for (size_t k = 0; k < list.len; k++)
            if (!held(&list.items[k]) && !report_told_together(r, &list.items[k])) add_check(&list, k, &at, out);
    }
    const struct checks gang = {r->gang.items, r->gang.len};
    if (gang.len == 0) return;
    if (none_ran(&gang)) {
        add_none_ran(&gang, "all nodes together: ", 0, &at, out);
        return;
    }
    str_add(out, "all nodes together  ");
    add_counts(&gang, NULL, out);
    str_addc(out, '\n');
    for (size_t i = 0; i < gang.len; i++) {
        const struct check_result *c = &gang.items[i];
        size_t alike = report_alike(gang.items, gang.len, i);
        if (alike == 0 || (c->verdict == VERDICT_SKIPPED && !c->required)) continue;
        add_head(&gang, i, alike, &at, out);
        if (c->verdict == VERDICT_PASS) add_figures(c, &at, out);
        else add_metrics(c, &at, out);
    }
}

void report_brief(const struct report *r, const struct report_style *style, struct str *out) {
    GP_AUTO_STR struct str text = {0};
    str_add(&text, "");
    brief(r, style, &text);
    add_plain(out, &text, style->utf8);
}

static bool has_bar(const struct check_result *c) {
    for (size_t i = 0; i < c->metrics.len; i++)
        if (report_bar_fits(&c->metrics.items[i])) return true;
    return false;
}

/* Explains the bars, where one is shown. */
static void add_legend(const struct report *r, const struct layout *at, struct str *out) {
    bool any = false;
    for (size_t i = 0; i < r->nodes.len; i++)
        for (size_t k = 0; k < r->nodes.items[i].checks.len; k++)
            any = any || has_bar(&r->nodes.items[i].checks.items[k]);
    for (size_t i = 0; i < r->gang.len; i++) any = any || has_bar(&r->gang.items[i]);
    if (!any || bar_width(at->width) == 0) return;
    str_add(out, "bars: \xe2\x94\x81 the value, \xe2\x95\x8b or \xe2\x94\xbc its limit\n");
}

static void full(const struct report *r, const struct report_style *style, struct str *out) {
    struct layout at = layout_of(r, style);
    const char *stack = report_text_of(r->stack);
    for (size_t i = 0; i < r->nodes.len; i++) {
        const struct report_node *n = &r->nodes.items[i];
        add_node_head(r, n, style->colour, out);
        str_addc(out, '\n');
        const struct checks list = {n->checks.items, n->checks.len};
        for (size_t k = 0; k < list.len; k++)
            if (!report_told_together(r, &list.items[k])) add_check(&list, k, &at, out);
        str_addc(out, '\n');
    }
    if (r->gang.len > 0) {
        str_addf(out, "all nodes of %s together\n", stack);
        const struct checks gang = {r->gang.items, r->gang.len};
        for (size_t k = 0; k < gang.len; k++) add_check(&gang, k, &at, out);
        str_addc(out, '\n');
    }
    add_legend(r, &at, out);
    char took[32], at_s[32];
    duration_format(took, sizeof took, r->took_ms);
    time_format_utc(at_s, sizeof at_s, r->started_s);
    size_t ready = 0;
    for (size_t i = 0; i < r->nodes.len; i++) ready += r->nodes.items[i].ready;
    str_addf(out, "%s: %zu of %zu node%s ready%s, validated %s in %s\n", stack, ready, r->nodes.len,
             r->nodes.len == 1 ? "" : "s", r->strict ? " (strict)" : "", at_s, took);
    if (r->outdated == NULL) return;
    str_add(out, "outdated: ");
    text_fit(out, r->outdated, SIZE_MAX);
    str_addf(out, ": 'gpuprov up' or 'gpuprov validate %s' validates it again\n", stack);
}

void report_text(const struct report *r, const struct report_style *style, struct str *out) {
    GP_AUTO_STR struct str text = {.max = (size_t)256 << 20};
    full(r, style, &text);
    add_plain(out, &text, style->utf8);
}

static int write_text(const struct report *r, const struct report_style *style, struct str *out, struct gp_error *err) {
    (void)err;
    report_text(r, style, out);
    return 0;
}

const struct report_ops report_form_text = {"text", "txt", write_text};

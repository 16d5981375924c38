/* SPDX-License-Identifier: Apache-2.0 */
/* Tables without borders: columns as wide as their content, two blanks between; on a terminal no wider than it is.
 * Any thread, one table each. */
#include "base/gp_base.h"

#include "output.h"

#include "width.h"

#include <stdarg.h>
#include <unistd.h>

static void fill(struct strv *to, const char *first, va_list ap) {
    for (const char *s = first; s != NULL; s = va_arg(ap, const char *)) strv_add(to, s);
}

void table_head(struct table *t, const char *first, ...) {
    va_list ap;
    va_start(ap, first);
    strv_clear(&t->head);
    fill(&t->head, first, ap);
    va_end(ap);
}

void table_row(struct table *t, const char *first, ...) {
    va_list ap;
    va_start(ap, first);
    struct strv row = {0};
    fill(&row, first, ap);
    vec_push(&t->rows, row);
    va_end(ap);
}

static size_t column_width(const struct table *t, size_t column) {
    size_t width = column < t->head.n ? text_width(t->head.v[column]) : 0;
    for (size_t i = 0; i < t->rows.len; i++)
        if (column < t->rows.items[i].n) width = GP_MAX(width, text_width(t->rows.items[i].v[column]));
    return width;
}

/* Appends the part of a cell that fits into `width` columns, cut behind a blank or, if it has none there, anywhere.
 * Returns its bytes with the blank. Text of one byte per column only: other text is not cut. */
static size_t add_part(struct str *line, const char *cell, size_t width) {
    size_t n = strlen(cell), end = n;
    if (n > width && text_width(cell) == n) {
        end = width;
        for (size_t i = width; i > 0; i--)
            if (cell[i] == ' ') {
                end = i;
                break;
            }
    }
    GP_AUTO_FREE char *part = xstrndup(cell, end);
    text_pad(line, part, width);
    while (cell[end] == ' ') end++;
    return end;
}

/* A cell that is wider than its column continues below. */
static void print_row(const struct strv *row, const size_t *width, FILE *to) {
    GP_AUTO_FREE size_t *done = xcalloc(row->n + 1, sizeof *done);
    for (bool more = true; more;) {
        GP_AUTO_STR struct str line = {0};
        more = false;
        for (size_t c = 0; c < row->n; c++) {
            done[c] += add_part(&line, row->v[c] + done[c], width[c]);
            more = more || row->v[c][done[c]] != '\0';
            str_add(&line, "  ");
        }
        while (line.len > 0 && line.s[line.len - 1] == ' ') line.s[--line.len] = '\0';
        fprintf(to, "%s\n", line.s != NULL ? line.s : "");
    }
}

#define NARROW 7 /* no column gets narrower */
#define NAME 12  /* a first column up to this width is cut last */

static size_t longest_word(const char *s) {
    size_t longest = 0;
    if (text_width(s) != strlen(s)) return text_width(s); /* not cut */
    for (; *s != '\0'; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        longest = GP_MAX(longest, n);
        s += n;
    }
    return longest;
}

/* The least width of a column that breaks no word. */
static size_t word_width(const struct table *t, size_t column) {
    size_t width = column < t->head.n ? longest_word(t->head.v[column]) : 0;
    for (size_t i = 0; i < t->rows.len; i++)
        if (column < t->rows.items[i].n) width = GP_MAX(width, longest_word(t->rows.items[i].v[column]));
    return width;
}

/* The widest column above its least width, or `columns`. */
static size_t widest_of(const size_t *width, const size_t *least, size_t columns) {
    size_t widest = columns;
    for (size_t c = 0; c < columns; c++)
        if (width[c] > least[c] && (widest == columns || width[c] > width[widest])) widest = c;
    return widest;
}

/* A terminal that is too narrow breaks lines anywhere. The widest columns give way instead: between words, then
 * within words, at last within names. */
enum { WORDS, NAMES, ANYWHERE }; /* where cells are cut */
static void fit_terminal(const struct table *t, size_t *width, size_t columns, FILE *to) {
    if (isatty(fileno(to)) != 1) return;
    size_t total = columns > 0 ? 2 * (columns - 1) : 0, limit = output_width(to);
    GP_AUTO_FREE size_t *least = xcalloc(columns + 1, sizeof *least);
    for (size_t c = 0; c < columns; c++) total += width[c];
    for (int step = WORDS; step <= ANYWHERE; step++) {
        for (size_t c = 0; c < columns; c++) {
            bool whole = (c > 0 && c + t->whole >= columns) || (c == 0 && width[0] <= NAME && step < ANYWHERE);
            least[c] = whole ? width[c] : step == WORDS ? GP_MAX((size_t)NARROW, word_width(t, c)) : NARROW;
        }
        while (total > limit) {
            size_t widest = widest_of(width, least, columns);
            if (widest == columns) break;
            width[widest]--;
            total--;
        }
    }
}

void table_print(const struct table *t, FILE *to) {
    size_t columns = t->head.n;
    for (size_t i = 0; i < t->rows.len; i++) columns = GP_MAX(columns, t->rows.items[i].n);
    size_t *width = xcalloc(columns + 1, sizeof *width);
    for (size_t c = 0; c < columns; c++) width[c] = column_width(t, c);
    fit_terminal(t, width, columns, to);
    if (t->head.n > 0) print_row(&t->head, width, to);
    for (size_t i = 0; i < t->rows.len; i++) print_row(&t->rows.items[i], width, to);
    free(width);
}

void table_clear(struct table *t) {
    strv_clear(&t->head);
    for (size_t i = 0; i < t->rows.len; i++) strv_clear(&t->rows.items[i]);
    vec_free(&t->rows);
}

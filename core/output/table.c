/* SPDX-License-Identifier: Apache-2.0 */
/* Tables without borders: columns as wide as their content, two blanks between. Any thread, one
 * table each. */
#include "base/gp_base.h"

#include "output.h"

#include "width.h"

#include <stdarg.h>

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

static void print_row(const struct strv *row, const size_t *width, FILE *to) {
    GP_AUTO_STR struct str line = {0};
    for (size_t c = 0; c < row->n; c++) {
        if (c + 1 == row->n) {
            text_fit(&line, row->v[c], SIZE_MAX);
        } else {
            text_pad(&line, row->v[c], width[c]);
            str_add(&line, "  ");
        }
    }
    while (line.len > 0 && line.s[line.len - 1] == ' ') line.s[--line.len] = '\0';
    fprintf(to, "%s\n", line.s != NULL ? line.s : "");
}

void table_print(const struct table *t, FILE *to) {
    size_t columns = t->head.n;
    for (size_t i = 0; i < t->rows.len; i++) columns = GP_MAX(columns, t->rows.items[i].n);
    size_t *width = xcalloc(columns + 1, sizeof *width);
    for (size_t c = 0; c < columns; c++) width[c] = column_width(t, c);
    if (t->head.n > 0) print_row(&t->head, width, to);
    for (size_t i = 0; i < t->rows.len; i++) print_row(&t->rows.items[i], width, to);
    free(width);
}

void table_clear(struct table *t) {
    strv_clear(&t->head);
    for (size_t i = 0; i < t->rows.len; i++) strv_clear(&t->rows.items[i]);
    vec_free(&t->rows);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a section of the generated pages for people: without Markdown's marks, wrapped, with its table as a table. */
#include "base/gp_base.h"

#include "cmd/app.h"

#include "output/width.h"

/* Without ** and `; of [text](target) only the text; "**Finds** x" becomes "Finds: x". Caller frees. */
static char *plain(const char *text, size_t n) {
    struct str out = {0};
    str_add(&out, "");
    for (size_t i = 0; i < n; i++) {
        const char *link = text[i] == ']' && i + 1 < n && text[i + 1] == '(' ? memchr(text + i, ')', n - i) : NULL;
        if (link != NULL) i = (size_t)(link - text);
        else if (text[i] == '*' && i + 1 < n && text[i + 1] == '*') {
            if (out.len > 0 && str_starts(text, "**") && out.s[out.len - 1] != ':') str_addc(&out, ':');
            i++;
        } else if (text[i] != '`' && text[i] != '[') str_addc(&out, text[i]);
    }
    return str_steal(&out);
}

/* "| a | b |" */
static struct strv cells(const char *line, size_t n) {
    struct strv row = {0};
    for (size_t from = 2; from < n;) {
        const char *end = memchr(line + from, '|', n - from);
        size_t to = end != NULL ? (size_t)(end - line) : n;
        strv_take(&row, plain(line + from, to - from > 0 ? to - from - 1 : 0));
        from = to + 2;
    }
    return row;
}

static void print_wrapped(const char *text, FILE *to) {
    size_t at = 0, limit = output_width(to);
    for (const char *p = text; *p != '\0'; p += strspn(p, " ")) {
        GP_AUTO_FREE char *word = xstrndup(p, strcspn(p, " "));
        size_t width = text_width(word);
        if (at > 0 && at + 1 + width > limit) at = 0;
        fprintf(to, "%s%s", p == text ? "" : at > 0 ? " " : "\n", word);
        at += width + (at > 0);
        p += strlen(word);
    }
    fputc('\n', to);
}

static void print_table(struct table *t, FILE *to) {
    if (t->head.n > 0) table_print(t, to);
    table_clear(t);
    *t = (struct table){0};
}

void show_markdown(const char *text, FILE *to) {
    struct table t = {0};
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        if (str_starts(line, "|") && !str_starts(line, "|-")) {
            struct strv row = cells(line, n);
            if (t.head.n == 0) t.head = row;
            else vec_push(&t.rows, row);
        } else if (!str_starts(line, "|-")) {
            size_t marks = strspn(line, "#");
            GP_AUTO_FREE char *p = plain(line + marks, n - marks);
            print_table(&t, to);
            print_wrapped(str_trim(p), to);
        }
        line += n + (line[n] == '\n');
    }
    print_table(&t, to);
}

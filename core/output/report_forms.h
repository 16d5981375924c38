/* SPDX-License-Identifier: Apache-2.0 */
/* Report writers: one struct report, several forms. Each writer is pure: it appends to a string and
 * judges nothing. Adding a form is one file and one name in REPORT_FORM_LIST. Any thread. */
#ifndef GP_OUTPUT_REPORT_FORMS_H
#define GP_OUTPUT_REPORT_FORMS_H

#include "base/error.h"
#include "base/str.h"
#include "model/report.h"

#include <stdio.h>

/* Text style of a destination. */
struct report_style {
    bool colour;
    bool utf8;    /* false: ASCII only, other characters become '?' */
    size_t width; /* columns to break lines at; 0: never */
};
struct report_style output_style(FILE *to); /* the terminal's style, or that of a file */

struct report_ops {
    const char *name;      /* value of --format: "junit" */
    const char *extension; /* of a file of this form, without the dot: "xml" */
    /* Appends the whole report. -GP_EIO: larger than the form's limit. style may be
     * ignored; never NULL. */
    int (*write)(const struct report *r, const struct report_style *style, struct str *out, struct gp_error *err);
};
/* The list of forms: a new form is one file, which defines report_form_NAME, and its name here. */
#define REPORT_FORM_LIST(first, next) first(text) next(json) next(junit) next(prometheus) next(html)
#define REPORT_FORM_FIRST(name) #name
#define REPORT_FORM_NEXT(name) "|" #name
#define REPORT_FORM_DECLARE(name) extern const struct report_ops report_form_##name;
#define REPORT_FORMS REPORT_FORM_LIST(REPORT_FORM_FIRST, REPORT_FORM_NEXT) /* "text|json|...", for options and help */
REPORT_FORM_LIST(REPORT_FORM_DECLARE, REPORT_FORM_DECLARE)
extern const struct report_ops *const report_forms[];   /* NULL ends; in the order of REPORT_FORMS */
const struct report_ops *report_form(const char *name); /* NULL: there is none */

/* Writes a report into a file atomically (a reader never sees a part of it), mode 0644. */
int report_save(const struct report *r, const struct report_ops *form, const char *path, struct gp_error *err);

/* The short form for the end of `up`: the number of passed checks of each node, the others in full, and the
 * figures of the checks over all nodes. */
void report_brief(const struct report *r, const struct report_style *style, struct str *out);
/* Per node and for the gang, each figure with a bar, its limit and the limit's source. */
void report_text(const struct report *r, const struct report_style *style, struct str *out);
/* One line: "fail: gpu.memory: gpu 3: 12 wrong words", "pass: 14 checks passed, 2 skipped". */
void report_line(const struct report *r, struct str *out);

#endif

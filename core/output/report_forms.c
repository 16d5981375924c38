/* SPDX-License-Identifier: Apache-2.0 */
/* The list of report forms, and writing a report into a file. Judges nothing. Any thread. */
#include "base/gp_base.h"

#include "report_forms.h"

#include "base/fs.h"
#include "output.h"

#include <langinfo.h>

#define ROW(name) &report_form_##name,
const struct report_ops *const report_forms[] = {REPORT_FORM_LIST(ROW, ROW) NULL};
#undef ROW

const struct report_ops *report_form(const char *name) {
    for (size_t i = 0; report_forms[i] != NULL; i++)
        if (strcmp(report_forms[i]->name, name) == 0) return report_forms[i];
    return NULL;
}

struct report_style output_style(FILE *to) {
    return (struct report_style){
        .colour = output_colour(to), .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0, .width = output_width(to)};
}

int report_save(const struct report *r, const struct report_ops *form, const char *path, struct gp_error *err) {
    const struct report_style style = {.utf8 = true, .width = 120};
    GP_AUTO_STR struct str text = {.max = (size_t)256 << 20};
    int rc = form->write(r, &style, &text, err);
    if (rc == 0 && text.truncated) rc = gp_fail(err, GP_EIO, "the report is larger than 256 MiB as %s", form->name);
    if (rc == 0) rc = fs_write_output(path, text.s, text.len, 0644, err);
    return rc != 0 ? gp_wrap(err, "the report as %s", form->name) : 0;
}

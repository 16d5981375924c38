/* SPDX-License-Identifier: Apache-2.0 */
/* report_driver FORM [WIDTH [ascii]]: a report's JSON from stdin in another form on stdout. Terminal
 * colours where stdout is one. */
#include "base/gp_base.h"

#include "base/json.h"
#include "output/output.h"
#include "output/report_forms.h"

#include <locale.h>

static void read_all(struct str *text) {
    char buf[65536];
    size_t n = 0;
    text->max = (size_t)256 << 20;
    while ((n = fread(buf, 1, sizeof buf, stdin)) > 0) str_add_mem(text, buf, n);
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, "");
    struct report r = {0};
    struct gp_error err = {0};
    GP_AUTO_STR struct str text = {0}, out = {.max = (size_t)256 << 20};
    GP_AUTO_JSON json_t *j = NULL;
    const struct report_ops *form = argc > 1 ? report_form(argv[1]) : NULL;
    if (form == NULL) return 1;
    struct report_style style = output_style(stdout);
    int64_t width = 0;
    if (argc > 2 && str_to_i64(argv[2], 0, 1000, &width)) style.width = (size_t)width;
    if (argc > 3) style.utf8 = false;
    read_all(&text);
    int rc = json_parse(text.s, text.len, "stdin", &j, &err);
    if (rc == 0) rc = report_from_json(j, &r, &err);
    if (rc == 0) rc = form->write(&r, &style, &out, &err);
    if (rc == 0) fwrite(out.s, 1, out.len, stdout);
    else fprintf(stderr, "%s\n", err.msg);
    report_clear(&r);
    return rc == 0 ? 0 : 1;
}

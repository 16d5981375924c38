/* SPDX-License-Identifier: Apache-2.0 */
/* The firmware's texts and the marks of a cloud, with a folder of the test's own. */
#include "base/gp_base.h"

#include "providers/common/dmi.h"

#include "base/fs.h"
#include "folder.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct dmi_mark marks[] = {{"sys_vendor", "Amazon"}, {"bios_version", "amazon"}, {NULL, NULL}};

static void test_answers(void **state) {
    static const struct {
        const char *vendor, *bios; /* NULL: no such file */
        enum dmi_answer answer;
    } rows[] = {
        {"Amazon EC2\n", "1.0\n", DMI_YES}, {"Xen\n", "4.11.amazon\n", DMI_YES},
        {NULL, "4.11.amazon\n", DMI_YES},   {"Dell Inc.\n", "2.1\n", DMI_NO},
        {"Dell Inc.\n", NULL, DMI_NO},      {NULL, "2.1\n", DMI_NO},
        {"\n", NULL, DMI_UNREADABLE},       {"", " \n", DMI_UNREADABLE},
        {NULL, NULL, DMI_UNREADABLE},       {"\n", "2.1\n", DMI_NO},
    };
    (void)state;
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        char folder[256];
        assert_non_null(make_folder(folder, sizeof folder, "dmi"));
        const char *const texts[] = {rows[i].vendor, rows[i].bios};
        for (size_t k = 0; k < GP_ARRAY_LEN(texts); k++) {
            GP_AUTO_FREE char *path = fs_join(folder, marks[k].file);
            FILE *f = texts[k] != NULL ? fopen(path, "w") : NULL;
            if (f != NULL) fputs(texts[k], f);
            if (f != NULL) fclose(f);
        }
        if (dmi_names(folder, marks) != rows[i].answer) fail_msg("row %zu", i);
        assert_int_equal(fs_remove_tree(folder, NULL), 0);
        assert_int_equal(dmi_names(folder, marks), DMI_UNREADABLE); /* no folder */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

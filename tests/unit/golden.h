/* SPDX-License-Identifier: Apache-2.0 */
/* For tests that compare a text with a file of the repository. */
#ifndef GP_TEST_GOLDEN_H
#define GP_TEST_GOLDEN_H

#include "base/fs.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* UPDATE_GOLDEN=1: writes the file instead. */
GP_UNUSED static void same_as_file(const char *path, const char *text) {
    struct gp_error err = {0};
    if (getenv("UPDATE_GOLDEN") != NULL) {
        if (fs_write_atomic(path, text, strlen(text), 0644, &err) != 0) fail_msg("%s", err.msg);
        return;
    }
    GP_AUTO_STR struct str want = {0};
    if (fs_read(path, (size_t)1 << 20, &want, &err) != 0) fail_msg("%s", err.msg);
    assert_string_equal(text, want.s);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of a test's own, in TMPDIR: what a run leaves there is found. */
#ifndef GP_TEST_FOLDER_H
#define GP_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

/* Makes a folder NAME-XXXXXX and writes its path. NULL: it could not be made. */
__attribute__((unused)) static char *make_folder(char *dst, size_t n, const char *name) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dst, n, "%s/gpuprov-%s-XXXXXX", tmp != NULL && tmp[0] == '/' ? tmp : "/tmp", name);
    return mkdtemp(dst);
}

#endif

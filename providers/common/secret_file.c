/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokens and keys. Other programs write them again and again, so that any read may find a half of one. */
#include "base/gp_base.h"

#include "providers/common/secret_file.h"

#include "base/fs.h"

int secret_file_read(const char *path, size_t max, struct str *ret, struct gp_error *err) {
    struct gp_error why = {0};
    int r = fs_read_text(path, max, ret, &why);
    if (r != 0) return gp_fail(err, GP_EAUTH, "%s", why.msg);
    if (ret->s[strspn(ret->s, " \t\r\n")] == '\0')
        return gp_fail(err, GP_EAUTH, "'%s' is empty: write it again, or name another file", path);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Compares the texts of the firmware with a cloud's marks. */
#include "base/gp_base.h"

#include "providers/common/dmi.h"

#include "base/fs.h"

#define TEXT_MAX 4096

enum dmi_answer dmi_names(const char *folder, const struct dmi_mark *marks) {
    enum dmi_answer answer = DMI_UNREADABLE;
    for (; marks->file != NULL; marks++) {
        GP_AUTO_FREE char *path = fs_join(folder, marks->file);
        GP_AUTO_STR struct str text = {0};
        if (fs_read(path, TEXT_MAX, &text, NULL) != 0 || text.s == NULL || str_trim(text.s)[0] == '\0') continue;
        if (strstr(text.s, marks->text) != NULL) return DMI_YES;
        answer = DMI_NO;
    }
    return answer;
}

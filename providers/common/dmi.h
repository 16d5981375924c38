/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this machine is at a cloud, by the texts of its firmware (DMI). A metadata service is then asked only where
 * it can exist: elsewhere a network that swallows packets costs seconds, and its address may be anybody's. Any
 * thread. */
#ifndef GP_COMMON_DMI_H
#define GP_COMMON_DMI_H

#include <stdbool.h>

#define DMI_FOLDER "/sys/class/dmi/id"

enum dmi_answer {
    DMI_UNREADABLE, /* no file has a text: a container, or a machine without DMI */
    DMI_YES,
    DMI_NO
};
/* A file of the folder, and a text that it contains on the cloud's machines. */
struct dmi_mark {
    const char *file, *text;
};
/* marks end with a file NULL; one is enough for DMI_YES. folder: DMI_FOLDER, or that of a test. */
enum dmi_answer dmi_names(const char *folder, const struct dmi_mark *marks);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The content of bootstrap.files: read once per process and shared by all nodes while it stays the same here.
 * Any thread; a set is read-only and lives until its last user drops it. */
#ifndef GP_BOOTSTRAP_FILES_H
#define GP_BOOTSTRAP_FILES_H

#include "base/error.h"
#include "spec/spec.h"

#include <sys/stat.h>

struct boot_file_item {
    char *from, *to;
    char mode[8]; /* "644" */
    char *owner;  /* "user:group", "user" or "-": the login user */
    char sha256[65];
    void *data;
    size_t n;
    struct stat st;
};
struct boot_files {
    int users;
    VEC_OF(struct boot_file_item) items;
};

/* Errors name the file of this machine: -GP_EUSAGE, -GP_EIO. */
int boot_files_get(const struct spec_storage *s, struct boot_files **ret, struct gp_error *err);
void boot_files_release(struct boot_files *f); /* accepts NULL */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The files of this machine that bootstrap.files names: finding them, and the sum of an entry's content. Any thread. */
#ifndef GP_SPEC_SPEC_FILES_H
#define GP_SPEC_SPEC_FILES_H

#include "spec/spec.h"

#include <sys/stat.h>

#define SPEC_FILES_MAX 2000
#define SPEC_FILES_BYTES ((size_t)256 << 20)

struct spec_files_walk {
    /* Called for each file, in the order of names. mode: its permissions on the node. */
    int (*each)(void *ctx, const char *from, const char *to, unsigned mode, const struct stat *st,
                struct gp_error *err);
    void *ctx;
    size_t files, bytes; /* of all entries so far: compared with the limits */
};
/* Errors name the file: -GP_EUSAGE, -GP_EIO, and those of each(). */
int spec_files_walk(struct spec_files_walk *w, const struct spec_file *entry, struct gp_error *err);
/* Of the names, permissions and content of all files of the entry; w counts them, its each and ctx are not used. */
int spec_files_sum(struct spec_files_walk *w, const struct spec_file *entry, char ret[65], struct gp_error *err);

#endif

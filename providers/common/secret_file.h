/* SPDX-License-Identifier: Apache-2.0 */
/* A file that has one secret: a token, a key, credentials. Any thread. */
#ifndef GP_COMMON_SECRET_FILE_H
#define GP_COMMON_SECRET_FILE_H

#include "base/error.h"
#include "base/str.h"

/* Reads a text file of at most max bytes that is not blank (fs_read_text).
 * -GP_EAUTH with the file's name and the next step: absent, unreadable, empty, larger, not a text. ret->s is never
 * NULL afterwards; the caller wipes it. */
int secret_file_read(const char *path, size_t max, struct str *ret, struct gp_error *err);

#endif

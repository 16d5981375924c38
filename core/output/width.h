/* SPDX-License-Identifier: Apache-2.0 */
/* The width of text on a terminal, and cutting text to a width. Text may come from a node: control
 * characters, C1 codes and invalid UTF-8 become '?', so that it cannot steer the terminal. */
#ifndef GP_OUTPUT_WIDTH_H
#define GP_OUTPUT_WIDTH_H

#include "base/str.h"

size_t text_width(const char *s); /* columns, after cleaning */
/* Appends s cleaned and cut to width columns; a cut text ends with an ellipsis in the last column.
 * Returns the columns used. */
size_t text_fit(struct str *out, const char *s, size_t width);
/* text_fit, then blanks up to width. */
void text_pad(struct str *out, const char *s, size_t width);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A secret value: never printed with %s, wiped on clear, compared in constant time. */
#ifndef GP_BASE_SECRET_H
#define GP_BASE_SECRET_H

#include "base/gp_base.h"

struct secret {
    unsigned char *bytes_; /* reached only through the functions below */
    size_t len;
};
void secret_set(struct secret *s, const void *p, size_t n); /* copies; wipes what was there */
void secret_clear(struct secret *s);
void secret_copy(struct secret *to, const struct secret *from);
/* NUL-ended view, valid until clear; "" when empty. The name is long so that a reviewer sees it. */
const char *secret_reveal(const struct secret *s);
bool secret_equal(const struct secret *a, const void *p, size_t n);
#define GP_AUTO_SECRET GP_CLEANUP(secret_clear)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the machine's own files changed under its nodes. */
#ifndef GP_LOCAL_LOWER_H
#define GP_LOCAL_LOWER_H

#include "model/stack.h"

/* The first change of programs and libraries below root after since_s, in words; NULL: none. Caller frees. */
char *lower_changed(const char *root, int64_t since_s);
/* The `trouble` of the provider: the same for the life of a node. */
char *local_trouble(const struct resource *node);

#endif

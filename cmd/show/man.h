/* SPDX-License-Identifier: Apache-2.0 */
/* The manual page gpuprov(1), made from the tables of verbs and options. Pure. */
#ifndef GP_CMD_MAN_H
#define GP_CMD_MAN_H

#include "base/str.h"

/* Adds the page in roff (man macros). */
void man_page(struct str *out);

#endif

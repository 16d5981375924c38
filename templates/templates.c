/* SPDX-License-Identifier: Apache-2.0 */
/* Finds files embedded in the program: those below templates/ and the node agents, in the
 * table that templates/embed.mk generates. Read-only data; any thread may call it. */
#include "base/gp_base.h"

#include "templates/templates.h"

extern const struct template_file template_table[]; /* ended by a NULL name */

const struct template_file *template_find(const char *name) {
    for (const struct template_file *f = template_table; f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* INI in the form of the AWS CLI: [section], key = value, # and ; comments, nested (indented) values
 * kept as text. */
#ifndef GP_BASE_INI_H
#define GP_BASE_INI_H

#include "base/error.h"
#include "base/vec.h"

struct ini_entry {
    char *section, *key, *value;
};
struct ini {
    VEC_OF(struct ini_entry) entries;
};
/* name: as shown in messages, "name:line: ..." (-GP_EUSAGE); never shows a line's content. */
int ini_parse(const char *name, const char *text, struct ini *ret, struct gp_error *err);
void ini_clear(struct ini *ini);
/* Keys are matched without case; a later value wins. [profile "a b"] is the section `profile a b`. A
 * section header is an entry with the key "". */
const char *ini_get(const struct ini *ini, const char *section, const char *key); /* or NULL */
bool ini_has_section(const struct ini *ini, const char *section);
#define GP_AUTO_INI GP_CLEANUP(ini_clear)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The strict JSON of jobs: one object of texts, whole numbers, booleans, nulls and objects of texts and nulls. All else
 * (lists, fractions, deeper objects, a name twice, a NUL, text after the object) is refused. No I/O; any thread. */
#ifndef GP_AGENT_JOB_JSON_H
#define GP_AGENT_JOB_JSON_H

#include "base/error.h"
#include "base/str.h"

enum jmap_kind { JMAP_NULL, JMAP_BOOL, JMAP_INT, JMAP_TEXT, JMAP_MAP };

struct jmap_item {
    char *name;
    enum jmap_kind kind;
    int64_t number;  /* JMAP_INT; JMAP_BOOL: 0 or 1 */
    char *text;      /* JMAP_TEXT: valid UTF-8 without a NUL */
    struct strv map; /* JMAP_MAP: name, value, name, value ...; a value may be NULL */
};
struct jmap {
    struct jmap_item *v;
    size_t n, cap;
};

/* The n bytes at json must be one object. -GP_EPROTO: err names the place. ret: zeroed; jmap_clear it in any case. */
int jmap_parse(const char *json, size_t n, struct jmap *ret, struct gp_error *err);
/* Overwrites every text before it is freed: it may be a secret. Accepts zeroed. */
void jmap_clear(struct jmap *m);
/* NULL: the object has no such member. */
const struct jmap_item *jmap_find(const struct jmap *m, const char *name);
/* Overwrites each text of the list, then frees it. */
void jmap_wipe(struct strv *v);

#endif

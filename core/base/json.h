/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through jansson: capped parsing with one clear error, typed reads that name the path. */
#ifndef GP_BASE_JSON_H
#define GP_BASE_JSON_H

#include "base/error.h"
#include "base/str.h"

#include <jansson.h>

void json_cleanup(json_t **j); /* decref */
#define GP_AUTO_JSON GP_CLEANUP(json_cleanup)

/* Parses exactly one value (duplicate keys and trailing text refused, depth capped at 64).
 * what: named in the error, e.g. "the reply of GetParameter". */
int json_parse(const char *text, size_t n, const char *what, json_t **ret, struct gp_error *err);
/* A string; bytes that are not UTF-8 (a path may have any) become '?'. NULL: null. New reference. */
json_t *json_any_text(const char *s);
/* Text without characters that steer a terminal (str_steers); keys in insertion order. Caller frees. */
char *json_text(const json_t *j, size_t indent);
/* The same with such characters unchanged: only for text whose hash must not change. */
char *json_text_exact(const json_t *j, size_t indent);

/* Reads of "a.b.c" ("a.0.c" for an element of a list); absent or of another type: the default. Never
 * fail. Borrowed results. */
const char *json_str(const json_t *j, const char *path, const char *def);
int64_t json_int(const json_t *j, const char *path, int64_t def);
/* The same; def for a number outside min to max, too. */
int64_t json_int_in(const json_t *j, const char *path, int64_t min, int64_t max, int64_t def);
double json_num(const json_t *j, const char *path, double def);
bool json_bool(const json_t *j, const char *path, bool def);
json_t *json_at(const json_t *j, const char *path); /* NULL when absent */

#endif

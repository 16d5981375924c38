/* SPDX-License-Identifier: Apache-2.0 */
/* Private to core/journal: one table of columns per struct, from which the schema, the inserts and
 * the reads all come. */
#ifndef GP_JOURNAL_COLUMNS_H
#define GP_JOURNAL_COLUMNS_H

#include "base/gp_base.h"
#include "base/str.h"

#include <sqlite3.h>

enum column_type { COL_TEXT, COL_INT, COL_TIME, COL_BOOL, COL_DOUBLE, COL_U16 };

struct column {
    const char *name;
    enum column_type type; /* C type of the field; enums are COL_INT */
    size_t offset;
    int min, max, other; /* COL_INT: a number outside min to max is read as other */
};
struct table_def {
    const char *name;
    const char *key; /* "PRIMARY KEY(...)" or "" when id_column says AUTOINCREMENT */
    const struct column *columns;
    size_t n;
};

extern const struct table_def table_stacks, table_intents, table_resources, table_nodes;

/* CREATE TABLE text. */
void columns_create_sql(const struct table_def *t, struct str *sql);
/* "a,b,c" and "?,?,?" lists. */
void columns_names(const struct table_def *t, struct str *sql);
void columns_marks(const struct table_def *t, struct str *sql);
/* Binds every field of obj from index `at` on (1-based). */
void columns_bind(const struct table_def *t, sqlite3_stmt *stmt, int at, const void *obj);
/* Reads the current row (columns in table order from 0) into zeroed obj; text is copied, NULL becomes "". */
void columns_read(const struct table_def *t, sqlite3_stmt *stmt, void *obj);

#endif

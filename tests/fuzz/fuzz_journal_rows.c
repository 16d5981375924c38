/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the journal with any value in any column, because SQLite holds no type to a column. The input: a byte that
 * chooses the table, then for each column a byte that chooses a type, and the value. Times, counts and prices that are
 * read are ones that the engine can count with. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "journal/columns.h"
#include "journal/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

struct input {
    const uint8_t *at;
    size_t left;
};

static void take(struct input *in, void *to, size_t n) {
    memset(to, 0, n);
    n = GP_MIN(n, in->left);
    if (n > 0) memcpy(to, in->at, n);
    in->at += n;
    in->left -= n;
}

static void bind(sqlite3_stmt *s, int at, struct input *in) {
    uint8_t kind = 0, n = 0;
    int64_t number = 0;
    double real = 0;
    char text[256];
    take(in, &kind, 1);
    switch (kind % 4) {
    case 0:
        take(in, &number, sizeof number);
        sqlite3_bind_int64(s, at, number);
        break;
    case 1:
        take(in, &real, sizeof real);
        sqlite3_bind_double(s, at, real);
        break;
    case 2:
        take(in, &n, 1);
        take(in, text, n);
        sqlite3_bind_text(s, at, text, n, SQLITE_TRANSIENT);
        break;
    default: break; /* NULL */
    }
}

static void check(const struct table_def *t, void *obj) {
    for (size_t i = 0; i < t->n; i++) {
        void *p = (char *)obj + t->columns[i].offset;
        switch (t->columns[i].type) {
        case COL_TEXT:
            must(*(char **)p != NULL && strlen(*(char **)p) < 256);
            free(*(char **)p);
            break;
        case COL_INT: must(*(int *)p >= t->columns[i].min && *(int *)p <= t->columns[i].max); break;
        case COL_TIME: must(*(int64_t *)p >= 0 && *(int64_t *)p <= CLOCK_WALL_MAX_S); break;
        case COL_DOUBLE: must(*(double *)p >= -1 && *(double *)p <= 1e9); break;
        case COL_BOOL:
        case COL_U16: break;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct table_def *const tables[] = {&table_stacks, &table_intents, &table_resources, &table_nodes};
    static sqlite3 *db;
    struct input in = {data, size};
    union {
        struct stack stack;
        struct intent intent;
        struct resource resource;
        struct node_record node;
    } obj = {0};
    uint8_t which = 0;
    take(&in, &which, 1);
    const struct table_def *t = tables[which % GP_ARRAY_LEN(tables)];
    if (db == NULL) must(sqlite3_open(":memory:", &db) == SQLITE_OK);
    GP_AUTO_STR struct str sql = {0};
    str_add(&sql, "SELECT ");
    columns_marks(t, &sql);
    sqlite3_stmt *s = NULL;
    must(sqlite3_prepare_v2(db, sql.s, -1, &s, NULL) == SQLITE_OK);
    for (size_t i = 0; i < t->n; i++) bind(s, (int)i + 1, &in);
    must(sqlite3_step(s) == SQLITE_ROW);
    columns_read(t, s, &obj);
    check(t, &obj);
    sqlite3_finalize(s);
    return 0;
}

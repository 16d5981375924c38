/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's tables as data: a new field is one row here plus a migration in journal.c.
 * Pure except for the given statement; any thread. */
#include "base/gp_base.h"

#include "journal/columns.h"

#include "base/clock.h"
#include "journal/journal.h"
#include "model/tags.h"

#define COLUMN_INT_MAX 1000000000
#define COLUMN_AMOUNT_MAX 1e9

#define C(type_, struct_, field_) \
    { .name = #field_, .type = type_, .offset = offsetof(struct struct_, field_) }
/* Enums are indexes and shifts, slots are indexes, and attempts are counted on. */
#define I(struct_, field_, min_, max_, other_)                                                                      \
    {                                                                                                               \
        .name = #field_, .type = COL_INT, .offset = offsetof(struct struct_, field_), .min = (min_), .max = (max_), \
        .other = (other_)                                                                                           \
    }
#define SLOT_MAX (TAGS_SLOTS_MAX - 1)

static const struct column stack_columns[] = {
    C(COL_TEXT, stack, owner),     C(COL_TEXT, stack, name),      C(COL_TEXT, stack, uid),
    C(COL_TEXT, stack, spec_hash), C(COL_TEXT, stack, provider),  C(COL_TEXT, stack, region),
    C(COL_TIME, stack, created_s), C(COL_TIME, stack, expires_s), C(COL_TIME, stack, moving_s),
};
static const struct column intent_columns[] = {
    C(COL_TEXT, intent, uid),
    C(COL_TEXT, intent, provider),
    C(COL_TEXT, intent, region),
    C(COL_TEXT, intent, zone),
    I(intent, kind, RES_INSTANCE, RES_GRANT, RES_INSTANCE),
    I(intent, slot_first, -1, SLOT_MAX, -1),
    I(intent, slot_count, 0, TAGS_SLOTS_MAX, 0),
    I(intent, attempt, 0, COLUMN_INT_MAX, 0),
    C(COL_TEXT, intent, token),
    C(COL_TEXT, intent, body),
    C(COL_TEXT, intent, offer),
    C(COL_TIME, intent, created_s),
    C(COL_TIME, intent, deadline_s),
    I(intent, state, INTENT_OPEN, INTENT_TOMBSTONE, INTENT_OPEN),
    C(COL_TEXT, intent, note),
    C(COL_TEXT, intent, spec_hash),
    C(COL_TEXT, intent, operation),
    C(COL_BOOL, intent, claim),
};
static const struct column resource_columns[] = {
    C(COL_TEXT, resource, provider),
    C(COL_TEXT, resource, id),
    I(resource, kind, RES_INSTANCE, RES_GRANT, RES_INSTANCE),
    C(COL_TEXT, resource, region),
    C(COL_TEXT, resource, zone),
    C(COL_TEXT, resource, owner),
    C(COL_TEXT, resource, stack),
    C(COL_TEXT, resource, uid),
    C(COL_TEXT, resource, spec_hash),
    I(resource, slot, -1, SLOT_MAX, -1),
    I(resource, attempt, 0, COLUMN_INT_MAX, 0),
    I(resource, state, RES_PENDING, RES_GONE, RES_PENDING),
    C(COL_TEXT, resource, state_reason),
    C(COL_BOOL, resource, billed),
    C(COL_BOOL, resource, claim),
    C(COL_TEXT, resource, instance_type),
    C(COL_DOUBLE, resource, price_usd_per_h),
    C(COL_TIME, resource, created_s),
    C(COL_TIME, resource, expires_s),
    C(COL_TEXT, resource, private_ip),
    C(COL_TEXT, resource, public_ip),
    C(COL_U16, resource, ssh_port),
    C(COL_TEXT, resource, dial_socket),
    C(COL_TEXT, resource, user),
    C(COL_TEXT, resource, host_keys),
    C(COL_TEXT, resource, bastion),
    C(COL_TEXT, resource, login_key),
    C(COL_TEXT, resource, known_hosts),
    I(resource, gpus, 0, COLUMN_INT_MAX, 0),
    C(COL_TEXT, resource, regions),
    C(COL_TEXT, resource, account),
    C(COL_TIME, resource, gone_s),
    I(resource, ours, OURS_NOT, OURS_LAUNCHED, OURS_NOT),
};
static const struct column node_columns[] = {
    I(node_record, slot, -1, SLOT_MAX, -1),   I(node_record, attempt, 0, COLUMN_INT_MAX, 0),
    C(COL_TEXT, node_record, resource_id),    I(node_record, phase, NODE_PLANNED, NODE_PHASE_MAX, NODE_PLANNED),
    C(COL_TEXT, node_record, host_key_first), C(COL_TEXT, node_record, host_key_next),
    C(COL_TEXT, node_record, host_key),       C(COL_TEXT, node_record, boot_id),
    C(COL_TEXT, node_record, note),
};

const struct table_def table_stacks = {"stacks", "spec TEXT, report TEXT, PRIMARY KEY(owner,name)", stack_columns,
                                       GP_ARRAY_LEN(stack_columns)};
const struct table_def table_intents = {"intents", "id INTEGER PRIMARY KEY AUTOINCREMENT", intent_columns,
                                        GP_ARRAY_LEN(intent_columns)};
const struct table_def table_resources = {"resources", "PRIMARY KEY(provider,id)", resource_columns,
                                          GP_ARRAY_LEN(resource_columns)};
const struct table_def table_nodes = {"nodes", "stack_uid TEXT, PRIMARY KEY(stack_uid,slot)", node_columns,
                                      GP_ARRAY_LEN(node_columns)};

void columns_create_sql(const struct table_def *t, struct str *sql) {
    static const char *const types[] = {[COL_TEXT] = "TEXT",    [COL_INT] = "INTEGER", [COL_TIME] = "INTEGER",
                                        [COL_BOOL] = "INTEGER", [COL_DOUBLE] = "REAL", [COL_U16] = "INTEGER"};
    str_addf(sql, "CREATE TABLE IF NOT EXISTS %s(", t->name);
    for (size_t i = 0; i < t->n; i++) str_addf(sql, "%s %s,", t->columns[i].name, types[t->columns[i].type]);
    /* extra columns come before the key: SQLite wants constraints last */
    str_addf(sql, "%s);", t->key);
}

void columns_names(const struct table_def *t, struct str *sql) {
    for (size_t i = 0; i < t->n; i++) str_addf(sql, "%s%s", i ? "," : "", t->columns[i].name);
}

void columns_marks(const struct table_def *t, struct str *sql) {
    for (size_t i = 0; i < t->n; i++) str_add(sql, i ? ",?" : "?");
}

void columns_bind(const struct table_def *t, sqlite3_stmt *stmt, int at, const void *obj) {
    for (size_t i = 0; i < t->n; i++, at++) {
        const void *p = (const char *)obj + t->columns[i].offset;
        switch (t->columns[i].type) {
        case COL_TEXT: {
            const char *const *s = p;
            sqlite3_bind_text(stmt, at, *s ? *s : "", -1, SQLITE_TRANSIENT);
            break;
        }
        case COL_INT: sqlite3_bind_int(stmt, at, *(const int *)p); break;
        case COL_TIME: sqlite3_bind_int64(stmt, at, *(const int64_t *)p); break;
        case COL_BOOL: sqlite3_bind_int(stmt, at, *(const bool *)p); break;
        case COL_DOUBLE: sqlite3_bind_double(stmt, at, *(const double *)p); break;
        case COL_U16: sqlite3_bind_int(stmt, at, *(const uint16_t *)p); break;
        }
    }
}

/* Whoever writes the file may have written any number: the engine counts with it. */
static int64_t within(int64_t v, int64_t min, int64_t max) { return GP_MIN(GP_MAX(v, min), max); }

static int known(const struct column *c, int64_t v) { return v >= c->min && v <= c->max ? (int)v : c->other; }

/* A price; -1, not known, for one that no machine has. */
static double amount(double v) { return v >= 0 && v <= COLUMN_AMOUNT_MAX ? v : -1; }

void columns_read(const struct table_def *t, sqlite3_stmt *stmt, void *obj) {
    for (size_t i = 0; i < t->n; i++) {
        void *p = (char *)obj + t->columns[i].offset;
        int col = (int)i;
        switch (t->columns[i].type) {
        case COL_TEXT: {
            const char *text = (const char *)sqlite3_column_text(stmt, col);
            *(char **)p = xstrdup(text ? text : "");
            break;
        }
        case COL_INT: *(int *)p = known(&t->columns[i], sqlite3_column_int64(stmt, col)); break;
        case COL_TIME: *(int64_t *)p = within(sqlite3_column_int64(stmt, col), 0, CLOCK_WALL_MAX_S); break;
        case COL_BOOL: *(bool *)p = sqlite3_column_int(stmt, col) != 0; break;
        case COL_DOUBLE: *(double *)p = amount(sqlite3_column_double(stmt, col)); break;
        case COL_U16: *(uint16_t *)p = (uint16_t)within(sqlite3_column_int64(stmt, col), 0, UINT16_MAX); break;
        }
    }
}

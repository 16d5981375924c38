/* SPDX-License-Identifier: Apache-2.0 */
/* Private to core/journal: the open file, and the statements that its sources share. Callers hold the lock.
 * A NULL statement is passed on; the function that finishes it reports the error. */
#ifndef GP_JOURNAL_PRIVATE_H
#define GP_JOURNAL_PRIVATE_H

#include "journal/columns.h"
#include "journal/journal.h"

#include <pthread.h>

struct journal {
    sqlite3 *db;
    pthread_mutex_t lock;
    char *path;
    char *aside; /* where a damaged file is now */
};

sqlite3_stmt *db_prepare(struct journal *j, const char *sql);
void db_bind_text(sqlite3_stmt *s, int at, const char *text); /* 1-based; NULL text: NULL */
/* Executes a prepared change and releases it. */
int db_step_done(struct journal *j, sqlite3_stmt *s, const char *what, struct gp_error *err);
int db_begin(struct journal *j, struct gp_error *err);
/* Commits when r is 0, else rolls back; returns the first failure. */
int db_finish(struct journal *j, int r, struct gp_error *err);
/* Selects all columns of the table, then `more`, of the rows that `where` selects. */
sqlite3_stmt *db_select_all(struct journal *j, const struct table_def *t, const char *more, const char *where);
int db_next_row(sqlite3_stmt *s); /* SQLite's code */
/* After the reading loop: rc is the last step's. */
int db_select_end(struct journal *j, sqlite3_stmt *s, int rc, struct gp_error *err);
int db_put_resource(struct journal *j, const struct resource *r, struct gp_error *err);

#endif

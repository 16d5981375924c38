/* SPDX-License-Identifier: Apache-2.0 */
/* The journal on SQLite: opening, schema, and one function per change. Every public function takes
 * the one mutex, so any thread may call; each change is one transaction that is on disk when the
 * function returns. The engine interprets the records. */
#include "base/gp_base.h"

#include "journal/journal.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "journal/journal_private.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA_VERSION 6
#define BUSY_MS 10000

static int fail_sql(struct journal *j, struct gp_error *err, const char *what) {
    int full = sqlite3_errcode(j->db) == SQLITE_FULL || sqlite3_system_errno(j->db) == ENOSPC;
    int r = gp_fail(err, GP_EIO, "the journal '%s': could not %s: %s%s", j->path ? j->path : "(memory)", what,
                    sqlite3_errmsg(j->db), full ? "; the disk is full: make room there, then repeat" : "");
    if (err != NULL) err->domain = GP_D_JOURNAL;
    return r;
}

static int exec_sql(struct journal *j, const char *sql, const char *what, struct gp_error *err) {
    if (sqlite3_exec(j->db, sql, NULL, NULL, NULL) != SQLITE_OK) return fail_sql(j, err, what);
    return 0;
}

sqlite3_stmt *db_prepare(struct journal *j, const char *sql) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(j->db, sql, -1, &s, NULL) != SQLITE_OK) return NULL;
    return s;
}

/* Executes a prepared change and releases it. */
int db_step_done(struct journal *j, sqlite3_stmt *s, const char *what, struct gp_error *err) {
    int rc = s == NULL ? SQLITE_ERROR : sqlite3_step(s);
    int r = rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : fail_sql(j, err, what);
    sqlite3_finalize(s);
    return r;
}

int db_begin(struct journal *j, struct gp_error *err) { return exec_sql(j, "BEGIN IMMEDIATE", "begin a change", err); }

/* Commits when r is 0, else rolls back; returns the first failure. */
int db_finish(struct journal *j, int r, struct gp_error *err) {
    if (r == 0) r = exec_sql(j, "COMMIT", "commit a change", err);
    if (r != 0) sqlite3_exec(j->db, "ROLLBACK", NULL, NULL, NULL);
    return r;
}

static int user_version(struct journal *j, int *ret) {
    sqlite3_stmt *s = db_prepare(j, "PRAGMA user_version");
    int rc = s ? sqlite3_step(s) : SQLITE_ERROR;
    if (rc == SQLITE_ROW) *ret = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return rc == SQLITE_ROW ? 0 : -1;
}

static bool damaged(const struct journal *j) {
    int code = sqlite3_errcode(j->db);
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}

/* True for "...unable to get the page. error code=266": the disk failed, the data is not damaged. */
static bool says_unreadable(const char *said) {
    const char *code = strstr(said, "error code=");
    long n = code != NULL ? strtol(code + strlen("error code="), NULL, 10) & 0xff : 0;
    return n == SQLITE_IOERR || n == SQLITE_NOMEM;
}

static bool quick_check_ok(struct journal *j) {
    sqlite3_stmt *s = db_prepare(j, "PRAGMA quick_check(1)");
    int rc = s != NULL ? sqlite3_step(s) : SQLITE_ERROR;
    const char *said = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    /* a temporary read error is not damage: only wrong data that was read counts */
    bool ok = said != NULL ? strcmp(said, "ok") == 0 || says_unreadable(said) : !damaged(j);
    sqlite3_finalize(s);
    return ok;
}

static int migrate(struct journal *j, struct gp_error *err) {
    int r = db_begin(j, err);
    if (r != 0) return r;
    int version = 0;
    if (user_version(j, &version) != 0) r = fail_sql(j, err, "read the schema's version");
    if (r == 0 && version > SCHEMA_VERSION) {
        r = gp_fail(err, GP_EENV,
                    "the journal '%s' was written by a newer gpuprov (schema %d, this one supports %d): "
                    "use that version, or set GPUPROV_STATE_DIR to another folder",
                    j->path ? j->path : "(memory)", version, SCHEMA_VERSION);
    }
    if (r == 0 && version < 1) {
        GP_AUTO_STR struct str sql = {0};
        columns_create_sql(&table_stacks, &sql);
        columns_create_sql(&table_intents, &sql);
        columns_create_sql(&table_resources, &sql);
        columns_create_sql(&table_nodes, &sql);
        str_add(&sql, "CREATE INDEX IF NOT EXISTS resources_uid ON resources(uid);"
                      "CREATE INDEX IF NOT EXISTS intents_uid ON intents(uid);");
        r = exec_sql(j, sql.s, "create the tables", err);
    }
    /* 2: the spec of a launch; the regions and the account of a claim */
    if (r == 0 && version == 1)
        r = exec_sql(j,
                     "ALTER TABLE intents ADD COLUMN spec_hash TEXT;"
                     "ALTER TABLE resources ADD COLUMN regions TEXT;"
                     "ALTER TABLE resources ADD COLUMN account TEXT;",
                     "migrate to schema 2", err);
    /* 3: whether an intent creates the claim; the cloud's operation that reports on a request */
    if (r == 0 && version >= 1 && version <= 2)
        r = exec_sql(j,
                     "ALTER TABLE intents ADD COLUMN claim INTEGER;"
                     "ALTER TABLE intents ADD COLUMN operation TEXT;"
                     "UPDATE intents SET claim=1 WHERE kind=1;",
                     "migrate to schema 3", err);
    /* 4: when a resource was gone, for the cost of nodes that are no longer there */
    if (r == 0 && version >= 1 && version <= 3)
        r = exec_sql(j, "ALTER TABLE resources ADD COLUMN gone_s INTEGER;", "migrate to schema 4", err);
    /* 5: a deadline that is being moved */
    if (r == 0 && version >= 1 && version <= 4)
        r = exec_sql(j, "ALTER TABLE stacks ADD COLUMN moving_s INTEGER;", "migrate to schema 5", err);
    /* 6: which machines this journal launched. Of an older journal those that its nodes had count. */
    if (r == 0 && version >= 1 && version <= 5)
        r = exec_sql(j,
                     "ALTER TABLE resources ADD COLUMN ours INTEGER;"
                     "UPDATE resources SET ours=2 WHERE EXISTS (SELECT 1 FROM nodes WHERE stack_uid=resources.uid AND "
                     "nodes.resource_id=resources.id);",
                     "migrate to schema 6", err);
    if (r == 0 && version < SCHEMA_VERSION) {
        GP_AUTO_FREE char *set = xasprintf("PRAGMA user_version=%d;", SCHEMA_VERSION);
        r = exec_sql(j, set, "set the schema's version", err);
    }
    return db_finish(j, r, err);
}

/* Opens the file and checks it; *ret_damaged: it is not a sound journal. */
static int open_db(struct journal *j, bool *ret_damaged, struct gp_error *err) {
    *ret_damaged = false;
    /* SQLite would follow a link */
    if (j->path != NULL && fs_check_kept(j->path, err) != 0) return gp_wrap(err, "the journal");
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    if (sqlite3_open_v2(j->path ? j->path : ":memory:", &j->db, flags, NULL) != SQLITE_OK) {
        if (j->db == NULL) return gp_fail(err, GP_EIO, "could not open the journal");
        *ret_damaged = damaged(j);
        return fail_sql(j, err, "open it");
    }
    sqlite3_extended_result_codes(j->db, 0);
    sqlite3_busy_timeout(j->db, BUSY_MS);
    if (j->path != NULL && chmod(j->path, 0600) != 0)
        return gp_fail_errno(err, GP_EIO, errno, "could not protect the journal '%s'", j->path);
    int r = exec_sql(j,
                     "PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=EXTRA; "
                     "PRAGMA foreign_keys=ON;",
                     "set it up", err);
    if (r == 0 && !quick_check_ok(j)) {
        *ret_damaged = true;
        return gp_fail(err, GP_EIO, "the journal '%s' is damaged", j->path ? j->path : "(memory)");
    }
    if (r == 0) r = migrate(j, err);
    if (r != 0 && damaged(j)) *ret_damaged = true;
    return r;
}

static int set_aside(struct journal *j, struct gp_error *err) {
    const char *path = j->path;
    free(j->aside);
    const char *aside = j->aside = xasprintf("%s.damaged-%lld", path, (long long)clock_wall_s());
    if (rename(path, aside) != 0 && errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, errno, "could not set the damaged journal '%s' aside", path);
    GP_AUTO_FREE char *rollback = xasprintf("%s-journal", path);
    GP_AUTO_FREE char *rollback_aside = xasprintf("%s-journal", aside);
    if (rename(rollback, rollback_aside) != 0 && errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, errno, "could not set '%s' aside", rollback);
    return 0;
}

int journal_open(const char *path, struct journal **ret, bool *ret_damaged, struct gp_error *err) {
    struct journal *j = xcalloc(1, sizeof *j);
    pthread_mutex_init(&j->lock, NULL);
    j->path = xstrdup(path);
    bool bad = false;
    struct gp_error first = {0};
    mode_t old = umask(077);
    int r = open_db(j, &bad, &first);
    if (r != 0 && bad && path != NULL) {
        sqlite3_close(j->db);
        j->db = NULL;
        gp_error_clear(&first);
        bool still = false;
        r = set_aside(j, &first);
        if (r == 0) r = open_db(j, &still, &first);
    }
    umask(old);
    if (ret_damaged != NULL) *ret_damaged = bad;
    if (r != 0) {
        journal_close(j);
        if (err != NULL) *err = first;
        return r;
    }
    *ret = j;
    return 0;
}

void journal_close(struct journal *j) {
    if (j == NULL) return;
    sqlite3_close(j->db);
    pthread_mutex_destroy(&j->lock);
    free(j->path);
    free(j->aside);
    free(j);
}

const char *journal_aside(const struct journal *j) { return j->aside; }

/* Inserts obj, or replaces the row whose key is the same: "ON CONFLICT(key) DO UPDATE". extra_name
 * (may be NULL) is one more TEXT column, bound first. guard: a WHERE of the update; "" for none. */
static int upsert(struct journal *j, const struct table_def *t, const char *key, const char *guard,
                  const char *extra_name, const char *extra, const void *obj, struct gp_error *err) {
    GP_AUTO_STR struct str sql = {0};
    str_addf(&sql, "INSERT INTO %s(%s%s", t->name, extra_name ? extra_name : "", extra_name ? "," : "");
    columns_names(t, &sql);
    str_addf(&sql, ") VALUES(%s", extra_name ? "?," : "");
    columns_marks(t, &sql);
    str_addf(&sql, ") ON CONFLICT(%s) DO UPDATE SET ", key);
    for (size_t i = 0; i < t->n; i++) {
        const char *name = t->columns[i].name;
        bool stays =
            t == &table_resources && strcmp(name, "ours") == 0; /* a list that does not know it proves nothing */
        str_addf(&sql, stays ? "%s%s=MAX(COALESCE(%s,0),excluded.ours)" : "%s%s=excluded.%s", i ? "," : "", name, name);
    }
    if (extra_name != NULL) str_addf(&sql, ",%s=excluded.%s", extra_name, extra_name);
    str_add(&sql, guard);
    sqlite3_stmt *s = db_prepare(j, sql.s);
    if (s != NULL) {
        if (extra_name != NULL) sqlite3_bind_text(s, 1, extra, -1, SQLITE_TRANSIENT);
        columns_bind(t, s, extra_name ? 2 : 1, obj);
    }
    return db_step_done(j, s, "write a record", err);
}

sqlite3_stmt *db_select_all(struct journal *j, const struct table_def *t, const char *more, const char *where) {
    GP_AUTO_STR struct str sql = {0};
    str_add(&sql, "SELECT ");
    columns_names(t, &sql);
    str_addf(&sql, "%s FROM %s %s", more, t->name, where);
    return db_prepare(j, sql.s);
}

/* After the reading loop: rc is the last step's. */
int db_select_end(struct journal *j, sqlite3_stmt *s, int rc, struct gp_error *err) {
    int r = s != NULL && rc == SQLITE_DONE ? 0 : fail_sql(j, err, "read records");
    sqlite3_finalize(s);
    return r;
}

void db_bind_text(sqlite3_stmt *s, int at, const char *text) {
    if (s != NULL) sqlite3_bind_text(s, at, text, -1, SQLITE_TRANSIENT);
}

int db_next_row(sqlite3_stmt *s) { return s != NULL ? sqlite3_step(s) : SQLITE_ERROR; }

/* --- stacks --- */

int journal_stack_put(struct journal *j, const struct stack *stack, const char *spec_canonical, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    int r = spec_canonical != NULL ? upsert(j, &table_stacks, "owner,name", "", "spec", spec_canonical, stack, err)
                                   : upsert(j, &table_stacks, "owner,name", "", NULL, NULL, stack, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_stack_get(struct journal *j, const char *owner, const char *name, struct stack *ret, char **ret_spec,
                      struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_select_all(j, &table_stacks, ",spec", "WHERE owner=? AND name=?");
    db_bind_text(s, 1, owner);
    db_bind_text(s, 2, name);
    int rc = db_next_row(s);
    int r = 0;
    if (rc == SQLITE_ROW) {
        struct stack found = {0};
        columns_read(&table_stacks, s, &found);
        const char *spec = (const char *)sqlite3_column_text(s, (int)table_stacks.n);
        if (ret_spec != NULL) *ret_spec = xstrdup(spec ? spec : "");
        *ret = found;
        sqlite3_finalize(s);
    } else if (rc == SQLITE_DONE) {
        sqlite3_finalize(s);
        r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s' in the journal", name);
    } else {
        r = db_select_end(j, s, rc, err);
    }
    pthread_mutex_unlock(&j->lock);
    return r;
}

void stack_list_clear(struct stack_list *l) {
    for (size_t i = 0; i < l->list.len; i++) stack_clear(&l->list.items[i]);
    vec_free(&l->list);
}

int journal_stacks(struct journal *j, struct stack_list *ret, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_select_all(j, &table_stacks, "", "ORDER BY created_s, name");
    int rc = 0;
    while ((rc = db_next_row(s)) == SQLITE_ROW) {
        struct stack found = {0};
        columns_read(&table_stacks, s, &found);
        vec_push(&ret->list, found);
    }
    int r = db_select_end(j, s, rc, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_stack_forget(struct journal *j, const char *uid, struct gp_error *err) {
    static const char *const deletes[] = {"DELETE FROM nodes WHERE stack_uid=?", "DELETE FROM resources WHERE uid=?",
                                          "DELETE FROM intents WHERE uid=? AND state<>3",
                                          "DELETE FROM stacks WHERE uid=?"};
    pthread_mutex_lock(&j->lock);
    int r = db_begin(j, err);
    if (r == 0) {
        for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(deletes); i++) {
            sqlite3_stmt *s = db_prepare(j, deletes[i]);
            db_bind_text(s, 1, uid);
            r = db_step_done(j, s, "forget a stack", err);
        }
        r = db_finish(j, r, err);
    }
    pthread_mutex_unlock(&j->lock);
    return r;
}

/* --- resources --- */

int db_put_resource(struct journal *j, const struct resource *r, struct gp_error *err) {
    /* RES_GONE is terminal: a late describe of the same id does not bring it back. And a machine stays one, whatever
     * else has its id. */
    GP_AUTO_FREE char *guard =
        xasprintf(" WHERE resources.state<>%d AND (resources.kind=excluded.kind OR resources.kind NOT IN (%d,%d))",
                  (int)RES_GONE, (int)RES_INSTANCE, (int)RES_HOST);
    struct resource row = *r; /* borrows */
    row.gone_s = r->state == RES_GONE ? clock_wall_s() : 0;
    return upsert(j, &table_resources, "provider,id", guard, NULL, NULL, &row, err);
}

int journal_resource_put(struct journal *j, const struct resource *res, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    int r = db_put_resource(j, res, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_resources(struct journal *j, const char *uid, struct resource_list *ret, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s =
        db_select_all(j, &table_resources, "", uid ? "WHERE uid=? ORDER BY kind,slot,id" : "ORDER BY kind,slot,id");
    if (uid != NULL) db_bind_text(s, 1, uid);
    int rc = 0;
    while ((rc = db_next_row(s)) == SQLITE_ROW) {
        struct resource found = {0};
        columns_read(&table_resources, s, &found);
        resource_fill(&found); /* what the journal does not keep is unknown */
        vec_push(&ret->list, found);
    }
    int r = db_select_end(j, s, rc, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_resource_gone(struct journal *j, const char *provider, enum resource_kind kind, const char *id,
                          struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_prepare(j, "UPDATE resources SET state=?1, billed=0, gone_s=CASE WHEN state=?1 THEN gone_s "
                                    "ELSE ?2 END WHERE provider=?3 AND id=?4 AND kind=?5");
    if (s != NULL) sqlite3_bind_int(s, 1, (int)RES_GONE);
    if (s != NULL) sqlite3_bind_int64(s, 2, clock_wall_s());
    db_bind_text(s, 3, provider);
    db_bind_text(s, 4, id);
    if (s != NULL) sqlite3_bind_int(s, 5, (int)kind);
    int r = db_step_done(j, s, "mark a resource as gone", err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

/* --- nodes --- */

void node_record_clear(struct node_record *n) {
    free(n->resource_id);
    free(n->host_key_first);
    free(n->host_key_next);
    free(n->host_key);
    free(n->boot_id);
    free(n->note);
    *n = (struct node_record){0};
}

void node_record_list_clear(struct node_record_list *l) {
    for (size_t i = 0; i < l->list.len; i++) node_record_clear(&l->list.items[i]);
    vec_free(&l->list);
}

int journal_node_put(struct journal *j, const char *uid, const struct node_record *n, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    int r = upsert(j, &table_nodes, "stack_uid,slot", "", "stack_uid", uid, n, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_nodes(struct journal *j, const char *uid, struct node_record_list *ret, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_select_all(j, &table_nodes, "", "WHERE stack_uid=? ORDER BY slot");
    db_bind_text(s, 1, uid);
    int rc = 0;
    while ((rc = db_next_row(s)) == SQLITE_ROW) {
        struct node_record found = {0};
        columns_read(&table_nodes, s, &found);
        vec_push(&ret->list, found);
    }
    int r = db_select_end(j, s, rc, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

/* --- reports --- */

int journal_report_put(struct journal *j, const char *uid, const char *json, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_prepare(j, "UPDATE stacks SET report=? WHERE uid=?");
    db_bind_text(s, 1, json);
    db_bind_text(s, 2, uid);
    int r = db_step_done(j, s, "keep a report", err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_report_get(struct journal *j, const char *uid, char **ret_json, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_prepare(j, "SELECT report FROM stacks WHERE uid=? AND report IS NOT NULL");
    db_bind_text(s, 1, uid);
    int rc = db_next_row(s);
    int r = 0;
    if (rc == SQLITE_ROW) {
        *ret_json = xstrdup((const char *)sqlite3_column_text(s, 0));
        sqlite3_finalize(s);
    } else if (rc == SQLITE_DONE) {
        sqlite3_finalize(s);
        r = gp_fail(err, GP_ENOTFOUND, "this stack has no validation report yet: run 'gpuprov validate' first");
    } else {
        r = db_select_end(j, s, rc, err);
    }
    pthread_mutex_unlock(&j->lock);
    return r;
}

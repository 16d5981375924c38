/* SPDX-License-Identifier: Apache-2.0 */
/* Intents: requests to a cloud, exactly as they are sent, and their outcomes. */
#include "base/gp_base.h"

#include "base/log.h"
#include "base/str.h"
#include "journal/journal_private.h"

void intent_clear(struct intent *i) {
    free(i->uid);
    free(i->spec_hash);
    free(i->provider);
    free(i->region);
    free(i->zone);
    free(i->token);
    free(i->body);
    free(i->offer);
    free(i->operation);
    free(i->note);
    *i = (struct intent){0};
}

void intent_list_clear(struct intent_list *l) {
    for (size_t i = 0; i < l->list.len; i++) intent_clear(&l->list.items[i]);
    vec_free(&l->list);
}

bool intent_launches(const struct intent *i) { return i->kind == RES_INSTANCE || i->kind == RES_PLACEMENT; }

static int insert(struct journal *j, struct intent *intent, struct gp_error *err) {
    GP_AUTO_STR struct str sql = {0};
    str_add(&sql, "INSERT INTO intents(");
    columns_names(&table_intents, &sql);
    str_add(&sql, ") VALUES(");
    columns_marks(&table_intents, &sql);
    str_add(&sql, ")");
    sqlite3_stmt *s = db_prepare(j, sql.s);
    if (s != NULL) columns_bind(&table_intents, s, 1, intent);
    int r = db_step_done(j, s, "commit an intent", err);
    if (r == 0) intent->id = sqlite3_last_insert_rowid(j->db);
    return r;
}

int journal_intents_put(struct journal *j, struct intent_list *list, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    int r = db_begin(j, err);
    if (r == 0) {
        for (size_t i = 0; r == 0 && i < list->list.len; i++) r = insert(j, &list->list.items[i], err);
        r = db_finish(j, r, err);
    }
    pthread_mutex_unlock(&j->lock);
    for (size_t i = 0; i < list->list.len; i++) {
        struct intent *in = &list->list.items[i];
        if (r != 0) in->id = 0;
        else
            log_trace(LOG_STATE, "intent %lld: %s %s slots %d+%d", (long long)in->id, in->provider,
                      resource_kind_name(in->kind), in->slot_first, in->slot_count);
    }
    return r;
}

int journal_intent(struct journal *j, struct intent *intent, struct gp_error *err) {
    struct intent_list one = {0};
    vec_push(&one.list, *intent);
    int r = journal_intents_put(j, &one, err);
    intent->id = one.list.items[0].id;
    vec_free(&one.list);
    return r;
}

int journal_intent_operation(struct journal *j, int64_t id, const char *operation, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_prepare(j, "UPDATE intents SET operation=? WHERE id=? AND state=0");
    if (s != NULL) {
        db_bind_text(s, 1, operation);
        sqlite3_bind_int64(s, 2, id);
    }
    int r = db_step_done(j, s, "note an operation", err);
    bool open = r == 0 && sqlite3_changes(j->db) == 1;
    pthread_mutex_unlock(&j->lock);
    if (r == 0 && !open) r = gp_fail(err, GP_ENOTFOUND, "the journal has no open intent %lld", (long long)id);
    return r;
}

static int set_intent_state(struct journal *j, int64_t id, enum intent_state state, const char *note,
                            struct gp_error *err) {
    sqlite3_stmt *s = db_prepare(j, "UPDATE intents SET state=?, note=? WHERE id=?");
    if (s != NULL) {
        sqlite3_bind_int(s, 1, (int)state);
        sqlite3_bind_text(s, 2, note ? note : "", -1, SQLITE_TRANSIENT);
        sqlite3_bind_int64(s, 3, id);
    }
    return db_step_done(j, s, "end an intent", err);
}

int journal_intent_done(struct journal *j, int64_t id, const struct resource_list *made, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    int r = db_begin(j, err);
    if (r == 0) {
        for (size_t i = 0; r == 0 && made != NULL && i < made->list.len; i++)
            r = db_put_resource(j, &made->list.items[i], err);
        if (r == 0) r = set_intent_state(j, id, INTENT_DONE, "", err);
        r = db_finish(j, r, err);
    }
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_intent_end(struct journal *j, int64_t id, enum intent_state state, const char *note, struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    int r = set_intent_state(j, id, state, note, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

int journal_intents(struct journal *j, const char *uid, unsigned states, struct intent_list *ret,
                    struct gp_error *err) {
    pthread_mutex_lock(&j->lock);
    sqlite3_stmt *s = db_select_all(j, &table_intents, ",id", uid ? "WHERE uid=? ORDER BY id" : "ORDER BY id");
    if (uid != NULL) db_bind_text(s, 1, uid);
    int rc = 0;
    while ((rc = db_next_row(s)) == SQLITE_ROW) {
        struct intent found = {0};
        columns_read(&table_intents, s, &found);
        found.id = sqlite3_column_int64(s, (int)table_intents.n);
        if (states & 1u << (unsigned)found.state) vec_push(&ret->list, found);
        else intent_clear(&found);
    }
    int r = db_select_end(j, s, rc, err);
    pthread_mutex_unlock(&j->lock);
    return r;
}

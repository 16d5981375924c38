/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: what is committed is there after a reopen, gone is terminal, a damaged or newer file
 * is told apart, and an intent and its ids are one transaction. */
#include "base/gp_base.h"

#include "journal/journal.h"

#include "base/fs.h"
#include "folder.h"

#include <pthread.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

struct fixture {
    char dir[64];
    char *path;
};

static int setup(void **state) {
    struct fixture *f = xcalloc(1, sizeof *f);
    if (make_folder(f->dir, sizeof f->dir, "journal") == NULL) return -1;
    f->path = fs_join(f->dir, "journal.db");
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    int r = fs_remove_tree(f->dir, &err);
    free(f->path);
    free(f);
    return r;
}

static struct journal *open_ok(const char *path) {
    struct gp_error err = {0};
    struct journal *j = NULL;
    bool damaged = true;
    int r = journal_open(path, &j, &damaged, &err);
    if (r != 0) fail_msg("%s", err.msg);
    assert_false(damaged);
    return j;
}

static struct stack make_stack(const char *owner, const char *name, const char *uid) {
    return (struct stack){.owner = xstrdup(owner),
                          .name = xstrdup(name),
                          .uid = xstrdup(uid),
                          .spec_hash = xstrdup("h"),
                          .provider = xstrdup("local"),
                          .region = xstrdup("here"),
                          .created_s = 5,
                          .expires_s = 9};
}

static struct resource make_resource(const char *id, int slot) {
    struct resource r = {0};
    resource_init(&r, RES_INSTANCE, "aws");
    resource_set(&r.id, id);
    resource_set(&r.uid, "u1");
    resource_set(&r.host_keys, "ssh-ed25519 AAAA");
    r.slot = slot;
    r.state = RES_RUNNING;
    r.billed = true;
    r.price_usd_per_h = 1.25;
    r.ssh_port = 2222;
    return r;
}

static void test_stack_survives_reopen(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct journal *j = open_ok(f->path);
    struct stack s = make_stack("me", "llm", "u1");
    assert_int_equal(journal_stack_put(j, &s, "{\"name\":\"llm\"}", &err), 0);
    assert_int_equal(journal_stack_put(j, &s, NULL, &err), 0); /* keeps the spec */
    journal_close(j);
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    j = open_ok(f->path);
    struct stack got = {0};
    char *spec = NULL;
    assert_int_equal(journal_stack_get(j, "me", "llm", &got, &spec, &err), 0);
    assert_string_equal(got.uid, "u1");
    assert_int_equal(got.expires_s, 9);
    assert_string_equal(spec, "{\"name\":\"llm\"}");
    free(spec);
    stack_clear(&got);
    assert_int_equal(journal_stack_get(j, "me", "other", &got, NULL, &err), -GP_ENOTFOUND);
    stack_clear(&s);
    journal_close(j);
}

static void test_intent_and_ids_together(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct journal *j = open_ok(f->path);
    struct intent in = {.uid = xstrdup("u1"),
                        .provider = xstrdup("aws"),
                        .region = xstrdup("r"),
                        .zone = xstrdup("z"),
                        .kind = RES_INSTANCE,
                        .slot_first = 0,
                        .slot_count = 2,
                        .attempt = 1,
                        .token = xstrdup("tok"),
                        .body = xstrdup("Action=RunInstances&x=1"),
                        .offer = xstrdup(""),
                        .created_s = 7,
                        .note = xstrdup("")};
    assert_int_equal(journal_intent(j, &in, &err), 0);
    assert_true(in.id > 0);
    journal_close(j);
    j = open_ok(f->path);
    struct intent_list open = {0};
    assert_int_equal(journal_intents(j, "u1", 1u << INTENT_OPEN, &open, &err), 0);
    assert_int_equal(open.list.len, 1);
    assert_string_equal(open.list.items[0].body, "Action=RunInstances&x=1");
    assert_int_equal(open.list.items[0].id, in.id);
    intent_list_clear(&open);
    struct resource_list made = {0};
    vec_push(&made.list, make_resource("i-1", 0));
    vec_push(&made.list, make_resource("i-2", 1));
    assert_int_equal(journal_intent_done(j, in.id, &made, &err), 0);
    assert_int_equal(journal_intents(j, NULL, 1u << INTENT_OPEN, &open, &err), 0);
    assert_int_equal(open.list.len, 0);
    struct resource_list got = {0};
    assert_int_equal(journal_resources(j, "u1", &got, &err), 0);
    assert_int_equal(got.list.len, 2);
    assert_string_equal(got.list.items[1].id, "i-2");
    assert_int_equal(got.list.items[1].ssh_port, 2222);
    assert_true(got.list.items[1].price_usd_per_h == 1.25);
    resource_list_clear(&got);
    resource_list_clear(&made);
    intent_clear(&in);
    journal_close(j);
}

static void test_gone_is_terminal(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct journal *j = open_ok(f->path);
    struct resource r = make_resource("i-1", 0);
    assert_int_equal(journal_resource_put(j, &r, &err), 0);
    assert_int_equal(journal_resource_gone(j, "aws", RES_KEY_PAIR, "i-1", &err), 0); /* somebody named one so */
    struct resource_list alive = {0};
    assert_int_equal(journal_resources(j, NULL, &alive, &err), 0);
    for (size_t i = 0; i < alive.list.len; i++) assert_int_not_equal(alive.list.items[i].state, RES_GONE);
    resource_list_clear(&alive);
    assert_int_equal(journal_resource_gone(j, "aws", RES_INSTANCE, "i-1", &err), 0);
    assert_int_equal(journal_resource_put(j, &r, &err), 0);
    struct resource_list got = {0};
    assert_int_equal(journal_resources(j, "u1", &got, &err), 0);
    assert_int_equal(got.list.items[0].state, RES_GONE);
    assert_false(got.list.items[0].billed);
    resource_list_clear(&got);
    resource_clear(&r);
    journal_close(j);
}

static void test_forget_keeps_tombstones(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct journal *j = open_ok(f->path);
    struct stack s = make_stack("me", "llm", "u1");
    struct intent in = {.uid = xstrdup("u1"), .provider = xstrdup("aws"), .kind = RES_INSTANCE};
    struct node_record n = {.slot = 3, .phase = NODE_READY, .host_key = xstrdup("k")};
    assert_int_equal(journal_stack_put(j, &s, "{}", &err), 0);
    assert_int_equal(journal_intent(j, &in, &err), 0);
    assert_int_equal(journal_intent_end(j, in.id, INTENT_TOMBSTONE, "x", &err), 0);
    assert_int_equal(journal_node_put(j, "u1", &n, &err), 0);
    assert_int_equal(journal_stack_forget(j, "u1", &err), 0);
    struct node_record_list nodes = {0};
    assert_int_equal(journal_nodes(j, "u1", &nodes, &err), 0);
    assert_int_equal(nodes.list.len, 0);
    struct intent_list left = {0};
    assert_int_equal(journal_intents(j, "u1", 1u << INTENT_TOMBSTONE, &left, &err), 0);
    assert_int_equal(left.list.len, 1);
    intent_list_clear(&left);
    node_record_clear(&n);
    intent_clear(&in);
    stack_clear(&s);
    journal_close(j);
}

static void test_damaged_is_set_aside(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    assert_int_equal(fs_write_atomic(f->path, junk, sizeof junk, 0600, &err), 0);
    struct journal *j = NULL;
    bool damaged = false;
    assert_int_equal(journal_open(f->path, &j, &damaged, &err), 0);
    assert_true(damaged);
    struct stack_list all = {0};
    assert_int_equal(journal_stacks(j, &all, &err), 0);
    assert_int_equal(all.list.len, 0);
    journal_close(j);
    j = open_ok(f->path); /* the new one is sound */
    journal_close(j);
}

static void test_newer_is_refused(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    journal_close(open_ok(f->path));
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    struct journal *j = NULL;
    bool damaged = true;
    assert_int_equal(journal_open(f->path, &j, &damaged, &err), -GP_EENV);
    assert_false(damaged);
    assert_non_null(strstr(err.msg, "newer"));
    assert_true(fs_exists(f->path));
}

/* Several intents are on disk together or not at all; an operation is noted only while one is open. */
static void test_intents_together(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct journal *j = open_ok(f->path);
    struct intent_list list = {0}, open = {0};
    for (int i = 0; i < 64; i++) {
        struct intent in = {.uid = xstrdup("u1"),
                            .provider = xstrdup("p"),
                            .kind = RES_INSTANCE,
                            .slot_first = i,
                            .slot_count = 1,
                            .claim = i == 0};
        vec_push(&list.list, in);
    }
    assert_int_equal(journal_intents_put(j, &list, &err), 0);
    for (int i = 0; i < 64; i++) assert_true(list.list.items[i].id > (i ? list.list.items[i - 1].id : 0));
    assert_int_equal(journal_intent_operation(j, list.list.items[3].id, "https://x.test/op/7", &err), 0);
    assert_int_equal(journal_intent_end(j, list.list.items[4].id, INTENT_FAILED, "no", &err), 0);
    assert_int_equal(journal_intent_operation(j, list.list.items[4].id, "https://x.test/op/8", &err), -GP_ENOTFOUND);
    journal_close(j);
    j = open_ok(f->path);
    assert_int_equal(journal_intents(j, "u1", 1u << INTENT_OPEN, &open, &err), 0);
    assert_int_equal(open.list.len, 63);
    assert_true(open.list.items[0].claim && !open.list.items[1].claim);
    assert_string_equal(open.list.items[3].operation, "https://x.test/op/7");
    assert_string_equal(open.list.items[2].operation, "");
    intent_list_clear(&open);
    /* a journal that cannot be written keeps none of them */
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TRIGGER full BEFORE INSERT ON intents WHEN NEW.slot_first=40 "
                                  "BEGIN SELECT RAISE(ABORT,'no'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    gp_error_clear(&err);
    assert_int_equal(journal_intents_put(j, &list, &err), -GP_EIO);
    assert_int_equal(list.list.items[3].id, 0);
    assert_int_equal(journal_intents(j, "u1", 15u, &open, &err), 0);
    assert_int_equal(open.list.len, 64);
    intent_list_clear(&open);
    intent_list_clear(&list);
    journal_close(j);
}

/* A journal of schema 1 is read on: its launches name no spec, its claims no regions. */
static void test_schema_1_is_migrated(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    journal_close(open_ok(f->path));
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "ALTER TABLE intents DROP COLUMN spec_hash;"
                                  "ALTER TABLE intents DROP COLUMN claim;"
                                  "ALTER TABLE intents DROP COLUMN operation;"
                                  "ALTER TABLE resources DROP COLUMN regions;"
                                  "ALTER TABLE resources DROP COLUMN account;"
                                  "ALTER TABLE resources DROP COLUMN gone_s;"
                                  "ALTER TABLE resources DROP COLUMN ours;"
                                  "ALTER TABLE stacks DROP COLUMN moving_s;"
                                  "INSERT INTO intents(uid,provider,kind,slot_first,slot_count,state) "
                                  "VALUES('u1','aws',0,0,2,0),('u1','aws',1,-1,0,0);"
                                  "INSERT INTO resources(provider,id,uid) VALUES('aws','sg-1','u1'),"
                                  "('aws','i-0','u1'),('aws','i-foreign','u1');"
                                  "INSERT INTO nodes(stack_uid,slot,resource_id) VALUES('u1',0,'i-0');"
                                  "PRAGMA user_version=1",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    struct journal *j = open_ok(f->path);
    struct intent_list open = {0};
    GP_AUTO_RESOURCES struct resource_list known = {0};
    assert_int_equal(journal_intents(j, "u1", 1u << INTENT_OPEN, &open, &err), 0);
    assert_int_equal(open.list.len, 2);
    assert_string_equal(open.list.items[0].spec_hash, "");
    assert_string_equal(open.list.items[0].operation, "");
    assert_false(open.list.items[0].claim);
    assert_true(open.list.items[1].claim); /* a group: schema 1 and 2 did not tell claims apart */
    intent_list_clear(&open);
    assert_int_equal(journal_resources(j, "u1", &known, &err), 0);
    assert_int_equal(known.list.len, 3);
    for (size_t i = 0; i < known.list.len; i++) { /* the machines that its nodes had are this journal's */
        const struct resource *r = &known.list.items[i];
        assert_int_equal(r->ours, strcmp(r->id, "i-0") == 0 ? OURS_LAUNCHED : OURS_NOT);
        assert_string_equal(r->regions, "");
    }
    journal_close(j);
    journal_close(open_ok(f->path)); /* once */
}

/* What this journal launched stays its own when a list, which does not know that, is recorded. */
static void test_ours_stays(void **state) {
    struct fixture *f = *state;
    struct gp_error err = {0};
    struct journal *j = open_ok(f->path);
    struct resource r;
    resource_init(&r, RES_INSTANCE, "aws");
    resource_set(&r.id, "i-0");
    resource_set(&r.uid, "u1");
    static const enum resource_ours puts[] = {OURS_NOT, OURS_PROVEN, OURS_NOT, OURS_LAUNCHED, OURS_PROVEN, OURS_NOT};
    enum resource_ours most = OURS_NOT;
    for (size_t i = 0; i < GP_ARRAY_LEN(puts); i++) {
        GP_AUTO_RESOURCES struct resource_list known = {0};
        r.ours = puts[i];
        most = GP_MAX(most, puts[i]);
        assert_int_equal(journal_resource_put(j, &r, &err), 0);
        assert_int_equal(journal_resources(j, "u1", &known, &err), 0);
        assert_int_equal(known.list.items[0].ours, most);
    }
    resource_clear(&r);
    journal_close(j);
}

static void *put_many(void *arg) {
    struct journal *j = arg;
    for (int i = 0; i < 20; i++) {
        struct gp_error err = {0};
        struct node_record n = {.slot = i, .phase = NODE_REACHING};
        if (journal_node_put(j, "u1", &n, &err) != 0) return xstrdup(err.msg);
    }
    return NULL;
}

static void test_threads_and_two_connections(void **state) {
    struct fixture *f = *state;
    struct journal *a = open_ok(f->path), *b = open_ok(f->path);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, put_many, i % 2 ? a : b);
    for (int i = 0; i < 4; i++) {
        void *why = NULL;
        pthread_join(t[i], &why);
        if (why != NULL) fail_msg("%s", (char *)why);
    }
    struct gp_error err = {0};
    struct node_record_list nodes = {0};
    assert_int_equal(journal_nodes(a, "u1", &nodes, &err), 0);
    assert_int_equal(nodes.list.len, 20);
    node_record_list_clear(&nodes);
    journal_close(a);
    journal_close(b);
}

/* A disk whose reads fail for a moment: the VFS of SQLite with another xRead. */
static sqlite3_io_methods sick;
static const sqlite3_io_methods *well;
static int reads_until_sick;

static int sick_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at) {
    if (n >= 4096 && reads_until_sick-- <= 0) return SQLITE_IOERR_READ; /* whole pages only */
    return well->xRead(f, to, n, at);
}
static int sick_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out) {
    sqlite3_vfs *real = vfs->pAppData;
    int rc = real->xOpen(real, name, f, flags, out);
    if (rc != SQLITE_OK || f->pMethods == NULL || !(flags & SQLITE_OPEN_MAIN_DB)) return rc;
    well = f->pMethods;
    sick = *well;
    sick.xRead = sick_read;
    f->pMethods = &sick;
    return rc;
}

/* An error of reading is not damage: the journal is not set aside for it, whenever it comes. */
static void test_a_disk_that_cannot_be_read_for_a_moment(void **state) {
    struct fixture *f = *state;
    const char *path = f->path;
    struct journal *j = NULL;
    struct gp_error err = {0};
    assert_int_equal(journal_open(path, &j, NULL, &err), 0);
    journal_close(j);
    sqlite3_vfs *real = sqlite3_vfs_find(NULL), shim = *real;
    shim.zName = "sick";
    shim.pAppData = real;
    shim.xOpen = sick_open;
    assert_int_equal(sqlite3_vfs_register(&shim, 1), SQLITE_OK);
    int refused = 0;
    for (int n = 0; n < 12; n++) {
        bool damaged = false;
        gp_error_clear(&err);
        reads_until_sick = n;
        int r = journal_open(path, &j, &damaged, &err);
        refused += r != 0;
        if (r == 0) journal_close(j);
        assert_false(damaged);
    }
    sqlite3_vfs_unregister(&shim);
    assert_int_not_equal(refused, 0);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_disk_that_cannot_be_read_for_a_moment),
        T(test_stack_survives_reopen),
        T(test_intent_and_ids_together),
        T(test_gone_is_terminal),
        T(test_forget_keeps_tombstones),
        T(test_damaged_is_set_aside),
        T(test_newer_is_refused),
        T(test_intents_together),
        T(test_schema_1_is_migrated),
        T(test_ours_stays),
        T(test_threads_and_two_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

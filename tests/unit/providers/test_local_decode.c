// SPDX-License-Identifier: Apache-2.0
/* What the local provider reads from its state folder and from a holder: one thing that has not its form
 * and it is refused; a claim that is refused hides no other one; a path is made from a uid only. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/json.h"
#include "folder.h"
#include "providers/local/decode.h"
#include "providers/local/local.h"
#include "providers/local/local_claim.h"
#include "providers/provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define UID "0123456789abcdef"
#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define KEY "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtgS8vQxJZ3w9d2hX0Yl7cQm1xv0oF8pT6aB4nR5sUz"

static json_t *parsed(const char *text) {
    json_t *j = NULL;
    struct gp_error err = {0};
    if (json_parse(text, strlen(text), "the test's text", &j, &err) != 0) fail_msg("%s: %s", text, err.msg);
    return j;
}

/* sound with key changed to the JSON text value; NULL: taken away. */
static json_t *changed(const char *sound, const char *key, const char *value) {
    json_t *j = parsed(sound);
    GP_AUTO_FREE char *text = value ? xasprintf("{\"x\": %s}", value) : NULL;
    if (text == NULL) {
        json_object_del(j, key);
        return j;
    }
    GP_AUTO_JSON json_t *v = parsed(text);
    json_object_set(j, key, json_object_get(v, "x"));
    return j;
}

struct change {
    const char *key, *value;
};

#define CLAIM                                                                                       \
    "{\"owner\": \"me@x\", \"name\": \"demo\", \"uid\": \"" UID "\", \"spec_hash\": \"" HASH "\", " \
    "\"created\": 1700000000, \"expires\": 1700003600}"

static void test_claims(void **state) {
    (void)state;
    static const struct change bad[] = {{"uid", "\"../../../etc/x\""},
                                        {"uid", "\"0123456789ABCDEF\""},
                                        {"uid", "\"0123\""},
                                        {"uid", "7"},
                                        {"uid", NULL},
                                        {"name", "\"../x\""},
                                        {"name", "\"Demo\""},
                                        {"name", "\"\""},
                                        {"name", "\"a/b\""},
                                        {"owner", "\"\""},
                                        {"owner", "\"a/b\""},
                                        {"owner", "\"a b\""},
                                        {"owner", "null"},
                                        {"spec_hash", "\"hash\""},
                                        {"spec_hash", NULL},
                                        {"created", "0"},
                                        {"created", "-5"},
                                        {"created", "\"1700000000\""},
                                        {"created", "1.5"},
                                        {"expires", "0"},
                                        {"expires", "-1"},
                                        {"expires", "9223372036854775807"},
                                        {"expires", NULL}};
    struct local_claim c = {0};
    struct gp_error err = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_JSON json_t *j = changed(CLAIM, bad[i].key, bad[i].value);
        gp_error_clear(&err);
        if (local_decode_claim(j, "FILE", &c, &err) != -GP_EIO)
            fail_msg("%s: %s is taken", bad[i].key, bad[i].value ? bad[i].value : "nothing");
        assert_non_null(strstr(err.msg, bad[i].key));
        assert_non_null(strstr(err.msg, "FILE"));
        assert_null(c.uid);
    }
    GP_AUTO_JSON json_t *no_hash = changed(CLAIM, "spec_hash", "\"\"");
    assert_int_equal(local_decode_claim(no_hash, "FILE", &c, NULL), 0);
    assert_string_equal(c.uid, UID);
    assert_string_equal(c.owner, "me@x");
    assert_int_equal(c.expires_s, 1700003600);
    local_claim_clear(&c);
}

#define NODE                                                                                    \
    "{\"id\": \"local-" UID "-3-89abcdef\", \"slot\": 3, \"attempt\": 1, \"token\": \"t\", "    \
    "\"ip\": \"10.91.0.5\", \"host_key\": \"" KEY "\", \"state\": \"running\", \"why\": \"\", " \
    "\"gpus\": 0, \"boots\": 1, \"created\": 1700000000}"

static void test_nodes(void **state) {
    (void)state;
    static const struct change bad[] = {{"id", "\"local-0123456789abcde0-3-89abcdef\""},
                                        {"id", "\"local-" UID "-4-89abcdef\""},
                                        {"id", "\"local-" UID "-3-89abcdeg\""},
                                        {"id", "\"local-" UID "-3-\""},
                                        {"id", "\"\""},
                                        {"id", NULL},
                                        {"slot", "-1"},
                                        {"slot", "512"},
                                        {"slot", "4294967299"},
                                        {"slot", "\"3\""},
                                        {"ip", "\"\""},
                                        {"ip", "\"10.91.0\""},
                                        {"ip", "\"10.91.0.5 -oProxyCommand=x\""},
                                        {"state", "\"lost\""},
                                        {"state", "1"},
                                        {"host_key", "\"\""},
                                        {"host_key", "\"" KEY "\\n" KEY "\""},
                                        {"host_key", "\"" KEY " x\""},
                                        {"host_key", "\"ssh-rsa AAAA\""},
                                        {"host_key", "\"ssh-ed25519 AAAA\""},
                                        {"host_key", NULL},
                                        {"attempt", "-1"},
                                        {"gpus", "-1"},
                                        {"gpus", "100000"},
                                        {"created", "0"}};
    struct local_seen n = {0};
    struct gp_error err = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_JSON json_t *j = changed(NODE, bad[i].key, bad[i].value);
        gp_error_clear(&err);
        if (local_decode_node(j, UID, &n, &err) != -GP_EPROTO)
            fail_msg("%s: %s is taken", bad[i].key, bad[i].value ? bad[i].value : "nothing");
    }
    GP_AUTO_JSON json_t *j = parsed(NODE);
    assert_int_equal(local_decode_node(j, UID, &n, NULL), 0);
    assert_int_equal(n.slot, 3);
    assert_string_equal(n.host_key, KEY);
    GP_AUTO_JSON json_t *early = changed(NODE, "host_key", "\"\"");
    json_object_set_new(early, "state", json_string("starting"));
    assert_int_equal(local_decode_node(early, UID, &n, NULL), 0);
    assert_int_equal(local_decode_node(NULL, UID, &n, NULL), -GP_EPROTO);
}

static void test_records_and_requests(void **state) {
    (void)state;
    static const char record[] = "{\"pid\": 17, \"start\": 5, \"pidns\": 4026531836, "
                                 "\"boot_id\": \"01234567-89ab-cdef-0123-456789abcdef\"}";
    static const struct change bad[] = {{"pid", "1"},        {"pid", "0"},     {"pid", "-1"},   {"pid", "4294967313"},
                                        {"pid", "\"17\""},   {"start", "0"},   {"start", "-1"}, {"start", NULL},
                                        {"boot_id", "\"\""}, {"boot_id", "7"}, {"pidns", "-1"}};
    struct local_record r = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        GP_AUTO_JSON json_t *j = changed(record, bad[i].key, bad[i].value);
        assert_false(local_decode_record(j, &r));
    }
    GP_AUTO_JSON json_t *sound = parsed(record);
    assert_true(local_decode_record(sound, &r));
    assert_int_equal(r.pid, 17);
    static const char wanted[] = "{\"token\": \"t\", \"slot_first\": 0, \"slot_count\": 2, \"attempt\": 1, "
                                 "\"gpus\": 0, \"nodes\": 2, \"login_pubkey\": \"ssh-ed25519 A x\"}";
    static const struct change odd[] = {
        {"slot_first", "-1"},          {"slot_first", "2147483647"}, {"slot_count", "0"},
        {"slot_count", "2147483647"},  {"slot_count", "513"},        {"nodes", "0"},
        {"login_pubkey", "\"a\\nb\""}, {"login_pubkey", NULL},       {"token", NULL}};
    struct local_wanted w = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(odd); i++) {
        GP_AUTO_JSON json_t *j = changed(wanted, odd[i].key, odd[i].value);
        assert_int_equal(local_decode_wanted(j, &w, NULL), -GP_EUSAGE);
    }
    GP_AUTO_JSON json_t *fine = parsed(wanted);
    assert_int_equal(local_decode_wanted(fine, &w, NULL), 0);
    assert_int_equal(w.slot_count, 2);
}

/* --- in a state folder --- */

static char base[64];

static void claim(const char *folder, const char *text) {
    GP_AUTO_FREE char *dir = xasprintf("%s/local/%s", base, folder);
    GP_AUTO_FREE char *file = fs_join(dir, "claim.json");
    assert_int_equal(fs_mkdirs(dir, 0700, NULL), 0);
    assert_int_equal(fs_write_atomic(file, text, strlen(text), 0600, NULL), 0);
}

static void test_one_bad_claim_hides_no_other(void **state) {
    (void)state;
    GP_AUTO_FREE char *stacks = fs_join(base, "local");
    GP_AUTO_CLAIMS struct local_claims all = {0};
    struct gp_error err = {0};
    claim("aaa@me", "{");
    claim("demo@me", CLAIM);
    claim("zzz@me", "{\"uid\": \"../../x\", \"name\": \"zzz\"}");
    assert_true(local_claims_read(stacks, NULL, NULL, &all, &err) < 0);
    assert_int_equal(all.list.len, 1);
    assert_string_equal(all.list.items[0].uid, UID);
    assert_non_null(strstr(err.msg, "rm -r"));
    /* the provider: the sound stack is listed, and the error is told */
    struct gp_cancel cancel;
    struct provider *p = NULL;
    assert_int_equal(gp_cancel_init(&cancel, NULL), 0);
    struct provider_env env = {.cancel = &cancel, .state_dir = base, .owner = (char[]){"me@x"}};
    assert_int_equal(provider_local.open(&env, &p, NULL), 0);
    struct list_req req = {.owner = NULL};
    GP_AUTO_RESOURCES struct resource_list found = {0};
    gp_error_clear(&err);
    assert_true(provider_local.list(p, &req, &found, &err) < 0);
    assert_int_equal(found.list.len, 1);
    assert_string_equal(found.list.items[0].uid, UID);
    /* and can be ended, while one that nobody knows is not told as gone */
    gp_error_clear(&err);
    assert_int_equal(provider_local.destroy(p, &found, &err), 0);
    GP_AUTO_FREE char *gone = fs_join(stacks, "demo@me");
    assert_false(fs_exists(gone));
    assert_true(provider_local.destroy(p, &found, &err) < 0);
    provider_local.close(p);
    gp_cancel_clear(&cancel);
}

static void test_no_path_from_a_strange_uid(void **state) {
    (void)state;
    GP_AUTO_FREE char *stacks = fs_join(base, "local");
    GP_AUTO_FREE char *victim = fs_join(base, "victim");
    GP_AUTO_FREE char *dir = fs_join(stacks, "x@me");
    assert_int_equal(fs_mkdirs(victim, 0700, NULL), 0);
    claim("x@me", CLAIM);
    static const char *const bad[] = {"/../../victim", "../victim", "", "0123456789abcdeg", (UID "0")};
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++) {
        assert_int_equal(local_remove(stacks, dir, bad[i], NULL), -GP_EIO);
        assert_null(local_cgroup(bad[i]));
    }
    assert_true(fs_exists(victim));
    assert_true(fs_exists(dir));
    assert_int_equal(local_remove(stacks, dir, UID, NULL), 0);
    assert_false(fs_exists(dir));
}

static int setup(void **state) {
    (void)state;
    return make_folder(base, sizeof base, "decode-test") != NULL ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return fs_remove_tree(base, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claims), cmocka_unit_test(test_nodes), cmocka_unit_test(test_records_and_requests),
        cmocka_unit_test(test_one_bad_claim_hides_no_other), cmocka_unit_test(test_no_path_from_a_strange_uid)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs: each field counts, no two messages are the same bytes, and nothing holds without the key. The constants come
 * from Python's hmac module. */
#include "base/gp_base.h"

#include "model/proof.h"

#include "base/form.h"
#include "model/tags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void make(struct proof_key *k, const char *secret) { proof_key_make(k, "test", secret, strlen(secret)); }

/* hmac.new(hmac.new(b"secret", b"test", "sha256").digest(), MESSAGE, "sha256").hexdigest() */
static void test_values(void **state) {
    (void)state;
    GP_AUTO_PROOF_KEY struct proof_key k = {0};
    char token[PROOF_TOKEN_SIZE], proof[PROOF_SIZE];
    make(&k, "secret");
    proof_token(&k, "a", token); /* b"5:token1:a" */
    assert_string_equal(token, "55dfac3071521027b8e37bee58a343461a8494c4f8c6d83af0a18106cf6cf96e");
    proof_of_machine(&k, "0123456789abcdef", "aws", "i-1", 3, "SHA256:x", proof);
    /* b"7:machine16:0123456789abcdef3:aws3:i-11:38:SHA256:x", the first 16 bytes */
    assert_string_equal(proof, "fb8b1eb1b32cfa24c6abfdd4a9597ad0");
    assert_true(form_proof(proof));
}

static struct resource machine(const struct proof_key *k) {
    struct resource r;
    char proof[PROOF_SIZE];
    resource_init(&r, RES_INSTANCE, "aws");
    resource_set(&r.id, "i-1");
    resource_set(&r.uid, "0123456789abcdef");
    resource_set(&r.host_keys, "SHA256:x");
    r.slot = 1;
    r.slot_first = 0;
    r.slot_count = 2;
    r.attempt = 4;
    r.expires_s = 1800000000;
    proof_of_machine(k, r.uid, r.provider, r.id, r.slot, r.host_keys, proof);
    resource_set(&r.proof, proof);
    proof_of_launch(k, r.uid, 0, 2, 4, proof);
    resource_set(&r.launch, proof);
    proof_of_deadline(k, r.uid, r.expires_s, proof);
    resource_set(&r.deadline, proof);
    return r;
}

enum { MACHINE = 1, LAUNCH = 2, DEADLINE = 4 };

static int holding(const struct proof_key *k, const struct resource *r) {
    return (proof_machine_holds(k, r) ? MACHINE : 0) | (proof_launch_holds(k, r) ? LAUNCH : 0) |
           (proof_deadline_holds(k, r) ? DEADLINE : 0);
}

/* Somebody who copies the tags to another machine, or edits one, keeps only the proofs of what he did not touch. */
static void test_what_is_copied_or_edited(void **state) {
    (void)state;
    GP_AUTO_PROOF_KEY struct proof_key k = {0}, other = {0};
    const struct proof_key none = {0};
    make(&k, "secret");
    make(&other, "secreT");
    struct resource r = machine(&k);
    assert_int_equal(holding(&k, &r), MACHINE | LAUNCH | DEADLINE);
    assert_int_equal(holding(&other, &r), 0);
    assert_int_equal(holding(&none, &r), 0);
    struct edit {
        size_t text;
        const char *value;
        int left;
    };
    const struct edit edits[] = {
        {offsetof(struct resource, id), "i-2", LAUNCH | DEADLINE}, /* the copy */
        {offsetof(struct resource, provider), "google", LAUNCH | DEADLINE},
        {offsetof(struct resource, host_keys), "SHA256:y", LAUNCH | DEADLINE},
        {offsetof(struct resource, host_keys), "", LAUNCH | DEADLINE},
        {offsetof(struct resource, uid), "0123456789abcdee", 0},
        {offsetof(struct resource, proof), "", LAUNCH | DEADLINE},
        {offsetof(struct resource, launch), "", MACHINE | DEADLINE},
        {offsetof(struct resource, deadline), "", MACHINE | LAUNCH},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(edits); i++) {
        struct resource e = {0};
        resource_copy(&e, &r);
        resource_set((char **)(void *)((char *)&e + edits[i].text), edits[i].value);
        assert_int_equal(holding(&k, &e), edits[i].left);
        resource_clear(&e);
    }
    r.expires_s++;
    assert_int_equal(holding(&k, &r), MACHINE | LAUNCH);
    r.attempt++;
    assert_int_equal(holding(&k, &r), MACHINE);
    r.attempt--;
    r.slot = 0; /* within the launch, and not this machine's */
    assert_int_equal(holding(&k, &r), LAUNCH);
    r.slot = 2;
    assert_int_equal(holding(&k, &r), 0);
    resource_clear(&r);
}

/* A proof of one kind is none of another. */
static void test_kinds_differ(void **state) {
    (void)state;
    GP_AUTO_PROOF_KEY struct proof_key k = {0};
    make(&k, "secret");
    struct resource r = machine(&k);
    char *swap = r.proof;
    r.proof = r.launch;
    r.launch = r.deadline;
    r.deadline = swap;
    assert_int_equal(holding(&k, &r), 0);
    resource_clear(&r);
}

/* Lengths stand before the fields: "1" and "23" is not "12" and "3". */
static void test_fields_do_not_run_together(void **state) {
    (void)state;
    GP_AUTO_PROOF_KEY struct proof_key k = {0};
    char a[PROOF_SIZE], b[PROOF_SIZE];
    make(&k, "secret");
    proof_of_launch(&k, "u", 1, 23, 4, a);
    proof_of_launch(&k, "u", 12, 3, 4, b);
    assert_string_not_equal(a, b);
    proof_of_machine(&k, "u", "aws", "i-1", 1, "x", a);
    proof_of_machine(&k, "u", "awsi", "-1", 1, "x", b);
    assert_string_not_equal(a, b);
}

/* What tags carry is what the resource has. */
static void test_through_tags(void **state) {
    (void)state;
    GP_AUTO_PROOF_KEY struct proof_key k = {0};
    struct stack s = {.owner = xstrdup("me"),
                      .name = xstrdup("t"),
                      .uid = xstrdup("0123456789abcdef"),
                      .spec_hash = xstrdup(""),
                      .expires_s = 1800000000};
    struct tags t;
    struct resource r;
    make(&k, "secret");
    tags_of_launch(&t, &s, &k, 2, 3, 5, -1);
    resource_init(&r, RES_INSTANCE, "aws");
    tags_to_resource(&t, 1, &r);
    assert_int_equal(r.slot, 3);
    assert_int_equal(holding(&k, &r), LAUNCH | DEADLINE);
    assert_int_equal(r.ours, OURS_NOT); /* whatever tags say */
    resource_clear(&r);
    tags_clear(&t);
    tags_init(&t);
    tags_read(&t, "proof", "0123456789ABCDEF0123456789abcdef");
    assert_string_equal(t.proof, "");
    assert_string_not_equal(t.bad, "");
    tags_clear(&t);
    stack_clear(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),       cmocka_unit_test(test_what_is_copied_or_edited),
        cmocka_unit_test(test_kinds_differ), cmocka_unit_test(test_fields_do_not_run_together),
        cmocka_unit_test(test_through_tags),
    };
    return cmocka_run_group_tests_name("proofs", tests, NULL, NULL);
}

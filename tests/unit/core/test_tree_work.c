/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as progress of a transfer, against another side that only seems to make some. */
#include "base/gp_base.h"

#include "tree_liar.h"

static void say_file_of(struct liar *l, const char *path, uint64_t size) { say_entry(l, 'f', path, size, NULL); }

static void say_ping(struct liar *l, uint64_t entries, uint64_t hashed) {
    size_t at = frame_begin(&l->b, TREE_PING);
    frame_u64(&l->b, entries);
    frame_u64(&l->b, hashed);
    frame_end(&l->b, at);
}

static void only_what_moves_is_progress(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = liar_open("t");
    assert_int_equal(flush(&l, &err), 0);
    for (int i = 0; i < 1000; i++) { /* signs of life and notes, whole and in part */
        say_ping(&l, 0, UINT64_MAX);
        size_t at = frame_begin(&l.b, TREE_NOTE);
        frame_u8(&l.b, 1);
        frame_bytes(&l.b, "x", 1);
        frame_end(&l.b, at);
    }
    tree_buf_add(&l.b, "\017\377\000\000\000abc", 8);
    assert_int_equal(flush(&l, &err), 0);
    struct tree_work w = tree_side_work(l.t);
    assert_int_equal(w.bytes + w.entries + w.hashed, 0); /* it has nothing to compare */
    liar_close(&l);
    l = liar_open("t");
    say_ping(&l, 7, 0);
    say_ping(&l, 5, 0); /* never less */
    say_file_of(&l, "a", 9);
    assert_int_equal(flush(&l, &err), 0);
    w = tree_side_work(l.t);
    assert_int_equal(w.entries, 7);
    uint64_t before = w.bytes;
    assert_true(before > 0);
    size_t at = frame_begin(&l.b, TREE_FILE);
    frame_u32(&l.b, 0);
    frame_u64(&l.b, 0);
    frame_end(&l.b, at);
    tree_buf_add(&l.b, "\010\011\000\000\000abc", 8); /* the first bytes of a frame of 9 */
    assert_int_equal(flush(&l, &err), 0);
    assert_int_equal(tree_side_work(l.t).bytes, before + 17 + 8);
    tree_buf_add(&l.b, "defghi", 6);
    assert_int_equal(flush(&l, &err), 0);
    assert_int_equal(tree_side_work(l.t).bytes, before + 17 + 14);
    liar_close(&l);
}

static void numbers_without_measure_are_refused(void **state) {
    (void)state;
    struct liar l = liar_open("t");
    say_file_of(&l, "a", (uint64_t)INT64_MAX + 1);
    refused(&l);
    l = liar_open("t");
    say_file_of(&l, "a", INT64_MAX);
    say_file_of(&l, "b", 1);
    refused(&l);
    l = liar_open("t");
    size_t at = frame_begin(&l.b, TREE_LISTED);
    frame_u32(&l.b, 0);
    frame_u8(&l.b, 0);
    frame_u64(&l.b, TREE_COUNT_MAX + 1);
    frame_end(&l.b, at);
    refused(&l);
    l = liar_open("t");
    frame_end(&l.b, frame_begin(&l.b, TREE_PING)); /* of an older agent */
    refused(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_what_moves_is_progress, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_without_measure_are_refused, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

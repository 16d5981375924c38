/* SPDX-License-Identifier: Apache-2.0 */
/* What counts as progress of a transfer, against another side that only seems to make some. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "folder.h"
#include "tree/side.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char *dir; /* of this test */

static int setup(void **state) {
    (void)state;
    char name[256];
    dir = xstrdup(make_folder(name, sizeof name, "tree"));
    return dir == NULL;
}

static int teardown(void **state) {
    (void)state;
    int r = fs_remove_tree(dir, NULL);
    free(dir);
    return r;
}

/* A taker, and the bytes that a giver says next. */
struct liar {
    struct tree_side *t;
    struct tree_buf b;
};

static struct liar liar_open(void) {
    GP_AUTO_FREE char *root = fs_join(dir, "t");
    const struct tree_take_opts take = {.root = root, .inside = true};
    const struct tree_expect any = tree_expect_any();
    struct liar l = {.t = tree_taker(&take, &any)};
    tree_buf_add(&l.b, TREE_MAGIC, TREE_MAGIC_N);
    size_t at = frame_begin(&l.b, TREE_BEGIN);
    frame_u8(&l.b, 0);
    frame_end(&l.b, at);
    return l;
}

static void say_file_of(struct liar *l, const char *path, uint64_t size) {
    struct tree_entry e = {.type = 'f', .mode = 0644, .size = size, .path = (char *)(uintptr_t)path};
    size_t at = frame_begin(&l->b, TREE_LIST);
    entry_put(&l->b, &e);
    frame_end(&l->b, at);
}

static int flush(struct liar *l, struct gp_error *err) {
    enum tree_state state = TREE_BUSY;
    int r = tree_feed(l->t, l->b.p + l->b.off, l->b.len - l->b.off, err);
    tree_buf_drop(&l->b, l->b.len - l->b.off);
    while (r == 0 && state == TREE_BUSY) r = tree_work(l->t, &state, err);
    return r;
}

static void liar_close(struct liar *l) {
    tree_side_free(l->t);
    tree_buf_clear(&l->b);
}

static void refused(struct liar *l) {
    struct gp_error err = {0};
    assert_int_equal(flush(l, &err), -GP_EPROTO);
    liar_close(l);
}

static void say_ping(struct liar *l, uint64_t entries, uint64_t hashed) {
    size_t at = frame_begin(&l->b, TREE_PING);
    frame_u64(&l->b, entries);
    frame_u64(&l->b, hashed);
    frame_end(&l->b, at);
}

static void only_what_moves_is_progress(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = liar_open();
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
    l = liar_open();
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
    struct liar l = liar_open();
    say_file_of(&l, "a", (uint64_t)INT64_MAX + 1);
    refused(&l);
    l = liar_open();
    say_file_of(&l, "a", INT64_MAX);
    say_file_of(&l, "b", 1);
    refused(&l);
    l = liar_open();
    size_t at = frame_begin(&l.b, TREE_LISTED);
    frame_u32(&l.b, 0);
    frame_u8(&l.b, 0);
    frame_u64(&l.b, TREE_COUNT_MAX + 1);
    frame_end(&l.b, at);
    refused(&l);
    l = liar_open();
    frame_end(&l.b, frame_begin(&l.b, TREE_PING)); /* of an older agent */
    refused(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_what_moves_is_progress, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_without_measure_are_refused, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

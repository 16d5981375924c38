/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of a transfer: together in memory, and each against another side that lies. */
#include "base/gp_base.h"

#include "tree_liar.h"

#include <fcntl.h>

/* Carries bytes from one to the other, at most `piece` at a time. */
static int carry(struct tree_side *from, struct tree_side *to, size_t piece, bool *moved, struct gp_error *err) {
    size_t n = 0;
    const void *p = tree_out(from, &n);
    n = GP_MIN(n, piece);
    if (n == 0) return 0;
    GP_AUTO_FREE void *copy = xmalloc(n);
    memcpy(copy, p, n);
    tree_sent(from, n);
    *moved = true;
    return tree_feed(to, copy, n, err);
}

static int copy_with(const struct tree_give_opts *give, const struct tree_take_opts *take, size_t piece,
                     struct tree_stats *ret, struct gp_error *err) {
    const struct tree_expect any = tree_expect_any();
    struct tree_side *g = tree_giver(give), *t = tree_taker(take, &any);
    enum tree_state gs = TREE_BUSY, ts = TREE_BUSY;
    tree_side_greet(g);
    tree_side_greet(t);
    g->greeted = t->greeted = false;
    int r = 0;
    for (bool moved = true; r == 0 && (gs != TREE_ENDED || ts != TREE_ENDED);) {
        assert_true(moved || gs == TREE_BUSY || ts == TREE_BUSY); /* no standstill */
        moved = false;
        r = tree_work(g, &gs, err);
        if (r == 0) r = carry(g, t, piece, &moved, err);
        if (r == 0) r = tree_work(t, &ts, err);
        if (r == 0) r = carry(t, g, piece, &moved, err);
    }
    if (ret != NULL) {
        *ret = t->stats;
        ret->notes = (struct strv){0};
    }
    tree_side_free(g);
    tree_side_free(t);
    return r;
}

static int copy(const char *from, const char *to, size_t piece, struct tree_stats *ret, struct gp_error *err) {
    GP_AUTO_FREE char *src = path_of(from), *dst = path_of(to);
    const struct tree_give_opts give = {.root = src};
    const struct tree_take_opts take = {.root = dst, .inside = true};
    return copy_with(&give, &take, piece, ret, err);
}

static void copies_in_pieces_of_any_size(void **state) {
    (void)state;
    const size_t pieces[] = {1, 7, 4096, 1 << 20};
    make_dir("s/a/b");
    put("s/a/b/c", "content");
    put("s/x", "");
    for (size_t i = 0; i < GP_ARRAY_LEN(pieces); i++) {
        GP_AUTO_FREE char *to = xasprintf("t%zu", i), *c = xasprintf("t%zu/a/b/c", i), *full = path_of(c);
        GP_AUTO_STR struct str text = {0};
        struct tree_stats stats = {0};
        struct gp_error err = {0};
        if (copy("s", to, pieces[i], &stats, &err) != 0) fail_msg("%s", err.msg);
        assert_int_equal(stats.files_sent, 2);
        assert_int_equal(fs_read(full, 100, &text, NULL), 0);
        assert_string_equal(text.s, "content");
        if (copy("s", to, pieces[i], &stats, &err) != 0) fail_msg("%s", err.msg);
    }
}

/* Named through a link and through "..", and kept by a side that removes what is not in the list. */
static void folders_that_are_left_out(void **state) {
    (void)state;
    static const char *const odd = "o*t \\[x] ";
    GP_AUTO_FREE char *src = path_of("s"), *dst = path_of("t"), *link = path_of("link");
    GP_AUTO_FREE char *in = xasprintf("s/a/%s", odd), *there_too = xasprintf("t/a/%s", odd);
    GP_AUTO_FREE char *old = xasprintf("%s/old", there_too), *new = xasprintf("%s/new", in);
    GP_AUTO_FREE char *new_there = xasprintf("%s/new", there_too);
    GP_AUTO_STRV struct strv omit = {0};
    struct tree_stats stats = {0};
    struct gp_error err = {0};
    make_dir(in);
    make_dir("s/b/deep");
    make_dir(there_too);
    make_dir("t/gone");
    put(new, "new");
    put("s/b/deep/x", "x");
    put("s/b/.gpuprovignore", "!deep\n");
    put("s/a/file", "file");
    put(old, "old");
    put("t/gone/file", "file");
    assert_int_equal(symlink(src, link), 0);
    strv_take(&omit, xasprintf("%s/a/%s", link, odd));
    strv_take(&omit, xasprintf("%s/a/../b/deep", src));
    strv_take(&omit, xasprintf("%s/missing", src));
    const struct tree_give_opts give = {.root = src, .ignore = true, .omit = &omit};
    const struct tree_take_opts take = {.root = dst, .mirror = true};
    if (copy_with(&give, &take, 4096, &stats, &err) != 0) fail_msg("%s", err.msg);
    assert_true(there("t/a/file") && there("t/b/.gpuprovignore") && there(old));
    assert_false(there(new_there) || there("t/b/deep") || there("t/gone"));
    assert_int_equal(stats.files, 2);
}

/* --- a taker with a dishonest giver --- */

static void paths_that_lead_out_are_refused(void **state) {
    (void)state;
    static const char *const paths[] = {"..",
                                        "../x",
                                        "/etc/x",
                                        "a/../../x",
                                        "a/..",
                                        ".",
                                        "a/./b",
                                        "a//b",
                                        "a/",
                                        "",
                                        "/",
                                        "./a",
                                        "a/.",
                                        ".gpuprov-part.lock",
                                        "a/.gpuprov-part.x"};
    for (size_t i = 0; i < GP_ARRAY_LEN(paths); i++) {
        struct liar l = liar_open("t");
        say_entry(&l, 'f', paths[i], 1, NULL);
        refused(&l);
    }
    assert_false(there("x"));
}

static void nothing_is_written_through_a_link(void **state) {
    (void)state;
    struct gp_error err = {0};
    make_dir("outside");
    make_dir("t");
    GP_AUTO_FREE char *link = path_of("t/d"), *outside = path_of("outside");
    /* a link that the other side makes, and then uses as a folder */
    struct liar l = liar_open("t");
    say_entry(&l, 'l', "in", 0, "sub");
    say_entry(&l, 'f', "in/x", 1, NULL);
    assert_int_equal(flush(&l, &err), -GP_EIO);
    assert_non_null(strstr(err.msg, "below a link"));
    liar_close(&l);
    /* one that appears between the list and the content */
    l = liar_open("t");
    say_entry(&l, 'd', "d", 0, NULL);
    say_entry(&l, 'f', "d/x", 1, NULL);
    err = (struct gp_error){0};
    assert_int_equal(flush(&l, &err), 0);
    place_forget(&l.t->taker->place);
    assert_int_equal(rmdir(link), 0);
    assert_int_equal(symlink(outside, link), 0);
    say_file(&l, 1, 0);
    assert_int_equal(flush(&l, &err), -GP_EIO);
    liar_close(&l);
    assert_false(there("outside/x"));
}

static void links_that_lead_out_are_left_out(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = liar_open("t");
    say_entry(&l, 'd', "d", 0, NULL);
    say_entry(&l, 'l', "d/a", 0, "/etc/passwd");
    say_entry(&l, 'l', "d/b", 0, "../../x");
    say_entry(&l, 'l', "d/c", 0, "x/../../../x");
    say_entry(&l, 'l', "d/ok", 0, "../y");
    assert_int_equal(flush(&l, &err), 0);
    assert_int_equal(l.t->stats.left_out, 3);
    liar_close(&l);
    assert_true(there("t/d/ok"));
    assert_false(there("t/d/a") || there("t/d/b") || there("t/d/c"));
}

static void frames_out_of_turn_are_refused(void **state) {
    (void)state;
    struct liar l = liar_open("t");
    say_entry(&l, 'f', "b", 1, NULL);
    say_entry(&l, 'f', "a", 1, NULL); /* not in order */
    refused(&l);
    l = liar_open("t");
    say_entry(&l, 'f', "a", 1, NULL);
    say_entry(&l, 'f', "a", 1, NULL); /* twice */
    refused(&l);
    l = liar_open("t");
    say_entry(&l, 'f', "no/folder", 1, NULL);
    refused(&l);
    l = liar_open("t");
    say_file(&l, 0, 0); /* nothing was listed */
    refused(&l);
    l = liar_open("t");
    say_data(&l, "x");
    refused(&l);
    l = liar_open("t");
    frame_end(&l.b, frame_begin(&l.b, TREE_DONE)); /* before anything */
    refused(&l);
    l = liar_open("t");
    size_t at = frame_begin(&l.b, TREE_BEGIN); /* twice */
    frame_u8(&l.b, 0);
    frame_end(&l.b, at);
    refused(&l);
    l = liar_open("t");
    at = frame_begin(&l.b, TREE_LISTED); /* a wrong count would remove files (mirror) */
    frame_u32(&l.b, 7);
    frame_u8(&l.b, 0);
    frame_u64(&l.b, 0);
    frame_end(&l.b, at);
    refused(&l);
    l = liar_open("t");
    tree_buf_add(&l.b, "\xff\xff\xff\xff\xff", 5);
    refused(&l);
}

static void content_is_what_was_announced(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = liar_open("t");
    say_entry(&l, 'f', "a", 3, NULL);
    assert_int_equal(flush(&l, &err), 0);
    say_file(&l, 0, 0);
    say_data(&l, "four");
    refused(&l); /* too many bytes */
    assert_false(there("t/a"));
    l = liar_open("t");
    say_entry(&l, 'f', "a", 3, NULL);
    assert_int_equal(flush(&l, &err), 0);
    say_file(&l, 0, 0);
    say_data(&l, "two");
    say_end(&l, "one"); /* another hash */
    refused(&l);
    assert_false(there("t/a"));
    l = liar_open("t");
    say_entry(&l, 'f', "a", 3, NULL);
    assert_int_equal(flush(&l, &err), 0);
    say_file(&l, 0, 0);
    say_data(&l, "tw");
    say_end(&l, "tw"); /* too short */
    refused(&l);
    l = liar_open("t");
    say_entry(&l, 'f', "a", 3 << 20, NULL);
    assert_int_equal(flush(&l, &err), 0);
    say_file(&l, 0, 1 << 20); /* an offset that was not offered */
    refused(&l);
    assert_false(there("t/a"));
    l = liar_open("t");
    say_entry(&l, 'f', "a", 3, NULL);
    assert_int_equal(flush(&l, &err), 0);
    say_file(&l, 0, 0);
    say_data(&l, "yes");
    say_end(&l, "yes");
    assert_int_equal(flush(&l, &err), 0);
    liar_close(&l);
    assert_true(there("t/a"));
}

static void an_early_end_removes_nothing(void **state) {
    (void)state;
    struct gp_error err = {0};
    make_dir("t");
    put("t/mine", "mine");
    struct liar l = liar_open("t"); /* mirrors */
    assert_int_equal(flush(&l, &err), 0);
    liar_close(&l);
    assert_true(there("t/mine"));
}

/* --- a giver with a dishonest taker --- */

static struct tree_side *giver_of(const char *from) {
    GP_AUTO_FREE char *root = path_of(from);
    const struct tree_give_opts give = {.root = root};
    struct tree_side *g = tree_giver(&give);
    enum tree_state state = TREE_BUSY;
    g->greeted = true;
    while (state == TREE_BUSY) assert_int_equal(tree_work(g, &state, NULL), 0);
    return g;
}

static int ask(struct tree_side *g, uint32_t index, unsigned how, uint64_t offset, struct gp_error *err) {
    struct tree_buf b = {0};
    size_t at = frame_begin(&b, TREE_WANT);
    frame_u32(&b, index);
    frame_u8(&b, (uint8_t)how);
    if (how == TREE_RESUME) frame_u64(&b, offset);
    if (how != TREE_WHOLE) tree_buf_add(&b, (unsigned char[TREE_HASH]){0}, TREE_HASH);
    frame_end(&b, at);
    int r = tree_feed(g, b.p, b.len, err);
    tree_buf_clear(&b);
    return r;
}

static void wants_are_of_listed_files(void **state) {
    (void)state;
    static const struct {
        uint32_t index;
        unsigned how;
        uint64_t offset;
    } wrong[] = {{7, TREE_WHOLE, 0}, {0, TREE_WHOLE, 0}, /* a folder */
                 {1, 9, 0},          {1, TREE_RESUME, 0}, {1, TREE_RESUME, 5}, {1, TREE_RESUME, 1 << 20}};
    make_dir("s/d");
    put("s/d/f", "text");
    for (size_t i = 0; i < GP_ARRAY_LEN(wrong); i++) {
        struct tree_side *g = giver_of("s");
        struct gp_error err = {0};
        assert_int_equal(ask(g, wrong[i].index, wrong[i].how, wrong[i].offset, &err), -GP_EPROTO);
        tree_side_free(g);
    }
    struct tree_side *g = giver_of("s");
    struct gp_error err = {0};
    assert_int_equal(ask(g, 1, TREE_WHOLE, 0, &err), 0);
    assert_int_equal(ask(g, 1, TREE_WHOLE, 0, &err), -GP_EPROTO); /* twice */
    tree_side_free(g);
}

static void a_file_that_became_a_link_is_not_read(void **state) {
    (void)state;
    make_dir("s");
    put("s/f", "text");
    put("secret", "secret");
    struct tree_side *g = giver_of("s");
    GP_AUTO_FREE char *f = path_of("s/f"), *secret = path_of("secret");
    assert_int_equal(unlink(f), 0);
    assert_int_equal(symlink(secret, f), 0);
    struct gp_error err = {0};
    enum tree_state ts = TREE_BUSY;
    size_t n = 0;
    assert_int_equal(ask(g, 0, TREE_WHOLE, 0, &err), 0);
    assert_int_equal(tree_work(g, &ts, &err), 0);
    const char *p = tree_out(g, &n);
    assert_null(memmem(p, n, "secret", 6));
    assert_int_equal(g->stats.left_out, 1);
    tree_side_free(g);
}

/* Files of another copy that was interrupted are not given, but counted; its lock holds nothing of the user's. */
static void own_files_are_left_out_and_counted(void **state) {
    (void)state;
    make_dir("s/a");
    put("s/fine", "x");
    put("s/a/.gpuprov-part.0123456789abcdef", "half of a file");
    put("s/.gpuprov-part.lock", "0000000000000005 77\n");
    put("s/a/.gpuprov-part.clock", "a text of more than sixty-four bytes, which somebody may well want to keep");
    struct tree_stats stats = {0};
    struct gp_error err = {0};
    if (copy("s", "t", 4096, &stats, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(stats.left_out, 2);
    assert_int_equal(stats.files, 1);
    assert_true(there("t/fine"));
    assert_false(there("t/a/.gpuprov-part.0123456789abcdef"));
}

/* Somebody has prepared the file that a transfer writes to before it gets its name: as another user, and with a second
 * name. What he has open, or can open, never is the result. */
static void parts_of_others_are_not_written_to(void **state) {
    (void)state;
    if (geteuid() != 0) skip(); /* only root can make one of another user */
    static const char *const names[] = {"foreign", "second"};
    make_dir("s");
    make_dir("t");
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        char part[40], got[16] = "";
        struct stat st;
        take_part_name(names[i], part);
        GP_AUTO_FREE char *from = xasprintf("s/%s", names[i]), *to = xasprintf("t/%s", names[i]);
        GP_AUTO_FREE char *rel = xasprintf("t/%s", part), *planted = path_of(rel), *other = path_of("other");
        GP_AUTO_FREE char *done = path_of(to);
        put(from, "secret");
        put(rel, "");
        if (i == 0) assert_int_equal(chown(planted, 65534, 65534), 0);
        else assert_int_equal(link(planted, other), 0);
        GP_AUTO_FD int fd = open(planted, O_RDWR | O_CLOEXEC);
        struct gp_error err = {0};
        if (copy("s", "t", 4096, NULL, &err) != 0) fail_msg("%s", err.msg);
        assert_int_equal(pread(fd, got, sizeof got, 0), 0);
        assert_int_equal(pwrite(fd, "evil", 4, 0), 4);
        GP_AUTO_STR struct str text = {0};
        assert_int_equal(fs_read(done, 100, &text, NULL), 0);
        assert_string_equal(text.s, "secret");
        assert_int_equal(stat(done, &st), 0);
        assert_true(st.st_uid == geteuid() && st.st_nlink == 1);
    }
}

/* A lock is written to before any file: it may be another name of a file of the user's. */
static void a_lock_with_a_second_name_is_not_written_to(void **state) {
    (void)state;
    make_dir("s");
    make_dir("t");
    put("s/x", "1");
    put("own", "mine");
    GP_AUTO_FREE char *own = path_of("own"), *lock = path_of("t/.gpuprov-part.lock");
    assert_int_equal(link(own, lock), 0);
    struct gp_error err = {0};
    if (copy("s", "t", 4096, NULL, &err) != 0) fail_msg("%s", err.msg);
    GP_AUTO_STR struct str text = {0};
    assert_int_equal(fs_read(own, 100, &text, NULL), 0);
    assert_string_equal(text.s, "mine");
    assert_false(fs_exists(lock));
}

/* The target folder itself, or one on the way to it, is such a link. */
static void a_target_behind_a_link_of_others_is_refused(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    GP_AUTO_FREE char *shared = path_of("shared"), *theirs = path_of("shared/theirs");
    static const char *const targets[] = {"shared/theirs", "shared/theirs/new"};
    make_dir("s");
    make_dir("home");
    make_dir("shared");
    put("s/file", "x");
    assert_int_equal(chmod(shared, 0777) | symlink("../home", theirs) | lchown(theirs, 65534, 65534), 0);
    for (size_t i = 0; i < GP_ARRAY_LEN(targets); i++) {
        struct gp_error err = {0};
        assert_int_equal(copy("s", targets[i], 4096, NULL, &err), -GP_EIO);
        assert_non_null(strstr(err.msg, "is a link of another user"));
    }
    assert_false(there("home/file") || there("home/new"));
}

/* A file below /proc has 0 bytes until it is read. */
static void content_without_a_size_is_left_out(void **state) {
    (void)state;
    struct tree_stats stats = {0};
    struct gp_error err = {0};
    GP_AUTO_FREE char *link = path_of("version");
    assert_int_equal(symlink("/proc/version", link), 0);
    if (copy("version", "t", 4096, &stats, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(stats.left_out, 1);
    assert_false(there("t"));
    put("empty", "");
    if (copy("empty", "t", 4096, &stats, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(stats.left_out, 0);
    assert_true(there("t"));
}

static void count_beat(void *ctx) { ++*(int *)ctx; }

/* Listing and removing much is one call: meanwhile the other side must get a sign of life. */
static void long_calls_have_a_beat(void **state) {
    (void)state;
    int listed = 0, removed = 0;
    make_dir("s/a");
    put("s/a/b", "x");
    make_dir("t");
    put("t/old", "x");
    put("t/older", "x");
    GP_AUTO_FREE char *src = path_of("s"), *dst = path_of("t");
    const struct tree_give_opts give = {.root = src, .beat = {count_beat, &listed}};
    const struct tree_take_opts take = {.root = dst, .mirror = true, .beat = {count_beat, &removed}};
    struct gp_error err = {0};
    if (copy_with(&give, &take, 4096, NULL, &err) != 0) fail_msg("%s", err.msg);
    assert_false(there("t/old"));
    assert_int_equal(listed, 2);
    assert_in_range(removed, 4, 20);
}

static void requests_are_decoded_strictly(void **state) {
    (void)state;
    const struct tree_give_opts give = {.root = "/"};
    struct tree_side *s = tree_giver(&give);
    const struct tree_request q = {.verb = TREE_TAKE, .path = (char *)(uintptr_t) "a/b", .mirror = true, .id = 5};
    tree_side_ask(s, &q);
    size_t n = 0, used = 0;
    const unsigned char *p = tree_out(s, &n);
    for (size_t i = 0; i < n; i++) { /* not all of it is there yet */
        struct tree_request got = {0};
        assert_int_equal(tree_request_get(p, i, &got, &used, NULL), 0);
        assert_int_equal(used, 0);
    }
    struct tree_request got = {0};
    assert_int_equal(tree_request_get(p, n, &got, &used, NULL), 0);
    assert_int_equal(used, n);
    assert_string_equal(got.path, "a/b");
    assert_true(got.verb == TREE_TAKE && got.mirror && !got.ignore && got.id == 5);
    tree_request_clear(&got);
    GP_AUTO_FREE unsigned char *bad = xmalloc(n);
    memcpy(bad, p, n);
    bad[TREE_MAGIC_N + 5] = 9; /* the version */
    struct gp_error err = {0};
    assert_int_equal(tree_request_get(bad, n, &got, &used, &err), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "gpuprov bootstrap"));
    bad[0] = 'x';
    assert_int_equal(tree_request_get(bad, n, &got, &used, NULL), -GP_EPROTO);
    tree_side_free(s);
}

static void hashes_of_parts_and_holes(void **state) {
    (void)state;
    struct tree_hash a, b;
    unsigned char x[TREE_HASH], y[TREE_HASH];
    GP_AUTO_FREE unsigned char *zeros = xcalloc(1, 5 << 20);
    const uint64_t sizes[] = {0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 7};
    for (size_t i = 0; i < GP_ARRAY_LEN(sizes); i++) {
        tree_hash_init(&a);
        tree_hash_init(&b);
        tree_hash_add(&a, "head", 4);
        tree_hash_add(&b, "head", 4);
        tree_hash_add(&a, zeros, (size_t)sizes[i]);
        tree_hash_zeros(&b, sizes[i]);
        tree_hash_end(&a, x);
        tree_hash_end(&b, y);
        assert_memory_equal(x, y, sizeof x);
        tree_hash_zeros(&b, 1);
        tree_hash_end(&b, y);
        assert_memory_not_equal(x, y, sizeof x);
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(copies_in_pieces_of_any_size),
                                       TEST(folders_that_are_left_out),
                                       TEST(paths_that_lead_out_are_refused),
                                       TEST(nothing_is_written_through_a_link),
                                       TEST(links_that_lead_out_are_left_out),
                                       TEST(own_files_are_left_out_and_counted),
                                       TEST(parts_of_others_are_not_written_to),
                                       TEST(a_lock_with_a_second_name_is_not_written_to),
                                       TEST(a_target_behind_a_link_of_others_is_refused),
                                       TEST(content_without_a_size_is_left_out),
                                       TEST(long_calls_have_a_beat),
                                       TEST(frames_out_of_turn_are_refused),
                                       TEST(content_is_what_was_announced),
                                       TEST(an_early_end_removes_nothing),
                                       TEST(wants_are_of_listed_files),
                                       TEST(a_file_that_became_a_link_is_not_read),
                                       TEST(requests_are_decoded_strictly),
                                       TEST(hashes_of_parts_and_holes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

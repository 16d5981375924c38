/* SPDX-License-Identifier: Apache-2.0 */
/* The taker holds the answer against the request: names, kinds, modes, rules, lists and sizes. */
#include "base/gp_base.h"

#include "tree_liar.h"

#include <fcntl.h>
#include <sys/statvfs.h>

static struct liar ask_for(const char *path, const char *to, bool keep_name, bool single) {
    GP_AUTO_FREE char *root = path_of(to);
    const struct tree_take_opts take = {.root = root, .keep_name = keep_name};
    const struct tree_expect expect = tree_expect_path(path);
    return liar_of(&take, &expect, single);
}

/* Names and content of a file, all at once. */
static int send_single(struct liar *l, const char *name, uint32_t mode, struct gp_error *err) {
    const struct tree_entry e = {.type = 'f', .mode = mode, .size = 4, .held = 4, .path = (char *)(uintptr_t)name};
    say_any(l, &e);
    say_listed(l, 1);
    int r = flush(l, err);
    if (r != 0) return r;
    say_file(l, 0, 0);
    say_data(l, "evil");
    say_end(l, "evil");
    frame_end(&l->b, frame_begin(&l->b, TREE_DONE));
    return flush(l, err);
}

static size_t names_in(const char *name) {
    GP_AUTO_FREE char *path = path_of(name);
    struct tree_place place;
    struct tree_list list = {0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return 0;
    place_init(&place, fd);
    const struct walk_req req = {.place = &place};
    assert_int_equal(tree_walk(&req, &list, NULL), 0);
    size_t n = list.all.len + list.left_out;
    tree_list_clear(&list);
    place_clear(&place);
    return n;
}

static uint32_t mode_of(const char *name) {
    GP_AUTO_FREE char *path = path_of(name);
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void a_file_has_the_requested_name(void **state) {
    (void)state;
    static const char *const wrong[] = {".bashrc", "model.pt2", "Model.pt", "out", "model.p"};
    make_dir("t");
    for (size_t i = 0; i < GP_ARRAY_LEN(wrong); i++) {
        struct gp_error err = {0};
        struct liar l = ask_for("~/out/model.pt", "t", true, true);
        assert_int_equal(send_single(&l, wrong[i], 0644, &err), -GP_EPROTO);
        assert_non_null(strstr(err.msg, wrong[i]));
        assert_non_null(strstr(err.msg, "'~/out/model.pt' was requested, and nothing was written"));
        liar_close(&l);
        assert_int_equal(names_in("t"), 0);
    }
    struct gp_error err = {0};
    struct liar l = ask_for("~/out/model.pt", "t", true, true);
    if (send_single(&l, "model.pt", 0644, &err) != 0) fail_msg("%s", err.msg);
    liar_close(&l);
    assert_true(there("t/model.pt"));
    assert_int_equal(names_in("t"), 1);
    l = ask_for("model.pt", "other", true, true); /* the user's own name, and no folder */
    assert_int_equal(send_single(&l, "model.pt", 0644, &err), 0);
    liar_close(&l);
    assert_true(there("other"));
}

/* A foreign name in a message is one clean line. */
static void a_wrong_name_steers_no_terminal(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = ask_for("a", "t", true, true);
    assert_int_equal(send_single(&l, "\033[2J\nx", 0644, &err), -GP_EPROTO);
    liar_close(&l);
    for (const char *c = err.msg; *c != '\0'; c++) assert_true((unsigned char)*c >= 0x20);
}

static void a_file_is_refused_where_a_folder_was_requested(void **state) {
    (void)state;
    static const char *const folders[] = {"results/", ".", "..", "~", "~/", "/", "x/.", "a/..", "x//"};
    make_dir("t");
    for (size_t i = 0; i < GP_ARRAY_LEN(folders); i++) {
        struct gp_error err = {0};
        struct liar l = ask_for(folders[i], "t", true, true);
        assert_int_equal(send_single(&l, "results", 0644, &err), -GP_EPROTO);
        assert_non_null(strstr(err.msg, "a file where "));
        liar_close(&l);
        assert_int_equal(names_in("t"), 0);
    }
}

static void a_folder_goes_below_the_requested_name(void **state) {
    (void)state;
    struct gp_error err = {0};
    make_dir("t");
    struct liar l = ask_for("out/results/", "t", true, false);
    say_entry(&l, 'd', ".ssh", 0, NULL);
    say_listed(&l, 1);
    assert_int_equal(flush(&l, &err), 0);
    liar_close(&l);
    assert_true(there("t/results/.ssh"));
    assert_int_equal(names_in("t"), 2);
}

static void without_an_expectation_every_answer_is_refused(void **state) {
    (void)state;
    const struct tree_expect none = {0};
    for (int single = 0; single < 2; single++) {
        GP_AUTO_FREE char *root = path_of("t");
        const struct tree_take_opts take = {.root = root};
        struct liar l = liar_of(&take, &none, single);
        say_entry(&l, 'f', "a", 1, NULL);
        refused(&l);
    }
    assert_false(there("t"));
}

static void modes_are_those_of_the_umask(void **state) {
    (void)state;
    static const mode_t masks[] = {022, 027, 077, 0};
    for (size_t i = 0; i < GP_ARRAY_LEN(masks); i++) {
        struct gp_error err = {0};
        mode_t before = umask(masks[i]);
        assert_int_equal(fs_umask(), masks[i]);
        make_dir("t");
        struct liar l = ask_for("x", "t", true, true);
        int file = send_single(&l, "x", 0777, &err);
        liar_close(&l);
        l = ask_for("d", "t", true, false);
        const struct tree_entry e = {.type = 'd', .mode = 0777, .path = (char *)(uintptr_t) "in"};
        say_any(&l, &e);
        say_listed(&l, 1);
        int folder = flush(&l, &err);
        frame_end(&l.b, frame_begin(&l.b, TREE_DONE));
        if (folder == 0) folder = flush(&l, &err);
        liar_close(&l);
        umask(before);
        if (file != 0 || folder != 0) fail_msg("%s", err.msg);
        assert_int_equal(mode_of("t/x"), 0777 & ~masks[i]);
        assert_int_equal(mode_of("t/d/in"), 0777 & ~masks[i]);
        assert_int_equal(mode_of("t/d") & masks[i], 0);
        GP_AUTO_FREE char *t = path_of("t");
        assert_int_equal(fs_remove_tree(t, NULL), 0);
    }
}

/* What gpuprov sends to its own agent keeps its modes. */
static void modes_of_this_side_stay(void **state) {
    (void)state;
    struct gp_error err = {0};
    GP_AUTO_FREE char *root = path_of("t");
    const struct tree_take_opts take = {.root = root};
    const struct tree_expect any = tree_expect_any();
    struct liar l = liar_of(&take, &any, true);
    mode_t before = umask(077);
    int r = send_single(&l, "x", 0666, &err);
    umask(before);
    liar_close(&l);
    if (r != 0) fail_msg("%s", err.msg);
    assert_int_equal(mode_of("t"), 0666);
}

static void rules_must_be_requested(void **state) {
    (void)state;
    struct liar l = ask_for("d", "t", true, false);
    size_t at = frame_begin(&l.b, TREE_RULES);
    frame_bytes(&l.b, "", 0);
    frame_bytes(&l.b, "*\n", 2);
    frame_end(&l.b, at);
    refused(&l);
}

static void links_that_lead_out_are_never_made(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = ask_for("d", "t", true, false); /* `inside` is not set */
    say_entry(&l, 'l', "out", 0, "/etc/passwd");
    assert_int_equal(flush(&l, &err), 0);
    assert_int_equal(l.t->stats.left_out, 1);
    liar_close(&l);
    assert_int_equal(names_in("t/d"), 0);
}

/* --- a list that is known --- */

static int send_list(const unsigned char hash[32], const void *list, size_t n, struct gp_error *err) {
    GP_AUTO_FREE char *root = path_of("t");
    const struct tree_take_opts take = {.root = root};
    const struct tree_expect expect = tree_expect_list(hash);
    struct tree_side *t = tree_taker(&take, &expect);
    enum tree_state state = TREE_BUSY;
    t->greeted = true;
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) { /* entries are complete long before the list is */
        r = tree_feed(t, (const char *)list + i, 1, err);
        if (r == 0) r = tree_work(t, &state, err);
    }
    tree_side_free(t);
    return r;
}

static void nothing_is_made_before_the_list_is_the_requested_one(void **state) {
    (void)state;
    make_dir("s/a");
    put("s/b", "text");
    GP_AUTO_FREE char *src = path_of("s");
    GP_AUTO_FREE unsigned char *list = NULL;
    const struct tree_give_opts give = {.root = src};
    struct gp_error err = {0};
    unsigned char hash[32];
    size_t n = 0;
    uint64_t size = 0;
    bool folder = false;
    assert_int_equal(tree_list_bytes(&give, (void **)&list, &n, &size, &folder, &err), 0);
    tree_list_hash(list, n, hash);
    hash[3] ^= 1;
    assert_int_equal(send_list(hash, list, n, &err), -GP_EPROTO);
    assert_non_null(strstr(err.msg, "another list than gpuprov's"));
    assert_int_equal(names_in("t"), 0);
    hash[3] ^= 1;
    unsigned char *b = memchr(list, 'b', n); /* a file in place of another one */
    *b = 'c';
    err = (struct gp_error){0};
    assert_int_equal(send_list(hash, list, n, &err), -GP_EPROTO);
    assert_int_equal(names_in("t"), 0);
    *b = 'b';
    err = (struct gp_error){0};
    if (send_list(hash, list, n, &err) != 0) fail_msg("%s", err.msg);
    assert_true(there("t/a"));
    const struct tree_expect expect = tree_expect_list(hash);
    GP_AUTO_FREE char *root = path_of("t");
    const struct tree_take_opts take = {.root = root};
    struct liar l = liar_of(&take, &expect, true);
    refused(&l);
}

/* --- sizes --- */

static void say_size(struct liar *l, const char *name, uint64_t size, uint64_t held) {
    const struct tree_entry e = {
        .type = 'f', .mode = 0644, .size = size, .held = held, .path = (char *)(uintptr_t)name};
    say_any(l, &e);
}

static uint64_t disk(bool whole) {
    struct statvfs v;
    assert_int_equal(statvfs(dir, &v), 0);
    return (uint64_t)(whole ? v.f_blocks : v.f_bfree) * v.f_frsize;
}

/* A file of holes that no disk holds is left out; one that fits without its holes is not. */
static void a_file_larger_than_the_disk_is_left_out(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = ask_for("d", "t", true, false);
    say_size(&l, "a", (uint64_t)1 << 60, 0);
    say_size(&l, "b", disk(true) / 2, 0);
    say_listed(&l, 2);
    assert_int_equal(flush(&l, &err), 0);
    assert_int_equal(l.t->stats.left_out, 1);
    assert_non_null(strstr(l.t->stats.notes.v[0], "'a': with its holes it is larger than the disk here"));
    assert_int_equal(l.t->taker->asked, 1);
    say_file(&l, 0, 0); /* it begins all the same */
    refused(&l);
}

static void what_does_not_fit_is_refused_before_it_comes(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct liar l = ask_for("d", "t", true, false);
    uint64_t half = disk(false) / 2;
    say_size(&l, "a", half, half);
    say_size(&l, "b", half + (half / 2), half + (half / 2)); /* each by itself would fit */
    assert_int_equal(flush(&l, &err), -GP_EIO);
    assert_string_equal(err.detail, "DISK_FULL");
    assert_non_null(strstr(err.msg, "'b' does not fit: "));
    liar_close(&l);
    l = ask_for("d", "t", true, false);
    say_size(&l, "a", half, half);
    say_size(&l, "b", half / 2, half / 2);
    err = (struct gp_error){0};
    assert_int_equal(flush(&l, &err), 0);
    liar_close(&l);
    l = ask_for("d", "t", true, false);
    say_size(&l, "a", 1, 2); /* more than there is */
    refused(&l);
}

/* 100,000 holes of 1 GiB fit into one packet of a few bytes each. */
static void cancellation_ends_a_feed_of_holes(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct gp_cancel cancel;
    assert_int_equal(gp_cancel_init(&cancel, NULL), 0);
    GP_AUTO_FREE char *root = path_of("t");
    const struct tree_take_opts take = {.root = root, .cancel = &cancel};
    const struct tree_expect any = tree_expect_any();
    struct liar l = liar_of(&take, &any, false);
    say_size(&l, "a", (uint64_t)1 << 60, 0);
    assert_int_equal(flush(&l, &err), 0);
    say_file(&l, 0, 0);
    assert_int_equal(flush(&l, &err), 0);
    for (int i = 0; i < 100000; i++) {
        size_t at = frame_begin(&l.b, TREE_HOLE);
        frame_u64(&l.b, TREE_HOLE_MAX);
        frame_end(&l.b, at);
    }
    gp_cancel_set(&cancel);
    assert_int_equal(flush(&l, &err), -GP_ECANCELLED);
    assert_int_equal(l.t->taker->in.at, 0);
    liar_close(&l);
    gp_cancel_clear(&cancel);
}

/* The own file of 2^50 bytes: in steps that hear cancellation. */
static void a_hole_is_read_in_steps(void **state) {
    (void)state;
    GP_AUTO_FREE char *path = path_of("holes");
    struct stat st;
    struct tree_reader r;
    unsigned char buf[4096];
    uint64_t n = 0, all = 0;
    bool hole = false;
    GP_AUTO_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const uint64_t size = 3 * TREE_HOLE_MAX + 8;
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(pwrite(fd, "end", 3, (off_t)(size - 3)), 3);
    assert_int_equal(fstat(fd, &st), 0);
    reader_init(&r, fd, &st, 0, size);
    for (int steps = 0; steps < 10; steps++) {
        assert_int_equal(reader_next(&r, buf, sizeof buf, &n, &hole), 0);
        assert_true(n <= (hole ? TREE_HOLE_MAX : sizeof buf));
        all += n;
        if (n == 0) break;
    }
    assert_int_equal(all, size);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(a_file_has_the_requested_name),
                                       TEST(a_wrong_name_steers_no_terminal),
                                       TEST(a_file_is_refused_where_a_folder_was_requested),
                                       TEST(a_folder_goes_below_the_requested_name),
                                       TEST(without_an_expectation_every_answer_is_refused),
                                       TEST(modes_are_those_of_the_umask),
                                       TEST(modes_of_this_side_stay),
                                       TEST(rules_must_be_requested),
                                       TEST(links_that_lead_out_are_never_made),
                                       TEST(nothing_is_made_before_the_list_is_the_requested_one),
                                       TEST(a_file_larger_than_the_disk_is_left_out),
                                       TEST(what_does_not_fit_is_refused_before_it_comes),
                                       TEST(cancellation_ends_a_feed_of_holes),
                                       TEST(a_hole_is_read_in_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

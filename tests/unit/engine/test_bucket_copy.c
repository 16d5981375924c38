/* SPDX-License-Identifier: Apache-2.0 */
/* What a bucket lists is foreign: a size that no disk has, names of others. */
#include "base/gp_base.h"

#include "engine/transfer/bucket_copy.h"

#include "base/fs.h"
#include "folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

static const char *key;
static uint64_t size;
static int gets;

static int list(struct bucket *b, struct bucket_objects *ret, struct gp_error *err) {
    return bucket_objects_add(b, ret, key, strlen(key), size, NULL, err);
}

static int stat_one(struct bucket *b, struct bucket_object *o, struct gp_error *err) {
    (void)b, (void)o, (void)err;
    return 0;
}

static int get(struct bucket *b, const struct bucket_get *req, struct gp_error *err) {
    (void)b;
    gets++;
    return bucket_write(req->fd, 0, "four", 4, err);
}

static int down(const char *of, uint64_t bytes, const char *folder, struct tree_stats *ret, struct gp_error *err) {
    static const struct bucket_ops ops = {.list = list, .stat = stat_one, .get = get};
    char prefix[] = "p", text[] = "s3://b/p";
    struct bucket b = {.ops = &ops, .prefix = prefix, .text = text};
    key = of;
    size = bytes;
    gets = 0;
    return bucket_down(&b, NULL, folder, ret, err);
}

static void what_does_not_fit_is_not_fetched(void **state) {
    (void)state;
    char folder[256];
    struct gp_error err = {0};
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    assert_non_null(make_folder(folder, sizeof folder, "bucket"));
    assert_int_equal(down("p/a", (uint64_t)1 << 60, folder, &stats, &err), -GP_EIO);
    assert_int_equal(gets, 0);
    assert_non_null(strstr(err.msg, "'s3://b/p/a' needs "));
    assert_int_equal(fs_remove_tree(folder, NULL), 0);
}

static void files_are_for_this_user_alone(void **state) {
    (void)state;
    char folder[256];
    struct stat st;
    struct gp_error err = {0};
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    assert_non_null(make_folder(folder, sizeof folder, "bucket"));
    GP_AUTO_FREE char *file = fs_join(folder, "a/b");
    if (down("p/a/b", 4, folder, &stats, &err) != 0) fail_msg("%s", err.msg);
    assert_int_equal(gets, 1);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(down("p/../../b", 4, folder, &stats, &err), 0);
    assert_int_equal(gets, 0);
    assert_int_equal(stats.left_out, 1);
    assert_int_equal(fs_remove_tree(folder, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_does_not_fit_is_not_fetched),
                                       cmocka_unit_test(files_are_for_this_user_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

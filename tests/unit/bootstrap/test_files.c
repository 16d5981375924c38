/* SPDX-License-Identifier: Apache-2.0 */
/* The files of bootstrap.files as they are read here: one copy for all nodes, a new one after a change, and what is
 * refused. */
#include "base/gp_base.h"

#include "../folder.h"
#include "base/fs.h"
#include "bootstrap/files.h"
#include "spec/spec_files.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDERS_TOO_DEEP 33

static char folder[256];

static int setup(void **state) {
    (void)state;
    return make_folder(folder, sizeof folder, "files") ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    struct gp_error err = {0};
    return fs_remove_tree(folder, &err);
}

static void put(const char *name, const char *text, unsigned mode) {
    struct gp_error err = {0};
    GP_AUTO_FREE char *path = fs_join(folder, name);
    assert_int_equal(fs_write_atomic(path, text, strlen(text), mode, &err), 0);
}

static struct boot_files *get(const char *name, const char *mode, struct gp_error *err) {
    GP_AUTO_FREE char *from = fs_join(folder, name);
    struct spec_file f = {.from = from, .to = xstrdup("/to"), .mode = mode ? xstrdup(mode) : NULL};
    struct spec_storage s = {0};
    vec_push(&s.files, f);
    struct boot_files *set = NULL;
    int rc = boot_files_get(&s, &set, err);
    assert_true((rc == 0) == (set != NULL));
    free(f.to);
    free(f.mode);
    vec_free(&s.files);
    return set;
}

static void refused(const char *name, const char *part) {
    struct gp_error err = {0};
    assert_null(get(name, NULL, &err));
    if (strstr(err.msg, part) == NULL) fail_msg("'%s' has no '%s'", err.msg, part);
}

static void one_copy_until_it_changes(void **state) {
    (void)state;
    struct gp_error err = {0};
    put("a", "one", 0644);
    struct boot_files *first = get("a", NULL, &err), *second = get("a", NULL, &err);
    assert_ptr_equal(first, second);
    assert_memory_equal(first->items.items[0].data, "one", 3);
    assert_string_equal(first->items.items[0].sha256,
                        "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
    put("a", "two", 0644);
    struct boot_files *third = get("a", NULL, &err);
    assert_ptr_not_equal(first, third);
    assert_memory_equal(first->items.items[0].data, "one", 3); /* its users still have it */
    assert_memory_equal(third->items.items[0].data, "two", 3);
    boot_files_release(first);
    boot_files_release(second);
    boot_files_release(third);
    boot_files_release(NULL);
}

static void folders_in_order_with_modes(void **state) {
    (void)state;
    struct gp_error err = {0};
    assert_int_equal(fs_mkdirs(folder, 0700, &err), 0);
    GP_AUTO_FREE char *deep = fs_join(folder, "d/x");
    assert_int_equal(fs_mkdirs(deep, 0700, &err), 0);
    put("d/b", "", 0600);
    put("d/a", "1", 0700);
    put("d/x/c", "2", 0644);
    struct boot_files *set = get("d", NULL, &err);
    assert_int_equal(set->items.len, 3);
    static const char *const to[] = {"/to/a", "/to/b", "/to/x/c"}, *const mode[] = {"755", "644", "644"};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(set->items.items[i].to, to[i]);
        assert_string_equal(set->items.items[i].mode, mode[i]);
        assert_string_equal(set->items.items[i].owner, "-");
    }
    boot_files_release(set);
    set = get("d", "0640", &err);
    assert_string_equal(set->items.items[0].mode, "640");
    boot_files_release(set);
    set = get("d", "007", &err);
    assert_string_equal(set->items.items[0].mode, "7"); /* as "stat -c %a" prints it */
    boot_files_release(set);
}

static void what_is_refused(void **state) {
    (void)state;
    struct gp_error err = {0};
    refused("nothing", "No such file or directory");
    GP_AUTO_FREE char *d = fs_join(folder, "e");
    assert_int_equal(fs_mkdirs(d, 0700, &err), 0);
    put("e/file", "", 0600);
    GP_AUTO_FREE char *link_path = fs_join(folder, "e/link"), *target = fs_join(folder, "e/file");
    assert_int_equal(symlink(target, link_path), 0);
    refused("e", "e/link' is a symbolic link: only files and folders are copied");
    struct boot_files *set = get("e/link", NULL, &err); /* named in the spec itself: it is meant */
    boot_files_release(set);
    assert_int_equal(unlink(link_path), 0);
    GP_AUTO_FREE char *pipe_path = fs_join(folder, "e/pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    refused("e", "e/pipe' is a special file");
    assert_int_equal(unlink(pipe_path), 0);
    put("e/new\nline", "", 0600);
    refused("e", "a control character or a backslash");
    GP_AUTO_STR struct str deep = {0};
    str_add(&deep, "f");
    for (int i = 0; i < FOLDERS_TOO_DEEP; i++) str_add(&deep, "/d");
    GP_AUTO_FREE char *path = fs_join(folder, deep.s);
    assert_int_equal(fs_mkdirs(path, 0700, &err), 0);
    refused("f", "is more than 32 folders deep");
}

static void a_large_file_is_refused_before_it_is_read(void **state) {
    (void)state;
    put("large", "", 0600);
    GP_AUTO_FREE char *path = fs_join(folder, "large");
    assert_int_equal(truncate(path, (off_t)SPEC_FILES_BYTES + 1), 0);
    refused("large", "exceeds the limit of 2000 files and 256 MiB in all");
}

static void *reader(void *arg) {
    struct boot_files **to = arg;
    struct gp_error err = {0};
    *to = get("many", NULL, &err);
    return NULL;
}

static void many_nodes_share_one_copy(void **state) {
    (void)state;
    put("many", "same for all", 0644);
    pthread_t t[8];
    struct boot_files *sets[8] = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(t); i++) assert_int_equal(pthread_create(&t[i], NULL, reader, &sets[i]), 0);
    for (size_t i = 0; i < GP_ARRAY_LEN(t); i++) pthread_join(t[i], NULL);
    for (size_t i = 0; i < GP_ARRAY_LEN(t); i++) {
        assert_ptr_equal(sets[i], sets[0]);
        boot_files_release(sets[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_copy_until_it_changes), cmocka_unit_test(folders_in_order_with_modes),
        cmocka_unit_test(what_is_refused),           cmocka_unit_test(a_large_file_is_refused_before_it_is_read),
        cmocka_unit_test(many_nodes_share_one_copy),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

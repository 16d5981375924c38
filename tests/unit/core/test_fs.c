/* SPDX-License-Identifier: Apache-2.0 */
/* Where a file goes that the user names: fs_write_output and links. */
#include "base/gp_base.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder.h"

#define OTHER_USER 65534

static char dir[256];

static int setup(void **state) {
    (void)state;
    return make_folder(dir, sizeof dir, "fs") != NULL ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return fs_remove_tree(dir, NULL);
}

/* A file of the test's folder. Caller frees. */
static char *at(const char *name) { return fs_join(dir, name); }

static void put(const char *name, const char *text) {
    GP_AUTO_FREE char *path = at(name);
    assert_int_equal(fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
}

static void link_to(const char *target, const char *name) {
    GP_AUTO_FREE char *path = at(name);
    assert_int_equal(symlink(target, path), 0);
}

static void has(const char *name, const char *text) {
    GP_AUTO_FREE char *path = at(name);
    GP_AUTO_STR struct str got = {0};
    assert_int_equal(fs_read(path, 1000, &got, NULL), 0);
    assert_string_equal(got.s, text);
}

static bool is_link(const char *name) {
    GP_AUTO_FREE char *path = at(name);
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

static void written(const char *name) {
    GP_AUTO_FREE char *path = at(name);
    struct gp_error err = {0};
    if (fs_write_output(path, "new", 3, 0600, &err) != 0) fail_msg("%s: %s", name, err.msg);
    has(name, "new");
}

/* It fails, and the error names the path as it was given and has `why`. */
static void refused(const char *name, const char *why) {
    GP_AUTO_FREE char *path = at(name);
    struct gp_error err = {0};
    assert_int_equal(fs_write_output(path, "new", 3, 0600, &err), -GP_EIO);
    if (strstr(err.msg, path) == NULL || strstr(err.msg, why) == NULL) fail_msg("%s: %s", name, err.msg);
}

static void files_and_own_links(void **state) {
    (void)state;
    put("old", "old");
    put("target", "old");
    link_to("target", "near");
    link_to("near", "chain");
    GP_AUTO_FREE char *far = at("target");
    link_to(far, "absolute");
    link_to("not-yet", "dangling");
    static const char *const names[] = {"fresh", "old", "near", "chain", "absolute", "dangling"};
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        put("target", "old");
        written(names[i]);
    }
    has("target", "old"); /* the last one led to another file */
    has("not-yet", "new");
    assert_true(is_link("near") && is_link("chain") && is_link("absolute") && is_link("dangling"));
}

static void pipes(void **state) {
    (void)state;
    char got[8] = "";
    GP_AUTO_FREE char *path = at("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    link_to("pipe", "to-pipe");
    GP_AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fs_write_output(path, "one", 3, 0600, NULL), 0);
    GP_AUTO_FREE char *linked = at("to-pipe");
    assert_int_equal(fs_write_output(linked, "two", 3, 0600, NULL), 0);
    assert_int_equal(read(fd, got, 6), 6);
    assert_string_equal(got, "onetwo");
    GP_AUTO_FREE char *by_number = xasprintf("/proc/self/fd/%d", fd); /* as /dev/stdout is one */
    assert_int_equal(fs_write_output(by_number, "six", 3, 0600, NULL), 0);
    assert_int_equal(read(fd, got, 3), 3);
}

/* Standard output may be a file that has no name any more: its link names another one. */
static void file_without_a_name(void **state) {
    (void)state;
    char got[8] = "";
    put("gone", "");
    GP_AUTO_FREE char *path = at("gone"), *other = at("gone (deleted)");
    GP_AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    GP_AUTO_FREE char *by_number = xasprintf("/proc/self/fd/%d", fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fs_write_output(by_number, "new", 3, 0600, NULL), 0);
    assert_int_equal(pread(fd, got, 3, 0), 3);
    assert_string_equal(got, "new");
    assert_false(fs_exists(other));
}

static void what_cannot_be_looked_at(void **state) {
    (void)state;
    put("file", "old");
    link_to("loop-b", "loop-a");
    link_to("loop-a", "loop-b");
    refused("loop-a", "Too many levels of symbolic links");
    refused("file/x", "Not a directory");
    refused("no-folder/x", "No such file");
    assert_true(is_link("loop-a") && is_link("loop-b"));
    has("file", "old");
}

/* In a folder that every user can write, as /tmp, a link of another user is not followed, whatever the kernel's
 * fs.protected_symlinks is. */
static void links_of_others(void **state) {
    (void)state;
    if (geteuid() != 0) skip(); /* only root can make one */
    GP_AUTO_FREE char *shared = at("shared");
    assert_int_equal(mkdir(shared, 0700) | chmod(shared, 01777), 0);
    put("target", "old");
    static const char *const names[] = {"shared/theirs", "shared/nowhere", "shared/roots"};
    link_to("../target", names[0]);
    link_to("../not-there", names[1]);
    link_to("../target", names[2]);
    link_to("shared/theirs", "mine");
    for (size_t i = 0; i < 2; i++) {
        GP_AUTO_FREE char *path = at(names[i]);
        assert_int_equal(lchown(path, OTHER_USER, OTHER_USER), 0);
        refused(names[i], "is a link of another user");
    }
    GP_AUTO_FREE char *mine = at("mine"), *none = at("not-there");
    struct gp_error err = {0};
    assert_int_equal(fs_write_output(mine, "new", 3, 0600, &err), -GP_EIO);
    assert_non_null(strstr(err.msg, "shared/theirs' is a link of another user"));
    has("target", "old");
    assert_false(fs_exists(none));
    written(names[2]);
    has("target", "new");
}

/* The same for a folder on the way, in every form in which it can be reached. */
static void folders_of_others(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    GP_AUTO_FREE char *shared = at("shared"), *mine = at("mine"), *theirs = at("shared/theirs");
    assert_int_equal(mkdir(shared, 0700) | chmod(shared, 0777) | mkdir(mine, 0700), 0);
    put("mine/file", "old");
    link_to("../mine", "shared/theirs");
    assert_int_equal(lchown(theirs, OTHER_USER, OTHER_USER), 0);
    link_to("../mine", "shared/roots");
    link_to("shared/theirs", "far");
    link_to("shared", "near");
    GP_AUTO_FREE char *by_root = at("shared/theirs/");
    link_to(by_root, "absolute");
    static const char *const names[] = {"shared/theirs/file",
                                        "shared//theirs/./file",
                                        "shared/roots/../shared/theirs/new",
                                        "mine/../shared/theirs/new",
                                        "far/file",
                                        "near/theirs/file",
                                        "absolute/file",
                                        "absolute/new"};
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) refused(names[i], "theirs' is a link of another user");
    has("mine/file", "old");
    GP_AUTO_FREE char *none = at("mine/new");
    assert_false(fs_exists(none));
    written("shared/roots/file");
    written("near/roots/../mine/other");
    has("mine/file", "new");
    has("mine/other", "new");
}

/* Between the look and the writing somebody puts a link in the place of a folder on the way. */
static void a_link_that_is_put_there_meanwhile(void **state) {
    (void)state;
    GP_AUTO_FREE char *real = at("real"), *out = at("out"), *deep = at("real/deep"), *aside = at("aside");
    GP_AUTO_FREE char *way = NULL;
    assert_int_equal(mkdir(real, 0700) | mkdir(deep, 0700) | mkdir(out, 0700), 0);
    link_to("real", "mine");
    GP_AUTO_FREE char *mine = at("mine/deep");
    assert_int_equal(fs_follow(mine, &way, NULL), 0);
    int fd = fs_open_folder(way);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(rename(deep, aside), 0);
    link_to("../out", "real/deep");
    assert_int_equal(fs_open_folder(way), -ENOTDIR);
    assert_int_equal(unlink(deep) | rename(aside, deep) | rename(real, aside), 0);
    link_to("out", "real");
    assert_int_equal(fs_open_folder(way), -ENOTDIR);
}

/* What is opened to be written in place, such as a log. */
static void opened_in_place(void **state) {
    (void)state;
    GP_AUTO_FREE char *shared = at("shared"), *mine = at("log"), *theirs = at("shared/theirs"),
                      *pipe = at("shared/pipe");
    GP_AUTO_FREE char *link = at("shared/link");
    int fd = -1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fs_open_output(mine, O_CREAT | O_APPEND, 0600, &fd, NULL), 0);
        assert_int_equal(fs_write_all(fd, "a", 1), 0);
        close(fd);
    }
    has("log", "aa");
    if (geteuid() != 0) return;
    assert_int_equal(mkdir(shared, 0700) | chmod(shared, 0777) | mkfifo(pipe, 0666), 0);
    put("shared/theirs", "old");
    link_to("../log", "shared/link");
    assert_int_equal(chown(theirs, OTHER_USER, OTHER_USER) | chown(pipe, OTHER_USER, OTHER_USER) |
                         lchown(link, OTHER_USER, OTHER_USER),
                     0);
    const char *const refused[] = {theirs, pipe, link};
    for (size_t i = 0; i < GP_ARRAY_LEN(refused); i++) {
        struct gp_error err = {0};
        fd = -1;
        assert_int_equal(fs_open_output(refused[i], O_CREAT | O_APPEND, 0600, &fd, &err), -GP_EIO);
        assert_int_equal(fd, -1);
        assert_non_null(strstr(err.msg, "of another user"));
    }
    has("log", "aa");
    has("shared/theirs", "old");
}

/* In turn a file of this user and another user's link, as fast as rename(2) and unlink(2) go. The parent of ctx ends it. */
static void swap_for_ever(const char *target) {
    GP_AUTO_FREE char *other = at("other"), *link = at("link");
    for (;;) {
        int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) close(fd);
        (void)rename(other, target);
        (void)unlink(target);
        if (symlink("../own", link) != 0 || lchown(link, OTHER_USER, OTHER_USER) != 0) _exit(1);
        (void)rename(link, target);
        (void)unlink(target);
    }
}

/* Of thousands of looks some fall between any two of the other's calls. */
static void a_file_that_becomes_a_link_meanwhile(void **state) {
    (void)state;
    enum { CALLS = 3000 };
    if (geteuid() != 0) skip(); /* only root can make a link of another user */
    GP_AUTO_FREE char *shared = at("shared"), *target = at("shared/out");
    assert_int_equal(mkdir(shared, 0700) | chmod(shared, 0777), 0);
    put("own", "mine");
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) swap_for_ever(target);
    for (int i = 0; i < CALLS; i++) {
        int fd = -1;
        (void)fs_write_output(target, "x", 1, 0600, NULL);
        if (fs_open_output(target, i % 2 == 0 ? O_CREAT | O_APPEND : O_APPEND, 0600, &fd, NULL) == 0) {
            (void)fs_write_all(fd, "y", 1);
            close(fd);
        }
        (void)fs_remove_output(target, NULL);
    }
    int status = 0;
    assert_int_equal(waitpid(other, &status, WNOHANG), 0); /* it swapped to the end */
    kill(other, SIGKILL);
    waitpid(other, &status, 0);
    has("own", "mine");
}

/* Another name of a file of this user, which another one made where he can. */
static void second_names(void **state) {
    (void)state;
    GP_AUTO_FREE char *shared = at("shared"), *own = at("own"), *theirs = at("shared/log"), *mine = at("log");
    int fd = -1;
    put("own", "secret");
    assert_int_equal(mkdir(shared, 0700) | chmod(shared, 0777) | link(own, theirs) | link(own, mine), 0);
    struct gp_error err = {0};
    assert_int_equal(fs_open_output(theirs, O_CREAT | O_APPEND, 0600, &fd, &err), -GP_EIO);
    assert_non_null(strstr(err.msg, "a file with a second name"));
    assert_int_equal(fd, -1);
    assert_int_equal(fs_write_output(theirs, "new", 3, 0600, NULL), 0); /* in its place */
    has("own", "secret");
    assert_int_equal(fs_open_output(mine, O_CREAT | O_APPEND, 0600, &fd, NULL), 0);
    close(fd);
}

/* Removed is what would be written, and only that. */
static void removed(void **state) {
    (void)state;
    GP_AUTO_FREE char *shared = at("shared"), *own = at("own"), *theirs = at("shared/way"), *mine = at("way");
    GP_AUTO_FREE char *file = at("own/node.json"), *by_theirs = at("shared/way/node.json"),
                      *by_mine = at("way/node.json");
    assert_int_equal(mkdir(shared, 0700) | chmod(shared, 0777) | mkdir(own, 0700), 0);
    put("own/node.json", "x");
    link_to("own", "way");
    if (geteuid() == 0) {
        link_to("../own", "shared/way");
        assert_int_equal(lchown(theirs, OTHER_USER, OTHER_USER), 0);
        assert_int_equal(fs_remove_output(by_theirs, NULL), -GP_EIO);
        assert_true(fs_exists(file));
    }
    for (int i = 0; i < 2; i++) assert_int_equal(fs_remove_output(by_mine, NULL), 0);
    assert_false(fs_exists(file));
    assert_true(fs_exists(mine));
    assert_int_equal(fs_remove_output(own, NULL), 0);
    assert_true(fs_exists(own)); /* a folder is no file */
}

/* A relative path, and links that begin anew at the root or in their own folder. */
static void ways(void **state) {
    (void)state;
    GP_AUTO_FREE char *a = at("a"), *b = at("a/b"), *other = at("other");
    assert_int_equal(mkdir(a, 0700) | mkdir(b, 0700) | mkdir(other, 0700), 0);
    link_to("../../other", "a/b/up");
    link_to(b, "to-b");
    GP_AUTO_FREE char *was = getcwd(NULL, 0);
    assert_int_equal(chdir(dir), 0);
    static const struct {
        const char *path, *want;
    } rows[] = {{"x", "x"},
                {"a/b/up/x", "a/b/../../other/x"},
                {"a//b/x", "a//b/x"},
                {"./a/b/up", "./a/b/../../other"},
                {"none/x/y", "none/x/y"},
                {"a/b/up/", "a/b/../../other/"},
                {"/", "/"},
                {"", ""}};
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *got = NULL;
        assert_int_equal(fs_follow(rows[i].path, &got, NULL), 0);
        assert_string_equal(got, rows[i].want);
    }
    GP_AUTO_FREE char *got = NULL, *want = xasprintf("%s/../../other/x", b);
    assert_int_equal(fs_follow("to-b/up/x", &got, NULL), 0);
    assert_string_equal(got, want);
    assert_int_equal(chdir(was), 0);
}

/* Who reads a pipe in a folder that everybody can write is not known. */
static void pipes_of_others(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    GP_AUTO_FREE char *shared = at("shared"), *path = at("shared/theirs"), *private = at("theirs");
    assert_int_equal(mkdir(shared, 0700) | chmod(shared, 01777), 0);
    assert_int_equal(mkfifo(path, 0666) | mkfifo(private, 0666), 0);
    assert_int_equal(chown(path, OTHER_USER, OTHER_USER) | chown(private, OTHER_USER, OTHER_USER), 0);
    link_to("shared/theirs", "mine");
    GP_AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), there = open(private, O_RDWR | O_CLOEXEC);
    char got[8] = "";
    refused("shared/theirs", "is a file, pipe or device of another user");
    struct gp_error err = {0};
    GP_AUTO_FREE char *mine = at("mine");
    assert_int_equal(fs_write_output(mine, "new", 3, 0600, &err), -GP_EIO);
    assert_int_equal(read(fd, got, 3), -1);
    assert_int_equal(fs_write_output(private, "one", 3, 0600, NULL), 0);
    assert_int_equal(read(there, got, 3), 3);
}

/* A folder of another user, below /tmp or anywhere: he puts links there as he likes, last or on the way. */
static void links_in_folders_of_others(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    GP_AUTO_FREE char *theirs = at("theirs"), *mine = at("mine"), *way = at("theirs/way");
    assert_int_equal(mkdir(theirs, 0755) | mkdir(mine, 0700), 0);
    put("mine/file", "old");
    link_to("../mine/file", "theirs/report");
    link_to("../mine", "theirs/way");
    link_to("../mine/file", "theirs/roots");
    link_to("theirs", "near");
    GP_AUTO_FREE char *report = at("theirs/report"), *log = at("theirs/log"), *file = at("mine/file");
    assert_int_equal(lchown(report, OTHER_USER, OTHER_USER) | lchown(way, OTHER_USER, OTHER_USER), 0);
    assert_int_equal(chown(theirs, OTHER_USER, OTHER_USER) | link(file, log), 0);
    refused("theirs/report", "theirs/report' is a link of another user");
    refused("theirs/way/file", "theirs/way' is a link of another user");
    refused("near/way/new", "theirs/way' is a link of another user");
    struct gp_error err = {0};
    int fd = -1;
    assert_int_equal(fs_open_output(report, O_CREAT | O_APPEND, 0600, &fd, NULL), -GP_EIO);
    assert_int_equal(fs_remove_output(report, NULL), -GP_EIO);
    assert_int_equal(fs_open_output(log, O_CREAT | O_APPEND, 0600, &fd, &err), -GP_EIO);
    assert_non_null(strstr(err.msg, "a file with a second name"));
    assert_int_equal(fd, -1);
    has("mine/file", "old");
    written("theirs/plain"); /* what is written there is not refused, but where a link leads it */
    written("theirs/roots");
    has("mine/file", "new");
}

/* In this user's folders and root's only one that leads nowhere is refused: what it would make was nobody's wish. */
static void links_of_others_elsewhere(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    put("target", "old");
    link_to("target", "theirs");
    link_to("not-there", "nowhere");
    GP_AUTO_FREE char *theirs = at("theirs"), *nowhere = at("nowhere");
    assert_int_equal(lchown(theirs, OTHER_USER, OTHER_USER) | lchown(nowhere, OTHER_USER, OTHER_USER), 0);
    written("theirs");
    has("target", "new");
    refused("nowhere", "is a link of another user");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_and_own_links, setup, teardown),
        cmocka_unit_test_setup_teardown(pipes, setup, teardown),
        cmocka_unit_test_setup_teardown(file_without_a_name, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(links_of_others, setup, teardown),
        cmocka_unit_test_setup_teardown(folders_of_others, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_that_is_put_there_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(opened_in_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_becomes_a_link_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(second_names, setup, teardown),
        cmocka_unit_test_setup_teardown(removed, setup, teardown),
        cmocka_unit_test_setup_teardown(ways, setup, teardown),
        cmocka_unit_test_setup_teardown(pipes_of_others, setup, teardown),
        cmocka_unit_test_setup_teardown(links_in_folders_of_others, setup, teardown),
        cmocka_unit_test_setup_teardown(links_of_others_elsewhere, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

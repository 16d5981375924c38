/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap.files, bootstrap.mounts and bootstrap.limits: what is accepted, and what is refused where. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "folder.h"
#include "spec_fixture.h"

#include <unistd.h>

static void files_and_limits_are_decoded(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\nbootstrap:\n  files:\n"
                                       "    - {from: Makefile, to: /etc/app/m, mode: 0600, owner: root:adm}\n"
                                       "    - {from: ./docs/, to: /home/x/docs}\n"
                                       "  limits: {memlock: 64GiB, nofile: 4096, hugepages: 8}\n");
    assert_int_equal(s->storage.files.len, 2);
    const struct spec_file *f = s->storage.files.items;
    GP_AUTO_FREE char *cwd = getcwd(NULL, 0);
    GP_AUTO_FREE char *makefile = fs_join(cwd, "Makefile"), *docs = fs_join(cwd, "docs");
    assert_string_equal(f[0].from, makefile);
    assert_string_equal(f[0].mode, "0600");
    assert_string_equal(f[0].owner, "root:adm");
    assert_string_equal(f[1].from, docs);
    assert_null(f[1].owner);
    assert_string_equal(s->storage.limits.memlock, "64GiB");
    assert_int_equal(s->storage.limits.nofile, 4096);
    assert_int_equal(s->storage.limits.hugepages, 8);
    /* the canonical form is a spec again, with the same hash */
    GP_AUTO_FREE char *text = spec_canonical(s);
    GP_AUTO_SPEC struct spec *again = good(text);
    assert_string_equal(s->hash, again->hash);
}

static void absent_keys_change_no_hash(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *without = good("name: a\n"), *empty = good("name: a\nbootstrap: {files: []}\n");
    GP_AUTO_SPEC struct spec *with = good("name: a\nbootstrap: {limits: auto}\n");
    assert_string_equal(without->hash, empty->hash);
    assert_string_not_equal(without->hash, with->hash);
    GP_AUTO_FREE char *text = spec_canonical(without);
    assert_null(strstr(text, "memlock"));
}

static void auto_limits(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = good("name: a\nbootstrap: {limits: auto}\n");
    GP_AUTO_SPEC struct spec *same = good("name: a\nbootstrap: {limits: {memlock: unlimited, nofile: 1048576}}\n");
    assert_string_equal(s->storage.limits.memlock, "unlimited");
    assert_int_equal(s->storage.limits.nofile, 1048576);
    assert_int_equal(s->storage.limits.hugepages, 0);
    assert_string_equal(s->hash, same->hash);
}

static void wrong_files(void **state) {
    (void)state;
#define IN "name: a\nbootstrap:\n  files:\n"
    bad_at(IN "    - {from: Makefile}\n", 4, 7, "needs 'to'");
    bad_at(IN "    - {from: not/there, to: /x}\n", 4, 14,
           "not/there': No such file or directory; 'from' is relative to the spec");
    bad_at(IN "    - {from: /dev/null, to: /x}\n", 4, 14, "is neither a file nor a folder");
    bad_at(IN "    - {from: Makefile, to: x}\n", 4, 28, "must be an absolute path");
    bad_at(IN "    - {from: Makefile, to: /x/}\n", 4, 28, "must be an absolute path");
    bad_at(IN "    - {from: Makefile, to: \"/x\\ny\"}\n", 4, 28, "must be an absolute path");
    bad_at(IN "    - {from: Makefile, to: /x/../y}\n", 4, 28, "has '.' or '..'");
    bad_at(IN "    - {from: Makefile, to: /x/.}\n", 4, 28, "has '.' or '..'");
    bad_at(IN "    - {from: Makefile, to: /x, mode: 4755}\n", 4, 38, "three octal digits");
    bad_at(IN "    - {from: Makefile, to: /x, mode: 0688}\n", 4, 38, "three octal digits");
    bad_at(IN "    - {from: Makefile, to: /x, owner: 'a b'}\n", 4, 39, "user or user:group");
    bad_at(IN "    - {from: Makefile, to: /x}\n    - {from: README.md, to: /x}\n", 5, 29, "go to '/x'");
    GP_AUTO_SPEC struct spec *s = good(IN "    - {from: Makefile, to: /x/..y/.z}\n");
    assert_string_equal(s->storage.files.items[0].to, "/x/..y/.z");
    bad_at(IN "    - {from: Makefile, to: /x, sha256: abc}\n", 4, 40, "64 hexadecimal digits");
    bad_at(IN "    - {from: Makefile, to: /x, sha256: "
              "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}\n",
           4, 40, "Makefile' has another content: its sum is ");
#undef IN
}

/* A file that changes here changes the spec's hash, and is named as what changed. */
static void content_is_part_of_the_spec(void **state) {
    (void)state;
    char folder[256];
    struct gp_error err = {0};
    assert_non_null(make_folder(folder, sizeof folder, "spec"));
    GP_AUTO_FREE char *path = fs_join(folder, "a");
    GP_AUTO_FREE char *text = xasprintf("name: a\nbootstrap: {files: [{from: %s, to: /a}]}\n", folder);
    assert_int_equal(fs_write_atomic(path, "one", 3, 0644, &err), 0);
    GP_AUTO_SPEC struct spec *one = good(text), *same = good(text);
    assert_string_equal(one->hash, same->hash);
    GP_AUTO_FREE char *old = spec_canonical(one);
    assert_int_equal(fs_write_atomic(path, "two", 3, 0644, &err), 0);
    GP_AUTO_SPEC struct spec *two = good(text);
    assert_string_not_equal(one->hash, two->hash);
    GP_AUTO_CHANGES struct spec_changes changes = {0};
    spec_changes_find(old, two, &changes);
    assert_int_equal(changes.list.len, 1);
    assert_non_null(strstr(changes.list.items[0].key, "bootstrap.files["));
    assert_int_equal(changes.list.items[0].effect, SPEC_REPEATED);
    /* its permissions count too, but where the spec names them */
    assert_int_equal(fs_write_atomic(path, "two", 3, 0755, &err), 0);
    GP_AUTO_SPEC struct spec *executable = good(text);
    assert_string_not_equal(two->hash, executable->hash);
    assert_int_equal(fs_remove_tree(folder, &err), 0);
}

static void wrong_limits(void **state) {
    (void)state;
    bad_at("name: a\nbootstrap: {limits: yes}\n", 2, 21, "'limits' must be auto or a map");
    bad_at("name: a\nbootstrap: {limits: {}}\n", 2, 21, "'limits' is empty");
    bad_at("name: a\nbootstrap: {limits: {memlock: 64}}\n", 2, 31, "unlimited or a size such as 64GiB");
    bad_at("name: a\nbootstrap: {limits: {nofile: 12}}\n", 2, 30, "from 1024 to");
    bad_at("name: a\nbootstrap: {limits: {hugepage: 12}}\n", 2, 22, "did you mean 'hugepages'?");
}

static void mounts_are_decoded(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s =
        good("name: a\nbootstrap:\n  mounts:\n"
             "    - {at: /scratch, nvme: auto, fs: xfs}\n"
             "    - {at: /data, volume: vol-0123456789abcdef0, mode: read}\n"
             "    - {at: /home/shared, nfs: '10.0.0.5:/export', options: 'hard,nconnect=8'}\n"
             "    - {at: /six, nfs: '[fd00::1]:/'}\n"
             "    - {at: /fsx, lustre: 'fs-1.fsx.eu-west-1.amazonaws.com@tcp:/abc'}\n"
             "    - {at: /s3, bucket: s3://data/train/2026, endpoint: 'http://10.0.0.1:9000', region: eu-west-1,\n"
             "       secrets: [AWS_ACCESS_KEY_ID]}\n"
             "    - {at: /gs, bucket: gs://data}\n"
             "secrets: [{env: AWS_ACCESS_KEY_ID, from: env:HOME}]\n");
    assert_int_equal(s->storage.mounts.len, 7);
    assert_int_equal(s->storage.mounts.items[0].mode, MOUNT_WRITE);
    assert_int_equal(s->storage.mounts.items[1].mode, MOUNT_READ);
    assert_string_equal(s->storage.mounts.items[5].secrets.v[0], "AWS_ACCESS_KEY_ID");
    GP_AUTO_FREE char *text = spec_canonical(s);
    GP_AUTO_SPEC struct spec *again = good(text);
    assert_string_equal(s->hash, again->hash);
}

static void wrong_mounts(void **state) {
    (void)state;
#define IN "name: a\nbootstrap:\n  mounts:\n"
    bad_at(IN "    - {at: /x}\n", 4, 7, "needs one of nvme, volume, nfs, lustre and bucket");
    bad_at(IN "    - {at: /x, nvme: auto, nfs: 'a:/b'}\n", 4, 33, "a mount has one source: remove 'nfs'");
    bad_at(IN "    - {at: /x, nvme: yes}\n", 4, 22, "'nvme' cannot be 'yes'");
    bad_at(IN "    - {at: /, nvme: auto}\n", 4, 12, "must be an absolute path");
    bad_at(IN "    - {at: /usr, nvme: auto}\n", 4, 12, "would hide the system's own files");
    bad_at(IN "    - {at: /x/.., nvme: auto}\n", 4, 12, "has '.' or '..'");
    bad_at(IN "    - {at: /x, nfs: server}\n", 4, 21, "must be server:/path");
    bad_at(IN "    - {at: /x, nfs: 'a b:/c'}\n", 4, 21, "must be server:/path");
    bad_at(IN "    - {at: /x, volume: ../sda}\n", 4, 24, "a device such as /dev/nvme1n1");
    bad_at(IN "    - {at: /x, bucket: data}\n", 4, 24, "s3://, gs:// or oss://");
    bad_at(IN "    - {at: /x, bucket: 's3://d|x'}\n", 4, 24, "s3://, gs:// or oss://");
    bad_at(IN "    - {at: /x, bucket: s3://d, region: eu-west-1}\n", 4, 24, "a bucket's name of 3 to 63 characters");
    bad_at(IN "    - {at: /x, bucket: oss://data}\n", 4, 24, "needs 'endpoint'");
    bad_at(IN "    - {at: /x, bucket: gs://data, endpoint: 'http://a'}\n", 4, 45, "only for s3:// and oss://");
    bad_at(IN "    - {at: /x, nvme: auto, endpoint: 'http://a'}\n", 4, 38, "'endpoint' is only for bucket");
    bad_at(IN "    - {at: /x, nfs: 'a:/b', fs: xfs}\n", 4, 33, "'fs' is only for nvme and volume");
    bad_at(IN "    - {at: /x, nfs: 'a:/b', options: 'a b'}\n", 4, 38, "options separated by commas");
    bad_at(IN "    - {at: /x, nfs: 'a:/b', mode: rw}\n", 4, 35, "'mode' cannot be 'rw'");
    bad_at(IN "    - {at: /x, nvme: auto}\n    - {at: /x, nfs: 'a:/b'}\n", 5, 12, "two mounts are at '/x'");
    bad_at(IN "    - {at: /x, nvme: auto}\n    - {at: /y, nvme: auto}\n", 5, 22, "one mount of nvme already");
    bad_at(IN "    - {at: /x, bucket: s3://data, secrets: [KEY]}\n", 4, 45, "'secrets' of the spec has no 'KEY'");
#undef IN
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_limits_are_decoded),
        cmocka_unit_test(absent_keys_change_no_hash),
        cmocka_unit_test(auto_limits),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(wrong_limits),
        cmocka_unit_test(mounts_are_decoded),
        cmocka_unit_test(wrong_mounts),
        cmocka_unit_test(content_is_part_of_the_spec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

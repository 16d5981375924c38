/* SPDX-License-Identifier: Apache-2.0 */
/* A folder per test, and a giver that sends whatever a test says to a taker. */
#ifndef GP_TESTS_TREE_LIAR_H
#define GP_TESTS_TREE_LIAR_H

#include "base/fs.h"
#include "folder.h"
#include "tree/take.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char *dir; /* of this test */

static inline char *path_of(const char *name) { return fs_join(dir, name); }

static inline void put(const char *name, const char *text) {
    GP_AUTO_FREE char *path = path_of(name);
    assert_int_equal(fs_write_atomic(path, text, strlen(text), 0644, NULL), 0);
}

static inline void make_dir(const char *name) {
    GP_AUTO_FREE char *path = path_of(name);
    assert_int_equal(fs_mkdirs(path, 0755, NULL), 0);
}

static inline bool there(const char *name) {
    GP_AUTO_FREE char *path = path_of(name);
    struct stat st;
    return lstat(path, &st) == 0;
}

static inline int setup(void **state) {
    (void)state;
    char name[256];
    dir = xstrdup(make_folder(name, sizeof name, "tree"));
    return dir == NULL;
}

static inline int teardown(void **state) {
    (void)state;
    int r = fs_remove_tree(dir, NULL);
    free(dir);
    return r;
}

struct liar {
    struct tree_side *t;
    struct tree_buf b;
};

static inline struct liar liar_of(const struct tree_take_opts *take, const struct tree_expect *expect, bool single) {
    struct liar l = {.t = tree_taker(take, expect)};
    tree_buf_add(&l.b, TREE_MAGIC, TREE_MAGIC_N);
    size_t at = frame_begin(&l.b, TREE_BEGIN);
    frame_u8(&l.b, single ? TREE_SINGLE : 0);
    frame_end(&l.b, at);
    return l;
}

static inline struct liar liar_open(const char *to) {
    GP_AUTO_FREE char *root = path_of(to);
    const struct tree_take_opts take = {.root = root, .inside = true, .mirror = true};
    const struct tree_expect any = tree_expect_any();
    return liar_of(&take, &any, false);
}

static inline void say_any(struct liar *l, const struct tree_entry *e) {
    size_t at = frame_begin(&l->b, TREE_LIST);
    entry_put(&l->b, e);
    frame_end(&l->b, at);
}

static inline void say_entry(struct liar *l, char type, const char *path, uint64_t size, const char *link) {
    struct tree_entry e = {.type = type, .mode = 0644, .size = size, .held = size, .path = (char *)(uintptr_t)path};
    e.link = (char *)(uintptr_t)link;
    say_any(l, &e);
}

static inline void say_listed(struct liar *l, uint32_t n) {
    size_t at = frame_begin(&l->b, TREE_LISTED);
    frame_u32(&l->b, n);
    frame_u8(&l->b, 0);
    frame_u64(&l->b, 0);
    frame_end(&l->b, at);
}

static inline void say_file(struct liar *l, uint32_t index, uint64_t offset) {
    size_t at = frame_begin(&l->b, TREE_FILE);
    frame_u32(&l->b, index);
    frame_u64(&l->b, offset);
    frame_end(&l->b, at);
}

static inline void say_data(struct liar *l, const char *text) {
    size_t at = frame_begin(&l->b, TREE_DATA);
    tree_buf_add(&l->b, text, strlen(text));
    frame_end(&l->b, at);
}

static inline void say_end(struct liar *l, const char *content) {
    struct tree_hash h;
    unsigned char hash[TREE_HASH];
    tree_hash_init(&h);
    tree_hash_add(&h, content, strlen(content));
    tree_hash_end(&h, hash);
    size_t at = frame_begin(&l->b, TREE_FILE_END);
    tree_buf_add(&l->b, hash, sizeof hash);
    frame_u8(&l->b, 0);
    frame_end(&l->b, at);
}

static inline int flush(struct liar *l, struct gp_error *err) {
    enum tree_state state = TREE_BUSY;
    int r = tree_feed(l->t, l->b.p + l->b.off, l->b.len - l->b.off, err);
    tree_buf_drop(&l->b, l->b.len - l->b.off);
    while (r == 0 && state == TREE_BUSY) r = tree_work(l->t, &state, err);
    return r;
}

static inline void liar_close(struct liar *l) {
    tree_side_free(l->t);
    tree_buf_clear(&l->b);
}

/* The taker refuses an answer that its request does not allow. */
static inline void refused(struct liar *l) {
    struct gp_error err = {0};
    assert_int_equal(flush(l, &err), -GP_EPROTO);
    liar_close(l);
}

#endif

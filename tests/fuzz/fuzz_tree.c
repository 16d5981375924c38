/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the other side of a transfer, and as a request to the agent. The first byte chooses the side: 'g' the
 * giver; 'n' the taker of gpuprov, which requested a path; 'l' that of a node, which knows the list; else that of an
 * agent. Nothing outside the root changes, whatever arrives. Where a path was requested, nothing is written in the root
 * but its last part, and nothing is writable for others. Where the list is another one, nothing is written. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "tests/unit/folder.h"
#include "tree/side.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t entries(const char *path) {
    size_t n = 0;
    DIR *d = opendir(path);
    if (d == NULL) abort();
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n;
}

/* Below the root, but for what was there, what was requested, and a transfer's own files. */
static void only_requested(const char *root, bool may) {
    struct tree_place place;
    struct tree_list list = {0};
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) abort();
    place_init(&place, fd);
    const struct walk_req req = {.place = &place};
    if (tree_walk(&req, &list, NULL) != 0) abort();
    for (size_t i = 0; i < list.all.len; i++) {
        const struct tree_entry *e = &list.all.items[i];
        bool requested = may && (str_eq(e->path, "model.pt") || str_starts(e->path, "model.pt/"));
        bool old = str_eq(e->path, "file") && e->type == 'f' && e->size == 7 && e->mode == 0600;
        if (!requested && !old) abort();
        if (e->type != 'l' && (e->mode & 022) != 0) abort();
    }
    tree_list_clear(&list);
    place_clear(&place);
}

static void drive(struct tree_side *s, const uint8_t *data, size_t size) {
    struct gp_error err = {0};
    enum tree_state state = TREE_BUSY;
    int r = 0;
    s->greeted = true;
    for (size_t at = 0; at < size && r == 0;) {
        size_t n = GP_MIN(size - at, (size_t)97);
        for (int i = 0; i < 8 && r == 0; i++) r = tree_work(s, &state, &err);
        if (r == 0) r = tree_feed(s, data + at, n, &err);
        at += n;
    }
    for (int i = 0; i < 64 && r == 0 && state != TREE_ENDED; i++) r = tree_work(s, &state, &err);
    if ((r != 0) != (err.code != GP_OK)) abort();
    tree_side_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char top[256];
    struct tree_request q = {0};
    size_t used = 0;
    if (tree_request_get(data, size, &q, &used, NULL) == 0 && used > size) abort();
    tree_request_clear(&q);
    if (size < 1 || make_folder(top, sizeof top, "fuzz-tree") == NULL) return 0;
    GP_AUTO_FREE char *root = fs_join(top, "a/root"), *out = fs_join(top, "a"), *file = fs_join(root, "file");
    if (fs_mkdirs(root, 0700, NULL) != 0 || fs_write_atomic(file, "content", 7, 0600, NULL) != 0) abort();
    int how = data[0] & 0x7f;
    bool mirror = (data[0] & 0x80) != 0;
    const struct tree_take_opts take = {.root = root, .inside = true, .mirror = mirror, .keep_name = true};
    const struct tree_give_opts give = {.root = root};
    const unsigned char hash[32] = {0};
    const struct tree_expect expect = how == 'n'   ? tree_expect_path("~/out/model.pt")
                                      : how == 'l' ? tree_expect_list(hash)
                                                   : tree_expect_any();
    umask(022);
    drive(how == 'g' ? tree_giver(&give) : tree_taker(&take, &expect), data + 1, size - 1);
    if (how == 'n' || how == 'l') only_requested(root, how == 'n');
    if (entries(top) != 3 || entries(out) != 3) abort(); /* ".", ".." and one folder each */
    if (fs_remove_tree(top, NULL) != 0) abort();
    return 0;
}

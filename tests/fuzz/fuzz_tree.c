/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the other side of a transfer, to the taker ('t' first) or to the giver ('g'), and as a request to the
 * agent: nothing outside the root changes, whatever arrives. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "tests/unit/folder.h"
#include "tree/side.h"

#include <dirent.h>
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
    const struct tree_take_opts take = {.root = root, .inside = true, .mirror = (data[0] & 0x80) != 0};
    const struct tree_give_opts give = {.root = root};
    drive((data[0] & 0x7f) == 'g' ? tree_giver(&give) : tree_taker(&take), data + 1, size - 1);
    if (entries(top) != 3 || entries(out) != 3) abort(); /* ".", ".." and one folder each */
    if (fs_remove_tree(top, NULL) != 0) abort();
    return 0;
}

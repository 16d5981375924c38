/* SPDX-License-Identifier: Apache-2.0 */
/* What was requested, and whether the answer is that: its kind, the name of a file, the list of a folder, and that it
 * fits on the disk here. */
#include "base/gp_base.h"

#include "tree/take.h"

#include "base/fs.h"

#define RULES_BYTES_MAX ((size_t)64 << 20)
#define SPARSE_MAX ((uint64_t)64 << 40) /* of a file: hashing so many holes takes half a minute */

struct tree_expect tree_expect_path(const char *path) {
    return (struct tree_expect){.asked = TREE_ASKED_PATH, .path = path};
}

struct tree_expect tree_expect_list(const unsigned char hash[32]) {
    struct tree_expect e = {.asked = TREE_ASKED_LIST};
    memcpy(e.list, hash, sizeof e.list);
    return e;
}

struct tree_expect tree_expect_any(void) {
    return (struct tree_expect){.asked = TREE_ASKED_ANY};
}

char *tree_last_part(const char *path) {
    size_t end = strlen(path), begin = 0;
    while (end > 0 && path[end - 1] == '/') end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';) begin--;
    char *part = xstrndup(path + begin, end - begin);
    if (part[0] != '\0' && !str_eq(part, ".") && !str_eq(part, "..") && !(begin == 0 && str_eq(part, "~"))) return part;
    free(part);
    return NULL;
}

const struct gp_cancel *taker_cancel(const struct taker *t) { return t->opts.cancel; }

static int not_requested(struct gp_error *err, const char *what, const char *requested) {
    return gp_fail(err, GP_EPROTO,
                   "it answered with %s where '%.150s' was requested, and nothing was written: look who changed its "
                   "agent, and run 'gpuprov bootstrap' to install it again",
                   what, requested);
}

int expect_kind(const struct taker *t, bool single, struct gp_error *err) {
    const struct tree_expect *e = &t->expect;
    bool folder_only = e->asked == TREE_ASKED_PATH && (t->name == NULL || str_ends(e->path, "/"));
    if (e->asked == TREE_ASKED_NOTHING) return side_nonsense(err, "an answer to no request");
    if (single && folder_only) return not_requested(err, "a file", e->path);
    if (single && e->asked == TREE_ASKED_LIST) return side_nonsense(err, "a file instead of the folder");
    return 0;
}

int expect_name(const struct taker *t, const char *name, struct gp_error *err) {
    if (t->expect.asked != TREE_ASKED_PATH || str_eq(name, t->name)) return 0;
    GP_AUTO_FREE char *what = xasprintf("the file '%.100s'", name);
    str_one_line(what);
    return not_requested(err, what, t->expect.path);
}

int expect_rules(struct taker *t, size_t more, struct gp_error *err) {
    if (t->expect.asked == TREE_ASKED_PATH) return side_nonsense(err, "ignore rules, which were not requested");
    t->rules_bytes += more;
    if (t->rules_bytes <= RULES_BYTES_MAX) return 0;
    return gp_fail(err, GP_EPROTO, "its ignore rules have more than %zu MiB", RULES_BYTES_MAX >> 20);
}

void taker_list_frame(struct taker *t, const struct tree_cursor *c) {
    if (t->expect.asked == TREE_ASKED_LIST && !t->listed) sha256_add(&t->sum, c->p - TREE_HEAD_N, c->n + TREE_HEAD_N);
}

int expect_list_end(const struct taker *t, struct gp_error *err) {
    unsigned char sum[32];
    if (t->expect.asked != TREE_ASKED_LIST) return 0;
    struct sha256 all = t->sum;
    sha256_end(&all, sum);
    return memcmp(sum, t->expect.list, sizeof sum) == 0 ? 0 : side_nonsense(err, "another list than gpuprov's");
}

bool expect_may_look(const struct taker *t) { return t->expect.asked != TREE_ASKED_LIST || t->listed; }

static int no_room(struct gp_error *err, const struct tree_entry *e, uint64_t needs, uint64_t free_bytes) {
    char need[24], left[24];
    bytes_format(need, sizeof need, needs);
    bytes_format(left, sizeof left, free_bytes);
    int r = gp_fail(err, GP_EIO,
                    "'%.200s' does not fit: it and the files before it need %s here, and %s are free; free some space "
                    "and repeat the command",
                    e->path, need, left);
    if (err != NULL) str_put(err->detail, sizeof err->detail, "DISK_FULL");
    return r;
}

/* Once: what is free in the file system of the root, before anything came. */
static void measure(struct taker *t) {
    struct stat st;
    t->measured = true;
    if (fstat(t->place.root, &st) == 0) t->device = st.st_dev;
    if (!fs_room(t->place.root, &t->room, &t->disk)) t->room = t->disk = UINT64_MAX;
}

int expect_fits(struct taker *t, const struct tree_entry *e, int dir, const struct stat *there, uint64_t offset,
                bool *ret_never, struct gp_error *err) {
    struct stat st;
    *ret_never = false;
    if (t->expect.asked != TREE_ASKED_PATH) return 0;
    if (!t->measured) measure(t);
    bool same = fstat(dir, &st) == 0 && st.st_dev == t->device; /* another one is mounted below the root */
    uint64_t left = t->room, disk = t->disk, before = same ? t->grows : 0;
    if (!same && !fs_room(dir, &left, &disk)) left = disk = UINT64_MAX;
    uint64_t needs = e->held - GP_MIN(e->held, offset);
    if (needs > left || before > left - needs) return no_room(err, e, before + needs, left);
    *ret_never = e->size > GP_MIN(disk, SPARSE_MAX);
    uint64_t old = there != NULL && S_ISREG(there->st_mode) ? (uint64_t)there->st_blocks * 512 : 0;
    if (same && !*ret_never) t->grows += needs - GP_MIN(needs, old);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the taker's work: modes of folders, removals, sync. */
#include "base/gp_base.h"

#include "tree/take.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int folder_modes(struct taker *t, struct gp_error *err) {
    for (size_t i = t->folders.len; i > 0; i--) { /* a folder after what is in it */
        const struct tree_entry *e = catalog_at(&t->list, t->folders.items[i - 1]);
        const char *name = "";
        tree_beat(&t->opts.beat);
        int dir = place_parent(&t->place, e->path, &name);
        GP_AUTO_FD int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fchmod(fd, e->mode) != 0) return side_io(err, dir < 0 ? -dir : errno, "set the mode of", e->path);
    }
    return 0;
}

/* --- removals --- */

/* The path or a folder above it is ignored by the giver's rules. */
static bool is_ignored(const struct taker *t, const char *path, bool is_dir) {
    GP_AUTO_FREE char *part = xstrdup(path);
    for (char *s = strchr(part, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        if (ignore_match(&t->rules, part, true)) return true;
        *s = '/';
    }
    return ignore_match(&t->rules, part, is_dir);
}

static int remove_one(struct tree_side *s, const char *path, bool is_dir, bool may_stay, struct gp_error *err) {
    const char *name = "";
    int dir = place_parent(&s->taker->place, path, &name);
    if (dir == -ENOENT) return 0;
    if (dir < 0) return side_io(err, -dir, "remove", path);
    if (unlinkat(dir, name, is_dir ? AT_REMOVEDIR : 0) == 0) {
        s->stats.removed++;
        if (is_dir) place_forget(&s->taker->place);
        return 0;
    }
    if (errno == ENOENT || (is_dir && may_stay && (errno == ENOTEMPTY || errno == EEXIST))) return 0;
    return side_io(err, errno, "remove", path);
}

/* Everything below the folder `below` ("": the root) that is not in the list and not ignored. */
static int remove_extra(struct tree_side *s, struct gp_error *err) {
    struct taker *t = s->taker;
    struct tree_list there = {0};
    struct walk_req req = {.place = &t->place, .beat = t->opts.beat, .cancel = t->opts.cancel};
    int r = tree_walk(&req, &there, err);
    for (size_t i = there.all.len; i > 0 && r == 0; i--) {
        tree_beat(&t->opts.beat);
        const struct tree_entry *e = &there.all.items[i - 1];
        if (!catalog_find(&t->list, e->path) && !is_ignored(t, e->path, e->type == 'd'))
            r = remove_one(s, e->path, e->type == 'd', true, err);
    }
    tree_list_clear(&there);
    return r;
}

int take_remove(struct tree_side *s, const char *path, struct gp_error *err) {
    struct taker *t = s->taker;
    const char *name = "";
    struct stat st;
    int dir = place_parent(&t->place, path, &name);
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return side_io(err, dir < 0 ? -dir : errno, "remove", path);
    if (!S_ISDIR(st.st_mode)) return remove_one(s, path, false, false, err);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return side_io(err, errno, "remove", path);
    struct tree_place own;
    struct tree_list there = {0};
    place_init(&own, fd);
    struct walk_req req = {.place = &own, .cancel = t->opts.cancel};
    int r = tree_walk(&req, &there, err);
    for (size_t i = there.all.len; i > 0 && r == 0; i--) {
        GP_AUTO_FREE char *full = xasprintf("%s/%s", path, there.all.items[i - 1].path);
        r = remove_one(s, full, there.all.items[i - 1].type == 'd', false, err);
    }
    tree_list_clear(&there);
    place_clear(&own);
    return r == 0 ? remove_one(s, path, true, false, err) : r;
}

int take_end(struct tree_side *s, struct gp_error *err) {
    struct taker *t = s->taker;
    int r = 0;
    if (t->opts.mirror && t->partial)
        tree_note(&s->stats.notes, t->root, "nothing was removed, because a folder of the source cannot be read");
    else if (t->opts.mirror && !t->single) r = remove_extra(s, err);
    if (r == 0) r = folder_modes(t, err);
    if (r == 0 && t->opts.durable && syncfs(t->place.root) != 0) r = side_io(err, errno, "sync", t->root);
    return r;
}

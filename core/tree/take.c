/* SPDX-License-Identifier: Apache-2.0 */
/* The taker: compares the giver's list with what is there, requests what differs, makes folders and links. Nothing the
 * giver sends leads out of the root: paths are plain, each folder on the way is opened without following a link, and
 * files are made beside their place and renamed. */
#include "base/gp_base.h"

#include "tree/take.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define WANT_BYTES ((size_t)16 << 10) /* of a frame, about */
#define STEPS_MAX 256                 /* entries in one call */

struct taker *taker_new(const struct tree_take_opts *opts, const struct tree_expect *expect) {
    struct taker *t = xcalloc(1, sizeof *t);
    t->opts = *opts;
    t->expect = *expect;
    t->root = xstrdup(opts->root);
    if (expect->asked == TREE_ASKED_PATH) {
        t->requested = xstrdup(expect->path);
        t->name = tree_last_part(expect->path);
        t->opts.inside = true;
        t->mask = fs_umask();
    }
    t->expect.path = t->requested;
    sha256_init(&t->sum);
    t->in.fd = t->old_fd = t->lock = -1;
    place_init(&t->place, -1);
    return t;
}

static void close_old(struct taker *t) {
    if (t->old_fd >= 0) close(t->old_fd);
    t->old_fd = -1;
}

void taker_free(struct taker *t) {
    if (t == NULL) return;
    take_file_close(t);
    close_old(t);
    take_unlock(t);
    place_clear(&t->place);
    catalog_clear(&t->list);
    vec_free(&t->folders);
    ignore_clear(&t->rules);
    free(t->requested);
    free(t->buf);
    free(t->single_name);
    free(t->root);
    free(t->name);
    free(t);
}

/* --- frames --- */

static int take_begin(struct taker *t, struct tree_cursor *c, struct gp_error *err) {
    unsigned flags = cursor_u8(c);
    if (!cursor_whole(c) || t->begun || flags > TREE_SINGLE) return side_nonsense(err, "a second begin");
    t->begun = true;
    t->single = flags == TREE_SINGLE;
    int r = expect_kind(t, t->single, err);
    return r != 0 || t->single ? r : take_root(t, NULL, err);
}

static int take_rules(struct taker *t, struct tree_cursor *c, struct gp_error *err) {
    GP_AUTO_FREE char *dir = cursor_text(c, TREE_PATH_MAX);
    size_t n = cursor_u32(c);
    const char *text = n <= TREE_IGNORE_MAX ? (const char *)cursor_raw(c, n) : NULL;
    if (!t->begun || text == NULL || !cursor_whole(c) || (dir[0] != '\0' && !tree_path_ok(dir)) ||
        t->rules.list.len > TREE_ENTRIES_MAX)
        return side_nonsense(err, "ignore rules");
    int r = expect_rules(t, n + strlen(dir), err);
    if (r != 0) return r;
    if (t->opts.mirror) ignore_add(&t->rules, dir, text, n);
    return 0;
}

static bool is_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return str_starts(slash != NULL ? slash + 1 : path, TREE_PART);
}

static int take_entry(struct tree_side *s, struct tree_entry *e, struct gp_error *err) {
    struct taker *t = s->taker;
    if (t->single) {
        bool first = t->list.all.len == 0 && e->type == 'f' && strchr(e->path, '/') == NULL;
        if (!first) return side_nonsense(err, "more than one file");
        int r = expect_name(t, e->path, err);
        if (r == 0) r = take_root(t, t->name != NULL ? t->name : e->path, err);
        if (r != 0) return r;
        free(e->path);
        e->path = xstrdup(t->single_name);
    }
    if (is_part(e->path)) return side_nonsense(err, "an entry");
    if (e->type != 'l') e->mode &= ~t->mask;
    int r = catalog_add(&t->list, e, err);
    s->stats.files = t->list.files;
    s->stats.bytes = t->list.bytes;
    return r;
}

static int take_list(struct tree_side *s, struct tree_cursor *c, struct gp_error *err) {
    struct taker *t = s->taker;
    if (!t->begun || t->listed || c->n == 0) return side_nonsense(err, "a list out of turn");
    while (c->n > 0) {
        struct tree_entry e = {0};
        int r = entry_get(c, &e) ? take_entry(s, &e, err) : side_nonsense(err, "an entry");
        tree_entry_clear(&e);
        if (r != 0) return r;
    }
    return 0;
}

static int take_listed(struct tree_side *s, struct tree_cursor *c, struct gp_error *err) {
    struct taker *t = s->taker;
    uint32_t n = cursor_u32(c);
    unsigned flags = cursor_u8(c);
    uint64_t left_out = cursor_u64(c);
    if (!cursor_whole(c) || !t->begun || t->listed || flags > TREE_PARTIAL || n != t->list.all.len ||
        (t->single && n != 1) || left_out > TREE_COUNT_MAX)
        return side_nonsense(err, "the end of a list");
    t->listed = true;
    t->partial = flags == TREE_PARTIAL;
    s->stats.left_out += left_out;
    return expect_list_end(t, err);
}

/* The wanted entry of a SAME or GONE. */
static int wanted(struct taker *t, struct tree_cursor *c, uint32_t *ret, struct gp_error *err) {
    *ret = cursor_u32(c);
    bool now = !c->bad && *ret < t->looked && t->list.all.items[*ret].state == ENTRY_WANTED &&
               (t->in.fd < 0 || t->in.index == *ret);
    return now ? 0 : side_nonsense(err, "an answer to no want");
}

static int take_same(struct taker *t, struct tree_cursor *c, struct gp_error *err) {
    uint32_t index = 0;
    const char *name = "";
    int r = wanted(t, c, &index, err);
    if (r != 0) return r;
    if (!cursor_whole(c) || t->in.fd >= 0) return side_nonsense(err, "an answer");
    const struct tree_entry *e = catalog_at(&t->list, index);
    int dir = place_parent(&t->place, e->path, &name);
    int meta = dir < 0 ? dir : take_file_meta(dir, name, -1, e);
    if (meta != 0) return side_io(err, -meta, "set time and mode of", e->path);
    t->list.all.items[index].state = ENTRY_OK;
    t->answered++;
    return 0;
}

static int take_gone(struct tree_side *s, struct tree_cursor *c, struct gp_error *err) {
    struct taker *t = s->taker;
    uint32_t index = 0;
    int r = wanted(t, c, &index, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *why = cursor_text(c, 1024);
    if (!cursor_whole(c)) return side_nonsense(err, "an answer");
    take_file_close(t);
    t->list.all.items[index].state = ENTRY_BAD;
    t->answered++;
    s->stats.left_out++;
    tree_note(&s->stats.notes, catalog_at(&t->list, index)->path, why);
    return 0;
}

int taker_frame(struct tree_side *s, enum tree_frame type, struct tree_cursor *c, struct gp_error *err) {
    struct taker *t = s->taker;
    switch (type) {
    case TREE_BEGIN: return take_begin(t, c, err);
    case TREE_RULES: return take_rules(t, c, err);
    case TREE_LIST: return take_list(s, c, err);
    case TREE_LISTED: return take_listed(s, c, err);
    case TREE_FILE: return take_file_begin(s, c, err);
    case TREE_DATA: return take_file_data(s, c->p, c->n, err);
    case TREE_HOLE: {
        uint64_t n = cursor_u64(c);
        return cursor_whole(c) ? take_file_hole(s, n, err) : side_nonsense(err, "a hole");
    }
    case TREE_FILE_END: return take_file_end(s, c, err);
    case TREE_SAME: return take_same(t, c, err);
    case TREE_GONE: return take_gone(s, c, err);
    case TREE_DONE:
        if (!cursor_whole(c) || !t->wanted || t->answered != t->asked || t->done) break;
        t->done = true;
        return 0;
    default: break;
    }
    return side_nonsense(err, "a frame out of turn");
}

/* --- wants --- */

static void flush_wants(struct tree_side *s) {
    if (s->taker->want_at != 0) frame_end(&s->out, s->taker->want_at);
    s->taker->want_at = 0;
}

static void looked(struct taker *t, enum entry_state state) { t->list.all.items[t->looked++].state = (uint8_t)state; }

static void want(struct tree_side *s, enum tree_how how, uint64_t offset, const struct tree_hash *h) {
    struct taker *t = s->taker;
    struct tree_buf *b = &s->out;
    unsigned char hash[TREE_HASH];
    if (t->want_at == 0) t->want_at = frame_begin(b, TREE_WANT);
    frame_u32(b, (uint32_t)t->looked);
    frame_u8(b, (uint8_t)how);
    if (how == TREE_RESUME) frame_u64(b, offset);
    if (h != NULL) {
        tree_hash_end(h, hash);
        tree_buf_add(b, hash, sizeof hash);
    }
    looked(t, ENTRY_WANTED);
    t->asked++;
    if (b->len - b->off - t->want_at > WANT_BYTES) flush_wants(s);
}

static int conflict(struct gp_error *err, const struct tree_entry *e, const char *there) {
    return gp_fail(err, GP_EIO, "'%.300s' is a %s there, and a %s here; rename or remove one of them", e->path, there,
                   e->type == 'd'   ? "folder"
                   : e->type == 'f' ? "file"
                                    : "link");
}

static const char *kind_of(const struct stat *st) {
    return S_ISDIR(st->st_mode)   ? "folder"
           : S_ISREG(st->st_mode) ? "file"
           : S_ISLNK(st->st_mode) ? "link"
                                  : "device or pipe";
}

static int look_folder(struct tree_side *s, const struct tree_entry *e, int dir, const char *name, bool there,
                       const struct stat *st, struct gp_error *err) {
    struct taker *t = s->taker;
    if (there && !S_ISDIR(st->st_mode)) {
        if (!t->opts.mirror) return conflict(err, e, kind_of(st));
        int r = take_remove(s, e->path, err);
        if (r != 0) return r;
        there = false;
    }
    if (!there && mkdirat(dir, name, 0700) != 0) return side_io(err, errno, "make the folder", e->path);
    if (there && (st->st_mode & 0700) != 0700 && fchmodat(dir, name, st->st_mode | 0700, 0) != 0)
        return side_io(err, errno, "write to", e->path);
    if (!there || (st->st_mode & 0777) != e->mode || (e->mode & 0700) != 0700) vec_push(&t->folders, t->looked);
    looked(t, ENTRY_OK);
    return 0;
}

static int look_link(struct tree_side *s, const struct tree_entry *e, int dir, const char *name, bool there,
                     const struct stat *st, struct gp_error *err) {
    struct taker *t = s->taker;
    char part[40];
    if (t->opts.inside && !tree_link_inside(e->path, e->link)) {
        flush_wants(s);
        side_left_out(s, e->path, "the link leads out of the folder");
        looked(t, ENTRY_BAD);
        return 0;
    }
    if (there && S_ISDIR(st->st_mode)) {
        if (!t->opts.mirror) return conflict(err, e, "folder");
        int r = take_remove(s, e->path, err);
        if (r != 0) return r;
    }
    GP_AUTO_FREE char *target = xcalloc(1, TREE_PATH_MAX + 2);
    bool same = there && S_ISLNK(st->st_mode) && readlinkat(dir, name, target, TREE_PATH_MAX + 1) > 0 &&
                str_eq(target, e->link);
    if (!same) {
        take_part_name(name, part);
        if (unlinkat(dir, part, 0) != 0 && errno != ENOENT) return side_io(err, errno, "write", e->path);
        if (symlinkat(e->link, dir, part) != 0 || renameat(dir, part, dir, name) != 0)
            return side_io(err, errno, "make the link", e->path);
    }
    looked(t, ENTRY_OK);
    return 0;
}

static void hash_old(struct taker *t, int fd, const struct stat *st, bool part, uint64_t end) {
    t->old_fd = fd;
    t->old_is_part = part;
    tree_hash_init(&t->hash);
    reader_init(&t->reader, fd, st, 0, end);
}

static bool same_time(const struct stat *st, const struct tree_entry *e) {
    return st->st_mtim.tv_sec == e->mtime_s && (uint32_t)st->st_mtim.tv_nsec == e->mtime_ns && !e->racy;
}

static void too_large(struct tree_side *s, const struct tree_entry *e) {
    flush_wants(s);
    side_left_out(s, e->path, "with its holes it is larger than the disk here");
    looked(s->taker, ENTRY_BAD);
}

/* A beginning that an earlier transfer left, else all of it. Only one beginning is offered: transfers are serial. */
static int look_part(struct tree_side *s, const struct tree_entry *e, int dir, const char *name,
                     const struct stat *there, struct gp_error *err) {
    struct taker *t = s->taker;
    struct stat st;
    bool never = false;
    int fd = e->size >= TREE_BLOCK && !t->beginning.offered ? take_part_open(dir, name, false, &st) : -ENOENT;
    if (fd == -EWOULDBLOCK)
        return gp_fail(err, GP_EBUSY, "another gpuprov copies '%.300s' now; repeat this command when it is done",
                       e->path);
    uint64_t offset = fd < 0 ? 0 : GP_MIN((uint64_t)st.st_size, e->size) / TREE_BLOCK * TREE_BLOCK;
    int r = expect_fits(t, e, dir, there, offset, &never, err);
    if (r != 0 || never) {
        if (fd >= 0) close(fd);
        if (never) too_large(s, e);
        return r;
    }
    if (offset > 0) {
        hash_old(t, fd, &st, true, offset);
        return 0;
    }
    if (fd >= 0) close(fd);
    want(s, TREE_WHOLE, 0, NULL);
    return 0;
}

static int look_file(struct tree_side *s, const struct tree_entry *e, int dir, const char *name, bool there,
                     const struct stat *st, struct gp_error *err) {
    struct taker *t = s->taker;
    if (there && S_ISDIR(st->st_mode)) {
        if (!t->opts.mirror) return conflict(err, e, "folder");
        int r = take_remove(s, e->path, err);
        if (r != 0) return r;
        there = false;
    }
    bool equal = there && S_ISREG(st->st_mode) && (uint64_t)st->st_size == e->size;
    if (equal && same_time(st, e) && !t->opts.by_hash) {
        int meta = (st->st_mode & 07777) == e->mode ? 0 : take_file_meta(dir, name, -1, e);
        if (meta != 0) return side_io(err, -meta, "set the mode of", e->path);
        looked(t, ENTRY_OK);
        return 0;
    }
    int fd = equal ? openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    if (fd >= 0) { /* else it cannot be read, and is replaced */
        hash_old(t, fd, st, false, e->size);
        return 0;
    }
    return look_part(s, e, dir, name, there ? st : NULL, err);
}

static int look_one(struct tree_side *s, struct gp_error *err) {
    struct taker *t = s->taker;
    const struct tree_entry *e = catalog_at(&t->list, t->looked);
    const char *name = "";
    struct stat st;
    tree_looked(s);
    int dir = place_parent(&t->place, e->path, &name);
    if (dir == -ENOENT) return side_nonsense(err, "an entry without its folder");
    if (dir == -ELOOP || dir == -ENOTDIR)
        return gp_fail(err, GP_EIO, "'%.300s' is below a link or a file there; remove that", e->path);
    if (dir < 0) return side_io(err, -dir, "write", e->path);
    bool there = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && errno != ENOENT) return side_io(err, errno, "write", e->path);
    if (e->type == 'd') return look_folder(s, e, dir, name, there, &st, err);
    if (e->type == 'l') return look_link(s, e, dir, name, there, &st, err);
    return look_file(s, e, dir, name, there, &st, err);
}

static int hash_some(struct tree_side *s, struct gp_error *err) {
    struct taker *t = s->taker;
    const struct tree_entry *e = catalog_at(&t->list, t->looked);
    uint64_t n = 0;
    bool hole = false;
    if (t->buf == NULL) t->buf = xmalloc(TREE_SLICE);
    int r = reader_next(&t->reader, t->buf, TREE_SLICE, &n, &hole);
    if (r != 0) return side_io(err, -r, "read", e->path);
    s->own.hashed += n;
    if (n > 0 && hole) tree_hash_zeros(&t->hash, n);
    else if (n > 0) tree_hash_add(&t->hash, t->buf, (size_t)n);
    if (n > 0) return 0;
    if (t->old_is_part && t->reader.at % TREE_BLOCK != 0) { /* it became shorter */
        want(s, TREE_WHOLE, 0, NULL);
    } else if (t->old_is_part) {
        t->beginning =
            (struct beginning){.offered = true, .index = (uint32_t)t->looked, .offset = t->reader.at, .hash = t->hash};
        want(s, TREE_RESUME, t->reader.at, &t->hash);
    } else {
        want(s, TREE_COMPARE, 0, &t->hash);
    }
    close_old(t);
    return 0;
}

int taker_work(struct tree_side *s, enum tree_state *ret, struct gp_error *err) {
    struct taker *t = s->taker;
    int r = 0;
    for (int i = 0; i < STEPS_MAX && t->looked < t->list.all.len && r == 0 && expect_may_look(t); i++) {
        if (s->out.len - s->out.off > TREE_OUT_HIGH) break;
        r = t->old_fd >= 0 ? hash_some(s, err) : look_one(s, err);
        if (t->old_fd >= 0) i += 7; /* a slice takes as long as several entries */
    }
    flush_wants(s);
    if (r != 0) return r;
    *ret = t->looked < t->list.all.len && expect_may_look(t) ? TREE_BUSY : TREE_WAITS;
    if (t->listed && !t->wanted && t->looked == t->list.all.len) {
        frame_end(&s->out, frame_begin(&s->out, TREE_WANTED));
        t->wanted = true;
    }
    if (!t->done) return 0;
    if ((r = take_end(s, err)) != 0) return r;
    take_unlock(t);
    size_t at = frame_begin(&s->out, TREE_RESULT);
    frame_u64(&s->out, s->stats.removed);
    frame_end(&s->out, at);
    s->ended = true;
    *ret = TREE_ENDED;
    return 0;
}

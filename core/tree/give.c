/* SPDX-License-Identifier: Apache-2.0 */
/* The giver: lists a folder, answers wants with file content. Reads only regular files below its root, and follows no
 * link there. */
#include "base/gp_base.h"

#include "tree/side.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define LIST_BYTES ((size_t)48 << 10) /* of a frame, about */
#define STEPS_MAX 64                  /* small files in one call */

struct want {
    uint32_t index;
    uint8_t how;
    uint64_t offset;
    unsigned char hash[TREE_HASH];
};
enum give_phase { GIVE_OPEN, GIVE_LIST, GIVE_FILES, GIVE_DONE };
enum file_phase { FILE_NONE, FILE_BEGINNING, FILE_WHOLE, FILE_SEND };
struct giver {
    struct tree_give_opts opts;
    char *root;
    int single; /* the one file that is given; -1: a folder */
    enum give_phase phase;
    struct tree_place place;
    struct tree_list list;
    bool *asked; /* per entry */
    size_t listed;
    VEC_OF(struct want) wants;
    size_t at; /* the want that is served */
    bool all_wanted;
    enum file_phase file;
    int fd;
    struct tree_reader reader;
    struct tree_hash hash;
    unsigned char *buf; /* TREE_SLICE bytes, for hashing */
};

struct giver *giver_new(const struct tree_give_opts *opts) {
    struct giver *g = xcalloc(1, sizeof *g);
    g->opts = *opts;
    g->root = xstrdup(opts->root);
    g->single = g->fd = -1;
    place_init(&g->place, -1);
    return g;
}

static void close_file(struct giver *g) {
    if (g->fd >= 0) close(g->fd);
    g->fd = -1;
    g->file = FILE_NONE;
}

void giver_free(struct giver *g) {
    if (g == NULL) return;
    close_file(g);
    if (g->single >= 0) close(g->single);
    place_clear(&g->place);
    tree_list_clear(&g->list);
    vec_free(&g->wants);
    free(g->asked);
    free(g->buf);
    free(g->root);
    free(g);
}

/* --- the list --- */

static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int open_root(struct giver *g, struct gp_error *err) {
    struct stat st;
    int fd = open(g->root, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return gp_fail(err, GP_ENOTFOUND, "there is no '%s'", g->root);
    if (fd < 0) return gp_fail_errno(err, GP_EUSAGE, errno, "could not read '%s'", g->root);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        place_init(&g->place, fd);
        struct walk_req req = {.place = &g->place,
                               .ignore = g->opts.ignore,
                               .omit = g->opts.omit,
                               .beat = g->opts.beat,
                               .cancel = g->opts.cancel};
        int r = tree_walk(&req, &g->list, err);
        return r == 0 || r == -GP_ECANCELLED ? r : gp_wrap(err, "'%s'", g->root);
    }
    struct tree_entry e = {0};
    g->single = fd;
    if (!S_ISREG(st.st_mode) || !tree_entry_of(&st, last_name(g->root), NULL, &e))
        return gp_fail(err, GP_EUSAGE, "'%s' is neither a file nor a folder", g->root);
    vec_push(&g->list.all, e);
    g->list.files = 1;
    g->list.bytes = e.size;
    return 0;
}

static int begin(struct tree_side *s, struct gp_error *err) {
    struct giver *g = s->giver;
    struct tree_buf *b = &s->out;
    int r = open_root(g, err);
    if (r != 0) return r;
    size_t at = frame_begin(b, TREE_BEGIN);
    frame_u8(b, g->single >= 0 ? TREE_SINGLE : 0);
    frame_end(b, at);
    if (g->opts.ignore) {
        at = frame_begin(b, TREE_RULES);
        frame_bytes(b, "", 0);
        frame_bytes(b, ".git\n", 5);
        frame_end(b, at);
    }
    for (size_t i = 0; i < g->list.rules.len; i++) {
        const struct ignore_rule *file = &g->list.rules.items[i];
        at = frame_begin(b, TREE_RULES);
        frame_bytes(b, file->dir, strlen(file->dir));
        frame_bytes(b, file->pattern, strlen(file->pattern));
        frame_end(b, at);
    }
    for (size_t i = 0; i < g->list.notes.n; i++) {
        at = frame_begin(b, TREE_NOTE);
        frame_u8(b, 0);
        frame_bytes(b, g->list.notes.v[i], strlen(g->list.notes.v[i]));
        frame_end(b, at);
        strv_add(&s->stats.notes, g->list.notes.v[i]);
    }
    s->stats.files = g->list.files;
    s->stats.bytes = g->list.bytes;
    s->stats.left_out += g->list.left_out;
    g->asked = xcalloc(g->list.all.len + 1, sizeof *g->asked);
    g->phase = GIVE_LIST;
    return 0;
}

static void list_some(struct tree_side *s) {
    struct giver *g = s->giver;
    struct tree_buf *b = &s->out;
    while (g->listed < g->list.all.len && b->len - b->off < TREE_OUT_HIGH) {
        size_t at = frame_begin(b, TREE_LIST), from = b->len;
        while (g->listed < g->list.all.len && b->len - from < LIST_BYTES) entry_put(b, &g->list.all.items[g->listed++]);
        frame_end(b, at);
    }
    if (g->listed < g->list.all.len) return;
    size_t at = frame_begin(b, TREE_LISTED);
    frame_u32(b, (uint32_t)g->list.all.len);
    frame_u8(b, g->list.partial ? TREE_PARTIAL : 0);
    frame_u64(b, g->list.left_out);
    frame_end(b, at);
    g->phase = GIVE_FILES;
}

/* --- wants --- */

static int take_wants(struct giver *g, struct tree_cursor *c, struct gp_error *err) {
    if (g->phase < GIVE_LIST || g->all_wanted) return side_nonsense(err, "a want out of turn");
    while (c->n > 0) {
        struct want w = {.index = cursor_u32(c), .how = cursor_u8(c)};
        if (w.how == TREE_RESUME) w.offset = cursor_u64(c);
        const unsigned char *hash = w.how == TREE_WHOLE ? NULL : cursor_raw(c, TREE_HASH);
        if (c->bad || w.how >= TREE_HOW_END) return side_nonsense(err, "a want");
        if (w.index >= g->listed || g->list.all.items[w.index].type != 'f' || g->asked[w.index])
            return side_nonsense(err, "a want of what is no listed file, or twice");
        if (w.how == TREE_RESUME &&
            (w.offset == 0 || w.offset % TREE_BLOCK != 0 || w.offset > g->list.all.items[w.index].size))
            return side_nonsense(err, "an offset");
        if (hash != NULL) memcpy(w.hash, hash, sizeof w.hash);
        g->asked[w.index] = true;
        vec_push(&g->wants, w);
    }
    return 0;
}

int giver_frame(struct tree_side *s, enum tree_frame type, struct tree_cursor *c, struct gp_error *err) {
    struct giver *g = s->giver;
    if (type == TREE_WANT) return take_wants(g, c, err);
    if (type == TREE_WANTED && cursor_whole(c) && g->phase >= GIVE_FILES && !g->all_wanted) {
        g->all_wanted = true;
        return 0;
    }
    if (type == TREE_RESULT && g->phase == GIVE_DONE) {
        s->stats.removed = cursor_u64(c);
        if (!cursor_whole(c) || s->stats.removed > TREE_COUNT_MAX) return side_nonsense(err, "a result");
        s->ended = true;
        return 0;
    }
    return side_nonsense(err, "a frame out of turn");
}

/* --- content --- */

static struct tree_entry *entry_of(const struct giver *g) { return &g->list.all.items[g->wants.items[g->at].index]; }

static void gone_because(struct tree_side *s, const char *why) {
    struct giver *g = s->giver;
    struct tree_buf *b = &s->out;
    size_t at = frame_begin(b, TREE_GONE);
    frame_u32(b, g->wants.items[g->at].index);
    frame_bytes(b, why, strlen(why));
    frame_end(b, at);
    s->stats.left_out++;
    tree_note(&s->stats.notes, entry_of(g)->path, why);
    close_file(g);
    g->at++;
}

static void gone(struct tree_side *s, int errnum) {
    char text[128];
    gone_because(s, strerror_r(errnum, text, sizeof text));
}

/* Below /proc: a file of 0 bytes that has some. Their number is not known before they are read, and each read may give
 * others. */
static bool hides_content(int fd) {
    char byte = 0;
    struct stat st;
    return read(fd, &byte, 1) > 0 && fstat(fd, &st) == 0 && st.st_size == 0;
}

static void send_head(struct tree_side *s, uint64_t offset) {
    struct giver *g = s->giver;
    size_t at = frame_begin(&s->out, TREE_FILE);
    frame_u32(&s->out, g->wants.items[g->at].index);
    frame_u64(&s->out, offset);
    frame_end(&s->out, at);
    g->file = FILE_SEND;
}

static void send_same(struct tree_side *s) {
    struct giver *g = s->giver;
    size_t at = frame_begin(&s->out, TREE_SAME);
    frame_u32(&s->out, g->wants.items[g->at].index);
    frame_end(&s->out, at);
    close_file(g);
    g->at++;
}

static void open_file(struct tree_side *s) {
    struct giver *g = s->giver;
    const struct want *w = &g->wants.items[g->at];
    const struct tree_entry *e = entry_of(g);
    const char *name = "";
    struct stat st;
    int dir = g->single >= 0 ? 0 : place_parent(&g->place, e->path, &name);
    if (g->single >= 0) g->fd = fcntl(g->single, F_DUPFD_CLOEXEC, 0);
    else if (dir >= 0) g->fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (dir < 0 || g->fd < 0 || fstat(g->fd, &st) != 0) {
        gone(s, dir < 0 ? -dir : errno);
        return;
    }
    if (!S_ISREG(st.st_mode)) {
        gone_because(s, "it is no regular file any more");
        return;
    }
    if (e->size == 0 && st.st_size == 0 && hides_content(g->fd)) {
        gone_because(s, "it has content, but its size is reported as 0");
        return;
    }
    tree_hash_init(&g->hash);
    reader_init(&g->reader, g->fd, &st, 0, w->how == TREE_RESUME ? w->offset : e->size);
    unsigned char known[TREE_HASH];
    if (w->how == TREE_COMPARE && sums_find(g->opts.sums, w->index, e, known)) {
        if (memcmp(known, w->hash, sizeof known) == 0) send_same(s);
        else send_head(s, 0);
        return;
    }
    if (w->how == TREE_WHOLE) send_head(s, 0);
    else g->file = w->how == TREE_RESUME ? FILE_BEGINNING : FILE_WHOLE;
}

/* Compares what the taker has. */
static void hash_some(struct tree_side *s) {
    struct giver *g = s->giver;
    const struct want *w = &g->wants.items[g->at];
    uint64_t n = 0;
    bool hole = false;
    if (g->buf == NULL) g->buf = xmalloc(TREE_SLICE);
    int e = reader_next(&g->reader, g->buf, TREE_SLICE, &n, &hole);
    if (e != 0) {
        gone(s, -e);
        return;
    }
    s->own.hashed += n;
    if (n > 0 && hole) tree_hash_zeros(&g->hash, n);
    else if (n > 0) tree_hash_add(&g->hash, g->buf, (size_t)n);
    if (n > 0) return;
    unsigned char hash[TREE_HASH];
    tree_hash_end(&g->hash, hash);
    bool same = memcmp(hash, w->hash, sizeof hash) == 0;
    if (g->file == FILE_WHOLE) sums_keep(g->opts.sums, w->index, entry_of(g), hash);
    if (same && g->file == FILE_WHOLE) {
        send_same(s);
        return;
    }
    if (!same) {
        tree_hash_init(&g->hash);
        g->reader.at = g->reader.data_until = 0;
    }
    g->reader.end = entry_of(g)->size;
    send_head(s, same ? w->offset : 0);
}

static void send_end(struct tree_side *s) {
    struct giver *g = s->giver;
    const struct tree_entry *e = entry_of(g);
    unsigned char hash[TREE_HASH];
    struct stat st;
    bool changed = fstat(g->fd, &st) != 0 || g->reader.at != e->size || (uint64_t)st.st_size != e->size ||
                   st.st_mtim.tv_sec != e->mtime_s || (uint32_t)st.st_mtim.tv_nsec != e->mtime_ns;
    tree_hash_end(&g->hash, hash);
    size_t at = frame_begin(&s->out, TREE_FILE_END);
    tree_buf_add(&s->out, hash, sizeof hash);
    frame_u8(&s->out, changed);
    frame_end(&s->out, at);
    if (changed) tree_note(&s->stats.notes, e->path, "it changed while it was read");
    else sums_keep(g->opts.sums, g->wants.items[g->at].index, e, hash);
    s->stats.files_sent++;
    close_file(g);
    g->at++;
}

static void send_some(struct tree_side *s) {
    struct giver *g = s->giver;
    struct tree_buf *b = &s->out;
    uint64_t n = 0;
    bool hole = false;
    size_t at = frame_begin(b, TREE_DATA);
    unsigned char *room = tree_buf_room(b, TREE_SLICE);
    int e = reader_next(&g->reader, room, TREE_SLICE, &n, &hole);
    if (e == 0 && n > 0 && !hole) {
        tree_hash_add(&g->hash, room, (size_t)n);
        b->len += (size_t)n;
        frame_end(b, at);
        s->stats.bytes_sent += n;
        return;
    }
    b->len -= TREE_HEAD_N; /* no such frame */
    if (e != 0) {
        gone(s, -e);
    } else if (n == 0) {
        send_end(s);
    } else {
        tree_hash_zeros(&g->hash, n);
        at = frame_begin(b, TREE_HOLE);
        frame_u64(b, n);
        frame_end(b, at);
    }
}

static bool serve_one(struct tree_side *s) {
    struct giver *g = s->giver;
    if (g->at == g->wants.len) return false;
    switch (g->file) {
    case FILE_NONE: open_file(s); break;
    case FILE_BEGINNING:
    case FILE_WHOLE: hash_some(s); break;
    case FILE_SEND: send_some(s); break;
    }
    return true;
}

int giver_work(struct tree_side *s, enum tree_state *ret, struct gp_error *err) {
    struct giver *g = s->giver;
    *ret = TREE_BUSY;
    if (g->phase == GIVE_OPEN) return begin(s, err);
    if (g->phase == GIVE_LIST) list_some(s);
    for (int i = 0; g->phase == GIVE_FILES && i < STEPS_MAX && s->out.len - s->out.off < TREE_OUT_HIGH; i++)
        if (!serve_one(s)) break;
    if (g->phase == GIVE_FILES && g->all_wanted && g->at == g->wants.len) {
        frame_end(&s->out, frame_begin(&s->out, TREE_DONE));
        g->phase = GIVE_DONE;
    }
    if (g->phase == GIVE_DONE || (g->phase == GIVE_FILES && g->at == g->wants.len)) *ret = TREE_WAITS;
    return 0;
}

/* --- a list from elsewhere --- */

static bool preset_frame(struct giver *g, enum tree_frame type, struct tree_cursor *c) {
    if (type == TREE_BEGIN) return cursor_u8(c) == 0 && cursor_whole(c);
    if (type == TREE_RULES || type == TREE_NOTE) return true; /* for the taker */
    if (type == TREE_LISTED) return cursor_u32(c) == g->list.all.len;
    if (type != TREE_LIST) return false;
    while (c->n > 0) {
        struct tree_entry e = {0};
        bool ok = entry_get(c, &e) && g->list.all.len < TREE_ENTRIES_MAX &&
                  (g->list.all.len == 0 || tree_path_compare(g->list.all.items[g->list.all.len - 1].path, e.path) < 0);
        if (!ok) {
            tree_entry_clear(&e);
            return false;
        }
        vec_push(&g->list.all, e);
    }
    return true;
}

int giver_preset(struct giver *g, const void *list, size_t n, struct gp_error *err) {
    struct tree_buf b = {.p = (unsigned char *)(uintptr_t)list, .len = n, .cap = n}; /* only read */
    enum tree_frame type = TREE_PING;
    struct tree_cursor c = {0};
    size_t used = 0;
    while (b.off < b.len && frame_next(&b, &type, &c, &used, NULL)) {
        if (!preset_frame(g, type, &c)) return side_nonsense(err, "a list");
        b.off += used;
    }
    if (b.off != n || type != TREE_LISTED) return side_nonsense(err, "a list without its end");
    int fd = open(g->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return gp_fail_errno(err, GP_EUSAGE, errno, "could not read the folder '%s'", g->root);
    place_init(&g->place, fd);
    g->asked = xcalloc(g->list.all.len + 1, sizeof *g->asked);
    g->listed = g->list.all.len;
    g->phase = GIVE_FILES;
    return 0;
}

const struct gp_cancel *giver_cancel(const struct giver *g) { return g->opts.cancel; }
bool giver_lists(const struct giver *g) { return g->phase < GIVE_FILES; }
bool giver_single(const struct giver *g) { return g->single >= 0; }

/* SPDX-License-Identifier: Apache-2.0 */
/* One side of a transfer: its buffers and the frames that both roles know. */
#include "base/gp_base.h"

#include "tree/side.h"

#include <errno.h>

#define TEXT_MAX ((size_t)8 << 10)
#define LOOKS_MAX 4 /* times that a side looks at an entry: lists it, compares it, removes others, sets its mode */

void tree_stats_clear(struct tree_stats *s) {
    strv_clear(&s->notes);
    *s = (struct tree_stats){0};
}

struct tree_side *tree_giver(const struct tree_give_opts *opts) {
    struct tree_side *s = xcalloc(1, sizeof *s);
    s->giver = giver_new(opts);
    return s;
}

struct tree_side *tree_taker(const struct tree_take_opts *opts, const struct tree_expect *expect) {
    struct tree_side *s = xcalloc(1, sizeof *s);
    s->taker = taker_new(opts, expect);
    return s;
}

void tree_side_free(struct tree_side *s) {
    if (s == NULL) return;
    giver_free(s->giver);
    taker_free(s->taker);
    tree_buf_clear(&s->in);
    tree_buf_clear(&s->out);
    tree_stats_clear(&s->stats);
    free(s);
}

const struct tree_stats *tree_side_stats(const struct tree_side *s) { return &s->stats; }
bool tree_side_remote(const struct tree_side *s) { return s->remote; }

const void *tree_out(const struct tree_side *s, size_t *ret_n) {
    *ret_n = s->out.len - s->out.off;
    return s->out.p != NULL ? s->out.p + s->out.off : NULL;
}

void tree_sent(struct tree_side *s, size_t n) {
    s->moved += n;
    tree_buf_drop(&s->out, n);
}

int tree_work(struct tree_side *s, enum tree_state *ret, struct gp_error *err) {
    *ret = TREE_ENDED;
    if (s->ended) return 0;
    return s->giver != NULL ? giver_work(s, ret, err) : taker_work(s, ret, err);
}

/* --- frames of both --- */

int side_nonsense(struct gp_error *err, const char *what) {
    return gp_fail(err, GP_EPROTO, "the other side of the transfer sent nonsense: %s", what);
}

int side_io(struct gp_error *err, int errnum, const char *what, const char *path) {
    char text[128];
    bool full = errnum == ENOSPC || errnum == EDQUOT;
    int r = full ? gp_fail(err, GP_EIO,
                           "could not %s '%.200s': %s; free some space and repeat the command: it continues where it "
                           "stopped",
                           what, path, strerror_r(errnum, text, sizeof text))
                 : gp_fail_errno(err, GP_EIO, errnum, "could not %s '%.200s'", what, path);
    if (full && err != NULL) str_put(err->detail, sizeof err->detail, "DISK_FULL");
    return r;
}

void tree_ping(struct tree_side *s) {
    size_t at = frame_begin(&s->out, TREE_PING);
    frame_u64(&s->out, s->own.entries);
    frame_u64(&s->out, s->own.hashed);
    frame_end(&s->out, at);
}

void tree_looked(struct tree_side *s) { s->own.entries++; }

void tree_fail(struct tree_side *s, const struct gp_error *why) {
    size_t at = frame_begin(&s->out, TREE_FAIL);
    frame_u8(&s->out, (uint8_t)why->code);
    frame_bytes(&s->out, why->detail, strlen(why->detail));
    frame_bytes(&s->out, why->msg, strlen(why->msg));
    frame_end(&s->out, at);
}

void side_left_out(struct tree_side *s, const char *path, const char *why) {
    struct strv one = {0};
    s->stats.left_out++;
    tree_note(&s->stats.notes, path, why);
    tree_note(&one, path, why);
    size_t at = frame_begin(&s->out, TREE_NOTE);
    frame_u8(&s->out, 1);
    frame_bytes(&s->out, one.v[0], strlen(one.v[0]));
    frame_end(&s->out, at);
    strv_clear(&one);
}

static int take_note(struct tree_side *s, struct tree_cursor *c, struct gp_error *err) {
    unsigned counts = cursor_u8(c);
    GP_AUTO_FREE char *text = cursor_text(c, TEXT_MAX);
    if (!cursor_whole(c) || counts > 1) return side_nonsense(err, "a note");
    str_one_line(text);
    s->stats.left_out += counts;
    if (s->stats.notes.n < 20) strv_add(&s->stats.notes, text);
    return 0;
}

int side_fail(struct tree_cursor *c, struct gp_error *err) {
    unsigned code = cursor_u8(c);
    GP_AUTO_FREE char *detail = cursor_text(c, sizeof err->detail - 1);
    GP_AUTO_FREE char *text = cursor_text(c, TEXT_MAX);
    if (!cursor_whole(c)) return side_nonsense(err, "a failure");
    bool known = code == GP_EIO || code == GP_EUSAGE || code == GP_ENOTFOUND || code == GP_EBUSY || code == GP_EPROTO;
    int r = gp_fail(err, known ? (enum gp_code)code : GP_EIO, "%s", text);
    if (err != NULL && str_eq(detail, "DISK_FULL")) str_put(err->detail, sizeof err->detail, detail);
    return r;
}

static int take_ping(struct tree_side *s, struct tree_cursor *c, struct gp_error *err) {
    uint64_t entries = cursor_u64(c), hashed = cursor_u64(c);
    if (!cursor_whole(c)) return side_nonsense(err, "a ping");
    s->theirs.entries = GP_MAX(s->theirs.entries, entries);
    s->theirs.hashed = GP_MAX(s->theirs.hashed, hashed);
    return 0;
}

/* Each of these is a step of the transfer, whose number the list limits; the others may come without end. */
static bool is_progress(unsigned type) {
    return type == TREE_LIST || type == TREE_WANT || type == TREE_FILE || type == TREE_DATA || type == TREE_HOLE ||
           type == TREE_FILE_END || type == TREE_SAME || type == TREE_GONE;
}

struct tree_work tree_side_work(const struct tree_side *s) {
    size_t part = s->greeted ? s->in.len - s->in.off : 0;
    /* As a taker this side compares first, and asks about no more than that. As a giver it knows its own files. */
    uint64_t most = s->taker != NULL ? s->own.hashed : s->stats.bytes;
    return (struct tree_work){.bytes = s->moved + (part > 0 && is_progress(s->in.p[s->in.off]) ? part : 0),
                              .entries = GP_MIN(s->theirs.entries, (uint64_t)LOOKS_MAX * TREE_ENTRIES_MAX),
                              .hashed = GP_MIN(s->theirs.hashed, most)};
}

static int take_frame(struct tree_side *s, enum tree_frame type, struct tree_cursor *c, struct gp_error *err) {
    if (type == TREE_PING) return take_ping(s, c, err);
    if (s->taker != NULL && (type <= TREE_LISTED || type == TREE_NOTE)) taker_list_frame(s->taker, c);
    if (type == TREE_NOTE) return take_note(s, c, err);
    if (type == TREE_FAIL) {
        s->remote = true;
        return side_fail(c, err);
    }
    return s->giver != NULL ? giver_frame(s, type, c, err) : taker_frame(s, type, c, err);
}

int tree_feed(struct tree_side *s, const void *p, size_t n, struct gp_error *err) {
    tree_buf_add(&s->in, p, n);
    if (!s->greeted) {
        int r = frame_greeting(&s->in, &s->greeted, err);
        if (r != 0 || !s->greeted) return r;
    }
    enum tree_frame type = TREE_PING;
    struct tree_cursor c = {0};
    struct gp_error why = {0};
    size_t used = 0;
    const struct gp_cancel *cancel = s->giver != NULL ? giver_cancel(s->giver) : taker_cancel(s->taker);
    while (frame_next(&s->in, &type, &c, &used, &why)) {
        /* a few bytes may be much work: thousands of holes of 1 GiB */
        if (gp_cancelled(cancel)) return gp_fail(err, GP_ECANCELLED, "cancelled");
        int r = take_frame(s, type, &c, err);
        if (r != 0) return r;
        s->moved += is_progress(type) ? used : 0;
        tree_buf_drop(&s->in, used);
    }
    if (why.code != GP_OK && err != NULL) *err = why;
    return -(int)why.code;
}

/* --- lists that go elsewhere --- */

int tree_list_bytes(const struct tree_give_opts *opts, void **ret, size_t *ret_n, uint64_t *ret_size, bool *ret_folder,
                    struct gp_error *err) {
    struct tree_side *s = tree_giver(opts);
    struct tree_buf all = {0};
    int r = 0;
    while (r == 0 && giver_lists(s->giver)) {
        enum tree_state state = TREE_BUSY;
        size_t n = 0;
        r = tree_work(s, &state, err);
        const void *p = tree_out(s, &n);
        tree_buf_add(&all, p, n);
        tree_sent(s, n);
    }
    *ret_folder = !giver_single(s->giver);
    *ret_size = s->stats.bytes;
    tree_side_free(s);
    if (r != 0) {
        tree_buf_clear(&all);
        return r;
    }
    *ret = all.p;
    *ret_n = all.len;
    return 0;
}

int tree_list_scan(const void *p, size_t n, size_t *at, bool *ret_whole, struct gp_error *err) {
    struct tree_buf b = {.p = (unsigned char *)(uintptr_t)p, .off = *at, .len = n, .cap = n}; /* only read */
    enum tree_frame type = TREE_PING;
    struct tree_cursor c = {0};
    struct gp_error why = {0};
    size_t used = 0;
    *ret_whole = false;
    while (!*ret_whole && frame_next(&b, &type, &c, &used, &why)) {
        b.off += used;
        *ret_whole = type == TREE_LISTED;
    }
    *at = b.off;
    if (why.code != GP_OK && err != NULL) *err = why;
    return -(int)why.code;
}

void tree_list_hash(const void *list, size_t n, unsigned char ret[32]) {
    struct sha256 sum;
    sha256_init(&sum);
    sha256_add(&sum, list, n);
    sha256_end(&sum, ret);
}

int tree_giver_listed(const char *root, const void *list, size_t n, struct tree_side **ret, struct gp_error *err) {
    const struct tree_give_opts opts = {.root = root};
    struct tree_side *s = tree_giver(&opts);
    int r = giver_preset(s->giver, list, n, err);
    if (r != 0) {
        tree_side_free(s);
        return r;
    }
    tree_side_greet(s);
    tree_side_expect(s);
    tree_buf_add(&s->out, list, n);
    *ret = s;
    return 0;
}

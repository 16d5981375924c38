/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and strictly decodes the frames of a transfer; frame.h has their form. Pure; any thread. */
#include "base/gp_base.h"

#include "tree/frame.h"

#define NOISE_MAX ((size_t)64 << 10) /* printed by a login shell before the stream */

void tree_buf_clear(struct tree_buf *b) {
    free(b->p);
    *b = (struct tree_buf){0};
}

unsigned char *tree_buf_room(struct tree_buf *b, size_t n) {
    if (b->off > 0 && b->off == b->len) b->off = b->len = 0;
    if (b->off > b->cap / 2) { /* moved only when at least half is free, so each byte moves once on average */
        memmove(b->p, b->p + b->off, b->len - b->off);
        b->len -= b->off;
        b->off = 0;
    }
    if (b->len + n > b->cap) {
        b->cap = GP_MAX(b->cap * 2, b->len + n);
        b->p = xrealloc(b->p, b->cap);
    }
    return b->p + b->len;
}

void tree_buf_add(struct tree_buf *b, const void *p, size_t n) {
    if (n == 0) return;
    memcpy(tree_buf_room(b, n), p, n);
    b->len += n;
}

void tree_buf_drop(struct tree_buf *b, size_t n) {
    b->off += n;
    if (b->off == b->len) b->off = b->len = 0;
}

/* --- frames out --- */

static void put_le(unsigned char *p, uint64_t v, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static void frame_le(struct tree_buf *b, uint64_t v, size_t n) {
    put_le(tree_buf_room(b, n), v, n);
    b->len += n;
}

void frame_u8(struct tree_buf *b, uint8_t v) { frame_le(b, v, 1); }
void frame_u32(struct tree_buf *b, uint32_t v) { frame_le(b, v, 4); }
void frame_u64(struct tree_buf *b, uint64_t v) { frame_le(b, v, 8); }

void frame_bytes(struct tree_buf *b, const void *p, size_t n) {
    frame_u32(b, (uint32_t)n);
    tree_buf_add(b, p, n);
}

size_t frame_begin(struct tree_buf *b, enum tree_frame type) {
    frame_u8(b, (uint8_t)type);
    frame_u32(b, 0);
    return b->len - b->off; /* from the front: a later tree_buf_room may move the bytes */
}

void frame_end(struct tree_buf *b, size_t at) {
    size_t begun = b->off + at;
    put_le(b->p + begun - 4, b->len - begun, 4);
}

/* --- frames in --- */

const unsigned char *cursor_raw(struct tree_cursor *c, size_t n) {
    if (c->bad || n > c->n) {
        c->bad = true;
        return NULL;
    }
    const unsigned char *p = c->p;
    c->p += n;
    c->n -= n;
    return p;
}

static uint64_t cursor_le(struct tree_cursor *c, size_t n) {
    const unsigned char *p = cursor_raw(c, n);
    uint64_t v = 0;
    for (size_t i = 0; p != NULL && i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t cursor_u8(struct tree_cursor *c) { return (uint8_t)cursor_le(c, 1); }
uint32_t cursor_u32(struct tree_cursor *c) { return (uint32_t)cursor_le(c, 4); }
uint64_t cursor_u64(struct tree_cursor *c) { return cursor_le(c, 8); }

char *cursor_text(struct tree_cursor *c, size_t max) {
    size_t n = cursor_u32(c);
    const unsigned char *p = n <= max ? cursor_raw(c, n) : NULL;
    if (p == NULL || memchr(p, '\0', n) != NULL) {
        c->bad = true;
        return NULL;
    }
    return xstrndup((const char *)p, n);
}

bool cursor_whole(const struct tree_cursor *c) { return !c->bad && c->n == 0; }

bool frame_next(const struct tree_buf *b, enum tree_frame *ret_type, struct tree_cursor *ret, size_t *ret_n,
                struct gp_error *err) {
    struct tree_cursor head = {.p = b->p + b->off, .n = b->len - b->off};
    if (head.n < TREE_HEAD_N) return false;
    unsigned type = cursor_u8(&head);
    size_t n = cursor_u32(&head);
    if (type == 0 || type >= TREE_FRAME_END || n > TREE_FRAME_MAX) {
        gp_fail(err, GP_EPROTO, "the other side sent a frame of type %u with %zu bytes, which is none", type, n);
        return false;
    }
    if (head.n < n) return false;
    *ret_type = (enum tree_frame)type;
    *ret = (struct tree_cursor){.p = head.p, .n = n};
    *ret_n = TREE_HEAD_N + n;
    return true;
}

int frame_greeting(struct tree_buf *b, bool *ret, struct gp_error *err) {
    size_t n = b->len - b->off;
    const unsigned char *from = b->p + b->off;
    const unsigned char *at = n >= TREE_MAGIC_N ? memmem(from, n, TREE_MAGIC, TREE_MAGIC_N) : NULL;
    *ret = at != NULL;
    if (at != NULL) tree_buf_drop(b, (size_t)(at - from) + TREE_MAGIC_N);
    else if (n > NOISE_MAX) return gp_fail(err, GP_EPROTO, "the other side does not send a gpuprov transfer");
    return 0;
}

/* --- entries --- */

void tree_entry_clear(struct tree_entry *e) {
    free(e->path);
    free(e->link);
    *e = (struct tree_entry){0};
}

bool tree_path_ok(const char *path) {
    size_t len = strlen(path);
    if (len == 0 || len > TREE_PATH_MAX) return false;
    for (const char *s = path;;) {
        size_t n = strcspn(s, "/");
        if (n == 0 || n > TREE_NAME_MAX) return false;
        if ((n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.')) return false;
        if (s[n] == '\0') return true;
        s += n + 1;
    }
}

int tree_path_compare(const char *a, const char *b) {
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i]) i++;
    /* a slash is less than every other byte of a name */
    int x = a[i] == '/' ? 0 : a[i] == '\0' ? -1 : (unsigned char)a[i];
    int y = b[i] == '/' ? 0 : b[i] == '\0' ? -1 : (unsigned char)b[i];
    return x - y;
}

bool tree_link_inside(const char *path, const char *target) {
    long up = 0;
    bool down = false;
    if (target[0] == '/') return false;
    for (const char *s = path; *s != '\0'; s++) up += *s == '/';
    for (const char *s = target; *s != '\0';) {
        size_t n = strcspn(s, "/");
        bool climbs = n == 2 && s[0] == '.' && s[1] == '.';
        if (climbs && (down || up-- == 0)) return false; /* behind a name, which may be a link, ".." leads anywhere */
        if (!climbs && n > 0 && !(n == 1 && s[0] == '.')) down = true;
        s += n + (s[n] == '/');
    }
    return true;
}

void entry_put(struct tree_buf *b, const struct tree_entry *e) {
    frame_u8(b, (uint8_t)e->type);
    frame_u8(b, e->racy);
    frame_u32(b, e->mode);
    frame_u64(b, e->size);
    frame_u64(b, e->held);
    frame_u64(b, (uint64_t)e->mtime_s);
    frame_u32(b, e->mtime_ns);
    frame_bytes(b, e->path, strlen(e->path));
    if (e->type == 'l') frame_bytes(b, e->link, strlen(e->link));
}

bool entry_get(struct tree_cursor *c, struct tree_entry *ret) {
    unsigned type = cursor_u8(c), racy = cursor_u8(c);
    ret->type = (char)type;
    ret->racy = racy == 1;
    ret->mode = cursor_u32(c);
    ret->size = cursor_u64(c);
    ret->held = cursor_u64(c);
    ret->mtime_s = (int64_t)cursor_u64(c);
    ret->mtime_ns = cursor_u32(c);
    ret->path = cursor_text(c, TREE_PATH_MAX);
    if (type == 'l') ret->link = cursor_text(c, TREE_PATH_MAX);
    if (c->bad || (type != 'd' && type != 'f' && type != 'l') || racy > 1) return false;
    if (ret->mode > 0777 || ret->size > INT64_MAX || ret->held > ret->size || ret->mtime_ns >= 1000000000u)
        return false;
    if (type != 'f' && ret->size != 0) return false;
    return tree_path_ok(ret->path) && (type != 'l' || ret->link[0] != '\0');
}

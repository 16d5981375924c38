/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of a transfer: its buffer, frames and entries, encoded and strictly decoded. Private to core/tree.
 *
 * Each side sends TREE_MAGIC and then frames: a type byte, the payload's length (u32), the payload. Numbers are little
 * endian. The sender (the side with the source) and the taker (the side that writes) speak:
 *
 *   sender                                   taker
 *   BEGIN, RULES..., LIST..., LISTED    ->
 *                                       <-   WANT..., WANTED
 *   FILE, (DATA|HOLE)..., FILE_END      ->        for each wanted file, in that order; or SAME, or GONE
 *   DONE                                ->
 *                                       <-   RESULT
 *
 * Lists, wants and data overlap: neither side waits for the other's end. NOTE, FAIL and PING may come at any time after
 * the magic. */
#ifndef GP_TREE_FRAME_H
#define GP_TREE_FRAME_H

#include "base/error.h"
#include "base/str.h"

#define TREE_MAGIC "\0gpuprov-tree 1\n"
#define TREE_MAGIC_N ((size_t)16)
#define TREE_HEAD_N ((size_t)5)          /* of a frame: its type and length */
#define TREE_FRAME_MAX ((size_t)1 << 20) /* of a payload */
#define TREE_PATH_MAX 4095
#define TREE_NAME_MAX 255
#define TREE_ENTRIES_MAX 4000000u
#define TREE_COUNT_MAX ((uint64_t)1 << 53) /* of any number of the other side: sums of some stay below 2^63 */

enum tree_frame {
    TREE_BEGIN = 1, /* flags u8 (TREE_SINGLE) */
    TREE_RULES,     /* path of a folder, text of its ignore file */
    TREE_LIST,      /* entries, at least one */
    TREE_LISTED,    /* entries u32, flags u8 (TREE_PARTIAL), left out u64 */
    TREE_WANT,      /* records: index u32, how u8 (enum tree_how); RESUME also offset u64 and hash, COMPARE hash */
    TREE_WANTED,
    TREE_FILE,     /* index u32, offset u64: 0, or that of a RESUME whose hash is right */
    TREE_DATA,     /* bytes, at least one */
    TREE_HOLE,     /* length u64, at least 1 */
    TREE_FILE_END, /* hash of the whole file, changed u8 (it did while it was read) */
    TREE_SAME,     /* index u32: COMPARE, and the hash is right */
    TREE_GONE,     /* index u32, why: it cannot be read */
    TREE_DONE,
    TREE_RESULT,  /* removed u64 */
    TREE_NOTE,    /* left out u8: count it; text */
    TREE_FAIL,    /* code u8 (enum gp_code), detail, text */
    TREE_PING,    /* entries u64 that this side looked at, bytes u64 that it compared */
    TREE_REQUEST, /* to the agent, its first: see request.c */
    TREE_FRAME_END
};
enum { TREE_SINGLE = 1, TREE_PARTIAL = 1 };
enum tree_how { TREE_WHOLE, TREE_RESUME, TREE_COMPARE, TREE_HOW_END };

/* Bytes on their way: appended at the end, taken from the front. */
struct tree_buf {
    unsigned char *p;
    size_t off, len, cap; /* p[off, len) is there */
};
void tree_buf_clear(struct tree_buf *b);
unsigned char *tree_buf_room(struct tree_buf *b, size_t n); /* n bytes behind len; len stays */
void tree_buf_add(struct tree_buf *b, const void *p, size_t n);
void tree_buf_drop(struct tree_buf *b, size_t n); /* from the front */

/* Begins a frame; what is added until frame_end is its payload. */
size_t frame_begin(struct tree_buf *b, enum tree_frame type);
void frame_end(struct tree_buf *b, size_t at);
void frame_u8(struct tree_buf *b, uint8_t v);
void frame_u32(struct tree_buf *b, uint32_t v);
void frame_u64(struct tree_buf *b, uint64_t v);
void frame_bytes(struct tree_buf *b, const void *p, size_t n); /* length u32 and the bytes */

/* A payload being read. After a read beyond its end all are zero or empty, and `bad` is set. */
struct tree_cursor {
    const unsigned char *p;
    size_t n;
    bool bad;
};
uint8_t cursor_u8(struct tree_cursor *c);
uint32_t cursor_u32(struct tree_cursor *c);
uint64_t cursor_u64(struct tree_cursor *c);
const unsigned char *cursor_raw(struct tree_cursor *c, size_t n); /* borrowed; NULL: not there */
/* Bytes with their length, at most max, as text without a NUL in it; caller frees. NULL (and bad): not so. */
char *cursor_text(struct tree_cursor *c, size_t max);
bool cursor_whole(const struct tree_cursor *c); /* all was read, nothing beyond */

/* Takes the next frame off the front of b: true and its type and payload (borrowed until b changes; *ret_n: what to
 * drop afterwards). false: not all of it is there, or err is set (-GP_EPROTO). */
bool frame_next(const struct tree_buf *b, enum tree_frame *ret_type, struct tree_cursor *ret, size_t *ret_n,
                struct gp_error *err);
/* Skips what a login shell printed before TREE_MAGIC, and it. *ret: it was there. -GP_EPROTO: too much before it. */
int frame_greeting(struct tree_buf *b, bool *ret, struct gp_error *err);

struct tree_entry {
    char type; /* 'd' folder, 'f' file, 'l' link */
    bool racy; /* changed so recently that its time may not change with its next change */
    uint32_t mode;
    uint64_t size, held; /* held: without its holes, at most size; a compressed file holds less */
    int64_t mtime_s;
    uint32_t mtime_ns;
    char *path; /* relative, components of TREE_NAME_MAX, no "." or ".." */
    char *link; /* target; NULL: no link */
};
void tree_entry_clear(struct tree_entry *e);
void entry_put(struct tree_buf *b, const struct tree_entry *e);
/* False: malformed. The caller clears ret either way. */
bool entry_get(struct tree_cursor *c, struct tree_entry *ret);
/* A path as entries have it: no empty component, no "." or "..", no leading or trailing slash. */
bool tree_path_ok(const char *path);
/* The order of lists: by bytes, a folder right before what is in it. */
int tree_path_compare(const char *a, const char *b);
/* A link at path with this target stays below the root, if all links of the tree do: it climbs no further than the
 * root, and only at its start. */
bool tree_link_inside(const char *path, const char *target);

#endif

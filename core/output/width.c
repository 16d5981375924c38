/* SPDX-License-Identifier: Apache-2.0 */
/* Column widths of UTF-8 text: 0 for combining marks, 2 for East Asian wide and emoji, else 1. Own
 * ranges, because wcwidth depends on the locale and CI has none. Pure; any thread. */
#include "base/gp_base.h"

#include "width.h"

struct range {
    uint32_t first, last;
};

/* Unicode 15: general category Mn/Me/Cf in the blocks of common scripts. */
static const struct range zero[] = {
    {0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x0610, 0x061a}, {0x064b, 0x065f},  {0x06d6, 0x06dc},
    {0x0900, 0x0902}, {0x093c, 0x093c}, {0x0941, 0x0948}, {0x0e31, 0x0e31}, {0x0e34, 0x0e3a},  {0x0e47, 0x0e4e},
    {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x202a, 0x202e}, {0x2060, 0x2064},  {0x2066, 0x206f},
    {0x20d0, 0x20f0}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0xe0100, 0xe01ef}};

/* East_Asian_Width W and F, emoji with default emoji presentation. */
static const struct range two[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},   {0x23f0, 0x23f0},
    {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267f, 0x267f},
    {0x2693, 0x2693},   {0x26a1, 0x26a1},   {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
    {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},   {0x26f2, 0x26f3},   {0x26f5, 0x26f5},
    {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},   {0x2728, 0x2728},
    {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x27b0, 0x27b0},   {0x27bf, 0x27bf},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},
    {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},
    {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},
    {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x16fe0, 0x18cff}, {0x1b000, 0x1b2ff}, {0x1f004, 0x1f004},
    {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f200, 0x1f320}, {0x1f32d, 0x1f335},
    {0x1f337, 0x1f37c}, {0x1f37e, 0x1f393}, {0x1f3a0, 0x1f3ca}, {0x1f3cf, 0x1f3d3}, {0x1f3e0, 0x1f3f0},
    {0x1f3f4, 0x1f3f4}, {0x1f3f8, 0x1f43e}, {0x1f440, 0x1f440}, {0x1f442, 0x1f4fc}, {0x1f4ff, 0x1f53d},
    {0x1f54b, 0x1f54e}, {0x1f550, 0x1f567}, {0x1f57a, 0x1f57a}, {0x1f595, 0x1f596}, {0x1f5a4, 0x1f5a4},
    {0x1f5fb, 0x1f64f}, {0x1f680, 0x1f6c5}, {0x1f6cc, 0x1f6cc}, {0x1f6d0, 0x1f6d7}, {0x1f6dc, 0x1f6df},
    {0x1f6eb, 0x1f6ec}, {0x1f6f4, 0x1f6fc}, {0x1f7e0, 0x1f7eb}, {0x1f90c, 0x1f93a}, {0x1f93c, 0x1f945},
    {0x1f947, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

static bool in(const struct range *r, size_t n, uint32_t c) {
    for (size_t i = 0; i < n && r[i].first <= c; i++)
        if (c <= r[i].last) return true;
    return false;
}

/* Decodes one character at s; *ret_len bytes. Invalid or steering ones: '?' of one byte (a valid but
 * steering one: of its length). */
static uint32_t decode(const char *s, size_t *ret_len) {
    uint32_t c = 0;
    size_t len = str_utf8(s, strnlen(s, 4), &c);
    *ret_len = len == 0 ? 1 : len;
    return len == 0 || str_steers(c) ? '?' : c;
}

static size_t char_width(uint32_t c) {
    if (c < 0x300) return 1;
    if (in(zero, GP_ARRAY_LEN(zero), c)) return 0;
    return in(two, GP_ARRAY_LEN(two), c) ? 2 : 1;
}

static void add_char(struct str *out, uint32_t c, const char *s, size_t len) {
    if (c == '?') str_addc(out, '?');
    else str_add_mem(out, s, len);
}

size_t text_width(const char *s) {
    size_t width = 0;
    while (*s != '\0') {
        size_t len = 1;
        width += char_width(decode(s, &len));
        s += len;
    }
    return width;
}

size_t text_fit(struct str *out, const char *s, size_t width) {
    bool cut = text_width(s) > width;
    size_t room = cut && width > 0 ? width - 1 : width, used = 0;
    while (*s != '\0') {
        size_t len = 1;
        uint32_t c = decode(s, &len);
        size_t w = char_width(c);
        if (used + w > room) break;
        add_char(out, c, s, len);
        used += w;
        s += len;
    }
    if (cut && width > 0) {
        str_add(out, "\xe2\x80\xa6"); /* horizontal ellipsis */
        used++;
    }
    return used;
}

void text_pad(struct str *out, const char *s, size_t width) {
    for (size_t used = text_fit(out, s, width); used < width; used++) str_addc(out, ' ');
}

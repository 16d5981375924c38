/* SPDX-License-Identifier: Apache-2.0 */
/* struct str: a growing NUL-ended string with a stated maximum. Invariants: s is never NULL after
 * the first append or str_init; s[len] == 0; len <= max. An append past max stores what fits and
 * sets `truncated`. struct strv: a list of owned strings. */
#ifndef GP_BASE_STR_H
#define GP_BASE_STR_H

#include "base/gp_base.h"

#include <stdarg.h>

struct str {
    char *s;
    size_t len, cap;
    size_t max; /* bytes, without the NUL; 0 means STR_MAX_DEFAULT */
    bool truncated;
};
#define STR_MAX_DEFAULT ((size_t)16 << 20)

void str_init(struct str *s, size_t max);
void str_clear(struct str *s);                 /* frees; accepts zeroed; leaves zeroed but keeps max */
void str_reset(struct str *s);                 /* len = 0, keeps memory */
bool str_add(struct str *s, const char *text); /* false: truncated */
bool str_add_mem(struct str *s, const void *p, size_t n);
bool str_addc(struct str *s, char c);
bool str_addf(struct str *s, const char *fmt, ...) GP_PRINTF(2, 3);
bool str_vaddf(struct str *s, const char *fmt, va_list ap) GP_PRINTF(2, 0);
/* Adds text in single quotes for POSIX sh. */
bool str_add_shquoted(struct str *s, const char *text);
/* Adds text for a manual page (roff): its own control characters are escaped, and `words` become bold. */
bool str_add_roff(struct str *s, const char *text);
/* The UTF-8 character at text, n > 0 bytes left: its length and *ret, its code point. 0: not valid UTF-8. */
size_t str_utf8(const char *text, size_t n, uint32_t *ret);
/* Whether a character moves a cursor, turns text around or is invisible: C0, DEL, C1, bidi controls, zero
 * width characters, line separators, byte order marks, annotations, tags. All output escapes or replaces them. */
bool str_steers(uint32_t c);
/* Adds text as the inside of a JSON string, without the quotes. Escapes the characters that JSON requires and those
 * that steer a terminal; invalid UTF-8 becomes U+FFFD. */
bool str_add_json(struct str *s, const char *text, size_t n);
/* Adds JSON text with characters that steer a terminal escaped; they occur only within strings. Blanks and
 * newlines between values stay. The values are the same. */
bool str_add_json_text(struct str *s, const char *json, size_t n);
/* Makes text one line that cannot steer a terminal, in place: newline and tab become a blank; other
 * characters that steer and invalid UTF-8 become '?'. The result is valid UTF-8. */
void str_one_line(char *s);
/* A number of bytes for people: "0 B", "812 B", "1.2 kB", "3.0 MB", "1.5 GB", in powers of 1000. */
void bytes_format(char *dst, size_t n, uint64_t bytes);
/* Appends foreign output, such as that of a program on a node, as lines that cannot steer a terminal: escape sequences
 * and control characters are dropped, a line that a carriage return overwrote is its last form, other characters that
 * steer and invalid UTF-8 become '?'. Newlines and tabs stay. */
void str_add_clean(struct str *s, const char *text);
/* The last n lines of text, at most max bytes: whole lines, or the end of one that is longer. Points into text. */
const char *str_last_lines(const char *text, size_t n, size_t max);
char *str_steal(struct str *s); /* caller frees; never NULL; s is reset */
#define GP_AUTO_STR GP_CLEANUP(str_clear)

struct strv {
    char **v; /* NULL-ended once anything was added; may be NULL when n == 0 */
    size_t n, cap;
};
void strv_add(struct strv *v, const char *s); /* copies */
void strv_take(struct strv *v, char *s);      /* takes ownership */
void strv_addf(struct strv *v, const char *fmt, ...) GP_PRINTF(2, 3);
void strv_clear(struct strv *v);
bool strv_has(const struct strv *v, const char *s);
void strv_copy(struct strv *to, const struct strv *from);
void strv_merge(struct strv *to, const struct strv *from); /* adds each text that is not there yet */
/* Splits on any of seps, dropping empty parts. */
void strv_split(struct strv *v, const char *s, const char *seps);
char *strv_join(const struct strv *v, const char *sep); /* caller frees */
#define GP_AUTO_STRV GP_CLEANUP(strv_clear)

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
const char *str_without_name(const char *s, const char *name); /* behind "NAME: " where s begins with it, else s */
bool str_eq(const char *a, const char *b);                     /* NULL == NULL */
char *str_trim(char *s);                                       /* in place; returns the first non-blank */
/* Copies with truncation, always NUL-ended (dst_size > 0). False: truncated. */
bool str_put(char *dst, size_t dst_size, const char *src);
/* A figure of four significant digits without an exponent: "0.00006877", "58746". Returns dst. */
#define STR_FIGURE 48
const char *str_figure(char dst[STR_FIGURE], double v);
/* Whole string must be a decimal number in [min, max]. */
bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *ret);
bool str_to_double(const char *s, double *ret); /* finite, whole string, C locale form */
/* Edit distance (Damerau-Levenshtein, ASCII case-insensitive), for "did you mean". */
size_t str_distance(const char *a, const char *b);
/* Closest of names (NULL-ended) within a third of its length, or NULL. */
const char *str_closest(const char *word, const char *const *names);
void str_hex(char *dst, const void *p, size_t n); /* dst: 2n+1 bytes */

#endif

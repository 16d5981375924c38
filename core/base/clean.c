/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign output as lines that are safe to print and to keep. Pure; any thread. */
#include "base/gp_base.h"

#include "base/str.h"

/* A string after ESC ] P X ^ _ ends with BEL or ESC \, or at the end of the line if it has no end. */
static const char *skip_string(const char *p) {
    while (*p != '\0' && *p != '\n' && *p != '\a' && *p != '\033') p++;
    if (p[0] == '\033' && p[1] == '\\') return p + 2;
    return *p == '\a' ? p + 1 : p;
}

/* p: after the ESC. ECMA-48: CSI with its parameters, strings, other sequences. */
static const char *skip_escape(const char *p) {
    if (*p == '[') {
        p++;
        while (*p >= 0x20 && *p <= 0x3f) p++;
        return *p >= 0x40 && *p <= 0x7e ? p + 1 : p;
    }
    if (*p != '\0' && strchr("]PX^_", *p) != NULL) return skip_string(p + 1);
    while (*p >= 0x20 && *p <= 0x2f) p++;
    return *p >= 0x30 && *p <= 0x7e ? p + 1 : p;
}

/* What follows overwrites the line. */
static void restart_line(struct str *s, size_t start) {
    while (s->len > start && s->s[s->len - 1] != '\n') s->s[--s->len] = '\0';
}

void str_add_clean(struct str *s, const char *text) {
    size_t start = s->len, left = strlen(text);
    bool again = false; /* a carriage return is pending */
    str_add(s, "");
    for (const char *p = text, *end = text + left; p < end;) {
        uint32_t c = 0;
        size_t len = str_utf8(p, (size_t)(end - p), &c);
        if (*p == '\033') {
            p = skip_escape(p + 1);
            continue;
        }
        if (*p == '\r') again = true;
        else if (*p == '\n') again = false;
        if (len == 1 && c < 0x20 && c != '\n' && c != '\t') {
            p++;
            continue;
        }
        if (again) restart_line(s, start);
        again = false;
        bool keep = len > 0 && (*p == '\n' || *p == '\t' || !str_steers(c));
        if (keep) str_add_mem(s, p, len);
        else str_addc(s, '?');
        p += len == 0 ? 1 : len;
    }
}

const char *str_last_lines(const char *text, size_t n, size_t max) {
    size_t len = strlen(text);
    const char *p = text + len;
    if (p > text && p[-1] == '\n') p--;
    for (size_t lines = 0; p > text; p--) {
        if (p[-1] == '\n' && ++lines == n) return p;
        if ((size_t)(text + len - p) >= max) break;
    }
    const char *cut = p > text ? strchr(p, '\n') : NULL; /* begins with a whole line */
    if (cut != NULL && cut[1] != '\0') return cut + 1;
    while (((unsigned char)*p & 0xc0) == 0x80) p++; /* not in the middle of a character */
    return p;
}

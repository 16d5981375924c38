/* SPDX-License-Identifier: Apache-2.0 */
/* Ignore rules as gitignore(5) has them. Pure; any thread. */
#include "base/gp_base.h"

#include "tree/ignore.h"

#include <ctype.h>

void ignore_cut(struct ignore_rules *r, size_t n) {
    while (r->list.len > n) {
        struct ignore_rule *last = &r->list.items[--r->list.len];
        free(last->dir);
        free(last->pattern);
    }
}

void ignore_clear(struct ignore_rules *r) {
    ignore_cut(r, 0);
    vec_free(&r->list);
}

/* --- decoding --- */

/* Without blanks at the end, unless a backslash protects the first of them. */
static size_t without_blanks(const char *s, size_t n) {
    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r')) {
        if (n > 1 && s[n - 2] == '\\') break;
        n--;
    }
    return n;
}

static void add_line(struct ignore_rules *r, const char *dir, const char *s, size_t n) {
    struct ignore_rule rule = {0};
    n = without_blanks(s, n);
    if (n == 0 || s[0] == '#') return;
    if (s[0] == '!') {
        rule.keep = true;
        s++;
        n--;
    }
    if (n > 0 && s[n - 1] == '/') {
        rule.dirs = true;
        n--;
    }
    rule.anchored = memchr(s, '/', n) != NULL;
    if (n > 0 && s[0] == '/') {
        s++;
        n--;
    }
    if (n == 0 || memchr(s, '\0', n) != NULL) return;
    rule.dir = xstrdup(dir);
    rule.pattern = xstrndup(s, n);
    vec_push(&r->list, rule);
}

void ignore_add(struct ignore_rules *r, const char *dir, const char *text, size_t n) {
    while (n > 0) {
        const char *nl = memchr(text, '\n', n);
        size_t len = nl != NULL ? (size_t)(nl - text) : n;
        add_line(r, dir, text, len);
        len += nl != NULL;
        text += len;
        n -= len;
    }
}

/* --- matching --- */

static bool in_class(const char *name, size_t n, int c) {
    static const struct {
        const char *name;
        int (*is)(int);
    } all[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
               {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
               {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++)
        if (strlen(all[i].name) == n && memcmp(all[i].name, name, n) == 0) return all[i].is(c) != 0;
    return false;
}

/* A set "[...]" at p, which ends before `end`: whether c is in it, and *ret_n, its length. 0: it does not end. */
static bool in_set(const char *p, const char *end, unsigned char c, size_t *ret_n) {
    const char *s = p + 1;
    bool not = s < end && (*s == '!' || *s == '^'), in = false;
    if (not ) s++;
    *ret_n = 0;
    for (bool first = true; s < end && (first || *s != ']'); first = false) {
        const char *close = s + 1 < end && s[0] == '[' && s[1] == ':' ? memmem(s, (size_t)(end - s), ":]", 2) : NULL;
        if (close != NULL && close >= s + 2) {
            in |= in_class(s + 2, (size_t)(close - s - 2), c);
            s = close + 2;
            continue;
        }
        if (*s == '\\' && s + 1 < end) s++;
        unsigned char low = (unsigned char)*s++, high = low;
        if (s + 1 < end && s[0] == '-' && s[1] != ']') {
            s++;
            if (*s == '\\' && s + 1 < end) s++;
            high = (unsigned char)*s++;
        }
        in |= c >= low && c <= high;
    }
    if (s >= end) return false;
    *ret_n = (size_t)(s + 1 - p);
    return in != not ;
}

/* One name against one part of a pattern. After a mismatch only the last '*' takes one more byte. */
static bool name_match(const char *p, const char *p_end, const char *s, const char *s_end) {
    const char *star_p = NULL, *star_s = NULL;
    for (;;) {
        if (p < p_end && *p == '*') {
            star_p = ++p;
            star_s = s;
            continue;
        }
        if (p == p_end && s == s_end) return true;
        size_t n = 0;
        bool ok = false;
        if (p < p_end && s < s_end) {
            if (*p == '?') ok = (n = 1) == 1;
            else if (*p == '[') ok = in_set(p, p_end, (unsigned char)*s, &n);
            else {
                n = *p == '\\' && p + 1 < p_end ? 2 : 1;
                ok = p[n - 1] == *s;
            }
            if (n == 0) return false; /* a set without its end matches nothing */
        }
        if (ok) {
            p += n;
            s++;
        } else if (star_p != NULL && star_s < s_end) {
            p = star_p;
            s = ++star_s;
        } else return false;
    }
}

static const char *part_end(const char *s) { return s + strcspn(s, "/"); }

/* A path against a pattern, part by part; the part "**" stands for any number of names, at the end for one or more. */
static bool path_match(const char *p, const char *s) {
    const char *star_p = NULL, *star_s = NULL;
    for (;;) {
        const char *p_end = part_end(p), *s_end = part_end(s);
        if (p_end - p == 2 && p[0] == '*' && p[1] == '*') {
            if (*p_end == '\0') return *s != '\0';
            p = star_p = p_end + 1;
            star_s = s;
            continue;
        }
        if (*s != '\0' && *p != '\0' && name_match(p, p_end, s, s_end)) {
            if (*p_end == '\0' && *s_end == '\0') return true;
            if (*p_end != '\0' && *s_end != '\0') {
                p = p_end + 1;
                s = s_end + 1;
                continue;
            }
        }
        if (star_p == NULL) return false;
        star_s = part_end(star_s);
        if (*star_s == '\0') return false;
        p = star_p;
        s = ++star_s;
    }
}

static bool rule_match(const struct ignore_rule *r, const char *path, bool is_dir) {
    if (r->dirs && !is_dir) return false;
    size_t n = strlen(r->dir);
    if (n > 0 && (strncmp(path, r->dir, n) != 0 || path[n] != '/')) return false;
    const char *below = path + n + (n > 0);
    if (r->anchored) return path_match(r->pattern, below);
    const char *slash = strrchr(below, '/'), *name = slash != NULL ? slash + 1 : below;
    return name_match(r->pattern, r->pattern + strlen(r->pattern), name, name + strlen(name));
}

bool ignore_match(const struct ignore_rules *r, const char *path, bool is_dir) {
    for (size_t i = r->list.len; i > 0; i--)
        if (rule_match(&r->list.items[i - 1], path, is_dir)) return !r->list.items[i - 1].keep;
    return false;
}

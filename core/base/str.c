/* SPDX-License-Identifier: Apache-2.0 */
/* Capped strings, string lists and small text helpers. Any thread; no shared state. */
#include "base/gp_base.h"

#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>

void str_init(struct str *s, size_t max) {
    *s = (struct str){.max = max};
    str_add_mem(s, "", 0);
}

void str_clear(struct str *s) {
    free(s->s);
    *s = (struct str){.max = s->max};
}

void str_reset(struct str *s) {
    s->len = 0;
    s->truncated = false;
    if (s->s != NULL) s->s[0] = '\0';
}

bool str_add_mem(struct str *s, const void *p, size_t n) {
    size_t max = s->max ? s->max : STR_MAX_DEFAULT;
    bool fits = n <= max - s->len;
    if (!fits) {
        n = max - s->len;
        s->truncated = true;
    }
    if (s->len + n + 1 > s->cap) {
        size_t cap = s->cap ? s->cap : 64;
        while (cap < s->len + n + 1) cap *= 2;
        s->s = xrealloc(s->s, cap);
        s->cap = cap;
    }
    if (n > 0) memcpy(s->s + s->len, p, n);
    s->len += n;
    s->s[s->len] = '\0';
    return fits;
}

bool str_add(struct str *s, const char *text) { return str_add_mem(s, text, strlen(text)); }
bool str_addc(struct str *s, char c) { return str_add_mem(s, &c, 1); }

bool str_vaddf(struct str *s, const char *fmt, va_list ap) {
    char buf[256];
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(buf, sizeof buf, fmt, ap);
    bool ok = false;
    if (n >= 0 && (size_t)n < sizeof buf) {
        ok = str_add_mem(s, buf, (size_t)n);
    } else if (n >= 0) {
        char *big = xmalloc((size_t)n + 1);
        vsnprintf(big, (size_t)n + 1, fmt, again);
        ok = str_add_mem(s, big, (size_t)n);
        free(big);
    }
    va_end(again);
    return ok;
}

bool str_addf(struct str *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    bool ok = str_vaddf(s, fmt, ap);
    va_end(ap);
    return ok;
}

bool str_add_shquoted(struct str *s, const char *text) {
    str_addc(s, '\'');
    for (const char *p = text; *p; p++) {
        if (*p == '\'') str_add(s, "'\\''");
        else str_addc(s, *p);
    }
    str_addc(s, '\'');
    return !s->truncated;
}

bool str_add_roff(struct str *s, const char *text) {
    bool bold = false;
    for (const char *p = text; *p; p++) {
        bool first = p == text || p[-1] == '\n';
        if (first && (*p == '.' || *p == '\'')) str_add(s, "\\&");
        if (*p == '`') {
            bold = !bold;
            str_add(s, bold ? "\\fB" : "\\fR");
        } else if (*p == '\\') {
            str_add(s, "\\e");
        } else if (*p == '-') {
            str_add(s, "\\-");
        } else {
            str_addc(s, *p);
        }
    }
    if (bold) str_add(s, "\\fR");
    return !s->truncated;
}

size_t str_utf8(const char *text, size_t n, uint32_t *ret) {
    const unsigned char *p = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0x80) {
        *ret = p[0];
        return 1;
    }
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n) return 0;
    uint32_t c = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
    *ret = c;
    return len;
}

bool str_steers(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200b, 0x200f},  {0x2028, 0x202e},
                  {0x2060, 0x2069}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < GP_ARRAY_LEN(ranges) && ranges[i].first <= c; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

void str_one_line(char *s) {
    const char *p = s;
    size_t left = strlen(s);
    while (left > 0) {
        uint32_t c = 0;
        size_t len = str_utf8(p, left, &c);
        if (len == 0 || str_steers(c)) {
            *s++ = *p == '\n' || *p == '\t' ? ' ' : '?';
            len = len == 0 ? 1 : len;
        } else {
            memmove(s, p, len);
            s += len;
        }
        p += len;
        left -= len;
    }
    *s = '\0';
}

/* \uXXXX, two of them beyond U+FFFF. */
static void add_escape(struct str *s, uint32_t c) {
    if (c > 0xffff) str_addf(s, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    else str_addf(s, "\\u%04x", c);
}

bool str_add_json(struct str *s, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t len = str_utf8(text + i, n - i, &c);
        if (len == 0) {
            str_add(s, "\\ufffd");
            len = 1;
        } else if (c == '"' || c == '\\') {
            str_addf(s, "\\%c", (char)c);
        } else if (c == '\n' || c == '\t' || c == '\r') {
            str_add(s, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        } else if (str_steers(c)) {
            add_escape(s, c);
        } else {
            str_add_mem(s, text + i, len);
        }
        i += len;
    }
    return !s->truncated;
}

bool str_add_json_text(struct str *s, const char *json, size_t n) {
    for (size_t i = 0, len = 1; i < n; i += len) {
        uint32_t c = 0;
        len = str_utf8(json + i, n - i, &c);
        if (len == 0) str_addc(s, '?'); /* no JSON */
        else if (str_steers(c) && c != '\n' && c != '\t' && c != '\r') add_escape(s, c);
        else str_add_mem(s, json + i, len);
        len = len == 0 ? 1 : len;
    }
    return !s->truncated;
}

char *str_steal(struct str *s) {
    if (s->s == NULL) str_add_mem(s, "", 0);
    char *out = s->s;
    *s = (struct str){.max = s->max};
    return out;
}

void strv_addf(struct strv *v, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    strv_take(v, xvasprintf(fmt, ap));
    va_end(ap);
}

void strv_take(struct strv *v, char *s) {
    if (v->n + 2 > v->cap) {
        v->cap = v->cap ? v->cap * 2 : 8;
        v->v = xrealloc(v->v, v->cap * sizeof *v->v);
    }
    v->v[v->n++] = s;
    v->v[v->n] = NULL;
}

void strv_add(struct strv *v, const char *s) { strv_take(v, xstrdup(s)); }

void strv_clear(struct strv *v) {
    for (size_t i = 0; i < v->n; i++) free(v->v[i]);
    free(v->v);
    *v = (struct strv){0};
}

bool strv_has(const struct strv *v, const char *s) {
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->v[i], s) == 0) return true;
    return false;
}

void strv_copy(struct strv *to, const struct strv *from) {
    for (size_t i = 0; i < from->n; i++) strv_add(to, from->v[i]);
}

void strv_merge(struct strv *to, const struct strv *from) {
    for (size_t i = 0; i < from->n; i++)
        if (!strv_has(to, from->v[i])) strv_add(to, from->v[i]);
}

void strv_split(struct strv *v, const char *s, const char *seps) {
    while (*s) {
        size_t n = strcspn(s, seps);
        if (n > 0) strv_take(v, xstrndup(s, n));
        s += n;
        if (*s) s++;
    }
}

char *strv_join(const struct strv *v, const char *sep) {
    struct str out = {0};
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0) str_add(&out, sep);
        str_add(&out, v->v[i]);
    }
    return str_steal(&out);
}

bool str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

const char *str_without_name(const char *s, const char *name) {
    size_t n = strlen(name);
    return strncmp(s, name, n) == 0 && strncmp(s + n, ": ", 2) == 0 ? s + n + 2 : s;
}

bool str_ends(const char *s, const char *suffix) {
    size_t a = strlen(s), b = strlen(suffix);
    return a >= b && memcmp(s + a - b, suffix, b) == 0;
}

bool str_eq(const char *a, const char *b) { return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0); }

char *str_trim(char *s) {
    while (isspace((unsigned char)*s)) s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1])) n--;
    s[n] = '\0';
    return s;
}

bool str_put(char *dst, size_t dst_size, const char *src) {
    size_t n = strlen(src);
    bool fits = n < dst_size;
    if (!fits) n = dst_size - 1;
    memcpy(dst, src, n);
    dst[n] = '\0';
    return fits;
}

bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *ret) {
    if (!(isdigit((unsigned char)s[0]) || (s[0] == '-' && isdigit((unsigned char)s[1])))) return false;
    char *end = NULL;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno != 0 || *end != '\0' || v < min || v > max) return false;
    *ret = v;
    return true;
}

bool str_to_double(const char *s, double *ret) {
    if (!(isdigit((unsigned char)s[0]) || s[0] == '-' || s[0] == '.')) return false;
    if (strpbrk(s, "xXnN") != NULL) return false;
    char *end = NULL;
    errno = 0;
    double v = strtod(s, &end);
    if (*end != '\0' || !isfinite(v)) return false;
    *ret = v;
    return true;
}

size_t str_distance(const char *a, const char *b) {
    size_t la = strlen(a), lb = strlen(b);
    if (la > 63 || lb > 63) return SIZE_MAX;
    size_t d[64][64];
    for (size_t i = 0; i <= la; i++) d[i][0] = i;
    for (size_t j = 0; j <= lb; j++) d[0][j] = j;
    for (size_t i = 1; i <= la; i++) {
        for (size_t j = 1; j <= lb; j++) {
            int ca = tolower((unsigned char)a[i - 1]), cb = tolower((unsigned char)b[j - 1]);
            size_t best = d[i - 1][j - 1] + (ca != cb);
            best = GP_MIN(best, d[i - 1][j] + 1);
            best = GP_MIN(best, d[i][j - 1] + 1);
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) && tolower((unsigned char)a[i - 2]) == cb)
                best = GP_MIN(best, d[i - 2][j - 2] + 1);
            d[i][j] = best;
        }
    }
    return d[la][lb];
}

const char *str_closest(const char *word, const char *const *names) {
    const char *best = NULL;
    size_t best_d = SIZE_MAX;
    for (; *names != NULL; names++) {
        size_t d = str_distance(word, *names);
        size_t limit = GP_MAX(strlen(*names) / 3, (size_t)1);
        if (d <= limit && d < best_d) {
            best = *names;
            best_d = d;
        }
    }
    return best;
}

void str_hex(char *dst, const void *p, size_t n) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) {
        dst[2 * i] = digits[b[i] >> 4];
        dst[2 * i + 1] = digits[b[i] & 15];
    }
    dst[2 * n] = '\0';
}

const char *str_figure(char dst[STR_FIGURE], double v) {
    int digits = 3;
    double size = fabs(v);
    if (!isfinite(v)) {
        str_put(dst, STR_FIGURE, "not measured");
        return dst;
    }
    for (double a = size; a >= 10 && digits > 0; a /= 10) digits--;
    for (double a = size; a > 0 && a < 1 && digits < 9; a *= 10) digits++;
    snprintf(dst, STR_FIGURE, "%.*f", digits, v);
    if (strchr(dst, '.') == NULL) return dst;
    char *end = dst + strlen(dst);
    while (end[-1] == '0') *--end = '\0';
    if (end[-1] == '.') end[-1] = '\0';
    return dst;
}

void bytes_format(char *dst, size_t n, uint64_t bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB"};
    double v = (double)bytes;
    size_t u = 0;
    if (bytes < 1000) {
        snprintf(dst, n, "%d B", (int)bytes);
        return;
    }
    for (v /= 1000; v >= 999.95 && u + 1 < GP_ARRAY_LEN(units); u++) v /= 1000;
    snprintf(dst, n, "%.1f %s", v, units[u]);
}

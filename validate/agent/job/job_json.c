/* SPDX-License-Identifier: Apache-2.0 */
/* The strict parser of a job's JSON. */
#include "base/gp_base.h"

#include "validate/agent/job/job_json.h"

#define ITEMS_MAX 4096 /* members of one object */

struct reader {
    const char *start, *p, *end;
    struct gp_error *err;
};

static int bad(struct reader *r, const char *what) {
    return gp_fail(r->err, GP_EPROTO, "byte %zu: %s", (size_t)(r->p - r->start) + 1, what);
}

static void blanks(struct reader *r) {
    while (r->p < r->end && strchr(" \t\r\n", *r->p) != NULL && *r->p != '\0') r->p++;
}

static bool take(struct reader *r, char c) {
    blanks(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool take_word(struct reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return false;
    r->p += n;
    return true;
}

static void add_utf8(struct str *to, uint32_t c) {
    if (c < 0x80) {
        str_addc(to, (char)c);
        return;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    str_addc(to, (char)(lead[more] | (c >> (6 * more))));
    while (more-- > 0) str_addc(to, (char)(0x80 | ((c >> (6 * more)) & 0x3f)));
}

/* The four digits behind \u. */
static bool hex4(struct reader *r, uint32_t *ret) {
    *ret = 0;
    if (r->end - r->p < 4) return false;
    for (int i = 0; i < 4; i++, r->p++) {
        const char *digits = "0123456789abcdef", *at = NULL;
        char c = *r->p >= 'A' && *r->p <= 'F' ? (char)(*r->p - 'A' + 'a') : *r->p;
        if (c == '\0' || (at = strchr(digits, c)) == NULL) return false;
        *ret = *ret * 16 + (uint32_t)(at - digits);
    }
    return true;
}

static int escaped(struct reader *r, struct str *to) {
    static const char from[] = "\"\\/bfnrt", what[] = "\"\\/\b\f\n\r\t";
    char c = r->p < r->end ? *r->p : '\0';
    const char *at = c != '\0' ? strchr(from, c) : NULL;
    if (at != NULL) {
        r->p++;
        str_addc(to, what[at - from]);
        return 0;
    }
    uint32_t high = 0, low = 0;
    if (c != 'u') return bad(r, "an escape that JSON does not have");
    r->p++;
    if (!hex4(r, &high)) return bad(r, "\\u without four hexadecimal digits");
    if (high >= 0xd800 && high < 0xdc00) {
        if (!take_word(r, "\\u") || !hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
            return bad(r, "half of a surrogate pair");
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    } else if (high >= 0xdc00 && high <= 0xdfff) {
        return bad(r, "half of a surrogate pair");
    }
    if (high == 0) return bad(r, "a NUL in a text");
    add_utf8(to, high);
    return 0;
}

/* The text is added to `to`, which has no limit below that of the whole request. */
static int take_text(struct reader *r, struct str *to) {
    if (!take(r, '"')) return bad(r, "a text was expected");
    while (r->p < r->end && *r->p != '"') {
        uint32_t c = 0;
        if (*r->p == '\\') {
            r->p++;
            int rc = escaped(r, to);
            if (rc != 0) return rc;
            continue;
        }
        if ((unsigned char)*r->p < ' ') return bad(r, "a control character in a text");
        size_t n = str_utf8(r->p, (size_t)(r->end - r->p), &c);
        if (n == 0) return bad(r, "a text that is not UTF-8");
        str_add_mem(to, r->p, n);
        r->p += n;
    }
    if (r->p == r->end) return bad(r, "a text that does not end");
    r->p++;
    return 0;
}

static void wipe(char *s) {
    if (s != NULL) explicit_bzero(s, strlen(s));
    free(s);
}

static int owned_text(struct reader *r, char **ret) {
    struct str s = {0};
    str_init(&s, (size_t)(r->end - r->start) + 1);
    int rc = take_text(r, &s);
    if (rc == 0) *ret = xstrdup(s.s);
    if (s.s != NULL) explicit_bzero(s.s, s.cap);
    str_clear(&s);
    return rc;
}

static int number(struct reader *r, int64_t *ret) {
    char digits[24] = "";
    size_t n = 0;
    while (r->p < r->end && n + 1 < sizeof digits && strchr("-0123456789", *r->p) != NULL && *r->p != '\0')
        digits[n++] = *r->p++;
    const char *first = digits[0] == '-' ? digits + 1 : digits;
    if ((first[0] == '0' && first[1] != '\0') || !str_to_i64(digits, INT64_MIN, INT64_MAX, ret) ||
        (r->p < r->end && *r->p != '\0' && strchr(".eE+-0123456789", *r->p) != NULL))
        return bad(r, "a value that is neither a text, a whole number, true, false, null nor an object of texts");
    return 0;
}

static int map(struct reader *r, struct strv *to) {
    if (take(r, '}')) return 0;
    do {
        char *name = NULL, *value = NULL;
        int rc = owned_text(r, &name);
        if (rc == 0 && !take(r, ':')) rc = bad(r, "':' was expected");
        for (size_t i = 0; rc == 0 && i < to->n; i += 2)
            if (strcmp(to->v[i], name) == 0) rc = bad(r, "a name that is there twice");
        blanks(r);
        if (rc == 0 && !take_word(r, "null")) rc = owned_text(r, &value);
        if (rc == 0 && to->n / 2 == ITEMS_MAX) rc = bad(r, "too many members");
        if (rc != 0) {
            wipe(name);
            wipe(value);
            return rc;
        }
        strv_take(to, name);
        strv_take(to, value);
    } while (take(r, ','));
    return take(r, '}') ? 0 : bad(r, "'}' was expected");
}

static int value(struct reader *r, struct jmap_item *it) {
    blanks(r);
    if (r->p < r->end && *r->p == '"') {
        it->kind = JMAP_TEXT;
        return owned_text(r, &it->text);
    }
    if (take(r, '{')) {
        it->kind = JMAP_MAP;
        return map(r, &it->map);
    }
    it->kind = JMAP_NULL;
    if (take_word(r, "null")) return 0;
    it->kind = JMAP_BOOL;
    it->number = 1;
    if (take_word(r, "true")) return 0;
    it->number = 0;
    if (take_word(r, "false")) return 0;
    it->kind = JMAP_INT;
    return number(r, &it->number);
}

static int member(struct reader *r, struct jmap *m) {
    struct jmap_item it = {0};
    int rc = owned_text(r, &it.name);
    if (rc == 0 && jmap_find(m, it.name) != NULL) rc = bad(r, "a name that is there twice");
    if (rc == 0 && m->n == ITEMS_MAX) rc = bad(r, "too many members");
    if (rc == 0 && !take(r, ':')) rc = bad(r, "':' was expected");
    if (rc != 0) {
        free(it.name);
        return rc;
    }
    rc = value(r, &it);
    if (m->n == m->cap) {
        m->cap = m->cap > 0 ? 2 * m->cap : 16;
        m->v = xrealloc(m->v, m->cap * sizeof *m->v);
    }
    m->v[m->n++] = it; /* also half of one: jmap_clear frees it */
    return rc;
}

int jmap_parse(const char *json, size_t n, struct jmap *ret, struct gp_error *err) {
    struct reader r = {.start = json, .p = json, .end = json + n, .err = err};
    if (!take(&r, '{')) return bad(&r, "an object was expected");
    if (!take(&r, '}')) {
        do {
            int rc = member(&r, ret);
            if (rc != 0) return rc;
        } while (take(&r, ','));
        if (!take(&r, '}')) return bad(&r, "'}' was expected");
    }
    blanks(&r);
    return r.p == r.end ? 0 : bad(&r, "text after the object");
}

void jmap_wipe(struct strv *v) {
    for (size_t i = 0; i < v->n; i++)
        if (v->v[i] != NULL) explicit_bzero(v->v[i], strlen(v->v[i]));
    strv_clear(v);
}

void jmap_clear(struct jmap *m) {
    for (size_t i = 0; i < m->n; i++) {
        free(m->v[i].name);
        wipe(m->v[i].text);
        jmap_wipe(&m->v[i].map);
    }
    free(m->v);
    *m = (struct jmap){0};
}

const struct jmap_item *jmap_find(const struct jmap *m, const char *name) {
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->v[i].name, name) == 0) return &m->v[i];
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Trace lines to stderr, and the redactor of secrets in them. main selects the traced parts once before
 * threads start. The lists of secrets only grow and are read without a lock, because a child of fork reads them, too.
 * Any thread may trace. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 16384
#define LOG_SECRET_MIN 6
#define LOG_WORD_MAX 11   /* up to here, a value with a text of its own is replaced as a whole word only */
#define LOG_PREFIX_MIN 16 /* bytes of a value that was cut: "%.60s" */
#define LOG_LONG 1024     /* from here, a value on a line is often cut at its beginning, too */

static const char *const part_names[] = {"http", "ssh", "state", "node", NULL};
static atomic_uint parts_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct hidden {
    struct secret value;
    char *shown; /* NULL: "***" */
    char *part;  /* of `shown`: what is shown for a piece of the value */
    atomic_bool revealed;
    struct hidden *next; /* of all */
    struct hidden *same; /* of by_value */
    struct hidden *like; /* of by_start, or of all_short */
    struct hidden *next_long;
    size_t number; /* of a long one, from 0 on */
    size_t *again; /* of a long one, for each of its bytes: how many from there on are those at its beginning */
};
typedef _Atomic(struct hidden *) hidden_list; /* entries are added in front, under lock */

/* A file that a spec names may have 10,000 lines, and each is an entry. */
#define LOG_CHAINS ((size_t)1 << 14)
static hidden_list all_hidden, all_short, all_long;
static atomic_size_t n_long;
static hidden_list by_value[LOG_CHAINS], by_start[LOG_CHAINS]; /* by_start: of LOG_SECRET_MIN bytes */

int log_enable(const char *parts, struct gp_error *err) {
    GP_AUTO_STRV struct strv list = {0};
    strv_split(&list, parts, ", ");
    unsigned on = 0;
    for (size_t i = 0; i < list.n; i++) {
        size_t p = 0;
        while (part_names[p] != NULL && strcmp(part_names[p], list.v[i]) != 0) p++;
        if (strcmp(list.v[i], "all") == 0) on |= LOG_HTTP | LOG_SSH | LOG_STATE | LOG_NODE;
        else if (part_names[p] != NULL) on |= 1u << p;
        else
            return gp_fail(err, GP_EUSAGE, "unknown trace part '%s'; valid parts: http, ssh, state, node, all",
                           list.v[i]);
    }
    if (on == 0) return gp_fail(err, GP_EUSAGE, "no trace part given; valid parts: http, ssh, state, node, all");
    atomic_store(&parts_on, on);
    return 0;
}

bool log_on(enum log_part part) { return (atomic_load(&parts_on) & (unsigned)part) != 0; }

static const char *part_name(enum log_part part) {
    for (size_t i = 0; part_names[i] != NULL; i++)
        if ((unsigned)part == 1u << i) return part_names[i];
    return "trace";
}

void log_trace(enum log_part part, const char *fmt, ...) {
    if (!log_on(part)) return;
    GP_AUTO_STR struct str line = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm tm;
    gmtime_r(&now.tv_sec, &tm);
    str_addf(&line, "%02d:%02d:%02d.%03ld %s: ", tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000,
             part_name(part));
    size_t head = line.len;
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&line, fmt, ap);
    va_end(ap);
    GP_AUTO_FREE char *clean = log_redacted(line.s);
    str_one_line(clean + GP_MIN(head, strlen(clean)));
    /* redact before cutting, so that no part of a secret is left at the end */
    size_t shown = GP_MIN(strlen(clean), (size_t)LOG_LINE_MAX);
    bool cut = line.truncated || clean[shown] != '\0';
    GP_AUTO_FREE char *whole = xasprintf("%.*s%s\n", (int)shown, clean, cut ? " ..." : "");
    (void)fs_write_all(STDERR_FILENO, whole, strlen(whole));
}

/* PEM's first and last lines are no secret, and messages about keys have them. */
static bool is_mark(const struct secret *value) {
    const char *text = secret_reveal(value);
    return value->len < 64 && (str_starts(text, "-----BEGIN ") || str_starts(text, "-----END "));
}

/* Words of this program's own that an approval or a look at the bill rests on. A value cannot take them away: whoever
 * writes a file that a spec names knows the program's sentences, too. */
static const char *const kept[] = {"may still be billed", "not looked at",        "nothing is left",
                                   "nothing was found",   "runs on this machine", "no security boundary"};

/* The first replacement that a text like "https://h.example/${env:X}" names: a piece of the value need not be where the
 * text around it is. Caller frees. */
static char *part_of(const char *shown) {
    const char *at = strstr(shown, "${");
    while (at != NULL && ((at > shown && at[-1] == '$') || (!str_starts(at, "${env:") && !str_starts(at, "${file:"))))
        at = strstr(at + 2, "${");
    const char *end = at != NULL ? strchr(at, '}') : NULL;
    return end != NULL ? xstrndup(at, (size_t)(end - at) + 1) : xstrdup(shown);
}

static struct hash_key chain_key;
static pthread_once_t chain_once = PTHREAD_ONCE_INIT;
static void make_chain_key(void) { hash_key_init(&chain_key); }

/* The author of a spec chooses values, and must not choose those of one chain. */
static hidden_list *chain_of(hidden_list *table, const char *bytes, size_t n) {
    pthread_once(&chain_once, make_chain_key);
    return &table[hash_keyed(&chain_key, bytes, n) % LOG_CHAINS];
}

static struct hidden *find_value(const char *value, size_t n) {
    struct hidden *h = atomic_load(chain_of(by_value, value, n));
    while (h != NULL && !secret_equal(&h->value, value, n)) h = h->same;
    return h;
}

static void add_to(hidden_list *list, struct hidden *h, struct hidden **ret_next) {
    *ret_next = atomic_load(list);
    atomic_store(list, h);
}

/* struct hidden's `again`, in linear time (the Z-function). Caller frees. */
static size_t *again_of(const char *value, size_t len) {
    size_t *again = xcalloc(len, sizeof *again);
    again[0] = len;
    for (size_t i = 1, from = 0, to = 0; i < len; i++) {
        size_t n = i < to ? GP_MIN(again[i - from], to - i) : 0;
        while (i + n < len && value[n] == value[i + n]) n++;
        again[i] = n;
        if (i + n <= to) continue;
        from = i;
        to = i + n;
    }
    return again;
}

/* Under lock. */
static void add_long(struct hidden *h) {
    h->again = again_of(secret_reveal(&h->value), h->value.len);
    h->number = atomic_fetch_add(&n_long, 1);
    add_to(&all_long, h, &h->next_long);
}

/* One value has one entry: the later text replaces none. */
static void hide(const struct secret *value, const char *shown) {
    const char *bytes = secret_reveal(value);
    if (is_mark(value)) return;
    pthread_mutex_lock(&lock);
    struct hidden *h = find_value(bytes, value->len);
    if (h != NULL) {
        atomic_store(&h->revealed, false);
    } else {
        bool is_short = value->len < LOG_SECRET_MIN;
        h = xcalloc(1, sizeof *h);
        secret_copy(&h->value, value);
        h->shown = xstrdup(shown);
        h->part = shown != NULL ? part_of(shown) : NULL;
        if (value->len >= LOG_LONG) add_long(h);
        add_to(chain_of(by_value, bytes, value->len), h, &h->same);
        add_to(is_short ? &all_short : chain_of(by_start, bytes, LOG_SECRET_MIN), h, &h->like);
        add_to(&all_hidden, h, &h->next);
    }
    pthread_mutex_unlock(&lock);
}

/* Also as str_add_clean gives it, which changes bytes that are not UTF-8. */
static void hide_cleaned(const struct secret *value, const char *shown) {
    GP_AUTO_STR struct str clean = {0};
    GP_AUTO_SECRET struct secret form = {0};
    hide(value, shown);
    str_add_clean(&clean, secret_reveal(value));
    if (clean.len >= LOG_SECRET_MIN && strcmp(clean.s, secret_reveal(value)) != 0) {
        secret_set(&form, clean.s, clean.len);
        hide(&form, shown);
    }
    if (clean.s != NULL) explicit_bzero(clean.s, clean.len);
}

/* The forms in which a service may repeat it: percent-encoded, base64 of both alphabets without its padding, as the
 * inside of a JSON string. */
static void hide_forms(const struct secret *value) {
    static const char hex[] = "0123456789ABCDEF";
    const unsigned char *p = (const unsigned char *)secret_reveal(value);
    GP_AUTO_STR struct str url = {0}, json = {0};
    if (value->len < LOG_SECRET_MIN) return;
    for (size_t i = 0; i < value->len; i++) {
        bool plain = p[i] < 0x80 && (isalnum(p[i]) || strchr("-._~", p[i]) != NULL) && p[i] != '\0';
        if (plain) str_addc(&url, (char)p[i]);
        else str_add_mem(&url, (const char[]){'%', hex[p[i] >> 4], hex[p[i] & 15]}, 3);
    }
    str_add_json(&json, secret_reveal(value), value->len);
    GP_AUTO_FREE char *base64 = base64_text(p, value->len);
    base64[strcspn(base64, "=")] = '\0';
    const char *forms[] = {url.s, json.s, base64, base64};
    for (size_t i = 0; i < GP_ARRAY_LEN(forms); i++) {
        GP_AUTO_SECRET struct secret form = {0};
        for (char *c = base64; i == 3 && *c != '\0'; c++) *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
        secret_set(&form, forms[i], strlen(forms[i]));
        if (form.len >= LOG_SECRET_MIN) hide(&form, NULL);
    }
    explicit_bzero(url.s, url.len);
    explicit_bzero(json.s, json.len);
    explicit_bzero(base64, strlen(base64));
}

/* A value of several lines is also redacted line by line, because output may show it so. */
static void hide_lines(const struct secret *value, const char *shown) {
    const char *end = secret_reveal(value) + value->len;
    for (const char *p = secret_reveal(value); p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl != NULL ? nl : end) - p);
        GP_AUTO_SECRET struct secret line = {0};
        secret_set(&line, p, n > 0 && p[n - 1] == '\r' ? n - 1 : n);
        if (line.len >= LOG_SECRET_MIN) hide_cleaned(&line, shown);
        p += n + 1;
    }
}

void log_redact(const struct secret *value) {
    gp_error_filter(log_redacted);
    if (value->len >= LOG_SECRET_MIN) hide_cleaned(value, NULL);
    hide_forms(value);
    hide_lines(value, NULL);
}

void log_redact_text(const char *value) {
    GP_AUTO_SECRET struct secret s = {0};
    if (value == NULL) return;
    secret_set(&s, value, strlen(value));
    log_redact(&s);
}

void log_redact_as(const char *value, const char *shown) {
    GP_AUTO_SECRET struct secret s = {0};
    if (value[0] == '\0') return;
    GP_AUTO_FREE char *part = part_of(shown);
    secret_set(&s, value, strlen(value));
    hide_cleaned(&s, shown);
    hide_lines(&s, part);
    gp_error_filter(log_redacted);
}

void log_reveal(const char *value) {
    struct hidden *h = find_value(value, strlen(value));
    if (h != NULL && h->shown != NULL) atomic_store(&h->revealed, true);
}

/* Both bytes are of words. */
static bool joins(char a, char b) { return isalnum((unsigned char)a) && isalnum((unsigned char)b); }

/* The word that was looked at last: many URLs may stand in a long one. */
struct word {
    const char *end, *at; /* at: its last '@'; NULL: none */
};

/* One pass over a text. */
struct scan {
    const char *text;
    const char *kept_to; /* the end of the last sentence that is kept */
    const char *line;    /* the end of the last match that has the beginning of a line in it */
    struct word word;
    const char *password; /* of the last URL that has one */
    size_t password_len;
    struct {
        const char *from, *to;
    } * seen; /* by number of a long value: where its beginning was found last, and how much of it */
    size_t n_seen;
};

/* The bytes at `at` that are those at the beginning of h. Of a long value no byte of a text is compared twice: it may
 * look like itself at every byte. */
static size_t alike(struct scan *s, const struct hidden *h, const char *at) {
    const char *value = secret_reveal(&h->value);
    size_t n = 0, len = h->value.len;
    bool is_long = h->again != NULL && h->number < s->n_seen;
    if (is_long && s->seen[h->number].from != NULL && at < s->seen[h->number].to)
        n = GP_MIN(h->again[at - s->seen[h->number].from], (size_t)(s->seen[h->number].to - at));
    while (n < len && at[n] == value[n] && at[n] != '\0') n++;
    if (is_long && (s->seen[h->number].to == NULL || at + n > s->seen[h->number].to)) {
        s->seen[h->number].from = at;
        s->seen[h->number].to = at + n;
    }
    return n;
}

/* The bytes at `at` that show h: 0 is none. before: the byte in front, or 0. */
static size_t shows(struct scan *s, const struct hidden *h, const char *at, char before) {
    const char *value = secret_reveal(&h->value);
    size_t len = h->value.len;
    if (at[0] != value[0] || atomic_load(&h->revealed)) return 0;
    size_t n = alike(s, h, at);
    /* "https://h.example/${env:X}" begins with no secret, and neither does PEM */
    bool literal = (h->shown != NULL && h->shown[0] == value[0]) || str_starts(value, "-----");
    if (n < len) return n >= LOG_PREFIX_MIN && !literal && !isalnum((unsigned char)at[n]) ? n : 0;
    if (len < LOG_SECRET_MIN) return before == '\'' && at[len] == '\'' ? len : 0;
    bool word = !joins(before, value[0]) && !joins(value[len - 1], at[len]);
    return h->shown == NULL || len > LOG_WORD_MAX || word ? len : 0;
}

/* The bytes at the beginning of a line that are a part of h, of LOG_LONG or more, up to its end or that of the line: a
 * buffer or `tail -c` has cut what was in front. */
static size_t shows_rest(const struct hidden *h, const char *at) {
    size_t len = h->value.len;
    if (atomic_load(&h->revealed) || strnlen(at, LOG_PREFIX_MIN) < LOG_PREFIX_MIN) return 0;
    const char *value = secret_reveal(&h->value), *end = value + len, *p = value + 1;
    while ((p = memmem(p, (size_t)(end - p), at, LOG_PREFIX_MIN)) != NULL) {
        size_t n = LOG_PREFIX_MIN;
        while (p + n < end && at[n] == p[n]) n++;
        if (p + n == end || at[n] == '\n' || at[n] == '\0') return n;
        p++;
    }
    return 0;
}

/* Bytes of the word at p, which blanks end, and the quote that ends a string of JSON. No other character does: people
 * paste passwords that they should have encoded. */
static size_t word_len(const char *p) {
    for (size_t n = 0;; n++) {
        n += strcspn(p + n, " \t\r\n\"");
        bool escaped = n > 0 && p[n - 1] == '\\';
        if (p[n] != '"' || (!escaped && strchr(",:]}", p[n + 1]) != NULL)) return n;
    }
}

/* Bytes of the password in a URL whose user begins at p, behind "://"; 0: it has none. *ret_at: where, from p. What
 * looks like a port is part of one if an '@' follows: hiding too much of a word is better than showing a secret. */
static size_t url_password(const char *text, const char *p, struct word *w, size_t *ret_at) {
    if (p - text < 3 || memcmp(p - 3, "://", 3) != 0) return 0;
    if (w->end == NULL || p >= w->end) {
        size_t n = word_len(p);
        *w = (struct word){p + n, memrchr(p, '@', n)};
    }
    const char *colon = memchr(p, ':', GP_MIN((size_t)(w->end - p), strcspn(p, "/?#")));
    if (colon == NULL || w->at == NULL || w->at <= colon + 1) return 0;
    *ret_at = (size_t)(colon + 1 - p);
    return (size_t)(w->at - colon - 1);
}

/* The bytes from `at` on that are kept: those of a sentence that begins there. */
static size_t keeps(const char *at) {
    size_t n = 0;
    for (size_t i = 0; i < GP_ARRAY_LEN(kept); i++)
        if (at[0] == kept[i][0] && str_starts(at, kept[i])) n = GP_MAX(n, strlen(kept[i]));
    return n;
}

/* Shows n bytes at p as `shown`, but for those that are kept. *kept_to: the end of the last sentence that is. */
static void put_hidden(struct str *out, const char *p, size_t n, const char *shown, const char **kept_to) {
    bool told = false;
    for (const char *end = p + n; p < end; p++) {
        *kept_to = GP_MAX(*kept_to, p + keeps(p));
        bool keep = p < *kept_to;
        if (keep) str_addc(out, *p);
        else if (!told) str_add(out, shown);
        told = !keep;
    }
}

/* The longest of two: a whole value before one that was cut. */
static void take_longer(const struct hidden *h, size_t n, const struct hidden **best, size_t *longest) {
    if (n > *longest || (n > 0 && n == *longest && n == h->value.len)) *best = h;
    *longest = GP_MAX(n, *longest);
}

/* The value that p shows the most bytes of, and more than *n; NULL: none. *n: how many. */
static const struct hidden *find_at(struct scan *s, const char *p, size_t *n) {
    const struct hidden *best = NULL;
    const size_t least = *n;
    char before = p > s->text ? p[-1] : '\0';
    if (before == '\'')
        for (struct hidden *h = atomic_load(&all_short); h != NULL; h = h->like)
            take_longer(h, shows(s, h, p, before), &best, n);
    if (strnlen(p, LOG_SECRET_MIN) == LOG_SECRET_MIN)
        for (struct hidden *h = atomic_load(chain_of(by_start, p, LOG_SECRET_MIN)); h != NULL; h = h->like)
            if (h->value.len >= *n) take_longer(h, shows(s, h, p, before), &best, n);
    bool begins = p == s->text || before == '\n';
    if (p == s->line || (begins && least == 0)) /* inside another one it is looked for behind it, at s->line */
        for (struct hidden *h = atomic_load(&all_long); h != NULL; h = h->next_long)
            if (shows(s, h, p, before) == 0) take_longer(h, shows_rest(h, p), &best, n);
    return best;
}

/* The bytes at p that are hidden, if they are more than `least`; else 0. *ret_shown: what is shown for them; NULL:
 * "***". To be called for every byte of a text, in order. */
static size_t hides(struct scan *s, const char *p, size_t least, const char **ret_shown) {
    size_t at = 0, n_password = url_password(s->text, p, &s->word, &at), n = least;
    if (n_password > 0) {
        s->password = p + at;
        s->password_len = n_password;
    }
    const struct hidden *best = find_at(s, p, &n);
    *ret_shown = NULL;
    if (p == s->password && n < s->password_len) return s->password_len;
    if (n <= least) return 0;
    *ret_shown = n == best->value.len ? best->shown : best->part;
    return n;
}

/* The end of what is hidden from p on, of which `end` is known: a value or a password may begin inside another one and
 * end behind it. Such a secret takes *shown away, as "***" is true of both. */
static const char *hidden_to(struct scan *s, const char *p, const char *end, const char **shown) {
    for (const char *q = p + 1; q < end && *end != '\0'; q++) {
        const char *other = NULL;
        size_t n = hides(s, q, (size_t)(end - q), &other);
        if (n == 0) continue;
        end = q + n;
        if (other == NULL) *shown = NULL;
    }
    return end;
}

char *log_redacted(const char *text) {
    struct str out = {.max = SIZE_MAX - 1};
    struct scan s = {.text = text, .kept_to = text, .n_seen = atomic_load(&n_long)};
    if (s.n_seen > 0) s.seen = xcalloc(s.n_seen, sizeof *s.seen);
    for (const char *p = text; *p != '\0';) {
        const char *shown = NULL;
        size_t n = hides(&s, p, 0, &shown);
        s.kept_to = GP_MAX(s.kept_to, p + keeps(p));
        if (p + n <= s.kept_to || n == 0) {
            str_addc(&out, *p++);
            continue;
        }
        n = (size_t)(hidden_to(&s, p, p + n, &shown) - p);
        put_hidden(&out, p, n, shown != NULL ? shown : "***", &s.kept_to);
        if (memchr(p, '\n', n) != NULL) s.line = p + n;
        p += n;
    }
    free(s.seen);
    return out.s != NULL ? str_steal(&out) : xstrdup("");
}

char *log_cleaned(const char *foreign) {
    GP_AUTO_STR struct str clean = {0};
    str_add_clean(&clean, foreign);
    return log_redacted(clean.s != NULL ? clean.s : "");
}

void log_close(void) {
    gp_error_filter(NULL);
    struct hidden *h = atomic_exchange(&all_hidden, NULL);
    atomic_store(&all_short, NULL);
    atomic_store(&all_long, NULL);
    atomic_store(&n_long, 0);
    for (size_t i = 0; h != NULL && i < LOG_CHAINS; i++) {
        atomic_store(&by_value[i], NULL);
        atomic_store(&by_start[i], NULL);
    }
    while (h != NULL) {
        struct hidden *next = h->next;
        secret_clear(&h->value);
        free(h->shown);
        free(h->part);
        free(h->again);
        free(h);
        h = next;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Trace lines to stderr, and the redactor of secrets in them. main selects the traced parts once before
 * threads start; the list of secrets has its own mutex. Any thread may trace. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/str.h"
#include "base/vec.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 16384
#define LOG_SECRET_MIN 6

static const char *const part_names[] = {"http", "ssh", "state", "node", NULL};
static atomic_uint parts_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static VEC_OF(struct secret) secrets; /* longest first; under lock */

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

static void redact_one(const struct secret *value) {
    if (value->len < LOG_SECRET_MIN) return;
    pthread_mutex_lock(&lock);
    size_t at = secrets.len;
    bool known = false;
    for (size_t i = 0; i < secrets.len && !known; i++) {
        known = secret_equal(&secrets.items[i], secret_reveal(value), value->len);
        if (at == secrets.len && secrets.items[i].len < value->len) at = i;
    }
    if (!known) {
        struct secret copy = {0};
        secret_copy(&copy, value);
        vec_push(&secrets, copy);
        for (size_t i = secrets.len - 1; i > at; i--) secrets.items[i] = secrets.items[i - 1];
        secrets.items[at] = copy;
    }
    pthread_mutex_unlock(&lock);
}

/* A value of several lines is also redacted line by line, because output may show it so. */
void log_redact(const struct secret *value) {
    redact_one(value);
    const char *end = secret_reveal(value) + value->len;
    for (const char *p = secret_reveal(value); p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl != NULL ? nl : end) - p);
        GP_AUTO_SECRET struct secret line = {0};
        secret_set(&line, p, n > 0 && p[n - 1] == '\r' ? n - 1 : n);
        redact_one(&line);
        p += n + 1;
    }
}

char *log_redacted(const char *text) {
    GP_AUTO_STR struct str out = {.max = SIZE_MAX - 1};
    size_t left = strlen(text);
    pthread_mutex_lock(&lock);
    while (left > 0) {
        size_t hit = 0;
        for (size_t i = 0; i < secrets.len && hit == 0; i++) {
            const struct secret *s = &secrets.items[i];
            if (s->len <= left && memcmp(text, secret_reveal(s), s->len) == 0) hit = s->len;
        }
        if (hit > 0) str_add(&out, "***");
        else str_addc(&out, *text);
        text += hit > 0 ? hit : 1;
        left -= hit > 0 ? hit : 1;
    }
    pthread_mutex_unlock(&lock);
    return str_steal(&out);
}

void log_close(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < secrets.len; i++) secret_clear(&secrets.items[i]);
    vec_free(&secrets);
    pthread_mutex_unlock(&lock);
}

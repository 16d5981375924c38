/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes, keeps and reads findings. A line that a crash cut in the middle is no line: the next one takes its place. */
#include "base/gp_base.h"

#include "validate/agent/job/job_health.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/job/job_json.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define HEALTH_BYTES ((off_t)HEALTH_MAX * 1408) /* longest lines: quotes and backslashes are escaped */
#define WHEN_MAX 253402300799                   /* the year 9999 */
#define NO_MORE "there are too many findings: no more of them are kept"

static const char *const kinds[] = {"", "unhealthy", "blind", "preempted"};
static const char *const states[] = {"begin", "alive", "end"};
static const char *const severities[] = {"note", "degraded", "fail"};

/* --- a line --- */

/* The index of a member's text. False: it is none of them. */
static bool one_of(const struct jmap_item *it, const char *const *names, size_t n, int *ret) {
    for (size_t i = 0; it != NULL && it->kind == JMAP_TEXT && i < n; i++) {
        if (!str_eq(names[i], it->text)) continue;
        *ret = (int)i;
        return true;
    }
    return false;
}

static bool get_text(const struct jmap *m, const char *name, bool required, char *dst, size_t size) {
    const struct jmap_item *it = jmap_find(m, name);
    if (it == NULL) return !required;
    if (it->kind != JMAP_TEXT || it->text[0] == '\0') return false;
    str_put(dst, size, it->text);
    str_one_line(dst);
    return true;
}

static bool get_number(const struct jmap *m, const char *name, int64_t min, int64_t max, bool required, int64_t *ret) {
    const struct jmap_item *it = jmap_find(m, name);
    if (it == NULL) return !required;
    if (it->kind != JMAP_INT || it->number < min || it->number > max) return false;
    *ret = it->number;
    return true;
}

static bool get_when(const struct jmap *m, int64_t *ret) {
    const struct jmap_item *it = jmap_find(m, "when");
    return it == NULL || (it->kind == JMAP_TEXT && time_parse_utc(it->text, ret) && *ret > 0 && *ret <= WHEN_MAX);
}

static bool get_unhealthy(const struct jmap *m, struct finding *f) {
    int severity = 0;
    if (!one_of(jmap_find(m, "severity"), severities, GP_ARRAY_LEN(severities), &severity)) return false;
    f->severity = (enum finding_severity)severity;
    return get_number(m, "gpu", 0, 1023, false, &f->gpu) && get_text(m, "code", true, f->code, sizeof f->code) &&
           strspn(f->code, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(f->code) &&
           get_text(m, "text", true, f->text, sizeof f->text) &&
           get_text(m, "advice", false, f->advice, sizeof f->advice);
}

static bool get_state(const struct jmap *m) {
    const struct jmap_item *it = jmap_find(m, "kernlog");
    int64_t gpus = 0;
    return it != NULL && it->kind == JMAP_BOOL && get_number(m, "gpus", 0, 1024, true, &gpus);
}

static bool known(const struct jmap *m, const char *names) {
    for (size_t i = 0; i < m->n; i++) {
        GP_AUTO_FREE char *word = xasprintf(" %s ", m->v[i].name);
        if (strstr(names, word) == NULL || strchr(m->v[i].name, ' ') != NULL) return false;
    }
    return true;
}

static bool decode(const struct jmap *m, bool numbered, struct finding *f) {
    const struct jmap_item *watch = jmap_find(m, "watch");
    int kind = 0;
    if (!numbered && one_of(watch, states, GP_ARRAY_LEN(states), &kind))
        return known(m, " watch gpus kernlog ") && get_state(m);
    if (!one_of(watch, kinds, GP_ARRAY_LEN(kinds), &kind) || kind == FINDING_NONE) return false;
    f->kind = (enum finding_kind)kind;
    if (numbered ? !get_number(m, "n", 1, HEALTH_MAX, true, &f->n) : jmap_find(m, "n") != NULL) return false;
    if (f->kind == FINDING_UNHEALTHY) return known(m, " n watch gpu severity code text advice ") && get_unhealthy(m, f);
    if (f->kind == FINDING_PREEMPTED) return known(m, " n watch when ") && get_when(m, &f->when_s);
    return known(m, " n watch gpu reason ") && get_number(m, "gpu", 0, 1023, false, &f->gpu) &&
           get_text(m, "reason", true, f->text, sizeof f->text);
}

int finding_parse(const char *line, size_t n, bool numbered, struct finding *ret, struct gp_error *err) {
    GP_CLEANUP(jmap_clear) struct jmap m = {0};
    struct finding f = {.gpu = -1};
    int r = n < HEALTH_LINE_MAX ? jmap_parse(line, n, &m, err) : gp_fail(err, GP_EPROTO, "it is too long");
    if (r == 0 && !decode(&m, numbered, &f)) r = gp_fail(err, GP_EPROTO, "a member is missing, unknown or wrong");
    if (r == 0) *ret = f;
    return r;
}

static void add_text(struct str *s, const char *name, const char *text) {
    if (text[0] == '\0') return;
    str_addf(s, ",\"%s\":\"", name);
    str_add_json(s, text, strlen(text));
    str_addc(s, '"');
}

void finding_json(const struct finding *f, struct str *ret) {
    str_addf(ret, "{\"n\":%lld,\"watch\":\"%s\"", (long long)f->n, kinds[f->kind]);
    if (f->gpu >= 0) str_addf(ret, ",\"gpu\":%lld", (long long)f->gpu);
    if (f->kind == FINDING_UNHEALTHY) {
        add_text(ret, "severity", severities[f->severity]);
        add_text(ret, "code", f->code);
    }
    add_text(ret, f->kind == FINDING_BLIND ? "reason" : "text", f->text);
    add_text(ret, "advice", f->advice);
    if (f->when_s > 0) {
        char when[40];
        time_format_utc(when, sizeof when, f->when_s);
        add_text(ret, "when", when);
    }
    str_addc(ret, '}');
}

void finding_blind(struct finding *ret, const char *reason) {
    *ret = (struct finding){.kind = FINDING_BLIND, .gpu = -1};
    str_put(ret->text, sizeof ret->text, reason);
    str_one_line(ret->text);
}

/* --- the file --- */

static int open_file(const char *dir, int flags) {
    GP_AUTO_FREE char *path = fs_join(dir, "health");
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
}

int health_create(const char *dir, struct gp_error *err) {
    GP_AUTO_FD int fd = open_file(dir, O_RDWR | O_CREAT | O_EXCL);
    int e = fd < 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, HEALTH_BYTES) != 0 ? errno : 0;
    if (fd >= 0 && e != ENOSPC && e != EDQUOT) return 0; /* a file system that cannot allocate ahead does without */
    return gp_fail_errno(err, GP_EIO, e, "cannot allocate the file 'health' in '%s'", dir);
}

bool health_next(struct health *h, struct str *ret) {
    char buf[HEALTH_LINE_MAX];
    struct finding f;
    ssize_t got = h->fd >= 0 ? pread(h->fd, buf, sizeof buf, (off_t)h->at) : -1;
    const char *end = got > 0 ? memchr(buf, '\n', (size_t)got) : NULL;
    if (end == NULL || finding_parse(buf, (size_t)(end - buf), true, &f, NULL) != 0 || f.n != h->n + 1) return false;
    finding_json(&f, ret);
    h->n++;
    h->at += end - buf + 1;
    return true;
}

int health_open(struct health *h, const char *dir, struct gp_error *err) {
    GP_AUTO_STR struct str s = {0};
    *h = (struct health){.fd = open_file(dir, O_RDWR | O_CREAT)};
    if (h->fd < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot write the file 'health' in '%s'", dir);
    while (health_next(h, &s)) str_reset(&s);
    return 0;
}

bool health_open_read(struct health *h, const char *dir) {
    *h = (struct health){.fd = open_file(dir, O_RDONLY)};
    return h->fd >= 0;
}

void health_close(struct health *h) {
    if (h->fd >= 0) close(h->fd);
    h->fd = -1;
}

/* In one piece, so that a reader sees all of it or nothing. */
static int put(struct health *h, struct finding *f) {
    GP_AUTO_STR struct str s = {0};
    f->n = h->n + 1;
    finding_json(f, &s);
    str_addc(&s, '\n');
    ssize_t n = -1;
    do n = pwrite(h->fd, s.s, s.len, (off_t)h->at);
    while (n < 0 && errno == EINTR);
    if (n < (ssize_t)s.len) {
        f->n = 0;
        return n < 0 ? -errno : -ENOSPC;
    }
    (void)fdatasync(h->fd); /* readers have it already */
    h->n++;
    h->at += n;
    return 0;
}

int health_add(struct health *h, struct finding *f) {
    struct finding last;
    f->n = 0;
    if (h->fd < 0) return -EBADF;
    if (h->n < HEALTH_MAX - 2 || (f->kind == FINDING_PREEMPTED && h->n < HEALTH_MAX)) return put(h, f);
    if (h->n != HEALTH_MAX - 2) return 0;
    finding_blind(&last, NO_MORE);
    return put(h, &last);
}

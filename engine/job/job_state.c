/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the states of jobs and the lines of their logs. Pure; any thread. */
#include "base/gp_base.h"

#include "engine/job/job_state.h"

#include "base/clock.h"
#include "base/form.h"

#include <ctype.h>

/* Of any number that an agent prints: sums of such numbers and of bytes that arrive stay below 2^63. */
#define COUNT_MAX ((int64_t)1 << 53)
#define TIME_MAX_S ((int64_t)253402300799) /* the end of the year 9999 */

static const char *const phases[] = {
    [JOB_NONE] = "none", [JOB_SETUP] = "setup", [JOB_RUNNING] = "running", [JOB_ENDED] = "ended"};

const char *job_phase_name(enum job_phase p) { return phases[p]; }

static int wrong(const char *member, struct gp_error *err) {
    return gp_fail(err, GP_EPROTO, "the agent's reply about a job has no sound '%s'", member);
}

/* A word of letters, digits, '_' and '-', or absent. */
static bool take_word(const json_t *j, const char *member, char *dst, size_t n) {
    const char *text = json_str(j, member, "");
    for (const char *p = text; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-') return false;
    return str_put(dst, n, text);
}

static bool take_number(const json_t *j, const char *member, int64_t min, int64_t max, int64_t def, int64_t *ret) {
    const json_t *v = json_at(j, member);
    *ret = def;
    if (v == NULL || json_is_null(v)) return true;
    if (!json_is_integer(v)) return false;
    *ret = json_int(j, member, def);
    return *ret >= min && *ret <= max;
}

/* Absent: false. */
static bool take_bool(const json_t *j, const char *member, bool *ret) {
    const json_t *v = json_at(j, member);
    *ret = v != NULL && json_is_true(v);
    return v == NULL || json_is_null(v) || json_is_boolean(v);
}

static int take_numbers(const json_t *j, struct job_state *s, struct gp_error *err) {
    int64_t v = 0;
    if (!take_number(j, "rank", 0, 65535, 0, &v)) return wrong("rank", err);
    s->rank = (int)v;
    if (!take_number(j, "ranks", 1, 65536, 1, &v)) return wrong("ranks", err);
    s->ranks = (int)v;
    if (!take_number(j, "attempt", 0, 1000000, 1, &v)) return wrong("attempt", err);
    s->attempt = (int)v;
    if (!take_number(j, "exit", 0, 255, -1, &v)) return wrong("exit", err);
    s->exit = (int)v;
    if (!take_number(j, "started_s", 0, TIME_MAX_S, 0, &s->started_s)) return wrong("started_s", err);
    if (!take_number(j, "ended_s", 0, TIME_MAX_S, 0, &s->ended_s)) return wrong("ended_s", err);
    if (!take_number(j, "log_bytes", 0, COUNT_MAX, 0, &s->log_bytes)) return wrong("log_bytes", err);
    if (!take_number(j, "unhealthy", 0, 1000000, 0, &v)) return wrong("unhealthy", err);
    s->unhealthy = (int)v;
    return 0;
}

static int take_state(const json_t *j, struct job_state *s, struct gp_error *err) {
    const char *state = json_str(j, "state", "");
    int phase = JOB_ENDED;
    while (phase >= 0 && strcmp(phases[phase], state) != 0) phase--;
    if (phase < 0) return wrong("state", err);
    s->phase = (enum job_phase)phase;
    if (s->phase == JOB_NONE) return 0;
    if (!form_uid(json_str(j, "id", ""))) return wrong("id", err);
    if (!form_spec_hash(json_str(j, "key", ""))) return wrong("key", err);
    str_put(s->id, sizeof s->id, json_str(j, "id", ""));
    str_put(s->key, sizeof s->key, json_str(j, "key", ""));
    if (!take_word(j, "signal", s->signal, sizeof s->signal)) return wrong("signal", err);
    if (!take_word(j, "reason", s->reason, sizeof s->reason)) return wrong("reason", err);
    if (!take_word(j, "in", s->in, sizeof s->in)) return wrong("in", err);
    if (s->phase == JOB_ENDED && s->reason[0] == '\0') return wrong("reason", err);
    str_put(s->text, sizeof s->text, json_str(j, "text", ""));
    str_one_line(s->text);
    s->collected = json_bool(j, "collected", false);
    s->again = json_bool(j, "again", false);
    s->unit = json_bool(j, "unit", false);
    if (!take_bool(j, "preempted", &s->preempted)) return wrong("preempted", err);
    s->busy = strcmp(json_str(j, "job", ""), "busy") == 0;
    return take_numbers(j, s, err);
}

static int state_of(const json_t *j, struct job_state *ret, struct gp_error *err) {
    struct job_state s = {.exit = -1};
    int r = json_is_object(j) ? take_state(j, &s, err) : wrong("state", err);
    if (r == 0) *ret = s;
    return r;
}

int job_state_parse(const char *line, size_t n, struct job_state *ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    int r = json_parse(line, n, "the agent's reply about a job", &j, err);
    return r == 0 ? state_of(j, ret, err) : r;
}

bool job_state_ok(const struct job_state *s) {
    return s->phase == JOB_ENDED && s->exit == 0 && strcmp(s->reason, "exited") == 0;
}

void job_state_why(const struct job_state *s, char *dst, size_t n) {
    const char *in = strcmp(s->in, "setup") == 0 ? "its setup " : "";
    if (s->phase != JOB_ENDED) snprintf(dst, n, "has not ended");
    else if (strcmp(s->reason, "exited") == 0) snprintf(dst, n, "%sexited with code %d", in, s->exit);
    else if (strcmp(s->reason, "signaled") == 0) snprintf(dst, n, "%swas killed by %s", in, s->signal);
    else if (strcmp(s->reason, "max_duration") == 0) snprintf(dst, n, "%stook longer than job.max_duration", in);
    else if (strcmp(s->reason, "preempted") == 0) snprintf(dst, n, "was ended, because the cloud takes its node back");
    else if (strcmp(s->reason, "unhealthy") == 0)
        snprintf(dst, n, "was ended, because its node has a fault%s%s", s->text[0] != '\0' ? ": " : "", s->text);
    else snprintf(dst, n, "%s%s%s%s", in, s->reason, s->text[0] != '\0' ? ": " : "", s->text);
}

static json_t *text_or_null(const char *text) { return text[0] != '\0' ? json_any_text(text) : json_null(); }

json_t *job_state_json(const struct job_state *s) {
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:i, s:b}", "state", phases[s->phase], "exit",
                     s->exit >= 0 ? json_integer(s->exit) : json_null(), "signal", text_or_null(s->signal), "reason",
                     text_or_null(s->reason), "text", text_or_null(s->text), "attempt", s->attempt, "started_s",
                     (json_int_t)s->started_s, "ended_s", (json_int_t)s->ended_s, "log_bytes", (json_int_t)s->log_bytes,
                     "unhealthy", s->unhealthy, "preempted", (int)s->preempted);
}

/* --- health --- */

static const char *const kinds[] = {
    [JOB_UNHEALTHY] = "unhealthy", [JOB_BLIND] = "blind", [JOB_PREEMPTED] = "preempted"};

const char *job_health_name(enum job_health_kind k) { return kinds[k]; }

/* One clean line. False: it is no text, or it is required and absent. */
static bool take_clean(const json_t *j, const char *member, bool required, char *dst, size_t n) {
    const json_t *v = json_at(j, member);
    if (v == NULL || json_is_null(v)) return !required;
    if (!json_is_string(v)) return false;
    str_put(dst, n, json_string_value(v));
    str_one_line(dst);
    return true;
}

static bool is_severity(const char *s) {
    return strcmp(s, "note") == 0 || strcmp(s, "degraded") == 0 || strcmp(s, "fail") == 0;
}

int job_health_decode(const json_t *j, struct job_health *ret, struct gp_error *err) {
    struct job_health h = {0};
    int64_t v = 0, when_s = 0;
    const char *kind = json_str(j, "watch", "");
    if (!json_is_object(j)) return wrong("health", err);
    if (!take_number(j, "n", 1, JOB_HEALTH_MAX, 0, &v) || v == 0) return wrong("n", err);
    h.n = (int)v;
    while (h.kind < JOB_PREEMPTED && strcmp(kinds[h.kind], kind) != 0) h.kind++;
    if (strcmp(kinds[h.kind], kind) != 0) return wrong("watch", err);
    if (!take_number(j, "gpu", 0, 65535, -1, &v)) return wrong("gpu", err);
    h.gpu = (int)v;
    if (h.kind == JOB_PREEMPTED) {
        if (!take_clean(j, "when", false, h.text, sizeof h.text)) return wrong("when", err);
        if (h.text[0] != '\0' && !time_parse_utc(h.text, &when_s)) return wrong("when", err);
    } else if (h.kind == JOB_BLIND) {
        const char *member = json_at(j, "reason") != NULL ? "reason" : "text";
        if (!take_clean(j, member, true, h.text, sizeof h.text)) return wrong(member, err);
    } else {
        if (!take_clean(j, "text", true, h.text, sizeof h.text)) return wrong("text", err);
        if (!take_clean(j, "advice", false, h.advice, sizeof h.advice)) return wrong("advice", err);
        if (!take_word(j, "code", h.code, sizeof h.code) || h.code[0] == '\0') return wrong("code", err);
        if (!take_word(j, "severity", h.severity, sizeof h.severity) || !is_severity(h.severity))
            return wrong("severity", err);
    }
    *ret = h;
    return 0;
}

json_t *job_health_json(const struct job_health *h) {
    json_t *j = json_pack("{s:i, s:s, s:o, s:o}", "n", h->n, "watch", kinds[h->kind], "gpu",
                          h->gpu >= 0 ? json_integer(h->gpu) : json_null(), h->kind == JOB_PREEMPTED ? "when" : "text",
                          h->kind == JOB_PREEMPTED ? text_or_null(h->text) : json_any_text(h->text));
    if (h->kind != JOB_UNHEALTHY) return j;
    json_object_set_new(j, "severity", json_string(h->severity));
    json_object_set_new(j, "code", json_string(h->code));
    json_object_set_new(j, "advice", text_or_null(h->advice));
    return j;
}

void job_health_text(const struct job_health *h, char *dst, size_t n) {
    char gpu[24] = "";
    if (h->gpu >= 0) snprintf(gpu, sizeof gpu, "GPU %d: ", h->gpu);
    if (h->kind == JOB_PREEMPTED)
        snprintf(dst, n, "the cloud takes the node back%s%s", h->text[0] != '\0' ? " at " : "", h->text);
    else if (h->kind == JOB_BLIND) snprintf(dst, n, "%snot watched for faults: %s", gpu, h->text);
    else
        snprintf(dst, n, "%s%s (%s, %s)%s%s", gpu, h->text, h->code, h->severity, h->advice[0] != '\0' ? ": " : "",
                 h->advice);
}

/* --- the log --- */

void job_stream_flush(struct job_stream *s, const struct job_sink *to) {
    if (s->part.len == 0) return;
    if (to->text != NULL) to->text(to->ctx, s->part.s, s->part.len);
    str_reset(&s->part);
}

/* A piece of a line. One that does not fit any more is passed on before it. */
static void take_part(struct job_stream *s, const struct job_sink *to, const char *text, size_t n) {
    s->part.max = 2 * JOB_LINE_MAX;
    if (s->part.len + n > JOB_LINE_MAX) job_stream_flush(s, to);
    str_add_mem(&s->part, text, n);
}

static void take_line(struct job_stream *s, const struct job_sink *to, const char *text, size_t n) {
    s->offset += (int64_t)n + 1;
    if (s->part.len > 0) {
        take_part(s, to, text, n);
        job_stream_flush(s, to);
    } else if (to->text != NULL) {
        to->text(to->ctx, text, n);
    }
}

static void note(const struct job_sink *to, const char *fmt, ...) GP_PRINTF(2, 3);
static void note(const struct job_sink *to, const char *fmt, ...) {
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (to->note != NULL) to->note(to->ctx, text);
}

static int take_about(struct job_stream *s, const struct job_sink *to, const json_t *j, struct gp_error *err) {
    int64_t v = 0;
    if (json_at(j, "health") != NULL) {
        struct job_health h = {0};
        int r = job_health_decode(json_at(j, "health"), &h, err);
        if (r != 0 || h.n <= s->health_n) return r; /* a follower that reconnects gets all of them again */
        s->health_n = h.n;
        if (to->health != NULL) to->health(to->ctx, &h);
        return 0;
    }
    if (json_at(j, "end") != NULL) {
        int r = state_of(json_at(j, "end"), &s->end, err);
        if (r == 0 && s->end.phase != JOB_ENDED) r = wrong("end", err);
        s->ended = r == 0;
        return r;
    }
    if (!take_number(j, "dropped", 0, COUNT_MAX, 0, &v)) return wrong("dropped", err);
    if (v > 0) {
        job_stream_flush(s, to);
        s->dropped = GP_MIN(s->dropped + v, COUNT_MAX); /* the offset behind it comes with the next "at" */
        note(to, "%lld bytes of the log were dropped on the node, which keeps the last ones", (long long)v);
    }
    if (!take_number(j, "attempt", 0, 1000000, 0, &v)) return wrong("attempt", err);
    if (v > 1 && v != s->attempt) {
        job_stream_flush(s, to);
        note(to, "the job runs again, attempt %lld", (long long)v);
    }
    if (v > 0) s->attempt = (int)v;
    if (!take_number(j, "at", 0, COUNT_MAX, s->offset, &v)) return wrong("at", err);
    s->offset = v; /* a power cut, or a full disk, may have moved it */
    return 0;
}

int job_stream_line(struct job_stream *s, const struct job_sink *to, const char *line, size_t n, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    int r = 0;
    if (n == 0) return wrong("log", err);
    switch (line[0]) {
    case '=':
        s->came += (int64_t)n;
        take_line(s, to, line + 1, n - 1);
        return 0;
    case '+':
        s->came += (int64_t)n - 1;
        s->offset += (int64_t)n - 1;
        take_part(s, to, line + 1, n - 1);
        return 0;
    case '@':
        r = json_parse(line + 1, n - 1, "the agent's reply about a log", &j, err);
        if (r == 0 && !json_is_object(j)) r = wrong("log", err);
        return r == 0 ? take_about(s, to, j, err) : r;
    default: return wrong("log", err);
    }
}

void job_stream_clear(struct job_stream *s) { str_clear(&s->part); }

/* SPDX-License-Identifier: Apache-2.0 */
/* Any lines as the reply of `job follow`, and each of them as the state of a job: what is taken is within its limits, no
 * piece of the log is longer than a line may be, and findings come once. */
#include "base/gp_base.h"

#include "engine/job/job_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

static bool is_line(const char *s) {
    for (; *s != '\0'; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f) return false;
    return true;
}

static void look(const struct job_state *s) {
    char why[512];
    must(s->rank >= 0 && s->ranks >= 1 && s->attempt >= 0 && s->exit >= -1 && s->exit <= 255 && s->unhealthy >= 0);
    must(s->started_s >= 0 && s->ended_s >= 0 && s->log_bytes >= 0);
    must(is_line(s->signal) && is_line(s->reason) && is_line(s->in) && is_line(s->text));
    must(s->phase != JOB_ENDED || s->reason[0] != '\0');
    job_state_why(s, why, sizeof why);
    must(is_line(why));
    GP_AUTO_JSON json_t *j = job_state_json(s);
    must(j != NULL);
}

static int last_finding;

static void on_text(void *ctx, const char *line, size_t n) {
    size_t *seen = ctx;
    must(line != NULL || n == 0);
    *seen += n;
}

static void on_note(void *ctx, const char *text) {
    (void)ctx;
    must(is_line(text));
}

static void on_health(void *ctx, const struct job_health *h) {
    char text[640];
    (void)ctx;
    must(h->n > last_finding && h->n <= JOB_HEALTH_MAX && h->gpu >= -1);
    last_finding = h->n;
    job_health_text(h, text, sizeof text);
    must(is_line(text));
    GP_AUTO_JSON json_t *j = job_health_json(h);
    struct job_health again;
    must(j != NULL && job_health_decode(j, &again, NULL) == 0 && again.n == h->n && again.kind == h->kind);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t seen = 0;
    struct job_stream s = {0};
    const struct job_sink to = {.text = on_text, .note = on_note, .health = on_health, .ctx = &seen};
    const char *p = (const char *)data, *end = p + size;
    last_finding = 0;
    for (bool good = true; p < end && good;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl != NULL ? nl : end) - p);
        struct gp_error err = {0}, other = {0};
        struct job_state state;
        if (job_state_parse(p, n, &state, &other) == 0) look(&state);
        else must(other.code == GP_EPROTO && is_line(other.msg));
        good = job_stream_line(&s, &to, p, n, &err) == 0;
        must(good == (err.code == GP_OK) && is_line(err.msg));
        must(s.part.len <= JOB_LINE_MAX || s.part.len <= n);
        p += n + 1;
    }
    if (s.ended) look(&s.end);
    job_stream_flush(&s, &to);
    must(seen <= size && s.part.len == 0);
    job_stream_clear(&s);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Names of event statuses, the function that emits an event, without what the redactor hides, and its JSON. Prints
 * nothing. Any thread: the
 * sink is thread-safe by contract. */
#include "base/gp_base.h"

#include "model/event.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#include <stdarg.h>
#include <time.h>

const char *event_status_name(enum event_status s) {
    static const char *const names[] = {"info", "start", "progress", "done", "warn", "fail"};
    return (size_t)s < GP_ARRAY_LEN(names) ? names[s] : "info";
}

void event_send(const struct event_sink *sink, struct event e) {
    if (sink == NULL || sink->emit == NULL) return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    e.wall_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    GP_AUTO_FREE char *step = log_redacted(e.step != NULL ? e.step : "");
    GP_AUTO_FREE char *text = e.text != NULL ? log_redacted(e.text) : NULL;
    GP_AUTO_FREE char *output = e.output != NULL ? log_redacted(e.output) : NULL;
    e.step = step;
    e.text = text;
    e.output = output;
    sink->emit(sink->ctx, &e);
}

void event_emit(const struct event_sink *sink, int node, enum node_phase phase, enum event_status status,
                const char *step, const char *fmt, ...) {
    if (sink == NULL || sink->emit == NULL) return;
    GP_AUTO_STR struct str whole = {0};
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&whole, fmt, ap);
    va_end(ap);
    /* before it is cut, so that no part of a secret is left at the end */
    GP_AUTO_FREE char *clean = log_redacted(whole.s != NULL ? whole.s : "");
    char text[1024];
    snprintf(text, sizeof text, "%s", clean);
    str_one_line(text);
    event_send(sink, (struct event){.node = node, .phase = phase, .status = status, .step = step, .text = text});
}

static void add_text(struct str *out, const char *key, const char *text) {
    str_addf(out, ",\"%s\":", key);
    str_add(out, text != NULL ? "\"" : "null");
    if (text == NULL) return;
    str_add_json(out, text, strlen(text));
    str_addc(out, '"');
}

static void add_lines(struct str *out, const char *key, const char *lines) {
    str_addf(out, ",\"%s\":[", key);
    for (const char *s = lines; *s != '\0';) {
        size_t n = strcspn(s, "\n");
        str_add(out, s == lines ? "\"" : ",\"");
        str_add_json(out, s, n);
        str_addc(out, '"');
        s += n + (s[n] == '\n');
    }
    str_add(out, "]");
}

void event_jsonl(const struct event *e, struct str *out) {
    char t[32];
    time_format_utc(t, sizeof t, e->wall_ms / 1000);
    t[strcspn(t, "Z")] = '\0';
    str_addf(out, "{\"t\":\"%s.%03dZ\"", t, (int)(e->wall_ms % 1000));
    add_text(out, "stack", e->stack);
    if (e->owner != NULL) add_text(out, "owner", e->owner);
    add_text(out, "run", e->run);
    if (e->node >= 0) str_addf(out, ",\"node\":%d", e->node);
    else str_add(out, ",\"node\":null");
    add_text(out, "phase", node_phase_name(e->phase));
    add_text(out, "status", event_status_name(e->status));
    add_text(out, "step", e->step);
    add_text(out, "text", e->text);
    if (e->percent > 0) str_addf(out, ",\"percent\":%d", e->percent);
    if (e->output != NULL) add_lines(out, "output", e->output);
    str_add(out, "}\n");
}

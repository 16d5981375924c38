/* SPDX-License-Identifier: Apache-2.0 */
/* Names of event statuses, the function that emits an event, and its JSON. Prints nothing. Any thread: the
 * sink is thread-safe by contract. */
#include "base/gp_base.h"

#include "model/event.h"

#include "base/clock.h"
#include "base/str.h"

#include <stdarg.h>
#include <time.h>

const char *event_status_name(enum event_status s) {
    static const char *const names[] = {"info", "start", "progress", "done", "warn", "fail"};
    return (size_t)s < GP_ARRAY_LEN(names) ? names[s] : "info";
}

void event_emit(const struct event_sink *sink, int node, enum node_phase phase, enum event_status status,
                const char *step, const char *fmt, ...) {
    if (sink == NULL || sink->emit == NULL) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    str_one_line(text);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct event e = {
        .wall_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
        .node = node,
        .phase = phase,
        .status = status,
        .step = step != NULL ? step : "",
        .text = text,
    };
    sink->emit(sink->ctx, &e);
}

static void add_text(struct str *out, const char *key, const char *text) {
    str_addf(out, ",\"%s\":", key);
    str_add(out, text != NULL ? "\"" : "null");
    if (text == NULL) return;
    str_add_json(out, text, strlen(text));
    str_addc(out, '"');
}

void event_jsonl(const struct event *e, struct str *out) {
    char t[32];
    time_format_utc(t, sizeof t, e->wall_ms / 1000);
    t[strcspn(t, "Z")] = '\0';
    str_addf(out, "{\"t\":\"%s.%03dZ\"", t, (int)(e->wall_ms % 1000));
    add_text(out, "stack", e->stack);
    add_text(out, "run", e->run);
    if (e->node >= 0) str_addf(out, ",\"node\":%d", e->node);
    else str_add(out, ",\"node\":null");
    add_text(out, "phase", node_phase_name(e->phase));
    add_text(out, "status", event_status_name(e->status));
    add_text(out, "step", e->step);
    add_text(out, "text", e->text);
    str_add(out, "}\n");
}
